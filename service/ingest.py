"""Observing: requests that wait for a session are gathered, learned in order in one go, committed in one round trip,
and answered each with its own predictions.

Per worker and session there is one lane. Whatever arrives while a commit is on its way waits for the next: under load
a commit carries many requests, alone a request carries its own. The state is kept decoded between commits, and the
commit itself says whether it was still the current one: if another worker was first, everything is learned again from
the newer state. Nothing is answered before it is stored.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from redis.exceptions import RedisError

from service import telemetry
from service.errors import HorocycleError, KeyReused, OutcomeUnknown, RateLimited, StaleModel, StoreUnavailable
from service.sessions.apply import Answer, Job, Learned, learn
from service.sessions.records import Change, Loaded, Waiting
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from service.store.sessions import Committed, Conflict, Replayed, Store

#: How many points one commit carries at the most, and from how many on the learner leaves the event loop.
GATHER, THREAD = 200_000, 20_000
#: How many sessions a worker keeps decoded.
LANES = 1024


@dataclass(frozen=True)
class Request:
    """One observe, or the late labels of points that wait under their ids."""

    batch: Batch  # of late labels: no points yet
    fingerprint: bytes  # of the body
    key: str | None = None
    if_match: int | None = None
    columns: bool = True  # whether the answer has them
    ids: tuple[str, ...] = ()
    indices: NDArray[np.int64] | None = None  # the late labels

    @property
    def size(self) -> int:
        return len(self.ids) or len(self.batch.X)


@dataclass(eq=False)
class _Waiting:
    request: Request
    answer: asyncio.Future[Answer]


@dataclass
class _Lane:
    """The line before one session."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    loaded: Loaded | None = None
    busy: asyncio.Task[None] | None = None
    underway: dict[str, tuple[bytes, asyncio.Future[Answer]]] = field(default_factory=dict)

    @property
    def at_work(self) -> bool:
        return self.busy is not None and not self.busy.done()


class Ingest:
    def __init__(self, store: Store, *, queue: int = 1024, patience: float = 5.0) -> None:
        self._store, self._queue, self._patience = store, queue, patience
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()

    async def current(self, sid: str) -> Loaded:
        """The session as every acknowledged observe left it, whichever worker served it"""
        lane = self._lanes.get(sid)
        found = await self._store.load(sid, lane.loaded if lane else None)
        lane = self._lane(sid)
        if lane.loaded is None or found.revision >= lane.loaded.revision:  # a commit may have been faster
            lane.loaded = found
        return found

    def spec(self, sid: str) -> Spec | None:
        """What is known here of a session without asking the store: its dimension, curvature and labels never change"""
        lane = self._lanes.get(sid)
        return lane.loaded.spec if lane and lane.loaded else None

    async def observe(self, sid: str, request: Request) -> Answer:
        """Learn a batch, exactly once; returns when it is stored."""
        lane = self._lane(sid)
        while request.key is not None and request.key in lane.underway:
            fingerprint, first = lane.underway[request.key]
            if fingerprint != request.fingerprint:
                raise KeyReused
            await asyncio.wait([first])
            if not first.cancelled() and first.exception() is None:
                return replace(first.result(), replayed=True)
        if len(lane.waiting) >= self._queue:
            raise RateLimited(f"{len(lane.waiting)} requests wait for this session already", waiting=len(lane.waiting))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        lane.waiting.append(_Waiting(request, answer))
        telemetry.queue.inc()
        if (key := request.key) is not None:
            lane.underway[key] = (request.fingerprint, answer)

        def settled(done: asyncio.Future[Answer]) -> None:
            if key is not None:
                lane.underway.pop(key, None)
            if not done.cancelled():
                done.exception()  # the caller may have left

        answer.add_done_callback(settled)
        if not lane.at_work:
            lane.busy = asyncio.create_task(self._drain(sid, lane))
        return await asyncio.shield(answer)

    def forget(self, sid: str) -> None:
        self._lanes.pop(sid, None)

    # ------------------------------------------------------------------------------ the lane

    def _lane(self, sid: str) -> _Lane:
        lane = self._lanes.get(sid)
        if lane is None:
            lane = self._lanes[sid] = _Lane()
            while len(self._lanes) > LANES:
                idle = next((s for s, each in self._lanes.items() if each is not lane and not each.at_work), None)
                if idle is None:
                    break
                del self._lanes[idle]
        else:
            self._lanes.move_to_end(sid)
        return lane

    async def _drain(self, sid: str, lane: _Lane) -> None:
        while lane.waiting:
            pending, points = [], 0
            while lane.waiting and points < GATHER:
                pending.append(lane.waiting.popleft())
                points += pending[-1].request.size
            try:
                await self._settle(sid, lane, pending)
            except (HorocycleError, RedisError) as error:
                lane.loaded = None
                for each in pending:
                    if not each.answer.done():
                        each.answer.set_exception(error)
            finally:  # whatever happens, nobody is left waiting
                telemetry.queue.dec(len(pending))
                for each in pending:
                    each.answer.cancel()

    async def _settle(self, sid: str, lane: _Lane, pending: list[_Waiting]) -> None:
        """Learn and commit until every request has its answer."""
        fresh = False
        while pending:
            late = [id for each in pending for id in each.request.ids]
            if lane.loaded is None or (late and not fresh):  # an id may have been learned elsewhere: look anew
                lane.loaded, fresh = await self._store.load(sid, lane.loaded), True
            loaded = lane.loaded
            fates = dict(zip(late, await self._store.waiting(sid, late), strict=True)) if late else {}
            jobs, learned_ids = _jobs(loaded.spec, pending, fates)
            learned = await self._learn(loaded, jobs)
            stale = [(w, r) for w, r in zip(pending, learned.results, strict=True) if isinstance(r, StaleModel)]
            answers = [(w, r) for w, r in zip(pending, learned.results, strict=True) if isinstance(r, Answer)]
            if stale and not fresh:  # refuse nobody on the word of an old state
                lane.loaded, fresh = await self._store.load(sid, loaded), True
                if lane.loaded is not loaded:
                    continue
            keyed = [(w, a.pack(w.request.fingerprint)) for w, a in answers if w.request.key is not None]
            change = learned.change
            if keyed or learned_ids:
                named = [(w.request.key, packed) for w, packed in keyed if w.request.key is not None]
                change = replace(change, learned_ids=learned_ids, answers=named)
            needed = keyed or any(answer.accepted for _, answer in answers)
            result = await self.commit(loaded, change) if needed else None
            if isinstance(result, Committed):
                lane.loaded = self._after(loaded, change)
            if result is None or isinstance(result, Committed):
                for each, answer in answers:
                    _answer(each, answer)
                for each, refusal in stale:
                    await self._refuse(sid, each, refusal)
                return
            lane.loaded, fresh = None, False
            if isinstance(result, Replayed):
                for position, stored in result.answers.items():
                    _replay(keyed[position][0], stored)
                pending = [each for each in pending if not each.answer.done()]

    async def _learn(self, loaded: Loaded, jobs: list[Job]) -> Learned:
        points = sum(len(job.batch.X) for job in jobs)
        warm = loaded.status == "warming" and loaded.counters.observed + points >= loaded.spec.warmup
        kept = await self._store.points(loaded.spec.id) if warm else b""
        if points < THREAD and not warm:
            return learn(loaded, jobs)
        return await asyncio.to_thread(learn, loaded, jobs, kept)

    async def _refuse(self, sid: str, waiting: _Waiting, refusal: StaleModel) -> None:
        """412, unless this very request was answered before"""
        key = waiting.request.key
        stored = None if key is None else await self._store.answer(sid, key)
        if stored is not None:
            _replay(waiting, stored)
        elif not waiting.answer.done():
            waiting.answer.set_exception(refusal)

    # ---------------------------------------------------------------------------- the commit

    async def change(
        self, sid: str, how: Callable[[Loaded], Change], key: str | None = None, fingerprint: bytes = b""
    ) -> Loaded:
        """Change a session other than by observing: as if nobody else did anything at that moment; with a key, once"""
        while True:
            loaded = await self.current(sid)
            change = how(loaded)
            if key is not None:
                change = replace(change, answers=[(key, fingerprint)])
            result = await self.commit(loaded, change)
            if isinstance(result, Replayed):
                if result.answers[0] != fingerprint:
                    raise KeyReused
                return await self.current(sid)
            if isinstance(result, Committed):
                after = self._after(loaded, change)
                self._lane(sid).loaded = after
                return after

    async def commit(self, loaded: Loaded, change: Change) -> Committed | Replayed | Conflict:
        """Commit; when only the reply may have been lost, ask again with the same id: the script knows it."""
        commit_id, began = os.urandom(16), time.monotonic()
        sent, pause, until = False, 0.02, began + self._patience
        while True:
            try:
                result = await self._store.commit(loaded, commit_id, change)
            except OutcomeUnknown:
                sent = True
            except StoreUnavailable:
                if not sent:
                    raise
            else:
                if sent and isinstance(result, Conflict) and result.distant:
                    raise OutcomeUnknown
                _count(loaded, change, result, time.monotonic() - began)
                return result
            if time.monotonic() + pause >= until:
                raise OutcomeUnknown
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _after(self, loaded: Loaded, change: Change) -> Loaded:
        spec = change.spec or loaded.spec
        return Loaded(spec, loaded.revision + 1, change.counters, change.state, change.status, change.tally)


def _count(loaded: Loaded, change: Change, result: Committed | Replayed | Conflict, seconds: float) -> None:
    if isinstance(result, Committed):
        telemetry.commits.inc()
        telemetry.commit_seconds.observe(seconds)
        telemetry.points.inc(change.counters.observed - loaded.counters.observed)
        telemetry.mistakes.inc(change.counters.mistakes - loaded.counters.mistakes)
    elif isinstance(result, Conflict):
        telemetry.conflicts.inc()


def _jobs(spec: Spec, pending: list[_Waiting], fates: dict[str, Waiting]) -> tuple[list[Job], list[str]]:
    """The points of each request; those of late labels are taken from under their ids, each once."""
    jobs, taken = [], {id: fate for id, fate in fates.items()}
    learned: list[str] = []
    for request in (each.request for each in pending):
        batch, letters = request.batch, b""
        if request.indices is not None:
            letters = b"".join(_LETTERS[taken[id].status] for id in request.ids)
            good = np.frombuffer(letters, dtype="S1") == b"A"
            points = b"".join(taken[id].point for id in request.ids if taken[id].status == "waiting")
            batch = Batch(np.frombuffer(points, dtype="<f8").reshape(-1, spec.dimension), request.indices[good])
            learned += [id for id in request.ids if taken[id].status == "waiting"]
            taken |= {id: Waiting("learned") for id in request.ids if taken[id].status == "waiting"}
        jobs.append(Job(batch, request.if_match, request.columns, letters))
    return jobs, learned


#: What became of an id, as an answer keeps it.
_LETTERS = {"waiting": b"A", "unknown": b"U", "expired": b"E", "learned": b"L"}


def _answer(waiting: _Waiting, answer: Answer) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)


def _replay(waiting: _Waiting, stored: bytes) -> None:
    try:
        _answer(waiting, Answer.unpack(stored, waiting.request.fingerprint))
    except KeyReused as error:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
