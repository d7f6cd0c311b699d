"""The store: what is kept in Redis, and the one atomic commit.

Learned state is written by `commit` alone, as checked bytes. It may be repeated when only its reply was lost, because
the script knows its own id and the keys of its requests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

from service.errors import (
    IdReused,
    InvalidRequest,
    OutcomeUnknown,
    RateLimited,
    SessionExists,
    SessionGone,
    StateCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownSession,
)
from service.learners import decode, encode
from service.sessions.records import Change, Counters, Kept, Listed, Loaded, Waiting
from service.sessions.spec import Spec
from service.sessions.tally import Tally
from service.store import scripts
from service.store.connection import Link
from service.store.keys import (
    answers_key,
    born_key,
    confusion_key,
    events_key,
    ids_key,
    log_key,
    points_key,
    rows_key,
    session_key,
    session_keys,
    sessions_key,
    settled_key,
    state_key,
    waiting_key,
)

#: The newest idempotency keys that are kept, a session; and the newest ids of points that have their labels.
KEEP_KEYS, KEEP_IDS = 1000, 100_000
#: How many ids are asked about in one go: Redis takes a million arguments, and serves nobody else meanwhile.
ASKED = 10_000


@dataclass(frozen=True)
class Event:
    id: str
    number: int  # they are counted from 1
    name: str
    data: bytes


@dataclass(frozen=True)
class Head:
    """Where the events stand: the session now, its newest event, and the one a client saw last, if it is still kept."""

    loaded: Loaded
    newest: str
    number: int  # of the newest
    seen: Event | None


@dataclass(frozen=True)
class Committed:
    pass


@dataclass(frozen=True)
class Replayed:
    """These requests of the commit, by position, were answered before; nothing was written."""

    answers: dict[int, bytes]


@dataclass(frozen=True)
class Conflict:
    """Another commit was first; nothing was written now."""

    distant: bool = False  # so many were first that an earlier try of this one may have been forgotten


class Store(Link):
    # ------------------------------------------------------------------------------ sessions

    async def open(self, kept: Kept) -> None:
        """A new session, with what it brings along if it comes from a snapshot"""
        loaded, spec = kept.loaded, kept.loaded.spec
        fields = [*_fields(loaded.counters, loaded.status, loaded.tally, spec)]
        rows = len(kept.points) // (8 * (spec.dimension + 1))
        fields += ["revision", loaded.revision, "kept", rows, "events", 0]
        cells = _cells(kept.confusion)
        keys = [born_key(spec.id)]
        keys += [key(spec.id) for key in (session_key, state_key, points_key, rows_key, confusion_key, log_key)]
        ttl, since = spec.ttl_seconds or 0, datetime.fromisoformat(spec.created_at).timestamp()
        lengths = [len(fields), len(cells)]
        arguments = [ttl, encode(loaded.state), kept.points, rows, *lengths, *fields, *cells, *kept.log]
        if not await self.script(scripts.OPEN, keys, *arguments, lost=OutcomeUnknown):
            raise SessionExists(spec.id)
        try:
            await self.call("ZADD", sessions_key(), since, spec.id)
        except (StoreUnavailable, StoreFull, StoreReadOnly) as error:  # they say that nothing was changed
            raise OutcomeUnknown from error

    async def load(self, sid: str, known: Loaded | None = None) -> Loaded:
        """The session as it is now; `known` itself when it still is that."""
        revision = -1 if known is None else known.revision
        keys = [born_key(sid), session_key(sid), state_key(sid)]
        reply = await self.script(scripts.LOAD, keys, revision)
        if isinstance(reply, int):
            raise _absent(sid, reply)
        if known is not None and reply[1] == b"":
            return known
        return _loaded(_pairs(reply[0]), reply[1])

    async def snapshot(self, sid: str, *, points: bool = True) -> Kept:
        """Everything at one moment"""
        keys = [key(sid) for key in (born_key, session_key, state_key, points_key, confusion_key, log_key)]
        reply = await self.script(scripts.SNAPSHOT, keys, int(points))
        if isinstance(reply, int):
            raise _absent(sid, reply)
        fields, state, blocks, confusion, log = reply
        return Kept(_loaded(_pairs(fields), state), b"".join(blocks), _confusion(confusion), list(map(int, log)))

    async def counted(self, sid: str) -> Kept:
        """The same without the points"""
        return await self.snapshot(sid, points=False)

    async def touch(self, spec: Spec) -> None:
        """A session with a time to live was used."""
        if spec.ttl_seconds:
            await self.script(scripts.TOUCH, session_keys(spec.id), spec.ttl_seconds)

    async def end(self, sid: str) -> None:
        ended = await self.script(scripts.END, [born_key(sid), *session_keys(sid)], lost=OutcomeUnknown)
        if ended != 2:
            raise _absent(sid, ended)
        await self.forget(sid)

    async def page(self, limit: int, cursor: str | None) -> tuple[list[Listed], str | None]:
        """Sessions, newest first, and where to go on. Those that are gone are taken off the list as they are met."""
        since, last = _cursor(cursor)
        found: list[Listed] = []
        while len(found) < limit:
            rows = await self.call(
                "ZREVRANGEBYSCORE", sessions_key(), since, "-inf", "WITHSCORES", "LIMIT", 0, limit + 32
            )
            pairs = [(float(rows[i + 1]), rows[i].decode()) for i in range(0, len(rows), 2)]
            pairs = [pair for pair in pairs if last is None or pair < last]
            if not pairs:
                return found, None
            hashes = await self.calls([("HMGET", session_key(sid), *_LISTED) for _, sid in pairs])
            for (since, sid), fields in zip(pairs, hashes, strict=True):
                last = (since, sid)
                if fields[0] is None:
                    await self.forget(sid)
                    continue
                try:
                    found.append(_listed(fields))
                except (ValueError, KeyError, TypeError):  # damaged: its own address says so; the others are shown
                    continue
                if len(found) == limit:
                    break
        assert last is not None
        return found, f"{last[0]!r}:{last[1]}"

    async def forget(self, sid: str) -> None:
        """Take a session that is gone off the list."""
        await self.call("ZREM", sessions_key(), sid)

    # -------------------------------------------------------------------------------- commit

    async def commit(self, loaded: Loaded, commit_id: bytes, change: Change) -> Committed | Replayed | Conflict:
        """Write all that these requests did, if nobody was first; may be repeated with the same id."""
        spec = change.spec or loaded.spec
        fields = _fields(change.counters, change.status, change.tally, change.spec)
        events = [part for event in change.events for part in event]
        cells = _cells(change.confusion)
        reply = await self.script(
            scripts.COMMIT,
            session_keys(spec.id),
            commit_id,
            loaded.revision,
            encode(change.state),
            spec.keep_events,
            spec.keep_points,
            KEEP_KEYS,
            KEEP_IDS,
            spec.ttl_seconds or (0 if change.spec is None else -1),
            change.block,
            change.rows,
            *(len(each) for each in (fields, events, cells, change.log, change.learned_ids)),
            *fields,
            *events,
            *cells,
            *change.log,
            *change.learned_ids,
            *(part for pair in change.answers for part in pair),
            lost=OutcomeUnknown,
        )
        if reply[0] == 1:
            return Committed()
        if reply[0] == 2:
            return Replayed(dict(zip(reply[1::2], reply[2::2], strict=True)))
        if reply[0] == 3:
            return Conflict()
        if reply[0] == 5:
            return Conflict(distant=True)
        raise SessionGone(spec.id)

    async def answer(self, sid: str, key: str) -> bytes | None:
        """What was answered to the request with this idempotency key"""
        found: bytes | None = await self.call("HGET", answers_key(sid), key)
        return found

    async def points(self, sid: str) -> bytes:
        """The retained points, in the order they were learned"""
        return b"".join(await self.call("LRANGE", points_key(sid), 0, -1))

    async def newest(self, spec: Spec, count: int) -> bytes:
        """At least the newest so many of the retained points, as far as they are kept"""
        sizes = [int(n) for n in await self.call("LRANGE", rows_key(spec.id), 0, -1)]
        blocks, rows = 0, 0
        while blocks < len(sizes) and rows < count:
            blocks += 1
            rows += sizes[-blocks]
        return b"".join(await self.call("LRANGE", points_key(spec.id), -blocks, -1)) if blocks else b""

    # -------------------------------------------------------------------------- late labels

    async def wait(self, spec: Spec, points: Sequence[tuple[str, bytes]], *, ttl: float, limit: int) -> None:
        """Keep these points, by id, until their labels come or the time is over."""
        if len(points) > limit:
            raise RateLimited(f"{limit} points may wait for their labels", limit=limit)
        keys = [key(spec.id) for key in (session_key, ids_key, waiting_key, settled_key)]
        entries = [part for id, point in points for part in (id, _fingerprint(point), point)]
        reply = await self.script(
            scripts.WAIT, keys, round(1000 * ttl), limit, KEEP_IDS, spec.ttl_seconds or 0, *entries
        )
        if isinstance(reply, list):
            raise IdReused(reply[0], str(json.loads(points[reply[0]][0])))
        if reply == 0:
            raise SessionGone(spec.id)
        if reply == -1:
            raise RateLimited(f"{limit} points wait for their labels already", limit=limit)

    async def waiting(self, sid: str, ids: Sequence[str]) -> list[Waiting]:
        """What became of each id"""
        found: list[Waiting] = []
        for at in range(0, len(ids), ASKED):
            now, *entries = await self.script(scripts.WAITING, [ids_key(sid)], *ids[at : at + ASKED])
            found += [_waiting(entry, now) for entry in entries]
        return found

    # -------------------------------------------------------------------------------- events

    async def head(self, sid: str, last: str) -> Head:
        """Where the events stand; `last` is the id of the one a client saw last, or empty"""
        keys = [key(sid) for key in (born_key, session_key, state_key, events_key)]
        reply = await self.script(scripts.HEAD, keys, last)
        if isinstance(reply, int):
            raise _absent(sid, reply)
        fields, state, newest, seen = reply
        named = _pairs(fields)
        found = _event(seen[0]) if seen else None
        return Head(_loaded(named, state), newest.decode(), int(named[b"events"]), found)

    async def events(self, sid: str, after: str, *, seconds: float = 0.0, count: int = 256) -> list[Event]:
        """The events after that id, oldest first; waits for some if there are none yet"""
        block = ["BLOCK", max(1, round(1000 * seconds))] if seconds else []
        reply = await self.call(
            "XREAD", "COUNT", count, *block, "STREAMS", events_key(sid), after, patience=seconds + self._deadline
        )
        return [_event(entry) for entry in reply[0][1]] if reply else []


def _absent(sid: str, born: int) -> SessionGone | UnknownSession:
    return SessionGone(sid) if born else UnknownSession(sid)


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _fields(counters: Counters, status: str, tally: Tally, spec: Spec | None) -> list[str | bytes | int]:
    """A session's hash, flat"""
    fields: list[str | bytes | int] = ["observed", counters.observed, "mistakes", counters.mistakes]
    fields += ["updates", counters.updates, "version", counters.version, "status", status, "tally", tally.pack()]
    return fields if spec is None else [*fields, "spec", json.dumps(asdict(spec))]


def _loaded(fields: dict[bytes, bytes], state: bytes) -> Loaded:
    try:
        return Loaded(
            _spec(fields[b"spec"]),
            int(fields[b"revision"]),
            _counters(fields),
            decode(state),
            fields[b"status"].decode(),
            Tally.unpack(fields[b"tally"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt("the stored session is damaged") from error


def _cells(confusion: Mapping[tuple[int, int], int]) -> list[str | int]:
    return [part for (i, j), count in confusion.items() for part in (f"{i}:{j}", count)]


def _confusion(flat: Sequence[bytes]) -> dict[tuple[int, int], int]:
    cells = ((name.split(b":"), int(count)) for name, count in _pairs(flat).items())
    return {(int(i), int(j)): count for (i, j), count in cells}


def _fingerprint(point: bytes) -> bytes:
    return blake2b(point, digest_size=8).digest()


def _waiting(entry: bytes | None, now: int) -> Waiting:
    if entry is None:
        return Waiting("unknown")
    if entry[:1] == b"L":
        return Waiting("learned")
    if entry[:1] == b"E" or int.from_bytes(entry[9:17], "big") <= now:
        return Waiting("expired")
    return Waiting("waiting", entry[17:])


def _event(entry: Any) -> Event:
    id, (name, data, _, number) = entry
    return Event(id.decode(), int(number), name.decode(), data)


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


_LISTED = ("spec", "observed", "mistakes", "updates", "version", "status")


def _listed(values: Sequence[bytes]) -> Listed:
    spec, *numbers, status = values
    return Listed(_spec(spec), Counters(*map(int, numbers)), status.decode())


def _spec(data: bytes) -> Spec:
    fields = json.loads(data)
    fields["reference"], fields["labels"] = tuple(fields["reference"]), tuple(fields["labels"])
    return Spec(**fields)


def _counters(fields: dict[bytes, bytes]) -> Counters:
    return Counters(*(int(fields[name]) for name in (b"observed", b"mistakes", b"updates", b"version")))
