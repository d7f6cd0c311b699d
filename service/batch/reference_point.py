"""Where to put the tangent space: reference points learned from the labelled points of a ball of curvature −c.

    hull      the midpoint of the nearest points of the two classes' convex hulls
    closest   the midpoint of the closest pair of points
    lorentz   the foot of the perpendicular from the positive class's centroid to a classifier that needs no p
    cv        whichever of these classifies best under cross-validation

Klein's k = 2x/(1+‖x‖²) makes geodesics straight, so a hyperbolic hull is a Euclidean one there, in any dimension. The
paper's Graham scan and Quickhull on the disk are here as well, corrected: as printed they start from the lowest and the
leftmost point, which need not be on the hull, and Quickhull may keep its own corners for ever.

Inside, points are scaled by √c into the unit ball; distances in reports are in the units of curvature −c.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are first used: a service that learns no reference point starts sooner
from numpy.typing import ArrayLike, NDArray

from service.batch import calibration, svm
from service.errors import EmptyClass, InvalidParameter, LengthMismatch, UnknownLabel
from service.geometry import (
    RADIUS_LIMIT,
    Array,
    conformal_factor,
    distance,
    from_hyperboloid,
    from_klein,
    lift,
    midpoint,
    mobius_add,
    require_ball,
    signed_distance,
    to_hyperboloid,
)

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

EPS = float(np.finfo(np.float64).eps)
#: Above this dimension a hull has about as many vertices as points, and far more faces.
HULL_DIMENSION = 5
#: A closest pair is searched among cells of at least CELL points, of which a class has at most about CELLS, and about
#: BLOCK pairs of points at a time.
CELL, CELLS, BLOCK = 32, 1024, 2**20
#: The nearest points of two hulls are certified to this share of their distance, or as far as rounding allows: to some
#: 1e-5 where they are 18 apart.
NEAREST_GAP = 1e-9
STEPS = 50
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
        return next(iter(METHODS)), {"folds": 1, "accuracy": {}}
    fold = np.empty(len(labels), dtype=np.intp)
    for label, count in zip(classes, counts, strict=True):
        fold[labels == label] = np.arange(count) % folds
    right = dict.fromkeys(METHODS, 0)
    for method, f in itertools.product(METHODS, range(folds)):
        right[method] += int((predict(method, fold != f, fold == f) == labels[fold == f]).sum())
    accuracy = {method: count / len(labels) for method, count in right.items()}
    return max(right, key=right.__getitem__), {"folds": folds, "accuracy": accuracy}


def _scores(X: Array, y: NDArray[Any], p: Array, c: float, train: Mask) -> Array:
    """⟨w, log_p(x)⟩ for all points, w the SVM (squared hinge) of those in `train`"""
    V = svm.features(X, p, "tangent", c=c)
    return np.asarray(V @ svm.fit(V[train], y[train], loss="squared_hinge", C=C).w)


# ---- the methods, in the unit ball: P the positive points, N the negative ones ---------------------------------


def _hull(P: Array, N: Array) -> Learned:
    """p = γ(½) between the nearest points of the hulls. Hulls that meet have none: there the paper's rule, γ(½) between
    the closest pair of their vertices. In more than HULL_DIMENSION dimensions, the closest pair of points instead.
    """
    if P.shape[1] > HULL_DIMENSION:
        closest = _closest(P, N)
        return Learned(closest.p, "closest", closest.report | {"hull": f"not in more than {HULL_DIMENSION} dimensions"})
    P, N = P[hull(P)], N[hull(N)]
    nearest = nearest_points(P, N)
    report = {"distance": nearest.distance, "gap": nearest.gap, "overlap": nearest.distance == 0}
    p = _closest(P, N).p if nearest.distance == 0 else midpoint(nearest.x, nearest.y)
    return Learned(p, "hull", report)


def _closest(P: Array, N: Array) -> Learned:
    """p = γ(½) between the closest pair of points"""
    i, j = closest_pair(P, N)
    return Learned(midpoint(P[i], N[j]), "closest", {"distance": float(distance(P[i], N[j]))})


def _lorentz(P: Array, N: Array) -> Learned:
    """p = the foot q − ([q,n]/[n,n]) n, scaled to the hyperboloid; q = Σh, the positives' centroid but for scale

    ⟨w,h⟩ = [n,h], n = (−w₀, w_s), is the linear SVM (squared hinge, no bias) on hyperboloid coordinates h. If n is not
    spacelike, [n,n] ≤ 0, there is no hyperplane to go to, and if the foot lies beyond the radius limit there is no
    tangent space to work in: then the closest pair it is.
    """
    h, y = to_hyperboloid(np.concatenate([P, N])), np.repeat([1.0, -1.0], [len(P), len(N)])
    n = svm.fit(h, y, loss="squared_hinge", C=C).w
    n[0] = -n[0]
    q, nn = h[: len(P)].sum(axis=0), _bracket(n, n)
    report = {"spacelike": nn > 0}
    if nn > 0:
        foot = q - _bracket(q, n) / nn * n
        size = -_bracket(foot, foot)
        if 0 < foot[0] < math.cosh(RADIUS_LIMIT) * math.sqrt(max(size, 0.0)):
            return Learned(from_hyperboloid(foot / math.sqrt(size)), "lorentz", report)
    return Learned(_closest(P, N).p, "closest", report)


METHODS: dict[str, Callable[[Array, Array], Learned]] = {"hull": _hull, "closest": _closest, "lorentz": _lorentz}
LENGTHS = ("distance", "gap")


# ---- closest pairs --------------------------------------------------------------------------------------------


def closest_pair(X: Array, Y: Array) -> tuple[int, int]:
    """The i and j of the least d(X_i, Y_j), in the unit ball; of equal ones the least (i, j), of zeros the first found

    Points lie in cells, balls of radius r about q, and d(x, y) ≥ d(q, q′) − r − r′: no pair of cells is searched whose
    bound exceeds the least distance found so far. Exact in any dimension; in many of them all pairs are searched.
    """
    cells_X, cells_Y = _cells(X), _cells(Y)
    slack = 16 * EPS * max(conformal_factor(X).max(), conformal_factor(Y).max())
    bound = 2 * np.arcsinh(np.sqrt(_half_sinh_squares(cells_X.q, cells_Y.q)))
    bound -= cells_X.r[:, None] + cells_Y.r + slack
    best = (math.inf, -1, -1)
    for cell in np.argsort(bound.min(axis=1), kind="stable"):
        nearest_first = np.argsort(bound[cell], kind="stable")
        for part in np.array_split(nearest_first, 1 + len(X) * len(Y) // (len(bound) * BLOCK)):
            near = part[bound[cell, part] <= 2 * math.asinh(math.sqrt(best[0]))]
            if not len(near) or best[0] == 0:
                break
            at_X, at_Y = cells_X.members[cell], np.concatenate([cells_Y.members[b] for b in near])
            best = min(best, _first_least(_half_sinh_squares(X[at_X], Y[at_Y]), at_X, at_Y))
    return best[1:]


def _first_least(D: Array, at_X: Indices, at_Y: Indices) -> tuple[float, int, int]:
    """The least entry of D, and of the places where it is the first by (at_X, at_Y)"""
    rows, columns = np.nonzero(D == D.min())
    i = at_X[rows].min()
    return float(D.min()), int(i), int(at_Y[columns[at_X[rows] == i]].min())


@dataclass(frozen=True)
class _Cells:
    """A partition of points: the indices of each part, and a ball of radius r about q that holds it."""

    members: list[Indices]
    q: Array
    r: Array


def _cells(X: Array) -> _Cells:
    """Halves of halves along the widest coordinate, until a part is small"""
    size = max(CELL, len(X) // CELLS)
    members: list[Indices] = []
    rest: list[Indices] = [np.arange(len(X))]
    while rest:
        part = rest.pop()
        if len(part) <= size:
            members.append(part)
            continue
        half = len(part) // 2
        order = np.argpartition(X[part, np.ptp(X[part], axis=0).argmax()], half)
        rest += [part[order[:half]], part[order[half:]]]
    counts = np.array([len(part) for part in members])
    starts, gathered = np.cumsum(counts) - counts, X[np.concatenate(members)]
    q = np.add.reduceat(gathered, starts) / counts[:, None]
    return _Cells(members, q, np.maximum.reduceat(distance(np.repeat(q, counts, axis=0), gathered), starts))


def _half_sinh_squares(X: Array, Y: Array) -> Array:
    """sinh²(d/2) = ‖x−y‖²/((1−‖x‖²)(1−‖y‖²)), all pairs; subtracted before squared, so near points lose nothing"""
    return np.asarray(
        scipy.spatial.distance.cdist(X, Y, "sqeuclidean") / np.multiply.outer(1 - np.vecdot(X, X), 1 - np.vecdot(Y, Y))
    )


# ---- hulls ----------------------------------------------------------------------------------------------------


def hull(X: Array) -> Indices:
    """Indices of the vertices of the hull of points of the unit ball: the Euclidean hull of their Klein coordinates

    In the disk counterclockwise. Equal points count once, and points on a lower-dimensional flat have the hull they
    have there: a single point itself, points of one geodesic its two ends. k is taken about a point among the X, so
    that X need not be near 0, and is good to eps: eps·λ² in length, far out.
    """
    q = X.mean(axis=0)
    k = _klein(q, X)
    k = k - k[0]
    _, s, axes = np.linalg.svd(np.linalg.qr(k, mode="r"))
    dimension = int((s > 4 * EPS * conformal_factor(q) * math.sqrt(len(k))).sum())
    for rank in range(dimension, 1, -1):
        try:
            return np.asarray(
                scipy.spatial.ConvexHull(k if rank == X.shape[1] else k @ axes[:rank].T).vertices, dtype=np.intp
            )
        except scipy.spatial.QhullError:  # flatter than Qhull can see
            continue
    along = k @ axes[0]
    return np.array([along.argmin(), along.argmax()] if dimension else [0])


def graham_scan(X: Array) -> Indices:
    """The vertices of a hull in the disk, counterclockwise: Algorithm 2, from the point farthest from 0

    That point is a vertex, since balls are strictly convex, and all others lie within 90° of its inward radius. Of the
    points on one ray from it only the last counts.
    """
    start = int(np.vecdot(X, X).argmax())
    z = lift(X[start], X)
    inward, across = -X[start], np.array([X[start, 1], -X[start, 0]])
    reach, angle = np.vecdot(z, z), np.arctan2(z @ across, z @ inward)
    rays: list[int] = []
    for i in np.argsort(angle, kind="stable").tolist():
        if rays and _turn(X[start], X[rays[-1]], X[i]) == 0:
            rays[-1] = max(rays[-1], i, key=reach.__getitem__)
        elif reach[i] > 0:
            rays.append(i)
    S = [start]
    for i in rays:
        while len(S) > 1 and _turn(X[S[-2]], X[S[-1]], X[i]) <= 0:
            S.pop()
        S.append(i)
    return np.array(S)


def quickhull(X: Array) -> Indices:
    """The vertices of a hull in the disk, counterclockwise: Algorithms 6 and 7, from two vertices that are far apart

    F, the farthest from γ_PQ of the points outside it, is a vertex, and lies on γ_PF and γ_FQ: no longer outside.
    """
    A = int(np.vecdot(X, X).argmax())
    B = int(distance(X[A], X).argmax())
    if A == B:
        return np.array([A])
    everything = np.arange(len(X))
    vertices: list[int] = []
    edges = [(B, A, everything), (A, B, everything)]
    while edges:
        P, Q, S = edges.pop()
        S = S[_turn(X[P], X[Q], X[S]) < 0]
        if not len(S):
            vertices.append(P)
            continue
        x, y = lift(X[P], X[Q])
        F = int(S[signed_distance(X[P], [y, -x], X[S]).argmax()])
        edges += [(F, Q, S), (P, F, S)]
    return np.array(vertices)


def _turn(a: Array, b: Array, x: Array) -> Array:
    """The sine of the angle at a from b to x: log_a(b) × log_a(x), normalised; positive is left, and 0 is straight

    The three are known to eps·λ in length and their directions to eps, so a sine is known to the sum of
    eps·λ/sinh(length) and eps; what is less than a few of these is 0.
    """
    u, v = lift(a, b), lift(a, x)
    lengths = np.hypot(u[0], u[1]), np.hypot(v[..., 0], v[..., 1])
    lam = np.maximum(max(conformal_factor(a), conformal_factor(b)), conformal_factor(x))
    cross, scale = u[0] * v[..., 1] - u[1] * v[..., 0], lengths[0] * lengths[1]
    known = 8 * EPS * (scale + lam * (lengths[0] + lengths[1]))
    return np.where(np.abs(cross) > known, cross, 0.0) / np.where(scale > 0, scale, 1.0)


# ---- the nearest points of two hulls --------------------------------------------------------------------------


@dataclass(frozen=True)
class Nearest:
    """Points x and y of two hulls; no two of their points are nearer than distance − gap. Hulls that meet: 0 and 0."""

    x: Array
    y: Array
    distance: float
    gap: float


def nearest_points(X: Array, Y: Array) -> Nearest:
    """The nearest points of the convex hulls of X and of Y in the unit ball, in any dimension

    With m, the midpoint of x and y, at the origin, x and y are ±ke in Klein coordinates. Upper bound: d(x, y). Lower
    bound: the hyperplanes ⟨e,·⟩ = u and ⟨e,·⟩ = v have X and Y behind them if u = min⟨e,X⟩ and v = max⟨e,Y⟩, and are
    artanh u − artanh v apart.

    Newton's method: up to third order  log cosh d(a, b) · (1−k⁴)  is, but for a constant,

        (1+3k⁴)/(1−k⁴) (⟨e,a−b⟩ − 8k⁵/(1+3k⁴))² + 2k²/(1−k²) ⟨e,a+b⟩²  +  ‖a−b‖² + k²‖a+b‖² across e

    a sum of squares, whose least over the two polytopes is a min-norm point. (The second weight is taken as k² too: x
    and y move across e in the end, and fewer steps are needed.) Steps are halved until d decreases.
    """
    x = X[distance(X, Y[0]).argmin()]
    y = Y[distance(x, Y).argmin()]
    D, lower, known = float(distance(x, y)), -math.inf, 8 * EPS * float(conformal_factor([x, y]).max())
    for _ in range(STEPS):
        m, k = midpoint(x, y), math.tanh(D / 2)
        if known >= D:
            return Nearest(m, m, 0.0, 0.0)
        e = lift(m, x) / np.linalg.norm(lift(m, x))
        lower = max(lower, float(_along(e, lift(m, X)).min() - _along(e, lift(m, Y)).max()))
        if D - lower <= NEAREST_GAP * D:
            break
        a, b = _newton(_klein(m, X), _klein(m, Y), e, k)
        for t in 0.5 ** np.arange(30):
            x_t, y_t = (mobius_add(m, from_klein(end + t * (to - end))) for end, to in ((k * e, a), (-k * e, b)))
            if (now := float(distance(x_t, y_t))) <= D + known:
                break
        else:
            break
        x, y, D = x_t, y_t, now
    return Nearest(x, y, D, max(D - lower, 0.0))


def _along(e: Array, z: Array) -> Array:
    """artanh⟨e,k⟩ of k = z/√(1+‖z‖²): asinh(⟨e,z⟩/√(1+‖z across e‖²))"""
    ze = z @ e
    across = z - np.multiply.outer(ze, e)
    return np.asarray(np.arcsinh(ze / np.sqrt(1 + np.vecdot(across, across))))


def _newton(A: Array, B: Array, e: Array, k: float) -> tuple[Array, Array]:
    """The a and b of the polytopes at which the quadratic form of `nearest_points` is least"""
    q = k**4
    S = np.eye(len(e)) + (math.sqrt((1 + 3 * q) / (1 - q)) - 1) * np.outer(e, e)
    target = S @ e * (8 * k * q / (1 + 3 * q))
    alpha, beta = _min_norm(np.hstack([A @ S - target, k * A]), np.hstack([-B @ S, k * B]))
    return alpha @ A, beta @ B


def _min_norm(U: Array, V: Array) -> tuple[Array, Array]:
    """The convex weights α, β of the least ‖αU + βV‖: Wolfe's algorithm on the sums U_i + V_j

    It keeps affinely independent sums with the weights of the least point r of their affine hull, adds the sum least
    along r, and drops those whose weight would turn negative on the way to the new least point.
    """
    corral = [(int(np.vecdot(U, U).argmin()), int(np.vecdot(V, V).argmin()))]
    weights, least = np.ones(1), math.inf
    scale = math.sqrt(np.vecdot(U, U).max() + np.vecdot(V, V).max())
    while True:
        r = weights @ np.array([U[i] + V[j] for i, j in corral])
        length = float(np.linalg.norm(r))
        new = int((U @ r).argmin()), int((V @ r).argmin())
        if length >= least or r @ (r - U[new[0]] - V[new[1]]) <= 4 * EPS * scale * length:
            break
        least = length
        corral, weights = [*corral, new], np.append(weights, 0.0)
        while True:
            Q = np.array([U[i] + V[j] for i, j in corral])
            step = np.linalg.lstsq((Q[1:] - Q[0]).T, -Q[0])[0]
            target = np.append(1 - step.sum(), step)
            falling = target < 0
            if not falling.any():
                weights = target
                break
            t = min(1.0, (weights[falling] / (weights[falling] - target[falling])).min())
            weights = (1 - t) * weights + t * target
            keep = weights > EPS
            corral, weights = [pair for pair, kept in zip(corral, keep, strict=True) if kept], weights[keep]
            weights /= weights.sum()
    alpha, beta = np.zeros(len(U)), np.zeros(len(V))
    for (i, j), weight in zip(corral, weights, strict=True):
        alpha[i] += weight
        beta[j] += weight
    return alpha, beta


def _klein(q: Array, X: Array) -> Array:
    """Klein coordinates with q at the origin: k = z/√(1+‖z‖²), z = lift(q, X)"""
    z = lift(q, X)
    return np.asarray(z / np.sqrt(1 + np.vecdot(z, z))[:, None])


def _bracket(a: Array, b: Array) -> float:
    """[a,b] = −a₀b₀ + ⟨a_s,b_s⟩"""
    return float(a[1:] @ b[1:] - a[0] * b[0])
