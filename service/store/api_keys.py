"""API keys: `hk_<id>_<secret>`. The store has the id and a hash of the secret, with whose it is and what it may do.

The secret has 256 bits of chance in it, so a fast hash will do. It is compared in constant time.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from service.errors import RateLimited, Unauthenticated
from service.sessions.tenants import DEFAULT
from service.store import scripts
from service.store.connection import Connection
from service.store.keys import api_keys_key, quota_key

SCOPES = ("observe", "predict", "admin")
#: What a key may be limited in: so many a second, of the tenant's sessions, and event streams of one worker.
RATES, COUNTS = ("requests", "points", "bytes"), ("sessions", "streams")
#: Seconds that a worker believes what it knows of a key: a key that is revoked works so long at the most.
BELIEVED = 5.0
#: Keys that a worker remembers.
REMEMBERED = 4096


@dataclass(frozen=True)
class ApiKey:
    id: str
    hash: str  # of the secret
    tenant: str = DEFAULT
    scopes: tuple[str, ...] = SCOPES
    name: str = ""
    created: float = 0.0
    expires: float | None = None
    limits: dict[str, int] = field(default_factory=dict)

    def opened_by(self, secret: str, now: float) -> bool:
        same = hmac.compare_digest(self.hash, hashed(secret))
        return same and (self.expires is None or now < self.expires)


def hashed(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def issue(**fields: Any) -> tuple[str, ApiKey]:
    """A new key: what its owner is told, once, and what is kept of it"""
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return f"hk_{id}_{secret}", ApiKey(id, hashed(secret), created=time.time(), **fields)


def write(key: ApiKey) -> str:
    return json.dumps({**asdict(key), "id": None})


def read(id: str, stored: bytes) -> ApiKey:
    found = json.loads(stored)
    return ApiKey(**{**found, "id": id, "scopes": tuple(found["scopes"])})


_NOBODY = ApiKey("", hashed(secrets.token_urlsafe()))


class ApiKeys:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[float, ApiKey]] = {}

    async def admitted(self, authorization: str | None) -> ApiKey:
        """The key of this header"""
        scheme, _, token = (authorization or "").partition(" ")
        parts = token.strip().split("_", 2)
        if scheme.lower() != "bearer" or len(parts) != 3 or parts[0] != "hk":
            raise Unauthenticated(
                "an API key is needed: Authorization: Bearer hk_…; `python -m service keys add` makes one"
            )
        found = await self._find(parts[1][:32])
        if not (found or _NOBODY).opened_by(parts[2], time.time()) or found is None:
            raise Unauthenticated("this API key is not known, or has expired, or was revoked")
        return found

    async def is_good(self, key: ApiKey) -> bool:
        """Whether a key that was admitted has been neither revoked nor changed since, and has not expired"""
        return await self._find(key.id) == key and (key.expires is None or time.time() < key.expires)

    async def _find(self, id: str) -> ApiKey | None:
        until, key = self._known.get(id, (0.0, _NOBODY))
        if time.monotonic() < until:
            return key
        stored = await self._connection.call("HGET", api_keys_key(), id)
        self._known.pop(id, None)
        if stored is None:
            return None
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        key = read(id, stored)
        self._known[id] = (time.monotonic() + BELIEVED, key)
        return key

    async def charge(self, key: ApiKey, costs: Mapping[str, int]) -> dict[str, int]:
        """Take so much of the key's rates; what is left of each. Raises if one has not enough"""
        limited = {name: cost for name, cost in costs.items() if key.limits.get(name)}
        if not limited:
            return {}
        arguments = [part for name, cost in limited.items() for part in (name, key.limits[name], cost)]
        passes, wait, *left = await self._connection.script(scripts.QUOTA, [quota_key(key.id)], *arguments)
        if not passes:
            told = ", ".join(f"{key.limits[name]} {name}" for name in limited)
            error = RateLimited(
                f"this key may have {told} a second; ask again in {wait / 1e6:.3f} s", limits=key.limits
            )
            error.retry_after = wait / 1e6
            raise error
        return dict(zip(limited, left, strict=True))
