"""GET /sessions/{id}/log: the retained points by position. GET /sessions/{id}/at/{position}/model: the past."""

from __future__ import annotations

import io
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.context import context, stamp
from service.api.formats import JSON, NDJSON, NPY
from service.api.schemas import LogPage, Model
from service.api.writing import dump, offload
from service.errors import InvalidParameter
from service.sessions import rows
from service.sessions.published import published
from service.sessions.records import Loaded
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from service.store.log import Page

router = APIRouter(tags=["log"], dependencies=[Depends(stamp)])
#: Points of one page at the most, and numbers.
MOST, NUMBERS = 100_000, 1 << 20
FORMATS = {"json": JSON, "ndjson": NDJSON, "npy": NPY}
Format = Literal["json", "ndjson", "npy"]


@router.get("/sessions/{id}/log", response_model=LogPage, summary="The retained points, in the order they were learned")
async def page(
    id: str,
    request: Request,
    start: Annotated[int, Query(alias="from", ge=0, le=10**15, description="the position of the first point")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 1000,
    format: Annotated[Format | None, Query(description="or by Accept")] = None,
) -> Response:
    """Positions count from 0. A page may have fewer points than `limit`; `next` is where to go on, and null at the end.
    A `from` that is no longer kept is 410 with the `first` that is. In npy rows the last column is the label's index;
    `Horocycle-Next` is where to go on."""
    here = context(request)
    loaded = await here.ingest.current(id)
    found = await here.log.page(loaded, start, min(limit, max(NUMBERS // (loaded.spec.dimension + 1), 1)))
    kind = FORMATS[format] if format else _accepted(request.headers.get("accept", ""))
    body = await run_in_threadpool(_written, kind, loaded.spec, found)
    headers = {"Horocycle-From": str(found.start), "Horocycle-To": str(found.stop)}
    if found.following is not None:
        headers["Horocycle-Next"] = str(found.following)
    response = Response(body, headers=headers, media_type=kind)
    await stamp(request, response)
    return response


def _accepted(header: str) -> str:
    return next((kind for kind in (NDJSON, NPY) if kind in header), JSON)


def _written(kind: str, spec: Spec, page: Page) -> bytes:
    if kind == NPY:
        file = io.BytesIO()
        np.lib.format.write_array(file, rows.table(page.data, spec.dimension), version=(1, 0), allow_pickle=False)
        return file.getvalue()
    batch = rows.unpack(page.data, spec.dimension)
    labels = spec.names(batch.indices)
    if kind == NDJSON:
        return _lines(batch, labels, page.start)
    told = {"from": page.start, "to": page.stop, "points": batch.X, "labels": labels, "next": page.following}
    return dump(told)


def _lines(batch: Batch, labels: list[Any], start: int) -> bytes:
    lines = zip(batch.X.tolist(), labels, strict=True)
    return b"".join(
        orjson.dumps({"position": start + i, "point": x, "label": label}) + b"\n" for i, (x, label) in enumerate(lines)
    )


@router.get("/sessions/{id}/at/{position}/model", response_model=Model, summary="The classifier as it was")
async def model_at(id: str, position: int, request: Request) -> Response:
    """After that many points, and every commit at that position; 410 before the oldest checkpoint of the log."""
    here = context(request)
    loaded = await here.ingest.current(id)
    if not 0 <= position <= loaded.counters.observed:
        raise InvalidParameter("position", position, f"from 0 to {loaded.counters.observed}, the points observed")
    was = await here.log.at(loaded, position)
    response = Response(await offload(loaded.learner_bytes, model_body, was), media_type=JSON)
    await stamp(request, response)
    return response


def model_body(loaded: Loaded) -> bytes:
    """The published classifier as JSON: of many classes and dimensions it is too much for FastAPI to check again"""
    counters = loaded.counters
    return dump({**published(loaded.spec, loaded.state), "updates": counters.updates, "version": counters.version})
