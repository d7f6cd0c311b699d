"""The hyperboloid perceptron: needs no reference point.

    ŷ = sgn[w,h];  on a mistake  w ← w + y Hh,  H = diag(−1, 1, …, 1),  [w,h] = ⟨Hw, h⟩

with h = to_hyperboloid(x) ∈ R^{d+1}. A spacelike w ([w,w] > 0) has the boundary {[w,h] = 0}, and asinh([w,h]/√[w,w]) is
the signed distance to it. w can be timelike: then there is no boundary, every point is called the same, and the score
is asinh([w,h]/‖w‖), which still grows with confidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from service.errors import InvalidParameter
from service.geometry import Array, require_ball
from service.learners import loops
from service.learners.contract import Outcome, Settings, Signs, sign_labels, signs, unit_points, weights


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    w: Array  # weights, time first
    start: Array  # w₁, the weights it began with: 0, unless promoted from a fit
    seen_negative: bool
    seen_positive: bool
    k: int  # updates
    reach: float  # max sinh²(r/2), r = d(0, x)


AXES = {"w": ("d",), "start": ("d",)}


def init(d: int, *, c: float = 1.0, w: ArrayLike | None = None) -> State:
    if not isinstance(d, int) or d < 1:
        raise InvalidParameter("dimension", d, "a positive integer")
    if not 0 < c < math.inf:
        raise InvalidParameter("curvature c", c, "a positive number")
    start = weights(w, d + 1)
    return State(float(c), start, start, seen_negative=False, seen_positive=False, k=0, reach=0.0)


def first(settings: Settings) -> State:
    """The state that a session begins with"""
    return init(settings.dimension, c=settings.curvature)


def score(state: State, X: ArrayLike) -> Array:
    ratios = loops.hyperboloid_ratios(unit_points(X, state.w.size - 1, state.c), state.w)
    return np.arcsinh(ratios) / math.sqrt(state.c)


def predict(state: State, X: ArrayLike) -> Signs:
    return signs(score(state, X))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    X = require_ball(X, state.w.size - 1, c=state.c)
    return learn(state, X, sign_labels(y, len(X)), until_change)


def learn(state: State, X: Array, y: Signs, until_change: bool) -> Outcome[State]:
    """`observe`, of points and signs that were checked"""
    X = X if state.c == 1 else X * math.sqrt(state.c)
    n, w, k, reach, ratios, changed = loops.hyperboloid(X, y, state.w, state.k, state.reach, until_change)
    learned = replace(
        state,
        w=w,
        seen_negative=state.seen_negative or bool((y[:n] < 0).any()),
        seen_positive=state.seen_positive or bool((y[:n] > 0).any()),
        k=k,
        reach=reach,
    )
    return Outcome(learned, np.arcsinh(ratios[:n]) / math.sqrt(state.c), changed[:n])
