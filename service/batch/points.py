"""Labelled points of the ball, wherever they are, and how they become the rows that a fit passes over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.batch import convex, softmax, svm
from service.batch.passes import Block, Passes, held
from service.errors import InvalidParameter
from service.geometry import Array, hemisphere, require_ball

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class View:
    """Points as rows: which features, at which reference point, which class is +1 against the rest, and the cost"""

    features: str = "ball"  # of svm.FEATURES; softmax: hyperboloid with a constant, or hemisphere; ball: as they are
    curvature: float = 1.0
    p: Array | None = None
    positive: int | None = None  # None: y is the number of the class
    softmax: bool = False
    C: float = 1.0

    def block(self, X: Array, indices: Indices, start: int = 0) -> Block:
        F = self._features(X)
        y = indices if self.positive is None else np.where(indices == self.positive, 1.0, -1.0)
        index = np.arange(start, start + len(X))
        return Block(F, y, convex.costs(self.C, None, len(X)), np.sqrt(np.vecdot(F, F)), index)

    def _features(self, X: Array) -> Array:
        if self.features == "ball":
            return require_ball(X, c=self.curvature)
        if not self.softmax:
            return svm.features(X, self.p, self.features, c=self.curvature)
        if self.features == "hemisphere":
            return hemisphere(require_ball(X, c=self.curvature), c=self.curvature)
        if self.features == "hyperboloid":
            return softmax.features(X, c=self.curvature)
        raise InvalidParameter("features", self.features, "hyperboloid or hemisphere, for a softmax")

    def dimension(self, d: int) -> int:
        """How many features a point of d dimensions has"""
        if self.features in ("ball", "tangent", "lift"):
            return d
        return d + 2 if self.softmax or self.features == "hemisphere" else d + 1

    def width(self, d: int, K: int) -> int:
        return softmax.width(K, self.dimension(d)) if self.softmax else self.dimension(d)


class Points(Protocol):
    """n labelled points of d dimensions"""

    n: int
    d: int
    K: int

    def passes(self, view: View) -> Passes:
        """Rows to pass over"""

    def some(self) -> tuple[Array, Indices]:
        """Points to learn reference points from: all of them, or if they are too many, some at equal distances"""


@dataclass
class InMemory:
    X: Array
    indices: Indices
    K: int
    n: int = field(init=False)
    d: int = field(init=False)

    def __post_init__(self) -> None:
        self.n, self.d = self.X.shape

    def passes(self, view: View) -> Passes:
        return held(view.block(self.X, self.indices), view.width(self.d, self.K))

    def some(self) -> tuple[Array, Indices]:
        return self.X, self.indices
