"""What every learner is: a frozen state and four pure functions.

    init(…)                                   the first state
    score(state, X)                           how far on the positive side each point is; row i depends on row i alone
    predict(state, X)                         the sign of the score, sgn(0) = +1
    observe(state, X, y, until_change=False)  predict, then learn, each point in order: an Outcome
    learn(state, X, y, until_change)          the same, of points and labels that were checked before

Points come in the session's own ball (curvature −c); scores leave in its units. AXES names the axes of the state's
arrays: the same letter is the same length everywhere in a state, "members" is how many members it has.

A learner of two classes takes signs and gives a score a point; one of K classes takes indices 0 … K−1 and gives K, of
which the largest decides, the first of equals. Some have probabilities(state, X), n×K, whose rows sum to one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import DimensionMismatch, InvalidParameter, LengthMismatch, NonFinite, UnknownLabel
from service.geometry import Array, require_ball

#: The most numbers that full matrices of a state may have: 2 MB, which every commit writes.
FULL = 2**18

S = TypeVar("S")
Signs = NDArray[np.int8]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Outcome(NamedTuple, Generic[S]):
    """What `observe` did. Rows are those consumed: all of them, or up to the first change."""

    state: S
    raw: Array  # the scores before each point was learned, or what they are made of: the same signs at less cost
    changed: Flags  # which points changed the classifier that answers
    updates: Flags | None = None  # which points the learner was updated by, where those are not the same
    probabilities: Array | None = None  # n×K before each point was learned, of learners that have them
    scored: Callable[[Array], Array] | None = None  # makes the scores of `raw`

    @property
    def scores(self) -> Array:
        """Before each point was learned"""
        return self.raw if self.scored is None else self.scored(self.raw)

    @property
    def updated(self) -> Flags:
        """Which points count as updates, k: those the theorems bound"""
        return self.changed if self.updates is None else self.updates

    @property
    def accepted(self) -> int:
        return len(self.changed)


class Settings(Protocol):
    """What a session says of its learner"""

    @property
    def algorithm(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def curvature(self) -> float: ...
    @property
    def classes(self) -> int: ...
    @property
    def reference(self) -> tuple[float, ...] | None: ...
    @property
    def average(self) -> bool: ...
    @property
    def members(self) -> tuple[str, ...]: ...
    @property
    def a(self) -> float: ...
    @property
    def budget(self) -> float: ...
    @property
    def estimate(self) -> bool: ...


def reference_of(settings: Settings) -> tuple[float, ...]:
    """The reference point, of a learner that needs one"""
    if settings.reference is None:
        raise InvalidParameter("reference", None, f"a point: {settings.algorithm} is lifted there")
    return settings.reference


class Learner(Protocol[S]):
    """A learner module, as the others see it."""

    def score(self, state: S, X: ArrayLike) -> Array: ...
    def predict(self, state: S, X: ArrayLike) -> NDArray[Any]: ...
    def observe(self, state: S, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[S]: ...
    def learn(self, state: S, X: Array, y: NDArray[Any], until_change: bool) -> Outcome[S]: ...


def learner_of(state: S) -> Learner[S]:
    """The module that a state comes from"""
    return cast(Learner[S], sys.modules[type(state).__module__])


def full_matrices(d: int, classes: int) -> bool:
    """Whether a learner keeps a full matrix a class, or its diagonal alone: K(d+2)² ≤ FULL"""
    return classes * (d + 2) ** 2 <= FULL


def more_rows(rows: NDArray[Any], row: ArrayLike, classes: int) -> NDArray[Any]:
    """A state's array with a row a class, and this row for each class that is new; one without rows stays so"""
    if classes < len(rows):
        raise InvalidParameter("classes", classes, f"at least {len(rows)}: a class that was learned stays")
    if not len(rows):
        return rows
    return np.concatenate(
        [rows, np.tile(np.asarray(row, dtype=rows.dtype), (classes - len(rows),) + (1,) * (rows.ndim - 1))]
    )


def unit_points(X: ArrayLike, d: int, c: float) -> Array:
    """The points, checked, in the unit ball: √c·X"""
    X = require_ball(X, d, c=c)
    return X if c == 1 else X * math.sqrt(c)


def unit_point(p: ArrayLike, c: float) -> Array:
    """A single point, checked, in the unit ball: √c·p"""
    points = require_ball(p, c=c)
    if len(points) != 1 or points.size == 0:
        raise InvalidParameter("reference point", f"array of shape {points.shape}", "one point")
    return np.asarray(points[0] * math.sqrt(c))


def weights(w: ArrayLike | None, d: int) -> Array:
    """d finite weights; none: zeros"""
    if w is None:
        return np.zeros(d)
    given = np.array(w, dtype=np.float64)
    if given.shape != (d,):
        raise DimensionMismatch(expected=d, got=given.size, what="weights")
    if not np.isfinite(given).all():
        raise NonFinite(0, float(given[~np.isfinite(given)][0]), what="weights")
    return given


def row_weights(W: ArrayLike | None, d: int, rows: int, c: float) -> Array:
    """Rows of d + 2 finite weights on φ, the hemisphere coordinates of d dimensions; none: zeros"""
    if not isinstance(d, int) or d < 1:
        raise InvalidParameter("dimension", d, "a positive integer")
    if not isinstance(rows, int) or rows < 1:
        raise InvalidParameter("classes", rows, "two or more")
    if not 0 < c < math.inf:
        raise InvalidParameter("curvature c", c, "a positive number")
    if W is None:
        return np.zeros((rows, d + 2))
    given = np.atleast_2d(np.array(W, dtype=np.float64))
    if given.shape[0] != rows:
        raise InvalidParameter("weights", f"{given.shape[0]} rows", f"{rows} rows, one a boundary")
    return np.stack([weights(row, d + 2) for row in given])


def sign_labels(y: ArrayLike, n: int) -> Signs:
    """n labels out of −1 and +1; the first that is neither is named."""
    given = _numbers(y, n)
    return _allowed(given, np.abs(given) == 1, "[-1, 1]").astype(np.int8)


def class_labels(y: ArrayLike, n: int, K: int) -> NDArray[np.int64]:
    """n class indices 0 … K−1; the first that is none is named."""
    given = _numbers(y, n)
    good = (given >= 0) & (given < K)
    if given.dtype.kind == "f":
        good &= given % 1 == 0
    return _allowed(given, good, f"0 … {K - 1}").astype(np.int64)


def _numbers(y: ArrayLike, n: int) -> NDArray[Any]:
    given = np.atleast_1d(np.asarray(y))
    if given.shape != (n,):
        raise LengthMismatch(points=n, labels=given.size)
    if given.dtype.kind not in "iuf" and n:
        raise UnknownLabel(0, given[0].item(), "the numbers of the classes")
    return given


def _allowed(given: NDArray[Any], good: NDArray[np.bool_], allowed: str) -> NDArray[Any]:
    if not good.all():
        index = int(np.argmin(good))
        raise UnknownLabel(index, given[index].item(), allowed)
    return given


def signs(scores: Array) -> Signs:
    """sgn, with sgn(0) = +1"""
    return np.where(scores >= 0, np.int8(1), np.int8(-1))
