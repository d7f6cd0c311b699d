"""The format of what the store holds: a store of another format is refused at start, and nothing in it is changed.

The format number is the value of FORMAT_KEY. Format 1, of version 0.1, had no such key; it is known by its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from service import store_url
from service.errors import OldFormat, ServerFailed
from service.store_url import StoreUrl

FORMAT = "2"
FORMAT_KEY = f"hc:{FORMAT}:format"
#: Every store of format 1 in which a session was ever opened or asked for has one of these.
FORMAT_1_KEYS = ("hc:1:sessions", "hc:1:fits", "hc:1:{epoch}:number")
#: The first Redis that has XADD with MINID and LPOP with a count. Valkey tells of the Redis it is compatible with.
OLDEST = (6, 2)


def connect(url: str, seconds: float) -> redis.Redis:
    """A client that answers or fails within a few times `seconds`, and does not retry"""
    several, patience = store_url.parse(url), {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    if several is None:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **patience)
    if several.kind == "cluster":
        return _cluster(several, patience)
    return _master(several, patience)


def _cluster(url: StoreUrl, patience: dict[str, Any]) -> redis.Redis:
    """For a few questions of a command; the service has its own (service/store/cluster.py)"""
    failed = ""
    for address in url.seeds:
        how = {**patience, "retry": Retry(NoBackoff(), 2), "require_full_coverage": True}
        try:
            found: Any = redis.RedisCluster.from_url(url.server(address), **how)
            return found  # type: ignore[no-any-return]
        except (redis.RedisError, RedisClusterException) as error:
            failed = str(error)
    raise redis.ConnectionError(failed)


def _master(url: StoreUrl, patience: dict[str, Any]) -> redis.Redis:
    """The master that a sentinel tells of"""
    failed: redis.RedisError = redis.ConnectionError(f"no sentinel knows a master of {url.name}")
    for address in url.seeds:
        try:
            with redis.Redis.from_url(url.sentinel(address), retry=Retry(NoBackoff(), 0), **patience) as sentinel:
                told: Any = sentinel.sentinel_get_master_addr_by_name(url.name)
        except redis.RedisError as error:
            failed = error
            continue
        if told:
            found = str(told[0], "ascii") if isinstance(told[0], bytes) else str(told[0])
            return redis.Redis.from_url(url.server((found, int(told[1]))), retry=Retry(NoBackoff(), 0), **patience)
    raise failed


def require_format(client: redis.Redis, where: str) -> None:
    """Raise OldFormat if the store holds data of another format; else mark it with ours. May raise RedisError; and
    ServerFailed if the server is too old"""
    require_version(client.info("server"), where)
    found = stored_format(client)
    if found is None:
        client.set(FORMAT_KEY, FORMAT, nx=True)
    elif found != FORMAT:
        raise OldFormat(where, found, FORMAT)


def require_version(info: Mapping[str, Any], where: str) -> None:
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:2])
    if numbers and numbers < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise ServerFailed(f"{where} is on Redis {version[:20]}; {wanted} or newer is needed. Nothing was changed")


def stored_format(client: redis.Redis) -> str | None:
    """The format number, or None if the store holds nothing of ours; four commands at most, no scan"""
    value: Any = client.get(FORMAT_KEY)
    if value is not None:
        return str(value, errors="replace") if isinstance(value, bytes) else str(value)
    # one key a command: in a cluster they are in different slots
    return "1" if any(client.exists(key) for key in FORMAT_1_KEYS) else None
