"""The gate: whatever is killed, a 200 means applied exactly once, in one order, and stored. For hours: soak.py"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

import service as package
from service.errors import EarlierConnection, HorocycleError, OutcomeUnknown
from service.process.private_store import EmbeddedServer
from service.store import scripts
from service.store.connection import Connection
from service.store.sessions import Committed, Conflict, Replayed, Store
from tests.faults.stream import (
    LIMIT,
    SESSION,
    Stored,
    Stream,
    alive,
    assert_exactly_once,
    kill_a_worker,
    kill_the_store,
    open_session,
    pause_each_worker,
    stored,
    stream_through,
    two_workers,
    wait_for_both_workers,
)
from tests.running import Running, service
from tests.storing import storing
from tests.waiting import wait_until

#: The checks of the one script that writes what is learned.
CHECKS = {
    "key": "  if replayed then return replayed end\n",
    "revision": "if revision ~= expected then return {CONFLICT} end\n",
    "commit id": "    if has_entry and first == ARGV[first_entry + 3] then return number_of(entry[1]) end\n",
    "gap": "    if number_of(entry[1]) ~= next_number then break end -- what came between is no longer kept\n",
    "ambiguous": "  if has_entry and not first and next_number <= tonumber(entries) then return {AMBIGUOUS} end\n",
}


def run(data: Path, workers: int = 2, **environment: str) -> AbstractContextManager[Running]:
    return service(data, workers=workers, HOROCYCLE_FIT_WORKERS="0", **environment)


def without(check: str, text: str) -> str:
    assert text.count(CHECKS[check]) == 1
    return text.replace(CHECKS[check], "")


# --------------------------------------------------------------------------------------------------------- the gate


def gate(running: Running, seed: int, algorithm: str, *, points: int, dimension: int = 2) -> Stored:
    rng, session = np.random.default_rng(seed), f"gate-{seed}"
    stream = Stream(seed, points=points, dimension=dimension, pause=0.04, session=session)
    faults = [partial(kill_a_worker, running, rng), partial(kill_the_store, running)] * 2
    faults += [partial(pause_each_worker, running)]
    rng.shuffle(faults)
    two_workers(running)
    open_session(running.url, algorithm, dimension, session, keep_points=points + 400)
    stream_through(stream, running, faults)
    found = stored(running, session)
    assert_exactly_once(stream.requests, found)
    return found


def test_every_acknowledged_point_is_applied_exactly_once_whatever_is_killed(mortal: Running) -> None:
    found = gate(mortal, 20240229, "second_order", points=4_000)
    assert found.loaded.newest.observed - found.loaded.learner_at.observed < 50  # small: stored every few commits
    assert len(found.loaded.checkpoints) >= 3


def test_so_is_it_when_the_learner_is_large_and_stored_now_and_then(mortal: Running) -> None:
    found = gate(mortal, 20240302, "second_order", points=1_500, dimension=60)
    assert found.loaded.learner_at.number > 0
    assert found.loaded.learner_bytes > 60 * found.loaded.spec.row_bytes  # more than a commit of a few requests


@pytest.mark.parametrize("check", ["key", "revision"])
def test_the_gate_fails_when_a_check_is_taken_out(check: str, tmp_path: Path) -> None:
    """Whether two workers meet is up to the machine: of three short streams, one shows it."""
    copy = tmp_path / "service"
    shutil.copytree(Path(package.__path__[0]), copy)  # with Numba's cache and its time stamps
    commit = copy / "store" / "lua" / "commit.lua"
    commit.write_text(without(check, commit.read_text()))
    assert any(not short_gate(tmp_path, seed) for seed in (1, 2, 3))


def short_gate(folder: Path, seed: int) -> bool:
    """Whether the service in this folder keeps the promise on a short stream"""
    stream = Stream(seed, points=1_500)
    with run(folder / f"data{seed}", PYTHONPATH=str(folder), PYTHONSAFEPATH="1") as running:  # the copy, not ourselves
        wait_for_both_workers(running)
        assert_one_client_is_served(running)
        open_session(running.url)
        try:
            stream_through(stream, running, [partial(pause_each_worker, running)] * 3)
            assert_exactly_once(stream.requests, stored(running))
        except (AssertionError, HorocycleError):
            return False
    return True


def assert_one_client_is_served(running: Running) -> None:
    """Whatever was taken out, it takes two to go wrong"""
    with httpx.Client(base_url=running.url, timeout=30) as http:
        http.post("/sessions", json={"id": "alone", "dimension": 2, "reference": "origin"}).raise_for_status()
        for number in range(10):
            body, key = {"point": [0.1, 0.2], "label": 1}, {"Idempotency-Key": str(number)}
            http.post("/sessions/alone/observe", json=body, headers=key).raise_for_status()
        assert http.get("/sessions/alone").json()["observed"] == 10


def test_the_short_gate_holds_with_all_checks_in_place(tmp_path: Path) -> None:
    shutil.copytree(Path(package.__path__[0]), tmp_path / "service")
    assert short_gate(tmp_path, 1)


# ------------------------------------------------------------------------------------------- a reply that gets lost


class Deaf(Store):
    """Does not hear the reply to its first commit; `others` commit before it asks again."""

    others: Callable[[], Any] | None = None

    async def commit(self, *args: Any, **kwargs: Any) -> Committed | Replayed | Conflict:
        result = await super().commit(*args, **kwargs)
        if self.others is None:
            return result
        others, self.others = self.others, None
        await others()
        raise OutcomeUnknown


class Lost(Deaf):
    """Its first commit does not even reach the store"""

    async def commit(self, *args: Any, **kwargs: Any) -> Committed | Replayed | Conflict:
        if self.others is None:
            return await Store.commit(self, *args, **kwargs)
        others, self.others = self.others, None
        await others()
        raise OutcomeUnknown


async def observed_after_a_loss(
    url: str, others: int, kind: type[Deaf] = Deaf, keep_points: int = 10_000
) -> tuple[int, int]:
    """How many points without a key were learned, and how many of them acknowledged"""
    point = np.array([[0.1, 0.2]]), [1]
    async with storing(url, kind=kind) as here, storing(url) as there:
        sid = (await there.opened(keep_points=keep_points)).spec.id

        async def commit_others() -> None:
            for _ in range(others):
                await there.observe(sid, *point)

        assert isinstance(here.store, Deaf)
        here.store.others, acknowledged = commit_others, others
        with suppress(OutcomeUnknown):
            acknowledged += (await here.observe(sid, *point)).accepted
        return (await there.store.load(sid)).counters.observed, acknowledged


@pytest.mark.parametrize("others", [0, 1, 63, 64, 300])
def test_a_commit_whose_reply_was_lost_is_written_once_and_acknowledged(server: EmbeddedServer, others: int) -> None:
    assert asyncio.run(observed_after_a_loss(server.url, others)) == (others + 1, others + 1)


@pytest.mark.parametrize("others", [0, 1, 63, 64, 300])
def test_so_is_one_that_never_arrived(server: EmbeddedServer, others: int) -> None:
    assert asyncio.run(observed_after_a_loss(server.url, others, Lost)) == (others + 1, others + 1)


@pytest.mark.parametrize("others", [0, 1, 64, 127])
def test_the_newest_entries_tell_it_also_when_no_points_are_kept(server: EmbeddedServer, others: int) -> None:
    assert asyncio.run(observed_after_a_loss(server.url, others, keep_points=0)) == (others + 1, others + 1)


def test_a_commit_whose_entry_is_trimmed_is_of_unknown_outcome_and_not_written_again(server: EmbeddedServer) -> None:
    assert asyncio.run(observed_after_a_loss(server.url, 250, keep_points=0)) == (251, 250)
    assert asyncio.run(observed_after_a_loss(server.url, 250, Lost, keep_points=0)) == (250, 250)


@pytest.mark.parametrize("others", [0, 1, 63, 300])
def test_it_is_written_twice_when_the_commit_id_check_is_taken_out(
    server: EmbeddedServer, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "COMMIT", scripts.script(without("commit id", scripts.COMMIT.text)))
    assert asyncio.run(observed_after_a_loss(server.url, others)) == (others + 2, others + 1)


@pytest.mark.parametrize("check", ["gap", "ambiguous"])
def test_it_is_written_twice_when_nobody_looks_whether_its_entry_is_trimmed(
    server: EmbeddedServer, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "COMMIT", scripts.script(without(check, scripts.COMMIT.text)))
    assert asyncio.run(observed_after_a_loss(server.url, 250, keep_points=0)) == (252, 251)


@pytest.mark.parametrize("kind", [Deaf, Lost])
@pytest.mark.parametrize("others", [0, 3])
def test_a_producers_connection_whose_reply_was_lost_is_not_refused_as_an_earlier_one(
    server: EmbeddedServer, kind: type[Deaf], others: int
) -> None:
    async def connect() -> tuple[int, int]:
        async with storing(server.url, kind=kind) as here, storing(server.url) as there:
            sid = (await there.opened()).spec.id

            async def commit_others() -> None:
                for _ in range(others):
                    await there.observe(sid, np.array([[0.1, 0.2]]), [1])

            assert isinstance(here.store, Deaf)
            here.store.others = commit_others
            connection = (await here.ingest.connect(sid, "p", 5)).producers["p"].connection
            for late in (4, 5):
                with pytest.raises(EarlierConnection):
                    await there.ingest.connect(sid, "p", late)
            return connection, (await there.store.load(sid)).producers["p"].connection

    assert asyncio.run(connect()) == (5, 5)


def test_the_epoch_grows_when_the_store_was_restarted_between_two_requests(server: EmbeddedServer) -> None:
    async def epochs() -> tuple[int, int]:
        connection = Connection(server.url)
        try:
            before = await connection.epoch()
            os.kill(server.pid, signal.SIGKILL)
            with redis.Redis.from_url(server.url, retry=Retry(ConstantBackoff(0.05), 200)) as other:
                await asyncio.to_thread(other.ping)
            await connection.ping()
            return before, await connection.epoch()
        finally:
            await connection.close()

    before, after = asyncio.run(epochs())
    assert after == before + 1


# --------------------------------------------------------------------------------- the launcher killed, the store cut


def test_a_killed_launcher_leaves_no_worker_behind_and_the_next_has_every_point(tmp_path: Path) -> None:
    stream = Stream(2, points=400, clients=4, pause=0.05)
    with run(tmp_path) as first, ThreadPoolExecutor(1) as aside:
        open_session(first.url)
        streaming = aside.submit(stream.run, first.url, LIMIT)
        wait_until(lambda: stream.progress > 0.3 or streaming.done(), LIMIT)
        workers, orphan = first.worker_pids, first.store_pid
        first.launcher.kill()
        wait_until(lambda: not any(map(alive, workers)), 10)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{first.url}/health/live")
        assert alive(orphan)
        assert stream.progress < 1
        with run(tmp_path, workers=1) as second:
            assert not alive(orphan)
            stream.url = second.url
            streaming.result()
            assert_exactly_once(stream.requests, stored(second))


def test_a_store_that_hangs_gets_504_by_the_deadline_and_a_retry_settles_it_once(tmp_path: Path) -> None:
    stream = Stream(3, points=30, clients=1)
    first, second = stream.requests[:2]
    with run(tmp_path, workers=1, HOROCYCLE_DEADLINE="1") as running, httpx.Client(timeout=30) as http:
        open_session(running.url)
        observe = f"{running.url}/sessions/{SESSION}/observe"
        http.post(observe, content=first.body, headers=first.headers).raise_for_status()
        os.kill(running.store_pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            cut = http.post(observe, content=second.body, headers=second.headers)
            assert (cut.status_code, cut.json()["type"]) == (504, "/problems/outcome-unknown")
            assert 0.9 < time.monotonic() - began < 3
            again = http.post(observe, content=second.body, headers=second.headers)
            assert (again.status_code, again.json()["type"]) == (503, "/problems/store-unavailable")
            assert again.headers["retry-after"]
            assert time.monotonic() - began < 6
        finally:
            os.kill(running.store_pid, signal.SIGCONT)
        stream.run(running.url, LIMIT)
        assert_exactly_once(stream.requests, stored(running))
