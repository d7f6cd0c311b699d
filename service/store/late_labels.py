"""Points that wait for their labels, by id. Their labels are learned by a commit like any other (sessions.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from hashlib import blake2b

from service.errors import IdReused, RateLimited, SessionGone, StateCorrupt
from service.sessions.records import Waiting
from service.sessions.spec import Spec
from service.store import scripts
from service.store.connection import Connection
from service.store.keys import ids_key, settled_key, state_key, waiting_key

#: Ids of points that have their labels, or expired, that are remembered: the newest.
KEEP_IDS = 100_000
#: Bytes of the points of a session that may wait, and what one takes beside its coordinates: an id, thrice, in hashes
#: and sorted sets.
WAITING_BYTES, OVERHEAD = 64 << 20, 600
#: How many ids are asked about in one go: Redis takes a million arguments, and serves nobody else meanwhile.
ASKED = 10_000
#: Points whose fingerprints are made on the event loop.
FEW = 1000
#: Those without a point are all the same: nothing is made for each of half a million.
UNKNOWN, LEARNED, EXPIRED = Waiting("unknown"), Waiting("learned"), Waiting("expired")


class LateLabels:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def wait(self, spec: Spec, points: Sequence[tuple[str, bytes]], *, ttl: float, limit: int) -> None:
        """Keep these points, by id, until their labels come or the time is over."""
        limit = min(limit, max(WAITING_BYTES // (8 * spec.dimension + OVERHEAD), 1))
        if len(points) > limit:
            raise RateLimited(f"{limit} points may wait for their labels", limit=limit)
        keys = [key(spec.id) for key in (state_key, ids_key, waiting_key, settled_key)]
        entries = await asyncio.to_thread(_entries, points) if len(points) > FEW else _entries(points)
        arguments = (round(1000 * ttl), limit, KEEP_IDS, spec.ttl_seconds or 0, *entries)
        reply = await self._connection.script(scripts.WAIT, keys, *arguments)
        if isinstance(reply, list):
            raise IdReused(reply[0], str(json.loads(points[reply[0]][0])))
        if reply == 0:
            raise SessionGone(spec.id)
        if reply == -1:
            raise RateLimited(f"{limit} points wait for their labels already", limit=limit)

    async def look(self, sid: str, ids: Sequence[str]) -> list[Waiting]:
        """What became of each id"""
        found: list[Waiting] = []
        for at in range(0, len(ids), ASKED):
            keys = [state_key(sid), ids_key(sid)]
            now, number, *entries = await self._connection.script(scripts.WAITING, keys, *ids[at : at + ASKED])
            found += [_waiting(entry, now, number) for entry in entries]
        return found


def _entries(points: Sequence[tuple[str, bytes]]) -> list[str | bytes]:
    return [part for id, point in points for part in (id, _fingerprint(point), point)]


def _fingerprint(point: bytes) -> bytes:
    return blake2b(point, digest_size=8).digest()


def _waiting(entry: bytes | None, now: int, number: int) -> Waiting:
    """lua/wait.lua says what the bytes mean"""
    if entry is None:
        return UNKNOWN
    letter, rest = entry[:1], entry[9:]
    if letter == b"P":
        letter, rest = b"L" if int.from_bytes(rest[:8], "big") <= number else b"W", rest[8:]
    if letter == b"L":
        return LEARNED
    if letter not in (b"E", b"W") or (letter == b"W" and _fingerprint(rest[8:]) != entry[1:9]):
        raise StateCorrupt("a point that waits for its label is damaged")
    if letter == b"E" or int.from_bytes(rest[:8], "big") <= now:
        return EXPIRED
    return Waiting("waiting", rest[8:])
