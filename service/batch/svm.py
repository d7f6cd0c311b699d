"""Support vector machines without a bias, each answer with its proof:  b_i = y_i f_i,  t_i = 1 − ⟨w,b_i⟩

    primal   min  P(w) = ½‖w‖² + Σ c_i ℓ(t_i),   c_i = C s_i,   ℓ(t) = t₊ (hinge) or t₊² (squared hinge)
             hard margin: min ½‖w‖² with every t_i ≤ 0
    dual     max  D(λ) = Σλ_i − ½‖Σλ_i b_i‖² (− Σλ_i²/4c_i, squared hinge),   λ ≥ 0 (and λ_i ≤ c_i, hinge)

There is no bias, so the dual has no equality constraint (the paper prints one): any λ in its box is feasible, and
P(w) − D(λ) bounds how far w is from the optimum, whatever made the two. What makes them:

1  A sample. An eighth of the rows, solved roughly by the same means, gives the first w.
2  Newton on a smooth loss, λ(t) = clip(a + σt, 0, u): w = Σλ(t_i) b_i, H = I + Σ_J σ_i b_i b_iᵀ over the rows strictly
   inside the clip. The squared hinge is such a loss (a = 0, σ = 2c). The hinge is one in the limit: a = c/2, σ = c/2h,
   and h falls; so is the hard margin: a = 0, and σ grows.
3  An interior point method on the rows near the margin. Far beyond it λ_i = 0 and far on its wrong side λ_i = c_i, so
   those rows are nothing and a constant g = Σc_i b_i. Then all rows are looked at, and those left out wrongly come in.

Every step solves (I + Σθ_i f_i f_iᵀ)x = r: by a factor of its smaller side, or by conjugate gradients if that is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service import geometry
from service.batch import convex
from service.batch.convex import EPS, Progress
from service.errors import EmptyClass, InvalidParameter, LengthMismatch, NonFinite, NotSeparable, UnknownLabel
from service.geometry import Array

Rows = NDArray[np.int64]
Solve = Callable[[Array], Array]

#: The first w is that of one row in SHARE, to a gap of ROUGH, where those are enough: LEAST, and ten times d.
SHARE, LEAST, ROUGH = 8, 250, 1e-2
#: A system is factorised up to the size DIRECT. Above it conjugate gradients come first; where they are slow it is
#: factorised all the same, up to FALLBACK.
DIRECT, FALLBACK = 256, 4_000
#: ‖Σs_i b_i‖ ≤ ZERO·Σs_i‖b_i‖ is a sum that is zero, but for rounding
ZERO = 1e-12
#: A classifier is sought up to relative margins of about 1e-8: σ grows GROWTH-fold, so many times.
GROWTH, STAGES = 30.0, 14
#: Newton steps within one stage, and interior point steps on one set of rows
STEPS = 100


@dataclass(frozen=True)
class Fit:
    """w, and the λ that proves how good it is."""

    w: Array
    dual_variables: Array
    primal: float
    dual: float
    iterations: int  # Newton steps, on whichever rows
    reason: str  # "gap", "iterations" or "stalled"

    @property
    def gap(self) -> float:
        """(P − D)/P; infinite if w is no hard margin at all"""
        return convex.relative_gap(self.primal, self.dual)

    @property
    def support(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.dual_variables)


FEATURES: dict[str, Callable[[Array, Array, float], Array]] = {
    "tangent": lambda X, p, c: geometry.log_map(p, X, c=c),
    "lift": lambda X, p, c: geometry.lift(p, X, c=c),
    "hyperboloid": lambda X, p, c: geometry.to_hyperboloid(X, c=c),
}
LOSSES = ("hinge", "squared_hinge")
MARGINS = ("soft", "hard")


def features(X: ArrayLike, p: ArrayLike | None, kind: str = "tangent", *, c: float = 1.0) -> Array:
    """v = log_p(x), the paper's; z = lift(p, x), whose hard margin is the true one; or (x₀, x₁ … x_d), without p"""
    if kind not in FEATURES:
        raise InvalidParameter("features", kind, f"one of {', '.join(FEATURES)}")
    X = geometry.require_ball(X, c=c)
    if kind == "hyperboloid":
        return FEATURES[kind](X, X, c)
    if p is None:
        raise InvalidParameter("reference point", p, f"given, for {kind} features")
    return FEATURES[kind](X, geometry.require_ball(p, X.shape[1], c=c)[0], c)


def fit(
    F: ArrayLike,
    y: ArrayLike,
    *,
    margin: str = "soft",
    loss: str = "hinge",
    C: float = 1.0,
    sample_weight: ArrayLike | None = None,
    start: Fit | ArrayLike | None = None,
    gap: float = 1e-6,
    max_iterations: int = 1_000,
    progress: Progress | None = None,
) -> Fit:
    """The w that minimises P on the rows of F with labels ±1, to a relative gap of `gap`

    A hard margin has no loss and no C; where there is none it raises NotSeparable, with a witness: convex weights s of
    rows with Σs_i b_i = 0. Where a margin is too small to be told from none (below about 1e-8 of the rows' length) it
    raises that too, and the witness proves only that no margin is larger than ‖Σs_i b_i‖.

    `start` is an earlier Fit, or weights. `progress` hears a number from 0 to 1 before every step; what it raises ends
    the fit. The result depends on the arguments alone: the sample is drawn with a fixed seed.
    """
    F, y, c, lengths = _checked(F, y, C, sample_weight)
    kind = _kind(margin, loss)
    convex.require_limits(gap, max_iterations)
    n, d = F.shape
    problem = _Problem(F, y, c, lengths, kind, np.arange(n))
    if not c.all():
        problem = problem.rows(np.flatnonzero(c))  # a weight of 0 is no row
    for label in (-1, 1):
        if not (problem.y == label).any():
            raise EmptyClass(label)
    w, lam = _started(start, problem, n, d)
    best = _Best(problem, gap, _Run(gap, max_iterations, progress or (lambda _: None)))
    _solve(best, w, lam)
    return best.fit(n)


@dataclass(frozen=True)
class _Problem:
    """The rows, and which of the three it is: "hinge", "squared_hinge" or "hard" (where c only weighs the sample)"""

    F: Array
    y: Array
    c: Array
    lengths: Array  # ‖f_i‖
    kind: str
    index: Rows  # of the rows, in F as given

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, rows: Rows, scale: float = 1.0) -> _Problem:
        return _Problem(
            self.F[rows], self.y[rows], self.c[rows] * scale, self.lengths[rows], self.kind, self.index[rows]
        )

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
        """P(w), and w, which a hard margin scales until it just holds"""
        if self.kind != "hard":
            return float(w @ w) / 2 + self.loss(t), w
        least = 1 - float(t.max())
        return (float(w @ w) / 2 / least**2, w / least) if least > 0 else (math.inf, w)

    def dual(self, lam: Array) -> tuple[float, Array]:
        """D(λ), and λ, scaled to its best where that keeps it feasible"""
        v, total = self.combine(lam), float(lam.sum())
        curvature = float(v @ v)
        if self.kind == "squared_hinge":
            curvature += float(lam @ (lam / self.c)) / 2
        if self.kind == "hinge" or curvature == 0:
            return total - curvature / 2, lam
        return total**2 / curvature / 2, lam * (total / curvature)

    def guess(self, w: Array) -> float:
        """A typical λ_i: Σλ_i = ‖w‖² at a hard margin, and it needs d + 1 rows"""
        return max(float(w @ w), 1 / float(np.square(self.lengths).mean())) / min(len(self), len(w) + 1)


@dataclass
class _Run:
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


class _Best:
    """The lowest P and the highest D met, each with what reached it: any w and any feasible λ make a certificate."""

    def __init__(self, problem: _Problem, gap: float, run: _Run) -> None:
        self.problem, self.gap, self.run = problem, gap, run
        self.primal, self.w = math.inf, np.zeros(problem.F.shape[1])
        self.dual, self.lam = 0.0, np.zeros(len(problem))
        self.h = math.inf  # of the last smooth hinge

    def offer(self, w: Array, t: Array, lam: Array) -> bool:
        """Whether the gap is reached"""
        primal, w = self.problem.primal(w, t)
        dual, lam = self.problem.dual(lam)
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

    def fit(self, n: int) -> Fit:
        lam = np.zeros(n)
        lam[self.problem.index] = self.lam
        reason = "gap" if self.reached else "iterations" if self.run.over else "stalled"
        return Fit(self.w, lam, self.primal, self.dual, self.run.steps, reason)


def _solve(best: _Best, w: Array | None, lam: Array | None) -> None:
    """1, 2 and 3 of the docstring"""
    h = None
    if w is None:
        w, h = _sampled(best)
    t = best.problem.slack(w)
    if lam is not None and best.offer(w, t, lam):
        return
    w, t = SMOOTH[best.problem.kind](best, w, t, h)
    if not (best.reached or best.run.over or best.problem.kind == "squared_hinge"):
        _exact(best, w, t)


def _sampled(best: _Best) -> tuple[Array, float | None]:
    """The w of one row in SHARE, at random in each SHARE rows, and the h to go on with; 0 if that were too few"""
    n, d = best.problem.F.shape
    k = n // SHARE
    if k < max(LEAST, 10 * d):
        return np.zeros(d), None
    sample = SHARE * np.arange(k) + np.random.default_rng(0).integers(SHARE, size=k)
    coarse = _Best(best.problem.rows(sample, n / k), max(ROUGH, best.gap), best.run)
    _solve(coarse, None, None)
    return coarse.w, coarse.h * _shrink(best.gap, coarse.relative)


def _shrink(gap: float, relative: float) -> float:
    """What h is multiplied with: the gap falls like h²"""
    return min(0.5, max(0.2, 0.7 * math.sqrt(gap / max(relative, gap))))


# ---------------------------------------------------------------------------------- smooth losses, all rows


def _smooth_squared_hinge(best: _Best, w: Array, t: Array, h: float | None) -> tuple[Array, Array]:
    """λ(t) = 2c t₊"""
    w, t, lam = _newton(best, 0.0, 2 * best.problem.c, math.inf, w, t)
    best.offer(w, t, lam)
    return w, t


def _smooth_hinge(best: _Best, w: Array, t: Array, h: float | None) -> tuple[Array, Array]:
    """λ(t) = clip(c/2 + ct/2h, 0, c), h falling until too few rows are within it to hold w"""
    n, d = best.problem.F.shape
    c, few = best.problem.c, 2 * d + 50
    if n <= few:
        return w, t
    if h is None or h == math.inf:
        k = max(few, n // SHARE**2)
        h = 2 * min(1.0, float(np.partition(np.abs(t), k - 1)[k - 1]) or 1.0)
    while True:
        best.h = h
        w, t, lam = _newton(best, c / 2, c / (2 * h), c, w, t)
        if best.offer(w, t, lam) or best.run.over or h < 1e-3 or np.count_nonzero(np.abs(t) < h) < few:
            return w, t
        h *= _shrink(best.gap, best.relative)


def _smooth_hard(best: _Best, w: Array, t: Array, h: float | None) -> tuple[Array, Array]:
    """λ(t) = σt₊, σ growing until every t < ½: then w, scaled, is a hard margin"""
    problem, run = best.problem, best.run
    sigma = 10 * problem.guess(w)
    for _ in range(STAGES):
        w, t, lam = _newton(best, 0.0, sigma, math.inf, w, t)
        if best.offer(w, t, lam) or t.max() < 0.5 or run.over:
            break
        _refute(problem, lam, ZERO)
        sigma *= GROWTH
    if best.primal == math.inf and not run.over:
        _refute(problem, lam, math.inf)
    return w, t


SMOOTH = {"squared_hinge": _smooth_squared_hinge, "hinge": _smooth_hinge, "hard": _smooth_hard}


def _newton(
    best: _Best, a: Array | float, sigma: Array | float, u: Array | float, w: Array, t: Array
) -> tuple[Array, Array, Array]:
    """The w with r = w − Σλ(t_i)b_i = 0, λ(t) = clip(a + σt, 0, u), so far as the gap asks for it; its t and its λ

    P(w) − D(λ) = ½‖r‖² + what the smooth loss differs from the true one: more of the first than of the second is waste.
    """
    problem, run = best.problem, best.run
    for _ in range(STEPS):
        z = a + sigma * t
        lam = np.clip(z, 0, u)
        r, loss = w - problem.combine(lam), problem.loss(t)
        primal = float(w @ w) / 2 + loss
        rest = 0.0 if problem.kind == "squared_hinge" else abs(loss - float(lam @ t)) / 10
        if float(r @ r) / 2 <= max(best.gap * primal / 4, rest) or run.over:
            break
        run.step()
        step = -_inverse(problem, np.where((lam > 0) & (lam < u), sigma, 0), 0.1)(r)
        slope = float(r @ step)
        if -slope <= EPS * primal:
            break  # no lower, for rounding
        dt = problem.y * (problem.F @ step)
        x = _root(partial(_slope, w, step, z, sigma * dt, dt, u), slope)
        w, t = w + x * step, t - x * dt
    return w, t, lam


def _slope(w: Array, step: Array, z: Array, dz: Array, dt: Array, u: Array | float, x: float) -> float:
    """d/dx of ½‖w‖² + Σ∫λ, x steps from here"""
    return float((w + x * step) @ step - np.clip(z - x * dz, 0, u) @ dt)


def _root(f: Callable[[float], float], first: float) -> float:
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


def _refute(problem: _Problem, lam: Array, zero: float) -> None:
    """Raise NotSeparable if rows sum to zero: s = λ/Σλ, made exact by least squares, with ‖Σs_i b_i‖ ≤ zero·Σs_i‖b_i‖

    It proves that no w has a margin larger than ‖Σs_i b_i‖: min⟨w,b_i⟩ ≤ Σs_i⟨w,b_i⟩ ≤ ‖w‖‖Σs_i b_i‖.
    """
    rows = np.flatnonzero(lam)
    lengths = np.where(problem.lengths[rows] > 0, problem.lengths[rows], 1)
    s = lam[rows] * lengths
    if zero < 1 and np.linalg.norm(problem.combine(lam)) > 1e-3 * s.sum():
        return
    B = problem.F[rows] * (problem.y[rows] / lengths)[:, None]
    for _ in range(3):
        s = np.maximum(s - B @ np.linalg.lstsq(B.T @ B, s @ B)[0], 0)
    if not s.any() or np.linalg.norm(s @ B) > zero * s.sum():
        return
    weights = s / lengths
    weights /= weights.sum()
    margin = float(np.linalg.norm((weights * lengths) @ B))
    kept = weights > 0
    raise NotSeparable(
        f"no classifier has a margin larger than {margin:.1e}: {np.count_nonzero(kept)} points prove it",
        witness=list(zip(problem.index[rows[kept]].tolist(), weights[kept].tolist(), strict=True)),
    )


# ---------------------------------------------------------------------------------- exact losses, the rows that matter


def _exact(best: _Best, w: Array, t: Array) -> None:
    """The rows near the margin by `_interior`, the others as they were; then those left out wrongly come in"""
    problem, hinge = best.problem, best.problem.kind == "hinge"
    n, d = problem.F.shape
    k = min(n, 3 * d + 200)
    near = np.abs(t) <= 2 * best.h if hinge else t >= np.partition(t, n - k)[n - k]
    near |= (best.lam > 0) & (best.lam < (problem.c if hinge else math.inf))
    while not best.run.over:
        beyond = ~near & (t > 0) & hinge
        lam, before = np.where(beyond, problem.c, 0), best.primal
        rows = np.flatnonzero(near)
        w, lam[rows] = _interior(problem.rows(rows), problem.combine(lam), w, best.gap * best.primal / 2, best.run)
        t = problem.slack(w)
        if best.offer(w, t, lam):
            return
        wrong = ~near & ((t > 0) != beyond if hinge else t > t[rows].max(initial=-math.inf))
        if not wrong.any() and best.primal > before / 2:
            return
        near |= wrong


def _interior(problem: _Problem, g: Array, w: Array, enough: float, run: _Run) -> tuple[Array, Array]:
    """The w and λ of min ½‖w−g‖² + Σc_i(t_i)₊, or with every t ≤ 0, to a gap of `enough`: Mehrotra's method

    p − q = −t,  r = w − g − Σλ_i b_i = 0,  λp = (c−λ)q = μ → 0,  λ, c−λ, p, q > 0;  a hard margin is c = ∞, q = 0.
    In the end λ is put on its bounds where p and q say that it belongs there.
    """
    if len(problem) == 0:
        return g, np.zeros(0)
    at = _centred(problem, g, w)
    c, best, least = at.c, at, math.inf
    for _ in range(STEPS):
        gap = at.gap(problem, g, at.lam)
        if gap < least:
            best, least = at, gap
        if gap > 1e3 * least:
            break  # past what rounding allows
        if gap <= enough:
            top = at.lam.max()
            put = np.where(at.lam <= at.p * top, 0, np.where(c - at.lam <= at.q * top, c, at.lam))
            if at.gap(problem, g, put) <= enough:
                return at.w, put
        if run.over:
            break
        run.step()
        r = at.w - g - problem.combine(at.lam)
        theta = 1 / (at.p / at.lam + at.q / (c - at.lam))
        solve = _inverse(problem, theta, 1e-2)

        def step(
            mu: float,
            ahead: _Interior | None,
            at: _Interior = at,
            theta: Array = theta,
            solve: Solve = solve,
            r: Array = r,
        ) -> _Interior:
            """To λp = (c−λ)q = μ, less the products of the step ahead:  Δλ = θ(e − ⟨Δw,b⟩)"""
            to_p, to_q = mu / at.lam - at.p, mu / (c - at.lam) - at.q
            if ahead:
                to_p, to_q = to_p - ahead.lam * ahead.p / at.lam, to_q + ahead.lam * ahead.q / (c - at.lam)
            e = to_p - to_q + at.t + at.p - at.q
            dw, rest = np.zeros_like(r), problem.combine(theta * e) - r
            for _ in range(3):  # refined: θ is as large as p is small, and magnifies what rounding leaves
                dw = dw + solve(rest)
                db = problem.y * (problem.F @ dw)
                dlam = theta * (e - db)
                rest = problem.combine(dlam) - r - dw
                if rest @ rest <= 1e-4 * (r @ r):
                    break
            return _Interior(dw, -db, dlam, to_p - at.p / at.lam * dlam, to_q + at.q / (c - at.lam) * dlam, c)

        ahead = step(0.0, None)
        mu, after = at.mean, at.moved(min(1.0, at.room(ahead)), ahead).mean
        along = step(mu * (after / mu) ** 3, ahead)
        x = min(1.0, 0.995 * at.room(along))
        if not x > EPS:
            break
        at = at.moved(x, along)
    return best.w, best.lam


@dataclass(frozen=True)
class _Interior:
    """A point inside the bounds, or a step from one"""

    w: Array
    t: Array
    lam: Array
    p: Array
    q: Array
    c: Array

    @property
    def hard(self) -> bool:
        return bool(self.c[0] == math.inf)

    @property
    def mean(self) -> float:
        """μ"""
        if self.hard:
            return float(self.lam @ self.p) / len(self.p)
        return float(self.lam @ self.p + (self.c - self.lam) @ self.q) / (2 * len(self.p))

    def moved(self, x: float, step: _Interior) -> _Interior:
        w, t, lam = self.w + x * step.w, self.t + x * step.t, self.lam + x * step.lam
        return _Interior(w, t, lam, self.p + x * step.p, self.q + x * step.q, self.c)

    def room(self, step: _Interior) -> float:
        """The x at which the first bound is met"""
        fastest = max(float(np.max(-step.lam / self.lam)), float(np.max(-step.p / self.p)), EPS)
        if not self.hard:
            fastest = max(fastest, float(np.max(step.lam / (self.c - self.lam))), float(np.max(-step.q / self.q)))
        return 1 / fastest

    def gap(self, problem: _Problem, g: Array, lam: Array) -> float:
        """P(w) − D(λ) = ½‖r‖² + Σ(c_i(t_i)₊ − λ_i t_i)"""
        if self.hard:
            return problem.primal(self.w, self.t)[0] - problem.dual(lam)[0]
        r = self.w - g - problem.combine(lam)
        return float(r @ r) / 2 + problem.loss(self.t) - float(lam @ self.t)


def _centred(problem: _Problem, g: Array, w: Array) -> _Interior:
    """Around w, with λp = (c−λ)q in every row, and p and q as wide as r is large"""
    t, n = problem.slack(w), len(problem)
    h = min(1.0, float(np.median(np.abs(t))) or 1.0)
    p, q, c = np.maximum(-t, 0) + h, np.maximum(t, 0) + h, problem.c
    if problem.kind == "hard":
        return _Interior(w, t, problem.guess(w) * h / p, p, np.zeros(n), np.full(n, math.inf))
    r = w - g - problem.combine(c * q / (p + q))
    p, q = p + float(r @ r) / 2 / float(c.sum()), q + float(r @ r) / 2 / float(c.sum())
    return _Interior(w, t, c * q / (p + q), p, q, c)


# ---------------------------------------------------------------------------------- linear systems


def _inverse(problem: _Problem, theta: Array, tolerance: float) -> Solve:
    """r ↦ (I + Σθ_i f_i f_iᵀ)⁻¹r = r − Fᵀ(Θ⁻¹ + FFᵀ)⁻¹Fr, whichever is smaller; in large systems to a tolerance"""
    F, (n, d) = problem.F, problem.F.shape
    rows = np.flatnonzero(theta * problem.lengths**2 > 1e-6 / n)  # all others together are nothing beside I
    k = len(rows)
    if k == 0:
        return lambda r: r
    if d <= min(k, DIRECT):
        H = _gram(F, theta, rows)
        return lambda r: np.asarray(np.linalg.solve(H, r))
    if 2 * k < n or k < d:
        F, theta, rows = F[rows], theta[rows], np.arange(k)
    kept: list[Array] = []

    def solve(r: Array) -> Array:
        if not kept and min(k, d) > DIRECT:
            small = min(k, d) <= FALLBACK
            x, close = _conjugate_gradients(
                F, theta, r, tolerance if small else tolerance / 100, 50 if small else 2_000
            )
            if close or not small:
                return x
        if not kept:
            kept.append(
                _gram(F, theta, rows) if d <= k else F @ F.T + np.diag(1 / theta + EPS * problem.lengths.max() ** 2)
            )
        if d <= k:
            return np.asarray(np.linalg.solve(kept[0], r))
        return np.asarray(r - np.linalg.solve(kept[0], F @ r) @ F)

    return solve


def _gram(F: Array, theta: Array, rows: Rows, block: int = 4_096) -> Array:
    """I + Σθ_i f_i f_iᵀ over these rows; in blocks that stay in the cache"""
    H = np.eye(F.shape[1])
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        G = F[part] * np.sqrt(theta[part])[:, None]
        H += G.T @ G
    H[np.diag_indices_from(H)] *= 1 + EPS  # definite, whatever rounding did
    return H


def _conjugate_gradients(F: Array, theta: Array, r: Array, tolerance: float, limit: int) -> tuple[Array, bool]:
    """x with (I + Σθ_i f_i f_iᵀ)x = r, scaled by the diagonal, and whether the tolerance was met"""
    scale = 1 / (1 + np.einsum("i,ij,ij->j", theta, F, F))
    x, rest, z = np.zeros_like(r), r, scale * r
    direction, size = z, float(r @ z)
    enough = tolerance**2 * size
    for _ in range(limit):
        image = direction + (theta * (F @ direction)) @ F
        step = size / float(direction @ image)
        x, rest = x + step * direction, rest - step * image
        z = scale * rest
        before, size = size, float(rest @ z)
        if size <= enough:
            return x, True
        direction = z + size / before * direction
    return x, False


# ---------------------------------------------------------------------------------- what the caller gave


def _kind(margin: str, loss: str) -> str:
    if margin not in MARGINS:
        raise InvalidParameter("margin", margin, f"one of {', '.join(MARGINS)}")
    if loss not in LOSSES:
        raise InvalidParameter("loss", loss, f"one of {', '.join(LOSSES)}")
    return "hard" if margin == "hard" else loss


def _checked(
    F: ArrayLike, y: ArrayLike, C: float, sample_weight: ArrayLike | None
) -> tuple[Array, Array, Array, Array]:
    """F, y, c = C·s, and the lengths of the rows"""
    F = convex.feature_rows(F)
    labels = np.asarray(y)
    if labels.shape != (len(F),):
        raise LengthMismatch(points=len(F), labels=labels.size)
    good = np.isin(labels, (-1, 1))
    if not good.all():
        index = int(np.argmin(good))
        raise UnknownLabel(index, labels[index].item(), "[-1, 1]")
    lengths = np.sqrt(np.vecdot(F, F))
    if not np.isfinite(lengths).all():
        index = int(np.argmin(np.isfinite(lengths)))
        raise NonFinite(index, float(F[index][np.argmax(np.abs(F[index]))]), what="row")
    return F, labels.astype(np.float64), convex.costs(C, sample_weight, len(F)), lengths


def _started(start: Fit | ArrayLike | None, problem: _Problem, n: int, d: int) -> tuple[Array | None, Array | None]:
    """w and λ to start from; λ only if it is of as many rows, and put into its box"""
    if start is None:
        return None, None
    w = convex.start_weights(start.w if isinstance(start, Fit) else start, (d,))
    if not isinstance(start, Fit) or start.dual_variables.shape != (n,):
        return w, None
    lam = start.dual_variables[problem.index]
    return w, np.minimum(lam, problem.c) if problem.kind == "hinge" else lam
