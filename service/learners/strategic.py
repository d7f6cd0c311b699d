"""The Poincaré strategic perceptron: the points come from agents that move them to be called positive.

    positive iff σ_p⟨w,v⟩/‖w‖ ≥ α,  v = log_p(x);  with w = 0 everything is positive

An agent with true point u moves along w, onto the threshold, if that costs at most its budget α. On a mistake
w ← w + y ηṽ, where ṽ = v, or v − αw/(σ_p‖w‖) for a negative found on the threshold (it may have come from there).
With r = d(p,x): σ_p v = (r/sinh r) z and η = σ_p sinh(r)/r, so all of it is done in lifted coordinates.

Rational agents land exactly on the threshold, and after exp → JSON → log half of them come back a hair below.
A point within TOLERANCE·max(α, r) of it therefore scores 0: it is positive, and it is on the threshold.

Score: σ_p⟨w,v⟩/‖w‖ − α, the signed distance to the threshold in the tangent space at p.

Unknown α: an agent that stays a distance e below the threshold proves α ≤ e, else it would have moved. Start high and
lower α to the EVIDENCE-th smallest such e (one irrational agent would corrupt the smallest). While agents are rational
this never underestimates. Only points that answered this very classifier prove anything: those observed with
`until_change`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from service.errors import InvalidParameter
from service.geometry import RADIUS_LIMIT, Array, distance, require_ball
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

#: How near to the threshold, relative to max(α, r), is on it. The round trip above loses at most 1e-10 of it.
TOLERANCE = 1e-9
#: How many agents must have stayed within e of the threshold before α is lowered to e.
EVIDENCE = 3


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    p: Array  # reference point, in the unit ball
    w: Array  # weights, in tangent coordinates
    start: Array  # w₁, the weights it began with: 0, unless promoted from a fit
    alpha: float  # the budget, or its estimate, in the unit ball
    estimating: bool
    evidence: Array  # the smallest distances below the threshold at which agents stayed, ascending, ∞ where none
    k: int  # updates
    reach: float  # max sinh²(r/2), r = d(p, x)


AXES = {"p": ("d",), "w": ("d",), "start": ("d",), "evidence": ("m",)}


def init(p: ArrayLike, *, budget: float, c: float = 1.0, estimate: bool = False, w: ArrayLike | None = None) -> State:
    """`budget` is α; with `estimate`, where its estimate starts: better too high than too low."""
    if not 0 < budget < math.inf:
        raise InvalidParameter("budget", budget, "a positive number")
    p = unit_point(p, c)
    start, evidence = weights(w, p.size), np.full(EVIDENCE, np.inf)
    return State(float(c), p, start, start, budget * math.sqrt(c), estimate, evidence, k=0, reach=0.0)


def first(settings: Settings) -> State:
    """The state that a session begins with"""
    return init(reference_of(settings), c=settings.curvature, budget=settings.budget, estimate=settings.estimate)


def score(state: State, X: ArrayLike) -> Array:
    X = unit_points(X, state.p.size, state.c)
    return loops.strategic_scores(X, state.p, state.w, state.alpha, TOLERANCE) / math.sqrt(state.c)


def predict(state: State, X: ArrayLike) -> Signs:
    return signs(score(state, X))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    """With `until_change` the points answer this very classifier, and are evidence of the budget."""
    X = require_ball(X, state.p.size, c=state.c)
    return learn(state, X, sign_labels(y, len(X)), until_change)


def learn(state: State, X: Array, y: Signs, until_change: bool) -> Outcome[State]:
    """`observe`, of points and signs that were checked"""
    X = X if state.c == 1 else X * math.sqrt(state.c)
    # an agent whose best response would leave the ball's radius limit stays: that is no evidence
    far = RADIUS_LIMIT - float(distance(np.zeros_like(state.p), state.p))
    n, w, alpha, evidence, k, reach, scores, changed = loops.strategic(
        X,
        y,
        state.p,
        state.w,
        state.alpha,
        TOLERANCE,
        state.evidence,
        state.estimating,
        far,
        state.k,
        state.reach,
        until_change,
    )
    learned = replace(state, w=w, alpha=alpha, evidence=evidence, k=k, reach=reach)
    return Outcome(learned, scores[:n] / math.sqrt(state.c), changed[:n], updates=signs(scores[:n]) != y[:n])
