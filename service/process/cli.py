"""The command line: `serve` runs the service, `doctor` checks this environment; `keys`, `backup` and `restart`."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import redis
from pydantic import ValidationError

from service.errors import LaunchError, OldFormat
from service.process.backup import backup
from service.process.keys import add_options, keys
from service.process.private_store import EmbeddedServer, find_server, supervisor
from service.process.serve import serve
from service.process.store_format import FORMAT, connect, stored_format
from service.settings import Settings

OPTIONS = ("host", "port", "workers", "data", "redis_url")
OLDEST = (6, 2)  # of Redis
PATIENCE = 3.0  # seconds that a store may take to answer each of the doctor's questions


def main(argv: list[str] | None = None) -> int:
    arguments = vars(_parser().parse_args(argv))
    command = arguments.pop("command")
    given = {name: value for name, value in arguments.items() if name in OPTIONS and value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for wrong in error.errors():
            where = ".".join(map(str, wrong["loc"])) or "settings"
            sys.stderr.write(f"{where}: {wrong['msg'].removeprefix('Value error, ')}\n")
        return 2
    if command == "keys":
        return keys(settings, arguments)
    if command == "backup":
        return backup(settings, Path(arguments["folder"]))
    if command == "restart":
        return restart(settings.data)
    return serve(settings) if command == "serve" else doctor(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service", description="Horocycle, served over HTTP.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help in (("serve", "run the service"), ("doctor", "say what is wrong with this environment")):
        command = commands.add_parser(name, help=help)
        for option in OPTIONS:
            field = Settings.model_fields[option]
            command.add_argument(f"--{option.replace('_', '-')}", help=f"{field.description} ({field.default})")
    copy = commands.add_parser("backup", help="copy the private store's data, also while the service runs")
    copy.add_argument("folder", help="where to; it must not be there")
    copy.add_argument("--data", help="data folder of the private store")
    again = commands.add_parser(
        "restart", help="replace the workers of the service one by one, without a failed request"
    )
    again.add_argument("--data", help="data folder of its private store; with another store: kill -HUP its pid")
    add_options(commands.add_parser("keys", help="API keys: add, list, revoke"))
    return parser


def restart(data: Path) -> int:
    """SIGHUP to the service of this data folder. The exit code: 1 if there is none"""
    pid = supervisor(data)
    if pid is None:
        sys.stderr.write(f"no service runs with the data folder {data}; with a configured store: kill -HUP its pid\n")
        return 1
    os.kill(pid, signal.SIGHUP)
    sys.stdout.write(f"service {pid} replaces its workers; its log has a line for each\n")
    return 0


def doctor(settings: Settings) -> int:
    """Every check, with what to do about it. The exit code: 1 if any failed"""
    failed = False
    for good, line in _checks(settings):
        failed |= not good
        sys.stdout.write(f"{'ok   ' if good else 'WRONG'} {line}\n")
        sys.stdout.flush()
    return int(failed)


def _checks(settings: Settings) -> Iterator[tuple[bool, str]]:
    yield sys.version_info >= (3, 11), f"Python {sys.version.split()[0]}; 3.11 or newer is needed"
    try:
        with socket.create_server((settings.host, settings.port)):
            yield True, f"{settings.host}:{settings.port} is free"
    except OSError as error:
        yield False, f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}; try --port"
    if settings.redis_url is None:
        yield from _private(settings.data)
    else:
        yield from _store(settings.redis_url, "the store at REDIS_URL")


def _private(data: Path) -> Iterator[tuple[bool, str]]:
    try:
        yield True, f"the private store is {find_server(data)}"
        with EmbeddedServer(data) as server:
            yield True, f"it runs in {data.resolve()}"
            yield from _store(server.url, f"the data folder {data}")
    except LaunchError as error:
        yield False, error.detail


def _store(url: str, where: str) -> Iterator[tuple[bool, str]]:
    try:
        with connect(url, PATIENCE) as client:
            version = str(client.info("server")["redis_version"])
            new = tuple(map(int, version.split(".")[:2])) >= OLDEST
            yield new, f"the store speaks as Redis {version}; 6.2 or newer is needed"
            memory, disk = client.info("memory"), client.info("persistence")
            policy = memory.get("maxmemory_policy")
            yield policy == "noeviction", f"maxmemory-policy is {policy}; noeviction keeps what was acknowledged"
            yield bool(disk["aof_enabled"]), "appendonly keeps acknowledged points across a crash; on is needed"
            found = stored_format(client)
            ours = found in (None, FORMAT)
            yield ours, f"the store's format is {FORMAT}" if ours else OldFormat(where, str(found), FORMAT).detail
    except redis.RedisError as error:
        yield False, f"the store at {url.split('@')[-1]} does not answer: {error}"
