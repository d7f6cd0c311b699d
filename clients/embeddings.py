"""Embeddings as other libraries have them, brought into the ball that a session knows.

from clients.embeddings import to_ball
X = to_ball(embedding, model="hyperboloid")
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.arrays import as_array, refused
from clients.problems import DimensionMismatch, NonFinite, PointOutsideBall, Problem, WrongArgument, problem

Array = NDArray[np.float64]
#: The service takes points up to this distance from the origin, in the unit ball.
RADIUS_LIMIT = 12.25
OFF_SHEET = 1e-3
EPS = float(np.finfo(float).eps)


def to_ball(X: Any, model: str = "poincare", *, curvature: float = 1.0, outside: str = "refuse") -> Array:
    """n×d points of the ball {x : c‖x‖² < 1}, from the coordinates of another model of the same space.

    `model`:
        poincare      the ball already: checked, and clipped if that is asked for
        hyperboloid   n×(d+1), time first: −h₀² + ‖h_s‖² = −1/c (geoopt's Lorentz, scaled by its k = 1/c)
        klein         the ball in which geodesics are straight
        halfspace     (u, t), the height t > 0 last
        euclidean     any vectors: each is taken for the spatial part h_s of a point of the hyperboloid; it comes to
                      lie at the distance asinh‖√c·h_s‖/√c, and what was linear stays so
    `outside`: what becomes of points further out than the service takes (norm 0.9999904/√c): `refuse` raises
    PointOutsideBall for the first of them, `clip` moves them to that norm.

    >>> to_ball([[0.0, 3.0]], "euclidean").round(4).tolist()
    [[0.0, 0.7208]]
    """
    if model not in MODELS:
        raise WrongArgument(f"model is {model!r}; known are {', '.join(MODELS)}")
    if outside not in ("refuse", "clip"):
        raise WrongArgument(f"outside is {outside!r}; it may be refuse or clip")
    if not 0 < curvature < math.inf:
        raise WrongArgument(f"curvature is {curvature!r}; it must be a positive number c, for a space of curvature −c")
    points = MODELS[model](_rows(X) * (1.0 if model == "halfspace" else math.sqrt(curvature)))
    norms = _norms(points)[1]
    limit = math.tanh(RADIUS_LIMIT / 2)
    beyond = ~(norms <= limit)
    if beyond.any():
        if outside == "refuse":
            raise _outside(int(np.argmax(beyond)), norms, limit, curvature)
        points[beyond] *= limit * (1 - 4 * EPS) / norms[beyond, None]
    return np.asarray(points / math.sqrt(curvature))


def _rows(X: Any) -> Array:
    """n×d finite numbers"""
    found = as_array(X)
    try:
        rows = np.array(found if isinstance(found, np.ndarray) else list(found), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise refused(f"X is not n rows of d numbers each: {error}") from None
    if rows.ndim != 2:
        raise refused(f"X has {rows.ndim} axes, not n rows of d numbers each; one point is [[0.1, 0.2]]")
    if not (finite := np.isfinite(rows).all(axis=1)).all():
        index = int(np.argmin(finite))
        value = rows[index][~np.isfinite(rows[index])][0]
        raise _problem(NonFinite, f"point {index} holds {value}, which is not finite", index=index, value=str(value))
    return rows


def _norms(X: Array) -> tuple[Array, Array]:
    """The largest coordinate of each row, 1 at least, and the norm: squares of large numbers must not overflow"""
    large = np.maximum(np.abs(X).max(axis=1, keepdims=True, initial=0), 1)
    return large, np.minimum(large[:, 0], 1e300) * np.linalg.norm(X / large, axis=1)


def _spatial(v: Array) -> Array:
    """x = v/(1+√(1+‖v‖²))"""
    large = _norms(v)[0]
    return np.asarray(v / large / (1 / large + np.hypot(1 / large, np.linalg.norm(v / large, axis=1, keepdims=True))))


def _hyperboloid(h: Array) -> Array:
    if h.shape[1] < 2:
        detail = "a point of the hyperboloid has d+1 coordinates, time first: at least 2"
        raise _problem(DimensionMismatch, detail, index=0, expected=2, got=h.shape[1])
    scale = np.maximum(np.abs(h).max(axis=1), 1)
    time, space = h[:, 0] / scale, np.linalg.norm(h[:, 1:] / scale[:, None], axis=1)
    sheet = (time - space) * (time + space)
    wrong = (h[:, 0] <= 0) | (np.abs(sheet - (1 / scale) ** 2) > OFF_SHEET * np.maximum(time**2, (1 / scale) ** 2))
    if wrong.any():
        i = int(np.argmax(wrong))
        value = f"{sheet[i] * scale[i] * scale[i]:.4g}"
        raise refused(f"point {i} is not on the hyperboloid: c(h₀² − ‖h_s‖²) is {value}, not 1; time comes first")
    return _spatial(h[:, 1:])


def _klein(k: Array) -> Array:
    """x = k/(1+√(1−‖k‖²)); what is outside stays there"""
    norms = np.minimum(_norms(k)[1], 1)[:, None]
    return np.asarray(k / (1 + np.sqrt((1 - norms) * (1 + norms))))


def _halfspace(h: Array) -> Array:
    """x = (2u, ‖u‖²+t²−1)/(‖u‖²+(t+1)²)"""
    if (h[:, -1] <= 0).any():
        i = int(np.argmax(h[:, -1] <= 0))
        raise refused(f"point {i} has the height {h[i, -1]}: the last coordinate of a half-space is above 0")
    h = np.clip(h, -1e100, 1e100)  # beyond, squares overflow, and it is the same point of the border
    u, t = h[:, :-1], h[:, -1:]
    uu = np.sum(u * u, axis=1, keepdims=True)
    return np.asarray(np.hstack([2 * u, uu + (t - 1) * (t + 1)]) / (uu + (t + 1) ** 2))


def _ball(x: Array) -> Array:
    return x


MODELS: dict[str, Callable[[Array], Array]] = {
    "poincare": _ball,
    "hyperboloid": _hyperboloid,
    "klein": _klein,
    "halfspace": _halfspace,
    "euclidean": _spatial,
}


def _outside(index: int, norms: Array, limit: float, c: float) -> Problem:
    root = math.sqrt(c)
    finite = norms[np.isfinite(norms)]
    fitting = c * (limit / finite.max()) ** 2 * (1 - 1e-3) if finite.size else c
    detail = (
        f"point {index} has norm {norms[index] / root!r}; the limit is {limit / root!r}. Either the ball is larger, and"
        f" curvature={fitting:.3g} holds every point; or the model is another, see model=; or outside='clip' moves such"
        " points to the limit"
    )
    return _problem(PointOutsideBall, detail, index=index, norm=float(norms[index] / root), limit=limit / root)


def _problem(kind: type[Problem], detail: str, **members: Any) -> Problem:
    return problem({"type": f"/problems/{kind.slug()}", "detail": detail, **members})
