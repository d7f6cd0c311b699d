"""Group commit: requests that wait for a session are gathered, applied in order, committed in one round trip, answered.

Per worker and session there is one lane. Whatever arrives while a commit is on its way waits for the next: under load
a commit carries many requests, alone a request carries its own. The session is kept decoded between commits, an
optimistic cache: the commit compares revisions and says whether it was still current. If another worker was first,
everything is applied again to the newer session. Nothing is answered before it is stored.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from redis.exceptions import RedisError

from service import telemetry
from service.errors import (
    HorocycleError,
    KeyReused,
    OutcomeUnknown,
    RateLimited,
    SessionReplaying,
    StaleModel,
    StoreUnavailable,
)
from service.sessions.apply import Applied, apply
from service.sessions.beginnings import Past, needs_past
from service.sessions.late import resolved
from service.sessions.records import Change, Loaded, Status
from service.sessions.requests import Answer, Request
from service.sessions.spec import Spec
from service.store.late_labels import LateLabels
from service.store.log import Log
from service.store.refits import Refits
from service.store.sessions import Committed, Conflict, Replayed, Store, commit_name

#: How many points one commit carries at the most, and from how many on the learner leaves the event loop.
GATHER, THREAD = 200_000, 20_000
#: How many sessions a worker keeps decoded.
LANES = 1024
WRITABLE = (Status.WARMING, Status.LIVE)

Pending = tuple[Request, asyncio.Future[Answer]]


@dataclass
class _Lane:
    """The queue before one session."""

    waiting: deque[Pending] = field(default_factory=deque)
    loaded: Loaded | None = None
    busy: asyncio.Task[None] | None = None  # while it commits
    underway: dict[str, tuple[bytes, asyncio.Future[Answer]]] = field(default_factory=dict)


class Ingest:
    def __init__(
        self, store: Store, log: Log, late: LateLabels, refits: Refits, *, queue: int = 1024, patience: float = 5.0
    ) -> None:
        self._store, self._log, self._late, self._refits = store, log, late, refits
        self._queue, self._patience = queue, patience
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
        lane, key = self._lane(sid), request.key
        while key is not None and key in lane.underway:
            fingerprint, first = lane.underway[key]
            if fingerprint != request.fingerprint:
                raise KeyReused
            await asyncio.wait([first])
            if not first.cancelled() and first.exception() is None:
                return replace(first.result(), replayed=True)
        if len(lane.waiting) >= self._queue:
            raise RateLimited(f"{len(lane.waiting)} requests wait for this session already", waiting=len(lane.waiting))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        lane.waiting.append((request, answer))
        telemetry.queue.value += 1
        if key is not None:
            lane.underway[key] = (request.fingerprint, answer)
            answer.add_done_callback(lambda _: lane.underway.pop(key, None))
        if lane.busy is None:
            lane.busy = asyncio.create_task(self._drain(sid, lane))
        return await asyncio.shield(answer)

    def forget(self, sid: str) -> None:
        self._lanes.pop(sid, None)

    # ------------------------------------------------------------------------------ the lane

    def _lane(self, sid: str) -> _Lane:
        lane = self._lanes.get(sid)
        if lane is not None:
            self._lanes.move_to_end(sid)
            return lane
        lane = self._lanes[sid] = _Lane()
        if len(self._lanes) > LANES:
            idle = next((s for s, each in self._lanes.items() if each is not lane and each.busy is None), None)
            if idle is not None:
                del self._lanes[idle]
        return lane

    async def _drain(self, sid: str, lane: _Lane) -> None:
        try:
            while lane.waiting:
                pending, points = list[Pending](), 0
                while lane.waiting and points < GATHER:
                    pending.append(lane.waiting.popleft())
                    points += len(pending[-1][0].ids) or len(pending[-1][0].batch.X)
                try:
                    await self._settle(sid, lane, pending)
                except (HorocycleError, RedisError) as error:
                    lane.loaded = None
                    for _, answer in pending:
                        _fail(answer, error)
                finally:  # whatever happens, no caller is left waiting
                    telemetry.queue.value -= len(pending)
                    for _, answer in pending:
                        answer.cancel()
        finally:
            lane.busy = asyncio.create_task(self._drain(sid, lane)) if lane.waiting else None

    async def _settle(self, sid: str, lane: _Lane, pending: list[Pending]) -> None:
        """Apply and commit until every request has its answer."""
        fresh = False  # whether the session was loaded for these requests
        while pending:
            late = [id for request, _ in pending for id in request.ids]
            if lane.loaded is None or (late and not fresh):  # another worker may have learned an id meanwhile
                lane.loaded, fresh = await self._store.load(sid, lane.loaded), True
            before = lane.loaded
            if before.status not in WRITABLE:
                raise SessionReplaying(sid, before.status)
            requests, learned_ids = [request for request, _ in pending], list[str]()
            if late:
                fates = dict(zip(late, await self._late.look(sid, late), strict=True))
                requests, learned_ids = resolved(before.spec, requests, fates)
            applied = await self._apply(before, requests)
            stale = [r for r in applied.results if isinstance(r, StaleModel)]
            if stale and not fresh:  # the cached session may be out of date: reload once before answering 412
                lane.loaded, fresh = await self._store.load(sid, before), True
                if lane.loaded is not before:
                    continue
            keyed = [i for i, r in enumerate(requests) if r.key is not None and isinstance(applied.results[i], Answer)]
            change = applied.change
            if keyed or learned_ids:
                change = replace(change, answers=_packed(applied, requests, keyed), learned_ids=learned_ids)
            if change.entry is None and not keyed:
                await self._answer(sid, pending, applied)
                return
            result = await commit(self._store, before, change, self._patience)
            if isinstance(result, Committed):
                lane.loaded = result.after
                await self._answer(sid, pending, applied)
                if result.after.spec.refit:
                    await self._refits.ask(before, result.after)
                return
            lane.loaded, fresh = None, False
            if isinstance(result, Replayed):
                for position, stored in result.answers.items():
                    _replay(*pending[keyed[position]], stored)
                pending = [each for each in pending if not each[1].done()]

    async def _apply(self, before: Loaded, requests: list[Request]) -> Applied:
        points = sum([len(request.batch.X) for request in requests])
        if (before.spec.warmup or before.spec.refit) and needs_past(before, points):
            past = Past(await self._log.retained(before), await self._refits.weights(before, points))
            return await asyncio.to_thread(apply, before, requests, past)
        if points < THREAD:
            return apply(before, requests)
        return await asyncio.to_thread(apply, before, requests)

    async def _answer(self, sid: str, pending: list[Pending], applied: Applied) -> None:
        for (request, answer), result in zip(pending, applied.results, strict=True):
            if isinstance(result, Answer):
                if not answer.done():
                    answer.set_result(result)
                continue
            # 412, unless this very request was answered before
            stored = None if request.key is None else await self._store.answer(sid, request.key)
            if stored is not None:
                _replay(request, answer, stored)
            else:
                _fail(answer, result)

    # ---------------------------------------------------------------------------- the commit

    async def change(
        self, sid: str, how: Callable[[Loaded], Change], key: str | None = None, fingerprint: bytes = b""
    ) -> Loaded:
        """Change a session other than by observing, by optimistic retries; with a key, once"""
        while True:
            before = await self.current(sid)
            if before.status not in WRITABLE:
                raise SessionReplaying(sid, before.status)
            change = how(before)
            if key is not None:
                change = replace(change, answers=[(key, fingerprint)])
            result = await commit(self._store, before, change, self._patience)
            if isinstance(result, Replayed):
                if result.answers[0] != fingerprint:
                    raise KeyReused
                return await self.current(sid)
            if isinstance(result, Committed):
                self._lane(sid).loaded = result.after
                return result.after


async def commit(store: Store, before: Loaded, change: Change, patience: float) -> Committed | Replayed | Conflict:
    """Commit; when only the reply may have been lost, send it again with the same id, which the script knows."""
    commit_id, began = commit_name(), time.monotonic()
    sent, pause = False, 0.02
    while True:
        try:
            result = await store.commit(before, change, commit_id, again=sent)
        except OutcomeUnknown:
            sent = True
        except StoreUnavailable:
            if not sent:
                raise
        else:
            if isinstance(result, Conflict) and result.ambiguous:
                raise OutcomeUnknown
            _count(before, result, time.monotonic() - began)
            return result
        if time.monotonic() + pause >= began + patience:
            raise OutcomeUnknown
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.5)


def _count(before: Loaded, result: Committed | Replayed | Conflict, seconds: float) -> None:
    if isinstance(result, Committed):
        telemetry.commits.value += 1
        telemetry.commit_seconds.buckets[bisect_left(telemetry.TIMES, seconds)] += 1
        telemetry.commit_seconds.sum += seconds
        telemetry.points.value += result.after.counters.observed - before.counters.observed
        telemetry.mistakes.value += result.after.counters.mistakes - before.counters.mistakes
    elif isinstance(result, Conflict):
        telemetry.conflicts.value += 1


def _packed(applied: Applied, requests: list[Request], keyed: Iterable[int]) -> list[tuple[str, bytes]]:
    """The answers of requests with idempotency keys, as they are stored"""
    found = []
    for i in keyed:
        key, answer = requests[i].key, applied.results[i]
        assert key is not None and isinstance(answer, Answer)
        found.append((key, answer.pack(requests[i].fingerprint)))
    return found


def _replay(request: Request, answer: asyncio.Future[Answer], stored: bytes) -> None:
    try:
        found = Answer.unpack(stored, request.fingerprint)
    except KeyReused as error:
        _fail(answer, error)
    else:
        if not answer.done():
            answer.set_result(found)


def _fail(answer: asyncio.Future[Answer], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # the caller may have left: then nobody else would look
