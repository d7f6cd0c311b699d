"""POST /sessions with a snapshot in pieces: read a line at a time, staged, and opened when the last line fits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from service.api.admission import require_room, tenant_in
from service.api.bodies import is_in_pieces
from service.api.context import Context, context, stamp
from service.api.formats import NDJSON, load_json, media_type
from service.api.opening import possible, session_of
from service.api.schemas import ID, Session
from service.errors import BodyTooLarge, InvalidSnapshot, MalformedBody, StoreUnavailable
from service.sessions import rows, saved_fits, snapshot, snapshot_pieces
from service.sessions.records import Loaded
from service.sessions.rows import Batch
from service.sessions.showing import shown
from service.sessions.spec import Spec
from service.sessions.tenants import inner, outer
from service.store.fit_queue import KEEP_FITS
from service.store.staging import Staging


class InPieces(APIRoute):
    """For bodies of NDJSON; those of JSON are another route's"""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and not is_in_pieces(scope):
            return Match.NONE, {}
        return super().matches(scope)


router = APIRouter(tags=["sessions"], route_class=InPieces)


@router.post(
    "/sessions", status_code=201, response_model=Session, dependencies=[Depends(stamp)], include_in_schema=False
)
async def import_pieces(
    request: Request,
    response: Response,
    id: Annotated[str | None, Query(pattern=ID)] = None,
    name: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    here, tenant = context(request), tenant_in(request.scope)
    media_type(request.headers.get("content-type"), request.headers.get("content-encoding"), (NDJSON,))
    await require_room(here, request.scope)
    lines = Lines(request.stream(), here.settings.body_limit)
    try:
        head = await lines.following()
        session = session_of(snapshot_pieces.check(head), id, name)
        spec = session.spec()
        loaded = await _opened(here, lines, head, replace(spec, id=inner(tenant, spec.id)))
    except ClientDisconnect:
        raise MalformedBody("the connection was closed before the body was whole") from None
    response.headers["Location"] = f"/sessions/{outer(loaded.spec.id)}"
    return shown(loaded)


async def _opened(here: Context, lines: Lines, head: dict[str, Any], spec: Spec) -> Loaded:
    """Nothing is seen of it before the last line; what is staged of one that fails is dropped"""
    size, points = await asyncio.to_thread(snapshot_pieces.sizes, head, spec)
    state = await lines.collected("state", size)
    loaded = await asyncio.to_thread(snapshot.read_session, head, state, spec)
    staged = here.store.staging(spec)
    try:
        await _stage_points(lines, staged, loaded, points)
        await _stage_fits(lines, staged, loaded)
        return await here.store.open(loaded, staged=staged)
    finally:
        with suppress(StoreUnavailable):
            await staged.drop()


async def _stage_points(lines: Lines, staged: Staging, loaded: Loaded, points: int) -> None:
    spec, observed = loaded.spec, loaded.counters.observed
    if points > observed:
        raise InvalidSnapshot("the snapshot has more points than were observed")
    position = observed - points
    while position < observed:
        data = await lines.piece("points")
        batch = await asyncio.to_thread(_checked, spec, data, observed - position)
        position += len(batch)
        await staged.points(batch, position, loaded)


def _checked(spec: Spec, data: bytes, most: int) -> Batch:
    """The points of a line, at least one, and so many at the most"""
    snapshot.check_points(spec, data, most)
    if not data:
        raise InvalidSnapshot("a line of the snapshot's points is empty")
    return rows.unpack(data, spec.dimension)


async def _stage_fits(lines: Lines, staged: Staging, loaded: Loaded) -> None:
    """Up to the last line, which has the digest"""
    names = set[str]()
    while "digest" not in (document := await lines.following()):
        told, size = snapshot_pieces.read_fit(document)
        model = await lines.collected("model", size)
        saved = possible(await asyncio.to_thread(saved_fits.from_json, told, loaded.spec, model))
        names.add(saved.id)
        if len(names) != staged.fits + 1 or len(names) > KEEP_FITS:
            raise InvalidSnapshot(f"the snapshot has a fit twice, or more than {KEEP_FITS}")
        await staged.fit(saved)
    await lines.require_end()
    if document != {"digest": lines.digest}:
        raise InvalidSnapshot("the digest does not match: the snapshot is damaged")


class Lines:
    """The lines of a body, none longer than `limit`. `digest` is that of all before the one that was read last."""

    def __init__(self, chunks: AsyncIterator[bytes], limit: int) -> None:
        self._chunks, self._limit = chunks, limit
        self._buffer, self._searched, self._digest, self._last = bytearray(), 0, sha256(), b""

    async def following(self) -> dict[str, Any]:
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > self._limit:
                raise BodyTooLarge(self._limit, "bytes in one line")
            if (chunk := await anext(self._chunks, None)) is None:
                raise InvalidSnapshot("the snapshot ends before its last line, which has its digest")
            self._buffer += chunk
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        self._searched = 0
        return await asyncio.to_thread(self._read, line)

    def _read(self, line: bytes) -> dict[str, Any]:
        self._digest.update(self._last)
        self._last = line
        document = load_json(line)
        if not isinstance(document, dict):
            raise InvalidSnapshot("a line of the snapshot is not an object")
        return document

    async def piece(self, name: str) -> bytes:
        """The next line, which has a piece of that part"""
        return await asyncio.to_thread(snapshot_pieces.read_piece, await self.following(), name)

    async def collected(self, name: str, size: int) -> bytes:
        """The pieces of one part, which has so many bytes"""
        parts, left = list[bytes](), size
        while left > 0:
            parts.append(await self.piece(name))
            left -= len(parts[-1])
            if left < 0 or not parts[-1]:
                raise InvalidSnapshot(f"the snapshot's {name} does not have its {size} bytes")
        return b"".join(parts)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    async def require_end(self) -> None:
        if self._buffer.strip() or [True async for each in self._chunks if each.strip()]:
            raise InvalidSnapshot("the snapshot goes on behind its last line")
