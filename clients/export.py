"""A published classifier without the service: as JSON, as one NumPy function, as ONNX.

    model = session.model().document        self-contained JSON; json.dump it
    scores(model, X)                        NumPy alone; copy it where it is needed
    to_onnx(model)                          the same formulas as a graph, for onnxruntime; needs horocycle[export]

Of two classes the score is positive for the last label, of more the largest decides. They are the service's scores, but
for two classes on hemisphere coordinates: there it is ⟨w,φ⟩/‖w‖, which has the sign of the service's distance.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.problems import WrongArgument

#: The least logarithm of a posterior.
LOWEST = -745.0


def scores(model: Mapping[str, Any], X: Any, xp: Any = np) -> Any:
    """n scores of two classes, or n×K. `xp`: NumPy, or whatever has its functions"""
    if model["members"]:
        return _vote(model, X, xp)
    x = X * np.sqrt(model["curvature"])
    xx = xp.sum(x * x, axis=1, keepdims=True)
    if model["classes"]:
        return _posteriors(model["classes"], x, xx, xp)
    W, two = np.atleast_2d(model["weights"]), len(model["labels"]) == 2
    norms = np.linalg.norm(W, axis=1) + (np.linalg.norm(W, axis=1) == 0)
    if model["features"] == "hemisphere":  # φ = (1, 2x/(1+‖x‖²), (1−‖x‖²)/(1+‖x‖²))
        s = xp.concatenate([xx * 0.0 + 1.0, 2.0 * x / (1.0 + xx), (1.0 - xx) / (1.0 + xx)], axis=1) @ W.T
        s = s / norms if two and model["algorithm"] != "softmax" else s
    elif model["features"] == "hyperboloid":  # [w,h], time first
        inner = np.sum(W[:, 1:] ** 2, axis=1) - W[:, 0] ** 2
        lengths = np.where(inner > 0, np.sqrt(np.abs(inner)), norms)
        s = _asinh(xp.concatenate([-1.0 - xx, 2.0 * x], axis=1) / (1.0 - xx) @ (W / lengths[:, None]).T, xp)
    elif model["features"] == "lift":  # z = 2(s − ‖s‖² p/(1−‖p‖²))/(1−‖x‖²), s = x − p
        P = np.broadcast_to(np.atleast_2d(model["reference"]) * np.sqrt(model["curvature"]), W.shape)
        columns = [_lifted(x, xx, p, w / n, xp) for p, w, n in zip(P, W, norms, strict=True)]
        s = _asinh(xp.concatenate(columns, axis=1), xp)
    else:
        raise WrongArgument(f"a {model['algorithm']} classifier is not exported: its agents answer the service")
    if model["features"] != "hemisphere":
        s = s / np.sqrt(model["curvature"])
    return s[:, 0] if two else s


def decide(model: Mapping[str, Any], X: Any) -> NDArray[Any]:
    """The label of every point"""
    s = scores(model, np.asarray(X, dtype=np.float64))
    return np.array(model["labels"])[(s >= 0).astype(int) if s.ndim == 1 else np.argmax(s, axis=1)]


def _lifted(x: Any, xx: Any, p: Any, w: Any, xp: Any) -> Any:
    """⟨w,z⟩, n×1"""
    s = x - p[None, :]
    ss = xp.sum(s * s, axis=1, keepdims=True)
    return 2.0 * (s @ w[:, None] - ss * (w @ p / (1 - p @ p))) / (1.0 - xx)


def _asinh(x: Any, xp: Any) -> Any:
    """sign(x)·ln(|x| + √(1+x²)), and x − x³/6 + 3x⁵/40 below 1e-4: ONNX has no asinh of float64"""
    size = xp.abs(x)
    squares = x * x
    small = x * (1.0 - squares * (1.0 / 6.0 - squares * 0.075))
    return xp.where(size < 1e-4, small, xp.sign(x) * xp.log(size + xp.sqrt(1.0 + squares)))


def _posteriors(classes: Sequence[Mapping[str, Any]], x: Any, xx: Any, xp: Any) -> Any:
    """log n + log of the normal density of v = x·d(0,x)/‖x‖ in each class; normalised, at least LOWEST"""
    r = xp.sqrt(xx)
    distance = 2.0 * _asinh(r / xp.sqrt(1.0 - xx), xp)
    v = x * xp.where(r > 0.0, distance / xp.where(r > 0.0, r, xx * 0.0 + 1.0), xx * 0.0 + 2.0)
    columns = []
    for each in classes:
        if not each["count"]:
            columns.append(xx * 0.0 - 1e300)
            continue
        full = np.diag(each["variances"]) if each["covariance"] is None else np.array(each["covariance"])
        root = np.linalg.cholesky(full)
        u = (v - np.array(each["mean"])[None, :]) @ np.linalg.inv(root).T
        constant = np.log(each["count"]) - np.sum(np.log(np.diag(root)))
        columns.append(constant - 0.5 * xp.sum(u * u, axis=1, keepdims=True))
    logs = xp.concatenate(columns, axis=1)
    if not any(each["count"] for each in classes):
        return xx[:, 0] * 0.0 if len(classes) == 2 else logs * 0.0 - np.log(len(classes))
    if len(classes) == 2:
        return xp.clip(logs[:, 1] - logs[:, 0], LOWEST, -LOWEST)
    top = xp.max(logs, axis=1, keepdims=True)
    return xp.clip(logs - top - xp.log(xp.sum(xp.exp(logs - top), axis=1, keepdims=True)), LOWEST, 0.0)


def _vote(model: Mapping[str, Any], X: Any, xp: Any) -> Any:
    """The share of the weights that is for each class; a tie is the heaviest member's"""
    K = len(model["labels"])
    weights = np.array([member["weight"] for member in model["members"]])
    ranks = np.empty(len(weights))
    ranks[np.argsort(-weights, kind="stable")] = np.arange(len(weights))
    total: Any = 0.0
    for member, weight, rank in zip(model["members"], weights.tolist(), ranks.tolist(), strict=True):
        s = scores(member, X, xp)
        index = (
            xp.where(s >= 0.0, s * 0.0 + 1.0, s * 0.0)[:, None] if K == 2 else _float(xp.argmax(s, axis=1), xp)[:, None]
        )
        votes = xp.where(xp.abs(index - np.arange(K, dtype=np.float64)[None, :]) < 0.5, 1.0, 0.0)
        total = votes * (weight + 2.0 ** (-40 - rank)) + total
    return total[:, 1] - total[:, 0] if K == 2 else total


def _float(indices: Any, xp: Any) -> Any:
    return indices.astype(np.float64) if xp is np else xp.cast(indices)


# ------------------------------------------------------------------------------------------------------------ ONNX


def to_onnx(model: Mapping[str, Any]) -> bytes:
    """A graph of float64: input `points`, n×d; outputs `scores` and `index`, the place of the label in `labels`, which
    the metadata has as JSON"""
    if importlib.util.find_spec("onnx") is None:
        raise WrongArgument("ONNX needs the package onnx: pip install 'horocycle[export]'")
    graph = importlib.import_module("clients.onnx_graph").Graph()
    points = graph.input("points", model["dimension"])
    s = scores(model, points, graph)
    two = len(model["labels"]) == 2
    index = graph.cast(s >= 0.0, integer=True) if two else graph.argmax(s, axis=1)
    content: bytes = graph.finished({"scores": (s, 1 if two else 2), "index": (index, 1)}, model)
    return content
