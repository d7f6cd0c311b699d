"""Whoever works on a fit may die at any moment: it is taken up again, or fails with a reason, and has one result."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis

import service as package
from service.errors import KeyReused, RateLimited, StoreUnavailable
from service.fits.priority import INTERRUPTS, undisturbed
from service.geometry import Array
from service.process.private_store import EmbeddedServer
from service.sessions.records import Kind
from service.store import fit_queue as jobs
from service.store import scripts
from service.store.connection import Connection
from service.store.fit_queue import MOST_ATTEMPTS, FitQueue, Job
from service.store.keys import fit_points_key, fit_queue_key, session_keys, state_key
from service.store.scripts import Script
from tests.faults.stream import alive
from tests.running import Running, service, wait_until_ready
from tests.storing import storing
from tests.streams import flipped, separable
from tests.waiting import wait_until

LEASE = 1_500  # milliseconds, in the services here
RAW = "application/octet-stream"
#: Two pieces of a row each, in the tests that make pieces so small.
ROWS = bytes(range(16))

#: What a fit does first, when it has its points.
HOLD = """\
    hold = __import__("pathlib").Path({folder!r}, "hold")
    if hold.exists():
        (hold.parent / "held" / str(__import__("os").getpid())).touch()
    while hold.exists():
        time.sleep(0.01)
"""


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@contextmanager
def impatient(folder: Path, workers: int = 1) -> Iterator[Running]:
    """A service whose leases are short, whose fits can be held, and leave what they leave in `folder`/tmp"""
    if not (folder / "service").exists():
        shutil.copytree(Path(package.__path__[0]), folder / "service")  # with Numba's cache and its time stamps
        replaced(folder / "service/store/fit_queue.py", "\nLEASE = 10_000\n", f"\nLEASE = {LEASE}\n")
        begin = "    np.eye(64) @ np.eye(64)"
        replaced(folder / "service/fits/child.py", begin, HOLD.format(folder=str(folder)) + begin)
        (folder / "tmp").mkdir()
        (folder / "held").mkdir()
    copied = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1", "TMPDIR": str(folder / "tmp")}
    with service(folder / "data", workers=workers, HOROCYCLE_DEADLINE="2", **copied) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("impatient")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Running]:
    with impatient(folder, workers=2) as found:
        yield found


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    """That asks again while something that was killed comes back"""
    with httpx.Client(base_url=running.url, timeout=30, transport=httpx.HTTPTransport(retries=20)) as client:
        yield client


def points(n: int) -> Array:
    """Rows, their labels' indices last; a fifth of them wrong"""
    rng = np.random.default_rng(0)
    X, y, _ = separable(rng, n, np.array([0.3, -0.2]), 0.1)
    return np.column_stack([X, flipped(rng, y, 0.2) > 0])


POINTS = points(100).tobytes()


def submitted(http: httpx.Client) -> tuple[str, str]:
    """The session and the fit"""
    sid = http.post("/sessions", json={"dimension": 2, "reference": "origin"}).json()["id"]
    answer = http.post(f"/sessions/{sid}/fits", content=POINTS, headers={"content-type": RAW})
    assert answer.status_code == 202, answer.text
    return sid, answer.json()["id"]


def look(http: httpx.Client, sid: str, fit: str) -> dict[str, Any]:
    """As soon as it can be asked for"""
    deadline = time.monotonic() + 30
    while True:
        with suppress(httpx.TransportError):
            answer = http.get(f"/sessions/{sid}/fits/{fit}")
            if answer.status_code == 200:
                found: dict[str, Any] = answer.json()
                return found
            assert answer.status_code in (503, 504), answer.text
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended(http: httpx.Client, sid: str, fit: str, seconds: float = 90.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (told := look(http, sid, fit))["status"] in ("queued", "running"):
        assert time.monotonic() < deadline, f"{told} after {seconds} s"
        time.sleep(0.05)
    return told


@contextmanager
def holding(running: Running) -> Iterator[Callable[[], int]]:
    """Fits that begin within the block do not get on until it ends. Yields a wait for the process of the next"""
    hold, held = running.data.parent / "hold", running.data.parent / "held"

    def begun() -> int:
        wait_until(lambda: any(held.iterdir()))
        [path] = held.iterdir()
        path.unlink()
        return int(path.name)

    assert not any(held.iterdir())
    hold.touch()
    try:
        yield begun
    finally:
        hold.unlink()
        for path in held.iterdir():
            path.unlink()


def assert_one_result(http: httpx.Client, sid: str, fit: str) -> None:
    """It can be used, it is told of once, and nothing waits any more"""
    answer = http.get(f"/sessions/{sid}/predict?model={fit}&x=0.1,0.2")
    assert answer.status_code == 200, answer.text
    assert [each["id"] for each in http.get(f"/sessions/{sid}/fits").json()["fits"]] == [fit]


def told_of(running: Running, sid: str) -> list[str]:
    """The states of its fits, as the log tells them"""

    async def read() -> list[str]:
        async with storing(running.redis_url) as parts:
            loaded = await parts.store.load(sid)
            records = await parts.log.records(sid, "-", loaded.newest, 1000)
            assert [record.id.number for record in records] == list(range(1, loaded.newest.number + 1))
            return [record.fields[b"status"].decode() for record in records if record.kind is Kind.FIT]

    return asyncio.run(read())


# ------------------------------------------------------------------------------------- processes that are killed


def test_a_fit_takes_what_is_left_over(http: httpx.Client, running: Running) -> None:
    with holding(running) as begun:
        (sid, fit), pid = submitted(http), begun()
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        everywhere = os.sched_getaffinity(running.launcher.pid)
        left = undisturbed(everywhere, INTERRUPTS.read_text())  # of those that are busiest another may lead by now
        assert os.sched_getaffinity(pid) <= everywhere
        assert len(os.sched_getaffinity(pid)) == len(left)
    assert ended(http, sid, fit)["status"] == "done"


def test_a_fit_whose_process_is_killed_is_taken_up_again(running: Running, http: httpx.Client) -> None:
    with holding(running) as begun:
        sid, fit = submitted(http)
        os.kill(begun(), signal.SIGKILL)
    told = ended(http, sid, fit)
    assert (told["status"], told["attempts"]) == ("done", 2)
    assert_one_result(http, sid, fit)
    assert told_of(running, sid) == ["queued", "running", "queued", "running", "done"]


def test_a_fit_whose_process_is_killed_every_time_fails_with_a_reason(running: Running, http: httpx.Client) -> None:
    with holding(running) as begun:
        sid, fit = submitted(http)
        for _ in range(MOST_ATTEMPTS):
            os.kill(begun(), signal.SIGKILL)
        told = ended(http, sid, fit)
    assert (told["status"], told["failure"]["type"]) == ("failed", "/problems/fit-failed")
    assert told["failure"]["detail"] == f"its worker died {MOST_ATTEMPTS} times"
    assert http.get(f"/sessions/{sid}/predict?model={fit}&x=0,0").status_code == 409
    other = submitted(http)  # and the next one is none the worse for it
    assert ended(http, *other)["status"] == "done"


def test_a_killed_worker_takes_its_process_along_and_another_takes_the_fit_up(
    running: Running, http: httpx.Client
) -> None:
    with holding(running) as begun:
        sid, fit = submitted(http)
        process, (worker,) = begun(), running.fit_worker_pids
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not alive(process), 10)
        assert look(http, sid, fit)["status"] == "running"  # so it seems, until the lease is over
    told = ended(http, sid, fit)
    assert (told["status"], told["attempts"]) == ("done", 2)
    assert worker not in running.fit_worker_pids
    assert_one_result(http, sid, fit)
    assert told_of(running, sid) == ["queued", "running", "running", "done"]


def test_a_worker_and_its_process_that_are_killed_at_once_leave_no_file(
    running: Running, http: httpx.Client, folder: Path
) -> None:
    before = set((folder / "tmp").rglob("*"))
    with holding(running) as begun:
        sid, fit = submitted(http)
        process, (worker,) = begun(), running.fit_worker_pids
        os.kill(process, signal.SIGSTOP)  # and so it has no last word
        os.kill(worker, signal.SIGKILL)
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not alive(process))
        assert set((folder / "tmp").rglob("*")) == before
    assert ended(http, sid, fit)["status"] == "done"


def test_a_killed_api_worker_does_not_disturb_a_fit(running: Running, http: httpx.Client) -> None:
    with holding(running) as begun:
        (sid, fit), _ = submitted(http), begun()
        os.kill(running.worker_pids[0], signal.SIGKILL)
        wait_until_ready(running.url)
    told = ended(http, sid, fit)
    assert (told["status"], told["attempts"]) == ("done", 1)
    assert_one_result(http, sid, fit)


def test_a_killed_store_does_not_lose_a_fit(running: Running, http: httpx.Client) -> None:
    with holding(running) as begun:
        (sid, fit), _ = submitted(http), begun()
        os.kill(running.store_pid, signal.SIGKILL)
        time.sleep(0.3)
    told = ended(http, sid, fit)
    assert told["status"] == "done"
    assert told["attempts"] <= 2  # a second one if it was away for longer than a lease, or just when it was to be told
    wait_until_ready(running.url)
    assert_one_result(http, sid, fit)


def test_a_fit_goes_on_when_a_full_store_has_room_again(running: Running, http: httpx.Client) -> None:
    with running.client() as store:
        with holding(running) as begun:
            (sid, fit), pid = submitted(http), begun()
            store.config_set("maxmemory", 1)
            try:
                wait_until(lambda: not alive(pid))  # no sign of life could be given, and so it may be another's soon
                assert look(http, sid, fit)["status"] == "running"
            finally:
                store.config_set("maxmemory", 0)
        told = ended(http, sid, fit)
        assert (told["status"], told["attempts"]) == ("done", 2)
        assert_one_result(http, sid, fit)


def test_a_running_fit_that_is_cancelled_ends_and_the_next_one_begins(running: Running, http: httpx.Client) -> None:
    with holding(running) as begun:
        (sid, fit), other, pid = submitted(http), submitted(http), begun()
        wait_until(lambda: look(http, sid, fit)["status"] == "running")
        assert http.delete(f"/sessions/{sid}/fits/{fit}").status_code == 204
        assert look(http, sid, fit)["status"] == "cancelled"
        wait_until(lambda: not alive(pid), 10)
    assert ended(http, *other)["status"] == "done"
    assert look(http, sid, fit)["status"] == "cancelled"
    assert told_of(running, sid) == ["queued", "running", "cancelled"]


def test_a_session_that_ends_takes_its_running_fit_along(running: Running, http: httpx.Client) -> None:
    with holding(running) as begun, running.client() as store:
        (sid, fit), pid = submitted(http), begun()
        assert http.delete(f"/sessions/{sid}").status_code == 204
        wait_until(lambda: not alive(pid), 10)
        wait_until(lambda: store.zscore(fit_queue_key(), f"{sid} {fit}") is None, 10)
        assert not store.exists(*session_keys(sid))
    assert http.get(f"/sessions/{sid}/fits/{fit}").status_code == 410
    assert ended(http, *submitted(http))["status"] == "done"


def test_a_killed_launcher_leaves_no_fit_behind_and_the_next_takes_it_up(tmp_path: Path) -> None:
    with impatient(tmp_path) as first, httpx.Client(base_url=first.url, timeout=30) as http:
        with holding(first) as begun:
            sid, fit = submitted(http)
            process, workers = begun(), first.fit_worker_pids
            first.launcher.kill()
            wait_until(lambda: not any(map(alive, [process, *workers])), 10)
        with impatient(tmp_path) as second, httpx.Client(base_url=second.url, timeout=30) as again:
            told = ended(again, sid, fit)
            assert (told["status"], told["attempts"]) == ("done", 2)
            assert_one_result(again, sid, fit)


# ------------------------------------------------------------------------------------------- the lease itself


class Fit:
    """A fit in a session of its own, and those who work on it: each with a connection to the store"""

    def __init__(self, url: str, sid: str) -> None:
        self.url, self.sid, self.name = url, sid, "fit"
        self.connections, self.workers = list[Connection](), list[FitQueue]()
        for _ in range(3):
            self.add(Connection)

    def add(self, kind: type[Connection], position: int = 0) -> FitQueue:
        """A worker, before those that are there"""
        self.connections.insert(position, kind(self.url))
        self.workers.insert(position, FitQueue(self.connections[position]))
        return self.workers[position]

    async def submit(self, name: str = "fit", fingerprint: bytes = b"body") -> bool:
        return await self.workers[0].submit(self.sid, name, fingerprint, {"asked": {}}, ROWS, ttl=0)

    async def look(self) -> dict[str, Any]:
        return await self.workers[0].look(self.sid, self.name)

    async def claimed(self, worker: FitQueue) -> Job:
        job = await worker.claim()
        assert job is not None
        assert (job.session, job.points) == (self.sid, ROWS)
        return job

    def kept(self) -> Any:
        """All that the store has, byte for byte"""
        with redis.Redis.from_url(self.url) as client:
            queue = client.zrange(fit_queue_key(), 0, -1, withscores=True)
            return queue, {key: client.dump(key) for key in session_keys(self.sid)}


@asynccontextmanager
async def one_fit(url: str) -> AsyncIterator[Fit]:
    async with storing(url) as parts:
        found = Fit(url, (await parts.opened()).spec.id)
        try:
            yield found
        finally:
            await parts.store.end(found.sid)
            with redis.Redis.from_url(url) as client:
                client.delete(fit_queue_key())
            for each in found.connections:
                await each.close()


def play(server: EmbeddedServer, scene: Callable[[Fit], Awaitable[None]]) -> None:
    async def run() -> None:
        async with one_fit(server.url) as fit:
            await scene(fit)

    asyncio.run(run())


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> float:
    """In seconds"""
    monkeypatch.setattr(jobs, "LEASE", 200)
    return 0.2


LATE: dict[str, Callable[[FitQueue, Job], Awaitable[Any]]] = {
    "done": lambda worker, job: worker.done(job, {"points": 13}, b"a zombie's"),
    "failed": lambda worker, job: worker.failed(job, {"type": "/problems/fit-failed", "detail": "a zombie's"}),
    "again": lambda worker, job: worker.again(job),
    "beat": lambda worker, job: worker.beat(job, 0.77),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE.keys())
@pytest.mark.parametrize("settled", ["done", "failed", "cancelled", "still running"])
def test_whoever_lost_the_lease_changes_nothing(
    server: EmbeddedServer, short_lease: float, late: Callable[[FitQueue, Job], Awaitable[Any]], settled: str
) -> None:
    """It was only thought dead: meanwhile another has the fit, or has settled it"""

    async def scene(fit: Fit) -> None:
        slow, quick, _ = fit.workers
        await fit.submit()
        lost = await fit.claimed(slow)
        assert await quick.claim() is None  # not while the first has it
        await asyncio.sleep(1.5 * short_lease)
        job = await fit.claimed(quick)
        assert job.owner != lost.owner
        if settled == "done":
            await quick.done(job, {"points": 7}, b"the model")
        elif settled == "failed":
            await quick.failed(job, {"type": "/problems/fit-failed", "detail": "too long"})
        elif settled == "cancelled":
            await quick.cancel(fit.sid, fit.name)
        before, told = fit.kept(), await fit.look()
        assert not await late(slow, lost)
        assert fit.kept() == before
        assert await fit.look() == told
        assert told["status"] == ("running" if settled == "still running" else settled)
        assert told["attempts"] == 2
        if settled == "still running":
            assert await quick.beat(job, 0.5)
            await quick.done(job, {"points": 7}, b"the model")
            assert (await fit.look())["points"] == 7
            assert await fit.workers[0].model(fit.sid, fit.name) == b"the model"

    play(server, scene)


def test_who_is_late_but_not_replaced_may_still_settle_it(server: EmbeddedServer, short_lease: float) -> None:
    async def scene(fit: Fit) -> None:
        await fit.submit()
        job = await fit.claimed(fit.workers[0])
        await asyncio.sleep(1.5 * short_lease)
        await fit.workers[0].done(job, {}, b"the model")
        assert (await fit.look())["status"] == "done"
        await asyncio.sleep(1.5 * short_lease)
        assert await fit.workers[1].claim() is None

    play(server, scene)


def test_signs_of_life_keep_the_lease(server: EmbeddedServer, short_lease: float) -> None:
    async def scene(fit: Fit) -> None:
        owner, other, _ = fit.workers
        await fit.submit()
        job = await fit.claimed(owner)
        for step in range(8):
            await asyncio.sleep(short_lease / 2)
            assert await owner.beat(job, step / 8)
            assert await other.claim() is None
        assert (await fit.look())["progress"] == 7 / 8
        assert (await fit.look())["attempts"] == 1

    play(server, scene)


def test_a_fit_whose_workers_all_fall_silent_fails_with_a_reason(server: EmbeddedServer, short_lease: float) -> None:
    async def scene(fit: Fit) -> None:
        await fit.submit()
        for attempt in range(MOST_ATTEMPTS):
            await fit.claimed(fit.workers[attempt])
            await asyncio.sleep(1.5 * short_lease)
        assert await fit.workers[0].claim() is None
        told = await fit.look()
        assert (told["status"], told["failure"]["type"]) == ("failed", "/problems/fit-failed")
        assert told["failure"]["detail"] == f"its worker died {MOST_ATTEMPTS} times"
        queue, kept = fit.kept()
        assert queue == []
        assert kept[fit_points_key(fit.sid)] is None

    play(server, scene)


def pieces(fit: Fit) -> set[bytes]:
    with redis.Redis.from_url(fit.url) as client:
        return set(client.hkeys(fit_points_key(fit.sid)))


@pytest.mark.parametrize("settle", ["done", "failed", "cancelled"])
def test_points_come_and_go_piece_by_piece(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, settle: str
) -> None:
    monkeypatch.setattr(jobs, "PIECE", 8)

    async def scene(fit: Fit) -> None:
        worker = fit.workers[0]
        await fit.submit()
        assert len(pieces(fit)) == 2
        job = await fit.claimed(worker)
        if settle == "done":
            await worker.done(job, {}, b"the model")
        elif settle == "failed":
            await worker.failed(job, {"type": "/problems/fit-failed"})
        else:
            await worker.cancel(fit.sid, fit.name)
        assert pieces(fit) == set()

    play(server, scene)


def test_a_request_that_comes_twice_leaves_its_points_once(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PIECE", 8)

    async def scene(fit: Fit) -> None:
        assert await fit.submit()
        first = pieces(fit)
        assert not await fit.submit()
        with pytest.raises(KeyReused):
            await fit.submit(fingerprint=b"another body")
        monkeypatch.setattr(jobs, "KEEP_FITS", 1)
        with pytest.raises(RateLimited):
            await fit.submit("one more")
        assert pieces(fit) == first
        await fit.claimed(fit.workers[0])

    play(server, scene)


def test_points_whose_fit_was_never_opened_are_swept_up(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever brought them died before the last piece"""
    monkeypatch.setattr(jobs, "PIECE", 8)

    async def scene(fit: Fit) -> None:
        keys = [state_key(fit.sid), fit_points_key(fit.sid)]
        for name in ("old", "new"):
            for number in range(3):
                assert await fit.connections[0].script(scripts.FIT_BRING, keys, name, number, b"left", 0)
        with redis.Redis.from_url(fit.url) as client:
            client.hset(fit_points_key(fit.sid), "old", int(time.time()) - scripts.BRING_SECONDS - 2)
        await fit.submit()
        left = {name for name in pieces(fit) if name.startswith((b"old", b"new"))}
        assert left == {b"new", b"new:0", b"new:1", b"new:2"}
        await fit.claimed(fit.workers[0])

    play(server, scene)


class Swept(Connection):
    """Before a fit is opened, its points are taken for left behind"""

    async def script(self, script: Script, keys: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        if script == scripts.FIT_OPEN:
            assert "fit_points" in keys[3]
            await self.call("DEL", keys[3])
        return await super().script(script, keys, *args, **kwargs)


def test_a_fit_is_not_opened_without_its_points(server: EmbeddedServer) -> None:
    async def scene(fit: Fit) -> None:
        fit.add(Swept)
        with pytest.raises(StoreUnavailable):
            await fit.submit()
        assert await fit.workers[1].all(fit.sid) == []
        assert await fit.workers[1].claim() is None

    play(server, scene)


class Cancelling(Connection):
    """Its fit is cancelled as soon as it is claimed, before its points are read"""

    async def script(self, script: Script, keys: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        reply = await super().script(script, keys, *args, **kwargs)
        if script == scripts.FIT_CLAIM:
            await super().script(scripts.FIT_CANCEL, keys, args[0])
        return reply


def test_a_fit_that_is_cancelled_while_its_points_are_read_has_none(server: EmbeddedServer) -> None:
    async def scene(fit: Fit) -> None:
        worker = fit.add(Cancelling)
        await fit.submit()
        job = await worker.claim()
        assert job is not None and job.points == b""
        assert not await worker.beat(job, 0.5)

    play(server, scene)


def test_of_many_who_want_a_fit_one_gets_it(server: EmbeddedServer) -> None:
    async def scene(fit: Fit) -> None:
        for round in range(10):
            await fit.submit(f"fit-{round}")
        found = [await asyncio.gather(*(worker.claim() for worker in fit.workers * 4)) for _ in range(2)]
        got = [job.fit for jobs in found for job in jobs if job is not None]
        assert sorted(got) == sorted(f"fit-{round}" for round in range(10))

    play(server, scene)


class Interrupted(Connection):
    """Before a fit is written, but behind its entry in the queue, somebody looks for work"""

    async def script(self, script: Script, keys: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        if script == scripts.FIT_OPEN:
            assert await FitQueue(self).claim() is None
        return await super().script(script, keys, *args, **kwargs)


def test_a_queue_entry_may_be_seen_before_its_fit_is_there(server: EmbeddedServer) -> None:
    """First the queue, then the fit, so that none is lost between them; who looks in between leaves it there"""

    async def scene(fit: Fit) -> None:
        fit.add(Interrupted)
        assert await fit.submit()
        assert (await fit.claimed(fit.workers[1])).fit == "fit"

    play(server, scene)


def test_entries_that_never_became_a_fit_are_forgotten_and_block_nobody(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(fit: Fit) -> None:
        with redis.Redis.from_url(fit.url) as client:
            began = time.time()
            for number in range(50):  # older than the one that is there
                client.zadd(fit_queue_key(), {f"{fit.sid} lost-{number}": began - 30})
            await fit.submit()
            assert (await fit.claimed(fit.workers[0])).fit == "fit"
            assert client.zcard(fit_queue_key()) == 51
            monkeypatch.setattr(jobs, "FORGOTTEN", 10.0)
            assert await fit.workers[0].claim() is None
            assert client.zrange(fit_queue_key(), 0, -1) == [f"{fit.sid} fit".encode()]

    play(server, scene)


def test_the_fits_of_sessions_that_ended_leave_the_queue_at_once(server: EmbeddedServer) -> None:
    async def scene(fit: Fit) -> None:
        async with one_fit(fit.url) as gone:
            await gone.submit()
        with redis.Redis.from_url(fit.url) as client:
            client.zadd(fit_queue_key(), {f"{gone.sid} fit": time.time()})
            assert await fit.workers[0].claim() is None
            assert client.zcard(fit_queue_key()) == 0

    play(server, scene)


def test_a_fit_asked_for_again_is_not_lost_however_long_its_entry_waited(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry left by a request that got no further does not pass for the new one's: that would be forgotten"""
    monkeypatch.setattr(jobs, "FORGOTTEN", 10.0)

    async def scene(fit: Fit) -> None:
        with redis.Redis.from_url(fit.url) as client:
            client.zadd(fit_queue_key(), {f"{fit.sid} fit": time.time() - 20})
        fit.add(Interrupted)
        assert await fit.submit()
        assert (await fit.claimed(fit.workers[1])).fit == "fit"

    play(server, scene)
