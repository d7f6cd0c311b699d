"""Scores into probabilities: Platt scaling, and one-vs-rest probabilities that sum to one.

Newton's method of Lin, Lin and Weng (2007), a note on Platt's probabilistic outputs: the targets are smoothed, so the
optimum is finite even where the classes are separable, and no exponential grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from service.batch.convex import EPS
from service.batch.passes import Block, Chunk, Passes, Seen, held
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
    if not len(f):
        return Platt(0.0, 0.0)
    rows = Block(f[:, None], np.where(positive, 1.0, -1.0), np.ones(len(f)), np.abs(f), np.arange(len(f)))
    return solve(held(rows), np.ones(1))


def solve(passes: Passes, w: Array) -> Platt:
    """The same for the scores ⟨w,f_i⟩ of rows that may be anywhere"""
    seen = passes(_survey, w)
    n_minus, n_plus = (int(count) for count in seen.totals()[0])
    at = _At(w, seen.most[0] or 1.0, n_plus, n_minus, 0.0, math.log((n_minus + 1) / (n_plus + 1)))
    loss, gradient, H = _sums(passes, at)
    for _ in range(STEPS):
        if np.abs(gradient).max() <= SMALL * (n_plus + n_minus):
            break
        step = -np.linalg.solve(H + RIDGE * np.eye(2), gradient)
        for share in 0.5 ** np.arange(40):
            trial = replace(at, a=at.a + share * float(step[0]), b=at.b + share * float(step[1]))
            new, *rest = _sums(passes, trial)
            if new <= loss * (1 + 4 * EPS) + 1e-4 * share * float(gradient @ step):
                break
        else:
            break
        at, loss, (gradient, H) = trial, new, rest
    return Platt(at.a / at.unit, at.b)


@dataclass(frozen=True)
class _At:
    """a and b of scores that are divided by `unit`"""

    w: Array
    unit: float
    n_plus: int
    n_minus: int
    a: float
    b: float


def _sums(passes: Passes, at: _At) -> tuple[float, Array, Array]:
    """The loss, its gradient and its Hessian"""
    numbers, gradient, H = passes(_newton_sums, at).totals()
    return float(numbers[0]), gradient, H


def _survey(chunk: Chunk, w: Array) -> Seen:
    """How many rows with y = −1 and y = +1; the largest |⟨w,f⟩|"""
    ahead = int(np.count_nonzero(chunk.y > 0))
    return Seen((np.array([len(chunk) - ahead, ahead]),), (float(np.abs(chunk.dot(w)).max()),))


def _newton_sums(chunk: Chunk, at: _At) -> Seen:
    """Σ log(1+eᵘ) − (1−t)u, u = af + b, with its first and second derivatives"""
    f = chunk.dot(at.w) / at.unit
    t = np.where(chunk.y > 0, (at.n_plus + 1) / (at.n_plus + 2), 1 / (at.n_minus + 2))
    u = at.a * f + at.b
    P = _sigmoid(u)
    slope, curvature = t - P, P * (1 - P)
    h = curvature * f
    H = np.array([[h @ f, h.sum()], [h.sum(), curvature.sum()]])
    loss = float((np.logaddexp(0.0, u) - (1 - t) * u).sum())
    return Seen((np.array([loss]), np.array([slope @ f, slope.sum()]), H))


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
