"""Multinomial logistic regression, with its proof:  π_i = softmax(W f_i)

    primal   min  P(W) = ½‖W‖² − Σ c_i log π_i[y_i],   c_i = C s_i,   W of K rows
    dual     max  D(α) = Σ c_i H(α_i) − ½‖W(α)‖²,   W(α) = Σ c_i (e_{y_i} − α_i) f_iᵀ,   α_i convex weights, H entropy

α = π(W) is always feasible, and there P − D = ½‖W − W(π)‖² = ½‖∇P(W)‖²: the gradient is the certificate. Newton's
method with backtracking makes it small; the Hessian is formed where it is small, and else only multiplied with.

On f = (1, x₀, x₁ … x_d), x on the hyperboloid, no reference point is needed. Two classes are divided by {⟨w,x⟩ = b}: a
hyperplane if b = 0, else a surface of equal distance to one, a sphere or a horosphere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.batch import convex
from service.batch.convex import EPS, Progress
from service.batch.linear_systems import orthogonal_inverse
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
    y, K = _labels(y, c, classes)
    convex.require_limits(gap, max_iterations)
    W, steps, careful = _started(start, K, F.shape[1]), 0, False
    primal, pi, gradient = _evaluate(F, y, c, W)
    while (certificate := float(np.vdot(gradient, gradient)) / 2) > gap * primal:
        if steps == max_iterations:
            raise NotConverged(certificate / primal, steps)
        if progress:
            progress(min(1.0, max(0.0, math.log(max(certificate / primal, gap)) / math.log(gap))))
        step = -_newton_direction(F, c, pi, gradient, careful)
        slope, x = float(np.vdot(gradient, step)), 1.0
        while True:
            trial = _evaluate(F, y, c, W + x * step)
            nearer = float(np.vdot(trial[2], trial[2])) / 2 < certificate
            unseen = nearer and trial[0] <= primal * (
                1 + 8 * EPS
            )  # P falls by less than its rounding, the gradient falls
            if trial[0] <= primal + x * slope / 4 or unseen or x <= EPS:
                break
            x /= 2
        steps += 1
        better = trial[0] < primal or nearer
        if better:
            W, (primal, pi, gradient) = W + x * step, trial
        elif careful or F.size * K**2 > CAREFUL:
            raise NotConverged(certificate / primal, steps)
        careful = careful or ((not better or x < SHORT) and F.size * K**2 <= CAREFUL)
    return Fit(W, primal, primal - certificate, steps)


def _evaluate(F: Array, y: NDArray[np.int64], c: Array, W: Array) -> tuple[float, Array, Array]:
    """P(W), π, ∇P(W) = W − Σc_i(e_{y_i} − π_i)f_iᵀ;  1 − π_i[y_i] is summed from the others, so that nothing cancels"""
    Z = F @ W.T
    Z -= Z.max(axis=1, keepdims=True)
    at, E = np.arange(len(y)), np.exp(Z)
    total, own, z = E.sum(axis=1), E[at, y], Z[at, y]
    E[at, y] = 0
    others = E.sum(axis=1)
    primal = float(np.vdot(W, W)) / 2 + float(c @ (np.where(z == 0, np.log1p(others), np.log(total) - z)))
    residual = E / total[:, None]
    pi = residual.copy()
    pi[at, y], residual[at, y] = own / total, -others / total
    return primal, pi, np.asarray(W + (c[:, None] * residual).T @ F)


def _newton_direction(F: Array, c: Array, pi: Array, R: Array, careful: bool) -> Array:
    """V with V + Σc_i(π_i∘(V f_i) − π_i⟨π_i,V f_i⟩)f_iᵀ = R"""
    K, d = R.shape
    if careful:
        return orthogonal_inverse(_hessian_root(F, pi), np.repeat(c, K))(R.ravel()).reshape(K, d)
    if K * d <= DIRECT:
        try:
            return np.asarray(np.linalg.solve(_hessian(F, c, pi), R.ravel()).reshape(K, d))
        except np.linalg.LinAlgError:  # singular, for rounding: no step, and then one with care
            return np.zeros_like(R)
    diagonal = 1 + (c[:, None] * pi * (1 - pi)).T @ (F * F)
    V, rest, Q = np.zeros_like(R), R, R / diagonal
    direction, size = Q, float(np.vdot(R, Q))
    enough = TOLERANCE**2 * size
    for _ in range(PRODUCTS):
        Z = pi * (F @ direction.T)
        image = direction + (c[:, None] * (Z - pi * Z.sum(axis=1, keepdims=True))).T @ F
        x = size / float(np.vdot(direction, image))
        V, rest = V + x * direction, rest - x * image
        Q = rest / diagonal
        before, size = size, float(np.vdot(rest, Q))
        if size <= enough:
            break
        direction = Q + size / before * direction
    return V


def _hessian(F: Array, c: Array, pi: Array) -> Array:
    """I + Σc_i(diag π_i − π_i π_iᵀ) ⊗ f_i f_iᵀ"""
    (n, d), K = F.shape, pi.shape[1]
    A = (pi[:, :, None] * F[:, None, :]).reshape(n, K * d)
    H = -(c[:, None] * A).T @ A
    for k in range(K):
        block = slice(k * d, (k + 1) * d)
        H[block, block] += (c * pi[:, k] * F.T) @ F
    H[np.diag_indices_from(H)] += 1
    return H


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
