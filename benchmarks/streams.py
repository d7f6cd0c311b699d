"""The synthetic streams the benchmarks are run on. Every function takes its randomness as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.geometry import Array, mobius_add, signed_distance

#: The paper's bound on the norm of the points.
R = 0.95


@dataclass(frozen=True)
class Stream:
    """Labelled points and the hyperplane H_{w,p} that labelled them."""

    X: Array
    y: NDArray[np.int8]
    p: Array
    w: Array


def direction(rng: np.random.Generator, d: int) -> Array:
    """g/‖g‖, g normal: uniform on the sphere"""
    g = rng.standard_normal(d)
    return np.asarray(g / np.linalg.norm(g))


def ball(rng: np.random.Generator, n: int, d: int, radius: float = R) -> Array:
    """x = radius·U^(1/d)·g/‖g‖: uniform in the Euclidean volume of the ball"""
    g = rng.standard_normal((n, d))
    r = radius * rng.random(n) ** (1 / d)
    return np.asarray(g * (r / np.linalg.norm(g, axis=1))[:, None])


def labelled(
    rng: np.random.Generator, n: int, p: Array, w: Array, *, epsilon: float = 0.0
) -> tuple[Array, NDArray[np.int8]]:
    """n points uniform in the ball, with the side of H_{w,p} they are on, less those nearer to it than ε"""
    X = ball(rng, n, p.size)
    distance = signed_distance(p, w, X)
    keep = np.abs(distance) >= epsilon
    return X[keep], np.where(distance[keep] > 0, np.int8(1), np.int8(-1))


def separable(rng: np.random.Generator, n: int, d: int, *, p_norm: float, epsilon: float) -> Stream:
    """n points labelled by a random H_{w,p}, ‖p‖ given, less those within ε of it

    Drawn again until both classes have more than ten points.
    """
    while True:
        p, w = p_norm * direction(rng, d), direction(rng, d)
        X, y = labelled(rng, n, p, w, epsilon=epsilon)
        if min(np.count_nonzero(y > 0), np.count_nonzero(y < 0)) > 10:
            return Stream(X, y, p, w)


def flipped(rng: np.random.Generator, y: NDArray[np.int8], share: float) -> NDArray[np.int8]:
    """y with this share of its signs turned, each on its own"""
    return np.where(rng.random(len(y)) < share, -y, y).astype(np.int8)


@dataclass(frozen=True)
class ClassStream:
    """Points of K classes, and for each class a p on a hyperplane that divides it from the rest."""

    X: Array
    y: NDArray[np.int64]
    P: Array


def blobs(rng: np.random.Generator, n: int, d: int, K: int) -> ClassStream:
    """K balls of hyperbolic radius 0.6, at norm 0.85 in K directions e_j as far apart as they go

    The hyperplanes with normal e_j at p_j = 0.6·e_j do not meet, and keep every class from the rest.
    """
    E = _spread(rng, d, K)
    y = rng.integers(K, size=n)
    return ClassStream(mobius_add(0.85 * E[y], ball(rng, n, d, np.tanh(0.3))), y, 0.6 * E)


def reassigned(rng: np.random.Generator, y: NDArray[np.int64], K: int, share: float) -> NDArray[np.int64]:
    """y with this share of its labels moved to another of the K classes"""
    return np.where(rng.random(len(y)) < share, (y + rng.integers(1, K, size=len(y))) % K, y)


def _spread(rng: np.random.Generator, d: int, K: int) -> NDArray[Any]:
    """K directions: the corners of a regular polygon in the plane, orthonormal where there is room"""
    if d == 2:
        turn = 2 * np.pi * (np.arange(K) + rng.random()) / K
        return np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return np.ascontiguousarray(np.linalg.qr(rng.standard_normal((d, K)))[0].T)
