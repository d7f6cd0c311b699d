"""The picture of a session."""

from __future__ import annotations

from dataclasses import asdict

from service.errors import outer
from service.sessions.picture import disk
from service.sessions.published import published
from service.sessions.records import Loaded, Status
from service.sessions.rows import Batch


def draw(loaded: Loaded, points: Batch) -> str:
    """A session's points and what its classifier makes of the disk, as SVG"""
    spec, counters, model = loaded.spec, loaded.counters, published(loaded.spec, loaded.state)
    status = loaded.status
    if status == Status.WARMING:
        status = f"warming, {min(counters.observed, spec.warmup):,} of {spec.warmup:,}"
    return disk(
        algorithm=spec.algorithm,
        curvature=spec.curvature,
        labels=spec.labels,
        references=model["reference"],
        weights=model["weights"],
        threshold=model["threshold"],
        features=model.get("features"),
        classes=model.get("classes"),
        members=model.get("members"),
        X=points.X,
        indices=points.indices,
        counts={**asdict(counters), "status": status},
        title=spec.name or outer(spec.id),
    )
