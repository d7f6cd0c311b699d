"""GET /sessions/{id}/metrics"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.api import schemas
from service.api.context import context, stamp
from service.api.formats import JSON
from service.api.writing import dump, offload
from service.sessions.measure import measured
from service.sessions.records import Loaded

router = APIRouter(tags=["sessions"])


@router.get("/sessions/{id}/metrics", response_model=schemas.Metrics, summary="How well it goes")
async def metrics(id: str, request: Request) -> Response:
    """Every prediction counted here was made before its point was learned."""
    loaded = await context(request).ingest.current(id)
    response = Response(await offload(len(loaded.spec.labels) ** 2, _written, loaded), media_type=JSON)
    await stamp(request, response)
    return response


def _written(loaded: Loaded) -> bytes:
    return dump(measured(loaded))
