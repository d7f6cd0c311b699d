"""`horocycle consume`: every entry of a stream is learned exactly once, whatever is killed, stopped, or fails over."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from service.api.schemas import OpenSession
from service.consume.consumer import Choices, Consumer, Slots
from service.consume.entries import id_number, id_text
from service.consume.source import Source, WentBack
from service.geometry import Array
from service.ingest import Ingest
from service.process.private_store import EmbeddedServer
from service.sessions.opening import first_session
from service.store.connect import connect
from service.store.keys import consumed_key, state_key
from service.store.late_labels import LateLabels
from service.store.log import Log
from service.store.refits import Refits
from service.store.sessions import Store
from tests.cluster import COMMON, Server, Watched, free_ports, sentinels, start, stop
from tests.storing import stored, storing
from tests.waiting import wait_until

SESSIONS = ("red", "green", "blue")
KILLS = 50 if os.environ.get("SOAK_SECONDS") else 1
long = pytest.mark.skipif(not os.environ.get("SOAK_SECONDS"), reason="make soak")


@pytest.fixture
def store(server: EmbeddedServer) -> Iterator[str]:
    """A store with three sessions that keep all their points"""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()

    async def opened() -> None:
        async with storing(server.url) as parts:
            for sid in SESSIONS:
                spec = OpenSession(id=sid, dimension=2, algorithm="second_order", keep_points=100_000).spec()
                await parts.store.open(first_session(spec))

    asyncio.run(opened())
    yield server.url


def entries(n: int, seed: int = 0) -> list[tuple[str, Array]]:
    """Sessions and rows, no two alike"""
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.uniform(-0.6, 0.6, (n, 2)), rng.integers(0, 2, n)])
    assert len(np.unique(rows, axis=0)) == n
    return [(SESSIONS[i], row) for i, row in zip(rng.integers(0, 3, n), rows, strict=True)]


def add(client: redis.Redis, stream: str, sent: list[tuple[str, Array]], json_too: bool = True) -> None:
    """Every other one as JSON"""
    with client.pipeline(transaction=False) as pipe:
        for i, (sid, row) in enumerate(sent):
            fields: dict[Any, Any] = {"session": sid, "rows": row.astype("<f8").tobytes()}
            if json_too and i % 2:
                label = (-1, 1)[int(row[2])]
                fields = {"session": sid, "point": json.dumps(row[:2].tolist()), "label": json.dumps(label)}
            pipe.xadd(stream, fields)
        pipe.execute()


def assert_learned_once(url: str, *streams: list[tuple[str, Array]]) -> None:
    """Every entry once, those of each stream in their order"""
    for sid in SESSIONS:
        found = [tuple(row) for row in stored(url, sid).rows.tolist()]
        of_streams = [[tuple(row.tolist()) for to, row in sent if to == sid] for sent in streams]
        assert Counter(found) == Counter(row for rows in of_streams for row in rows), f"{sid}: lost, doubled or strange"
        for rows in of_streams:
            mine = set(rows)
            assert [row for row in found if row in mine] == rows, f"{sid}: in another order"


@asynccontextmanager
async def consumer(
    url: str, stream: str = "s", server: str = "", ingests: type[Ingest] = Ingest, lease: float = 5.0, **choices: Any
) -> AsyncIterator[Consumer]:
    connection, streams = connect(url), connect(server or url)
    ingest = ingests(Store(connection), Log(connection), LateLabels(connection), Refits(connection))
    chosen = Choices(**{"drain": True, "batch": 20, **choices})
    try:
        yield Consumer(Source(streams, stream, lease), connection, ingest, chosen, lambda text: None, Slots(1))
    finally:
        await asyncio.gather(connection.close(), streams.close())


def consume(url: str, **how: Any) -> Consumer:
    async def run() -> Consumer:
        async with consumer(url, **how) as found:
            await found.run()
            return found

    return asyncio.run(run())


@contextmanager
def plain_servers(folder: Path, count: int) -> Iterator[list[Server]]:
    """Servers for streams; each but the first a replica of the first"""
    ports = free_ports(count)
    started: list[Server] = []
    try:
        for port in ports:
            behind = () if port == ports[0] else ("--replicaof", f"127.0.0.1 {ports[0]}")
            started.append(start(folder / str(port), port, "--repl-diskless-sync-delay", "0", *COMMON, *behind))
            wait_until(started[-1].answers)
        wait_until(lambda: all(each.run("ROLE")[3] == b"connected" for each in started[1:]))
        yield started
    finally:
        stop(started)


# -------------------------------------------------------------------------------------------------- one process


def test_every_entry_is_learned_and_what_cannot_be_is_told(store: str) -> None:
    sent = entries(300)
    bad: list[dict[str, Any]] = [
        {"rows": bytes(24)},  # for no session
        {"session": "grey", "rows": bytes(24)},
        {"session": "red", "rows": bytes(17)},
        {"session": "red", "point": "[0.1, 2]", "label": "1"},
        {"session": "red", "point": "[0.1, 0.2],[0.3, 0.4]", "label": "1,1"},
        {"session": "red", "point": "[0.1, 0.2]", "label": "cat"},
        {"session": "red", "colour": "blue"},
        {"session": "a~b", "rows": bytes(24)},
    ]
    with redis.Redis.from_url(store) as client:
        add(client, "s", sent[:150])
        ids = [client.xadd("s", each) for each in bad]
        add(client, "s", sent[150:])
        found = consume(store)
        assert_learned_once(store, sent)
        assert (found.counted.entries, found.counted.dead) == (308, 8)
        dead: Any = client.xrange("s:dead")
        assert [id for id, _ in dead] == ids
        types = [json.loads(fields.pop(b"problem"))["type"].rpartition("/")[2] for _, fields in dead]
        assert types == [
            *("invalid-request", "unknown-session", "dimension-mismatch", "point-outside-ball"),
            *("malformed-body", "malformed-body", "unknown-field", "unknown-session"),
        ]
        assert [dict(fields) for _, fields in dead] == [_bytes(each) for each in bad]
        # Again from the beginning: nothing is learned twice, nor told twice
        consume(store, behind=0)
        assert_learned_once(store, sent)
        assert client.xlen("s:dead") == 8
        # An entry that was refused stays so, though its label is known by now
        client.xadd("s", {"session": "red", "rows": sent[0][1].tobytes() + sent[1][1].tobytes()})
        consume(store)
        assert stored(store, "red").loaded.counters.observed == 2 + sum(sid == "red" for sid, _ in sent)


def _bytes(fields: dict[str, Any]) -> dict[bytes, bytes]:
    return {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in fields.items()}


class Paused(Ingest):
    """An owner that is stopped just before it commits, after so many commits"""

    stopped: asyncio.Event
    go_on: asyncio.Event
    left = 3  # commits

    async def _later(self, sid: str, request: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            self.stopped.set()
            await self.go_on.wait()
        return await super().observe(sid, request)

    def observe(self, sid: str, request: Any, waiter: Any = None) -> Any:
        return self._later(sid, request)


@pytest.mark.parametrize("trim", [False, True])
def test_an_owner_that_wakes_up_too_late_changes_nothing(store: str, trim: bool) -> None:
    """Nor does it take what the other has trimmed for lost"""
    sent = entries(200)

    async def both() -> None:
        Paused.stopped, Paused.go_on = asyncio.Event(), asyncio.Event()
        how: dict[str, Any] = {"lease": 0.2, "trim": trim}
        async with consumer(store, ingests=Paused, **how) as first, consumer(store, **how) as second:
            asleep = asyncio.create_task(first.run())
            await Paused.stopped.wait()
            first._source.own = _nothing  # type: ignore[method-assign]  # it renews nothing, as if it was stopped
            await second.run()
            assert second.counted.entries > 100
            del first._source.own
            first._source._until = time.monotonic() + 60  # for all it knows
            Paused.go_on.set()
            await asleep
            assert (first.counted.trimmed, second.counted.trimmed) == (0, 0)

    with redis.Redis.from_url(store) as client:
        add(client, "s", sent)
    asyncio.run(asyncio.wait_for(both(), 60))
    assert_learned_once(store, sent)


async def _nothing() -> bool:
    return False


def test_two_that_both_believe_to_own_it_learn_every_entry_once(store: str) -> None:
    """The lease saves work; nothing depends on it"""
    sent = entries(400)

    async def both() -> None:
        async with consumer(store, batch=7) as first, consumer(store, batch=11) as second:
            second._source._token = first._source._token
            await asyncio.gather(first.run(), second.run())

    with redis.Redis.from_url(store) as client:
        add(client, "s", sent)
    asyncio.run(asyncio.wait_for(both(), 60))
    assert_learned_once(store, sent)


def test_what_was_learned_is_trimmed_and_what_is_trimmed_unread_is_told(store: str) -> None:
    sent = entries(100)
    with redis.Redis.from_url(store) as client:
        add(client, "s", sent[:60])
        consume(store, trim=True)
        assert client.xlen("s") == 1
        add(client, "s", sent[60:70])
        assert consume(store, trim=True).counted.trimmed == 0
        add(client, "s", sent[70:])
        client.xtrim("s", maxlen=10, approximate=False)
        found = consume(store)
        assert (found.counted.entries, found.counted.trimmed) == (10, 20)
    assert_learned_once(store, sent[:70] + sent[90:])


# -------------------------------------------------------------------------------------------------- a failover


def test_a_failover_that_lost_nothing_is_not_noticed(store: str, tmp_path: Path) -> None:
    sent = entries(120)
    with plain_servers(tmp_path, 2) as (master, replica):
        add(master.client, "s", sent[:50])
        consume(store, server=f"redis://{master.address}")
        add(master.client, "s", sent[50:90])
        master.run("WAIT", 1, 10_000)
        master.kill()
        replica.run("REPLICAOF", "NO", "ONE")
        add(replica.client, "s", sent[90:])
        assert consume(store, server=f"redis://{replica.address}").counted.entries == 70
    assert_learned_once(store, sent)


@pytest.mark.parametrize("then", ["nothing", "new entries", "another entry of the same id", "ids of a slow clock"])
def test_a_failover_that_lost_what_was_learned_is_noticed(store: str, tmp_path: Path, then: str) -> None:
    """Of 60 entries the replica has 40, and all 60 were learned"""
    sent = entries(100)
    with plain_servers(tmp_path, 2) as (master, replica), redis.Redis.from_url(store) as client:
        add(master.client, "s", sent[:40])
        master.run("WAIT", 1, 10_000)
        consume(store, server=f"redis://{master.address}")
        kept: Any = client.get(consumed_key("s"))
        replica.run("REPLICAOF", "NO", "ONE")
        add(master.client, "s", sent[40:60])
        consume(store, server=f"redis://{master.address}")
        last = master.run("XREVRANGE", "s", "+", "-", "COUNT", 1)[0][0].decode()
        master.kill()
        if then == "new entries":
            add(replica.client, "s", sent[60:])
        if then == "another entry of the same id":
            replica.run("XADD", "s", last, "session", "red", "rows", bytes(24))
        if then == "ids of a slow clock":
            newest = replica.run("XREVRANGE", "s", "+", "-", "COUNT", 1)[0][0].decode()
            replica.run("XADD", "s", id_text(id_number(newest) + 1), "session", "red", "rows", bytes(24))
            client.set(consumed_key("s"), kept)  # as if it was killed before it kept its place: the sessions know
        before = client.get(consumed_key("s"))
        with pytest.raises(WentBack):
            consume(store, server=f"redis://{replica.address}")
        assert client.get(consumed_key("s")) == before
        assert_learned_once(store, sent[:60])
        if then in ("nothing", "new entries"):
            if then == "nothing":
                add(replica.client, "s", sent[60:])
            consume(store, server=f"redis://{replica.address}", after_failover=True)
            assert_learned_once(store, sent)
            consume(store, server=f"redis://{replica.address}")
            assert_learned_once(store, sent)


# ------------------------------------------------------------------------------------------- processes that die


class Process:
    """`horocycle consume`, of the streams p:0 and p:1"""

    def __init__(self, store: str, server: str, *options: str) -> None:
        words = [sys.executable, "-m", "horocycle", "consume", "--stream", "p", "--partitions", "2", "--batch", "25"]
        words += ["--lease", "1", "--redis-url", store, "--server", server, *options]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """The exit code, and what it said"""
        self.send(number)
        _, told = self._process.communicate(timeout=120)
        return self._process.returncode, told


def observed(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        heads = [client.hget(state_key(sid), "head") or b"0" for sid in SESSIONS]
    return sum(int(head.split()[0]) for head in heads)


def test_every_entry_is_learned_once_through_kills_and_a_second_owner(store: str) -> None:
    """Killed at random; another waits for the leases; the last one is stopped, overtaken, and wakes up"""
    rng = np.random.default_rng(0)
    each = 400 * (KILLS + 2)
    sent = [entries(each, seed) for seed in (1, 2)]
    with redis.Redis.from_url(store) as client:
        for i, some in enumerate(sent):
            add(client, f"p:{i}", some)
    owner, spare = Process(store, store), Process(store, store)
    for _ in range(KILLS):
        least = observed(store) + int(rng.integers(1, 500))
        wait_until(lambda least=least: observed(store) >= least, 120)  # type: ignore[misc]
        owner.end(signal.SIGKILL)
        owner, spare = spare, Process(store, store)
    before = observed(store)
    wait_until(lambda: observed(store) > before, 120)
    owner.send(signal.SIGSTOP)
    try:
        wait_until(lambda: observed(store) == 2 * each, 120)
    finally:
        owner.send(signal.SIGCONT)
    for process in (owner, spare):
        code, told = process.end(signal.SIGTERM)
        assert code == 0, told
    assert_learned_once(store, *sent)


@long
def test_every_entry_is_learned_once_through_a_failover_by_sentinels(store: str, tmp_path: Path) -> None:
    """A producer that gives the ids itself, and repeats what was not acknowledged by a replica, doubles nothing"""
    sent = entries(3000)
    with sentinels(tmp_path) as watched:
        watched.set("failover-timeout", 2000)
        process = Process(store, watched.url, "--after-failover")
        for i, (sid, row) in enumerate(sent):
            _until_replicated(watched, i, sid, row)
            if i == len(sent) // 2:
                wait_until(lambda: observed(store) > 0, 60)
                watched.master.kill()
                watched.sentinels[0].run("PING")
        wait_until(lambda: observed(store) == len(sent), 120)
        code, told = process.end(signal.SIGTERM)
        assert code == 0, told
    assert_learned_once(store, sent)


def _until_replicated(watched: Watched, i: int, sid: str, row: Array) -> None:
    """Before the failover by a replica, too; after it there is one server left"""

    def added() -> bool:
        with suppress(redis.RedisError, StopIteration):
            master = watched.master
            try:
                master.run("XADD", "p:0", f"{i + 1}-1", "session", sid, "rows", row.tobytes())
            except redis.ResponseError as error:
                if "equal or smaller" not in str(error):
                    return False
            alone = sum(each.process.poll() is None for each in watched.servers) == 1
            return bool(alone or master.run("WAIT", 1, 1000))
        return False

    wait_until(added, 60)
