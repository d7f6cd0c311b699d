"""The two sides of a support vector machine, and what they prove:  b_i = y_i f_i,  t_i = 1 − ⟨w,b_i⟩

    primal   min  P(w) = ½‖w‖² + Σ c_i ℓ(t_i),   c_i = C s_i,   ℓ(t) = t₊ (hinge) or t₊² (squared hinge)
             hard margin: min ½‖w‖² with every t_i ≤ 0
    dual     max  D(λ) = Σλ_i − ½‖Σλ_i b_i‖² (− Σλ_i²/4c_i, squared hinge),   λ ≥ 0 (and λ_i ≤ c_i, hinge)

There is no bias, so the dual has no equality constraint (the paper prints one): any λ in its box is feasible, and
P(w) − D(λ) bounds how far w is from the optimum, whatever made the two.

While solvers run, P and D are rounded as they come. What is reported is bounded: `upper` ≥ P(w) and `lower` ≤ D(λ) hold
for the very numbers w and λ that are returned. ⟨w,b⟩ over d coordinates is off by at most d·eps·‖w‖‖b‖, and Σλb over k
rows by k·eps·Σλ‖b‖; where that is too much beside the gap, sums are taken in the longest floats NumPy has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from service.batch.convex import EPS, Progress
from service.batch.passes import Block, Passes, Rows
from service.batch.svm_sums import (
    BLOCK,
    Bound,
    Multipliers,
    explicit,
    loss_bound,
    margin_bound,
    multiplier_sums,
)
from service.geometry import Array

#: NumPy's sums of positive numbers are good to fewer eps than this: it adds halves of halves
SUM = 64
#: The share of the gap asked for that rounding may take before longer floats are used
SHARE = 3e-4
#: Tries to round a hard margin's w such that every ⟨w,b⟩ ≥ 1 is true
TRIES = 8


@dataclass(frozen=True)
class Problem:
    """Rows in memory, and which of the three it is: "hinge", "squared_hinge" or "hard" (c only weighs the sample)"""

    F: Array
    y: Array
    c: Array
    lengths: Array  # ‖f_i‖
    kind: str
    index: Rows  # of the rows, in F as given

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def of(cls, block: Block, kind: str) -> Problem:
        return cls(block.F, block.y, block.c, block.lengths, kind, block.index)

    def scaled(self, s: float) -> Problem:
        """For w/s in the place of w: rows s·f, c/s², and P/s² in the end; exact where s is a power of two"""
        return replace(self, F=self.F * s, lengths=self.lengths * s, c=self.c / s**2)

    @property
    def box(self) -> Array:
        """The largest λ"""
        return self.c if self.kind == "hinge" else np.full(len(self), math.inf)

    def slack(self, w: Array) -> Array:
        """t = 1 − ⟨w,b⟩"""
        return np.asarray(1 - self.y * (self.F @ w))

    def combine(self, lam: Array) -> Array:
        """Σλ_i b_i"""
        return np.asarray((self.y * lam) @ self.F)

    def loss(self, t: Array) -> float:
        """Σc_i ℓ(t_i);  0 for a hard margin, whose t_i are to be ≤ 0"""
        if self.kind == "hard":
            return 0.0
        t = np.maximum(t, 0)
        return float(self.c @ (t if self.kind == "hinge" else t * t))

    def primal(self, w: Array, t: Array) -> tuple[float, Array]:
        return primal_value(self.kind, w, self.loss(t), float(t.max()))

    def dual(self, lam: Array) -> tuple[float, Array]:
        """D(λ), and λ, scaled to its best where that keeps it feasible"""
        v, total = self.combine(lam), float(lam.sum())
        curved = float(lam @ (lam / self.c)) / 2 if self.kind == "squared_hinge" else 0.0
        D, scale = dual_value(self.kind, total, float(v @ v) + curved)
        return D, lam * scale

    def guess(self, w: Array) -> float:
        return typical_multiplier(w, len(self), float(np.square(self.lengths).mean()))


def typical_multiplier(w: Array, n: int, square: float) -> float:
    """A typical λ_i: Σλ_i = ‖w‖² at a hard margin, and it needs d + 1 rows; `square` the mean of ‖f_i‖²"""
    return max(float(w @ w), 1 / square) / min(n, len(w) + 1)


def dual_value(kind: str, total: float, curvature: float) -> tuple[float, float]:
    """D(xλ), and the x that is best where it keeps λ feasible, from Σλ and ‖Σλb‖² (+ Σλ²/2c, squared hinge)"""
    if kind == "hinge" or curvature == 0:
        return total - curvature / 2, 1.0
    return total * (total / curvature) / 2, total / curvature


# ---------------------------------------------------------------------------------- bounds that rounding cannot break


def upper(passes: Passes, kind: str, w: Array, tolerance: float) -> tuple[float, Array]:
    """(P, w) with P ≥ P(w); a hard margin's w is scaled until every ⟨w,b_i⟩ ≥ 1 for certain (P = ∞: it cannot be)"""
    if kind == "hard":
        return _upper_hard(passes, w)
    for long in (False, True):
        loss, unsure = passes(loss_bound, Bound(kind, w, long=long)).totals()[0]
        P = _squares(w) / 2 + float(loss) * (1 + SUM * EPS)
        if float(unsure) <= tolerance * P:
            break
    return P * (1 + 4 * EPS), w


def _upper_hard(passes: Passes, w: Array) -> tuple[float, Array]:
    for _ in range(TRIES):
        [short] = passes(margin_bound, Bound("hard", w, long=True)).most
        if short <= 0:
            return _squares(w) / 2 * (1 + 4 * EPS), w
        if not short < 1:
            break
        w = w * ((1 + 4 * EPS) / (1 - short))
    return math.inf, w


def lower(passes: Passes, lam: Multipliers, tolerance: float) -> float:
    """A D ≤ D(λ), for a λ in its box"""
    for long in (False, True):
        floats = np.longdouble if long else np.float64
        numbers, high, low = passes(multiplier_sums, Bound(lam.kind, lam=lam, long=long)).totals()
        total, curved, weights = (float(each) for each in numbers[:3])
        many = min(BLOCK, len(passes)) + 6
        known = (many * float(np.finfo(floats).eps) + 8 * EPS**2) * weights * (1 + SUM * EPS)
        length = float(np.sqrt(np.square(high.astype(np.longdouble) + low).sum())) * (1 + 4 * EPS)
        D = total - curved - length * length / 2 - known * (length + known)
        if 2 * known * (length + known) <= tolerance * D:
            break
    return D - SUM * EPS * (total + curved)


def multiple(problem: Problem, w: Array, t: Array) -> Array:
    """The s·w of the least P(s·w), for a hinge or a hard margin, with room for the rounding of s·w itself

    P(s·w) = ½s²‖w‖² + Σc_i(1 − s m_i)₊,  m_i = ⟨w,b_i⟩: convex, and quadratic between the 1/m_i.
    """
    size, m = float(w @ w), 1 - t - 2 * EPS * float(np.sqrt(w @ w)) * problem.lengths
    if problem.kind == "squared_hinge" or size == 0:
        return w
    if problem.kind == "hard":
        return w / m.min() if m.min() > 0 else w
    pull = problem.c * m
    ends = np.where(m > 0, 1 / np.where(m > 0, m, 1.0), math.inf)
    order = np.argsort(ends)
    left = pull.sum() - np.concatenate([[0.0], np.cumsum(pull[order])])  # Σ c_i m_i of the rows not yet at 1/m_i
    at = np.append(ends[order], math.inf)
    i = int(np.argmax(at * size >= left))  # the slope s‖w‖² − Σ is not negative any more at the end of this piece
    s = max(0.0, min(float(left[i]) / size, float(at[i])))
    return w * (s if i == 0 else max(s, float(at[i - 1])))


def _squares(w: Array) -> float:
    return float(np.square(w.astype(np.longdouble)).sum())


def primal_value(kind: str, w: Array, loss: float, most: float) -> tuple[float, Array]:
    """P(w), and w, which a hard margin scales until it just holds; from Σcℓ and max t"""
    if kind != "hard":
        return float(w @ w) / 2 + loss, w
    least = 1 - most
    return (float(w @ w) / 2 / (least * least), w / least) if least > 0 else (math.inf, w)


# ---------------------------------------------------------------------------------- the best of a run


@dataclass
class Run:
    """Counts the steps of a fit, and tells how far it is: log gap, over the log of the gap asked for"""

    gap: float
    limit: int
    progress: Progress
    steps: int = 0
    far: float = 0.0

    def step(self) -> None:
        self.progress(self.far)
        self.steps += 1

    @property
    def over(self) -> bool:
        return self.steps >= self.limit


class Best:
    """The lowest P and the highest D met, each with what reached it: any w and any feasible λ make a certificate."""

    def __init__(self, passes: Passes, kind: str, gap: float, run: Run) -> None:
        self.passes, self.kind, self.gap, self.run = passes, kind, gap, run
        self.primal, self.w = math.inf, np.zeros(passes.d)
        self.dual, self.lam = 0.0, Multipliers(kind)
        self.h = math.inf  # of the last smooth hinge

    def offer(self, w: Array, loss: float, most: float, lam: Multipliers, total: float, curvature: float) -> bool:
        """Whether the gap is reached, but for rounding; Σcℓ and max t of w, what dual_value asks for of λ"""
        D, scale = dual_value(self.kind, total, curvature)
        return self.take(*primal_value(self.kind, w, loss, most), D, lam.times(scale))

    def offer_bounds(self, w: Array, lam: Multipliers | Array) -> bool:
        """Whether the gap is reached for certain"""
        tolerance = SHARE * self.gap
        P, w = upper(self.passes, self.kind, w, tolerance)
        lam = lam if isinstance(lam, Multipliers) else explicit(self.kind, lam)
        return self.take(P, w, lower(self.passes, lam, tolerance), lam)

    def certify(self) -> bool:
        """The same for the best so far: from here on `primal` and `dual` are bounds"""
        w, lam = self.w, self.lam
        self.primal, self.dual = math.inf, -math.inf
        return self.offer_bounds(w, lam)

    def take(self, primal: float, w: Array, dual: float, lam: Multipliers) -> bool:
        """Keep what is better; whether the gap is reached"""
        if primal < self.primal:
            self.primal, self.w = primal, w
        if dual > self.dual:
            self.dual, self.lam = dual, lam
        if self.gap == self.run.gap and self.relative > 0:
            self.run.far = min(1.0, max(self.run.far, math.log(self.relative) / math.log(self.gap)))
        return self.reached

    @property
    def relative(self) -> float:
        return (self.primal - self.dual) / self.primal if self.primal < math.inf else 1.0

    @property
    def reached(self) -> bool:
        return self.relative <= self.gap
