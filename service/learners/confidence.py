"""What the error rate of a stream is, at all times at once: a confidence sequence from two counts.

With S mistakes in t points and p the mean of the conditional error rates so far, for every fixed λ

    e^{λS} / (1 − p + pe^λ)^t   is at most a martingale that began at 1,

also when the rates change from point to point, since Σ log(1 − p_s + p_s e^λ) ≤ t log(1 − p + pe^λ): the logarithm is
concave. So is a mixture over the fixed λ of a grid, of both signs, and by Ville's inequality p stays in
{p : mixture < 1/δ} at all times together with probability 1 − δ. The mixture is convex in p and at most 1 at S/t: that
is an interval. Its ends are rounded outwards: they are points that the float arithmetic, its own error counted against
them, proves to be outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from service.errors import InvalidParameter

#: ±2^3 … ±2^−16: right for a few points as for 10⁹.
LAMBDAS = np.array([sign * 2.0**j for j in range(3, -17, -1) for sign in (1, -1)])
_EXPM1 = np.expm1(LAMBDAS)
_LOG_WEIGHT = -math.log(len(LAMBDAS))
#: λS has one rounding, log1p(p·expm1 λ) three and times t one more, the sum of the terms a few: all below this.
_ROUNDING = 8 * 2.0**-52


@dataclass(frozen=True)
class Interval:
    estimate: float | None  # mistakes / observed; None before the first point
    low: float
    high: float
    level: float


def interval(observed: int, mistakes: int, level: float = 0.95) -> Interval:
    """The mean error rate of the stream so far, with probability `level` at all times at once"""
    if not 0 < level < 1:
        raise InvalidParameter("level", level, "between 0 and 1")
    if not 0 <= mistakes <= observed:
        raise InvalidParameter("mistakes", mistakes, f"0 … {observed}, the points observed")
    if observed == 0:
        return Interval(None, 0.0, 1.0, level)
    estimate, limit = mistakes / observed, -math.log1p(-level) * (1 + _ROUNDING)
    low = _end(observed, mistakes, estimate, 0.0, limit)
    high = _end(observed, mistakes, estimate, 1.0, limit)
    return Interval(estimate, low, high, level)


def log_mixture(observed: int, mistakes: int, p: float) -> float:
    """At most the logarithm of the mixture at p: what rounding may have added is taken off"""
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = observed * np.log1p(p * _EXPM1)
        terms = LAMBDAS * mistakes - growth - _ROUNDING * (np.abs(LAMBDAS) * mistakes + np.abs(growth) + 1)
    top = float(np.max(terms))
    return top + math.log(float(np.exp(terms - top).sum())) + _LOG_WEIGHT - _ROUNDING


def _end(observed: int, mistakes: int, inside: float, outside: float, limit: float) -> float:
    """The point nearest to `inside` that is proven to be outside; the border of [0, 1] where there is none"""
    if log_mixture(observed, mistakes, outside) < limit:
        return outside
    while abs(outside - inside) > 1e-13 + 1e-9 * min(inside, outside):
        middle = (inside + outside) / 2
        if log_mixture(observed, mistakes, middle) >= limit:
            outside = middle
        else:
            inside = middle
    return outside
