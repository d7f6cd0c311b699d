"""Newton's method on a smooth loss, over all rows:  λ(t) = clip(a + σt, 0, u)

w = Σλ(t_i) b_i is solved with H = I + Σ_J σ_i b_i b_iᵀ over the rows strictly inside the clip. The squared hinge is
such a loss (a = 0, σ = 2c). The hinge is one in the limit: a = c/2, σ = c/2h, and h falls; so is the hard margin: a = 0
and σ grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from service.batch.convex import EPS
from service.batch.duality import Best
from service.batch.linear_systems import inverse
from service.batch.separability import refute
from service.geometry import Array

#: A hard margin is sought while σ grows GROWTH-fold, so many times.
GROWTH, STAGES = 30.0, 14
#: Newton steps within one stage
STEPS = 100
#: The first h has one row in SPARSE within it
SPARSE = 64


def shrink(gap: float, relative: float) -> float:
    """What h is multiplied with: the gap falls like h²"""
    return min(0.5, max(0.2, 0.7 * math.sqrt(gap / max(relative, gap))))


def smooth_squared_hinge(best: Best, w: Array, t: Array, h: float | None) -> tuple[Array, Array]:
    """λ(t) = 2c t₊"""
    w, t, lam, r = _newton(best, 0.0, 2 * best.problem.c, math.inf, w, t)
    primal = float(w @ w) / 2 + float(lam @ t) / 2
    best.take(primal, w, primal - float(r @ r) / 2, lam)
    return w, t


def smooth_hinge(best: Best, w: Array, t: Array, h: float | None) -> tuple[Array, Array]:
    """λ(t) = clip(c/2 + ct/2h, 0, c), h falling until too few rows are within it to hold w"""
    n, d = best.problem.F.shape
    c, few = best.problem.c, 2 * d + 50
    if n <= few:
        return w, t
    if h is None or h == math.inf:
        k = max(few, n // SPARSE)
        h = 2 * min(1.0, float(np.partition(np.abs(t), k - 1)[k - 1]) or 1.0)
    while True:
        best.h = h
        w, t, lam, _ = _newton(best, c / 2, c / (2 * h), c, w, t)
        if best.offer(w, t, lam) or best.run.over or h < 1e-3 or np.count_nonzero(np.abs(t) < h) < few:
            return w, t
        h *= shrink(best.gap, best.relative)


def smooth_hard(best: Best, w: Array, t: Array, h: float | None) -> tuple[Array, Array]:
    """λ(t) = σt₊, σ growing until every t < ½: then w, scaled, is a hard margin"""
    problem, run = best.problem, best.run
    sigma = 10 * problem.guess(w)
    for _ in range(STAGES):
        w, t, lam, _ = _newton(best, 0.0, sigma, math.inf, w, t)
        if best.offer(w, t, lam) or t.max() < 0.5 or run.over:
            break
        refute(problem, lam)
        sigma *= GROWTH
    return w, t


SMOOTH = {"squared_hinge": smooth_squared_hinge, "hinge": smooth_hinge, "hard": smooth_hard}


def _newton(
    best: Best, a: Array | float, sigma: Array | float, u: Array | float, w: Array, t: Array
) -> tuple[Array, Array, Array, Array]:
    """The w with r = w − Σλ(t_i)b_i = 0, λ(t) = clip(a + σt, 0, u), so far as the gap asks for it; its t, λ and r

    P(w) − D(λ) = ½‖r‖² + what the smooth loss differs from the true one: more of the first than of the second is waste.
    """
    problem, run, squared = best.problem, best.run, best.problem.kind == "squared_hinge"
    for steps in range(STEPS + 1):
        z = a + sigma * t
        lam = np.clip(z, 0, u)
        r, product = w - problem.combine(lam), float(lam @ t)
        loss = product / 2 if squared else problem.loss(t)
        primal = float(w @ w) / 2 + loss
        rest = 0.0 if squared else abs(loss - product) / 10
        if float(r @ r) / 2 <= max(best.gap * primal / 4, rest) or run.over or steps == STEPS:
            break
        run.step()
        step = -inverse(problem.F, problem.lengths, np.where((lam > 0) & (lam < u), sigma, 0), 0.1)(r)
        slope = float(r @ step)
        if -slope <= EPS * primal:
            break  # no lower, for rounding
        dt = problem.y * (problem.F @ step)
        x = _zero_of(partial(_slope, w, step, z, sigma * dt, dt, u), slope)
        w, t = w + x * step, t - x * dt
    return w, t, lam, r


def _slope(w: Array, step: Array, z: Array, dz: Array, dt: Array, u: Array | float, x: float) -> float:
    """d/dx of ½‖w‖² + Σ∫λ, x steps from here"""
    return float((w + x * step) @ step - np.clip(z - x * dz, 0, u) @ dt)


def _zero_of(f: Callable[[float], float], first: float) -> float:
    """Where an increasing f with f(0) = first < 0 is 0, to half of that; 1 if that will do"""
    low, at_low, high, at_high = 0.0, first, 1.0, f(1.0)
    while at_high < first / 2 and high < 1e6:
        low, at_low, high = high, at_high, 4 * high
        at_high = f(high)
    for _ in range(STEPS):
        if at_high <= -first / 2:
            break
        x = low + (high - low) * min(0.9, max(0.1, at_low / (at_low - at_high)))
        at_x = f(x)
        if at_x < first / 2:
            low, at_low = x, at_x
        else:
            high, at_high = x, at_x
    return high
