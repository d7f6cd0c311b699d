"""Group commit: requests that wait for a session are gathered, applied in order, committed in one round trip, answered.

Per worker and session there is one lane. Whatever arrives while a commit is on its way waits for the next: under load
a commit carries many requests, alone a request carries its own. The session is kept decoded between commits, an
optimistic cache: the commit compares revisions and says whether it was still current. If another worker was first,
everything is applied again to the newer session. Nothing is answered before it is stored.

Clients that wait for each answer come back together: after a commit of k requests the next waits until there are k
again, for GATHER_SECONDS at the most. Who is alone waits for nobody.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, overload

from redis.exceptions import RedisError

from service import telemetry
from service.errors import (
    HorocycleError,
    KeyReused,
    NotPlain,
    OutcomeUnknown,
    RateLimited,
    SessionReplaying,
    StaleModel,
    StoreUnavailable,
    UnknownLabel,
)
from service.sessions.apply import apply, stored_answer
from service.sessions.apply import stored as kept_answer
from service.sessions.beginnings import Past, needs_past
from service.sessions.late import looked_up
from service.sessions.producers import advanced, connected, out_of_turn
from service.sessions.records import Change, Loaded, Status
from service.sessions.requests import Answer, Request, Unread, message_key
from service.sessions.spec import Spec
from service.store.late_labels import LateLabels
from service.store.log import Log
from service.store.refits import Refits
from service.store.sessions import Committed, Conflict, Replayed, Store, commit_name

#: How many points one commit carries at the most (of K > 2 classes: scores), and bytes of learners that they pass
#: through from which on the learner leaves the event loop.
GATHER, THREAD = 200_000, 8 << 20
#: Bytes of bodies that are read together on the event loop: a millisecond's work or two.
BODIES = 2 << 20
#: Ids of late labels that are resolved on the event loop.
FEW = 1000
#: Bytes of a stored answer and numbers of its request from which on it is read in another thread.
LARGE = 1 << 15
#: How long a commit waits for those that the last one answered.
GATHER_SECONDS = 0.002
#: How many sessions a worker keeps decoded, and bytes of large learners, which have at least LARGE_LEARNER each.
LANES, LEARNERS, LARGE_LEARNER = 1024, 512 << 20, 1 << 20
WRITABLE = (Status.WARMING, Status.LIVE)


class Waiter(Protocol):
    """Who is told what became of a request: a future; or whoever needs no task to be woken (process/exchange.py)"""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...
    def exception(self) -> BaseException | None: ...
    def cancel(self) -> bool: ...


#: A request and who waits for its answer; of a numbered message for the reply, as it is sent and kept
Pending = tuple[Request, Waiter]
Arrived = tuple[Request | Unread, Waiter]

Results = Sequence[Answer | HorocycleError]
Stored = dict[int, tuple[str, bytes]]  # place of a request → the key that its answer is kept under, and the answer


class Replaced(Exception):
    """A message, or entries of a stream, are not the next of their producer: another has taken over, or one failed"""


class _First:
    """The first request with a key, while it is under way: who sends the same key meanwhile waits for it"""

    __slots__ = ("_key", "_underway", "_waiter", "fingerprint", "others")

    def __init__(self, underway: dict[str, _First], key: str, fingerprint: bytes, waiter: Waiter) -> None:
        self._underway, self._key, self.fingerprint, self._waiter = underway, key, fingerprint, waiter
        self.others = list[_Second]()

    def done(self) -> bool:
        return self._underway.get(self._key) is not self

    def set_result(self, result: Any) -> None:
        for waiter in self._settled():
            waiter.set_result(result)

    def set_exception(self, error: Exception) -> None:
        for waiter in self._settled():
            _fail(waiter, error)

    def exception(self) -> None:
        """Those that wait have looked at it"""

    def cancel(self) -> bool:
        return not self.done() and any([waiter.cancel() for waiter in self._settled()])

    def _settled(self) -> list[Waiter]:
        """Those that still wait"""
        del self._underway[self._key]
        return [waiter for waiter in (self._waiter, *self.others) if not waiter.done()]


class _Second(NamedTuple):
    """The same key again while the first is under way: gets its answer, or its own turn if there is none"""

    waiter: Waiter
    observe: Callable[[], Any]

    def done(self) -> bool:
        return self.waiter.done()

    def set_result(self, result: Answer) -> None:
        self.waiter.set_result(replace(result, replayed=True))

    def set_exception(self, error: Exception) -> None:
        self._take_turn()

    def exception(self) -> None:
        """That one was not for it"""

    def cancel(self) -> bool:
        self._take_turn()
        return False

    def _take_turn(self) -> None:
        try:
            self.observe()
        except HorocycleError as refusal:
            _fail(self.waiter, refusal)


@dataclass
class _Lane:
    """The queue before one session."""

    waiting: deque[Arrived] = field(default_factory=deque)
    loaded: Loaded | None = None
    busy: asyncio.Task[None] | None = None  # while it commits
    underway: dict[str, _First] = field(default_factory=dict)
    together: int = 1  # requests of the newest commit
    patient: float = 0.0  # until when the next waits for as many, in the loop's time
    timer: asyncio.TimerHandle | None = None  # while a commit waits for as many again

    @property
    def is_idle(self) -> bool:
        return self.busy is None and not self.waiting


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
        if found.learner_bytes >= LARGE_LEARNER:
            self._bound_memory(sid)
        return found

    def spec(self, sid: str) -> Spec | None:
        """What is known here of a session without asking the store: its dimension, curvature and labels never change"""
        lane = self._lanes.get(sid)
        return lane.loaded.spec if lane and lane.loaded else None

    def known(self, sid: str) -> Loaded | None:
        """The session as it was last seen here: another worker may have changed it since"""
        lane = self._lanes.get(sid)
        return lane.loaded if lane else None

    @overload
    def observe(self, sid: str, request: Request | Unread) -> asyncio.Future[Answer]: ...
    @overload
    def observe(self, sid: str, request: Request | Unread, waiter: Waiter) -> Waiter: ...

    def observe(self, sid: str, request: Request | Unread, waiter: Waiter | None = None) -> Any:
        """Learn a batch, exactly once; the answer comes when it is stored, to whoever waits: a future unless another is
        given. Who stops waiting stops nothing else. NotPlain: an unread body has to be read first"""
        if (lane := self._lanes.get(sid)) is None:
            lane = self._lane(sid)
        else:
            self._lanes.move_to_end(sid)
        waiter, key = waiter or asyncio.get_running_loop().create_future(), request.key
        pending: Arrived = (request, waiter)
        if key is not None:
            if (first := lane.underway.get(key)) is not None:
                if first.fingerprint != request.fingerprint:
                    raise KeyReused
                first.others.append(_Second(waiter, partial(self.observe, sid, request, waiter)))
                return waiter
            pending = (request, _First(lane.underway, key, request.fingerprint, waiter))
        if request.numbered is None and len(lane.waiting) >= self._queue:  # a stream has its window instead
            raise RateLimited(f"{len(lane.waiting)} requests wait for this session already", waiting=len(lane.waiting))
        if key is not None:
            lane.underway[key] = cast(_First, pending[1])
        lane.waiting.append(pending)
        telemetry.queue.value += 1
        if lane.busy is None:
            if len(lane.waiting) >= lane.together:
                lane.busy = asyncio.create_task(self._drain(sid, lane))
            elif lane.timer is None:
                self._wait(sid, lane)
        return waiter

    async def connect(self, sid: str, producer: str, connection: int | None = None) -> Loaded:
        """A new connection of a producer: nothing that an earlier one still sends is applied from now on.
        EarlierConnection: its number is not above the newest"""
        tried = False  # it leaves no entry: when its reply was lost, only its number tells whether it is there

        def take_over(before: Loaded) -> Change:
            nonlocal tried
            if tried and producer in before.producers and before.producers[producer].connection == connection:
                return Change(before)
            tried = True
            producers = connected(before.producers, producer, int(time.time()), connection)
            return Change(replace(before, producers=producers))

        return await self.change(sid, take_over)

    async def reply(self, sid: str, producer: str, seq: int) -> bytes | None:
        """What a message was answered with, while that is kept"""
        return await self._store.answer(sid, message_key(producer, seq))

    def forget(self, sid: str) -> None:
        self._lanes.pop(sid, None)

    # ------------------------------------------------------------------------------ the lane

    def _lane(self, sid: str) -> _Lane:
        if (lane := self._lanes.get(sid)) is not None:
            return lane
        lane = self._lanes[sid] = _Lane()
        if len(self._lanes) > LANES:
            idle = next((s for s, each in self._lanes.items() if each is not lane and each.is_idle), None)
            if idle is not None:
                del self._lanes[idle]
        return lane

    def _bound_memory(self, sid: str) -> None:
        """Forget other sessions that are idle, those first that were not observed for longest, while large learners are
        too many"""
        large = {
            other: each.loaded.learner_bytes
            for other, each in self._lanes.items()
            if each.loaded is not None and each.loaded.learner_bytes >= LARGE_LEARNER
        }
        total = sum(large.values())
        for other, size in large.items():
            if total > LEARNERS and other != sid and self._lanes[other].is_idle:
                del self._lanes[other]
                total -= size

    def _wait(self, sid: str, lane: _Lane) -> None:
        """Until there are as many requests as the last commit had, unless that is too long ago"""
        loop = asyncio.get_running_loop()
        if loop.time() < lane.patient:
            lane.timer = loop.call_at(lane.patient, self._wait, sid, lane)
        elif lane.busy is None:
            lane.busy = asyncio.create_task(self._drain(sid, lane))

    async def _drain(self, sid: str, lane: _Lane) -> None:
        """One commit"""
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        pending: list[Arrived] = []
        points, each = 0, lane.loaded.spec.columns if lane.loaded else 1
        while lane.waiting and points < GATHER:
            pending.append(lane.waiting.popleft())
            request = pending[-1][0]
            n = (
                len(request.body) >> 4
                if isinstance(request, Unread)
                else len(request.ids) or len(request.batch.indices)
            )
            points += each * n
        together = len(pending)
        try:
            await self._settle(sid, lane, pending)
        except (HorocycleError, RedisError) as error:
            lane.loaded = None
            for _, answer in pending:
                _fail(answer, error)
        finally:  # whatever happens, also a MemoryError: no caller is left waiting
            telemetry.queue.value -= together
            unforeseen = sys.exception()
            for _, answer in pending:
                if isinstance(unforeseen, Exception):
                    lane.loaded = None
                    _fail(answer, unforeseen)
                answer.cancel()
            lane.busy, lane.together = None, together
            if lane.loaded is not None and lane.loaded.learner_bytes >= LARGE_LEARNER:
                self._bound_memory(sid)
            lane.patient = asyncio.get_running_loop().time() + GATHER_SECONDS
            if lane.waiting and len(lane.waiting) < together:
                self._wait(sid, lane)
            elif lane.waiting:
                lane.busy = asyncio.create_task(self._drain(sid, lane))

    async def _settle(self, sid: str, lane: _Lane, arrived: list[Arrived]) -> None:
        """Apply and commit until every request has its answer."""
        fresh = lane.loaded is None  # whether the session was loaded for these requests
        if lane.loaded is None:
            lane.loaded = await self._store.load(sid)
        pending = await _read(lane.loaded.spec, arrived)
        if not fresh and any([isinstance(request.refused, UnknownLabel) for request, _ in pending]):
            lane.loaded, fresh = await self._store.load(sid, lane.loaded), True  # another worker may have added it
            pending = await _read(lane.loaded.spec, arrived)
        while pending:
            late = [id for request, _ in pending for id in request.ids]
            if lane.loaded is None or (late and not fresh):  # another worker may have learned an id meanwhile
                lane.loaded, fresh = await self._store.load(sid, lane.loaded), True
            before = lane.loaded
            if before.status not in WRITABLE:
                raise SessionReplaying(sid, before.status)
            requests = [request for request, _ in pending]
            learned_ids: list[str] = []
            marked = any([r.key is not None or r.numbered is not None or r.consumed is not None for r in requests])
            if marked and (early := out_of_turn(before.producers, requests)):
                if fresh:
                    for place in early:
                        _fail(pending[place][1], Replaced())
                    pending = [each for each in pending if not each[1].done()]
                else:
                    lane.loaded, fresh = await self._store.load(sid, before), True
                continue
            if late:
                how = (before.spec, requests, late, await self._late.look(sid, late))
                requests, learned_ids = await asyncio.to_thread(looked_up, *how) if len(late) > FEW else looked_up(*how)
            results, change = await self._apply(before, requests)
            stale = [result for result in results if isinstance(result, StaleModel)]
            if stale and not fresh:  # the cached session may be out of date: reload once before answering 412
                lane.loaded, fresh = await self._store.load(sid, before), True
                if lane.loaded is not before:
                    continue
            stored = _stored(before, requests, results) if marked else {}
            if marked or learned_ids:
                producers = advanced(before.producers, requests, int(time.time()))
                after = replace(change.after, producers=producers)
                change = replace(change, after=after, answers=list(stored.values()), learned_ids=learned_ids)
            if change.entry is None and not stored:
                if late:  # ids are unknown also if the session has expired since it was loaded, and no commit says so
                    await self._store.load(sid, before)
                await self._answer(sid, pending, results, stored)
                return
            result = await commit(self._store, before, change, self._patience)
            if isinstance(result, Committed):
                lane.loaded = result.after
                await self._answer(sid, pending, results, stored)
                if result.after.spec.refit:
                    await self._refits.ask(before, result.after)
                return
            lane.loaded, fresh = None, False
            if isinstance(result, Replayed):
                places = list(stored)
                for position, found in result.answers.items():
                    await _replay(*pending[places[position]], found)
                pending = [each for each in pending if not each[1].done()]

    async def _apply(self, before: Loaded, requests: list[Request]) -> tuple[Results, Change]:
        if any([request.refused is not None for request in requests]):
            found, change = await self._apply(before, [request for request in requests if request.refused is None])
            learned = iter(found)
            return [request.refused or next(learned) for request in requests], change
        points = sum([len(request.batch.indices) for request in requests])
        if (before.spec.warmup or before.spec.refit) and needs_past(before, points):
            past = Past(await self._log.retained(before), await self._refits.weights(before, points))
            return await asyncio.to_thread(apply, before, requests, past)
        if points * max(before.learner_bytes, before.spec.row_bytes, 400) < THREAD:
            return apply(before, requests)
        return await asyncio.to_thread(apply, before, requests)

    async def _answer(self, sid: str, pending: list[Pending], results: Results, stored: Stored) -> None:
        for place, ((request, answer), result) in enumerate(zip(pending, results, strict=True)):
            if isinstance(result, Answer) or request.numbered is not None:
                if not answer.done():
                    answer.set_result(result if request.numbered is None else stored[place][1])
                continue
            # 412, unless this very request was answered before
            found = None if request.key is None else await self._store.answer(sid, request.key)
            if found is not None:
                await _replay(request, answer, found)
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
    doubt: OutcomeUnknown | None = None  # what was last heard of it, once it may have been applied
    pause = 0.02
    while True:
        try:
            result = await store.commit(before, change, commit_id, again=doubt is not None)
        except OutcomeUnknown as error:
            doubt = error
        except StoreUnavailable:
            if doubt is None:
                raise
        else:
            if isinstance(result, Conflict) and result.ambiguous:
                raise OutcomeUnknown
            break
        if time.monotonic() + pause >= began + patience:
            raise doubt
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.5)
    if isinstance(result, Committed):
        seconds, now = time.monotonic() - began, result.after.counters
        telemetry.commits.value += 1
        telemetry.commit_seconds.buckets[bisect_left(telemetry.TIMES, seconds)] += 1
        telemetry.commit_seconds.sum += seconds
        telemetry.points.value += now.observed - before.counters.observed
        if change.entry is not None and change.entry.jumps:
            telemetry.jumps.value += change.entry.jumps
        telemetry.mistakes.value += now.mistakes - before.counters.mistakes
    elif isinstance(result, Conflict):
        telemetry.conflicts.value += 1
    return result


async def _read(spec: Spec, arrived: list[Arrived]) -> list[Pending]:
    """With the bodies read that were not; who sent one that is not plain is told so"""
    unread = [request for request, _ in arrived if type(request) is Unread]
    if not unread:
        return cast(list[Pending], arrived)
    together, pending = unread[0].together, list[Pending]()
    large = sum([len(request.body) for request in unread]) > BODIES
    read = iter(await asyncio.to_thread(together, spec, unread) if large else together(spec, unread))
    for request, waiter in arrived:
        found = next(read) if isinstance(request, Unread) else request
        if found is None:
            _fail(waiter, NotPlain())
        else:
            pending.append((found, waiter))
    return pending


def _stored(before: Loaded, requests: Sequence[Request], results: Results) -> Stored:
    """The answers of requests with idempotency keys and of numbered messages, as they are kept, by their places"""
    found: Stored = {}
    for place, (request, result) in enumerate(zip(requests, results, strict=True)):
        if request.numbered is not None:
            found[place] = request.numbered.key, request.numbered.reply(result)
        elif request.key is not None and isinstance(result, Answer):
            found[place] = request.key, kept_answer(before, place, request, result)
    return found


async def _replay(request: Request, answer: Waiter, kept: bytes) -> None:
    large = len(kept) + len(request.batch) * request.batch.X.shape[1] > LARGE
    try:
        if request.numbered is not None:
            found: Any = kept
        else:
            found = await asyncio.to_thread(stored_answer, request, kept) if large else stored_answer(request, kept)
    except KeyReused as error:
        _fail(answer, error)
    else:
        if not answer.done():
            answer.set_result(found)


def _fail(answer: Waiter, error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # the caller may have left: then nobody else would look
