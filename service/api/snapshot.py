"""GET /sessions/{id}/snapshot: a session as one JSON document, or in pieces, which POST /sessions opens elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from tempfile import TemporaryFile
from typing import IO, Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from service.api.context import Context, context, stamp
from service.api.formats import NDJSON
from service.api.writing import offload
from service.errors import AnswerTooLarge, RateLimited, StoreFull, outer
from service.learners import encode
from service.sessions import snapshot, snapshot_pieces
from service.sessions.records import Kept, Loaded
from service.sessions.saved_fit import SavedFit

router = APIRouter(tags=["sessions"])
#: How often the points are read anew, because some were trimmed while they were read.
ATTEMPTS = 8
#: Bytes that are read or written in one go.
STEP = 1 << 20


@router.get("/sessions/{id}/snapshot", summary="Export a session")
async def export(
    id: str,
    request: Request,
    points: Annotated[bool, Query(description="the retained points too")] = True,
    format: Annotated[Literal["json", "ndjson"] | None, Query(description="or by Accept")] = None,
) -> Response:
    """`POST /sessions {"snapshot": …}` goes on with it elsewhere, with the same predictions and fits. A large session
    comes as NDJSON, in pieces, and `POST /sessions` takes those lines as its body. Idempotency keys, events, points
    that wait for labels and fits under way stay behind."""
    here = context(request)
    lines = NDJSON in request.headers.get("accept", "") if format is None else format == "ndjson"
    response = await (_in_pieces if lines else _whole)(here, id, points)
    response.headers["Content-Disposition"] = f'attachment; filename="{outer(id)}.{"ndjson" if lines else "json"}"'
    await stamp(request, response)
    return response


async def _whole(here: Context, id: str, points: bool) -> Response:
    loaded = await here.ingest.current(id)
    retained = min(loaded.spec.keep_points, loaded.counters.observed) * loaded.spec.row_bytes if points else 0
    _require_short(here, retained + loaded.learner_bytes)
    fits, size = list[SavedFit](), retained + loaded.learner_bytes
    async for saved in here.fits.saved(id):
        fits.append(saved)
        size += len(saved.model)
        _require_short(here, size)
    kept = await here.store.kept(id, points=points)
    body = await offload(size, _written, Kept(kept.loaded, kept.batch, tuple(fits)))
    return Response(body, media_type="application/json")


def _require_short(here: Context, size: int) -> None:
    if 4 * size > 3 * here.settings.body_limit:  # as base64
        instead = f"ask for it in pieces, with Accept: {NDJSON} or format=ndjson"
        raise AnswerTooLarge(f"{size} bytes of points, learner and fits", here.settings.body_limit * 3 // 4, instead)


def _written(kept: Kept) -> bytes:
    return orjson.dumps(snapshot.export(kept))


# ----------------------------------------------------------------------------------------------------- in pieces


async def _in_pieces(here: Context, id: str, points: bool) -> Response:
    """Written to a temporary file first: at the pace of the store, not of whoever reads the answer, while the session
    goes on and trims its log"""
    await here.ingest.current(id)
    file: IO[bytes] = TemporaryFile()
    try:
        size = await _spooled(here, id, points, file)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError):
            raise StoreFull("there is no room for the snapshot in the service's temporary folder") from error
        raise
    return StreamingResponse(_read(file), headers={"Content-Length": str(size)}, media_type=NDJSON)


async def _spooled(here: Context, id: str, points: bool, file: IO[bytes]) -> int:
    rows: IO[bytes]
    with TemporaryFile() as rows:
        loaded, count = await _points(here, id, points, rows)
        state = await asyncio.to_thread(encode, loaded.state)
        out = _Digesting(file)
        await asyncio.to_thread(out.write, [snapshot_pieces.head(loaded, state, count)])
        await asyncio.to_thread(out.write, snapshot_pieces.pieces("state", state))
        step = STEP // loaded.spec.row_bytes * loaded.spec.row_bytes
        rows.seek(0)
        while data := await asyncio.to_thread(rows.read, step):
            await asyncio.to_thread(out.write, snapshot_pieces.pieces("points", data, step))
    async for saved in here.fits.saved(id):
        await asyncio.to_thread(out.write, snapshot_pieces.fit(saved))
    await asyncio.to_thread(out.write, [snapshot_pieces.line({"digest": out.digest.hexdigest()})])
    return out.size


async def _points(here: Context, id: str, points: bool, rows: IO[bytes]) -> tuple[Loaded, int]:
    """The session at one moment, and its retained points, oldest first, in `rows`; how many they are. Where some were
    trimmed meanwhile both are read anew; points that are missing twice in the same place are not kept."""
    before = -1
    for _ in range(ATTEMPTS):
        loaded = await here.store.load(id)
        observed = loaded.counters.observed
        oldest = max(observed - loaded.spec.keep_points, 0) if points else observed
        first = reached = oldest
        if oldest < observed:
            async for part in here.log.parts(loaded, oldest, observed):
                if part.data is None or part.begin > reached:
                    first = part.end if part.data is None else part.begin
                    await asyncio.to_thread(_emptied, rows)
                await asyncio.to_thread(rows.write, part.data or b"")
                reached = part.end
        if first in (oldest, before):
            return loaded, observed - first
        before = first
        await asyncio.to_thread(_emptied, rows)
    raise RateLimited("the session is written to faster than its points can be read; try again", limit=ATTEMPTS)


def _emptied(file: IO[bytes]) -> None:
    file.seek(0)
    file.truncate()


class _Digesting:
    """Lines into a file, counted and digested"""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest, self.size = file, sha256(), 0

    def write(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._file.write(line)
            self.digest.update(line)
            self.size += len(line)


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        await asyncio.to_thread(file.seek, 0)
        while data := await asyncio.to_thread(file.read, STEP):
            yield data
