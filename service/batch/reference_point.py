"""Where to put the tangent space: reference points learned from the labelled points of a ball of curvature −c.

    hull        the midpoint of the nearest points of the two classes' convex hulls, in any dimension
    graham      the same in the disk, with the vertices by the paper's Graham scan
    quickhull   the same in the disk, with the vertices by the paper's Quickhull
    closest     the midpoint of the closest pair of points
    lorentz     the foot of the perpendicular from the positive class's centroid to a classifier that needs no p
    cv          whichever of hull, closest and lorentz classifies best under cross-validation

Inside, points are scaled by √c into the unit ball; distances in reports are in the units of curvature −c.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.batch import calibration, hulls, svm
from service.errors import EmptyClass, InvalidParameter, LengthMismatch, NotConverged, UnknownLabel
from service.geometry import (
    RADIUS_LIMIT,
    Array,
    distance,
    from_hyperboloid,
    midpoint,
    require_ball,
    to_hyperboloid,
)

Mask = NDArray[np.bool_]

#: Up to this dimension hulls have few vertices. Above it about as many as points, and far more faces: Qhull takes 1 s
#: for 20,000 points in 4 dimensions, and far longer in 5.
FEW_VERTICES = 3
FOLDS = 3
C = 5.0


@dataclass(frozen=True)
class Learned:
    """A reference point, the method it comes from in the end, and what was seen."""

    p: Array
    method: str
    report: dict[str, Any] = field(default_factory=dict)


def learn(X: ArrayLike, y: ArrayLike, method: str = "hull", *, c: float = 1.0, folds: int = FOLDS) -> Learned:
    """The reference point for the classes y = +1 and y = −1; `folds` are for cv"""
    X, y = require_ball(X, c=c), np.asarray(y)
    _require_classes(X, y, (1, -1))
    if method == "cv":

        def predict(method: str, train: Mask, test: Mask) -> NDArray[Any]:
            p = learn(X[train], y[train], method, c=c).p
            return np.where(_scores(X, y, p, c, train)[test] >= 0, 1, -1)

        method, seen = _cross_validate(y, predict, folds)
        learned = learn(X, y, method, c=c)
        return Learned(learned.p, learned.method, learned.report | seen)
    if method not in METHODS:
        raise InvalidParameter("reference", method, f"one of {', '.join([*METHODS, 'cv'])}")
    root = math.sqrt(c)
    learned = METHODS[method](X[y == 1] * root, X[y == -1] * root)
    report = {name: value / root if name in LENGTHS else value for name, value in learned.report.items()}
    return Learned(learned.p / root, learned.method, report)


def learn_each(
    X: ArrayLike, indices: ArrayLike, K: int, method: str = "hull", *, c: float = 1.0, folds: int = FOLDS
) -> list[Learned]:
    """A reference point for each of K classes 0 … K−1, the class against the rest

    cv chooses one method for all of them, by the accuracy of the K classifiers together (argmax of their Platt
    probabilities): how well each tells its class from the rest says little of that.
    """
    X, indices = require_ball(X, c=c), np.asarray(indices)
    _require_classes(X, indices, range(K))
    signs = [np.where(indices == k, 1, -1) for k in range(K)]
    if method == "cv":

        def predict(method: str, train: Mask, test: Mask) -> NDArray[Any]:
            P = np.empty((K, int(test.sum())))
            for y, row, learned in zip(signs, P, learn_each(X[train], indices[train], K, method, c=c), strict=True):
                scores = _scores(X, y, learned.p, c, train)
                row[:] = calibration.probability(calibration.fit(scores[train], y[train]), scores[test])
            return np.asarray(P.argmax(axis=0))

        method, seen = _cross_validate(indices, predict, folds)
        each = learn_each(X, indices, K, method, c=c)
        return [Learned(learned.p, learned.method, learned.report | seen) for learned in each]
    return [learn(X, y, method, c=c) for y in signs]


def _require_classes(X: Array, labels: NDArray[Any], classes: Sequence[int]) -> None:
    """As many labels as points, all of them known, and none without a point"""
    if len(X) != len(labels):
        raise LengthMismatch(len(X), len(labels))
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        index = int(unknown.argmax())
        raise UnknownLabel(index, labels[index], ", ".join(map(str, classes)))
    for label in classes:
        if not (labels == label).any():
            raise EmptyClass(label)


def _cross_validate(
    labels: NDArray[Any], predict: Callable[[str, Mask, Mask], NDArray[Any]], folds: int
) -> tuple[str, dict[str, Any]]:
    """The method of the highest accuracy over the folds, of equal ones the first; and what was seen

    The i-th point of its class is in fold i mod `folds`, so nothing is left to chance. A class of one point cannot be
    left out: then there is nothing to see, and the method is the first.
    """
    if folds < 2:
        raise InvalidParameter("folds", folds, "at least 2")
    classes, counts = np.unique(labels, return_counts=True)
    folds = min(folds, int(counts.min()))
    if folds == 1:
        return CANDIDATES[0], {"folds": 1, "accuracy": {}}
    fold = np.empty(len(labels), dtype=np.intp)
    for label, count in zip(classes, counts, strict=True):
        fold[labels == label] = np.arange(count) % folds
    right = dict.fromkeys(CANDIDATES, 0)
    for method, f in itertools.product(CANDIDATES, range(folds)):
        try:
            predicted = predict(method, fold != f, fold == f)
        except NotConverged:
            continue  # nothing right, in this fold
        right[method] += int((predicted == labels[fold == f]).sum())
    accuracy = {method: count / len(labels) for method, count in right.items()}
    return max(right, key=right.__getitem__), {"folds": folds, "accuracy": accuracy}


def _scores(X: Array, y: NDArray[Any], p: Array, c: float, train: Mask) -> Array:
    """⟨w, log_p(x)⟩ for all points, w the SVM (squared hinge) of those in `train`"""
    V = svm.features(X, p, "tangent", c=c)
    return np.asarray(V @ svm.fit(V[train], y[train], loss="squared_hinge", C=C).w)


# ---- the methods, in the unit ball: P the positive points, N the negative ones ---------------------------------


def _hull(P: Array, N: Array) -> Learned:
    """p = γ(½) between the nearest points of the hulls. Hulls that meet have none: there the paper's rule, γ(½) between
    the closest pair of their vertices. In more than FEW_VERTICES dimensions every point counts as a vertex.
    """
    return _between(P, N, hulls.hull if P.shape[1] <= FEW_VERTICES else None, "hull")


def _in_the_disk(vertices: Callable[[Array], hulls.Indices], method: str, P: Array, N: Array) -> Learned:
    if P.shape[1] != 2:
        raise InvalidParameter("reference", method, f"hull in {P.shape[1]} dimensions: {method} is for the disk")
    return _between(P, N, vertices, method)


def _between(P: Array, N: Array, vertices: Callable[[Array], hulls.Indices] | None, method: str) -> Learned:
    if vertices is not None:
        P, N = P[vertices(P)], N[vertices(N)]
    nearest = hulls.nearest_points(P, N)
    report = {"distance": nearest.distance, "gap": nearest.gap, "overlap": nearest.distance == 0}
    p = _closest(P, N).p if nearest.distance == 0 else midpoint(nearest.x, nearest.y)
    return Learned(p, method, report)


def _closest(P: Array, N: Array) -> Learned:
    """p = γ(½) between the closest pair of points"""
    i, j = hulls.closest_pair(P, N)
    return Learned(midpoint(P[i], N[j]), "closest", {"distance": float(distance(P[i], N[j]))})


def _lorentz(P: Array, N: Array) -> Learned:
    """p = the foot q − ([q,n]/[n,n]) n, scaled to the hyperboloid; q = Σh, the positives' centroid but for scale

    ⟨w,h⟩ = [n,h], n = (−w₀, w_s), is the linear SVM (squared hinge, no bias) on hyperboloid coordinates h. If n is not
    spacelike, [n,n] ≤ 0, there is no hyperplane to go to, and if the foot lies beyond the radius limit there is no
    tangent space to work in: then the closest pair it is. So it is if the SVM does not converge.
    """
    h, y = to_hyperboloid(np.concatenate([P, N])), np.repeat([1.0, -1.0], [len(P), len(N)])
    try:
        n = svm.fit(h, y, loss="squared_hinge", C=C).w * np.r_[-1.0, np.ones(P.shape[1])]
    except NotConverged as error:
        return Learned(_closest(P, N).p, "closest", {"not_converged": error.gap})
    q, nn = h[: len(P)].sum(axis=0), _bracket(n, n)
    report = {"spacelike": nn > 0}
    if nn > 0:
        foot = q - _bracket(q, n) / nn * n
        size = -_bracket(foot, foot)
        if 0 < foot[0] < math.cosh(RADIUS_LIMIT) * math.sqrt(max(size, 0.0)):
            return Learned(from_hyperboloid(foot / math.sqrt(size)), "lorentz", report)
    return Learned(_closest(P, N).p, "closest", report)


METHODS: dict[str, Callable[[Array, Array], Learned]] = {
    "hull": _hull,
    "graham": partial(_in_the_disk, hulls.graham_scan, "graham"),
    "quickhull": partial(_in_the_disk, hulls.quickhull, "quickhull"),
    "closest": _closest,
    "lorentz": _lorentz,
}
#: What cv chooses from: graham and quickhull find what hull finds
CANDIDATES = ("hull", "closest", "lorentz")
LENGTHS = ("distance", "gap")


def _bracket(a: Array, b: Array) -> float:
    """[a,b] = −a₀b₀ + ⟨a_s,b_s⟩"""
    return float(a[1:] @ b[1:] - a[0] * b[0])
