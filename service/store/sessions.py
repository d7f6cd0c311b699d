"""Sessions in Redis: opened, loaded, listed, ended, and changed by the one atomic commit.

Learned state is written by `commit` alone. It may be sent again when only its reply was lost: the script finds its own
id in the log.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

from service.errors import (
    InvalidRequest,
    OutcomeUnknown,
    SessionExists,
    SessionGone,
    StateCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownSession,
)
from service.learners import encode
from service.sessions.apply import replay_learner
from service.sessions.frozen import frozen
from service.sessions.records import Change, Entry, EntryId, Kept, Kind, Listed, Loaded, Status
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from service.sessions.tenants import DEFAULT, tenant_of
from service.store import codec, scripts
from service.store.connection import Connection
from service.store.fork_queue import fork_entry
from service.store.keys import (
    answers_key,
    blocks_key,
    born_key,
    fork_queue_key,
    log_key,
    session_keys,
    sessions_key,
    state_key,
)
from service.store.late_labels import KEEP_IDS
from service.store.log import Log
from service.store.scripts import CommitReply, OpenReply
from service.store.staging import BLOCKS, Staging

#: Bytes of settings after which a page of the list ends: labels and a reference point may be long.
PAGE = 1 << 20
#: Sessions whose entries in the list are known to be there, and seconds that putting one back may take.
LISTED, PUT_BACK = 100_000, 0.5
#: Of this process, and how many commits it has named: chance is asked for once.
OWN, COMMITS = os.urandom(8).hex(), count()
#: A learner of at most so many bytes is replayed in no time; a larger one leaves the event loop.
BRIEF = 4096
#: Bytes of points and learner from which on they are written in another thread.
LARGE = 1 << 20


@frozen
class Committed:
    after: Loaded


@dataclass(frozen=True)
class Replayed:
    """These requests of the commit, by position, were answered before; nothing was written."""

    answers: dict[int, bytes]


@dataclass(frozen=True)
class Conflict:
    """Another commit was first; nothing was written now."""

    ambiguous: bool = False  # it was sent before, and the log no longer tells whether it was applied then


class Store:
    def __init__(self, connection: Connection) -> None:
        self._connection, self._log = connection, Log(connection)
        self._listed: set[str] = set()  # since the list's server last changed, as far as is known here
        self._listed_in = 0

    def staging(self, spec: Spec) -> Staging:
        """For a session that comes in pieces, to be opened when all are there"""
        return Staging(self._connection, spec, commit_name())

    async def open(self, loaded: Loaded, points: Batch | None = None, staged: Staging | None = None) -> Loaded:
        """A new session. One that is imported brings its retained points along, or they are staged; the last entry of
        its log then is a checkpoint."""
        spec, written, newest = loaded.spec, codec.Written([], {}), loaded.newest
        if loaded.counters.observed:
            newest = EntryId(loaded.counters.observed, 1 if staged is None else staged.entries + 1)
            loaded = replace(loaded, newest=newest, learner_at=newest, checkpoints=(newest,))
            kept = None if points is None or not spec.keep_points else points
            entry = Entry(Kind.IMPORT, loaded.counters, loaded.status, 0 if kept is None else len(kept), kept)
            if kept is not None:
                entry = replace(entry, predicted=kept.indices)
            entry = await asyncio.to_thread(codec.with_checkpoint, entry, loaded)
            written = await asyncio.to_thread(codec.write_entry, entry, spec, commit_name())
        learner = await asyncio.to_thread(encode, loaded.state)
        loaded = replace(loaded, learner_bytes=len(learner))
        fields = codec.state_fields(None, loaded, learner)
        fields += ["revision", loaded.revision, "entries", newest.number, "learner_at", str(newest)]
        fields += ["check", codec.checked_counts(loaded.revision, newest.number)]
        if written.blocks or (staged is not None and BLOCKS in staged.written):
            fields += ["blocks", 1]
        if loaded.checkpoints:
            fields += ["checkpoints", "".join(f"{id} " for id in loaded.checkpoints)]
        lengths = (len(fields), len(written.fields), len(written.blocks))
        keys = [born_key(spec.id), *session_keys(spec.id), *(() if staged is None else staged.keys)]
        blocks = [
            ("HSET", blocks_key(spec.id), name, data) if staged is None else staged.block(name, data)
            for name, data in written.blocks.items()
        ]
        marks = "" if staged is None else staged.marks
        arguments = [spec.ttl_seconds or 0, str(newest), marks, *lengths, *fields, *written.fields, *written.blocks]
        reply = await self._connection.script(scripts.OPEN, keys, *arguments, lost=OutcomeUnknown, first=blocks)
        if reply == OpenReply.NO_BLOCK:
            raise StoreUnavailable("the store lost a block of this session before it was opened")
        if reply == OpenReply.TAKEN:
            if written.blocks and staged is None:
                await self._connection.call("HDEL", blocks_key(spec.id), *written.blocks)
            raise SessionExists(spec.id)
        await self._list(spec)
        return loaded

    async def restore(self, kept: Kept) -> Loaded:
        """A session from a snapshot"""
        if not kept.fits:
            return await self.open(kept.loaded, kept.batch)
        staged = self.staging(kept.loaded.spec)
        try:
            for saved in kept.fits:
                await staged.fit(saved)
            return await self.open(kept.loaded, kept.batch, staged)
        finally:
            with suppress(StoreUnavailable):
                await staged.drop()

    async def _list(self, spec: Spec) -> None:
        try:
            since = datetime.fromisoformat(spec.created_at).timestamp()
            await self._connection.call("ZADD", sessions_key(tenant_of(spec.id)), since, spec.id)
        except (StoreUnavailable, StoreFull, StoreReadOnly) as error:  # they say that nothing was changed
            raise OutcomeUnknown from error
        if spec.ttl_seconds is not None:
            with suppress(StoreUnavailable, StoreFull, StoreReadOnly):  # another time, then
                await self._tidy(sessions_key(tenant_of(spec.id)))

    async def _tidy(self, key: str) -> None:
        """Take two of the list that have expired off it, if there are: whoever opens sessions that expire takes as many
        off as are added once half of the list has expired, also if nobody ever reads it"""
        some = {each.decode() for each in await self._connection.call("ZRANDMEMBER", key, 2)}
        there = await self._connection.calls([("EXISTS", state_key(sid)) for sid in some])
        for sid, found in zip(some, there, strict=True):
            if not found:
                await self.forget(sid)

    async def _put_back(self, loaded: Loaded) -> None:
        """The list and the queue of forks may be on another server than the session, and lose an entry when a replica
        takes over that never heard of it: who loads the session sees to it that it has its entries"""
        sid, generation = loaded.spec.id, self._connection.generation
        since = datetime.fromisoformat(loaded.spec.created_at).timestamp()
        commands: list[tuple[Any, ...]] = [("ZADD", sessions_key(tenant_of(sid)), "NX", since, sid)]
        if loaded.status == Status.REPLAYING:
            commands.append(("ZADD", fork_queue_key(), "NX", time.time(), fork_entry(loaded.spec)))
        with suppress(TimeoutError, StoreUnavailable, StoreFull, StoreReadOnly):  # another time, then
            async with asyncio.timeout(PUT_BACK):
                await self._connection.calls(commands)
            if generation != self._listed_in or len(self._listed) > LISTED:
                self._listed, self._listed_in = set(), generation
            self._listed.add(sid)

    async def load(self, sid: str, known: Loaded | None = None) -> Loaded:
        """The session as it is now; `known` itself when it still is that."""
        keys = [born_key(sid), state_key(sid), log_key(sid)]
        reply = await self._connection.script(scripts.LOAD, keys, -1 if known is None else known.revision)
        if isinstance(reply, int):
            raise absent(sid, reply)
        if not reply:
            assert known is not None
            return known
        flat, since = reply
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        large = sum(map(len, fields.values())) > LARGE
        loaded = await asyncio.to_thread(codec.read_state, fields) if large else codec.read_state(fields)
        if sid not in self._listed or self._listed_in != self._connection.generation:
            await self._put_back(loaded)
        if loaded.learner_at == loaded.newest:
            return loaded
        return await self._replayed(loaded, [codec.read_record(each) for each in since])

    async def _replayed(self, loaded: Loaded, records: list[codec.Record]) -> Loaded:
        """A large learner is stored now and then: replay the entries since"""
        blocks = await self._log.blocks(
            loaded.spec.id, [name for r in records for name in r.blocks("rows", "replaced")]
        )

        def replay() -> Loaded:
            entries = [codec.read_entry(each, loaded.spec, blocks) for each in records if each.kind is not Kind.FIT]
            numbers = [record.id.number for record in records]
            whole = numbers == list(range(loaded.learner_at.number + 1, loaded.newest.number + 1))
            learned = loaded.learner_at.observed + sum(record.points for record in records) == loaded.newest.observed
            if not (whole and learned) or any(entry.points and entry.batch is None for entry in entries):
                raise StateCorrupt("the log lacks entries that the learner is replayed from")
            state = loaded.state
            for entry in entries:
                state = replay_learner(loaded.spec, state, 0, entry, entry.points).state
            return replace(loaded, state=state) if entries else loaded

        return replay() if loaded.learner_bytes <= BRIEF else await asyncio.to_thread(replay)

    async def kept(self, sid: str, *, points: bool = True) -> Kept:
        """The session and its retained points at one moment, for a snapshot"""
        while True:
            loaded = await self.load(sid)
            found = await self._log.retained(loaded) if points else self._log.none(loaded)
            if not points or await self.load(sid, loaded) is loaded:
                return Kept(loaded, found)

    async def touch(self, spec: Spec) -> None:
        """A session with a time to live was used."""
        if spec.ttl_seconds:
            await self._connection.script(scripts.TOUCH, session_keys(spec.id), spec.ttl_seconds)

    async def end(self, sid: str) -> None:
        ended = await self._connection.script(scripts.END, [born_key(sid), *session_keys(sid)], lost=OutcomeUnknown)
        if ended != 2:
            raise absent(sid, ended)
        await self.forget(sid)

    async def page(self, limit: int, cursor: str | None, tenant: str = DEFAULT) -> tuple[list[Listed], str | None]:
        """Sessions, newest first, and where to go on. Those that are gone are taken off the list as they are met."""
        since, last = _cursor(cursor)
        found, weight = list[Listed](), 0
        while len(found) < limit and weight < PAGE:
            span = (sessions_key(tenant), since, "-inf", "WITHSCORES", "LIMIT", 0, limit + 32)
            flat = await self._connection.call("ZREVRANGEBYSCORE", *span)
            pairs = [(float(flat[i + 1]), flat[i].decode()) for i in range(0, len(flat), 2)]
            pairs = [pair for pair in pairs if last is None or pair < last]
            if not pairs:
                return found, None
            commands = [("HMGET", state_key(sid), *codec.LISTED) for _, sid in pairs]
            hashes = await self._connection.calls(commands)
            for (since, sid), fields in zip(pairs, hashes, strict=True):
                last = (since, sid)
                if fields[0] is None:
                    await self.forget(sid)
                    continue
                try:
                    found.append(codec.read_listed(fields))
                except (StateCorrupt, ValueError, KeyError, TypeError):  # its own address says so; the others are shown
                    continue
                weight += len(fields[0])
                if len(found) == limit or weight >= PAGE:
                    break
        assert last is not None
        return found, f"{last[0]!r}:{last[1]}"

    async def count(self, tenant: str) -> int:
        """Sessions of a tenant, those included that expired since the list was last read"""
        return int(await self._connection.call("ZCARD", sessions_key(tenant)))

    async def forget(self, sid: str) -> None:
        """Take a session that is gone off the list."""
        await self._connection.call("ZREM", sessions_key(tenant_of(sid)), sid)

    # -------------------------------------------------------------------------------- commit

    async def commit(
        self, before: Loaded, change: Change, commit_id: str, *, again: bool = False
    ) -> Committed | Replayed | Conflict:
        """Write all that these requests did, if nobody was first; `again`: it was sent before, and no reply came"""
        after, spec, entry, written = change.after, change.after.spec, change.entry, codec.Written([], {})
        due, learner, known = plan(before, after), None, before.newest
        if entry is not None:
            if before.learner_bytes + entry.points * spec.row_bytes > LARGE:
                entry = await asyncio.to_thread(codec.with_checkpoint, entry, after) if due.checkpoint else entry
                written = await asyncio.to_thread(codec.write_entry, entry, spec, commit_id)
                learner = await asyncio.to_thread(encode, after.state) if due.learner else None
            else:
                entry = codec.with_checkpoint(entry, after) if due.checkpoint else entry
                written = codec.write_entry(entry, spec, commit_id)
                learner = encode(after.state) if due.learner else None
        forgotten = () if after.producers is before.producers else before.producers.keys() - after.producers.keys()
        gone = " ".join([f"producer:{name}" for name in forgotten])
        ttl = spec.ttl_seconds or (0 if spec is before.spec else -1)
        options: tuple[Any, ...] = ()
        if again or ttl or gone or due.checkpoint or written.blocks or change.learned_ids:
            stay = "".join([f"{id} " for id in due.stay]) if due.checkpoint else "-"
            first_block = 19 + len(written.fields)
            options = (int(again), ttl, KEEP_IDS, stay, gone, first_block, first_block + len(written.blocks))
        first_entry = 12 + len(options)
        first_answer = first_entry + len(written.fields) + len(written.blocks) + len(change.learned_ids)
        keys = session_keys(spec.id)
        if not (change.learned_ids or ttl):
            keys = keys[:6] if change.answers else keys[:4]
        reply = await self._connection.script(
            scripts.COMMIT,
            keys,
            *(before.revision, before.revision + 1, known.observed, known.number, known.number + 1),
            *(after.counters.observed, due.entries, due.blocks),
            *(first_entry, first_answer, first_answer + 2 * len(change.answers)),
            *options,
            *written.fields,
            *written.blocks,
            *change.learned_ids,
            *[part for key, answer in change.answers for part in (key, codec.seal(key, answer))],
            *codec.state_fields(before, after, learner),
            lost=OutcomeUnknown,
            first=[("HSET", blocks_key(spec.id), name, data) for name, data in written.blocks.items()],
        )
        if isinstance(reply, int):
            newest = EntryId(after.counters.observed, reply)
            stored = (before.learner_at, before.learner_bytes) if learner is None else (newest, len(learner))
            checkpoints = (*due.stay, newest) if due.checkpoint and entry is not None else before.checkpoints
            a = after  # field by field: `replace` takes four times as long
            same = (a.counters, a.state, a.status, a.tally, a.confusion, a.opened, a.fork)
            kept = (newest, *stored, checkpoints, a.producers, True)
            return Committed(Loaded(a.spec, before.revision + 1, *same, *kept))
        if reply[0] == CommitReply.STOPPED:
            await self._connection.script(scripts.REPAIR, session_keys(spec.id), lost=OutcomeUnknown)
            return await self.commit(before, change, commit_id, again=again)
        return _not_committed(reply, change)

    async def answer(self, sid: str, key: str) -> bytes | None:
        """What was answered to the request with this idempotency key"""
        commands = [("HGET", answers_key(sid, generation), key) for generation in (0, 1)]
        entries, *found = await self._connection.calls([("HGET", state_key(sid), "entries"), *commands])
        for stored in found:
            if stored is not None:
                told = re.match(rb"(\d+)(?:~(\d+))?(?=[ ~])", stored)
                if told is None or told[2] not in (None, told[1]):
                    raise StateCorrupt("a stored answer is damaged")
                if entries is not None and int(told[1]) <= int(entries):
                    return _unsealed(key, stored[told.end() :])
        return None


def _not_committed(reply: Any, change: Change) -> Replayed | Conflict:
    """What the script says of a commit that it did not write"""
    if reply[0] == CommitReply.REPLAYED:
        keys = [key for key, _ in change.answers]
        found = zip(reply[1::2], reply[2::2], strict=True)
        return Replayed({position: _unsealed(keys[position], answer) for position, answer in found})
    if reply[0] in (CommitReply.CONFLICT, CommitReply.AMBIGUOUS):
        return Conflict(ambiguous=reply[0] == CommitReply.AMBIGUOUS)
    if reply[0] == CommitReply.NO_BLOCK:
        raise StoreUnavailable("the store lost a block of this commit before it was written")
    if reply[0] == CommitReply.DAMAGED:
        raise StateCorrupt("the counts of the stored session are damaged")
    raise SessionGone(change.after.spec.id)


def _unsealed(key: str, answer: bytes) -> bytes:
    """A stored answer; behind a blank it is of an older version, and has no checksum"""
    return codec.unseal(key, answer[1:]) if answer[:1] == b"~" else answer[1:]


class Plan(NamedTuple):
    """What a commit writes beside its entry, and what may go"""

    learner: bool  # store the learner: the points since outweigh it. Who loads the session replays those since
    checkpoint: bool  # the entry carries one
    entries: int  # those that end before this position may go with the commit, which may be stopped in the middle
    blocks: int  # and the blocks of those before this one once it is made
    stay: tuple[EntryId, ...]  # checkpoints


def plan(before: Loaded, after: Loaded) -> Plan:
    """Retained points stay, and what they or the learner are replayed from"""
    keep, size, observed = after.spec.keep_points, before.learner_bytes, after.counters.observed
    last = before.checkpoints[-1].observed if before.checkpoints else 0
    points, weight = observed - last, (observed - last) * after.spec.row_bytes
    learner = (observed - before.learner_at.observed) * after.spec.row_bytes >= size or not keep
    learner = learner or (after.spec.algorithm, after.spec.labels) != (before.spec.algorithm, before.spec.labels)
    at, kept = before.learner_at.observed, before.spec.keep_points
    wanted = ((before.counters.observed - max(keep, kept), at), (observed - keep, observed if learner else at))
    if kept:  # the newest checkpoints from which points, those from the oldest wanted on, can be replayed
        known = [id.observed for id in before.checkpoints]
        first, blocks = [min(max([id for id in known if id <= oldest], default=0), at) for oldest, at in wanted]
    else:
        first, blocks = [max(min(oldest, at), 0) for oldest, at in wanted]
    return Plan(
        learner=learner or not before.spec.keep_points,
        checkpoint=0 < keep
        and ((keep <= 4 * points and weight >= size) or (keep <= 32 * points and weight >= 16 * size)),
        entries=first,
        blocks=blocks,
        stay=tuple([id for id in before.checkpoints if id.observed >= blocks]),
    )


def commit_name() -> str:
    """A commit's id: the second it was made in, so that blocks it leaves behind can be told by age, and chance"""
    return f"{int(time.time())}-{OWN}{next(COMMITS):x}"


def absent(sid: str, born: int) -> SessionGone | UnknownSession:
    return SessionGone(sid) if born else UnknownSession(sid)


def _cursor(cursor: str | None) -> tuple[float | str, tuple[float, str] | None]:
    """Where to begin, and the last session that was listed"""
    if cursor is None:
        return "+inf", None
    since, _, sid = cursor.partition(":")
    try:
        number = float(since)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise InvalidRequest(f"{cursor[:100]!r} is no cursor of ours", parameter="cursor")
    return number, (number, sid)
