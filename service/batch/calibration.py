"""Scores into probabilities: Platt scaling, and one-vs-rest probabilities that sum to one.

Newton's method of Lin, Lin and Weng (2007), a note on Platt's probabilistic outputs: the targets are smoothed, so the
optimum is finite even where the classes are separable, and no exponential grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from service.batch.convex import EPS
from service.errors import LengthMismatch
from service.geometry import Array

#: Added to the Hessian, which is singular if all scores are equal.
RIDGE = 1e-12
#: The gradient, per point, at which Newton's method ends.
SMALL = 1e-12
STEPS = 100


@dataclass(frozen=True)
class Platt:
    """P(y = +1 | f) = 1/(1 + exp(a f + b))"""

    a: float
    b: float


def fit(scores: ArrayLike, y: ArrayLike) -> Platt:
    """The a and b that minimise −Σ t log P + (1−t) log(1−P), t = (n₊+1)/(n₊+2) for y = +1 and 1/(n₋+2) for y = −1

    Scores are divided by the largest first, so that none of their squares overflows. Without a point of one class, or
    without any point, P is a constant: the smoothed share.
    """
    f, positive = np.asarray(scores, dtype=np.float64), np.asarray(y) > 0
    if f.shape != positive.shape:
        raise LengthMismatch(len(f), len(positive))
    unit = float(np.abs(f).max(initial=0.0)) or 1.0
    f = f / unit
    n_plus, n_minus = int(positive.sum()), int((~positive).sum())
    t = np.where(positive, (n_plus + 1) / (n_plus + 2), 1 / (n_minus + 2))
    at = np.array([0.0, math.log((n_minus + 1) / (n_plus + 1))])
    loss = _loss(at, f, t)
    for _ in range(STEPS):
        P = _sigmoid(at[0] * f + at[1])
        slope, curvature = t - P, P * (1 - P)
        gradient = np.array([slope @ f, slope.sum()])
        if np.abs(gradient).max() <= SMALL * len(f):
            break
        h = curvature * f
        H = np.array([[h @ f + RIDGE, h.sum()], [h.sum(), curvature.sum() + RIDGE]])
        step = -np.linalg.solve(H, gradient)
        for share in 0.5 ** np.arange(40):
            new = _loss(at + share * step, f, t)
            if new <= loss * (1 + 4 * EPS) + 1e-4 * share * float(gradient @ step):
                break
        else:
            break
        at, loss = at + share * step, new
    return Platt(float(at[0]) / unit, float(at[1]))


def probability(platt: Platt, scores: ArrayLike) -> Array:
    """P(y = +1) for each score; what overflows is a probability of 0 or 1"""
    with np.errstate(over="ignore"):
        return _sigmoid(platt.a * np.asarray(scores, dtype=np.float64) + platt.b)


def normalise(P: ArrayLike) -> Array:
    """Rows of probabilities, one a class, divided by their sums; a row of zeros is nobody's, and becomes 1/K each"""
    P = np.asarray(P, dtype=np.float64)
    total = P.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(P, total, out=np.full_like(P, 1 / P.shape[-1]), where=total > 0))


def _sigmoid(u: Array) -> Array:
    """1/(1+eᵘ) = ½(1 − tanh(u/2)), with the exponential that does not grow"""
    small = np.exp(-np.abs(u))
    return np.asarray(np.where(u >= 0, small, 1.0) / (1 + small))


def _loss(at: Array, f: Array, t: Array) -> float:
    """Σ log(1+eᵘ) − (1−t)u, u = a f + b"""
    u = at[0] * f + at[1]
    return float((np.logaddexp(0.0, u) - (1 - t) * u).sum())
