"""The picture of a session."""

from __future__ import annotations

from dataclasses import asdict

from service.sessions.picture import disk
from service.sessions.published import published
from service.sessions.records import Loaded
from service.sessions.rows import Batch
from service.sessions.spec import references


def draw(loaded: Loaded, points: Batch) -> str:
    """A session's points and what its classifier makes of the disk, as SVG"""
    spec, model = loaded.spec, published(loaded.spec, loaded.state)
    return disk(
        algorithm=spec.algorithm,
        curvature=spec.curvature,
        labels=spec.labels,
        references=references(spec, loaded.state),
        weights=model["weights"],
        threshold=model["threshold"],
        X=points.X,
        indices=points.indices,
        counts={**asdict(loaded.counters), "status": loaded.status},
        title=spec.name or spec.id,
    )
