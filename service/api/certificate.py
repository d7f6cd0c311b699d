"""GET /sessions/{id}/certificate?margin=ε: the mistakes so far beside the proven bounds."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from service.api.context import context, stamp
from service.api.schemas import Certified
from service.batch import svm
from service.errors import EmptyClass, InvalidParameter, NotSeparable
from service.geometry import Array, lift
from service.learners.certificates import Certificate, certificate
from service.sessions.records import Loaded

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
    points = await here.store.newest(loaded.spec, here.settings.fit_points)
    rows = np.frombuffer(points, dtype="<f8").reshape(-1, loaded.spec.dimension + 1)
    margins = await run_in_threadpool(best_margins, loaded, rows)
    return {**certified(loaded, margins), "points": len(rows), "whole_stream": len(rows) == loaded.counters.observed}


def best_margins(loaded: Loaded, rows: Array) -> list[float | None]:
    """The largest ε that a classifier through p has on these points, a class; None where none separates them

    A hard margin in lifted coordinates: min y⟨w,z⟩/‖w‖ = sinh ε.
    """
    spec = loaded.spec
    if spec.algorithm == "hyperboloid":
        raise InvalidParameter("margin", "best", "a number: a hyperboloid perceptron has no reference point to fit at")
    X, indices = np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64)
    counts = np.bincount(indices, minlength=len(spec.labels))
    if not counts.all():
        raise EmptyClass(spec.labels[int(np.argmin(counts))])
    found: list[float | None] = []
    for j, member in enumerate([loaded.state] if spec.binary else loaded.state.members):
        y = np.where(indices == (1 if spec.binary else j), 1, -1)
        Z = lift(member.p / math.sqrt(spec.curvature), X, c=spec.curvature)
        try:
            w = svm.fit(Z, y, margin="hard").w
        except NotSeparable:
            found.append(None)
        else:
            margin = math.asinh(float((y * (Z @ w)).min() / np.sqrt(w @ w))) / math.sqrt(spec.curvature)
            found.append(margin if margin > 0 else None)
    return found


def certified(loaded: Loaded, margins: list[float | None]) -> dict[str, Any]:
    counters = {"mistakes": loaded.counters.mistakes, "observed": loaded.counters.observed}
    if loaded.spec.binary:
        return {**asdict(certificate(loaded.state, margins[0])), **counters, "classes": None}
    members = loaded.state.members
    proofs = tuple(certificate(member, margin) for member, margin in zip(members, margins, strict=True))
    named = [{"label": label, **asdict(proof)} for label, proof in zip(loaded.spec.labels, proofs, strict=True)]
    smallest = None if None in margins else min(margin for margin in margins if margin is not None)
    return {**asdict(_together(proofs, loaded.counters.updates, smallest)), **counters, "classes": named}


def _together(proofs: tuple[Certificate, ...], updates: int, margin: float | None) -> Certificate:
    """Of all classes: the sum of their bounds, the smallest of their largest margins"""
    bounds, caps = [p.bound for p in proofs], [p.largest_margin for p in proofs if p.largest_margin is not None]
    return Certificate(
        updates=updates,
        radius=max(p.radius for p in proofs),
        margin=margin,
        bound=None if None in bounds else sum(b for b in bounds if b is not None),
        largest_margin=min(caps) if caps else None,
        disproved=None if margin is None else any(p.disproved for p in proofs),
    )


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter("margin", text[:100], "a positive number, or best") from None
