"""Support vector machines without a bias, each answer with its proof (duality.py):  b_i = y_i f_i,  t_i = 1 − ⟨w,b_i⟩

1  A sample. An eighth of the rows, solved roughly by the same means, gives the first w.
2  Newton on a smooth loss, all rows (smooth_newton.py): all that a squared hinge needs.
3  Interior point steps on the rows near the margin (interior_point.py), for a hinge and a hard margin.
4  Then P and D are bounded for certain. If the gap is not reached, interior point steps on all rows, with care.

A fit reaches its gap, or raises: NotSeparable with a witness, or NotConverged with the gap that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service import geometry
from service.batch import convex, interior_point, smooth_newton, svm_sums
from service.batch.convex import Progress
from service.batch.duality import Best, Problem, Run
from service.batch.passes import Block, Chunk, Passes, held
from service.batch.separability import refute, refute_zero_row
from service.batch.svm_sums import Bound, Multipliers, Near
from service.errors import (
    EmptyClass,
    InvalidParameter,
    LengthMismatch,
    NonFinite,
    NotConverged,
    UnknownLabel,
)
from service.geometry import Array

#: The first w is that of one row in SHARE, to a gap of ROUGH, where those are enough: LEAST, and ten times d.
SHARE, LEAST, ROUGH = 8, 250, 1e-2
#: Where no hard margin was found, one that is larger than this share of the rows' length is not ruled out as "none"
TINY = 1e-8


@dataclass(frozen=True)
class Fit:
    """w, and the λ that proves how good it is: P(w) ≤ primal and dual ≤ D(λ), whatever was rounded on the way."""

    w: Array
    dual_variables: Array
    primal: float
    dual: float
    iterations: int  # Newton and interior point steps, on whichever rows

    @property
    def gap(self) -> float:
        """(P − D)/P"""
        return convex.relative_gap(self.primal, self.dual)

    @property
    def support(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.dual_variables)


FEATURES: dict[str, Callable[[Array, Array, float], Array]] = {
    "tangent": lambda X, p, c: geometry.log_map(p, X, c=c),
    "lift": lambda X, p, c: geometry.lift(p, X, c=c),
    "hyperboloid": lambda X, p, c: geometry.to_hyperboloid(X, c=c),
    "hemisphere": lambda X, p, c: geometry.hemisphere(X, c=c),
}
LOSSES = ("hinge", "squared_hinge")
MARGINS = ("soft", "hard")


def features(X: ArrayLike, p: ArrayLike | None, kind: str = "tangent", *, c: float = 1.0) -> Array:
    """v = log_p(x), the paper's; z = lift(p, x), whose hard margin is the true one; without p (x₀, x₁ … x_d), or φ"""
    if kind not in FEATURES:
        raise InvalidParameter("features", kind, f"one of {', '.join(FEATURES)}")
    X = geometry.require_ball(X, c=c)
    if kind in ("hyperboloid", "hemisphere"):
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

    A hard margin has no loss and no C; its w has every y⟨w,f⟩ ≥ 1. Where there is none it raises NotSeparable, with a
    witness: convex weights s of rows with Σs_i b_i = 0. Where a margin is too small to be told from none (below about
    1e-8 of the rows' length) it may raise that too: then the witness proves that no margin is larger than ‖Σs_i b_i‖.
    Where the gap is out of reach, of max_iterations or of float64, it raises NotConverged.

    `start` is an earlier Fit, or weights. `progress` hears a number from 0 to 1 before every step; what it raises ends
    the fit. The result depends on the arguments alone: the sample is drawn with a fixed seed.
    """
    F, y, c, lengths = _checked(F, y, C, sample_weight)
    n, d = F.shape
    block = Block(F, y, c, lengths, np.arange(n))
    if not c.all():
        block = block.rows(np.flatnonzero(c))  # a weight of 0 is no row
    w, lam = _started(start, block, _kind(margin, loss), n, d)
    if not len(block):
        raise EmptyClass(-1)
    passes = held(block)
    best = solve(
        passes,
        margin=margin,
        loss=loss,
        start=(w, lam),
        gap=gap,
        max_iterations=max_iterations,
        progress=progress,
    )
    found = np.zeros(n)
    found[block.index] = np.concatenate([best.lam.on(chunk) for chunk in passes.parts[0].chunks(passes.rows)])
    return Fit(best.w, found, best.primal, best.dual, best.run.steps)


def solve(
    passes: Passes,
    *,
    margin: str = "soft",
    loss: str = "hinge",
    start: tuple[Array | None, Multipliers | None] = (None, None),
    gap: float = 1e-6,
    max_iterations: int = 1_000,
    progress: Progress | None = None,
) -> Best:
    """The same for rows that may be anywhere"""
    kind = _kind(margin, loss)
    convex.require_limits(gap, max_iterations)
    seen = passes(svm_sums.survey, kind)
    for label, count in zip((-1, 1), seen.totals()[0][:2], strict=True):
        if not count:
            raise EmptyClass(label)
    if seen.picked is not None and len(seen.picked):
        refute_zero_row(int(seen.picked.block.index[0]))
    best = Best(passes, kind, gap, Run(gap, max_iterations, progress or (lambda _: None)))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # what is not finite proves nothing
        _solve(best, *start)
    return best


def support(best: Best) -> int:
    """How many rows have λ > 0"""
    return int(best.passes(svm_sums.multiplier_sums, Bound(best.kind, lam=best.lam)).totals()[0][3])


def _solve(best: Best, w: Array | None, lam: Multipliers | None) -> None:
    """1 to 4 of the docstring"""
    run, limit = best.run, best.run.limit
    run.limit = max(1, limit // 2)  # the other half is for what needs care
    try:
        _solve_quickly(best, w, lam)
    except np.linalg.LinAlgError:  # a system that is singular, for rounding
        pass
    run.limit = limit
    if best.certify():
        return
    if (rows := best.passes.all_rows()) is None:
        raise NotConverged(best.relative, run.steps)
    problem = Problem.of(rows, best.kind)
    interior_point.on_all_rows(best, problem)
    if best.reached:
        return
    if best.primal == np.inf:
        lam_rows = best.lam.on(Chunk(rows.F, rows.y, rows.c, rows.lengths, rows.index))
        if lam_rows.any():
            refute(problem, lam_rows, TINY)
    raise NotConverged(best.relative, run.steps)


def _solve_quickly(best: Best, w: Array | None, lam: Multipliers | None) -> None:
    h = None
    if w is None:
        w, h = _sampled(best)
    if lam is not None and _offered(best, w, lam):
        return
    w = smooth_newton.SMOOTH[best.kind](best, w, h)
    if best.reached or best.run.over or best.kind == "squared_hinge":
        return
    if best.kind == "hinge" or best.primal < np.inf:
        interior_point.near_the_margin(best, w)


def _offered(best: Best, w: Array, lam: Multipliers) -> bool:
    """Whether what is started from will do, but for rounding"""
    seen = best.passes(svm_sums.misjudged, Near(best.kind, w, before=w, width=np.inf))
    numbers, v, _ = best.passes(svm_sums.multiplier_sums, Bound(best.kind, lam=lam)).totals()
    total, curved = float(numbers[0]), 2 * float(numbers[1])
    return best.offer(w, float(seen.totals()[0][0]), seen.most[0], lam, total, float(v @ v) + curved)


def _sampled(best: Best) -> tuple[Array, float | None]:
    """The w of one row in SHARE or more, at random, and the h to go on with; 0 if those were too few"""
    n, d = len(best.passes), best.passes.d
    k = min(n // SHARE, best.passes.limit())
    if k < max(LEAST, 10 * d):
        return np.zeros(d), None
    stride = n // k
    rows = best.passes.take(stride * np.arange(k) + np.random.default_rng(0).integers(stride, size=k))
    sample = held(replace(rows, c=rows.c * (n / k)))
    coarse = Best(sample, best.kind, max(ROUGH, best.gap), best.run)
    _solve_quickly(coarse, None, None)
    return coarse.w, coarse.h * smooth_newton.shrink(best.gap, coarse.relative)


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


def _started(
    start: Fit | ArrayLike | None, block: Block, kind: str, n: int, d: int
) -> tuple[Array | None, Multipliers | None]:
    """w and λ to start from; λ only if it is of as many rows"""
    if start is None:
        return None, None
    w = convex.start_weights(start.w if isinstance(start, Fit) else start, (d,))
    if not isinstance(start, Fit) or start.dual_variables.shape != (n,):
        return w, None
    return w, svm_sums.explicit(kind, start.dual_variables[block.index])
