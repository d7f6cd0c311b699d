"""Newton's method on a smooth loss, over all rows:  λ(t) = clip(a + σt, 0, u)

w = Σλ(t_i) b_i is solved with H = I + Σ_J σ_i b_i b_iᵀ over the rows strictly inside the clip. The squared hinge is
such a loss (a = 0, σ = 2c). The hinge is one in the limit: a = c/2, σ = c/2h, and h falls; so is the hard margin: a = 0
and σ grows.

A step costs one pass, which tells value, gradient and Hessian where the step leads. Where it is too long or too short,
a second tells the slope at several lengths at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.batch import linear_systems, svm_sums
from service.batch.convex import EPS
from service.batch.duality import Best, Problem, typical_multiplier
from service.batch.passes import Passes
from service.batch.separability import refute
from service.batch.svm_sums import SQUARED_HINGE, At, Law, Multipliers, Near
from service.geometry import Array

#: A hard margin is sought while σ grows GROWTH-fold, so many times.
GROWTH, STAGES = 30.0, 14
#: Newton steps within one stage
STEPS = 100
#: The first h has one row in SPARSE within it, as seen on SEEN rows
SPARSE, SEEN = 64, 1 << 17
#: Where the slope is looked at between two lengths of a step: here, and where a straight line has its zero
BETWEEN = (0.1, 0.3, 0.6, 0.9)


def shrink(gap: float, relative: float) -> float:
    """What h is multiplied with: the gap falls like h²"""
    return min(0.5, max(0.2, 0.7 * math.sqrt(gap / max(relative, gap))))


@dataclass(frozen=True)
class Point:
    """A w, and what a pass said of it by the law of the loss"""

    w: Array
    law: Law
    product: float  # Σλt
    loss: float  # Σcℓ
    total: float  # Σλ
    curved: float  # Σλ²/2c, squared hinge
    weights: float  # Σλ‖b‖, hard margin
    inside: int  # rows strictly inside the clip
    v: Array  # Σλb
    hessian: Array | None
    most: float  # max t, hard margin

    @property
    def r(self) -> Array:
        """The gradient, w − Σλb"""
        return self.w - self.v

    def lam(self, kind: str) -> Multipliers:
        return Multipliers(kind, self.w, self.law)


def look(best: Best, w: Array, law: Law) -> Point:
    """From memory the Hessian is asked for when it is needed; where rows are read for it, at once"""
    eager = not best.passes.in_memory and best.passes.d <= linear_systems.DIRECT
    seen = best.passes(svm_sums.evaluate, At(best.kind, w, law, hessian=eager))
    numbers, v, *rest = seen.totals()
    product, loss, total, curved, weights, inside = (float(each) for each in numbers)
    return Point(
        *(w, law, product, loss, total, curved, weights, int(inside), v),
        hessian=rest[0] if rest else None,
        most=seen.most[0] if seen.most else 0.0,
    )


def offer(best: Best, at: Point) -> bool:
    curvature = float(at.v @ at.v) + at.curved
    return best.offer(at.w, at.loss, at.most, at.lam(best.kind), at.total, curvature)


def smooth_squared_hinge(best: Best, w: Array, h: float | None) -> Array:
    """λ(t) = 2c t₊"""
    at = _newton(best, look(best, w, SQUARED_HINGE))
    primal = float(at.w @ at.w) / 2 + at.loss
    best.take(primal, at.w, primal - float(at.r @ at.r) / 2, at.lam(best.kind))
    return at.w


def smooth_hinge(best: Best, w: Array, h: float | None) -> Array:
    """λ(t) = clip(c/2 + ct/2h, 0, c), h falling until too few rows are within it to hold w"""
    n, few = len(best.passes), 2 * best.passes.d + 50
    if n <= few:
        return w
    if h is None or h == math.inf:
        h = _first_width(best.passes, w, max(few, n // SPARSE) / n)
    while True:
        best.h = h
        at = _newton(best, look(best, w, svm_sums.smooth_hinge(h)))
        w = at.w
        enough = h < 1e-3 and at.inside <= best.passes.limit()
        if offer(best, at) or best.run.over or enough or at.inside < few:
            return w
        h *= shrink(best.gap, best.relative)


def _first_width(passes: Passes, w: Array, share: float) -> float:
    """Twice the |t| that a share of the rows has at most"""
    rows = passes.spread(SEEN)
    size = np.abs(1 - rows.y * (rows.F @ w))
    k = min(len(rows), max(1, round(share * len(rows))))
    return 2 * min(1.0, float(np.partition(size, k - 1)[k - 1]) or 1.0)


def smooth_hard(best: Best, w: Array, h: float | None) -> Array:
    """λ(t) = σt₊, σ growing until every t < ½: then w, scaled, is a hard margin"""
    squares = best.passes(svm_sums.survey, "hard").totals()[0][2]
    sigma = 10 * typical_multiplier(w, len(best.passes), float(squares) / len(best.passes))
    for _ in range(STAGES):
        at = _newton(best, look(best, w, svm_sums.smooth_hard(sigma)))
        w = at.w
        if offer(best, at) or at.most < 0.5 or best.run.over:
            break
        refute_by(best, at)
        sigma *= GROWTH
    return w


def refute_by(best: Best, at: Point) -> None:
    """Raise NotSeparable if the rows with λ > 0, or those of the largest that can be picked, prove it"""
    if float(np.sqrt(at.v @ at.v)) > 1e-3 * at.weights:
        return
    near = Near(best.kind, at.w, lam=at.lam(best.kind), limit=best.passes.limit())
    picked = best.passes(svm_sums.holding, near).picked
    if picked is not None:
        refute(Problem.of(picked.block, best.kind), picked.values)


SMOOTH = {"squared_hinge": smooth_squared_hinge, "hinge": smooth_hinge, "hard": smooth_hard}


def _newton(best: Best, at: Point) -> Point:
    """The w with r = w − Σλ(t_i)b_i = 0, λ(t) = clip(a + σt, 0, u), so far as the gap asks for it

    P(w) − D(λ) = ½‖r‖² + what the smooth loss differs from the true one: more of the first than of the second is waste.
    """
    run, squared = best.run, best.kind == "squared_hinge"
    for steps in range(STEPS + 1):
        r, primal = at.r, float(at.w @ at.w) / 2 + at.loss
        rest = 0.0 if squared else abs(at.loss - at.product) / 10
        if float(r @ r) / 2 <= max(best.gap * primal / 4, rest) or run.over or steps == STEPS:
            break
        run.step()
        step = -_direction(best, at)
        slope = float(r @ step)
        if -slope <= EPS * primal:
            break  # no lower, for rounding
        at = _searched(best, at, step, slope)
    return at


def _searched(best: Best, at: Point, step: Array, first: float) -> Point:
    """Where the slope along the step, `first` < 0 here, is 0, to half of that; the whole step if that will do"""
    trial = look(best, at.w + step, at.law)
    slope = float(trial.r @ step)
    if abs(slope) <= -first / 2:
        return trial

    def slopes(lengths: Sequence[float]) -> list[float]:
        asked = At(best.kind, at.w, at.law, step=step, lengths=tuple(lengths))
        pulls = best.passes(svm_sums.slopes, asked).totals()[0]
        return [float((at.w + x * step) @ step) - float(pull) for x, pull in zip(lengths, pulls, strict=True)]

    x = _zero_of(slopes, first, slope)
    return trial if x == 1.0 else look(best, at.w + x * step, at.law)


def _zero_of(slopes: Callable[[Sequence[float]], list[float]], first: float, at_one: float) -> float:
    """Where an increasing function with the values `first` < 0 at 0 and `at_one` at 1 is 0, to half of `first`"""
    low, at_low, high, at_high = 0.0, first, 1.0, at_one
    if at_high < first / 2:
        longer = [4.0**k for k in range(1, 11)]
        for x, value in zip(longer, slopes(longer), strict=True):
            low, at_low, high, at_high = high, at_high, x, value
            if not at_high < first / 2:
                break
    for _ in range(STEPS):
        if not at_high > -first / 2 or high - low <= EPS * high:
            break
        line = min(0.95, max(0.05, at_low / (at_low - at_high)))
        lengths = [low + (high - low) * share for share in sorted({*BETWEEN, line})]
        for x, value in zip(lengths, slopes(lengths), strict=True):
            if value < first / 2:
                low, at_low = x, value
            else:
                high, at_high = x, value
                break
    return high


def _direction(best: Best, at: Point) -> Array:
    """(I + Σ_J σ_i b_i b_iᵀ)⁻¹r, by whichever is smaller: H, the rows inside, or products with H alone"""
    passes, k, d = best.passes, at.inside, best.passes.d
    asked = At(best.kind, at.w, at.law, limit=passes.limit())
    if k == 0:
        return at.r
    if d <= min(k, linear_systems.DIRECT):
        H = passes(svm_sums.hessian, asked).totals()[0] if at.hessian is None else at.hessian
        return linear_systems.solved(H, at.r)
    if k <= passes.limit():
        picked = passes(svm_sums.inside, asked).picked
        assert picked is not None
        return linear_systems.inverse(picked.block.F, picked.block.lengths, picked.values, 0.1)(at.r)

    def product(x: Array) -> Array:
        return x + passes(svm_sums.product, replace(asked, step=x)).totals()[0]

    small = d <= linear_systems.FALLBACK
    scale = 1 / (1 + passes(svm_sums.diagonal, asked).totals()[0])
    tolerance, limit = (0.1, 50) if small else (1e-3, 2_000)
    x, close = linear_systems.conjugate_gradients(product, scale, at.r, tolerance, limit)
    if close or not small:
        return x
    return linear_systems.solved(passes(svm_sums.hessian, asked).totals()[0], at.r)
