"""Reading the log: entries, retained points, a session as it was.

Positions count points from 0. The entry of a commit has the position behind its last point in its id, so that points
are found by position.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from service.errors import LogTrimmed
from service.sessions import checkpoint, rows
from service.sessions.apply import replay
from service.sessions.opening import first_session
from service.sessions.records import Entry, EntryId, Kind, Loaded
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from service.store import codec
from service.store.codec import Record
from service.store.connection import Connection
from service.store.keys import blocks_key, log_key

#: Entries that are read in one go.
PAGE = 128


class Part(NamedTuple):
    """What of an entry was asked for"""

    begin: int  # the position of its first point
    end: int  # and behind the entry's last, which may not have been asked for
    data: bytes | None  # the packed rows; None: they are not kept


class Page(NamedTuple):
    """Retained points one after another"""

    start: int  # the position of the first
    stop: int  # and behind the last
    data: bytes  # the packed rows
    following: int | None  # where to go on; None: this is the end


class Log:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def records(self, sid: str, start: str, stop: EntryId, count: int = PAGE) -> list[Record]:
        """Entries from the id `start` ("(id": behind it) up to `stop`, oldest first"""
        reply = await self._connection.read("XRANGE", log_key(sid), start, str(stop), "COUNT", count)
        return [codec.read_record(each) for each in reply]

    async def pages(self, sid: str, start: str, stop: EntryId) -> AsyncIterator[list[Record]]:
        while page := await self.records(sid, start, stop):
            yield page
            if page[-1].id == stop or len(page) < PAGE:
                return
            start = f"({page[-1].id}"

    async def blocks(self, sid: str, names: Sequence[str]) -> dict[str, bytes]:
        """Those of these blocks that are there, one at a time: the store serves nobody else meanwhile"""
        found = {name: await self._connection.read("HGET", blocks_key(sid), name) for name in names}
        return {name: data for name, data in found.items() if data is not None}

    # ------------------------------------------------------------------------------- points

    async def parts(self, loaded: Loaded, start: int, stop: int) -> AsyncIterator[Part]:
        """The points start … stop−1, an entry at a time; behind them an empty part where the next entry begins"""
        spec, size = loaded.spec, rows.row_bytes(loaded.spec.dimension)
        async for page in self.pages(spec.id, f"{start + 1}-0", loaded.newest):
            for record in page:
                begin, end = record.id.observed - record.points, record.id.observed
                if begin >= stop:
                    yield Part(begin, begin, b"")
                    return
                data = codec.record_rows(record, spec, await self.blocks(spec.id, record.blocks("rows")))
                if data is not None:
                    data = data[max(start - begin, 0) * size : (stop - begin) * size]
                yield Part(max(begin, start), end, data)

    async def points(self, loaded: Loaded, start: int, stop: int) -> tuple[int, bytes]:
        """The packed rows of the points start … stop−1, or of the newest part that is kept, and where that begins"""
        parts, first, reached = list[bytes](), start, start
        async for part in self.parts(loaded, start, stop):
            if part.data is None or part.begin > reached:  # what lies before it is not kept
                parts, first = [], part.end if part.data is None else part.begin
            parts.append(part.data or b"")
            reached = part.end
        return first, b"".join(parts)

    async def page(self, loaded: Loaded, start: int, limit: int) -> Page:
        """The retained points from a position on, so many at the most. LogTrimmed: they are no longer kept"""
        observed = loaded.counters.observed
        start, stop = min(start, observed), min(start + limit, observed)
        first, data = await self.points(loaded, start, stop) if start < stop else (start, b"")
        if first > start or start < observed - loaded.spec.keep_points:
            raise LogTrimmed(start, await self.first_kept(loaded))
        return Page(start, stop, data, stop if stop < observed else None)

    async def first_kept(self, loaded: Loaded) -> int:
        """The position of the first retained point"""
        observed = loaded.counters.observed
        first, _ = await self.points(loaded, max(observed - loaded.spec.keep_points, 0), observed)
        return first

    async def retained(self, loaded: Loaded, most: int | None = None) -> Batch:
        """The newest keep_points points, as far as they are there; at most so many"""
        keep = loaded.spec.keep_points if most is None else min(most, loaded.spec.keep_points)
        return (await self.retained_rows(loaded, keep))[1]

    async def retained_rows(self, loaded: Loaded, keep: int) -> tuple[int, Batch]:
        observed = loaded.counters.observed
        first, data = await self.points(loaded, max(observed - keep, 0), observed) if keep else (observed, b"")
        return first, rows.unpack(data, loaded.spec.dimension)

    def none(self, loaded: Loaded) -> Batch:
        return rows.empty(loaded.spec.dimension)

    # --------------------------------------------------------------------------- the session as it was

    async def at(self, loaded: Loaded, position: int) -> Loaded:
        """The session after that many points, and every commit at that position"""
        if position == loaded.counters.observed:
            return loaded
        start, was = await self.before(loaded, position)
        async for _, entry in self.entries(loaded, start, position):
            was = replay(was, entry, min(entry.points, position - entry.first))
        return was

    async def before(self, loaded: Loaded, position: int) -> tuple[EntryId, Loaded]:
        """The newest checkpoint at or before a position, or the session as it was opened"""
        for id in reversed(loaded.checkpoints):
            if id.observed <= position and (data := await self._checkpoint(loaded.spec, id)):
                return id, checkpoint.unpack(data)
        if not await self._is_whole(loaded):
            raise LogTrimmed(position, await self._first_past(loaded))
        return EntryId(), first_session(loaded.opened or loaded.spec)

    async def _first_past(self, loaded: Loaded) -> int:
        """The first position that `at` can tell of: the oldest checkpoint behind which no points are missing"""
        missing = 0
        async for page in self.pages(loaded.spec.id, "-", loaded.newest):
            for record in page:
                names = record.blocks("rows", "replaced")
                sizes = [await self._connection.call("HSTRLEN", blocks_key(loaded.spec.id), name) for name in names]
                if not all(sizes) or (record.points and b"rows" not in record.fields):
                    missing = record.id.observed
        later = [id for id in loaded.checkpoints if id.observed >= missing]
        kept = [id.observed for id in later if await self._checkpoint(loaded.spec, id)]
        return min(kept, default=loaded.counters.observed)

    async def _checkpoint(self, spec: Spec, id: EntryId) -> bytes | None:
        found = await self.records(spec.id, str(id), id)
        if not found:
            return None
        blocks = await self.blocks(spec.id, found[0].blocks("checkpoint"))
        return codec.read_entry(found[0], spec, blocks).checkpoint or None

    async def _is_whole(self, loaded: Loaded) -> bool:
        """Whether the log has everything since the session was opened"""
        oldest = await self.records(loaded.spec.id, "-", loaded.newest, 1)
        if not oldest:
            return True
        first, _ = await self.points(loaded, 0, min(loaded.counters.observed, 1))
        return oldest[0].id.number == 1 and oldest[0].kind is not Kind.IMPORT and first == 0

    async def entries(self, loaded: Loaded, after: EntryId, position: int) -> AsyncIterator[tuple[EntryId, Entry]]:
        """The entries behind that id that begin at or before a position; of the last, points may lie behind it"""
        async for page in self.pages(loaded.spec.id, f"({after}", loaded.newest):
            blocks = await self.blocks(loaded.spec.id, [n for r in page for n in r.blocks("rows", "replaced")])
            for record in page:
                begin = record.id.observed - record.points
                if begin > position or (begin == position and record.points):
                    return
                whole = all(name in blocks for name in record.blocks("rows", "replaced"))
                if not whole or (record.points and b"rows" not in record.fields):
                    raise LogTrimmed(position, await self._first_past(loaded))
                if record.kind is not Kind.FIT:
                    yield record.id, codec.read_entry(record, loaded.spec, blocks)
