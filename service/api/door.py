"""Who may come in: which names this service is asked for by, and which web pages may write.

A browser sends whatever a page tells it to, also to a service on loopback. It does tell who the page is (Origin,
Sec-Fetch-Site), and by which name it found us (Host): a page that had its own name resolve to 127.0.0.1 is found out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from service.errors import CrossSite, UnknownHost
from service.settings import LOOPBACK

WILDCARD = ("", "0.0.0.0", "::")
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: Asked for by address, by whoever watches over the process.
PROBES = frozenset({"/health/live", "/health/ready"})
#: Of a request that no page of another site caused; browsers older than the header send none.
OWN = frozenset({"same-origin", "none"})
#: How many spellings of an allowed Host are remembered.
SPELLINGS = 256

#: Said with every answer. The policy is for what is no page; a page brings its own.
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
POLICY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")


class Door:
    """`hosts`: names in the Host header, without a port; * for any. `origins`: pages that may call, as in Origin"""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str] = ()) -> None:
        self._hosts, self.origins = frozenset(host.lower() for host in hosts), frozenset(origins)
        self.known = set[str]()  # spellings of Host that were allowed

    def check(self, method: str, path: str, headers: Mapping[str, str], *, writes: bool | None = None) -> None:
        """Raise unless the request came by a name of ours, and, if it writes, from no page of another site"""
        host = headers.get("host", "")
        if host not in self.known and path not in PROBES:
            self._check_host(host)
        if method in SAFE if writes is None else not writes:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin in self.origins:
            return
        if (origin is not None and origin.partition("://")[2] != host) or (site is not None and site not in OWN):
            raise CrossSite(origin or site or "")

    def _check_host(self, host: str) -> None:
        if "*" not in self._hosts and host_name(host) not in self._hosts:
            raise UnknownHost(host)
        if len(self.known) < SPELLINGS:
            self.known.add(host)


def host_name(host: str) -> str:
    """Of a Host header: without the port, without the brackets of an IPv6 address, in lower case"""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def own_hosts(listening: str, told: Iterable[str]) -> list[str]:
    """Loopback, the address that is listened on, and those that are told"""
    return [*LOOPBACK, *([] if listening in WILDCARD else [listening]), *told]
