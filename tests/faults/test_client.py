"""The clients through what loses replies, is late, is dead, comes back or goes back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from clients import problems
from clients.answers import Commit, Ended, Event, Observed, Reset
from clients.client import AsyncClient, AsyncSession, Client, Retry, Session
from tests.blocking import client as made
from tests.faults.proxy import proxied
from tests.running import Running
from tests.stub import INFO, Stub, serving

OFTEN = Retry(attempts=100, first=0.002, longest=0.02)
BAD: Any = {"refuse": 0.1, "lose": 0.25, "half": 0.1}
THREADS, REQUESTS = 4, 40


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def batches(seed: int, n: int = REQUESTS) -> list[tuple[Any, Any]]:
    """Requests of 1 to 600 points, so that some go raw; no two points are equal, and no line is ever right"""
    rng = np.random.default_rng(seed)
    sizes = np.where(rng.random(n) < 0.1, 600, rng.integers(1, 10, n))
    return [(rng.uniform(-0.6, 0.6, (size, 2)), rng.choice([-1, 1], size)) for size in sizes]


def assert_exactly_once(direct: Client, id: str, sent: list[list[tuple[Any, Any, Observed]]]) -> None:
    """All that was acknowledged was learned once, each sender's in its order, and led to this state"""
    session = direct.sessions.get(id)
    snapshot = session.snapshot()
    kept = np.frombuffer(b64decode(snapshot["points"]), "<f8").reshape(-1, 3)
    answers = sorted((answer.session.observed, X, y, answer) for each in sent for X, y, answer in each)
    rows = np.concatenate([np.column_stack([X, y > 0]) for _, X, y, _ in answers])
    assert len(kept) == len(rows) == session.info.observed, "lost or doubled"
    assert np.array_equal(kept, rows), "another order than the answers tell"
    for each in sent:
        ends = [answer.session.observed for _, _, answer in each]
        assert ends == sorted(ends)
    replay = direct.sessions.open(dimension=2, reference="origin", keep_points=10**6)
    again = replay.observe(kept[:, :2], 2 * kept[:, 2].astype(int) - 1)
    assert again.scores is not None
    assert np.array_equal(again.scores, np.concatenate([answer.scores for *_, answer in answers]))
    assert replay.snapshot()["state"] == snapshot["state"]
    assert again.session == answers[-1][-1].session


def test_what_is_sent_through_a_line_that_loses_replies_is_learned_exactly_once(running: Running) -> None:
    with (
        proxied(running.url, 1, **BAD) as proxy,
        Client(proxy.url, retry=OFTEN) as client,
        Client(running.url) as direct,
    ):
        session = client.sessions.open(dimension=2, reference="origin", keep_points=10**6)
        with ThreadPoolExecutor(THREADS) as pool:
            sent = list(pool.map(lambda seed: send(session, seed), range(THREADS)))
        assert proxy.drawn["lose"] + proxy.drawn["half"] > 20
        assert_exactly_once(direct, session.id, sent)


def send(session: Session, seed: int) -> list[tuple[Any, Any, Observed]]:
    return [(X, y, session.observe(X, y)) for X, y in batches(seed)]


def test_the_same_without_threads(running: Running) -> None:
    async def send(session: AsyncSession, seed: int) -> list[tuple[Any, Any, Observed]]:
        return [(X, y, await session.observe(X, y)) for X, y in batches(seed)]

    async def all_at_once(url: str) -> tuple[str, list[Any]]:
        async with AsyncClient(url, retry=OFTEN) as client:
            session = await client.sessions.open(dimension=2, reference="origin", keep_points=10**6)
            return session.id, await asyncio.gather(*(send(session, seed) for seed in range(THREADS)))

    with proxied(running.url, 2, **BAD) as proxy, Client(running.url) as direct:
        id, sent = asyncio.run(all_at_once(proxy.url))
        assert proxy.drawn["lose"] + proxy.drawn["half"] > 20
        assert_exactly_once(direct, id, sent)


def test_points_are_learned_twice_with_a_new_key_for_every_try(running: Running) -> None:
    """The test above can fail"""
    rng = random.Random(0)

    def forget(request: httpx.Request) -> None:
        if "idempotency-key" in request.headers:
            request.headers["idempotency-key"] = f"{rng.getrandbits(128):x}"

    with proxied(running.url, 3, **BAD) as proxy, httpx.Client(event_hooks={"request": [forget]}) as http:
        with Client(proxy.url, retry=OFTEN, http=http) as client, Client(running.url) as direct:
            session = client.sessions.open(dimension=2, reference="origin", keep_points=10**6)
            sent = [send(session, 0)]
            with pytest.raises(AssertionError, match="lost or doubled"):
                assert_exactly_once(direct, session.id, sent)


def test_all_else_is_done_once_too(running: Running, kind: str) -> None:
    """Sessions opened, restored, changed and ended, late labels, fits; each is tried a few times on average"""
    with proxied(running.url, 4, refuse=0.2, lose=0.4) as proxy, made(kind, proxy.url, retry=OFTEN) as client:
        for i in range(8):
            session = client.sessions.open(dimension=2, labels=["no", "yes"], name=f"number {i}", reference=[0.1, 0.0])
            X, y = [[0.1, 0.2], [0.3, -0.1], [-0.2, 0.1]], ["yes", "no", "yes"]
            session.predict(X, ids=["a", "b", "c"])
            assert session.label(["a", "b", "c"], y).ids == ("a", "b", "c")
            assert session.refresh().observed == 3
            copy = client.sessions.restore(session.snapshot())
            assert (copy.info.observed, copy.info.name) == (3, f"number {i}")
            assert copy.change(name="a copy").name == "a copy"
            fit = session.fit(kind="softmax")
            assert [each.id for each in session.fits()] == [fit.id]
            fit.cancel()
            for each in (session, copy):
                each.end()
                with pytest.raises(problems.SessionGone):
                    each.refresh()
        assert proxy.drawn["lose"] > 50


def test_an_id_that_others_took_is_not_mistaken_for_a_lost_reply(running: Running) -> None:
    with proxied(running.url, 5, lose=1.0) as proxy, Client(running.url) as direct:
        direct.sessions.open(dimension=2, reference="origin", id="theirs", curvature=2.0)
        with Client(proxy.url, retry=Retry(attempts=3, first=0.001)) as client:
            with pytest.raises(problems.Unreachable):
                client.sessions.open(dimension=2, reference="origin", id="mine")
            proxy.fates = {"pass": 1.0}
            with pytest.raises(problems.SessionExists):
                client.sessions.open(dimension=2, reference="origin", id="mine")  # another call: another session
        assert direct.sessions.get("mine").info.observed == 0
    with proxied(running.url, 6, lose=0.5) as proxy, Client(proxy.url, retry=OFTEN) as client:
        for _ in range(10):
            with pytest.raises(problems.SessionExists):
                client.sessions.open(dimension=2, reference="origin", id="theirs")


def test_what_is_late_is_asked_for_again_and_learned_once(running: Running) -> None:
    with proxied(running.url, 8, delay=0.4, late=0.6) as proxy, Client(running.url) as direct:
        with Client(proxy.url, timeout=0.3, retry=Retry(attempts=50, first=0.01, longest=0.1)) as client:
            session = client.sessions.open(dimension=2, reference="origin", keep_points=10**6)
            sent = [(X, y, session.observe(X, y)) for X, y in batches(7, 12)]
        assert proxy.drawn["delay"] > 2
        assert_exactly_once(direct, session.id, [sent])


def test_events_come_each_once_in_order_however_the_line_is_cut(running: Running, kind: str) -> None:
    with proxied(running.url, 8, refuse=0.2, cut=0.7) as proxy, Client(running.url) as direct:
        session = direct.sessions.open(dimension=2, reference="origin")
        peace: Any = (lambda seconds: None) if kind == "sync" else (lambda seconds: asyncio.sleep(0))
        with made(kind, proxy.url, retry=Retry(attempts=1000, first=0), sleep=peace) as client:
            events = client.sessions.get(session.id).events(after="0-0")
            for X, y in batches(8):
                session.observe(X, y)
            found: list[Event] = [next(events) for _ in range(REQUESTS)]
            events.close()
        ends = [event.observed for event in found if isinstance(event, Commit)]
        assert ends[-1] == session.refresh().observed
        assert proxy.drawn["cut"] > 3
    with made(kind, running.url) as client:
        straight = client.sessions.get(session.id).events(after="0-0")
        expected = [next(straight).id for _ in range(REQUESTS)]
        straight.close()
    assert [event.id for event in found] == expected


def test_events_that_are_kept_no_more_are_told_as_a_reset(running: Running, kind: str) -> None:
    with made(kind, running.url) as client:
        session = client.sessions.open(dimension=2, reference="origin", keep_points=1)
        session.observe([0.1, 0.2], 1)
        first = session.events(after="0-0")
        seen = next(first)
        first.close()
        assert isinstance(seen, Commit)
        for _ in range(220):  # the newest 64 entries stay, and Redis may trim in whole nodes
            session.observe([0.1, 0.2], 1, columns=False)
        with closing(session.events(after=seen)) as events:
            reset = next(events)
            assert isinstance(reset, Reset)
            assert reset.session.observed == 221
            session.observe([0.1, 0.2], 1)
            commit = next(events)
        assert isinstance(commit, Commit) and commit.observed == 222


def test_a_session_that_ended_while_its_client_was_away_is_told(running: Running) -> None:
    with proxied(running.url, 10, cut=1.0) as proxy, Client(running.url) as direct:
        proxy.cut = 100
        session = direct.sessions.open(dimension=2, reference="origin")
        with Client(proxy.url, retry=OFTEN, sleep=lambda seconds: session.end()) as client:
            proxy.fates = {"pass": 1.0}
            handle = client.sessions.get(session.id)
            proxy.fates = {"cut": 1.0}
            assert [type(event) for event in handle.events()] == [Ended]


# ---------------------------------------------------------------------------------------------- the dead and the living


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_dead_service_is_named_after_the_retries(kind: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with made(kind, url, retry=Retry(attempts=4, first=0.01)) as client:
        with pytest.raises(problems.Unreachable, match=rf"{url} does not answer \(tried 4 times\)") as dead:
            client.sessions.get("s")
    assert (dead.value.url, dead.value.attempts) == (url, 4)
    with made(kind, "http://does-not-exist.invalid", retry=Retry(attempts=1)) as client:
        with pytest.raises(problems.Unreachable, match="tried once"):
            client.sessions.get("s")


def test_a_service_that_comes_back_is_found(running: Running) -> None:
    port, opened = free_port(), list[Session]()
    with Client(f"http://127.0.0.1:{port}", retry=Retry(attempts=30, first=0.05, longest=0.1)) as client:
        waiting = threading.Thread(target=lambda: opened.append(client.sessions.open(dimension=2, reference="origin")))
        waiting.start()
        time.sleep(0.3)
        with proxied(running.url, 11, port=port):
            waiting.join()
            assert opened[0].observe([0.1, 0.2], 1).session.observed == 1


def test_a_worker_and_the_store_are_killed_and_nobody_notices(mortal: Running) -> None:
    """Nothing is lost, so nothing goes backwards: the epoch grows, and every thread sees it grow"""
    with Client(mortal.url, retry=Retry(attempts=200, longest=0.2)) as client, ThreadPoolExecutor(THREADS) as pool:
        session = client.sessions.open(dimension=2, reference="origin", keep_points=10**6)
        sending = [pool.submit(send, session, seed) for seed in range(THREADS)]
        kill_when(session, 100, mortal.worker_pids[0])
        kill_when(session, 1500, mortal.store_pid)
        sent = [each.result() for each in sending]
        assert_exactly_once(client, session.id, sent)


def kill_when(session: Session, observed: int, pid: int) -> None:
    while session.refresh().observed < observed:
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------- what goes backwards


class Amnesiac(Stub):
    """A service whose position is what it is told to be; `gate`, if there is one, holds an answer back"""

    position: dict[str, int]
    gate: threading.Event | None = None
    held: threading.Event

    def do_GET(self) -> None:
        self._tell({**INFO, **self.position}, self.position)

    def do_POST(self) -> None:
        self.body()
        position, gate = dict(self.position), self.gate
        type(self).gate = None
        if gate is not None:
            self.held.set()
            gate.wait(10)
        progress = {**position, "mistakes": 0, "updates": 0}
        self._tell({"accepted": 1, "mistakes": 0, "session": progress}, position)

    def _tell(self, document: dict[str, Any], position: dict[str, int]) -> None:
        self.answer(document, {"Horocycle-Epoch": str(position["epoch"])})


@contextmanager
def amnesiac() -> Iterator[tuple[str, type[Amnesiac]]]:
    own = {"position": {"epoch": 5, "observed": 10, "version": 3}, "held": threading.Event()}
    handler: type[Amnesiac] = type("Handler", (Amnesiac,), own)
    with serving(handler) as url:
        yield url, handler


@pytest.mark.parametrize("what", ["epoch", "observed", "version"])
def test_a_service_that_lost_something_is_found_out(kind: str, what: str) -> None:
    with amnesiac() as (url, stub), made(kind, url) as client:
        session = client.sessions.get("s")
        was = stub.position[what]
        stub.position = {**stub.position, what: was - 1}
        with pytest.raises(problems.WentBackwards) as back:
            session.observe([0.1, 0.2], 1, columns=False)
        assert (back.value.session, back.value.what, back.value.was, back.value.now) == ("s", what, was, was - 1)
        assert back.value.answer.accepted == 1
        assert session.refresh().observed == stub.position["observed"], "it is told once"


def test_an_answer_that_overlaps_a_later_one_is_not_behind_it() -> None:
    with amnesiac() as (url, stub), Client(url) as client, ThreadPoolExecutor(1) as aside:
        session = client.sessions.get("s")
        gate = stub.gate = threading.Event()
        slow = aside.submit(session.observe, [0.1, 0.2], 1, columns=False)
        assert stub.held.wait(10)
        stub.position = {"epoch": 5, "observed": 11, "version": 4}
        assert session.observe([0.1, 0.2], 1, columns=False).session.observed == 11
        gate.set()
        assert slow.result().session.observed == 10
        stub.position = {"epoch": 5, "observed": 10, "version": 4}
        with pytest.raises(problems.WentBackwards, match="was 11 and is 10"):
            session.observe([0.1, 0.2], 1, columns=False)
