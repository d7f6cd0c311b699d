"""GET /sessions/{id}/disk.svg: a picture."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.context import context, stamp
from service.sessions.drawing import draw

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
    points = await here.log.retained(loaded, DRAWN)
    drawn = await run_in_threadpool(draw, loaded, points)
    headers = {"ETag": f'"{loaded.counters.version}-{loaded.counters.observed}"', "Cache-Control": "no-cache"}
    response = Response(drawn, headers=headers, media_type="image/svg+xml")
    await stamp(request, response)
    return response
