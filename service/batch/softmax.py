"""Multinomial logistic regression, with its proof:  π_i = softmax(W f_i)

    primal   min  P(W) = ½‖W‖² − Σ c_i log π_i[y_i],   c_i = C s_i,   W of K rows
    dual     max  D(α) = Σ c_i H(α_i) − ½‖W(α)‖²,   W(α) = Σ c_i (e_{y_i} − α_i) f_iᵀ,   α_i convex weights, H entropy

α = π(W) is always feasible, and there P − D = ½‖W − W(π)‖² = ½‖∇P(W)‖²: the gradient is the certificate. Newton's
method with backtracking makes it small; the Hessian is formed where it is small, and else only multiplied with. What is
reported is bounded: primal ≥ P(W) and dual ≤ D(π(W)), whatever was rounded (softmax_sums.bounds).

On f = (1, x₀, x₁ … x_d), x on the hyperboloid, no reference point is needed. Two classes are divided by {⟨w,x⟩ = b}: a
hyperplane if b = 0, else a surface of equal distance to one, a sphere or a horosphere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.batch import convex, softmax_sums
from service.batch.convex import EPS, Progress
from service.batch.duality import SHARE, SUM
from service.batch.linear_systems import conjugate_gradients, orthogonal_inverse
from service.batch.passes import Block, Passes, held
from service.batch.softmax_sums import At
from service.errors import DimensionMismatch, EmptyClass, LengthMismatch, NonFinite, NotConverged, UnknownLabel
from service.geometry import Array, require_ball, to_hyperboloid

#: H is formed while K·d is no larger; above it conjugate gradients solve Newton's system, to TOLERANCE.
DIRECT, TOLERANCE, PRODUCTS = 400, 0.05, 200
#: Where steps by H are SHORT or come to nothing, for rounding, the root of H is factorised instead if it has no more
#: numbers than CAREFUL.
SHORT, CAREFUL = 1e-3, 5_000_000


@dataclass(frozen=True)
class Fit:
    """W, and how good it is. The dual point that proves it is probabilities(W, F)."""

    W: Array
    primal: float
    dual: float
    iterations: int

    @property
    def gap(self) -> float:
        """(P − D)/P"""
        return convex.relative_gap(self.primal, self.dual)


def features(X: ArrayLike, *, c: float = 1.0) -> Array:
    """f = (1, x₀, x₁ … x_d)

    Without the 1, x₀ has to serve as the bias too: on Olsson's data that costs 20 % of the accuracy.
    """
    X = require_ball(X, c=c)
    return np.concatenate([np.ones((len(X), 1)), to_hyperboloid(X, c=c)], axis=1)


def probabilities(W: ArrayLike, F: ArrayLike) -> Array:
    """π = softmax(W f), a row for each row of F, which depends on that row alone, bit for bit"""
    W, F = convex.real(W, "weights"), convex.real(F, "features")
    if F.shape[-1] != W.shape[1]:
        raise DimensionMismatch(expected=W.shape[1], got=F.shape[-1])
    return _softmax(np.vecdot(F[..., None, :], W))


def fit(
    F: ArrayLike,
    y: ArrayLike,
    *,
    classes: int | None = None,
    C: float = 1.0,
    sample_weight: ArrayLike | None = None,
    start: Fit | ArrayLike | None = None,
    gap: float = 1e-6,
    max_iterations: int = 200,
    progress: Progress | None = None,
) -> Fit:
    """The W that minimises P on the rows of F with labels 0 … K−1, to a relative gap of `gap`

    K is `classes`, or one more than the largest label; every class needs a point of positive weight. `progress` hears a
    number from 0 to 1 before every step; what it raises ends the fit. A gap that is out of reach raises NotConverged.
    """
    F = _rows(F)
    c = convex.costs(C, sample_weight, len(F))
    labels, K = _labels(y, c, classes)
    block = Block(F, labels, c, np.sqrt(np.vecdot(F, F)), np.arange(len(F)))
    W = _started(start, K, F.shape[1])
    return solve(held(block, width(K, F.shape[1])), K, W, gap=gap, max_iterations=max_iterations, progress=progress)


def width(K: int, d: int) -> int:
    """Numbers that a visit makes of a row: those of the Hessian's blocks, where it is formed"""
    return K * d if K * d <= DIRECT else max(K, d)


def solve(
    passes: Passes,
    K: int,
    W: Array | None = None,
    *,
    gap: float = 1e-6,
    max_iterations: int = 200,
    progress: Progress | None = None,
) -> Fit:
    """The same for rows that may be anywhere, with labels 0 … K−1"""
    convex.require_limits(gap, max_iterations)
    [weight] = passes(softmax_sums.survey, K).totals()
    if not weight.all():
        raise EmptyClass(int(np.argmin(weight)))
    at, steps, careful = _look(passes, np.zeros((K, passes.d)) if W is None else W), 0, False
    small = len(passes) * passes.d * K**2 <= CAREFUL
    while True:
        relative = at.certificate / at.primal
        if relative <= gap:
            proven = _bounds(passes, at.W, steps, SHARE * gap)
            relative = proven.gap
            if relative <= gap:
                return proven
        if steps == max_iterations:
            raise NotConverged(relative, steps)
        if progress:
            progress(min(1.0, max(0.0, math.log(max(relative, gap)) / math.log(gap))))
        trial, x, nearer = _searched(passes, at, -_newton_direction(passes, at, careful))
        steps += 1
        better = trial.primal < at.primal or nearer
        if better:
            at = trial
        elif careful or not small:
            raise NotConverged(relative, steps)
        careful = careful or ((not better or x < SHORT) and small)


@dataclass(frozen=True)
class _Point:
    """W, P(W) and ∇P(W) = W − Σc_i(e_{y_i} − π_i)f_iᵀ, and the Hessian less I if it came along"""

    W: Array
    primal: float
    gradient: Array
    hessian: Array | None

    @property
    def certificate(self) -> float:
        """½‖∇P‖²"""
        return float(np.vdot(self.gradient, self.gradient)) / 2


def _look(passes: Passes, W: Array) -> _Point:
    """From memory the Hessian is asked for when it is needed; where rows are read for it, at once"""
    eager = not passes.in_memory and W.size <= DIRECT
    loss, gradient, *rest = passes(softmax_sums.evaluate, At(W, hessian=eager)).totals()
    return _Point(W, float(np.vdot(W, W)) / 2 + float(loss[0]), W + gradient, rest[0] if rest else None)


def _searched(passes: Passes, at: _Point, step: Array) -> tuple[_Point, float, bool]:
    """Where the step leads, halved until P falls as it should, its length, and whether the gradient is smaller there"""
    slope, x = float(np.vdot(at.gradient, step)), 1.0
    while True:
        trial = _look(passes, at.W + x * step)
        nearer = trial.certificate < at.certificate
        unseen = nearer and trial.primal <= at.primal * (1 + 8 * EPS)  # P falls by less than its rounding
        if trial.primal <= at.primal + x * slope / 4 or unseen or x <= EPS:
            return trial, x, nearer
        x /= 2


def _bounds(passes: Passes, W: Array, steps: int, tolerance: float) -> Fit:
    """primal ≥ P(W) and dual ≤ D(π(W)), whatever was rounded:  D = P − ½‖∇P‖²"""
    for long in (False, True):
        numbers, high, low = passes(softmax_sums.bounds, At(W, long=long)).totals()
        off, astray = (float(each) * (1 + SUM * EPS) for each in numbers[2:])
        value = np.square(W.astype(np.longdouble)).sum() / 2 + np.longdouble(numbers[0]) + numbers[1]
        off += SUM * float(np.finfo(np.longdouble if long else np.float64).eps) * float(value)
        gradient = W.astype(np.longdouble) + high + low
        length = float(np.sqrt(np.square(gradient).sum())) * (1 + 8 * EPS) + astray
        primal = math.nextafter(float(value + off), math.inf)
        dual = math.nextafter(float(value - off - length * length / 2 * (1 + 4 * EPS)), -math.inf)
        found = Fit(W, primal, dual, steps)
        if 2 * off + length * astray <= tolerance * primal:
            break
    return found


def _newton_direction(passes: Passes, at: _Point, careful: bool) -> Array:
    """V with V + Σc_i(π_i∘(V f_i) − π_i⟨π_i,V f_i⟩)f_iᵀ = R = ∇P"""
    R = at.gradient
    K, d = R.shape
    if careful:
        rows = passes.all_rows()
        assert rows is not None  # CAREFUL is less than what may be gathered
        pi = softmax_sums.residuals(rows.F @ at.W.T, rows.y).pi
        return orthogonal_inverse(_hessian_root(rows.F, pi), np.repeat(rows.c, K))(R.ravel()).reshape(K, d)
    if K * d <= DIRECT:
        H = passes(softmax_sums.hessian, At(at.W)).totals()[0] if at.hessian is None else at.hessian
        try:
            return np.asarray(np.linalg.solve(H + np.eye(K * d), R.ravel()).reshape(K, d))
        except np.linalg.LinAlgError:  # singular, for rounding: no step, and then one with care
            return np.zeros_like(R)

    def product(V: Array) -> Array:
        return np.asarray(V + passes(softmax_sums.product, At(at.W, direction=V)).totals()[0])

    scale = 1 / (1 + passes(softmax_sums.diagonal, At(at.W)).totals()[0])
    return conjugate_gradients(product, scale, R, TOLERANCE, PRODUCTS)[0]


def _hessian_root(F: Array, pi: Array) -> Array:
    """Rows g with Σgᵀg = Σ(diag π_i − π_i π_iᵀ) ⊗ f_i f_iᵀ:  diag π − ππᵀ = SSᵀ,  S = diag √π − π√πᵀ"""
    (n, d), K = F.shape, pi.shape[1]
    S = np.sqrt(pi)[:, :, None] * (np.eye(K) - pi[:, None, :])  # a row a column of S
    return np.asarray((S[..., None] * F[:, None, None, :]).reshape(n * K, K * d))


def _softmax(Z: Array) -> Array:
    E = np.exp(Z - Z.max(axis=-1, keepdims=True))
    return np.asarray(E / E.sum(axis=-1, keepdims=True))


# ---------------------------------------------------------------------------------- what the caller gave


def _rows(F: ArrayLike) -> Array:
    F = convex.feature_rows(F)
    finite = np.isfinite(F).all(axis=1)
    if not finite.all():
        index = int(np.argmin(finite))
        raise NonFinite(index, float(F[index][~np.isfinite(F[index])][0]), what="row")
    return F


def _labels(y: ArrayLike, c: Array, classes: int | None) -> tuple[NDArray[np.int64], int]:
    """The labels, and how many classes there are"""
    given = np.asarray(y)
    if given.shape != c.shape:
        raise LengthMismatch(points=len(c), labels=given.size)
    if given.dtype.kind not in "iuf":
        raise UnknownLabel(0, given[0].item(), "the numbers of the classes")
    top = classes if classes is not None else math.inf
    good = (given >= 0) & (given < top) & (given % 1 == 0)
    if not good.all():
        index = int(np.argmin(good))
        raise UnknownLabel(index, given[index].item(), "0 … K−1" if classes is None else f"0 … {classes - 1}")
    labels = given.astype(np.int64)
    K = classes if classes is not None else int(labels.max()) + 1
    if K < 2:
        raise EmptyClass(1)
    weight = np.bincount(labels, weights=c, minlength=K)
    if not weight.all():
        raise EmptyClass(int(np.argmin(weight)))
    return labels, K


def _started(start: Fit | ArrayLike | None, K: int, d: int) -> Array:
    if start is None:
        return np.zeros((K, d))
    return convex.start_weights(start.W if isinstance(start, Fit) else start, (K, d))
