"""GET /sessions/{id}/certificate?margin=ε: the mistakes so far beside the proven bounds."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from service.api.context import context, stamp
from service.api.schemas import Certified
from service.errors import InvalidParameter
from service.sessions.certify import best_margins, certified

router = APIRouter(tags=["sessions"], dependencies=[Depends(stamp)])
Margin = Annotated[str | None, Query(description="ε > 0, of some classifier through the reference point; or best")]


@router.get("/sessions/{id}/certificate", response_model=Certified, summary="What is proven")
async def certify(id: str, request: Request, margin: Margin = None) -> dict[str, Any]:
    """`bound` is on the updates since the reference point is what it is. For K > 2 labels every class has a proof; a
    wrong prediction is an update of at least one of them, so their sum bounds the mistakes. `margin=best`: the largest
    margin of the retained points, found by a hard-margin fit."""
    here = context(request)
    loaded = await here.ingest.current(id)
    if margin != "best":
        return certified(loaded, [_number(margin)] * (1 if loaded.spec.binary else len(loaded.spec.labels)))
    points = await here.log.retained(loaded, here.settings.fit_points)
    margins = await run_in_threadpool(best_margins, loaded, points)
    return {
        **certified(loaded, margins),
        "points": len(points),
        "whole_stream": len(points) == loaded.counters.observed,
    }


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter("margin", text[:100], "a positive number, or best") from None
