"""Hulls of points of the unit ball, and how near two sets or two hulls are to each other.

Klein's k = 2x/(1+‖x‖²) makes geodesics straight, so a hyperbolic hull is a Euclidean one there, in any dimension. The
paper's Graham scan and Quickhull on the disk are here as well, corrected: as printed they start from the lowest and the
leftmost point, which need not be on the hull, and Quickhull may keep its own corners for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy  # its parts are loaded when they are first used: a service that learns no reference point starts sooner
from numpy.typing import NDArray

from service.geometry import (
    Array,
    conformal_factor,
    distance,
    from_klein,
    lift,
    log_map,
    midpoint,
    mobius_add,
    signed_distance,
)

Indices = NDArray[np.intp]

EPS = float(np.finfo(np.float64).eps)
#: A closest pair is searched among cells of at least CELL points, of which a class has at most about CELLS, and about
#: BLOCK pairs of points at a time.
CELL, CELLS, BLOCK = 32, 1024, 2**20
#: In so many dimensions search trees find nearest points sooner than cells do.
TREES = 12
#: The nearest points of two hulls are certified to this share of their distance, or as far as rounding allows: to some
#: 1e-5 where they are 18 apart.
NEAREST_GAP = 1e-9
#: Newton steps, at most; and after so many that bring the gap no further it is rounding that is left
STEPS, IDLE = 50, 4
#: Each of them is looked for to this share of ‖r‖², or to the square of the gap if that is less; all of them together
#: in so many multiplications, some seconds: what is left is in the gap
ROUGH, WORK = 1e-3, 5e9


# ---- closest pairs --------------------------------------------------------------------------------------------


def closest_pair(X: Array, Y: Array) -> tuple[int, int]:
    """The i and j of the least d(X_i, Y_j), in the unit ball; of equal ones the least (i, j), of zeros any"""
    found = _closest_by_trees(X, Y) if X.shape[1] <= TREES else None
    return _closest_by_cells(X, Y) if found is None else found


def _closest_by_trees(X: Array, Y: Array) -> tuple[int, int] | None:
    """None if too many pairs are about as near as the nearest

    log at the origin never lengthens: ‖v_x − v_y‖ ≤ d(x, y), σ₀v of length d(0, x). So the closest pair is among those
    whose v are as near as any pair of points is: here each x and the y whose v is nearest to its own.
    """
    origin = np.zeros(X.shape[1])
    trees = [scipy.spatial.cKDTree(2 * log_map(origin, points)) for points in (X, Y)]
    nearest = trees[1].query(trees[0].data)[1]
    D = _half_sinh_square(X, Y[nearest])
    i, delta = int(D.argmin()), 2 * math.asinh(math.sqrt(D.min()))
    if delta == 0:
        return i, int(nearest[i])
    reach = delta + 16 * EPS * (1 + delta) * max(conformal_factor(X).max(), conformal_factor(Y).max())
    if trees[0].count_neighbors(trees[1], reach) > BLOCK:
        return None
    near = trees[0].sparse_distance_matrix(trees[1], reach, output_type="ndarray")
    D = _half_sinh_square(X[near["i"]], Y[near["j"]])
    least = near[D == D.min()]
    i = int(least["i"].min())
    return i, int(least["j"][least["i"] == i].min())


def _closest_by_cells(X: Array, Y: Array) -> tuple[int, int]:
    """Points lie in cells, balls of radius r about q, and d(x, y) ≥ d(q, q′) − r − r′: no pair of cells is searched
    whose bound exceeds the least distance found so far. Exact in any dimension; in many all pairs are searched.
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


def _half_sinh_square(X: Array, Y: Array) -> Array:
    """sinh²(d/2) of each row of X and that of Y"""
    s = X - Y
    return np.asarray(np.vecdot(s, s) / ((1 - np.vecdot(X, X)) * (1 - np.vecdot(Y, Y))))


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
    search, gap, idle = _Search(WORK), math.inf, 0
    for _ in range(STEPS):
        m, k = midpoint(x, y), math.tanh(D / 2)
        if known >= D:
            return Nearest(m, m, 0.0, 0.0)
        e = lift(m, x) / np.linalg.norm(lift(m, x))
        lower = max(lower, float(_along(e, lift(m, X)).min() - _along(e, lift(m, Y)).max()))
        before, gap = gap, D - lower
        idle = idle + 1 if gap > 0.9 * before else 0
        if gap <= NEAREST_GAP * D or (idle >= IDLE and lower > 0) or search.work < 0:
            break
        a, b = _newton(_klein(m, X), _klein(m, Y), e, k, search, min(ROUGH, (gap / D) ** 2))
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


def _newton(A: Array, B: Array, e: Array, k: float, search: _Search, tolerance: float) -> tuple[Array, Array]:
    """The a and b of the polytopes at which the quadratic form of `nearest_points` is least"""
    q = k**4
    S = np.eye(len(e)) + (math.sqrt((1 + 3 * q) / (1 - q)) - 1) * np.outer(e, e)
    target = S @ e * (8 * k * q / (1 + 3 * q))
    search.run(np.hstack([A @ S - target, k * A]), np.hstack([-B @ S, k * B]), tolerance)
    i, j = np.array(search.pairs).T
    return search.weights @ A[i], search.weights @ B[j]


@dataclass
class _Search:
    """Wolfe's algorithm: the least point r of the hull of all sums U_i + V_j

    It keeps affinely independent sums with the weights of the least point of their affine hull, adds the sum least
    along r, and drops those whose weight would turn negative on the way to the new least point. What it ends with is
    where it begins the next time, in a problem nearby.
    """

    work: float  # multiplications that are left
    pairs: list[tuple[int, int]] = field(default_factory=list)
    weights: Array = field(default_factory=lambda: np.ones(1))

    def run(self, U: Array, V: Array, tolerance: float) -> None:
        """To ⟨r, r − s⟩ ≤ tolerance·‖r‖² for every sum s: with the squares of the sums, and in the end without"""
        if not self.pairs:
            self.pairs = [(int(np.vecdot(U, U).argmin()), int(np.vecdot(V, V).argmin()))]
        scale = math.sqrt(np.vecdot(U, U).max() + np.vecdot(V, V).max())
        for solve in (_by_squares, _by_qr):
            least = math.inf
            self._shrink(U, V, solve)
            while True:
                r = self.weights @ _sums(U, V, self.pairs)
                length = float(np.linalg.norm(r))
                new = int((U @ r).argmin()), int((V @ r).argmin())
                above = float(r @ (r - U[new[0]] - V[new[1]]))
                if length >= least or above <= max(4 * EPS * scale, tolerance * length) * length or self.work < 0:
                    break
                self.work -= 2 * (U.size + V.size) + len(self.pairs) ** 2 * (U.shape[1] + len(self.pairs))
                least = length
                self.pairs, self.weights = [*self.pairs, new], np.append(self.weights, 0.0)
                self._shrink(U, V, solve)

    def _shrink(self, U: Array, V: Array, solve: Callable[[Array, Array], Array]) -> None:
        """To the least point of the affine hull of these sums; without those it lies beyond, until it is inside"""
        while True:
            Q = _sums(U, V, self.pairs)
            step = solve((Q[1:] - Q[0]).T, -Q[0])
            target = np.append(1 - step.sum(), step)
            falling = target < 0
            if not falling.any():
                self.weights = target
                return
            at = self.weights[falling]
            t = min(1.0, (at / (at - target[falling])).min())
            weights = (1 - t) * self.weights + t * target
            keep = weights > EPS
            self.pairs = [pair for pair, kept in zip(self.pairs, keep, strict=True) if kept]
            self.weights = weights[keep] / weights[keep].sum()


def _sums(U: Array, V: Array, pairs: list[tuple[int, int]]) -> Array:
    i, j = np.array(pairs).T
    return np.asarray(U[i] + V[j])


def _by_squares(A: Array, b: Array) -> Array:
    """x of about the least ‖Ax − b‖, from AᵀAx = Aᵀb"""
    H = A.T @ A
    H[np.diag_indices_from(H)] *= 1 + 64 * EPS
    try:
        return np.asarray(np.linalg.solve(H, A.T @ b))
    except np.linalg.LinAlgError:
        return _by_qr(A, b)


def _by_qr(A: Array, b: Array) -> Array:
    """x of the least ‖Ax − b‖"""
    if A.shape[1] == 0:
        return np.empty(0)
    return np.asarray(scipy.linalg.lstsq(A, b, lapack_driver="gelsy", check_finite=False)[0])


def _klein(q: Array, X: Array) -> Array:
    """Klein coordinates with q at the origin: k = z/√(1+‖z‖²), z = lift(q, X)"""
    z = lift(q, X)
    return np.asarray(z / np.sqrt(1 + np.vecdot(z, z))[:, None])
