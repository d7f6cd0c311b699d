"""wait_replicas: what was acknowledged is on the replicas too; else the outcome is unknown, and settled by a retry."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.errors import OutcomeUnknown
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.store.connect import connect
from tests import cluster
from tests.cluster import Server
from tests.storing import Parts, storing
from tests.waiting import wait_until


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A master, and a replica that is in step"""
    ports, found = cluster.free_ports(2), list[Server]()
    try:
        for name, port in zip("ab", ports, strict=True):
            found.append(cluster.start(tmp_path / name, port, *cluster.COMMON))
        master, replica = found
        wait_until(lambda: master.answers() and replica.answers())
        replica.run("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: b"master_link_status:up" in replica.run("INFO", "replication"))
        yield master, replica
    finally:
        for each in found:
            each.process.send_signal(signal.SIGCONT)
        cluster.stop(found)


def observed(parts: Parts, key: str) -> Any:
    batch = Batch(np.array([[0.1, 0.2]]), np.array([1]))
    return parts.ingest.observe("a", Request(batch, bytes(16), key=key))


def test_a_commit_is_acknowledged_once_the_replica_has_it(servers: tuple[Server, Server]) -> None:
    master, replica = servers

    async def run() -> None:
        url = f"redis://127.0.0.1:{master.port}/0"
        async with storing(url, deadline=2.0, connect=partial(connect, wait_replicas=1)) as parts:
            await parts.opened(id="a", algorithm="perceptron")
            for i in range(20):
                await observed(parts, f"k{i}")
                assert replica.client.xlen("hc:2:{a}:log") == i + 1  # it is there before the answer is
            replica.process.send_signal(signal.SIGSTOP)
            with pytest.raises(OutcomeUnknown, match="0 of 1 replicas have it"):
                await observed(parts, "doubtful")
            with pytest.raises(OutcomeUnknown):  # the commit is known, but not more of it is replicated
                await observed(parts, "doubtful")
            replica.process.send_signal(signal.SIGCONT)
            wait_until(lambda: replica.client.xlen("hc:2:{a}:log") == 21)
            answer = await observed(parts, "doubtful")
            assert answer.replayed and answer.counters.observed == 21
        async with storing(url, deadline=2.0) as parts:  # who does not ask for replicas does not wait for them
            replica.process.send_signal(signal.SIGSTOP)
            assert (await observed(parts, "alone")).counters.observed == 22

    asyncio.run(run())
