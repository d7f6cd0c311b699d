"""GET /sessions/{id}/metrics"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request

from service.api import schemas
from service.api.context import context, stamp
from service.sessions.measure import measured

router = APIRouter(tags=["sessions"], dependencies=[Depends(stamp)])


@router.get("/sessions/{id}/metrics", response_model=schemas.Metrics, summary="How well it goes")
async def metrics(id: str, request: Request) -> dict[str, Any]:
    """Every prediction counted here was made before its point was learned."""
    return measured(await context(request).ingest.current(id))
