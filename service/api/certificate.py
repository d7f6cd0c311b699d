"""GET /sessions/{id}/certificate?margin=ε&loss=hinge: the mistakes so far beside what is proven of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from service.api.context import context, stamp
from service.api.schemas import Certified
from service.errors import InvalidParameter
from service.sessions.certify import certified

router = APIRouter(tags=["sessions"], dependencies=[Depends(stamp)])
Margin = Annotated[
    str | None,
    Query(description="ε > 0, of some classifier through the reference point (without one: γ, on φ); or best"),
]
Loss = Annotated[Literal["hinge"] | None, Query(description="bounds that need no margin, where the log is whole")]


@router.get("/sessions/{id}/certificate", response_model=Certified, summary="What is proven")
async def certify(id: str, request: Request, margin: Margin = None, loss: Loss = None) -> dict[str, Any]:
    """`error_rate` holds on any stream, at all times at once. `bound` is on the updates, if the margin is one of the
    stream; for K > 2 labels every class has a proof. `margin=best`: the largest margin of the retained points, found by
    a hard-margin fit. `loss=hinge`: bounds by the hinge losses of an SVM, without a margin. `vote`: the weighted
    majority's, of `auto`. `notes` say what the numbers do not."""
    here = context(request)
    loaded, best, hinge = await here.ingest.current(id), margin == "best", loss == "hinge"
    number = None if best else _number(margin)
    points = await here.log.retained(loaded, here.settings.fit_points) if best or hinge else None
    return await run_in_threadpool(certified, loaded, number, points, best=best, hinge=hinge)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter("margin", text[:100], "a positive number, or best") from None
