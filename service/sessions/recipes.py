"""What a fit is to be: the fields of POST /sessions/{id}/fits, with what only the session knows filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from service.batch.classifier import Recipe, require
from service.errors import InvalidParameter
from service.geometry import require_ball
from service.sessions.records import Loaded
from service.sessions.rows import Batch
from service.sessions.spec import references


def recipe(asked: Mapping[str, Any], loaded: Loaded) -> Recipe:
    spec, given = loaded.spec, asked["reference"]
    if asked["kind"] == "softmax" and asked["margin"] == "hard":
        raise InvalidParameter("margin", "hard", "soft: a softmax has no margin")
    if asked["kind"] == "softmax" or asked["features"] == "hyperboloid":
        given = "hull"  # not asked for: there is none
    elif given == "session":
        given = references(spec, loaded.state)
        if given is None:
            raise InvalidParameter("reference", "session", "another: a hyperboloid session has no reference point")
    elif isinstance(given, list):
        given = given if given and isinstance(given[0], list) else [given]
        for point in given:
            require_ball([point], spec.dimension, c=spec.curvature)
    features = "hyperboloid" if asked["kind"] == "softmax" else asked["features"]
    fields = {name: asked[name] for name in ("kind", "margin", "loss", "C", "probabilities")}
    return Recipe(**fields, features=features, reference=given)


def job(asked: Mapping[str, Any], loaded: Loaded, points: Batch, limit: int) -> dict[str, Any]:
    """All that the process that fits has to know beside the points; refused if these cannot be fitted"""
    found, spec = recipe(asked, loaded), loaded.spec
    require(found, spec.labels, points.indices, limit)
    return {
        "recipe": asdict(found),
        "asked": dict(asked),
        "dimension": spec.dimension,
        "classes": len(spec.labels),
        "curvature": spec.curvature,
    }
