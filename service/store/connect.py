"""The connection that a URL asks for: to one server, to a cluster, or to what sentinels watch."""

from __future__ import annotations

from service.store.cluster import Cluster
from service.store.connection import Connection
from service.store.sentinel import Sentinel
from service.store_url import parse

ROUTED = {"cluster": Cluster, "sentinel": Sentinel}


def connect(url: str, *, deadline: float = 5.0, wait_replicas: int = 0) -> Connection:
    several = parse(url)
    if several is None:
        return Connection(url, deadline=deadline, wait_replicas=wait_replicas)
    return ROUTED[several.kind](several, deadline=deadline, wait_replicas=wait_replicas)
