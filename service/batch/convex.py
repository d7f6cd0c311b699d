"""What the convex programmes share: how far from the optimum, and the checks of what they are given."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from service.errors import DimensionMismatch, EmptyBatch, InvalidParameter, LengthMismatch, NonFinite, NotANumber
from service.geometry import Array

#: Hears a number from 0 to 1 before every step; what it raises ends the fit.
Progress = Callable[[float], None]
EPS = float(np.finfo(np.float64).eps)


def relative_gap(primal: float, dual: float) -> float:
    """(P − D)/P; infinite if P is"""
    return math.inf if primal == math.inf else (primal - dual) / max(primal, np.finfo(float).tiny)


def require_limits(gap: float, max_iterations: int) -> None:
    if not 0 < gap < 1:
        raise InvalidParameter("gap", gap, "between 0 and 1")
    if not max_iterations >= 1:
        raise InvalidParameter("max_iterations", max_iterations, "at least 1")


def feature_rows(F: ArrayLike) -> Array:
    F = real(F, "features")
    if F.ndim != 2 or (len(F) and not F.shape[1]):
        raise NotANumber("features are rows of at least one number", value=F.shape)
    if len(F) == 0:
        raise EmptyBatch
    return F


def costs(C: float, sample_weight: ArrayLike | None, n: int) -> Array:
    """c_i = C s_i, s_i = 1 unless given"""
    if isinstance(C, bool) or not 0 < C < math.inf:
        raise InvalidParameter("C", C, "a positive number")
    if sample_weight is None:
        return np.full(n, float(C))
    s = real(sample_weight, "sample weights")
    if s.shape != (n,):
        raise LengthMismatch(points=n, labels=s.size)
    good = (s >= 0) & (s < math.inf)
    if not good.all():
        at = int(np.argmin(good))
        raise InvalidParameter(f"sample_weight[{at}]", float(s[at]), "finite and not negative")
    return C * s


def start_weights(given: ArrayLike, shape: tuple[int, ...]) -> Array:
    w = real(given, "start")
    if w.shape != shape:
        raise DimensionMismatch(expected=math.prod(shape), got=w.size, what="start")
    if not np.isfinite(w).all():
        raise NonFinite(0, float(w[~np.isfinite(w)][0]), what="start")
    return w


def real(values: ArrayLike, what: str) -> Array:
    given = np.asarray(values)
    if given.dtype.kind not in "iuf":
        raise NotANumber(f"{what} hold {given.dtype} values, not real numbers", value=values)
    return np.ascontiguousarray(given, dtype=np.float64)
