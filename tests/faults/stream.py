"""Many clients stream to one session through whatever goes wrong, and what must be true of it at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from service.geometry import Array
from service.learners import encode
from service.process.store_format import connect
from service.sessions import rows, tally
from service.sessions.records import NO_ENTRY, Counters, Entry, EntryId, Kind, Loaded
from service.sessions.spec import Spec
from service.sessions.tally import Confusion, Tally
from service.store.keys import state_key
from tests.running import Running, wait_until_ready
from tests.storing import storing

SESSION = "one"
LATER = (429, 503, 504)  # come back with the same key
KEPT = 12_000  # more points than any stream has, and a checkpoint every 3,000 of them
LIMIT = 120  # seconds after which a stream hangs


@dataclass(frozen=True)
class Reply:
    content: bytes
    replayed: bool
    repeated: bool  # whether the client had an answer already when it asked
    epoch: int


@dataclass(frozen=True)
class Request:
    """One observe of one client, and every answer it got."""

    key: str
    client: int
    rows: Array  # the coordinates, then the label's index
    raw: bool
    replies: list[Reply] = field(default_factory=list)

    @cached_property
    def body(self) -> bytes:
        if self.raw:
            return self.rows.astype("<f8").tobytes()
        labels = (2 * self.rows[:, -1] - 1).astype(int).tolist()
        return json.dumps({"points": self.rows[:, :-1].tolist(), "labels": labels}).encode()

    @property
    def headers(self) -> dict[str, str]:
        kind = "application/octet-stream" if self.raw else "application/json"
        return {"content-type": kind, "idempotency-key": self.key}

    def heard(self, response: httpx.Response, repeated: bool) -> bool:
        """Whether this acknowledges it"""
        if response.status_code in LATER:
            return False
        assert response.status_code == 200, response.text
        replayed = response.headers.get("idempotency-replayed") == "true"
        self.replies.append(Reply(response.content, replayed, repeated, int(response.headers["horocycle-epoch"])))
        return True

    @cached_property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.replies[0].content)
        return found

    @property
    def end(self) -> int:
        """The position in the session behind its last point"""
        return int(self.answer["session"]["observed"])


class Stream:
    """`points` labelled points, cut into requests of 1 to `most`, shared out among the clients."""

    def __init__(
        self,
        seed: int,
        *,
        points: int,
        dimension: int = 2,
        clients: int = 16,
        pause: float = 0.0,
        most: int = 20,
        session: str = SESSION,
        heard: Callable[[Request, int, float], None] = lambda request, status, sent: None,
    ) -> None:
        """`heard` is told of every answer's status, 0 if there was none, and when it was asked for"""
        assert points < KEPT
        self.url, self.pause, self.session, self._seed, self._heard = "", pause, session, seed, heard
        rng = np.random.default_rng(seed)
        x = rng.uniform(-0.7, 0.7, (points, dimension)) * (2 / dimension) ** 0.5
        noise = rng.random(points) < 0.2  # no line is ever right, so the state never rests
        rows = np.column_stack([x, (x[:, 0] > 0.3 * x[:, 1]) ^ noise])
        assert len(np.unique(rows, axis=0)) == points
        cuts = np.cumsum(rng.integers(1, most + 1, points))
        batches = np.split(rows, cuts[cuts < points])
        self.requests = [
            Request(f"{seed}-{i}", i % clients, batch, bool(rng.random() < 0.5)) for i, batch in enumerate(batches)
        ]
        self._shares = [[r for r in self.requests if r.client == client] for client in range(clients)]

    @property
    def progress(self) -> float:
        """The part of its requests that was acknowledged"""
        return sum(bool(request.replies) for request in self.requests) / len(self.requests)

    def run(self, url: str, seconds: float) -> None:
        """Every request is acknowledged when this returns. `url` may be set anew meanwhile."""
        self.url = url
        asyncio.run(self._run(seconds))

    async def _run(self, seconds: float) -> None:
        limits = httpx.Limits(
            max_connections=None, max_keepalive_connections=4
        )  # else on a new one: to whichever worker
        async with asyncio.timeout(seconds), httpx.AsyncClient(limits=limits, timeout=15) as http:
            clients = [asyncio.ensure_future(self._client(http, each)) for each in range(len(self._shares))]
            try:
                await asyncio.gather(*clients)
            finally:  # none may be left with a connection that it is just making
                for each in clients:
                    each.cancel()
                await asyncio.wait(clients)

    async def _client(self, http: httpx.AsyncClient, client: int) -> None:
        """Waits for each answer before the next request; hangs up, repeats itself and stammers in between."""
        rng = np.random.default_rng([self._seed, client])
        for i, request in enumerate(self._shares[client]):
            await asyncio.sleep(rng.exponential(self.pause))
            mood = rng.random()
            if mood < 0.15:  # hangs up
                with suppress(TimeoutError):
                    async with asyncio.timeout(rng.uniform(0, 0.02)):
                        await self._ask(http, request)
            elif mood < 0.3:  # says it three times at once
                await asyncio.gather(*(self._ask(http, request) for _ in range(3)))
            await self._settle(http, request)
            if rng.random() < 0.2:  # says again what was acknowledged
                await self._settle(http, self._shares[client][rng.integers(max(0, i - 20), i + 1)])

    async def _settle(self, http: httpx.AsyncClient, request: Request) -> None:
        pause = 0.01
        while not await self._ask(http, request):
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.5)

    async def _ask(self, http: httpx.AsyncClient, request: Request) -> bool:
        """Whether it was acknowledged"""
        url, repeated = f"{self.url}/sessions/{self.session}/observe", bool(request.replies)
        sent = time.monotonic()
        try:
            response = await http.post(url, content=request.body, headers=request.headers)
        except httpx.TransportError:
            self._heard(request, 0, sent)
            return False
        self._heard(request, response.status_code, sent)
        return request.heard(response, repeated)


def stream_through(stream: Stream, running: Running, faults: Sequence[Callable[[], None]]) -> None:
    """The faults come in their order, evenly along the stream."""
    with ThreadPoolExecutor(1) as aside:
        streaming = aside.submit(stream.run, running.url, LIMIT)
        for i, fault in enumerate(faults):
            while stream.progress < (i + 0.5) / len(faults) and not streaming.done():
                time.sleep(0.002)
            fault()
        streaming.result()


def wait_for_both_workers(running: Running) -> None:
    """Each of the two serves while the other is stopped."""
    for pid in running.worker_pids:
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until_ready(running.url)
        finally:
            os.kill(pid, signal.SIGCONT)


def two_workers(running: Running, seconds: float = 60.0) -> list[int]:
    """Both serve, however many were killed before; one that was stopped for too long the launcher has replaced"""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pids = running.worker_pids
        with suppress(OSError):
            if len(pids) == 2 and all(map(alive, pids)):
                wait_for_both_workers(running)
            if len(pids) == 2 and running.worker_pids == pids:
                return pids
        time.sleep(0.02)
    raise AssertionError(f"no two workers within {seconds} s")


def open_session(
    url: str, algorithm: str = "perceptron", dimension: int = 2, session: str = SESSION, keep_points: int = KEPT
) -> None:
    settings = {
        "id": session,
        "algorithm": algorithm,
        "dimension": dimension,
        "reference": "origin",
        "keep_points": keep_points,
    }
    httpx.post(f"{url}/sessions", json=settings, timeout=30).raise_for_status()


# -------------------------------------------------------------------------------------------------- what goes wrong


def kill_a_worker(running: Running, rng: np.random.Generator) -> None:
    _kill(lambda: int(rng.choice(running.worker_pids)))


def kill_the_store(running: Running) -> None:
    _kill(lambda: running.store_pid)


def pause_each_worker(running: Running) -> None:
    """Meanwhile the other serves; then the first goes on, with an old state."""
    with suppress(OSError):  # one that was killed is just being replaced
        for pid in running.worker_pids:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.2)
            os.kill(pid, signal.SIGCONT)


def _kill(find: Callable[[], int], seconds: float = 30.0) -> None:
    """As soon as there is one: after the last fault it may still be on its way back."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            if alive(pid := find()):
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.01)
    raise AssertionError(f"nothing to kill within {seconds} s")


def alive(pid: int) -> bool:
    """Not even a zombie has a command line."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


# ------------------------------------------------------------------------------------------- what must be true of it


@dataclass(frozen=True)
class Stored:
    """All that the store has of the session."""

    loaded: Loaded
    fields: dict[bytes, bytes]  # of the state, as they are stored
    rows: Array
    entries: list[tuple[EntryId, Entry]]
    commits: list[bytes]  # the ids of the commits, an entry each
    past: dict[int, Loaded]  # position → the session there, replayed from the log


def stored(running: Running, session: str = SESSION) -> Stored:
    return stored_at(running.redis_url, session)


def stored_at(url: str, session: str) -> Stored:
    with connect(url, 30) as client:
        fields = client.hgetall(state_key(session))
    return asyncio.run(_read(url, session, fields))


async def _read(url: str, session: str, fields: dict[bytes, bytes]) -> Stored:
    async with storing(url) as parts:
        loaded = await parts.store.load(session)
        N = loaded.counters.observed
        first, data = await parts.log.points(loaded, 0, N)
        assert first == 0
        pages = [page async for page in parts.log.pages(session, "-", loaded.newest)]
        entries = [each async for each in parts.log.entries(loaded, NO_ENTRY, N)]
        past = {position: await parts.log.at(loaded, position) for position in _positions(loaded)}
        commits = [record.fields[b"commit"] for page in pages for record in page]
        return Stored(loaded, fields, rows.table(data, loaded.spec.dimension), entries, commits, past)


def _positions(loaded: Loaded) -> set[int]:
    """Where to look back: at both ends, in between, and around every checkpoint and the stored learner"""
    N = loaded.counters.observed
    around = {id.observed + step for id in (*loaded.checkpoints, loaded.learner_at) for step in (-1, 0, 1)}
    return {0, N // 3, N // 2, N} | {position for position in around if 0 <= position <= N}


def assert_exactly_once(requests: list[Request], found: Stored) -> None:
    """Every request was acknowledged, applied once, in one order; and the state is what that order leads to."""
    for request in requests:
        assert_one_answer(request)
    ordered = sorted(requests, key=lambda request: request.end)
    sent = np.concatenate([request.rows for request in ordered])
    assert Counter(map(tuple, found.rows.tolist())) == Counter(map(tuple, sent.tolist())), "lost, doubled or strange"
    assert_tiled([(r.end - r.answer["accepted"], r.end) for r in ordered], len(sent))
    assert_log_is_whole(found)
    assert np.array_equal(found.rows, sent), "another order than the answers tell"
    for client in {request.client for request in requests}:
        ends = [request.end for request in requests if request.client == client]
        assert ends == sorted(ends), f"client {client} waited for its answers, in vain"
        epochs = [request.replies[0].epoch for request in requests if request.client == client]
        assert epochs == sorted(epochs), f"client {client} must believe that something was lost"
    assert_replay_agrees(ordered, found)


def assert_one_answer(request: Request) -> None:
    """However often it was asked; and at most one says that it is the first."""
    assert request.replies, f"{request.key} was never acknowledged"
    assert len({reply.content for reply in request.replies}) == 1, f"{request.key} has two answers"
    assert sum(not reply.replayed for reply in request.replies) <= 1, f"{request.key} was new twice"
    assert all(reply.replayed for reply in request.replies if reply.repeated), f"{request.key} was new again"
    assert request.answer["accepted"] == len(request.rows)


def assert_log_is_whole(found: Stored) -> None:
    """An entry a commit, numbered without gaps, and together they hold every point once"""
    loaded, N = found.loaded, len(found.rows)
    ids, entries = zip(*found.entries, strict=True)
    assert {entry.kind for entry in entries} == {Kind.POINTS}
    assert [id.number for id in ids] == list(range(1, len(ids) + 1))
    assert [id.observed for id in ids] == [entry.counters.observed for entry in entries]
    assert_tiled([(entry.first, entry.counters.observed) for entry in entries], N)
    assert len(set(found.commits)) == len(found.commits) == len(entries) == loaded.revision
    assert ids[-1] == loaded.newest
    assert entries[-1].counters == loaded.counters
    assert b"".join(rows.pack(entry.batch) for entry in entries) == found.rows.tobytes()


def assert_tiled(intervals: list[tuple[int, int]], N: int) -> None:
    """[0, N), without gap or overlap"""
    starts, ends = zip(*intervals, strict=True)
    assert (0, *ends) == (*starts, N)


# ------------------------------------------------------------------------------------------ learned anew, bit for bit


class Pupil:
    """Learns the points one after another, in this process; the parts of the service that it uses are pure"""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.state, self.counters = spec, spec.first_state(), Counters()
        self.tally, self.cells, self.seen = Tally(), Counter[tuple[int, int]](), Confusion()

    def learn(self, row: Array) -> float:
        """The score before it is learned"""
        spec, before, index = self.spec, self.counters, row[-1:].astype(np.int64)
        outcome = spec.learner.observe(self.state, row[None, :-1], spec.targets(index))
        decided = spec.decide(outcome.scores)
        wrong, changed = int(decided[0] != index[0]), int(outcome.changed[0])
        self.state = outcome.state
        self.tally, self.seen, *_ = tally.observe(self.tally, self.seen, spec.classes, index, decided)
        self.cells[int(index[0]), int(decided[0])] += 1
        self.counters = Counters(
            before.observed + 1, before.mistakes + wrong, before.updates + wrong, before.version + changed
        )
        return float(outcome.scores[0])

    @property
    def known(self) -> dict[str, Any]:
        """All that was learned, as bytes and numbers"""
        cells = sorted((i, j, count) for (i, j), count in self.cells.items())
        return {
            "learner": encode(self.state),
            "counters": self.counters,
            "tally": self.tally.pack() + self.tally.pack_log(),
            "confusion": cells,
        }


def known(loaded: Loaded) -> dict[str, Any]:
    """The same of a session"""
    return {
        "learner": encode(loaded.state),
        "counters": loaded.counters,
        "tally": loaded.tally.pack() + loaded.tally.pack_log(),
        "confusion": list(loaded.confusion.cells()),
    }


def assert_replay_agrees(ordered: list[Request], found: Stored) -> None:
    """The retained points, learned one after another in this process, bit for bit: all answers, every entry of the
    log, the stored session, and what is replayed of its past"""
    spec, pupil, scores = found.loaded.spec, Pupil(found.loaded.spec), list[float]()
    past, heads = {0: pupil.known}, {0: pupil.counters}
    for row in found.rows:
        scores.append(pupil.learn(row))
        heads[pupil.counters.observed] = pupil.counters
        if pupil.counters.observed in found.past:
            past[pupil.counters.observed] = pupil.known
    for request in ordered:
        assert_answer_agrees(request, scores[request.end - len(request.rows) : request.end], spec, heads)
    decided = spec.decide(np.array(scores))
    for _, entry in found.entries:
        assert entry.counters == heads[entry.counters.observed]
        assert np.array_equal(entry.predicted, decided[entry.first : entry.counters.observed])
    assert known(found.loaded) == pupil.known
    assert {position: known(was) for position, was in found.past.items()} == past
    assert found.fields[b"learner"] == past[found.loaded.learner_at.observed]["learner"]


def assert_answer_agrees(request: Request, scores: list[float], spec: Spec, heads: dict[int, Counters]) -> None:
    answer, decided = request.answer, spec.decide(np.array(scores))
    assert np.array_equal(answer["scores"], scores)
    assert np.array_equal(answer["predictions"], spec.named(decided))
    assert np.array_equal(answer["correct"], decided == request.rows[:, -1])
    assert answer["mistakes"] == len(request.rows) - sum(answer["correct"])
    assert Counters(**answer["session"]) == heads[request.end]
