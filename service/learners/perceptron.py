"""The Poincaré perceptron: Rosenblatt's, on the lifted points z.

    ŷ = sgn⟨w,z⟩;  on a mistake  w ← w + y z,  z = lift(p, x)

It is the paper's Algorithm 1, whose η·log_p(x) is z. Score: asinh(⟨w,z⟩/‖w‖), the signed hyperbolic distance
to the boundary H_{w,p}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from service.geometry import Array, require_ball
from service.learners import loops
from service.learners.contract import (
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


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    p: Array  # reference point, in the unit ball
    w: Array  # weights, in lifted coordinates
    start: Array  # w₁, the weights it began with: 0, unless promoted from a fit
    k: int  # updates
    reach: float  # max sinh²(r/2), r = d(p, x)


AXES = {"p": ("d",), "w": ("d",), "start": ("d",)}
#: `learn` takes rows as they are stored, too: the label behind the point
TAKES_ROWS = True


def init(p: ArrayLike, *, c: float = 1.0, w: ArrayLike | None = None) -> State:
    """At the reference point p; from the weights w, in lifted coordinates, when there are some already."""
    p = unit_point(p, c)
    start = weights(w, p.size)
    return State(c=float(c), p=p, w=start, start=start, k=0, reach=0.0)


def first(settings: Settings) -> State:
    """The state that a session begins with"""
    return init(reference_of(settings), c=settings.curvature)


def score(state: State, X: ArrayLike) -> Array:
    ratios = loops.lifted_ratios(unit_points(X, state.p.size, state.c), state.p, state.w)
    return np.arcsinh(ratios) / math.sqrt(state.c)


def predict(state: State, X: ArrayLike) -> Signs:
    return signs(score(state, X))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    X = require_ball(X, state.p.size, c=state.c)
    return learn(state, X, sign_labels(y, len(X)), until_change)


def learn(state: State, X: Array, y: Signs, until_change: bool) -> Outcome[State]:
    """`observe`, of points and signs that were checked"""
    X = X if state.c == 1 else X * math.sqrt(state.c)
    n, w, k, reach, ratios, changed = loops.perceptron(X, y, state.p, state.w, state.k, state.reach, until_change)
    learned = State(state.c, state.p, w, state.start, k, reach)
    scored = np.arcsinh if state.c == 1 else lambda ratios: np.arcsinh(ratios) / math.sqrt(state.c)
    return Outcome(learned, ratios[:n], changed[:n], scored=scored)
