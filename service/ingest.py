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
import struct
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from redis.exceptions import RedisError

from service.errors import HorocycleError, KeyReused, OutcomeUnknown, RateLimited, StaleModel, StoreUnavailable
from service.geometry import Array
from service.learners.contract import Outcome
from service.session import Spec, published
from service.store import Committed, Conflict, Counters, Loaded, Replayed, Store
from service.wire import Batch

#: How many points one commit carries at the most, and from how many on the learner leaves the event loop.
GATHER, THREAD = 200_000, 20_000
#: How many points of a commit its event shows.
SAMPLE = 16
#: How many sessions a worker keeps decoded.
LANES = 1024


@dataclass(frozen=True)
class Request:
    """One observe."""

    batch: Batch
    fingerprint: bytes  # of the body
    key: str | None = None
    if_match: int | None = None
    columns: bool = True  # whether the answer has them


@dataclass(frozen=True)
class Answer:
    """What one observe did: the scores before learning each point, and the session after the last."""

    scores: Array | None
    accepted: int
    mistakes: int
    counters: Counters
    replayed: bool = False

    _HEADER = struct.Struct("<16sQQQQQQQ")

    def pack(self, fingerprint: bytes) -> bytes:
        """As it is stored under the idempotency key"""
        c, scores = self.counters, b"" if self.scores is None else self.scores.tobytes()
        columns = 0 if self.scores is None else self.scores.shape[1] if self.scores.ndim == 2 else 1
        head = (self.accepted, self.mistakes, c.observed, c.mistakes, c.updates, c.version, columns)
        return self._HEADER.pack(fingerprint, *head) + scores

    @classmethod
    def unpack(cls, stored: bytes, fingerprint: bytes) -> Answer:
        """The stored answer, if it was given to the same body"""
        was, accepted, mistakes, observed, total, updates, version, columns = cls._HEADER.unpack_from(stored)
        if was != fingerprint:
            raise KeyReused
        scores = np.frombuffer(stored, dtype="<f8", offset=cls._HEADER.size) if columns else None
        if scores is not None and columns > 1:
            scores = scores.reshape(-1, columns)
        return cls(scores, accepted, mistakes, Counters(observed, total, updates, version), replayed=True)


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


@dataclass(frozen=True)
class _Learned:
    """What a run of requests came to: the state behind the last, an answer or a refusal for each."""

    state: Any
    counters: Counters
    answers: list[tuple[_Waiting, Answer]]
    stale: list[tuple[_Waiting, StaleModel]]
    X: Array
    indices: NDArray[np.int64]
    decided: NDArray[np.int64]


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
        """What is known here of a session without asking the store; a spec never changes"""
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
            raise RateLimited(len(lane.waiting))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        lane.waiting.append(_Waiting(request, answer))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may have left
        if (key := request.key) is not None:
            lane.underway[key] = (request.fingerprint, answer)
            answer.add_done_callback(lambda _: lane.underway.pop(key, None))
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
                points += len(pending[-1].request.batch.X)
            try:
                await self._settle(sid, lane, pending)
            except (HorocycleError, RedisError) as error:
                lane.loaded = None
                for each in pending:
                    if not each.answer.done():
                        each.answer.set_exception(error)
            finally:  # whatever happens, nobody is left waiting
                for each in pending:
                    each.answer.cancel()

    async def _settle(self, sid: str, lane: _Lane, pending: list[_Waiting]) -> None:
        """Learn and commit until every request has its answer."""
        fresh = False
        while pending:
            if lane.loaded is None:
                lane.loaded, fresh = await self._store.load(sid), True
            loaded = lane.loaded
            learned = await _learn(loaded, pending)
            if learned.stale and not fresh:  # refuse nobody on the word of an old state
                lane.loaded, fresh = await self._store.load(sid, loaded), True
                if lane.loaded is not loaded:
                    continue
            result = await self._commit(loaded, learned) if learned.answers else None
            if isinstance(result, Committed):
                lane.loaded = Loaded(loaded.spec, loaded.revision + 1, learned.counters, learned.state)
                for each, answer in learned.answers:
                    _answer(each, answer)
            if result is None or isinstance(result, Committed):
                for each, refusal in learned.stale:
                    await self._refuse(sid, each, refusal)
                return
            lane.loaded, fresh = None, False
            if isinstance(result, Replayed):
                keyed = [each for each, _ in learned.answers if each.request.key is not None]
                for position, stored in result.answers.items():
                    _replay(keyed[position], stored)
                pending = [each for each in pending if not each.answer.done()]

    async def _refuse(self, sid: str, waiting: _Waiting, refusal: StaleModel) -> None:
        """412, unless this very request was answered before"""
        key = waiting.request.key
        stored = None if key is None else await self._store.answer(sid, key)
        if stored is not None:
            _replay(waiting, stored)
        elif not waiting.answer.done():
            waiting.answer.set_exception(refusal)

    async def _commit(self, loaded: Loaded, learned: _Learned) -> Committed | Replayed | Conflict:
        """Commit; when only the reply may have been lost, ask again with the same id: the script knows it."""
        spec, commit_id = loaded.spec, os.urandom(16)
        rows = min(len(learned.X), spec.keep_points)
        newest = slice(len(learned.X) - rows, None)
        block = np.column_stack([learned.X[newest], learned.indices[newest]]).tobytes() if rows else b""
        event = _event(loaded, learned)
        answers = [
            (each.request.key, answer.pack(each.request.fingerprint))
            for each, answer in learned.answers
            if each.request.key is not None
        ]
        sent, pause, until = False, 0.02, time.monotonic() + self._patience
        while True:
            try:
                result = await self._store.commit(
                    loaded,
                    commit_id,
                    state=learned.state,
                    counters=learned.counters,
                    event=event,
                    block=block,
                    rows=rows,
                    answers=answers,
                )
            except OutcomeUnknown:
                sent = True
            except StoreUnavailable:
                if not sent:
                    raise
            else:
                if sent and isinstance(result, Conflict) and result.distant:
                    raise OutcomeUnknown
                return result
            if time.monotonic() + pause >= until:
                raise OutcomeUnknown
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.5)


async def _learn(loaded: Loaded, pending: list[_Waiting]) -> _Learned:
    """Each request in turn. Those without If-Match that stand together are learned in one call."""
    spec, state, counters = loaded.spec, loaded.state, loaded.counters
    answers: list[tuple[_Waiting, Answer]] = []
    stale: list[tuple[_Waiting, StaleModel]] = []
    taken: list[tuple[Array, NDArray[np.int64], NDArray[np.int64]]] = []
    at = 0
    while at < len(pending):
        matched = pending[at].request.if_match
        if matched is not None and matched != counters.version:
            stale.append((pending[at], StaleModel(counters.version)))
            at += 1
            continue
        end = at + 1
        while matched is None and end < len(pending) and pending[end].request.if_match is None:
            end += 1
        run = pending[at:end]
        X = np.concatenate([each.request.batch.X for each in run]) if len(run) > 1 else run[0].request.batch.X
        indices = np.concatenate([each.request.batch.indices for each in run])
        outcome = await _observe(spec, state, X, spec.targets(indices), matched is not None)
        X, indices, decided = X[: outcome.accepted], indices[: outcome.accepted], spec.decide(outcome.scores)
        wrong = decided != indices
        updated = wrong if spec.binary else outcome.changed
        start = 0
        for each in run:
            stop = min(start + len(each.request.batch.X), outcome.accepted)
            mistakes = int(np.count_nonzero(wrong[start:stop]))
            counters = Counters(
                counters.observed + stop - start,
                counters.mistakes + mistakes,
                counters.updates + int(np.count_nonzero(updated[start:stop])),
                counters.version + int(np.count_nonzero(outcome.changed[start:stop])),
            )
            scores = outcome.scores[start:stop] if each.request.columns else None
            answers.append((each, Answer(scores, stop - start, mistakes, counters)))
            start = stop
        taken.append((X, indices, decided))
        state, at = outcome.state, end
    columns = (
        [np.concatenate(part) for part in zip(*taken, strict=True)] if taken else [np.empty((0, spec.dimension))] * 3
    )
    return _Learned(state, counters, answers, stale, *columns)


async def _observe(spec: Spec, state: Any, X: Array, y: NDArray[Any], until_change: bool) -> Outcome[Any]:
    if len(X) < THREAD:
        return spec.learner.observe(state, X, y, until_change=until_change)
    return await asyncio.to_thread(spec.learner.observe, state, X, y, until_change=until_change)


def _event(loaded: Loaded, learned: _Learned) -> bytes:
    """Where the stream is now, the new weights if they changed, and a sample of the points"""
    spec, counters, some = loaded.spec, learned.counters, slice(None, SAMPLE)
    event: dict[str, Any] = {
        "from": loaded.counters.observed,
        "observed": counters.observed,
        "mistakes": counters.mistakes,
        "updates": counters.updates,
        "version": counters.version,
        "requests": [
            {"if_match": each.request.if_match, "accepted": a.accepted, "version": a.counters.version}
            for each, a in learned.answers
            if each.request.if_match is not None
        ],
        "points": learned.X[some].tolist(),
        "labels": _list(spec.named(learned.indices[some])),
        "predictions": _list(spec.named(learned.decided[some])),
    }
    if counters.version != loaded.counters.version:
        event["weights"] = published(spec, learned.state)["weights"]
    return orjson.dumps(event)


def _list(values: Any) -> list[Any]:
    return values if isinstance(values, list) else values.tolist()


def _answer(waiting: _Waiting, answer: Answer) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)


def _replay(waiting: _Waiting, stored: bytes) -> None:
    try:
        _answer(waiting, Answer.unpack(stored, waiting.request.fingerprint))
    except KeyReused as error:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
