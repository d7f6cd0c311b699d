"""Points in the coordinates of other models of hyperbolic space, brought into the ball.

    poincare      the ball itself
    hyperboloid   (h₀, h_s), time first, −h₀² + ‖h_s‖² = −1/c: one number more than dimensions
    klein         the ball in which geodesics are straight
    halfspace     (u, t), the height t > 0 last
    euclidean     any vector: the spatial part h_s of a point of the hyperboloid, without h₀

A point beyond the radius limit is refused; only who asks for it has it clipped, and is told how many were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.errors import InvalidRequest, NonFinite
from service.geometry import Array, from_halfspace, from_klein, from_spatial, norm_limit, refuse_outside, require_ball

#: How far h₀² − ‖h_s‖² may be from 1/c, relative to h₀²: what float32 rounds, and no more than a slip would show.
OFF_SHEET = 1e-3


@dataclass(frozen=True)
class Placing:
    """How points are to be read: in which coordinates, and what becomes of those beyond the limit"""

    coordinates: str = "poincare"
    outside: str = "refuse"

    def width(self, d: int) -> int:
        """How many numbers a point has"""
        return d + 1 if self.coordinates == "hyperboloid" else d


AS_THEY_ARE = Placing()


def place(X: Array, d: int, c: float, how: Placing) -> tuple[Array, int]:
    """The points in the ball of curvature −c, and how many of them were clipped. X: n × how.width(d), numbers"""
    if how == AS_THEY_ARE:
        return require_ball(X, d, c=c), 0
    finite = np.isfinite(X).all(axis=1)
    if not finite.all():
        index = int(np.argmin(finite))
        raise NonFinite(index, float(X[index][~np.isfinite(X[index])][0]))
    points, limit = MODELS[how.coordinates](X, c), norm_limit(c)
    with np.errstate(over="ignore"):
        squares = np.vecdot(points, points)
    beyond = ~(squares <= limit * limit)
    if beyond.any():
        if how.outside != "clip":
            refuse_outside(points, squares, limit, c)
        points[beyond] = _clipped(points[beyond], limit)
    return np.ascontiguousarray(points), int(np.count_nonzero(beyond))


def _clipped(X: Array, limit: float) -> Array:
    """limit·x/‖x‖, a rounding inside"""
    X = X / np.abs(X).max(axis=1, keepdims=True)
    return np.asarray(X * (limit * (1 - 4 * np.finfo(float).eps) / np.sqrt(np.vecdot(X, X)))[:, None])


def _hyperboloid(X: Array, c: float) -> Array:
    h0, spatial = X[:, 0], np.ascontiguousarray(X[:, 1:])
    scale = np.abs(X).max(axis=1, initial=1.0)
    one = (1 / scale) ** 2 / c
    sheet = (h0 / scale) ** 2 - np.vecdot(spatial / scale[:, None], spatial / scale[:, None])
    off = np.abs(sheet - one) > OFF_SHEET * np.maximum((h0 / scale) ** 2, one)
    if (wrong := off | (h0 <= 0)).any():
        index = int(np.argmax(wrong))
        raise InvalidRequest(
            f"point {index} is not on the hyperboloid: h₀² − ‖h_s‖² is {sheet[index] / one[index] / c:.4g}, not"
            f" 1/c = {1 / c:.4g}, with h₀ = {h0[index]:.4g}; h₀ comes first, and is positive",
            index=index,
            parameter="coordinates",
        )
    return from_spatial(spatial, c=c)


def _klein(X: Array, c: float) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(c * np.vecdot(X, X)[:, None] < 1, from_klein(X, c=c), X)


def _halfspace(X: Array, c: float) -> Array:
    if (X[:, -1] <= 0).any():
        index = int(np.argmax(X[:, -1] <= 0))
        what = f"point {index} has the height {X[index, -1]!r}: the last coordinate of a half-space is above 0"
        raise InvalidRequest(what, index=index, parameter="coordinates")
    return from_halfspace(X, c=c)


def _ball(X: Array, c: float) -> Array:
    return np.array(X)


def _euclidean(X: Array, c: float) -> Array:
    return from_spatial(X, c=c)


MODELS: dict[str, Callable[[Array, float], Array]] = {
    "poincare": _ball,
    "hyperboloid": _hyperboloid,
    "klein": _klein,
    "halfspace": _halfspace,
    "euclidean": _euclidean,
}
OUTSIDE = ("refuse", "clip")


def placing(given: dict[str, Any]) -> Placing:
    """`coordinates` and `outside` as a caller named them; what is left out is the ball, and refused"""
    how = Placing(**{name: given[name] for name in ("coordinates", "outside") if name in given})
    if how.coordinates not in MODELS:
        known = ", ".join(MODELS)
        raise InvalidRequest(f"coordinates is {how.coordinates!r}; it may be {known}", parameter="coordinates")
    if how.outside not in OUTSIDE:
        raise InvalidRequest(f"outside is {how.outside!r}; it may be refuse or clip", parameter="outside")
    return how
