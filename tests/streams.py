"""Streams the theorems speak of, and the agents of the strategic setting, straight from the definitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service import geometry as g
from service.geometry import Array
from tests.strategies import directions, points

Signs = NDArray[np.int8]


def separable(
    rng: np.random.Generator, n: int, p: Array, margin: float, radius: float = 3.0, c: float = 1.0
) -> tuple[Array, Signs, Array]:
    """Points at least `margin` from H_{w,p}, labelled by their side of it, and that w. Lengths are those of c."""
    w = rng.normal(size=p.size)
    X = points(rng, 4 * n, p.size, radius) / np.sqrt(c)
    side = g.signed_distance(p, w, X, c=c)
    keep = np.abs(side) >= margin
    return X[keep][:n], np.where(side >= 0, 1, -1).astype(np.int8)[keep][:n], w


def separated_on_the_hemisphere(rng: np.random.Generator, n: int, d: int, gamma: float) -> tuple[Array, Signs]:
    """Points whose φ is at least γ from a plane through 0, and their sides"""
    u = directions(rng, 1, d + 2)[0]
    X = points(rng, 8 * n, d, 5.0)
    side = g.hemisphere(X) @ u
    keep = np.abs(side) >= gamma
    return X[keep][:n], np.where(side >= 0, 1, -1).astype(np.int8)[keep][:n]


def flipped(rng: np.random.Generator, y: Signs, share: float = 0.3) -> Signs:
    return np.where(rng.uniform(size=len(y)) < share, -y, y).astype(np.int8)


def strategic_response(x: Array, p: Array, w: Array, alpha: float, budget: float, c: float = 1.0) -> Array:
    """Where a rational agent with this budget goes, when positive means σ_p⟨w,v⟩/‖w‖ ≥ α.

    Along w, just onto the threshold, if it is below it by at most its budget; else it stays.
    """
    if not w.any():
        return x
    u, unit, sigma = g.log_map(p, x, c=c), w / np.linalg.norm(w), float(g.conformal_factor(p, c=c))
    missing = alpha - sigma * float(u @ unit)
    if not 0 < missing <= budget * (1 + 1e-12):
        return x
    return g.exp_map(p, u + missing / sigma * unit, c=c)


def plain_response(x: Array, p: Array, w: Array, budget: float) -> Array:
    """The same against a plain perceptron: onto 0 plus a hair, since a plain learner has no tolerance."""
    moved = strategic_response(x, p, w, 0.0, budget)
    if moved is x:
        return x
    unit = w / np.linalg.norm(w)
    return g.exp_map(p, g.log_map(p, moved) + 1e-12 * unit)


def rings(rng: np.random.Generator, n: int, K: int, radius: float = 3.0) -> tuple[Array, NDArray[np.int64]]:
    """K wrapped normals on a ring about the origin, a fifth of their distance wide: some 2 % of overlap"""
    angle = 2 * np.pi * np.arange(K) / K
    y = rng.integers(K, size=n)
    V = radius * np.column_stack([np.cos(angle), np.sin(angle)])[y] + rng.normal(size=(n, 2)) * 1.2 * radius / K
    return g.exp_map(np.zeros(2), V / 2), y
