"""The published classifier: all that an agent needs to respond to it, in the words of GET /sessions/{id}/model.

What a model has follows from its features:
    lift         weights at a reference point p, K×d for K classes: sign⟨w,z⟩, z = lift(p, x). Of K classes the largest
                 signed distance δ decides, or, begun from a fit, the largest scale·sinh δ + offset (one_vs_rest.py)
    tangent      of strategic: ⟨w,v⟩/‖w‖ against the threshold, v = log_p(x). Of gaussian: a normal a class, no weights
    hyperboloid  weights in Minkowski's form, time first; of K classes as for lift
    hemisphere   d+2 weights, K×(d+2) for K classes: sign or argmax of ⟨w,φ⟩. Of a softmax they are log odds, or logits
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from service.learners import auto, gaussian, hemisphere, one_vs_rest, softmax
from service.sessions.spec import Spec, references


def published(spec: Spec, state: Any) -> dict[str, Any]:
    """The classifier of a session; what its kind has not is None"""
    points = references(spec, state)
    told: dict[str, Any] = {
        "algorithm": spec.algorithm,
        "features": spec.features,
        "average": spec.average if spec.kind in ("hemisphere", "auto") else None,
        "dimension": spec.dimension,
        "curvature": spec.curvature,
        "labels": list(spec.labels),
        "reference": points[0] if points and len(points) == 1 else points,
        "weights": None,
        "sigma": None,
        "budget": None,
        "threshold": None,
        "scales": None,
        "classes": None,
        "temperature": None,
        "members": None,
    }
    return {**told, **_learned(spec, state, points)}


def _learned(spec: Spec, state: Any, points: list[list[float]] | None) -> dict[str, Any]:
    if isinstance(state, hemisphere.State):
        return {"weights": state.rule[0].tolist() if len(state.rule) == 1 else state.rule.tolist()}
    if isinstance(state, softmax.State):
        return {"weights": (state.w[1] - state.w[0]).tolist() if len(state.w) == 2 else state.w.tolist()}
    if isinstance(state, gaussian.State):
        return {"classes": _normals(spec, state), "temperature": math.exp(-state.log_beta)}
    if isinstance(state, auto.State):
        return {"members": [_member(spec, *each) for each in voting(spec, state)]}
    members = (state,) if spec.binary else state.members
    sigmas = [2.0] if points is None else [2 / (1 - float(m.p @ m.p)) for m in members[: len(points)]]
    budget = state.alpha / math.sqrt(spec.curvature) if spec.algorithm == "strategic" else None
    return {
        "weights": members[0].w.tolist() if spec.binary else [member.w.tolist() for member in members],
        "sigma": sigmas[0] if len(sigmas) == 1 else sigmas,
        "budget": budget,
        "threshold": None if budget is None else budget / sigmas[0],
        "scales": None if spec.binary else _scales(state),
    }


def _scales(state: one_vs_rest.State) -> dict[str, Any] | None:
    """How the classes are compared where they began from a fit; None: by their signed distances"""
    if not len(state.scale):
        return None
    return {"scale": state.scale.tolist(), "offset": state.offset.tolist(), "tangent": state.tangent}


def voting(spec: Spec, state: auto.State) -> list[tuple[str, Any, float]]:
    """The members of a vote: name, state, share of the weights"""
    weights = np.exp(state.log_weights)
    return list(zip(spec.members, state.members, (weights / weights.sum()).tolist(), strict=True))


def alone(spec: Spec, member: str) -> Spec:
    """The session that has one member of a vote for its learner"""
    return replace(spec, algorithm=member, members=(), refit=spec.refit and member == "softmax")


def _member(spec: Spec, name: str, state: Any, weight: float) -> dict[str, Any]:
    return {**published(alone(spec, name), state), "weight": weight}


def _normals(spec: Spec, state: gaussian.State) -> list[dict[str, Any]]:
    """A class each: how many points, the mean and the covariance in the tangent space at the origin of the unit ball"""
    told: list[dict[str, Any]] = []
    for j, label in enumerate(spec.labels):
        n = int(state.n[j])
        full = (state.factor[j].T @ state.factor[j] / (n + 1)).tolist() if len(state.factor) else None
        diagonal = (state.diagonal[j] / (n + 1)).tolist() if len(state.diagonal) else None
        normal = {"mean": state.mean[j].tolist(), "covariance": full, "variances": diagonal}
        told.append({"label": label, "count": n, **normal})
    return told
