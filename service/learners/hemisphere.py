"""Perceptrons on hemisphere coordinates φ: no reference point, two or K classes, and an average that answers.

    on a mistake  ξ ← ξ + y φ  and  w = ξ (first order: Rosenblatt's), or  A ← A + φφᵀ and w = A⁻¹ξ (second order)

The boundaries are all spheres of the geometry, so that one row of weights a class, that class against the rest, can cut
out one cluster of many. Rosenblatt's is the second order with a = ∞, up to the length of w.

The last iterate learns and carries the theorems; the average W̄ of the iterates after each of t points answers:

    W̄ = W − A/t,  A ← A + (t−1)ΔW on an update, and nothing to do on the other points

What answers, the rule, is frozen between versions: it is renewed at each update t_u and at t_u + 2^j. Renewed at
updates alone, a learner that has converged would go on answering with a stale average.

Scores: for K classes ⟨w̄_k,φ⟩, of which the largest decides; for two the signed distance to the sphere where there is
one, ⟨w̄,φ⟩/‖w̄‖ where there is none, always with the sign of ⟨w̄,φ⟩.

With ‖φ‖² = 2 and a rule that has the Euclidean margin γ there: a row of first order makes k ≤ 2/γ² updates, and
γ ≤ ‖ξ − ξ₁‖/k for both. The second order has its own bounds, with γ in the place of sinh ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import InvalidParameter
from service.geometry import Array
from service.geometry import hemisphere as phi
from service.learners import loops
from service.learners.contract import (
    Counts,
    Outcome,
    Settings,
    class_labels,
    more_rows,
    row_weights,
    sign_labels,
    signs,
    unit_points,
)

#: What is left of φ beside the span of the mistakes, in parts of ‖φ‖, from which on it counts; φ is good to a few eps.
RANK_TOLERANCE = 1e-9
#: How many points what answers stands for once a class is added.
GROWN = 25


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    a: float  # regularisation of the second order; 0 = pseudo-inverse, ∞ = first order
    average: bool  # whether the average answers, or the last iterate
    w: Array  # W, the last iterate: one row, positive for the last of two classes, or one a class
    lag: Array  # A: how far t times the average is behind t times the last iterate
    rule: Array  # what answers
    xi: Array  # ξ
    start: Array  # ξ₁, which it began with: 0, unless promoted from a fit
    factor: Array  # U of each row, upper triangular, UᵀU = A; none of first order
    basis: Array  # for a = 0: orthonormal rows that span the mistakes of each row of weights, while its rank is < D
    rank: Counts
    k: Counts  # updates of each row
    t: int  # points in the average
    last: int  # t of the newest update; 0: none yet
    q: Array  # Q = Σ φᵀA⁺φ of each row over its mistakes, A with φ in it; 0 of first order


AXES = {
    "w": ("rows", "D"),
    "lag": ("rows", "D"),
    "rule": ("rows", "D"),
    "xi": ("rows", "D"),
    "start": ("rows", "D"),
    "factor": ("factors", "D", "D"),
    "basis": ("bases", "D", "D"),
    "rank": ("rows",),
    "k": ("rows",),
    "q": ("rows",),
}


def init(
    d: int,
    *,
    classes: int = 2,
    c: float = 1.0,
    a: float = 1.0,
    average: bool = True,
    W: ArrayLike | None = None,
    points: int = 0,
) -> State:
    """Of first order: a = ∞. From weights W on φ that a fit on so many points found: they weigh that much."""
    if not a >= 0:
        raise InvalidParameter("a", a, "0, a positive number, or ∞ for the first order")
    if points < 0:
        raise InvalidParameter("points", points, "0 or more")
    start = row_weights(W, d, 1 if classes == 2 else classes, c)
    if start.any() and a == 0:
        raise InvalidParameter("a", a, "a positive number: a pseudo-inverse of nothing cannot begin from weights")
    rows, D = start.shape
    xi = start if a == math.inf else a * start
    return State(
        c=float(c),
        a=float(a),
        average=bool(average),
        w=start,
        lag=np.zeros((rows, D)),
        rule=start,
        xi=xi,
        start=xi,
        factor=np.zeros((0, D, D)) if a == math.inf else np.tile(math.sqrt(a) * np.eye(D), (rows, 1, 1)),
        basis=np.zeros((rows, D, D)) if a == 0 else np.zeros((0, D, D)),
        rank=np.full(rows, D if a > 0 else 0),
        k=np.zeros(rows, dtype=np.int64),
        t=int(points),
        last=0,
        q=np.zeros(rows),
    )


def first(settings: Settings) -> State:
    """The state that a session without a reference point begins with: a perceptron is of first order"""
    a = math.inf if settings.algorithm == "perceptron" else settings.a
    d, K, c = settings.dimension, settings.classes, settings.curvature
    return init(d, classes=K, c=c, a=a, average=settings.average)


def grown(state: State, classes: int) -> State:
    """The same with more classes, which all say no, ⟨w,φ⟩ = −1, until they learn: w = (−1, 0 … 0), as if promoted

    Two classes had one row w, for the last of them: as rows of their own they are −w and w. What answers stays, but
    weighs no more than GROWN points from now on: an average over a long past would hold the new classes back.
    """
    D = state.w.shape[1]
    both = np.array([[-1.0], [1.0]])
    two, t = len(state.w) == 1, min(state.t, GROWN)

    def signed(rows: Array) -> Array:
        return both * rows if two else rows

    def twice(rows: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(rows, 2, axis=0) if two else rows

    if state.a == 0:
        raise InvalidParameter("a", state.a, "a positive number: a pseudo-inverse of nothing cannot begin from weights")
    no = -np.eye(D)[0]
    xi = no if state.a == math.inf else state.a * no
    factor = np.zeros((D, D)) if state.a == math.inf else math.sqrt(state.a) * np.eye(D)
    return replace(
        state,
        w=more_rows(signed(state.w), no, classes),
        lag=more_rows(signed(t * (state.w - state.rule)), np.zeros(D), classes),
        rule=more_rows(signed(state.rule), no, classes),
        xi=more_rows(signed(state.xi), xi, classes),
        start=more_rows(signed(state.start), xi, classes),
        factor=more_rows(twice(state.factor), factor, classes),
        rank=more_rows(twice(state.rank), D, classes),
        k=more_rows(twice(state.k), 0, classes),
        t=t,
        last=t if state.last else 0,
        q=more_rows(twice(state.q), 0.0, classes),
    )


def score(state: State, X: ArrayLike) -> Array:
    F, spanned = _features(state, X), state.a == 0 and not state.average
    scores = loops.hemisphere_scores(
        F, state.rule, state.basis, state.rank, RANK_TOLERANCE, spanned, math.sqrt(state.c)
    )
    return _columns(scores, state)


def predict(state: State, X: ArrayLike) -> NDArray[Any]:
    scores = score(state, X)
    return signs(scores) if len(state.rule) == 1 else np.asarray(np.argmax(scores, axis=1))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    F = _features(state, X)
    rows = len(state.w)
    labels = np.where(sign_labels(y, len(F)) > 0, 0, 1) if rows == 1 else class_labels(y, len(F), rows)
    n, w, lag, rule, xi, factor, basis, rank, k, q, t, last, scores, changed, updates = loops.hemisphere(
        F,
        labels,
        state.w,
        state.lag,
        state.rule,
        state.xi,
        state.factor,
        state.basis,
        state.rank,
        state.k,
        state.q,
        state.t,
        state.last,
        state.average,
        RANK_TOLERANCE,
        math.sqrt(state.c),
        until_change,
    )
    learned = replace(
        state, w=w, lag=lag, rule=rule, xi=xi, factor=factor, basis=basis, rank=rank, k=k, t=t, last=last, q=q
    )
    return Outcome(learned, _columns(scores[:n], state), changed[:n], updates=updates[:n])


def learn(state: State, X: Array, y: NDArray[Any], until_change: bool) -> Outcome[State]:
    """`observe`, of points and labels that were checked; to check them again costs little beside the step"""
    return observe(state, X, y, until_change=until_change)


def _features(state: State, X: ArrayLike) -> Array:
    return phi(unit_points(X, state.w.shape[1] - 2, state.c))


def _columns(scores: Array, state: State) -> Array:
    return scores[:, 0] if len(state.rule) == 1 else scores
