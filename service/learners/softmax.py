"""Multinomial logistic regression on hemisphere coordinates φ, online: a Newton step a class a point.

    e = softmax(⟨w_1,φ⟩ … ⟨w_K,φ⟩);  A_k ← A_k + max(e_k(1−e_k), FLOOR) φφᵀ,  w_k ← w_k − (e_k − [y=k]) A_k⁻¹φ

from A_k = RIDGE·I. Kept is A_k⁻¹, which one φ changes by rank one: with v = A_k⁻¹φ and g the factor before φφᵀ,
A_k⁻¹ ← A_k⁻¹ − g vvᵀ/(1 + gφᵀv), and the step is along v/(1 + gφᵀv). Where K(d+2)² is more than FULL numbers, only
diagonals are kept, with the same step.

It can begin from a batch softmax on φ: its weights, and the A_k that the points it was fitted to would have left there,
from those points, or from their curvature Σ g φφᵀ.
Scores are the logits ⟨w_k,φ⟩; for two classes their difference, the log odds of the positive one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.geometry import Array
from service.geometry import hemisphere as phi
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

RIDGE, FLOOR = 0.1, 1e-3


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    w: Array  # a row a class
    inverse: Array  # A_k⁻¹ of each class; none where only diagonals are kept
    diagonal: Array  # the diagonals of A_k as inverses, of each class; else none
    t: int  # points learned from, with those of a fit it began from


AXES = {"w": ("K", "D"), "inverse": ("full", "D", "D"), "diagonal": ("diagonals", "D")}


def init(
    d: int,
    *,
    classes: int = 2,
    c: float = 1.0,
    W: ArrayLike | None = None,
    points: ArrayLike | int | None = None,
    curvature: Array | None = None,
) -> State:
    """From the weights W of a batch softmax on φ, if given, and the points it was fitted to; or with their curvature,
    K×D×D, or K×1×D where diagonals are kept, and their number."""
    w = row_weights(W, d, classes, c)
    K, D = w.shape
    full = full_matrices(d, classes)
    first = State(
        c=float(c),
        w=w,
        inverse=np.tile(np.eye(D) / RIDGE, (K if full else 0, 1, 1)),
        diagonal=np.full((0 if full else K, D), 1 / RIDGE),
        t=0,
    )
    if curvature is not None and isinstance(points, int):
        return replace(_curved(first, curvature), t=points)
    if points is None:
        return first
    F = _features(first, points)
    _, inverse, diagonal, _ = _learn(F, np.zeros(len(F), dtype=np.int64), w, first.inverse, first.diagonal, False)
    return replace(first, inverse=inverse, diagonal=diagonal, t=len(F))


def _curved(first: State, curvature: Array) -> State:
    """With (RIDGE·I + curvature)⁻¹ of each class, or of its diagonal"""
    if not len(first.inverse):
        return replace(first, diagonal=1 / (RIDGE + curvature[:, 0]))
    inverse = np.linalg.inv(RIDGE * np.eye(curvature.shape[1]) + curvature)
    return replace(first, inverse=(inverse + inverse.transpose(0, 2, 1)) / 2)


def first(settings: Settings) -> State:
    """The state that a session begins with"""
    return init(settings.dimension, classes=settings.classes, c=settings.curvature)


def grown(state: State, classes: int) -> State:
    """The same with more classes, each as likely as a thousandth of a point: the mean's logit less log(1000 t)"""
    D = state.w.shape[1]
    unseen = state.w.mean(axis=0)
    unseen[0] -= math.log(1000 * (state.t + 1))
    return replace(
        state,
        w=more_rows(state.w, unseen, classes),
        inverse=more_rows(state.inverse, np.eye(D) / RIDGE, classes),
        diagonal=more_rows(state.diagonal, np.full(D, 1 / RIDGE), classes),
    )


def score(state: State, X: ArrayLike) -> Array:
    return _columns(_logits(_features(state, X), state.w))


def predict(state: State, X: ArrayLike) -> NDArray[Any]:
    scores = score(state, X)
    return signs(scores) if scores.ndim == 1 else np.asarray(np.argmax(scores, axis=1))


def probabilities(state: State, X: ArrayLike) -> Array:
    """n×K; each row sums to one"""
    return _softmax(_logits(_features(state, X), state.w))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    """Every point changes the classifier."""
    F, K = _features(state, X), len(state.w)
    labels = (sign_labels(y, len(F)) > 0).astype(np.int64) if K == 2 else class_labels(y, len(F), K)
    n = min(len(F), 1) if until_change else len(F)
    w, inverse, diagonal, scores = _learn(F[:n], labels[:n], state.w, state.inverse, state.diagonal, True)
    learned = replace(state, w=w, inverse=inverse, diagonal=diagonal, t=state.t + n)
    return Outcome(learned, _columns(scores), np.ones(n, dtype=np.bool_), probabilities=_softmax(scores))


def learn(state: State, X: Array, y: NDArray[Any], until_change: bool) -> Outcome[State]:
    """`observe`, of points and labels that were checked; to check them again costs little beside the step"""
    return observe(state, X, y, until_change=until_change)


def _features(state: State, X: ArrayLike) -> Array:
    return phi(unit_points(X, state.w.shape[1] - 2, state.c))


def _columns(logits: Array) -> Array:
    return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits


# ---------------------------------------------------------------------------------- compiled: see loops.py

_matrix = types.Array(types.float64, 2, "C", readonly=True)
_cube = types.Array(types.float64, 3, "C", readonly=True)
_labels = types.Array(types.int64, 1, "C", readonly=True)
_new = types.float64[:, ::1]


@compiled()
def _exponentials(s: Array, e: Array) -> None:
    """e = softmax(s)"""
    top, total = s[0], 0.0
    for k in range(1, s.size):
        top = max(top, s[k])
    for k in range(s.size):
        e[k] = math.exp(s[k] - top)
        total += e[k]
    for k in range(s.size):
        e[k] /= total


@compiled(_new(_matrix, _matrix))
def _logits(F: Array, w: Array) -> Array:
    logits = np.empty((F.shape[0], w.shape[0]))
    for i in range(F.shape[0]):
        for k in range(w.shape[0]):
            total = 0.0
            for j in range(F.shape[1]):
                total += w[k, j] * F[i, j]
            logits[i, k] = total
    return logits


@compiled(_new(_matrix))
def _softmax(logits: Array) -> Array:
    probabilities = np.empty(logits.shape)
    for i in range(logits.shape[0]):
        _exponentials(logits[i], probabilities[i])
    return probabilities


@compiled(
    types.Tuple((_new, types.float64[:, :, ::1], _new, _new))(_matrix, _labels, _matrix, _cube, _matrix, types.boolean)
)
def _learn(
    F: Array, y: Counts, w0: Array, inverse0: Array, diagonal0: Array, learning: bool
) -> tuple[Array, Array, Array, Array]:
    """Returns (w, A⁻¹, diagonals, logits before each point); not `learning`, the weights stay, and only A grows."""
    n, D = F.shape
    K = w0.shape[0]
    w, inverse, diagonal = w0.copy(), inverse0.copy(), diagonal0.copy()
    logits, e, v = np.empty((n, K)), np.empty(K), np.empty(D)
    full = inverse.shape[0] > 0
    for i in range(n):
        f = F[i]
        for k in range(K):
            total = 0.0
            for j in range(D):
                total += w[k, j] * f[j]
            logits[i, k] = total
        _exponentials(logits[i], e)
        for k in range(K):
            g, product = max(e[k] * (1 - e[k]), FLOOR), 0.0
            for j in range(D):
                if full:
                    v[j] = 0.0
                    for h in range(D):
                        v[j] += inverse[k, j, h] * f[h]
                else:
                    v[j] = diagonal[k, j] * f[j]
                product += f[j] * v[j]
            shrink = 1 / (1 + g * product)
            for j in range(D):
                if full:
                    for h in range(j, D):
                        inverse[k, j, h] -= g * shrink * v[j] * v[h]
                        inverse[k, h, j] = inverse[k, j, h]
                else:
                    diagonal[k, j] /= 1 + g * f[j] * v[j]
            if learning:
                step = (e[k] - (1.0 if y[i] == k else 0.0)) * shrink
                for j in range(D):
                    w[k, j] -= step * v[j]
    return w, inverse, diagonal, logits
