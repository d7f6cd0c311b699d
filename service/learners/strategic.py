"""The Poincaré strategic perceptron: the points come from agents that move them to be called positive.

    positive iff σ_p⟨w,v⟩/‖w‖ ≥ α,  v = log_p(x);  with w = 0 everything is positive

An agent with true point u moves along w, onto the threshold, if that costs at most its budget α. On a mistake
w ← w + y ηṽ, where ṽ = v, or v − αw/(σ_p‖w‖) for a negative found on the threshold (it may have come from there).
With r = d(p,x): σ_p v = (r/sinh r) z and η = σ_p sinh(r)/r, so all of it is done in lifted coordinates.

Rational agents land exactly on the threshold, and after exp → JSON → log half of them come back a hair below.
A point within TOLERANCE·max(α, r) of it therefore scores 0: it is positive, and it is on the threshold.

Score: σ_p⟨w,v⟩/‖w‖ − α, the signed distance to the threshold in the tangent space at p.

Unknown α: an agent that stays a distance e below the threshold proves α ≤ e, else it would have moved. Start high, and
let α be the m-th smallest such e among the newest stays, m = EVIDENCE: fewer irrational agents than that do not corrupt
it. Stays are kept in two generations of STAYS each, so that every one expires. An agent is known by its distance r from
p and counts once a generation. With a stay α falls to its own e, and by half, at most: when irrational agents are
enough, each further one takes half of it, a rational one takes it no lower than the truth, and it rises again when they
expire. A stay that is nearer than half of α is a jump, and counted. While agents are rational α is never
underestimated. Only points that answered this very classifier prove anything: those observed with `until_change`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

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
#: Stays after which a generation of evidence is the older one, and how many of its smallest distances are kept.
STAYS, KEPT = 2048, 8


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    p: Array  # reference point, in the unit ball
    w: Array  # weights, in tangent coordinates
    start: Array  # w₁, the weights it began with: 0, unless promoted from a fit
    alpha: float  # the budget, or its estimate, in the unit ball
    estimating: bool
    evidence: Array  # smallest distances at which agents stayed, ∞ where none: of the older generation, of the newer
    k: int  # updates
    reach: float  # max sinh²(r/2), r = d(p, x)
    agents: Array  # the r of each of those, −1 where none
    older: int  # stays of the older generation
    newer: int  # and of the newer
    cap: float  # where the estimate began: it never rises above that
    jumps: int  # stays that would have had α fall by more than half


AXES = {"p": ("d",), "w": ("d",), "start": ("d",), "evidence": ("m",), "agents": ("m",)}


def init(p: ArrayLike, *, budget: float, c: float = 1.0, estimate: bool = False, w: ArrayLike | None = None) -> State:
    """`budget` is α; with `estimate`, where its estimate starts: better too high than too low."""
    if not 0 < budget < math.inf:
        raise InvalidParameter("budget", budget, "a positive number")
    p = unit_point(p, c)
    start, alpha = weights(w, p.size), budget * math.sqrt(c)
    evidence, agents = np.full(2 * KEPT, np.inf), np.full(2 * KEPT, -1.0)
    return State(float(c), p, start, start, alpha, estimate, evidence, 0, 0.0, agents, 0, 0, alpha, 0)


def known_budget(state: State) -> dict[str, Any]:
    """What a state knows of the budget"""
    return {name: getattr(state, name) for name in ("alpha", "evidence", "agents", "older", "newer", "cap", "jumps")}


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
    rules = np.array([EVIDENCE, STAYS])
    n, w, alpha, evidence, agents, counts, k, reach, scores, changed = loops.strategic(
        X,
        y,
        state.p,
        state.w,
        state.alpha,
        TOLERANCE,
        state.evidence,
        state.agents,
        np.array([state.older, state.newer, state.jumps]),
        rules,
        state.cap,
        state.estimating,
        far,
        state.k,
        state.reach,
        until_change,
    )
    older, newer, jumps = counts.tolist()
    learned = replace(
        state,
        w=w,
        alpha=alpha,
        k=k,
        reach=reach,
        evidence=evidence,
        agents=agents,
        older=older,
        newer=newer,
        jumps=jumps,
    )
    return Outcome(learned, scores[:n] / math.sqrt(state.c), changed[:n], updates=signs(scores[:n]) != y[:n])
