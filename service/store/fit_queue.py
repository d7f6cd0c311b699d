"""Fits as jobs: what is kept of them in Redis, and who may work on one.

A fit waits in a queue, is claimed under a lease, and whoever holds the lease settles it. A worker that dies stops
renewing its lease; the queue says when to look again, and the next worker takes the fit up, MOST_ATTEMPTS times at the
most. Nothing else than its owner can settle it, so a worker that only seemed dead changes nothing.

Why not a job queue from the shelf: docs/fits.md.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from xxhash import xxh32_digest

from service.errors import (
    FitNotReady,
    KeyReused,
    OutcomeUnknown,
    RateLimited,
    SessionGone,
    StateCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownFit,
)
from service.sessions.saved_fit import SavedFit
from service.store import scripts
from service.store.connection import Connection
from service.store.fit_codec import fit_fields, read_fits, sealed, unsealed
from service.store.keys import (
    fit_models_key,
    fit_points_key,
    fit_queue_key,
    fits_key,
    log_key,
    session_keys,
    state_key,
)
from service.store.scripts import FitReply

#: Milliseconds that a worker may be silent before its fit is another's.
LEASE = 10_000
MOST_ATTEMPTS = 3
#: The newest fits that are kept, a session.
KEEP_FITS = 100
#: Bytes of points that are written or read in one go: the store serves nobody else meanwhile.
PIECE = 1 << 20
#: After this many seconds an entry of the queue without a fit behind it was never finished being asked for.
FORGOTTEN = 60.0


@dataclass(frozen=True)
class Job:
    session: str
    fit: str
    owner: bytes
    recipe: dict[str, Any]
    points: bytes


def name_of(key: str | None) -> str:
    """The id of a fit: after its idempotency key, so that the same key is the same fit"""
    return secrets.token_hex(8) if key is None else blake2b(key.encode(), digest_size=8).hexdigest()


class FitQueue:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -------------------------------------------------------------------------- who asks for it

    async def submit(
        self,
        sid: str,
        fit: str,
        fingerprint: bytes,
        recipe: dict[str, Any],
        points: bytes,
        *,
        ttl: int,
    ) -> bool:
        """Queue a fit; False: it was asked for before, with the same body. First its points, then the queue, so that
        none is lost, then the fit itself."""
        name, pieces = secrets.token_hex(8), range(0, len(points), PIECE)
        for number, at in enumerate(pieces):
            piece = (name, number, _sealed_piece(points[at : at + PIECE]), ttl)
            if not await self._connection.script(scripts.FIT_BRING, [state_key(sid), fit_points_key(sid)], *piece):
                raise SessionGone(sid)
        await self._connection.call("ZADD", fit_queue_key(), time.time(), f"{sid} {fit}", lost=OutcomeUnknown)
        arguments = (fit, fingerprint, sealed(recipe), KEEP_FITS, ttl, name, len(pieces))
        keys = [*_keys(sid), *session_keys(sid)]
        reply = await self._connection.script(scripts.FIT_OPEN, keys, *arguments, lost=OutcomeUnknown)
        if reply == FitReply.GONE:
            raise SessionGone(sid)
        if reply == FitReply.POINTS_GONE:
            raise StoreUnavailable("the store took too long over the points")
        if reply == FitReply.KEY_REUSED:
            raise KeyReused
        if reply == FitReply.TOO_MANY:
            raise RateLimited(f"{KEEP_FITS} fits of this session are unfinished", limit=KEEP_FITS)
        return bool(reply == FitReply.QUEUED)

    async def known(self, sid: str, fit: str, fingerprint: bytes) -> bool:
        """Whether it was asked for before; with another body is an error"""
        before = await self._connection.call("HGET", fits_key(sid), f"{fit}:fingerprint")
        if before not in (None, fingerprint):
            raise KeyReused
        return before is not None

    async def look(self, sid: str, fit: str) -> dict[str, Any]:
        found = [each for each in await self.all(sid) if each["id"] == fit]
        if not found:
            raise UnknownFit(fit)
        if found[0]["status"] in ("queued", "running"):  # the queue may have lost it: it may be on another server
            with suppress(StoreUnavailable, StoreFull, StoreReadOnly):
                await self._connection.call("ZADD", fit_queue_key(), "NX", time.time(), f"{sid} {fit}")
        return found[0]

    async def all(self, sid: str) -> list[dict[str, Any]]:
        """The fits of a session, newest first"""
        flat = await self._connection.call("HGETALL", fits_key(sid))
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        order = fields.get(b"order", b"").decode().split()
        return [_shown(fit, fields) for fit in reversed(order)]

    async def saved(self, sid: str) -> AsyncIterator[SavedFit]:
        """Those that have ended, oldest first, each with its model: for a snapshot"""
        flat = await self._connection.read("HGETALL", fits_key(sid))
        for each in read_fits(dict(zip(flat[::2], flat[1::2], strict=True))):
            model = await self._connection.read("HGET", fit_models_key(sid), each.id)
            if each.status != "done" or model is not None:  # it may have been forgotten meanwhile
                yield replace(each, model=model or b"")

    async def cancel(self, sid: str, fit: str) -> None:
        """End a fit that is under way; forget one that has ended"""
        if await self._connection.script(scripts.FIT_CANCEL, _keys(sid), fit, lost=OutcomeUnknown) == 0:
            raise UnknownFit(fit)
        await self._connection.call("ZREM", fit_queue_key(), f"{sid} {fit}")

    async def model(self, sid: str, fit: str) -> bytes:
        """The packed classifier of a fit that is done"""
        found: bytes | None = await self._connection.call("HGET", fit_models_key(sid), fit)
        if found is None:
            raise FitNotReady(fit, (await self.look(sid, fit))["status"])
        return found

    async def owner(self, sid: str, fit: str) -> str:
        """Who worked on it last. A fit may be forgotten and asked for anew under its key; no owner comes twice."""
        return (await self._connection.call("HGET", fits_key(sid), f"{fit}:owner") or b"").decode()

    # ------------------------------------------------------------------------- who works on it

    async def claim(self) -> Job | None:
        """A fit that waits, or whose worker is silent for too long"""
        passed = 0  # entries without a fit behind them, which nobody is to wait for
        while due := await self._due(passed):
            for entry, since in zip(due[::2], due[1::2], strict=True):
                sid, fit = entry.decode().split()
                owner = os.urandom(8).hex().encode()
                reply = await self._connection.script(scripts.FIT_CLAIM, _keys(sid), fit, owner, LEASE, MOST_ATTEMPTS)
                if isinstance(reply, list):
                    await self._look_again(sid, fit)
                    recipe, name, pieces = reply
                    return Job(sid, fit, owner, unsealed(recipe), await self._points(sid, name, int(pieces)))
                if reply > 0:
                    await self._connection.call("ZADD", fit_queue_key(), time.time() + reply / 1000, entry)
                elif reply == 0 or time.time() - float(since) > FORGOTTEN:
                    await self._connection.call("ZREM", fit_queue_key(), entry)
                else:
                    passed += 1
        return None

    async def _points(self, sid: str, name: bytes, pieces: int) -> bytes:
        """All of them, or none if the fit was cancelled just now (not through Lua: it would copy them)"""
        found = [
            await self._connection.call("HGET", fit_points_key(sid), name + b":%d" % number) for number in range(pieces)
        ]
        return b"" if None in found else b"".join(map(_unsealed_piece, found))

    async def _due(self, passed: int) -> list[bytes]:
        """Entries to look at now, each with since when, behind those that were passed over. None is put off for longer
        than a lease: what lies further ahead was entered by a clock that was ahead of ours, and is looked at, too"""
        now, few = time.time(), ("WITHSCORES", "LIMIT", passed, 16)
        found: list[bytes] = await self._connection.call("ZRANGEBYSCORE", fit_queue_key(), "-inf", now, *few)
        if not found and not passed:
            span = (now + 2 * LEASE / 1000, "+inf")
            found = await self._connection.call("ZRANGEBYSCORE", fit_queue_key(), *span, *few)
        return found

    async def beat(self, job: Job, progress: float) -> bool:
        """Still at it; False: stop"""
        reply = await self._connection.script(
            scripts.FIT_BEAT, _keys(job.session), job.fit, job.owner, LEASE, repr(progress)
        )
        if reply:
            await self._look_again(job.session, job.fit)
        return bool(reply)

    async def done(self, job: Job, report: dict[str, Any], model: bytes) -> None:
        await self._settle(job, "done", "report", sealed(report), model)

    async def failed(self, job: Job, failure: dict[str, Any]) -> None:
        await self._settle(job, "failed", "failure", sealed(failure))

    async def again(self, job: Job) -> None:
        """Its process died: back into the queue"""
        if await self._connection.script(scripts.FIT_SETTLE, _keys(job.session), job.fit, job.owner, "queued"):
            await self._connection.call("ZADD", fit_queue_key(), time.time(), f"{job.session} {job.fit}")

    async def _settle(self, job: Job, status: str, field: str, value: str, model: bytes = b"") -> None:
        arguments = (job.fit, job.owner, status, field, value, model)
        if await self._connection.script(scripts.FIT_SETTLE, _keys(job.session), *arguments):
            await self._connection.call("ZREM", fit_queue_key(), f"{job.session} {job.fit}")

    async def _look_again(self, sid: str, fit: str) -> None:
        await self._connection.call("ZADD", fit_queue_key(), "XX", time.time() + LEASE / 1000, f"{sid} {fit}")


def _keys(sid: str) -> list[str]:
    return [key(sid) for key in (fits_key, state_key, log_key, fit_points_key, fit_models_key)]


def shown(saved: SavedFit) -> dict[str, Any]:
    """A fit of a snapshot as it will be answered"""
    return _shown(saved.id, fit_fields(saved))


def _shown(fit: str, fields: dict[bytes, bytes]) -> dict[str, Any]:
    """A fit as it is answered"""

    def get(name: str) -> bytes | None:
        return fields.get(f"{fit}:{name}".encode())

    def instant(name: str) -> str | None:
        ms = get(name)
        return None if ms is None else datetime.fromtimestamp(int(ms) / 1000, UTC).isoformat()

    report, failure, status = get("report"), get("failure"), (get("status") or b"").decode()
    if status not in STATUSES:
        raise StateCorrupt(f"the status of fit {fit!r} is damaged")
    return {
        "id": fit,
        "status": status,
        "progress": float(get("progress") or 0),
        **unsealed(get("recipe") or b"{}").get("asked", {}),
        "created_at": instant("created"),
        "started_at": instant("started"),
        "finished_at": instant("finished"),
        "attempts": int(get("attempts") or 0),
        "failure": None if failure is None else unsealed(failure),
        **dict.fromkeys(REPORTED),
        **({} if report is None else unsealed(report)),
    }


def _sealed_piece(rows: bytes) -> bytes:
    """Four bytes more than a multiple of eight, by which it is told from a piece without a checksum"""
    return rows + xxh32_digest(rows)


def _unsealed_piece(stored: bytes) -> bytes:
    if len(stored) % 8 == 0:
        return stored
    if stored[-4:] != xxh32_digest(stored[:-4]):
        raise StateCorrupt("the points of a fit are damaged")
    return stored[:-4]


#: What a fit's status may be.
STATUSES = ("queued", "running", "done", "failed", "cancelled")


REPORTED: Sequence[str] = (
    "points",
    "certificate",
    "support_vectors",
    "training_accuracy",
    "references",
    "reference_methods",
    "iterations",
    "stopped",
    "seconds",
)
