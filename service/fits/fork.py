"""Replays the log of one session into another, a step at a time, under a lease."""

from __future__ import annotations

import asyncio
import logging

from service.errors import InvalidParameter, LogTrimmed, SessionGone, StateCorrupt, UnknownSession, described
from service.geometry import Array
from service.ingest import commit
from service.sessions import forking, rows
from service.sessions.beginnings import Past, needs_past
from service.sessions.opening import first_session
from service.sessions.records import Change, Entry, EntryId, Fork, Loaded, Status
from service.sessions.refit import asked_for, batch_weights, began, refits
from service.sessions.spec import Spec
from service.store.connection import Connection
from service.store.fork_queue import ForkQueue, Waiting
from service.store.log import Log
from service.store.sessions import Committed, Store

log = logging.getLogger(__name__)
#: Seconds until a fork that is not open yet is looked at again.
SOON = 0.1


class Forker:
    def __init__(self, connection: Connection) -> None:
        self._store, self._log, self._queue = Store(connection), Log(connection), ForkQueue(connection)
        self._deadline = connection.deadline

    async def open(self, source: Loaded, spec: Spec, at: int | None) -> Loaded:
        """A new session from another's log up to a position. First the queue, then the session: none is forgotten."""
        at, exact = source.counters.observed if at is None else at, forking.is_exact(source.spec, spec)
        if at > source.counters.observed:
            raise InvalidParameter("at", at, f"at most {source.counters.observed}, the points observed")
        id, start = await self._log.before(source, at) if exact else (EntryId(), first_session(spec))
        whole = source.counters.observed <= source.spec.keep_points and (await self._log.points(source, 0, 1))[0] == 0
        if not exact and at and not whole:
            raise LogTrimmed(0, await self._log.first_kept(source))
        begin = start.counters.observed
        _, data = await self._log.points(source, max(begin - spec.keep_points, 0), begin) if begin else (0, b"")
        fork = Fork(source.spec.id, at, begin, exact, str(id))
        await self._queue.submit(spec)
        return await self._store.open(forking.begun(start, spec, fork), rows.unpack(data, spec.dimension))

    async def work(self, fork: Waiting) -> None:
        """Replay it to its end"""
        try:
            await self._replay(fork)
        except SessionGone:  # it was ended, which is how a fork is cancelled
            pass
        except UnknownSession:  # it is queued before it is opened
            if not fork.is_forgotten:
                return await self._queue.look_again(fork, SOON)
        await self._queue.done(fork)

    async def _replay(self, fork: Waiting) -> None:
        loaded = await self._store.load(fork.session)
        while loaded.status == Status.REPLAYING and loaded.fork is not None:
            try:
                source = await self._source(loaded.fork)
                change = await self._step(forking.inner(loaded), source, loaded.fork)
            except (LogTrimmed, StateCorrupt) as error:
                log.warning("fork %s: %s", fork.session, error.detail)
                change = forking.failed(loaded, described(error))
            result = await commit(self._store, loaded, change, self._deadline)
            loaded = result.after if isinstance(result, Committed) else await self._store.load(fork.session)
            await self._queue.look_again(fork)

    async def _source(self, fork: Fork) -> Loaded:
        try:
            return await self._store.load(fork.session)
        except (SessionGone, UnknownSession):
            raise LogTrimmed(fork.first, fork.at) from None

    async def _step(self, before: Loaded, source: Loaded, fork: Fork) -> Change:
        if fork.exact:
            entries = await self._entries(before, source, fork)
            if entries:
                return await asyncio.to_thread(forking.replayed_exactly, before, entries)
        elif (start := before.counters.observed) < fork.at:
            stop = min(start + forking.step_size(before), fork.at)
            large = asked_for(before.spec, began(before.spec, before.tally), start, stop)
            stop = min([stop, *large])  # the points of a large refit are in the log before it takes effect
            first, data = await self._log.points(source, start, stop)
            if first != start:
                raise LogTrimmed(start, first)
            past = await self._past(before, stop - start) if needs_past(before, stop - start) else None
            return await asyncio.to_thread(forking.learned_anew, before, rows.unpack(data, before.spec.dimension), past)
        return forking.finished(before)

    async def _past(self, before: Loaded, points: int) -> Past:
        """What the learner may begin anew from. Large refits, which a session asks for as jobs, are fitted here"""
        spec, observed, weights = before.spec, before.counters.observed, dict[int, Array]()
        since = began(spec, before.tally)
        for each in refits(spec, since, observed, observed + points):
            if not each.small:
                _, data = await self._log.points(before, max(since, each.due - spec.keep_points), each.due)
                W = await asyncio.to_thread(batch_weights, spec, rows.unpack(data, spec.dimension))
                weights |= {} if W is None else {each.due: W}
        return Past(await self._log.retained(before), weights)

    async def _entries(self, before: Loaded, source: Loaded, fork: Fork) -> list[tuple[EntryId, Entry]]:
        """Those that follow in the source's log, as many as one step takes"""
        found, reached = list[tuple[EntryId, Entry]](), before.counters.observed
        async for id, entry in self._log.entries(source, EntryId.parse(fork.reached), fork.at):
            if entry.first != reached or (entry.points and entry.batch is None):
                raise LogTrimmed(reached, entry.first)
            if found and not entry.points:
                break  # a promotion, or a new estimate: a step of its own
            found.append((id, entry))
            reached += entry.points
            if forking.is_enough(before, found):
                break
        return found
