"""`keys add`, `keys list`, `keys revoke`: API keys, in the store that the service uses."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from service.errors import DataFolderInUse, LaunchError
from service.process.private_store import EmbeddedServer
from service.process.store_format import connect, require_format
from service.sessions.tenants import DEFAULT
from service.settings import Settings
from service.store.api_keys import COUNTS, RATES, SCOPES, ApiKey, issue, read, write
from service.store.keys import api_keys_key

PATIENCE = 5.0  # seconds that the store may take to answer
WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
DAY = 86400
LIMITS = {
    "requests": "requests a second",
    "points": "points a second",
    "bytes": "bytes of bodies a second",
    "sessions": "sessions of its tenant",
    "streams": "event streams in one worker",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    add = actions.add_parser("add", help="make a key, and print it: it cannot be read again")
    add.add_argument("--tenant", default=DEFAULT, help=f"whose sessions it is for ({DEFAULT})")
    add.add_argument("--scopes", default=",".join(SCOPES), help=f"some of {','.join(SCOPES)} (all)")
    add.add_argument("--name", default="", help="what it is for")
    add.add_argument("--days", type=float, help="days until it expires (never)")
    for name in (*RATES, *COUNTS):
        add.add_argument(f"--{name}", type=int, default=0, help=f"{LIMITS[name]} at the most (no limit)")
    actions.add_parser("list", help="the keys there are, without their secrets")
    revoke = actions.add_parser("revoke", help="end a key; workers notice within seconds")
    revoke.add_argument("id", help="its id, the part between the underscores")
    for each in actions.choices.values():
        each.add_argument("--data", help="data folder of the private store")
        each.add_argument("--redis-url", help="URL of the store")


def keys(settings: Settings, asked: dict[str, Any]) -> int:
    """The exit code: 1 if it was not done, with one sentence on stderr"""
    try:
        with _store(settings) as client:
            return {"add": _add, "list": _list, "revoke": _revoke}[asked["action"]](client, asked)
    except LaunchError as error:
        sys.stderr.write(error.detail + "\n")
    except redis.RedisError as error:
        sys.stderr.write(f"the store does not answer: {error}\n")
    return 1


@contextmanager
def _store(settings: Settings) -> Iterator[redis.Redis]:
    """The configured store, or the private one, which may be running"""
    if settings.redis_url is not None:
        with connect(settings.redis_url, PATIENCE) as client:
            require_format(client, "the store at REDIS_URL")
            yield client
        return
    server = EmbeddedServer(settings.data)
    try:
        server.start()
        url = server.url
    except DataFolderInUse:
        url = f"unix://{_folder(settings.data.resolve())}/server.sock"
    try:
        with connect(url, PATIENCE) as client:
            require_format(client, f"the data folder {settings.data}")
            yield client
    finally:
        server.stop()


def _folder(data: Path) -> Path:
    """Where the running server's socket is: a link, if the folder's own path is too long for one"""
    shortcut = data / "shortcut"
    return Path(shortcut.read_text()) if shortcut.exists() else data


def _add(client: redis.Redis, asked: dict[str, Any]) -> int:
    scopes = tuple(part.strip() for part in asked["scopes"].split(",") if part.strip())
    wrong = [part for part in scopes if part not in SCOPES]
    if wrong or not scopes:
        sys.stderr.write(f"a scope is one of {', '.join(SCOPES)}, not {', '.join(wrong) or 'none'}\n")
        return 2
    if not WORD.fullmatch(asked["tenant"]):
        sys.stderr.write("a tenant is 1 to 64 letters, digits, - and _\n")
        return 2
    limits = {name: asked[name] for name in (*RATES, *COUNTS) if asked[name] > 0}
    expires = None if asked["days"] is None else time.time() + asked["days"] * DAY
    told, key = issue(tenant=asked["tenant"], scopes=scopes, name=asked["name"][:200], expires=expires, limits=limits)
    client.hset(api_keys_key(), key.id, write(key))
    sys.stdout.write(told + "\n")
    return 0


def _list(client: redis.Redis, asked: dict[str, Any]) -> int:
    stored: Any = client.hgetall(api_keys_key())
    found = [read(id.decode(), value) for id, value in stored.items()]
    for key in sorted(found, key=lambda each: each.created):
        sys.stdout.write(_line(key) + "\n")
    return 0


def _line(key: ApiKey) -> str:
    until = "never expires"
    if key.expires is not None:
        word = "expires" if key.expires > time.time() else "EXPIRED"
        until = f"{word} {time.strftime('%Y-%m-%d', time.gmtime(key.expires))}"
    limits = " ".join(f"{name}={number}" for name, number in key.limits.items())
    return "  ".join(part for part in (key.id, key.tenant, ",".join(key.scopes), until, limits, key.name) if part)


def _revoke(client: redis.Redis, asked: dict[str, Any]) -> int:
    if not client.hdel(api_keys_key(), asked["id"]):
        sys.stderr.write(f"there is no key {asked['id'][:64]!r}\n")
        return 1
    return 0
