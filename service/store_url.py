"""The URL of a store that is more than one server.

redis+cluster://user:secret@host:port,host:port?options      some servers of a Redis Cluster; they tell of the others
redis+sentinel://user:secret@host:port,host:port/name/0      sentinels, the name of what they watch, and the database

rediss+… for TLS. User and secret are those of the servers; those of sentinels are options, sentinel_username and
sentinel_password. Other options are redis-py's, and go to every server.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

KINDS = ("cluster", "sentinel")
PORTS = {"cluster": 6379, "sentinel": 26379}

Address = tuple[str, int]


@dataclass(frozen=True)
class StoreUrl:
    kind: str
    scheme: str  # redis, or rediss: with TLS
    seeds: tuple[Address, ...]
    login: str  # "user:secret@" as it was written, or nothing
    options: tuple[tuple[str, str], ...]
    name: str = ""  # of what the sentinels watch
    database: int = 0

    def server(self, address: Address) -> str:
        """The URL of one server"""
        mine = [(name, value) for name, value in self.options if not name.startswith("sentinel_")]
        return self._url(self.login, address, mine, f"/{self.database}" if self.database else "")

    def sentinel(self, address: Address) -> str:
        """The URL of one sentinel"""
        asked = dict(self.options)
        user, secret = (quote(asked.get(f"sentinel_{each}", ""), safe="") for each in ("username", "password"))
        mine = [(name, value) for name, value in self.options if not name.startswith("sentinel_")]
        return self._url(f"{user}:{secret}@" if secret else "", address, mine)

    def _url(self, login: str, address: Address, options: list[tuple[str, str]], path: str = "") -> str:
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        return f"{self.scheme}://{login}{host}:{address[1]}{path}" + (f"?{urlencode(options)}" if options else "")


def parse(url: str) -> StoreUrl | None:
    """None: it is the URL of one server. ValueError: it is none at all"""
    scheme, _, rest = url.partition("://")
    scheme, _, kind = scheme.partition("+")
    if not kind:
        return None
    if scheme not in ("redis", "rediss") or kind not in KINDS:
        raise ValueError(f"{scheme}+{kind}:// is not known; redis+cluster:// and redis+sentinel:// are")
    rest, _, query = rest.partition("?")
    login, at, rest = rest.rpartition("@")
    hosts, _, path = rest.partition("/")
    seeds = tuple(_address(each.strip(), PORTS[kind]) for each in hosts.split(",") if each.strip())
    if not seeds:
        raise ValueError(f"redis+{kind}:// names no server: host:port,host:port")
    name, _, database = path.partition("/")
    if kind == "sentinel" and not name:
        raise ValueError("redis+sentinel://host:port/name: the name of what the sentinels watch is missing")
    if kind == "cluster" and path.strip("/0"):
        raise ValueError("a cluster has no databases: redis+cluster://host:port without a path")
    if database and not database.isdecimal():
        raise ValueError(f"a database is a number, unlike {database[:20]!r}")
    options = tuple(parse_qsl(query, keep_blank_values=True))
    name, number = (name, int(database or 0)) if kind == "sentinel" else ("", 0)
    return StoreUrl(kind, scheme, seeds, login + at, options, name, number)


def _address(text: str, default: int) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), default
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text[:100]!r} is no host:port")
    return host.strip("[]"), int(port)
