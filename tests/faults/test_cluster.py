"""A cluster of three masters and three replicas: the gate, slots that move, and masters that die.

`SOAK_SECONDS=600 pytest tests/faults/test_cluster.py` goes on with new seeds, and kills thirteen masters: each costs
seconds until the others agree that it is gone.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from clients import Client, WentBackwards
from service.consume.consumer import Choices, Consumer, Slots
from service.consume.source import Source
from service.errors import StoreUnavailable
from service.process.private_store import EmbeddedServer
from service.store import scripts
from service.store.connect import connect
from service.store.follower import Follower
from service.store.keys import born_key, fit_queue_key, log_key, sessions_key, state_key
from tests.cluster import Cluster, Server, cluster
from tests.faults.stream import (
    Stream,
    assert_exactly_once,
    kill_a_worker,
    open_session,
    stored,
    stream_through,
    wait_for_both_workers,
)
from tests.running import Running, service
from tests.storing import storing
from tests.waiting import retry, wait_until

SOAK = float(os.environ.get("SOAK_SECONDS", "0"))
long = pytest.mark.skipif("SOAK_SECONDS" not in os.environ, reason="kills masters: in make soak")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def running(servers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(tmp_path_factory.mktemp("service") / "data", workers=2, REDIS_URL=servers.url) as found:
        yield found


def on(servers: Cluster, server: Server, name: str) -> str:
    """A new session's id, whose keys that server has"""
    return next(sid for i in range(10_000) if servers.owner(state_key(sid := f"{name}-{i}")) is server)


def another(servers: Cluster, server: Server) -> Server:
    return next(each for each in servers.masters if each is not server)


# ----------------------------------------------------------------------------------------------------- slots move


def move(servers: Cluster, key: str) -> None:
    source = servers.owner(key)
    servers.move(key, source, another(servers, source))


def move_atomically(servers: Cluster, key: str) -> None:
    """Valkey 9: by replication, in one step"""
    source = servers.owner(key)
    target, slot = another(servers, source), servers.slot(key)
    source.run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
    wait_until(lambda: servers.owner(key) is target, 60)


def give_up_a_move(servers: Cluster, key: str) -> None:
    source = servers.owner(key)
    target = another(servers, source)
    slot = servers.begin_to_move(key, source, target)
    time.sleep(0.2)  # requests meet it
    servers.abort_move(slot, source, target)
    assert servers.owner(key) is source


def give_up_an_atomic_move(servers: Cluster, key: str) -> None:
    """Either it was too late for that, or nothing has changed"""
    source = servers.owner(key)
    slot = servers.slot(key)
    source.run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", another(servers, source).id)
    source.run("CLUSTER", "CANCELSLOTMIGRATIONS")


def move_slowly(servers: Cluster, key: str) -> None:
    """Half of the keys are here and half there, for a while"""
    source = servers.owner(key)
    target = another(servers, source)
    slot = servers.begin_to_move(key, source, target)
    servers.migrate(slot, source, target, most=2)
    time.sleep(0.2)
    servers.migrate(slot, source, target)
    servers.end_move(slot, target)


MOVES = (move, move_atomically, move_slowly, give_up_a_move, give_up_an_atomic_move, move_atomically)


def test_every_acknowledged_point_is_applied_exactly_once_while_slots_move_and_workers_die(
    servers: Cluster, running: Running
) -> None:
    seed = 20250401
    gate(servers, running, seed, points=1_500)
    until = time.monotonic() + SOAK
    while time.monotonic() < until:
        seed = secrets.randbits(32)
        httpx.delete(f"{running.url}/sessions/one-{seed}", timeout=30)
        gate(servers, running, seed, points=5_000)


def gate(servers: Cluster, running: Running, seed: int, *, points: int) -> None:
    rng, sid = np.random.default_rng(seed), f"one-{seed}"
    stream, key = Stream(seed, points=points, pause=0.04, session=sid), state_key(sid)
    moves = [partial(each, servers, key) for each in MOVES]
    faults: list[Callable[[], None]] = [*moves, partial(kill_a_worker, running, rng)]
    rng.shuffle(faults)
    wait_for_both_workers(running)
    open_session(running.url, session=sid)
    stream_through(stream, running, faults)
    assert_exactly_once(stream.requests, stored(running, sid))


def test_in_a_slot_that_is_on_its_way_nothing_is_half_written(servers: Cluster, running: Running) -> None:
    """503 with the word of the store; predictions too, whose session is half here and half there"""
    source = servers.masters[0]
    sid, target = on(servers, source, "halved"), another(servers, source)
    with httpx.Client(base_url=running.url, timeout=30) as http:
        http.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin"}).raise_for_status()
        body = {"points": [[0.1, 0.2], [0.3, -0.1]], "labels": [1, -1]}
        http.post(f"/sessions/{sid}/observe", json=body, headers={"Idempotency-Key": "a"}).raise_for_status()
        slot = servers.begin_to_move(state_key(sid), source, target)
        servers.migrate(slot, source, target, most=2)
        before = kept_of(source, target, sid)
        refused = http.post(f"/sessions/{sid}/observe", json=body, headers={"Idempotency-Key": "b"})
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/store-unavailable")
        assert "TRYAGAIN" in refused.json()["detail"] and refused.headers["Retry-After"]
        assert kept_of(source, target, sid) == before
        servers.migrate(slot, source, target)
        servers.end_move(slot, target)
        for key, replayed in (("a", "true"), ("b", None), ("b", "true")):
            ask = partial(http.post, f"/sessions/{sid}/observe", json=body, headers={"Idempotency-Key": key})
            assert retry(ask, 200).headers.get("Idempotency-Replayed") == replayed
        assert http.get(f"/sessions/{sid}").json()["observed"] == 4


def test_a_key_that_went_ahead_of_its_slot_is_asked_for_where_it_is(servers: Cluster) -> None:
    """ASK: one command after ASKING, a transaction too, while others use the same connection"""
    key, source = "hc:2:{ahead}:hash", servers.owner("hc:2:{ahead}:hash")
    count = scripts.script("return redis.call('HINCRBY', KEYS[1], 'count', ARGV[1])")

    async def ask(target: Server) -> None:
        connection = connect(servers.url)
        try:
            await connection.call("HSET", key, "count", 1)
            slot = servers.begin_to_move(key, source, target)
            servers.migrate(slot, source, target)
            busy = on(servers, target, "busy")
            asked = [connection.script(count, [key], 1, first=[("HSET", key, "block", "b" * i)]) for i in range(20)]
            others = [connection.call("SET", state_key(busy), i) for i in range(20)]
            found = await asyncio.gather(*(each for both in zip(asked, others, strict=True) for each in both))
            assert sorted(found[::2]) == list(range(2, 22)) and set(found[1::2]) == {b"OK"}
            assert await connection.call("HGET", key, "count") == await connection.read("HGET", key, "count") == b"21"
            servers.end_move(slot, target)
            assert await connection.script(count, [key], 1) == 22
            await connection.call("DEL", state_key(busy))
        finally:
            await connection.close()

    asyncio.run(ask(another(servers, source)))


def kept_of(source: Server, target: Server, sid: str) -> dict[str, bytes]:
    """All keys of a session, wherever they are, as they would be moved"""
    slot = Cluster.slot(state_key(sid))
    found = {}
    for server in (source, target):
        for key in server.run("CLUSTER", "GETKEYSINSLOT", slot, 100):
            with server.client.pipeline(transaction=False) as asking:
                _, found[key] = asking.execute_command("ASKING").execute_command("DUMP", key).execute()  # type: ignore[no-untyped-call]
    return found


def test_the_epoch_of_a_session_grows_when_its_slot_moves_and_never_shrinks(servers: Cluster, running: Running) -> None:
    sid = on(servers, servers.masters[2], "epochs")
    with httpx.Client(base_url=running.url, timeout=30) as http:
        epochs = [int(http.post("/sessions", json={"id": sid, "dimension": 2}).headers["Horocycle-Epoch"])]
        for _ in range(3):
            move(servers, state_key(sid))
            answers = [retry(partial(http.get, f"/sessions/{sid}"), 200) for _ in range(8)]  # of both workers
            epochs += [int(each.headers["Horocycle-Epoch"]) for each in answers]
    assert epochs == sorted(epochs) and epochs[-1] > epochs[0]


def test_two_workers_tell_the_same_epoch_when_slots_move_that_one_of_them_has_not_asked_for(servers: Cluster) -> None:
    """A server that takes over any slot has a greater epoch from then on, for all sessions that it serves"""
    here, there, other = servers.masters
    sid, elsewhere = on(servers, here, "stays"), on(servers, there, "goes")

    async def ask() -> None:
        one, two = connect(servers.url), connect(servers.url)
        try:
            told = [await one.epoch(sid), await two.epoch(sid)]
            for target in (here, other, here):
                servers.move(state_key(elsewhere), servers.owner(state_key(elsewhere)), target)
                await one.call("EXISTS", state_key(elsewhere))
                told += [await one.epoch(sid), await two.epoch(sid)]
            assert told == sorted(told) and told[-1] > told[0]
        finally:
            await asyncio.gather(one.close(), two.close())

    asyncio.run(ask())


def test_the_epoch_of_a_session_on_its_way_is_that_of_both_servers_until_one_has_it(servers: Cluster) -> None:
    """ASK: where its keys went is not the owner of their slot yet, and may have a smaller epoch"""
    target, source, _ = sorted(servers.masters, key=lambda each: int(each.info("cluster_my_epoch")))
    sid = on(servers, source, "way")

    async def ask() -> None:
        one, two = connect(servers.url), connect(servers.url)
        try:
            await one.call("SET", state_key(sid), "here")
            told = [await one.epoch(sid), await two.epoch(sid)]
            slot = servers.begin_to_move(state_key(sid), source, target)
            servers.migrate(slot, source, target)
            told += [await one.epoch(sid), await two.epoch(sid)]
            servers.end_move(slot, target)
            told += [await one.epoch(sid), await two.epoch(sid)]
            await two.call("DEL", state_key(sid))
            assert told == sorted(told) and told[3] == told[0] < told[4] == told[5]
        finally:
            await asyncio.gather(one.close(), two.close())

    asyncio.run(ask())


# ------------------------------------------------------------------------------- what a session can do, on each shard


def test_sessions_on_every_shard_do_what_sessions_do(servers: Cluster, running: Running) -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.6, 0.6, (60, 2))
    y = np.where(X[:, 0] > 0.2 * X[:, 1], 1, -1)
    with Client(running.url, timeout=60) as client:
        sessions = [
            client.sessions.open(dimension=2, reference="origin", id=on(servers, master, "all"))
            for master in servers.masters
        ]
        for session in sessions:
            session.observe(X[:40], y[:40])
        for session in sessions:
            with session.stream() as stream:
                for row, label in zip(X[40:], y[40:], strict=True):
                    stream.send(row[None], [int(label)])
            session.predict(X[:2], ids=["a", "b"])
            session.label(["a", "b"], [1, -1])
            assert session.refresh().observed == 62
            assert session.model(at=40).weights is not None
            assert sum(len(page.labels) for page in session.log()) == 62
        fits = [session.fit() for session in sessions]
        forks = [session.fork(at=40) for session in sessions]
        for session, fit, fork in zip(sessions, fits, forks, strict=True):
            assert fit.wait(60).training_accuracy > 0.5
            assert fork.wait(60).observed == 40
            copy = client.sessions.restore(session.snapshot())
            assert copy.info.observed == 62
            events = session.events(after="0-0")
            assert next(events).data["observed"] == 40
            events.close()
        listed = {each.id for each in client.sessions.list(page=2)}
        assert {each.id for each in (*sessions, *forks)} <= listed
        for session in sessions:
            session.end()
        assert not {each.id for each in sessions} & {each.id for each in client.sessions.list()}


def test_sessions_on_every_shard_are_fed_from_streams_on_any(servers: Cluster) -> None:
    """horocycle consume, whose streams are on a cluster as well"""

    async def consume() -> None:
        async with storing(servers.url) as parts, storing(servers.url) as streams:
            opened = [(await parts.opened(id=on(servers, master, "fed"))).spec.id for master in servers.masters]
            sources = [Source(streams.connection, f"fed:{i}", 5.0) for i in range(4)]
            for source in sources:
                for number in range(30):
                    fields = ("session", opened[number % 3], "point", f"[0.1,{number / 100}]", "label", "1")
                    await streams.connection.call("XADD", source.name, "*", *fields)
            how: tuple[Any, ...] = (parts.connection, parts.ingest, Choices(batch=7, drain=True), str, Slots(4))
            await asyncio.gather(*(Consumer(source, *how).run() for source in sources))
            assert [(await parts.store.load(sid)).counters.observed for sid in opened] == [40, 40, 40]

    asyncio.run(consume())


def test_followers_on_every_shard_hear_of_what_another_worker_learns(servers: Cluster) -> None:
    async def follow() -> None:
        async with storing(servers.url) as here, storing(servers.url) as there:
            follower = Follower(here.connection)
            opened = [await here.opened(id=on(servers, master, "followed")) for master in servers.masters]
            with ExitStack() as following:
                for each in opened:
                    following.enter_context(follower.following(each.spec.id, each.newest))
                for each in opened:
                    await there.observe(each.spec.id, np.array([[0.1, 0.2]]), [1])
                for each in opened:
                    [record] = await follower.after(each.spec.id, each.newest, 30)
                    assert record.id.observed == 1
            await follower.close()

    asyncio.run(follow())


# ------------------------------------------------------------------------------------------------- health


def test_readiness_asks_every_master_for_a_write(servers: Cluster) -> None:
    async def ask() -> None:
        connection = connect(servers.url, deadline=2.0)
        try:
            await connection.require_writable()
            for master in servers.masters:
                master.run("CONFIG", "SET", "min-replicas-to-write", 3)
                try:
                    with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
                        await connection.require_writable()
                finally:
                    master.run("CONFIG", "SET", "min-replicas-to-write", 0)
            await connection.require_writable()
        finally:
            await connection.close()

    asyncio.run(ask())


def test_a_slot_that_nobody_serves_is_503_and_not_ready_until_somebody_does(servers: Cluster, running: Running) -> None:
    sid = on(servers, owner := servers.masters[1], "unserved")
    slot = servers.slot(state_key(sid))
    with httpx.Client(base_url=running.url, timeout=30) as http:
        http.post("/sessions", json={"id": sid, "dimension": 2}).raise_for_status()
        retry(partial(http.get, "/health/ready"), 200)
        owner.run("CLUSTER", "DELSLOTS", slot)
        try:
            wait_until(lambda: http.get("/health/ready").status_code == 503)
            refused = http.get(f"/sessions/{sid}")
            assert refused.status_code == 503 and "CLUSTERDOWN" in refused.json()["detail"]
        finally:
            owner.run("CLUSTER", "ADDSLOTS", slot)
        wait_until(servers.is_whole, 60)
        retry(partial(http.get, "/health/ready"), 200)
        assert retry(partial(http.get, f"/sessions/{sid}"), 200).json()["id"] == sid


def test_an_entry_that_a_failover_lost_is_put_back_when_its_session_or_fit_is_looked_at(server: EmbeddedServer) -> None:
    """On a store without a fit worker, which would take the fit"""

    async def look() -> None:
        async with storing(server.url) as parts, storing(server.url) as later:
            sid = (await parts.opened()).spec.id
            rng = np.random.default_rng(1)
            await parts.observe(sid, rng.uniform(-0.5, 0.5, (8, 2)), [0, 1] * 4)
            await parts.fits.submit(sid, "f", b"-", {"asked": {}}, b"points", ttl=0)
            await parts.connection.call("ZREM", sessions_key(), sid)
            await parts.connection.call("ZREM", fit_queue_key(), f"{sid} f")
            await later.store.load(sid)
            assert await parts.connection.call("ZSCORE", sessions_key(), sid) is not None
            assert (await parts.fits.look(sid, "f"))["status"] == "queued"
            assert await parts.connection.call("ZSCORE", fit_queue_key(), f"{sid} f") is not None
            await parts.fits.cancel(sid, "f")

    asyncio.run(look())


def test_scripts_run_on_a_server_that_does_not_know_them(servers: Cluster) -> None:
    async def ask() -> None:
        async with storing(servers.url) as parts:
            opened = [await parts.opened(id=on(servers, master, "scripts")) for master in servers.masters]
            for master in servers.masters:
                master.run("SCRIPT", "FLUSH", "SYNC")
            for each in opened:
                answer = await parts.observe(each.spec.id, np.array([[0.1, 0.2]]), [1])
                assert answer.counters.observed == 1
            keys = {born_key(opened[0].spec.id), log_key(opened[0].spec.id), state_key(opened[0].spec.id)}
            assert len({servers.slot(key) for key in keys}) == 1

    asyncio.run(ask())


# ---------------------------------------------------------------------------------------------- masters die


@dataclass
class Lag:
    """Between masters and whoever connects to them. Replicas hear of nothing while it holds"""

    holding: threading.Event = field(default_factory=threading.Event)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    listening: list[asyncio.Server] = field(default_factory=list)
    late: Callable[[], float] = field(default=lambda: 0.0)  # seconds that each piece waits, if it does not hold

    def before(self, port: int) -> int:
        """A proxy to that port"""

        async def listen() -> int:
            server = await asyncio.start_server(partial(self._serve, port), "127.0.0.1", 0)
            self.listening.append(server)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(listen(), self.loop).result(30)

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replica, opened, tasks = asyncio.Event(), [writer], list[asyncio.Task[None]]()
        try:
            above, to_above = await asyncio.open_connection("127.0.0.1", port)
            opened.append(to_above)
            both = [self._up(reader, to_above, replica), self._down(above, writer, replica)]
            tasks += [asyncio.create_task(each) for each in both]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # nobody is there
        finally:  # also when this is cancelled, at the end
            for task in tasks:
                task.cancel()
            for each in opened:
                each.close()
            await asyncio.gather(*tasks, *(each.wait_closed() for each in opened), return_exceptions=True)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replica: asyncio.Event) -> None:
        while some := await _some(reader):
            if b"PSYNC" in some:
                replica.set()
            writer.write(some)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replica: asyncio.Event) -> None:
        while some := await _some(reader):
            if replica.is_set():
                await asyncio.sleep(self.late())
                while self.holding.is_set():
                    await asyncio.sleep(0.005)
            writer.write(some)


async def _some(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except OSError:
        return b""


@contextmanager
def lag() -> Iterator[Lag]:
    found = Lag()
    thread = threading.Thread(target=found.loop.run_forever)
    thread.start()
    try:
        yield found
    finally:

        async def end() -> None:
            for each in found.listening:
                each.close()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)  # they close their connections

        asyncio.run_coroutine_threadsafe(end(), found.loop).result(30)
        found.loop.call_soon_threadsafe(found.loop.stop)
        thread.join()
        found.loop.close()


@contextmanager
def lagging(folder: Path, **settings: Any) -> Iterator[tuple[Lag, Cluster, Running]]:
    with ExitStack() as open_ones:
        behind = open_ones.enter_context(lag())
        servers = open_ones.enter_context(cluster(folder / "cluster", before=behind.before))
        data = folder / "service"
        yield behind, servers, open_ones.enter_context(service(data, REDIS_URL=servers.url, **settings))


def fail_over(servers: Cluster, master: Server, sid: str) -> None:
    """Kill it, and wait for its replica to take over"""
    heir = servers.replica_of(master)
    master.kill()
    wait_until(lambda: servers.owner_or_none(state_key(sid)) is heir, 90)


@long
def test_what_no_replica_had_is_lost_with_its_master_and_the_client_is_told(tmp_path: Path) -> None:
    with lagging(tmp_path) as (behind, servers, running), Client(running.url, timeout=60) as client:
        master = servers.masters[0]
        sid = on(servers, master, "lost")
        session = client.sessions.open(dimension=2, reference="origin", id=sid)
        session.observe([[0.1, 0.2]], [1])
        wait_until(lambda: replicated(servers, master))
        behind.holding.set()
        for _ in range(5):
            told = session.observe([[0.1, 0.2]], [-1])
        assert told.session.observed == 6
        fail_over(servers, master, sid)
        with pytest.raises(WentBackwards, match=r"observed was 6 and is [12]"):
            until_answered(lambda: session.observe([[0.1, 0.2]], [1]))


def replicated(servers: Cluster, master: Server) -> bool:
    """Whether its replica has all it has"""
    role, replica = master.run("ROLE"), servers.replica_of(master).run("ROLE")
    return bool(role[1] == replica[4])


def until_answered(ask: Callable[[], object]) -> None:
    """503 until a replica has taken over, longer than the client may be willing to wait"""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            ask()
        except WentBackwards:
            raise
        except Exception as error:
            if getattr(error, "status", 0) not in (503, 504):
                raise
        else:
            return


@long
@pytest.mark.parametrize("run", range(4))
def test_with_a_replica_to_wait_for_nothing_acknowledged_is_lost(tmp_path: Path, run: int) -> None:
    """Three masters are killed, one after another"""
    rng = random.Random(run)
    with lagging(tmp_path, HOROCYCLE_WAIT_REPLICAS="1", HOROCYCLE_DEADLINE="2") as (behind, servers, running):
        behind.late = lambda: rng.uniform(0, 0.02)
        for master in servers.masters:
            lose_one(behind, servers, running, on(servers, master, f"kept{run}"), rng)


def lose_one(behind: Lag, servers: Cluster, running: Running, sid: str, rng: random.Random) -> None:
    """Observe while its master dies with what no replica has heard of"""
    master = servers.owner(state_key(sid))
    with httpx.Client(base_url=running.url, timeout=60) as http:
        http.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin"}).raise_for_status()

        def observe(number: int) -> httpx.Response:
            body = {"point": [0.1, number / 1000], "label": 1 if number % 2 else -1}
            return http.post(f"/sessions/{sid}/observe", json=body, headers={"Idempotency-Key": str(number)})

        acknowledged = 0
        for number in range(rng.randrange(5, 15)):
            assert retry(partial(observe, number), 200).json()["session"]["observed"] == number + 1
            acknowledged += 1
        behind.holding.set()
        refused = observe(acknowledged)
        assert (refused.status_code, refused.json()["type"]) == (504, "/problems/outcome-unknown")
        fail_over(servers, master, sid)
        behind.holding.clear()
        shown = retry(partial(http.get, f"/sessions/{sid}"), 200).json()
        assert shown["observed"] == acknowledged, "an acknowledged point is lost, or one that was not is there"
        wait_until(lambda: master.process.poll() is not None)
        servers.start_again(master)  # as the replica of its replica: else nobody could be waited for
        for number in range(acknowledged + 3):
            answer = retry(partial(observe, number), 200)
            assert answer.json()["session"]["observed"] == number + 1
            assert (answer.headers.get("Idempotency-Replayed") == "true") == (number < acknowledged)
