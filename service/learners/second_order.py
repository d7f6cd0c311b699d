"""The Poincaré second-order perceptron: O(d) a prediction, O(d²) a mistake.

    A = aI + Σ z zᵀ and ξ = Σ y z over the mistakes;  ŷ = sgn⟨A⁻¹ξ, z⟩

The paper predicts with (A + z zᵀ)⁻¹ξ, but ⟨(A+zzᵀ)⁻¹ξ, z⟩ = ⟨A⁻¹ξ, z⟩/(1 + zᵀA⁻¹z) has the same sign, so w = A⁻¹ξ
changes only on a mistake. Kept is the triangular U with UᵀU = A, not A⁻¹: Givens rotations add z zᵀ to it without
ever losing symmetry or positivity, and w follows by two triangular solves. It stays accurate for any number of updates.

a = 0 means the pseudo-inverse. While the mistakes span only a subspace, U holds A in the coordinates of an orthonormal
basis of it, and a z outside the span scores exactly 0. "Outside" is decided by rank: what is left of z beside the span
is more than RANK_TOLERANCE of ‖z‖. Once the span is whole, there is nothing left to tell a = 0 from a > 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from service.errors import InvalidParameter
from service.geometry import Array, require_ball
from service.learners import loops
from service.learners.contract import (
    Counts,
    Flags,
    Outcome,
    Settings,
    Signs,
    reference_of,
    sign_labels,
    signs,
    unit_point,
    unit_points,
    weights,
)

#: The rounding of z turns it by up to eps·σ_x, some 4e-11 at the radius limit; this is well above it.
RANK_TOLERANCE = 1e-9


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    p: Array  # reference point, in the unit ball
    a: float  # regularisation; 0 = pseudo-inverse
    w: Array  # A⁻¹ξ
    xi: Array  # ξ
    start: Array  # ξ₁, which it began with: 0, unless promoted from a fit
    factor: Array  # U, upper triangular, UᵀU = A
    basis: Array  # orthonormal rows spanning the mistakes, while rank < d; no rows after that
    rank: int
    k: int  # updates
    reach: float  # max sinh²(r/2), r = d(p, x)
    q: float = math.nan  # Q = Σ zᵀA⁺z over the mistakes, A with z in it; nan: not known, from before it was kept


AXES = {
    "p": ("d",),
    "w": ("d",),
    "xi": ("d",),
    "start": ("d",),
    "factor": ("d", "d"),
    "basis": ("rows", "d"),
}


def init(p: ArrayLike, *, c: float = 1.0, a: float = 1.0, w: ArrayLike | None = None) -> State:
    """From the weights w, in lifted coordinates, when there are some already: ξ₁ = a·w"""
    if not 0 <= a < math.inf:
        raise InvalidParameter("a", a, "0 or a positive number")
    p = unit_point(p, c)
    start = weights(w, p.size)
    if start.any() and a == 0:
        raise InvalidParameter("a", a, "a positive number: a pseudo-inverse of nothing cannot begin from weights")
    d, xi = p.size, a * start
    basis, rank = (np.empty((0, d)), d) if a > 0 else (np.zeros((d, d)), 0)
    return State(
        float(c),
        p,
        float(a),
        w=start,
        xi=xi,
        start=xi,
        factor=math.sqrt(a) * np.eye(d),
        basis=basis,
        rank=rank,
        k=0,
        reach=0.0,
        q=0.0,
    )


def first(settings: Settings) -> State:
    """The state that a session begins with"""
    return init(reference_of(settings), c=settings.curvature, a=settings.a)


def score(state: State, X: ArrayLike) -> Array:
    X = unit_points(X, state.p.size, state.c)
    ratios = loops.spanned_ratios(X, state.p, state.w, state.basis, state.rank, RANK_TOLERANCE)
    return np.arcsinh(ratios) / math.sqrt(state.c)


def predict(state: State, X: ArrayLike) -> Signs:
    return signs(score(state, X))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    X = require_ball(X, state.p.size, c=state.c)
    return learn(state, X, sign_labels(y, len(X)), until_change)


def learn(state: State, X: Array, y: Signs, until_change: bool) -> Outcome[State]:
    """`observe`, of points and signs that were checked"""
    X = X if state.c == 1 else X * math.sqrt(state.c)
    n, w, xi, factor, basis, rank, k, q, reach, ratios, changed = loops.second_order(
        X,
        y,
        state.p,
        state.w,
        state.xi,
        state.factor,
        state.basis,
        state.rank,
        RANK_TOLERANCE,
        state.k,
        state.q,
        state.reach,
        until_change,
    )
    if rank == state.p.size:
        basis = basis[:0]
    learned = replace(state, w=w, xi=xi, factor=factor, basis=basis, rank=rank, k=k, reach=reach, q=q)
    return Outcome(learned, ratios[:n], changed[:n], scored=lambda ratios: np.arcsinh(ratios) / math.sqrt(state.c))


def learn_rows(states: Sequence[State], X: Array, y: Counts, until_change: bool) -> tuple[list[State], Array, Flags]:
    """One state a class against the rest, all at once; the same bits as one after another

    Returns the states, n×K distances, and which points changed any of them.
    """
    first = states[0]
    X = X if first.c == 1 else X * math.sqrt(first.c)
    spanning = max(len(state.basis) for state in states)
    n, w, xi, factor, basis, rank, k, q, reach, ratios, changed = loops.second_orders(
        X,
        y,
        np.stack([state.p for state in states]),
        np.stack([state.w for state in states]),
        np.stack([state.xi for state in states]),
        np.stack([state.factor for state in states]),
        np.stack([state.basis if len(state.basis) == spanning else np.zeros_like(state.factor) for state in states]),
        np.array([state.rank for state in states]),
        RANK_TOLERANCE,
        np.array([state.k for state in states]),
        np.array([state.q for state in states]),
        np.array([state.reach for state in states]),
        until_change,
    )
    whole = rank == first.p.size
    counts = zip(rank.tolist(), k.tolist(), reach.tolist(), q.tolist(), strict=True)
    learned = [
        State(old.c, old.p, old.a, w[r], xi[r], old.start, factor[r], basis[r, :0] if whole[r] else basis[r], *row)
        for r, (old, row) in enumerate(zip(states, counts, strict=True))
    ]
    return learned, np.arcsinh(ratios[:n]) / math.sqrt(first.c), changed[:n]
