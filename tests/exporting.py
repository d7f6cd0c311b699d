"""Sessions of every algorithm after a stream, in process: what is exported is compared with what they say."""

from __future__ import annotations

from typing import Any

import numpy as np

from service.api.schemas import OpenSession
from service.geometry import Array
from service.sessions.published import published
from tests.strategies import points

KINDS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, four classes": {"labels": [0, 1, 2, 3]},
    "perceptron": {"algorithm": "perceptron"},
    "perceptron, four classes": {"algorithm": "perceptron", "labels": ["a", "b", "c", "d"]},
    "second order": {"algorithm": "second_order", "curvature": 0.5},
    "lift": {"algorithm": "perceptron", "reference": [0.2, -0.1], "curvature": 2.0},
    "lift, four classes": {"algorithm": "second_order", "reference": [0.2, -0.1], "labels": [5, 6, 7, 8]},
    "softmax": {"algorithm": "softmax"},
    "softmax, four classes": {"algorithm": "softmax", "labels": [5, 6, 7, 8]},
    "gaussian": {"algorithm": "gaussian"},
    "gaussian, four classes": {"algorithm": "gaussian", "labels": [5, 6, 7, 8]},
    "gaussian, one class seen": {"algorithm": "gaussian", "labels": [5, 6, 7, 8], "seen": 1},
    "hyperboloid": {"algorithm": "hyperboloid"},
    "hyperboloid, four classes": {"algorithm": "hyperboloid", "labels": [5, 6, 7, 8], "curvature": 4.0},
}


def learned(kind: str) -> tuple[dict[str, Any], Array, Array]:
    """The published model of a session, points of its ball, and its scores of them"""
    asked = {"dimension": 2, **KINDS[kind]}
    seen = asked.pop("seen", None)
    spec = OpenSession(**asked).spec()
    rng = np.random.default_rng(3)
    X = points(rng, 400, 2, 5.0) / np.sqrt(spec.curvature)
    angle = np.arctan2(X[:, 1], X[:, 0])
    indices = ((angle + np.pi) / (2 * np.pi) * len(spec.labels)).astype(np.int64) % (seen or len(spec.labels))
    state = spec.learner.observe(spec.first_state(), X[:300], spec.targets(indices[:300])).state
    asked_for = np.concatenate([X, np.zeros((1, 2)), 1e-7 * X[:5]])
    return published(spec, state), asked_for, spec.learner.score(state, asked_for)


def agree(found: Array, expected: Array, model: dict[str, Any]) -> None:
    """To a relative 1e-9 of the scale of scores, and every decision; two classes on the hemisphere by their sign"""
    if found.ndim == 2:
        assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))
    sure = np.abs(expected) > 1e-12 if found.ndim == 1 else np.full(found.shape, True)
    assert np.array_equal((found >= 0)[sure], (expected >= 0)[sure])
    if found.ndim == 1 and model["features"] == "hemisphere" and model["algorithm"] not in ("softmax", "auto"):
        return
    scale = np.maximum(np.abs(expected), 1e-3 * np.abs(expected).max())
    assert (np.abs(found - expected) <= 1e-9 * scale).all()
