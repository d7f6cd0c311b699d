"""A stream on a Redis of its own: read so that whatever breaks its history is noticed; its lease and its dead letters.

Entries are read from the last one that was consumed on, that one included: it has to be there still, and the same.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from service.api.problems import problem
from service.consume.entries import Bad, Entry, id_number, id_text
from service.errors import StoreUnavailable
from service.store.connection import Connection, said
from service.store.scripts import script

#: Renew the lease, or give it back, if it is still this owner's.
RENEW = script("return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2])")
RELEASE = script("return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])")


class WentBack(Exception):
    """The stream has lost what was consumed of it, or has something else in its place"""


class Place(NamedTuple):
    """How far a stream was consumed"""

    id: int = 0
    digest: str = ""  # of the entry there; none: it is not looked at
    read: int | None = None  # entries that the stream ever had up to there, as far as it counts them


class Found(NamedTuple):
    entries: list[Entry]
    place: Place  # behind them
    trimmed: int = 0  # entries that were removed before they were read


class Source:
    def __init__(self, connection: Connection, name: str, lease: float) -> None:
        self.name, self._connection, self.lease = name, connection, lease
        self._token = secrets.token_hex(8)
        self._until = 0.0

    @property
    def dead(self) -> str:
        return f"{self.name}:dead"

    # ---------------------------------------------------------------------------------------- the lease

    @property
    def owned(self) -> bool:
        """As far as is known here. A process that was stopped may believe it for too long; that breaks nothing"""
        return time.monotonic() < self._until

    async def own(self) -> bool:
        """Take the lease, or renew it"""
        key, milliseconds, now = f"{self.name}:owner", round(1000 * self.lease), time.monotonic()
        renewed = await self._connection.script(RENEW, [key], self._token, milliseconds)
        if not renewed and await self._connection.call("SET", key, self._token, "NX", "PX", milliseconds) is None:
            self._until = 0.0
            return False
        self._until = now + self.lease
        return True

    async def release(self) -> None:
        self._until = 0.0
        await self._connection.script(RELEASE, [f"{self.name}:owner"], self._token)

    # ------------------------------------------------------------------------------------------ reading

    async def read(self, place: Place, count: int) -> Found:
        """The next entries behind a place, if its own entry is there as it was"""
        first = id_text(place.id) if place.id else "-"
        replies = await self._connection.read("XRANGE", self.name, first, "+", "COUNT", count + 1)
        entries = [Entry(id_number(id), tuple(fields or ())) for id, fields in replies]
        read, trimmed = place.read, 0
        if entries and entries[0].id == place.id:
            if place.digest and entries[0].digest != place.digest:
                raise WentBack(f"the stream {self.name} has another entry {first} than the one that was consumed")
            entries = entries[1:]
        elif place.digest or read is None:
            read, trimmed = await self._behind(place)
        entries = entries[:count]
        if not entries:
            return Found([], place._replace(read=read), trimmed)
        last, read = entries[-1], None if read is None else read + len(entries)
        return Found(entries, Place(last.id, last.digest, read), trimmed)

    async def _behind(self, place: Place) -> tuple[int | None, int]:
        """The entry of a place is not there. The count of entries up to there, and of those that went unread"""
        first, last, length, added = await self._history()
        here = id_text(place.id)
        if place.digest and last < place.id:
            raise WentBack(f"the stream {self.name} ends at {id_text(last)}, and was consumed until {here}")
        if place.digest and 0 < first < place.id:
            raise WentBack(
                f"the stream {self.name} has no entry {here} any more, but older ones, and was consumed so far"
            )
        removed = None if added is None else added - length
        if removed is None:
            return None, 0
        if place.read is None:  # count from here on, if all that is there comes behind it
            return removed if first > place.id or not place.id else None, 0
        return max(removed, place.read), max(removed - place.read, 0)

    async def require(self, id: int) -> None:
        """Raise unless the stream has this entry, or had it and was trimmed"""
        first, last, _, _ = await self._history()
        if last < id or (0 < first <= id and not await self._connection.read("XRANGE", self.name, *2 * [id_text(id)])):
            what = (
                f"the stream {self.name} ends at {id_text(last)}" if last < id else f"the stream {self.name} lacks it"
            )
            raise WentBack(f"a session has learned the entry {id_text(id)}; {what}")

    async def _history(self) -> tuple[int, int, int, int | None]:
        """The first id (0: none), the newest ever given, how many entries there are, and how many were ever added"""
        try:
            told = await self._connection.read("XINFO", "STREAM", self.name)
        except StoreUnavailable as error:
            if "no such key" not in said(error):
                raise
            return 0, 0, 0, 0
        known: dict[bytes, Any] = dict(zip(told[::2], told[1::2], strict=True))
        first = known[b"first-entry"]
        newest = id_number(known[b"last-generated-id"])
        return id_number(first[0]) if first else 0, newest, known[b"length"], known.get(b"entries-added")

    async def wait(self, place: Place, seconds: float) -> None:
        """Until there is more, or the time is over"""
        await self._connection.follow({self.name: id_text(place.id)}, 1, seconds)

    async def trim(self, place: Place) -> None:
        """Remove what was consumed, but for the last entry, by which the next read begins"""
        await self._connection.call("XTRIM", self.name, "MINID", id_text(place.id))

    # ------------------------------------------------------------------------------------- dead letters

    async def bury(self, bad: Sequence[Bad]) -> None:
        """Entries that cannot be learned, with the reason, under their own ids: so each comes once"""
        for entry, why in sorted(bad):
            told = orjson.dumps(problem(why), default=str)
            fields = [f"{id_text(entry.id)}", *entry.fields, "problem", told]
            try:
                await self._connection.call("XADD", self.dead, *fields)
            except StoreUnavailable as error:
                if "equal or smaller" not in said(error):
                    raise
                there = await self._connection.call("XRANGE", self.dead, *2 * [id_text(entry.id)])
                if not there:  # it was found to be bad later than one behind it
                    await self._connection.call("XADD", self.dead, "*", *fields[1:], "entry", id_text(entry.id))
