"""What a support vector machine asks of its rows, one visit of a chunk each:  b_i = y_i f_i,  t_i = 1 − ⟨w,b_i⟩

A row's λ is a function of the row: λ(t) = m·clip(a + st, 0, u) at some w (a Law), but for the few rows whose λ an
interior point method found (Multipliers). So no number a row is kept anywhere between two passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batch.convex import EPS
from service.batch.passes import NOWHERE, Chunk, Places, Seen, pick
from service.geometry import Array

Real = NDArray[Any]  # float64 or longdouble
Mask = NDArray[np.bool_]

#: Rows that are summed at a time: k in the bound on Σλb
BLOCK = 512


@dataclass(frozen=True)
class Law:
    """λ(t) = m·clip(a + st, 0, u),  m the row's cost, or 1"""

    a: float
    s: float
    u: float
    weighted: bool = True

    def of(self, chunk: Chunk, t: Array) -> Array:
        if self.s == np.inf:
            return np.where(t > 0, chunk.c, 0.0)
        z = self.s * t
        if self.a:
            z += self.a
        np.maximum(z, 0, out=z)
        if self.u < np.inf:
            np.minimum(z, self.u, out=z)
        if self.weighted:
            z *= chunk.c
        return z

    def inside(self, t: Array) -> Mask:
        """Where λ grows with t"""
        if self.s == np.inf:
            return np.zeros(len(t), dtype=bool)
        if self.u == np.inf:
            return np.asarray(t > 0)
        z = self.s * t
        if self.a:
            z += self.a
        return (z > 0) & (z < self.u)

    def growth(self, c: Array) -> Array:
        """dλ/dt of rows inside"""
        return self.s * c if self.weighted else np.full(len(c), self.s)


def smooth_hinge(h: float) -> Law:
    return Law(0.5, 0.5 / h, 1.0)


#: λ = 2c t₊, and λ = c where t > 0
SQUARED_HINGE, STEP = Law(0.0, 2.0, np.inf), Law(0.0, np.inf, 1.0)


def smooth_hard(sigma: float) -> Law:
    return Law(0.0, sigma, np.inf, weighted=False)


@dataclass(frozen=True)
class Multipliers:
    """λ = scale·law(t) at w, but `values` for the rows at `places`; without a law 0 for all others"""

    kind: str
    w: Array | None = None
    law: Law | None = None
    scale: float = 1.0
    places: Places = NOWHERE
    values: Array = field(default_factory=lambda: np.zeros(0))

    def within(self, start: int, stop: int) -> Multipliers:
        low, high = np.searchsorted(self.places.places, [start, stop])
        return replace(self, places=self.places.within(start, stop), values=self.values[low:high])

    def times(self, x: float) -> Multipliers:
        return replace(self, scale=self.scale * x, values=self.values * x)

    def on(self, chunk: Chunk) -> Array:
        """λ of the rows of a chunk, in its box"""
        lam = np.zeros(len(chunk))
        if self.w is not None and self.law is not None:
            lam = self.scale * self.law.of(chunk, slack(chunk, self.w))
        places = self.places.places
        low, high = np.searchsorted(places, [chunk.start, chunk.start + len(chunk)])
        lam[places[low:high] - chunk.start] = self.values[low:high]
        return np.minimum(lam, chunk.c) if self.kind == "hinge" else lam

    def free(self, chunk: Chunk) -> Mask:
        """Rows of the law that are strictly inside its bounds, and those of other values that are in the box's"""
        found = np.zeros(len(chunk), dtype=bool)
        if self.w is not None and self.law is not None:
            found = self.law.inside(slack(chunk, self.w))
        places = self.places.places
        low, high = np.searchsorted(places, [chunk.start, chunk.start + len(chunk)])
        at, values = places[low:high] - chunk.start, self.values[low:high]
        found[at] = (values > 0) & ((values < chunk.c[at]) | (self.kind != "hinge"))
        return found


def explicit(kind: str, lam: Array) -> Multipliers:
    """One value a row"""
    return Multipliers(kind, places=Places(np.arange(len(lam))), values=lam)


def survey(chunk: Chunk, kind: str) -> Seen:
    """(rows with y = −1, rows with y = +1, Σ‖f‖²), and a row of zeros if a hard margin would meet one"""
    ahead = int(np.count_nonzero(chunk.y > 0))
    zero = chunk.lengths == 0 if kind == "hard" else np.zeros(len(chunk), dtype=bool)
    numbers = np.array([len(chunk) - ahead, ahead, float(np.square(chunk.lengths).sum())])
    return Seen((numbers,), picked=pick(chunk, zero, 1, rank=-(chunk.start + np.arange(len(chunk), dtype=float))))


def slack(chunk: Chunk, w: Array) -> Array:
    """t = 1 − ⟨w,b⟩"""
    return np.asarray(1 - chunk.y * chunk.dot(w))


def loss(chunk: Chunk, kind: str, t: Array) -> float:
    """Σc_i ℓ(t_i);  0 for a hard margin, whose t_i are to be ≤ 0"""
    if kind == "hard":
        return 0.0
    t = np.maximum(t, 0)
    return float(chunk.c @ (t if kind == "hinge" else t * t))


# ---------------------------------------------------------------------------------- Newton's method


@dataclass(frozen=True)
class At:
    """A w, and a law to find λ by"""

    kind: str
    w: Array
    law: Law
    hessian: bool = False
    step: Array | None = None
    lengths: tuple[float, ...] = ()  # of the step
    limit: int = 1


def evaluate(chunk: Chunk, at: At) -> Seen:
    """(Σλt, Σcℓ, Σλ, Σλ²/2c, Σλ‖b‖, rows inside), Σλb, and Σ dλ/dt bbᵀ if asked for; max t"""
    t = slack(chunk, at.w)
    lam, inside = at.law.of(chunk, t), at.law.inside(t)
    product = float(lam @ t)
    squared, hard = at.kind == "squared_hinge", at.kind == "hard"
    numbers = (
        product,
        product / 2 if at.law == SQUARED_HINGE else loss(chunk, at.kind, t),
        float(lam.sum()),
        float(lam @ (lam / chunk.c)) / 2 if squared else 0.0,
        float(lam @ chunk.lengths) if hard else 0.0,
        np.count_nonzero(inside),
    )
    v = (chunk.y * lam) @ chunk.F
    most = (float(t.max()),) if hard else ()
    if not at.hessian:
        return Seen((np.array(numbers), v), most)
    return Seen((np.array(numbers), v, _gram(chunk, at.law, inside)), most)


def hessian(chunk: Chunk, at: At) -> Seen:
    """Σ dλ/dt bbᵀ"""
    return Seen((_gram(chunk, at.law, at.law.inside(slack(chunk, at.w))),))


def _gram(chunk: Chunk, law: Law, inside: Mask, block: int = 4_096) -> Array:
    d = chunk.F.shape[1]
    total, rows = np.zeros((d, d)), np.flatnonzero(inside)
    for start in range(0, len(rows), block):  # that stay in the cache
        part = rows[start : start + block]
        G = chunk.F[part] * np.sqrt(law.growth(chunk.c[part]))[:, None]
        total += G.T @ G
    return total


def diagonal(chunk: Chunk, at: At) -> Seen:
    """The diagonal of the Hessian alone"""
    theta = np.where(at.law.inside(slack(chunk, at.w)), at.law.growth(chunk.c), 0)
    return Seen((np.einsum("i,ij,ij->j", theta, chunk.F, chunk.F),))


def product(chunk: Chunk, at: At) -> Seen:
    """The Hessian times the step"""
    assert at.step is not None
    theta = np.where(at.law.inside(slack(chunk, at.w)), at.law.growth(chunk.c), 0)
    return Seen(((theta * (chunk.F @ at.step)) @ chunk.F,))


def inside(chunk: Chunk, at: At) -> Seen:
    """The rows inside, and dλ/dt of each"""
    return Seen(picked=pick(chunk, at.law.inside(slack(chunk, at.w)), at.limit, at.law.growth(chunk.c)))


def slopes(chunk: Chunk, at: At) -> Seen:
    """Σλ(t_i − x dt_i) dt_i for each x, dt = ⟨step,b⟩"""
    assert at.step is not None
    t, dt = slack(chunk, at.w), chunk.y * chunk.dot(at.step)
    return Seen((np.array([float(at.law.of(chunk, t - x * dt) @ dt) for x in at.lengths]),))


# ---------------------------------------------------------------------------------- rows near the margin


@dataclass(frozen=True)
class Near:
    """What is asked of rows around a margin; those at `places` are known already"""

    kind: str
    w: Array
    before: Array | None = None
    width: float = 0.0
    limit: int = 1
    places: Places = NOWHERE
    lam: Multipliers | None = None

    def within(self, start: int, stop: int) -> Near:
        lam = None if self.lam is None else self.lam.within(start, stop)
        return replace(self, places=self.places.within(start, stop), lam=lam)


def around(chunk: Chunk, near: Near) -> Seen:
    """Rows with |t| ≤ width, and those whose λ is strictly between its bounds"""
    t = slack(chunk, near.w)
    found = np.abs(t) <= near.width
    if near.lam is not None:
        found |= near.lam.free(chunk)
    return Seen(picked=pick(chunk, found, near.limit, rank=-np.abs(t)))


def foremost(chunk: Chunk, near: Near) -> Seen:
    """Rows of the largest t, so many as may be kept"""
    t = slack(chunk, near.w)
    found = np.ones(len(t), dtype=bool)
    if len(t) > near.limit:
        found = t >= np.partition(t, len(t) - near.limit)[len(t) - near.limit]
    return Seen(picked=pick(chunk, found, near.limit, rank=t))


def holding(chunk: Chunk, near: Near) -> Seen:
    """Rows with λ > 0, and their λ"""
    assert near.lam is not None
    lam = near.lam.on(chunk)
    return Seen(picked=pick(chunk, lam > 0, near.limit, values=lam, rank=lam))


def beyond(chunk: Chunk, near: Near) -> Seen:
    """Σc b and Σc of the rows with t > 0 that are not known"""
    weights = np.where((slack(chunk, near.w) > 0) & ~near.places.mask(chunk), chunk.c, 0)
    return Seen(((chunk.y * weights) @ chunk.F, np.array([weights.sum()])))


def misjudged(chunk: Chunk, near: Near) -> Seen:
    """Of w: Σcℓ and max t. Rows not known with t > width (hard), or on another side than `before` had them (hinge)"""
    t, known = slack(chunk, near.w), near.places.mask(chunk)
    if near.kind == "hard":
        wrong, rank = ~known & (t > near.width), t
    else:
        assert near.before is not None
        wrong, rank = ~known & ((t > 0) != (slack(chunk, near.before) > 0)), np.abs(t)
    return Seen((np.array([loss(chunk, near.kind, t)]),), (float(t.max()),), pick(chunk, wrong, near.limit, rank=rank))


# ---------------------------------------------------------------------------------- bounds that rounding cannot break


@dataclass(frozen=True)
class Bound:
    """A w or a λ, and whether to use the longest floats"""

    kind: str
    w: Array | None = None
    lam: Multipliers | None = None
    long: bool = False

    def within(self, start: int, stop: int) -> Bound:
        return self if self.lam is None else replace(self, lam=self.lam.within(start, stop))

    @property
    def floats(self) -> Any:
        return np.longdouble if self.long else np.float64


def loss_bound(chunk: Chunk, of: Bound) -> Seen:
    """Not less than Σcℓ, and what of it may be rounding"""
    assert of.w is not None
    t, known = _slack_bounds(chunk, of.w, of.floats)
    t = np.maximum(t + known, 0)
    per_row = chunk.c * t
    if of.kind == "hinge":
        return Seen((np.array([float(per_row.sum()), 2 * float((chunk.c * known * (t > 0)).sum())]),))
    return Seen((np.array([float((per_row * t).sum()), 4 * float((per_row * known).sum())]),))


def margin_bound(chunk: Chunk, of: Bound) -> Seen:
    """The largest that a t may be"""
    assert of.w is not None
    t, known = _slack_bounds(chunk, of.w, of.floats)
    return Seen(most=(float((t + known).max()),))


def multiplier_sums(chunk: Chunk, of: Bound) -> Seen:
    """(Σλ, Σλ²/4c, Σλ‖b‖, rows with λ > 0), and Σλb in two parts: as float64, and the rest"""
    assert of.lam is not None
    lam = of.lam.on(chunk)
    count, block = np.count_nonzero(lam), chunk.rows(slice(None))
    if 4 * count < len(chunk):
        rows = np.flatnonzero(lam)
        block, lam = chunk.rows(rows), lam[rows]
    curved = float((lam * (lam / block.c)).sum()) / 4 if of.kind == "squared_hinge" else 0.0
    v = _combined(block.F, block.y * lam, of.floats)
    high = v.astype(np.float64)
    numbers = np.array([float(lam.sum()), curved, float((lam * block.lengths).sum()), count])
    return Seen((numbers, high, (v - high).astype(np.float64)))


def _slack_bounds(chunk: Chunk, w: Array, floats: Any) -> tuple[Real, Array]:
    """t = 1 − ⟨w,b⟩, and how far each may be off: ⟨w,b⟩ over d coordinates by d·eps·‖w‖‖b‖"""
    d, eps = len(w), float(np.finfo(floats).eps)
    product: Real = chunk.dot(w) if floats is np.float64 else chunk.F.astype(floats) @ w.astype(floats)
    known = (d + 4) * eps * (1 + (1 + 4 * d * EPS) * float(np.sqrt(w @ w)) * chunk.lengths)
    return np.asarray(1 - chunk.y * product), np.asarray(known)


def _combined(F: Array, weights: Array, floats: Any) -> Real:
    """Σλb, a BLOCK of rows at a time, and the blocks in the longest floats"""
    d = F.shape[1]
    v = np.zeros(d, dtype=np.longdouble)
    whole = len(weights) // BLOCK * BLOCK
    for start in range(0, whole, 64 * BLOCK):
        part = slice(start, min(start + 64 * BLOCK, whole))
        rows, part_weights = F[part].astype(floats, copy=False), weights[part].astype(floats, copy=False)
        blocks = np.matmul(part_weights.reshape(-1, 1, BLOCK), rows.reshape(-1, BLOCK, d))
        v += blocks.sum(axis=(0, 1), dtype=np.longdouble)
    return np.asarray(v + weights[whole:].astype(floats) @ F[whole:].astype(floats))
