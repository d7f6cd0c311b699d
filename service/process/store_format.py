"""The format of what the store holds: a store of another format is refused at start, and nothing in it is changed.

The format number is the value of FORMAT_KEY. Format 1, of version 0.1, had no such key; it is known by its own.
"""

from __future__ import annotations

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.errors import OldFormat

FORMAT = "2"
FORMAT_KEY = f"hc:{FORMAT}:format"
#: Every store of format 1 in which a session was ever opened or asked for has one of these.
FORMAT_1_KEYS = ("hc:1:sessions", "hc:1:fits", "hc:1:{epoch}:number")


def connect(url: str, seconds: float) -> redis.Redis:
    """A client that answers or fails within a few times `seconds`, and does not retry"""
    client: redis.Redis = redis.Redis.from_url(
        url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0)
    )
    return client


def require_format(client: redis.Redis, where: str) -> None:
    """Raise OldFormat if the store holds data of another format; else mark it with ours. May raise RedisError."""
    found = stored_format(client)
    if found is None:
        client.set(FORMAT_KEY, FORMAT, nx=True)
    elif found != FORMAT:
        raise OldFormat(where, found, FORMAT)


def stored_format(client: redis.Redis) -> str | None:
    """The format number, or None if the store holds nothing of ours; four commands at most, no scan"""
    value: Any = client.get(FORMAT_KEY)
    if value is not None:
        return str(value, errors="replace") if isinstance(value, bytes) else str(value)
    # one key a command: in a cluster they are in different slots
    return "1" if any(client.exists(key) for key in FORMAT_1_KEYS) else None
