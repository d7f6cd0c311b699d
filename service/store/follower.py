"""Waiting for new entries of many logs on one connection: a blocking read for all of them, fanned out in the worker.

A feed is the newest entries of one log that came in while somebody followed it. Whoever is behind its beginning reads
the log itself until they have caught up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from service.errors import HorocycleError, StateCorrupt
from service.sessions.records import EntryId
from service.store import codec
from service.store.codec import Record
from service.store.connection import Connection
from service.store.keys import log_key
from service.store.log import Log

log = logging.getLogger(__name__)
#: Entries of a log that are kept for those who follow it.
KEPT = 64
#: Seconds that one blocking read lasts, and a pause when the store does not answer.
BLOCK, PAUSE = 5.0, 0.2
#: Seconds that a reader waits before it begins: those who come together are read for together.
GATHER = 0.005
END = EntryId(10**18 - 1, 10**18 - 1)


@dataclass
class Feed:
    start: EntryId  # it has every entry behind this one
    newest: EntryId
    records: deque[Record] = field(default_factory=deque)
    followers: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, record: Record) -> None:
        self.records.append(record)
        self.newest = record.id
        if len(self.records) > KEPT:
            self.start = self.records.popleft().id
        self.news.set()
        self.news = asyncio.Event()


class Follower:
    def __init__(self, connection: Connection) -> None:
        self._connection, self._log = connection, Log(connection)
        self._feeds: dict[str, Feed] = {}
        self._reader: asyncio.Task[None] | None = None

    @contextmanager
    def following(self, sid: str, newest: EntryId) -> Iterator[None]:
        """Take part in the feed of a log, whose newest entry is this or a later one"""
        feed = self._feeds.get(sid)
        if feed is None:
            feed = self._feeds[sid] = Feed(newest, newest)
            self._restart()
        feed.followers += 1
        try:
            yield
        finally:
            feed.followers -= 1
            if not feed.followers:
                del self._feeds[sid]

    async def after(self, sid: str, id: EntryId, seconds: float) -> list[Record]:
        """The entries behind that one, oldest first; waits for some if there are none yet"""
        feed = self._feeds[sid]
        if id < feed.start:
            return await self._log.records(sid, f"({id}", END)
        news = feed.news
        found = [record for record in feed.records if record.id > id]
        if found or not seconds:
            return found
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(news.wait(), seconds)
        return [record for record in feed.records if record.id > id]

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader

    # ------------------------------------------------------------------------------- the one reader

    def _restart(self) -> None:
        """Read on, with all the logs there are now"""
        if self._reader is not None:
            self._reader.cancel()  # which drops its connection; what it did not take in is read again
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        await asyncio.sleep(GATHER)
        while self._feeds:
            feeds = dict(self._feeds)
            try:
                await self._read_once(feeds)
            except HorocycleError:  # the store is away; who follows hears of it from their own calls
                await asyncio.sleep(PAUSE)

    async def _read_once(self, feeds: dict[str, Feed]) -> None:
        positions = {log_key(sid): str(feed.newest) for sid, feed in feeds.items()}
        reply = await self._connection.follow(positions, KEPT, BLOCK)
        names = {log_key(sid).encode(): feed for sid, feed in feeds.items()}
        for name, entries in reply:
            for entry in entries:
                try:
                    names[name].add(codec.read_record(entry))
                except StateCorrupt as error:  # left out: who follows sees the gap, and other logs go on
                    log.error("%s: %s", name.decode(), error.detail)
                    names[name].newest = EntryId.parse(entry[0].decode())
