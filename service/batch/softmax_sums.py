"""What a multinomial logistic regression asks of its rows, one visit of a chunk each:  π_i = softmax(W f_i)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batch.convex import EPS
from service.batch.passes import Block, Chunk, Seen
from service.batch.svm_sums import BLOCK
from service.geometry import Array

Real = NDArray[Any]  # float64 or longdouble

#: A curvature e(1−e) that counts at least so much, in what an online softmax begins from
FLOOR = 1e-3
#: eps of an exp or a log: NumPy's are good to 4 units in the last place
FUNCTION = 8


@dataclass(frozen=True)
class At:
    """Weights, a row a class, and what to do there"""

    W: Array
    hessian: bool = False
    direction: Array | None = None
    long: bool = False

    @property
    def floats(self) -> Any:
        return np.longdouble if self.long else np.float64


@dataclass(frozen=True)
class Residuals:
    """Of rows: −log π[y], π, and π − e_y;  1 − π[y] is summed from the others, so that nothing cancels"""

    losses: Real
    pi: Real
    residual: Real
    away: NDArray[np.bool_]  # where another class has the largest logit


def residuals(Z: Real, y: NDArray[np.int64]) -> Residuals:
    Z = Z - Z.max(axis=1, keepdims=True)
    at, E = np.arange(len(y)), np.exp(Z)
    total, own, z = E.sum(axis=1), E[at, y], Z[at, y]
    E[at, y] = 0
    others = E.sum(axis=1)
    losses = np.where(z == 0, np.log1p(others), np.log(total) - z)
    residual = E / total[:, None]
    pi = residual.copy()
    pi[at, y], residual[at, y] = own / total, -others / total
    return Residuals(losses, pi, residual, z < 0)


def evaluate(chunk: Chunk, at: At) -> Seen:
    """−Σc log π[y], Σc(π − e_y)fᵀ, and if asked for the Hessian"""
    found = residuals(chunk.dot(at.W), chunk.y)
    gradient = (chunk.c[:, None] * found.residual).T @ chunk.F
    sums = (np.array([float(chunk.c @ found.losses)]), gradient)
    return Seen((*sums, _hessian(chunk, found.pi)) if at.hessian else sums)


def hessian(chunk: Chunk, at: At) -> Seen:
    return Seen((_hessian(chunk, residuals(chunk.dot(at.W), chunk.y).pi),))


def _hessian(chunk: Block, pi: Array) -> Array:
    """Σc_i(diag π_i − π_i π_iᵀ) ⊗ f_i f_iᵀ"""
    (n, d), K = chunk.F.shape, pi.shape[1]
    A = (pi[:, :, None] * chunk.F[:, None, :]).reshape(n, K * d)
    H = -(chunk.c[:, None] * A).T @ A
    for k in range(K):
        block = slice(k * d, (k + 1) * d)
        H[block, block] += (chunk.c * pi[:, k] * chunk.F.T) @ chunk.F
    return H


def diagonal(chunk: Chunk, at: At) -> Seen:
    """Σcπ(1−π) f∘f, a row a class"""
    pi = residuals(chunk.dot(at.W), chunk.y).pi
    return Seen(((chunk.c[:, None] * pi * (1 - pi)).T @ (chunk.F * chunk.F),))


def product(chunk: Chunk, at: At) -> Seen:
    """The Hessian times a direction V: Σc_i(π_i∘(V f_i) − π_i⟨π_i,V f_i⟩)f_iᵀ"""
    assert at.direction is not None
    pi = residuals(chunk.dot(at.W), chunk.y).pi
    Z = pi * (chunk.F @ at.direction.T)
    return Seen(((chunk.c[:, None] * (Z - pi * Z.sum(axis=1, keepdims=True))).T @ chunk.F,))


def survey(chunk: Chunk, K: int) -> Seen:
    """Σc of each class"""
    return Seen((np.bincount(chunk.y, weights=chunk.c, minlength=K).astype(np.float64),))


def curvature(chunk: Chunk, at: At) -> Seen:
    """Σ max(e_k(1−e_k), FLOOR) ffᵀ of each class k, or if it is not asked for whole, its diagonal"""
    e = residuals(chunk.dot(at.W), chunk.y).pi
    F = chunk.F
    each = [(g[:, None] * F).T @ F if at.hessian else (g @ F**2)[None] for g in np.maximum(e * (1 - e), FLOOR).T]
    return Seen((np.stack(each),))


def bounds(chunk: Chunk, at: At) -> Seen:
    """(−Σc log π[y] as float64 and the rest, how far it may be off, how far the gradient), and so Σc(π − e_y)fᵀ

    A logit is off by at most e = (d+8)·eps·‖W‖‖f‖, so π by a factor within exp(±2e), and what exp, the sums of K terms
    and a division add: |Δπ_k| ≤ ρπ_k, ρ = 4e + (2K + 2·FUNCTION)eps (e ≤ ¼). A residual has the errors of the π it is
    made of, and their sum over BLOCK rows BLOCK·eps more. −log π[y] moves by 2e, and what exp and log add.
    """
    W, floats = at.W, at.floats
    (_, d), K, eps = chunk.F.shape, len(at.W), float(np.finfo(at.floats).eps)
    Z: Real = chunk.dot(W) if floats is np.float64 else chunk.F.astype(floats) @ W.T.astype(floats)
    found = residuals(Z, chunk.y)
    longest = float(np.sqrt(np.vecdot(W, W).max())) * (1 + 4 * d * EPS)
    e = (d + 8) * eps * longest * chunk.lengths * (1 + 4 * d * EPS)
    off = 2 * e + (K + 2 * FUNCTION) * eps * (found.losses + found.away)
    rho = np.where(e <= 0.25, 4 * e, np.inf) + (2 * K + 2 * FUNCTION + BLOCK + 8) * eps
    sizes = np.sqrt(np.vecdot(found.residual, found.residual)) * rho + K * np.finfo(np.float64).tiny / eps
    loss = (chunk.c * found.losses).sum()
    astray = float((chunk.c * chunk.lengths * sizes).sum()) * (1 + 4 * d * EPS)
    numbers = np.array([float(loss), float(loss - float(loss)), float((chunk.c * off).sum()), astray])
    G = _combined(chunk.F, chunk.c * found.residual.T, floats)
    high = G.astype(np.float64)
    return Seen((numbers, high, (G - high).astype(np.float64)))


def _combined(F: Array, weights: Real, floats: Any) -> Real:
    """Σ weights_i f_iᵀ, a BLOCK of rows at a time, and the blocks in the longest floats"""
    total = np.zeros((len(weights), F.shape[1]), dtype=np.longdouble)
    for start in range(0, len(F), BLOCK):
        rows = slice(start, start + BLOCK)
        total += weights[:, rows].astype(floats, copy=False) @ F[rows].astype(floats, copy=False)
    return total
