"""One stream, consumed: every entry is learned exactly once, whatever is killed, stopped for a while, or takes over.

How far a session has come with the stream is part of its state, and written by the commit that learns the entries. That
commit says behind which entry its own stand, and is made only if the session stands there: so a second owner, or one
that was stopped and wakes up, changes nothing. Entries are sent to a session in the order of the stream, and the next
ones only after those before were settled, so there are no gaps.

How far all sessions have come is kept beside them, now and then: from there on the stream is read after a restart, and
what a session has learned already is left out. The lease saves work; nothing depends on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from service.consume.entries import Bad, Entry, has_unknown_label, id_number, id_text, read, session_of
from service.consume.source import Found, Place, Source, WentBack
from service.errors import (
    HorocycleError,
    OutcomeUnknown,
    RateLimited,
    SessionReplaying,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from service.ingest import Ingest, Replaced
from service.sessions.producers import moved, position
from service.sessions.records import Change, Loaded, Status
from service.sessions.requests import Consumed, Request
from service.sessions.rows import Batch
from service.sessions.tenants import inner
from service.store.codec import seal, unseal
from service.store.connection import Connection
from service.store.keys import consumed_key
from service.store.scripts import script

#: Nothing is wrong with an entry: what stands in its way is to go away by itself.
AWAY = (StoreUnavailable, StoreFull, StoreReadOnly, OutcomeUnknown, RateLimited)
#: Seconds between two tries, at first and at the most; and that an idle stream is waited for.
PAUSE, LONGEST, IDLE = 0.05, 2.0, 1.0

#: Set to the second value if it is the first, or is the second already.
KEEP = script(
    "local now = redis.call('GET', KEYS[1]) or '' "
    "return now == ARGV[2] or (now == ARGV[1] and redis.call('SET', KEYS[1], ARGV[2]))"
)

Result = TypeVar("Result")


class Ended(Exception):
    """It was told to end while something was away"""


@dataclass(frozen=True)
class Choices:
    """What the command line says"""

    session: str | None = None  # of entries that name none
    tenant: str = "default"
    batch: int = 1000  # entries that are read at once
    trim: bool = False
    drain: bool = False  # end when there is nothing more
    after_failover: bool = False  # go on though the stream went back
    behind: int | None = None  # begin there
    known_as: str = ""  # before the stream's name, where the store knows others of that name


@dataclass
class Counted:
    entries: int = 0
    dead: int = 0
    trimmed: int = 0


class Slots:
    """How many streams one process may own"""

    def __init__(self, most: int) -> None:
        self._free = most

    def take(self) -> bool:
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def give(self) -> None:
        self._free += 1


class Plan(NamedTuple):
    """What a session is to learn, or why it cannot"""

    sid: str
    entries: Sequence[Entry]
    batch: Batch | None = None  # None: there is nothing to commit
    consumed: Consumed | None = None
    bad: Sequence[Bad] = ()


class Consumer:
    def __init__(
        self,
        source: Source,
        store: Connection,
        ingest: Ingest,
        choices: Choices,
        tell: Callable[[str], None],
        slots: Slots,
    ) -> None:
        self._source, self._store, self._ingest, self._choices, self._tell = source, store, ingest, choices, tell
        self._slots = slots
        name = quote(f"{choices.known_as}/{source.name}" if choices.known_as else source.name, safe=":/")
        self._key, self._producer = consumed_key(name), f"stream/{name}"  # no producer of messages has a / in its name
        self._kept, self._told = b"", ""
        self.counted, self.ending = Counted(), asyncio.Event()

    async def run(self) -> None:
        """Until told to end, or drained. WentBack: the stream has lost what was consumed"""
        try:
            while not self.ending.is_set():
                if not self._slots.take():
                    await self._pause(self._source.lease / 3)
                    continue
                try:
                    owned = await self._patiently(self._source.own)
                    if owned:
                        await self._consume(await self._patiently(self._place))
                finally:
                    self._slots.give()
                if not owned:
                    await self._pause(self._source.lease / 3)
        except Ended:
            pass
        finally:
            with suppress(HorocycleError):
                await self._source.release()

    async def _consume(self, place: Place) -> None:
        """While the lease is this one's"""
        self._tell(f"owns {self._source.name}, and begins behind {id_text(place.id)}")
        renewing = asyncio.create_task(self._renew())
        try:
            while self._source.owned and not self.ending.is_set():
                found = await self._patiently(lambda at=place: self._found(at))  # type: ignore[misc]
                if found is None:
                    return
                if found.trimmed:
                    self.counted.trimmed += found.trimmed
                    self._tell(f"{found.trimmed} entries of {self._source.name} were removed before they were read")
                if found.entries:
                    await self._learn(found.entries)
                    if not await self._patiently(lambda at=found.place: self._keep(at)):  # type: ignore[misc]
                        return
                    self.counted.entries += len(found.entries)
                elif self._choices.drain:
                    self.ending.set()
                else:
                    await self._patiently(lambda at=place: self._source.wait(at, IDLE))  # type: ignore[misc]
                place = found.place
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._source.lease / 3)
            with suppress(*AWAY):
                if not await self._source.own():
                    return

    # ------------------------------------------------------------------------------------ how far it is

    async def _place(self) -> Place:
        self._kept = await self._store.call("GET", self._key) or b""
        if self._choices.behind is not None:
            behind, self._choices = self._choices.behind, replace(self._choices, behind=None)
            return Place(behind)
        if not self._kept:
            return Place()
        id, digest, count = unseal(self._key, self._kept).decode().split(" ")
        return Place(id_number(id), digest, int(count) if count else None)

    async def _keep(self, place: Place) -> bool:
        """That all sessions have come so far. False: another has kept another place since, and goes on from there"""
        text = f"{id_text(place.id)} {place.digest} {'' if place.read is None else place.read}"
        sealed = seal(self._key, text)
        if not await self._store.script(KEEP, [self._key], self._kept, sealed):
            return False
        self._kept = sealed
        if self._choices.trim:
            await self._source.trim(place)
        return True

    async def _found(self, place: Place) -> Found | None:
        """What comes behind a place; None: another has taken over meanwhile, and may have trimmed the stream"""
        try:
            found = await self._source.read(place, self._choices.batch)
            return None if found.trimmed and await self._overtaken() else found
        except WentBack as error:
            if await self._overtaken():
                return None
            self._accept(error)
            return await self._source.read(Place(place.id), self._choices.batch)

    async def _overtaken(self) -> bool:
        return not await self._source.own() or (await self._store.call("GET", self._key) or b"") != self._kept

    def _accept(self, error: WentBack) -> None:
        if not self._choices.after_failover:
            raise error
        self._say(f"{error}; it goes on behind that")

    # --------------------------------------------------------------------------------------- the entries

    async def _learn(self, entries: Sequence[Entry]) -> None:
        """All entries of a read, those of each session in one commit. Those that cannot be learned go first: once they
        count as consumed nobody looks at them again"""
        sessions, bad = dict[str, list[Entry]](), list[Bad]()
        for entry in entries:
            try:
                sid = inner(self._choices.tenant, session_of(entry, self._choices.session))
                sessions.setdefault(sid, []).append(entry)
            except HorocycleError as error:
                bad.append(Bad(entry, error))
        plans = await asyncio.gather(*(self._settled(self._plan, sid, each) for sid, each in sessions.items()))
        await self._bury([*bad, *(each for plan in plans for each in plan.bad)])
        todo = [plan for plan in plans if plan.batch is not None]
        late = await asyncio.gather(*(self._settled(self._commit, p.sid, p.entries, p) for p in todo))
        await self._bury([each for plan in late for each in plan.bad])

    async def _bury(self, bad: Sequence[Bad]) -> None:
        if bad:
            await self._patiently(lambda: self._source.bury(bad))
            self.counted.dead += len(bad)

    async def _settled(
        self,
        what: Callable[[str, Sequence[Entry], Plan | None], Awaitable[Plan]],
        sid: str,
        entries: Sequence[Entry],
        plan: Plan | None = None,
    ) -> Plan:
        """Done, or why the session takes none of them"""
        while True:
            try:
                return await self._patiently(lambda: what(sid, entries, plan))
            except SessionReplaying as error:
                if (await self._patiently(lambda: self._ingest.current(sid))).status == Status.FAILED:
                    return Plan(sid, entries, bad=[Bad(entry, error) for entry in entries])
                self._say(f"waits: {error.detail}")
                await self._pause(LONGEST)
                if self.ending.is_set():
                    raise Ended from None
            except HorocycleError as error:  # it was not opened, has ended, or is damaged
                return Plan(sid, entries, bad=[Bad(entry, error) for entry in entries])

    async def _plan(self, sid: str, entries: Sequence[Entry], _: Plan | None = None) -> Plan:
        loaded = self._ingest.known(sid) or await self._ingest.current(sid)
        after = position(loaded.producers, self._producer)
        new = [entry for entry in entries if entry.id > after]
        if len(new) < len(entries) and all(entry.id != after for entry in entries):
            await self._require(after)
        if not new:
            return Plan(sid, entries)
        batch, bad = read(new, loaded.spec)
        if has_unknown_label(bad):  # it may have been added by a worker
            batch, bad = read(new, (await self._ingest.current(sid)).spec)
        return Plan(sid, entries, batch, Consumed(self._producer, after, new[-1].id), bad)

    async def _commit(self, sid: str, entries: Sequence[Entry], plan: Plan | None) -> Plan:
        while plan is not None and plan.batch is not None:
            consumed = plan.consumed
            assert consumed is not None
            try:
                if len(plan.batch):
                    await self._ingest.observe(sid, Request(plan.batch, columns=False, consumed=consumed))
                else:
                    await self._ingest.change(sid, partial(_nothing, consumed))
                break
            except Replaced:  # another owner was here: what is left?
                await self._ingest.current(sid)
                plan = await self._plan(sid, entries)
        return Plan(sid, entries)

    async def _require(self, id: int) -> None:
        """A session has learned some of these before a restart, as it seems: then the stream has its last one, too"""
        try:
            await self._source.require(id)
        except WentBack as error:
            if await self._source.own():
                self._accept(error)

    # ------------------------------------------------------------------------------------------- patience

    async def _patiently(self, what: Callable[[], Awaitable[Result]]) -> Result:
        """Its result, however long the servers are away"""
        pause = PAUSE
        while True:
            try:
                return await what()
            except AWAY as error:
                if self.ending.is_set():
                    raise Ended from error
                self._say(f"waits: {error.detail}")
                await self._pause(pause)
                pause = min(2 * pause, LONGEST)

    def _say(self, text: str) -> None:
        """Not the same again and again"""
        if text != self._told:
            self._tell(text)
        self._told = text

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ending.wait(), seconds)


def _nothing(consumed: Consumed, before: Loaded) -> Change:
    """Entries that hold no point were consumed"""
    if position(before.producers, consumed.producer) != consumed.after:
        raise Replaced
    return Change(replace(before, producers=moved(before.producers, consumed, int(time.time()))))
