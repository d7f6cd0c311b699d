"""What is proven of a session: the certificates of its learners, and the best margin of the retained points."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from service.batch import svm
from service.errors import EmptyClass, InvalidParameter, NotSeparable
from service.geometry import lift
from service.learners.certificates import Certificate, certificate
from service.sessions.records import Loaded
from service.sessions.rows import Batch


def best_margins(loaded: Loaded, points: Batch) -> list[float | None]:
    """The largest ε that a classifier through p has on these points, a class; None where none separates them

    A hard margin in lifted coordinates: min y⟨w,z⟩/‖w‖ = sinh ε.
    """
    spec = loaded.spec
    if spec.algorithm == "hyperboloid":
        raise InvalidParameter("margin", "best", "a number: a hyperboloid perceptron has no reference point to fit at")
    X, indices = points.X, points.indices
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
