"""Interior point steps (Mehrotra) for  min ½‖w−g‖² + Σc_i(t_i)₊,  for hard margins and for squared hinges

    p − q = κλ − t,   r = w − g − Σλ_i b_i = 0,   λp = (c−λ)q = μ → 0,   λ, c−λ, p, q > 0

κ = 1/2c for a squared hinge, else 0; a hard margin and a squared hinge have c = ∞, q = 0. c−λ is kept beside λ: where λ
is nearly c their difference would be rounding alone.

`near_the_margin` takes the rows that matter. Far beyond the margin λ_i = 0 and far on its wrong side λ_i = c_i, so
those rows are nothing and a constant g = Σc_i b_i. Then all rows are looked at, and those left out wrongly come in.

`on_all_rows` is for what that leaves unsolved: rows whose lengths differ by many orders of magnitude, a C so large that
the hinge is a hard margin. It begins far from any bound, factorises by QR, sums in the longest floats there are, and
proves what it found as it goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from service.batch import linear_systems, svm_sums
from service.batch.convex import EPS
from service.batch.duality import Best, Problem, Run, multiple
from service.batch.passes import Picked, Places, Visit, joined
from service.batch.separability import refute
from service.batch.svm_sums import STEP, Multipliers, Near
from service.geometry import Array

#: Steps on one set of rows, from one start
STEPS = 100
#: Rows of up to so many numbers are factorised by QR and copied into the longest floats
LONG = 2_000_000
#: A hard margin of less than 1/√(2·SUSPECT) of the rows' length may be none
SUSPECT = 1e12


@dataclass(frozen=True)
class Iterate:
    """A point inside the bounds, or a step from one"""

    w: Array
    t: Array
    lam: Array
    rest: Array  # c − λ
    p: Array
    q: Array

    @property
    def boxed(self) -> bool:
        return bool(self.rest[0] < math.inf)

    @property
    def mean(self) -> float:
        """μ"""
        if not self.boxed:
            return float(self.lam @ self.p) / len(self.p)
        return float(self.lam @ self.p + self.rest @ self.q) / (2 * len(self.p))

    def moved(self, x: float, step: Iterate) -> Iterate:
        w, t, lam, rest = self.w + x * step.w, self.t + x * step.t, self.lam + x * step.lam, self.rest + x * step.rest
        return Iterate(w, t, lam, rest, self.p + x * step.p, self.q + x * step.q)

    def room(self, step: Iterate) -> float:
        """The x at which the first bound is met"""
        fastest = max(float(np.max(-step.lam / self.lam)), float(np.max(-step.p / self.p)), EPS)
        if self.boxed:
            fastest = max(fastest, float(np.max(-step.rest / self.rest)), float(np.max(-step.q / self.q)))
        return 1 / fastest

    def gap(self, problem: Problem, g: Array, lam: Array) -> float:
        """P(w) − D(λ) = ½‖r‖² + Σ(c_i(t_i)₊ − λ_i t_i)"""
        if not self.boxed:
            return problem.primal(self.w, self.t)[0] - problem.dual(lam)[0]
        r = self.w - g - problem.combine(lam)
        return float(r @ r) / 2 + problem.loss(self.t) - float(lam @ self.t)

    def put(self, c: Array) -> Array:
        """λ, on its bounds 0 and c where p and q say that it belongs there"""
        top = self.lam.max()
        return np.where(self.lam <= self.p * top, 0, np.where(self.rest <= self.q * top, c, self.lam))


def path(problem: Problem, g: Array, at: Iterate, careful: bool, run: Run) -> Iterator[Iterate]:
    """The iterates, from `at` on, as far as rounding lets them go"""
    sums = _Sums(problem, careful)
    kappa = 1 / (2 * problem.c) if problem.kind == "squared_hinge" else np.zeros(len(problem))
    for _ in range(STEPS):
        yield at
        if run.over:
            return
        run.step()
        r = at.w - g - sums.combine(at.lam)
        theta = 1 / (at.p / at.lam + at.q / at.rest + kappa)
        solve = (
            linear_systems.orthogonal_inverse(problem.F, theta)
            if careful
            else linear_systems.inverse(problem.F, problem.lengths, theta, 1e-2)
        )
        system = _System(sums, at, r, theta, at.t + at.p - at.q - kappa * at.lam, solve)
        ahead = system.step(0.0, None)
        mu, after = at.mean, at.moved(min(1.0, at.room(ahead)), ahead).mean
        along = system.step(mu * min(after / mu, 10.0) ** 3, ahead)
        x = min(1.0, 0.995 * at.room(along))
        if not x > EPS:
            return
        at = at.moved(x, along)
        if careful:
            at = Iterate(at.w, sums.slack(at.w), at.lam, at.rest, at.p, at.q)


class _Sums:
    """⟨w,b_i⟩ and Σλ_i b_i, careful or not"""

    def __init__(self, problem: Problem, careful: bool) -> None:
        self.problem = problem
        self.refinements = 12 if careful else 4
        self.long = problem.F.astype(np.longdouble) if careful else None

    def dot(self, w: Array) -> Array:
        if self.long is None:
            return np.asarray(self.problem.y * (self.problem.F @ w))
        return np.asarray(self.problem.y * (self.long @ w.astype(np.longdouble)), dtype=np.float64)

    def slack(self, w: Array) -> Array:
        if self.long is None:
            return self.problem.slack(w)
        return np.asarray(1 - self.problem.y * (self.long @ w.astype(np.longdouble)), dtype=np.float64)

    def combine(self, lam: Array) -> Array:
        if self.long is None:
            return self.problem.combine(lam)
        return np.asarray((self.problem.y * lam).astype(np.longdouble) @ self.long, dtype=np.float64)


@dataclass(frozen=True)
class _System:
    """What the two steps from one iterate share:  Δλ = θ(e − ⟨Δw,b⟩),  Δw = Σ Δλ_i b_i − r"""

    sums: _Sums
    at: Iterate
    r: Array
    theta: Array
    lacking: Array  # p − q + t − κλ, which is to be 0
    solve: linear_systems.Solve

    def step(self, mu: float, ahead: Iterate | None) -> Iterate:
        """To λp = (c−λ)q = μ, less the products of the step ahead"""
        at = self.at
        to_p, to_q = mu / at.lam - at.p, mu / at.rest - at.q
        if ahead:
            to_p, to_q = to_p - ahead.lam * ahead.p / at.lam, to_q - ahead.rest * ahead.q / at.rest
        dlam = self.theta * (to_p - to_q + self.lacking)
        dw, db = np.zeros_like(self.r), np.zeros_like(dlam)
        rest = self.sums.combine(dlam) - self.r
        for _ in range(self.sums.refinements):  # θ is as large as p is small, and magnifies what rounding leaves
            more = self.solve(rest)
            along = self.sums.dot(more)
            dw, db, dlam = dw + more, db + along, dlam - self.theta * along
            rest = self.sums.combine(dlam) - self.r - dw
            if rest @ rest <= 1e-4 * (self.r @ self.r):
                break
        drest = -dlam if at.boxed else np.zeros_like(dlam)
        return Iterate(dw, -db, dlam, drest, to_p - at.p / at.lam * dlam, to_q + at.q / at.rest * dlam)


# ---------------------------------------------------------------------------------- the rows that matter


def near_the_margin(best: Best, w: Array) -> None:
    """The rows near the margin by `_solved`, the others as they were; then those left out wrongly come in"""
    passes, kind = best.passes, best.kind
    limit, hinge = passes.limit(), kind == "hinge"
    if hinge:
        near = _picked(best, svm_sums.around, Near(kind, w, width=2 * best.h, limit=limit, lam=best.lam))
    else:
        near = _picked(best, svm_sums.foremost, Near(kind, w, limit=min(limit, 3 * passes.d + 200)))
        near = _union(near, _picked(best, svm_sums.holding, Near(kind, w, limit=limit, lam=best.lam)))
    while not best.run.over:
        places, before = Places(near.places), best.primal
        known, g, others = Problem.of(near.block, kind), np.zeros(passes.d), 0.0
        if hinge:
            g, [others] = passes(svm_sums.beyond, Near(kind, w, places=places)).totals()
        new, lam = _solved(known, g, w, best.gap * best.primal / 2, best.run)
        most = float(known.slack(new).max(initial=-math.inf))
        asked = Near(kind, new, before=w, width=most, limit=limit, places=places)
        seen = passes(svm_sums.misjudged, asked)
        v, wrong = g + known.combine(lam), seen.picked
        found = Multipliers(kind, w if hinge else None, STEP, places=places, values=lam)
        if best.offer(new, float(seen.totals()[0][0]), seen.most[0], found, others + float(lam.sum()), float(v @ v)):
            return
        assert wrong is not None
        if not len(wrong) and best.primal > before / 2:
            return
        near, w = _union(near, wrong), new


def _picked(best: Best, visit: Visit, near: Near) -> Picked:
    found = best.passes(visit, near).picked
    assert found is not None
    return found


def _union(one: Picked, other: Picked) -> Picked:
    """The rows of both, by their places"""
    if not len(other):
        return one
    new = ~np.isin(other.places, one.places)
    rows = np.flatnonzero(new)
    more = replace(
        other, block=other.block.rows(rows), places=other.places[rows], values=other.values[rows], rank=other.rank[rows]
    )
    both = joined([replace(one, limit=len(one) + len(more)), more])
    order = np.argsort(both.places)
    return replace(both, block=both.block.rows(order), places=both.places[order], values=both.values[order])


def _solved(problem: Problem, g: Array, w: Array, enough: float, run: Run) -> tuple[Array, Array]:
    """The w and λ of these rows, to a gap of `enough`, or the best that was met"""
    if len(problem) == 0:
        return g, np.zeros(0)
    best, least = _centred(problem, g, w), math.inf
    for at in path(problem, g, best, False, run):
        gap = at.gap(problem, g, at.lam)
        if gap < least:
            best, least = at, gap
        if gap > 1e3 * least:
            break  # past what rounding allows
        if gap <= enough and at.gap(problem, g, put := at.put(problem.box)) <= enough:
            return at.w, put
    return best.w, best.lam


def _centred(problem: Problem, g: Array, w: Array) -> Iterate:
    """Around w, with λp = (c−λ)q in every row, and p and q as wide as r is large"""
    t, n = problem.slack(w), len(problem)
    h = min(1.0, float(np.median(np.abs(t))) or 1.0)
    p, q, c = np.maximum(-t, 0) + h, np.maximum(t, 0) + h, problem.c
    if problem.kind == "hard":
        return Iterate(w, t, problem.guess(w) * h / p, problem.box, p, np.zeros(n))
    r = w - g - problem.combine(c * q / (p + q))
    p, q = p + float(r @ r) / 2 / float(c.sum()), q + float(r @ r) / 2 / float(c.sum())
    return Iterate(w, t, c * q / (p + q), c * p / (p + q), p, q)


# ---------------------------------------------------------------------------------- all rows, whatever their lengths


def on_all_rows(best: Best, given: Problem) -> None:
    """Until the gap is certain, from one start after the other"""
    lengths = given.lengths
    s = 2.0 ** -round(math.log2(float(np.median(lengths[lengths > 0])))) if lengths.any() else 1.0
    problem = given.scaled(s)
    axes = None
    if problem.F.shape[1] > len(problem):  # w is a combination of the rows: it has no more dimensions than they
        axes, L = np.linalg.qr(problem.F.T)
        problem = replace(problem, F=np.ascontiguousarray(L.T))
    for start in _starts(problem):
        for at in path(problem, np.zeros_like(start.w), start, problem.F.size <= LONG, best.run):
            if not np.isfinite(at.lam).all():
                break
            if _proven(best, given, at, problem, s, axes):
                return
            if problem.kind == "hard" and best.dual > SUSPECT * s**2:
                refute(problem, at.lam)


def _proven(best: Best, problem: Problem, at: Iterate, scaled: Problem, s: float, axes: Array | None) -> bool:
    """Offer w and Σλb, in their best lengths, with λ and λ put on its bounds"""
    for w, lam in ((at.w, at.lam), (scaled.combine(at.lam), at.put(scaled.box))):
        w, lam = s * (w if axes is None else axes @ w), np.minimum(lam * s**2, problem.box)
        if problem.kind == "hinge":
            v, fullest = problem.combine(lam), float((lam / problem.c).max())
            best_length = float(lam.sum()) / (float(v @ v) or math.inf)
            lam = np.minimum(lam * min(best_length or 1.0, 1 / fullest), problem.c) if fullest > 0 else lam
        else:
            lam = problem.dual(lam)[1]
        if best.offer_bounds(multiple(problem, w, problem.slack(w)), lam):
            return True
    return False


def _starts(problem: Problem) -> Iterator[Iterate]:
    """At w = 0 (t = 1), with p as wide as it would be at a w of length W, and λp = W²

    A hard margin's w is at least as long as 1/‖b‖ for the shortest row; lengths are 1 in the middle. A hinge's q begins
    in the order of λp/c (its c may be so large that no λ comes near it), or with p − q = −t, or with λ in the middle of
    its box. A squared hinge's λ begins small, or with the 2c that w = 0 has.
    """
    n, d = problem.F.shape
    w, t, c, box, none = np.zeros(d), np.ones(n), problem.c, problem.box, np.zeros(n)
    shortest = float(np.min(problem.lengths, initial=math.inf, where=problem.lengths > 0))
    for W in (1.0, 1 / shortest):
        p = 1 + W * problem.lengths
        lam = W**2 / p
        if problem.kind == "hinge":
            lam = np.minimum(lam, c / 2)
            yield Iterate(w, t, lam, c - lam, p, lam * p / (c - lam))
            yield Iterate(w, t, lam, c - lam, p, p + 1)
        else:
            yield Iterate(w, t, lam if problem.kind == "hard" else np.minimum(lam, c), box, p, none)
    if problem.kind == "hinge":
        yield Iterate(w, t, 2 * c / 3, c / 3, t, 2 * t)
    if problem.kind == "squared_hinge":
        yield Iterate(w, t, 2 * c, box, t, none)
