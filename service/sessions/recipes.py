"""What a fit is to be: the fields of POST /sessions/{id}/fits, with what was left out filled in.

A fit without words is the one that wins on the real data (docs/fits.md): a softmax on the hemisphere. A word that only
an svm understands makes it an svm: on the hemisphere too, unless it names a reference point or features that need one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from service.batch import hemisphere_softmax
from service.batch.classifier import PLAIN, Recipe, require
from service.errors import InvalidParameter
from service.geometry import require_ball
from service.sessions.records import Loaded
from service.sessions.rows import Batch
from service.sessions.spec import references

#: The words of an svm
OF_AN_SVM = ("margin", "loss", "reference")
C = {"svm": 1.0, "softmax": hemisphere_softmax.C}


def resolved(asked: Mapping[str, Any], loaded: Loaded | None) -> dict[str, Any]:
    """The fields, each with its value; None where there is nothing to choose. Without a session it has no point"""
    words = {name: asked.get(name) for name in OF_AN_SVM}
    told, features = [name for name, value in words.items() if value is not None], asked.get("features")
    lifted = features in ("tangent", "lift")
    kind = asked.get("kind") or ("svm" if told or lifted else "softmax")
    if kind == "softmax":
        if told:
            remedy = "left out: a softmax has no margin, no hinge and no reference point"
            raise InvalidParameter(told[0], words[told[0]], remedy)
        if lifted:
            raise InvalidParameter("features", features, f"{' or '.join(reversed(PLAIN))} for a softmax")
    else:
        words["margin"], words["loss"] = words["margin"] or "soft", words["loss"] or "hinge"
        features = features or ("tangent" if words["reference"] is not None else "hemisphere")
        if features not in PLAIN:
            none = loaded is None or references(loaded.spec, loaded.state) is None
            own = "lorentz" if none else "session"
            words["reference"] = own if words["reference"] is None else words["reference"]
        elif words["reference"] is not None:
            raise InvalidParameter("reference", words["reference"], f"left out: {features} features need none")
    cost = C[kind] if asked.get("C") is None else asked["C"]
    chosen = {"kind": kind, "features": features or "hemisphere", "C": cost}
    return {**chosen, **words, "probabilities": asked.get("probabilities", True)}


def recipe(fields: Mapping[str, Any], loaded: Loaded) -> Recipe:
    """With the session's own reference points, if those are asked for"""
    spec, given = loaded.spec, fields["reference"]
    if given == "session":
        given = references(spec, loaded.state)
        if given is None:
            remedy = (
                "lorentz, hull, closest, cv or a point: this session has none; or features: hemisphere, without one"
            )
            raise InvalidParameter("reference", "session", remedy)
    elif isinstance(given, list):
        given = given if given and isinstance(given[0], list) else [given]
        for point in given:
            require_ball([point], spec.dimension, c=spec.curvature)
    named = {name: fields[name] for name in ("kind", "features", "C", "probabilities")}
    words = {"margin": fields["margin"], "loss": fields["loss"], "reference": given}
    return Recipe(**named, **{name: value for name, value in words.items() if value is not None})


def job(fields: Mapping[str, Any], loaded: Loaded, points: Batch, limit: int) -> dict[str, Any]:
    """All that the process that fits has to know beside the points; refused if these cannot be fitted"""
    found = recipe(fields, loaded)
    require(found, loaded.spec.labels, points.indices, limit)
    return _job(fields, loaded, found)


def job_on_files(fields: Mapping[str, Any], loaded: Loaded, url: str) -> dict[str, Any]:
    """The same for points in files, which nobody has looked into yet"""
    shown = {**fields, "data": url}
    return {**_job(shown, loaded, recipe(fields, loaded)), "data": url, "labels": list(loaded.spec.labels)}


def _job(fields: Mapping[str, Any], loaded: Loaded, found: Recipe) -> dict[str, Any]:
    spec = loaded.spec
    return {
        "recipe": asdict(found),
        "asked": dict(fields),
        "dimension": spec.dimension,
        "classes": len(spec.labels),
        "curvature": spec.curvature,
    }
