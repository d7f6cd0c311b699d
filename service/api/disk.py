"""GET /sessions/{id}/disk.svg: a picture."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.context import context, stamp
from service.sessions.picture import disk
from service.sessions.records import Loaded
from service.sessions.spec import published, references

#: How many of the retained points are drawn: the newest.
DRAWN = 10_000
router = APIRouter(tags=["sessions"])


@router.get(
    "/sessions/{id}/disk.svg",
    response_class=Response,
    responses={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}},
    summary="A picture",
)
async def picture(id: str, request: Request) -> Response:
    """The newest points, the geodesic boundary, the strategic band. More than two dimensions: a projection."""
    here = context(request)
    loaded = await here.ingest.current(id)
    points = await here.store.newest(loaded.spec, DRAWN)
    drawn = await run_in_threadpool(draw, loaded, points)
    headers = {"ETag": f'"{loaded.counters.version}-{loaded.counters.observed}"', "Cache-Control": "no-cache"}
    response = Response(drawn, headers=headers, media_type="image/svg+xml")
    await stamp(request, response)
    return response


def draw(loaded: Loaded, points: bytes) -> str:
    spec, model = loaded.spec, published(loaded.spec, loaded.state)
    rows = np.frombuffer(points, dtype="<f8").reshape(-1, spec.dimension + 1)[-DRAWN:]
    return disk(
        algorithm=spec.algorithm,
        curvature=spec.curvature,
        labels=spec.labels,
        references=references(spec, loaded.state),
        weights=model["weights"],
        threshold=model["threshold"],
        X=np.ascontiguousarray(rows[:, :-1]),
        indices=rows[:, -1].astype(np.int64),
        counts={**asdict(loaded.counters), "status": loaded.status},
        title=spec.name or spec.id,
    )
