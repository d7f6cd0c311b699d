"""A wrapped normal a class: the only learner here for which the order of the points does not matter.

    v = the vector towards x of length d(0,x);  per class n, mean m and scatter S = Σ(v−m)(v−m)ᵀ
    log density + log n decides, with the covariance (S + RIDGE·I)/(n+1)

Kept is the triangular U with UᵀU = S + RIDGE·I. A point changes m, and S by the rank one of (v−m)√((n−1)/n); two states
add up (`merge`). Where K(d+2)² is more than FULL numbers, only the diagonals of S are kept.

Scores: for K classes the logarithms of the posteriors, at least LOWEST; for two the log odds of the positive one. A
class not seen yet has posterior 0; while none was seen, all are equal. Such posteriors are too sure of themselves: the
probabilities are posterior^β, normalised, with β learned online by a gradient step on its logarithm for each point's
logarithmic loss. That one number depends on the order, and `merge` begins it anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import InvalidParameter
from service.geometry import Array
from service.learners.contract import (
    Counts,
    Outcome,
    Settings,
    class_labels,
    full_matrices,
    more_rows,
    row_weights,
    sign_labels,
    signs,
    unit_points,
)
from service.learners.loops import compiled, types

RIDGE = 0.3
#: The logarithm of the smallest float: what a posterior of 0 scores.
LOWEST = -745.0
#: The steps of log β: how long, how steep at most, and how far from 0.
RATE, STEEPEST, FARTHEST = 0.5, 10.0, 4.0


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    n: Counts  # points of each class
    mean: Array  # m, in the tangent space at the origin of the unit ball
    factor: Array  # U of each class; none where only diagonals are kept
    diagonal: Array  # the diagonal of S + RIDGE·I of each class; else none
    log_beta: float
    steepness: float  # the sum of the squares of its gradients


AXES = {"n": ("K",), "mean": ("K", "d"), "factor": ("full", "d", "d"), "diagonal": ("diagonals", "d")}


def init(d: int, *, classes: int = 2, c: float = 1.0) -> State:
    K = len(row_weights(None, d, classes, c))
    full = full_matrices(d, classes)
    return State(
        c=float(c),
        n=np.zeros(K, dtype=np.int64),
        mean=np.zeros((K, d)),
        factor=np.tile(math.sqrt(RIDGE) * np.eye(d), (K if full else 0, 1, 1)),
        diagonal=np.full((0 if full else K, d), RIDGE),
        log_beta=0.0,
        steepness=0.0,
    )


def first(settings: Settings) -> State:
    """The state that a session begins with"""
    return init(settings.dimension, classes=settings.classes, c=settings.curvature)


def merge(a: State, b: State) -> State:
    """What the points of both would have left, whatever their order; but β begins anew."""
    if a.c != b.c or a.mean.shape != b.mean.shape:
        raise InvalidParameter("states", (b.c, b.mean.shape), f"of curvature {a.c} and shape {a.mean.shape}")
    n = a.n + b.n
    share = np.divide(b.n, n, out=np.zeros(len(n)), where=n > 0)[:, None]
    apart = b.mean - a.mean
    between = np.sqrt(a.n[:, None] * share) * apart  # the means differ: S grows by n_a n_b/n of that, squared
    factor = np.empty_like(a.factor)
    for k in range(len(a.factor)):
        S = a.factor[k].T @ a.factor[k] + b.factor[k].T @ b.factor[k] + np.outer(between[k], between[k])
        factor[k] = np.linalg.cholesky(S - RIDGE * np.eye(len(S))).T
    diagonal = a.diagonal + b.diagonal + between[: len(a.diagonal)] ** 2 - RIDGE
    return replace(a, n=n, mean=a.mean + share * apart, factor=factor, diagonal=diagonal, log_beta=0.0, steepness=0.0)


def grown(state: State, classes: int) -> State:
    """The same with more classes, which were not seen yet"""
    d = state.mean.shape[1]
    return replace(
        state,
        n=more_rows(state.n, 0, classes),
        mean=more_rows(state.mean, np.zeros(d), classes),
        factor=more_rows(state.factor, math.sqrt(RIDGE) * np.eye(d), classes),
        diagonal=more_rows(state.diagonal, np.full(d, RIDGE), classes),
    )


def score(state: State, X: ArrayLike) -> Array:
    logs = _densities(_tangents(state, X), state.n, state.mean, state.factor, state.diagonal)
    return _columns(_scores(logs))


def predict(state: State, X: ArrayLike) -> NDArray[Any]:
    scores = score(state, X)
    return signs(scores) if scores.ndim == 1 else np.asarray(np.argmax(scores, axis=1))


def probabilities(state: State, X: ArrayLike) -> Array:
    """n×K; each row sums to one"""
    logs = _densities(_tangents(state, X), state.n, state.mean, state.factor, state.diagonal)
    return _posteriors(logs, np.full(len(logs), math.exp(state.log_beta)))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    """Every point changes the classifier."""
    V, K = _tangents(state, X), len(state.n)
    labels = (sign_labels(y, len(V)) > 0).astype(np.int64) if K == 2 else class_labels(y, len(V), K)
    points = min(len(V), 1) if until_change else len(V)
    n, mean, factor, diagonal, log_beta, steepness, logs, betas = _learn(
        V[:points],
        labels[:points],
        state.n,
        state.mean,
        state.factor,
        state.diagonal,
        state.log_beta,
        state.steepness,
    )
    learned = replace(state, n=n, mean=mean, factor=factor, diagonal=diagonal, log_beta=log_beta, steepness=steepness)
    changed = np.ones(points, dtype=np.bool_)
    return Outcome(learned, _columns(_scores(logs)), changed, probabilities=_posteriors(logs, betas))


def learn(state: State, X: Array, y: NDArray[Any], until_change: bool) -> Outcome[State]:
    """`observe`, of points and labels that were checked; to check them again costs little beside the step"""
    return observe(state, X, y, until_change=until_change)


def _tangents(state: State, X: ArrayLike) -> Array:
    return _radial(unit_points(X, state.mean.shape[1], state.c))


def _columns(scores: Array) -> Array:
    return scores[:, 0] if scores.shape[1] == 1 else scores


# ---------------------------------------------------------------------------------- compiled: see loops.py

_matrix = types.Array(types.float64, 2, "C", readonly=True)
_cube = types.Array(types.float64, 3, "C", readonly=True)
_counts = types.Array(types.int64, 1, "C", readonly=True)
_vector = types.Array(types.float64, 1, "C", readonly=True)
_new, _f8 = types.float64[:, ::1], types.float64


@compiled(_new(_matrix))
def _radial(X: Array) -> Array:
    """v = x·d(0,x)/‖x‖, d(0,x) = 2 asinh(‖x‖/√(1−‖x‖²))"""
    V = np.empty(X.shape)
    for i in range(X.shape[0]):
        square = 0.0
        for j in range(X.shape[1]):
            square += X[i, j] * X[i, j]
        stretch = 2.0
        if square > 0:
            stretch = 2 * math.asinh(math.sqrt(square / (1 - square))) / math.sqrt(square)
        for j in range(X.shape[1]):
            V[i, j] = stretch * X[i, j]
    return V


@compiled()
def _constant(n: int, k: int, factor: Array, diagonal: Array) -> float:
    """log n − ½ log det of the covariance"""
    if n == 0:
        return -math.inf
    d = factor.shape[1]
    total = math.log(n) + 0.5 * d * math.log(n + 1)
    for j in range(d):
        total -= math.log(factor[k, j, j]) if factor.shape[0] > 0 else 0.5 * math.log(diagonal[k, j])
    return float(total)


@compiled()
def _density(v: Array, n: int, constant: float, k: int, mean: Array, factor: Array, diagonal: Array, r: Array) -> float:
    """log density + log n, less what all classes share; −∞ of a class not seen. r is scratch."""
    if n == 0:
        return -math.inf
    d, square = v.size, 0.0
    for j in range(d):
        r[j] = v[j] - mean[k, j]
    if factor.shape[0] > 0:
        for j in range(d):  # u with Uᵀu = v − m
            u = r[j] / factor[k, j, j]
            square += u * u
            for i in range(j + 1, d):
                r[i] -= factor[k, j, i] * u
    else:
        for j in range(d):
            square += r[j] * r[j] / diagonal[k, j]
    return constant - 0.5 * (n + 1) * square


@compiled()
def _posterior(logs: Array, beta: float, e: Array) -> None:
    """e ∝ exp(β·logs), uniform where all are −∞"""
    top, total = logs[0], 0.0
    for k in range(1, logs.size):
        top = max(top, logs[k])
    for k in range(logs.size):
        e[k] = 1.0 if top == -math.inf else math.exp(beta * (logs[k] - top))
        total += e[k]
    for k in range(logs.size):
        e[k] /= total


@compiled(_new(_matrix, _counts, _matrix, _cube, _matrix))
def _densities(V: Array, n: Counts, mean: Array, factor: Array, diagonal: Array) -> Array:
    rows, K = V.shape[0], n.size
    logs, r = np.empty((rows, K)), np.empty(V.shape[1])
    constants = [_constant(n[k], k, factor, diagonal) for k in range(K)]
    for i in range(rows):
        for k in range(K):
            logs[i, k] = _density(V[i], n[k], constants[k], k, mean, factor, diagonal, r)
    return logs


@compiled(_new(_matrix, _vector))
def _posteriors(logs: Array, betas: Array) -> Array:
    probabilities = np.empty(logs.shape)
    for i in range(logs.shape[0]):
        _posterior(logs[i], betas[i], probabilities[i])
    return probabilities


@compiled(_new(_matrix))
def _scores(logs: Array) -> Array:
    """The logarithms of the posteriors, at least LOWEST; of two classes one column, their difference"""
    rows, K = logs.shape
    scores = np.empty((rows, 1 if K == 2 else K))
    for i in range(rows):
        top, total = logs[i, 0], 0.0
        for k in range(1, K):
            top = max(top, logs[i, k])
        if top == -math.inf:
            scores[i, :] = 0.0 if K == 2 else -math.log(K)
        elif K == 2:
            scores[i, 0] = min(max(logs[i, 1] - logs[i, 0], LOWEST), -LOWEST)
        else:
            for k in range(K):
                total += math.exp(logs[i, k] - top)
            top += math.log(total)
            for k in range(K):
                scores[i, k] = max(logs[i, k] - top, LOWEST)
    return scores


@compiled(
    types.Tuple((types.int64[::1], _new, types.float64[:, :, ::1], _new, _f8, _f8, _new, types.float64[::1]))(
        _matrix, _counts, _counts, _matrix, _cube, _matrix, _f8, _f8
    )
)
def _learn(
    V: Array,
    y: Counts,
    n0: Counts,
    mean0: Array,
    factor0: Array,
    diagonal0: Array,
    log_beta: float,
    steepness: float,
) -> tuple[Counts, Array, Array, Array, float, float, Array, Array]:
    """Returns (n, m, U, diagonals, log β, steepness, log densities and β before each point)."""
    rows, d = V.shape
    n, mean, factor, diagonal = n0.copy(), mean0.copy(), factor0.copy(), diagonal0.copy()
    K = n.size
    logs, betas, e, r = np.empty((rows, K)), np.empty(rows), np.empty(K), np.empty(d)
    constants = [_constant(n[k], k, factor, diagonal) for k in range(K)]
    for i in range(rows):
        c, betas[i] = y[i], math.exp(log_beta)
        for k in range(K):
            logs[i, k] = _density(V[i], n[k], constants[k], k, mean, factor, diagonal, r)
        if n[c] > 0:
            beta, gradient = betas[i], 0.0
            _posterior(logs[i], beta, e)
            for k in range(K):
                if e[k] > 0:
                    gradient += beta * e[k] * (logs[i, k] - logs[i, c])
            gradient = min(max(gradient, -STEEPEST), STEEPEST)
            steepness += gradient * gradient
            log_beta -= RATE * gradient / math.sqrt(1 + steepness)
            log_beta = min(max(log_beta, -FARTHEST), FARTHEST)
        n[c] += 1
        part = math.sqrt((n[c] - 1) / n[c])
        for j in range(d):
            r[j] = V[i, j] - mean[c, j]
            mean[c, j] += r[j] / n[c]
            r[j] *= part
        if factor.shape[0] > 0:
            U = factor[c]
            for j in range(d):  # UᵀU grows by r rᵀ: Givens rotations, as in loops.py
                length = math.hypot(U[j, j], r[j])
                cos, sin = U[j, j] / length, r[j] / length
                U[j, j] = length
                for h in range(j + 1, d):
                    upper = U[j, h]
                    U[j, h] = cos * upper + sin * r[h]
                    r[h] = cos * r[h] - sin * upper
        else:
            for j in range(d):
                diagonal[c, j] += r[j] * r[j]
        constants[c] = _constant(n[c], c, factor, diagonal)
    return n, mean, factor, diagonal, log_beta, steepness, logs, betas
