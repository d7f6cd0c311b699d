"""The one linear system of the convex programmes:  (I + Σθ_i f_i f_iᵀ)x = r,  θ ≥ 0

By a factor of its smaller side, or by conjugate gradients if that is large. θ and ‖f‖ may span thirty orders of
magnitude; then the triangular R of [√θ_i f_i; I] = QR is taken, which never squares them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from service.batch.convex import EPS
from service.geometry import Array

Rows = NDArray[np.int64]
Solve = Callable[[Array], Array]

#: A system is factorised up to the size DIRECT. Above it conjugate gradients come first; where they are slow it is
#: factorised all the same, up to FALLBACK.
DIRECT, FALLBACK = 256, 4_000


def inverse(F: Array, lengths: Array, theta: Array, tolerance: float) -> Solve:
    """r ↦ (I + Σθ_i f_i f_iᵀ)⁻¹r = r − Fᵀ(Θ⁻¹ + FFᵀ)⁻¹Fr, whichever is smaller; in large systems to a tolerance"""
    n, d = F.shape
    rows = np.flatnonzero(theta * lengths**2 > 1e-6 / n)  # all others together are nothing beside I
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
            kept.append(_gram(F, theta, rows) if d <= k else F @ F.T + np.diag(1 / theta + EPS * lengths.max() ** 2))
        if d <= k:
            return np.asarray(np.linalg.solve(kept[0], r))
        return np.asarray(r - np.linalg.solve(kept[0], F @ r) @ F)

    return solve


def orthogonal_inverse(F: Array, theta: Array) -> Solve:
    """The same by QR. Rows in falling order and columns by pivoting make it stable row by row, however they differ."""
    d = F.shape[1]
    G = np.concatenate([F * np.sqrt(theta)[:, None], np.eye(d)])
    order = np.argsort(-np.abs(G).max(axis=1), kind="stable")
    R, pivots = scipy.linalg.qr(G[order], mode="r", pivoting=True, overwrite_a=True, check_finite=False)
    R = R[:d]

    def solve(r: Array) -> Array:
        x = np.empty(d)
        halfway = scipy.linalg.solve_triangular(R, r[pivots], trans=1, check_finite=False)
        x[pivots] = scipy.linalg.solve_triangular(R, halfway, check_finite=False)
        return x

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


def solved(H: Array, r: Array) -> Array:
    """(I + H)⁻¹r"""
    H = H + np.eye(len(r))
    H[np.diag_indices_from(H)] *= 1 + EPS  # definite, whatever rounding did
    return np.asarray(np.linalg.solve(H, r))


def conjugate_gradients(product: Solve, scale: Array, r: Array, tolerance: float, limit: int) -> tuple[Array, bool]:
    """x with product(x) = r, scaled by 1/diagonal, and whether the tolerance was met"""
    x, rest, z = np.zeros_like(r), r, scale * r
    direction, size = z, float(np.vdot(r, z))
    enough = tolerance**2 * size
    for _ in range(limit):
        image = product(direction)
        step = size / float(np.vdot(direction, image))
        x, rest = x + step * direction, rest - step * image
        z = scale * rest
        before, size = size, float(np.vdot(rest, z))
        if size <= enough:
            return x, True
        direction = z + size / before * direction
    return x, False


def _conjugate_gradients(F: Array, theta: Array, r: Array, tolerance: float, limit: int) -> tuple[Array, bool]:
    """x with (I + Σθ_i f_i f_iᵀ)x = r"""
    scale = 1 / (1 + np.einsum("i,ij,ij->j", theta, F, F))
    return conjugate_gradients(lambda x: x + (theta * (F @ x)) @ F, scale, r, tolerance, limit)
