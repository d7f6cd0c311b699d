"""The learners' loops, compiled: exact sequential semantics at the speed of C.

A perceptron changes on a mistake and the next point must see the change, so the loop cannot be handed to
BLAS; and `X @ w` would not do anyway, since its rows depend on the batch they came in. Here every sum is
taken in index order (no fast-math, no fused multiply-add), so the score of a row depends bit for bit on that
row and the state alone, in `score` as in `observe`, however a stream is cut.

All arguments are read only and every array that is returned is new: the purity of the learners starts here.
They trust shapes and values; the learners check them. Numba's cache watches only the file a function is
written in, so a compiled function calls none of another file: what shares functions is here, and a learner
that needs none of them has its loops with it (softmax, gaussian, auto, drift).

Symbols: p the reference point, s = x − p, z = 2(s − ‖s‖² p/(1−‖p‖²))/(1−‖x‖²) the lifted point, w the
weights, k the number of updates, reach = max sinh²(r/2) over the points seen, r = d(p, x).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from service.hiding import hidden
from service.learners import cached

with hidden("coverage"):  # where a process is measured it is imported already
    import numba

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
Signs = NDArray[np.int8]
F = TypeVar("F", bound=Callable[..., Any])

types: Any = numba.types
njit: Any = numba.njit
settings: Any = numba.config

_vector = types.Array(types.float64, 1, "C", readonly=True)
_matrix = types.Array(types.float64, 2, "C", readonly=True)
_signs = types.Array(types.int8, 1, "C", readonly=True)
_floats, _square, _flags = types.float64[::1], types.float64[:, ::1], types.boolean[::1]
_f8, _i8, _yes = types.float64, types.int64, types.boolean
_counts, _count_vector = types.int64[::1], types.Array(types.int64, 1, "C", readonly=True)


def _load_numba() -> None:
    """Have Numba load all it knows of NumPy, without the packages that it supports and no loop here uses

    Matrix products are SciPy's, which whatever runs a loop would load for them: 20 MB, a quarter of a second.
    """
    with hidden("scipy.linalg.cython_blas", "cffi"):
        numba.core.registry.cpu_target.target_context.refresh()


_load_numba()
OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
#: Where Numba keeps what it compiles of this folder; None: it was told to compile nothing
CACHE = None if settings.DISABLE_JIT else Path(njit(**OPTIONS)(_load_numba).stats.cache_path)
COMPLETE = CACHE is not None and cached.is_complete(CACHE)
_loading = threading.Lock()


def compiled(*signature: Any) -> Callable[[F], F]:
    """Compile without the GIL, once: now, or load from the cache at the first call, if every loop is there

    With a signature nothing compiles later. One without is for those of its file to call, and compiled as part of them;
    one with a signature is called by none of them.
    """

    def wrap(function: F) -> F:
        def make() -> F:
            return cast(F, njit(*signature, **OPTIONS)(function))

        return _at_first_call(function, make) if signature and COMPLETE else make()

    return wrap


def inlined(function: F) -> F:
    """For what is done at every point or number: it becomes a part of its caller, in which alone it is compiled. A call
    of an own function counts references to its arrays, which takes longer than a short row"""
    return cast(F, njit(nogil=True, error_model="numpy", forceinline=True)(function))


def _at_first_call(function: F, make: Callable[[], F]) -> F:
    """Its first call makes the loop and puts it into its own place: who asks the module later finds the loop itself"""
    made: list[F] = []

    @wraps(function)
    def first(*arguments: Any) -> Any:
        with _loading:
            if not made:
                made.append(make())
                names = function.__globals__
                if names[function.__name__] is first:
                    names[function.__name__] = made[0]
        return made[0](*arguments)

    return cast(F, first)


def note_compiled() -> None:
    """Every loop is compiled: the next import need not load them"""
    if CACHE is not None and not COMPLETE:
        cached.note(CACHE)


@inlined
def _products(x: Floats, p: Floats, w: Floats) -> tuple[float, float, float]:
    """⟨w,s⟩, ‖s‖², ‖x‖² with s = x − p, in one pass; what x has beyond the length of p is no coordinate"""
    ws, ss, xx = 0.0, 0.0, 0.0
    for j in range(p.size):
        s = x[j] - p[j]
        ws += w[j] * s
        ss += s * s
        xx += x[j] * x[j]
    return ws, ss, xx


@inlined
def _dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for j in range(x.size):
        total += x[j] * y[j]
    return total


@inlined
def _lift(x: Floats, p: Floats, ss: float, gap: float, room: float, z: Floats) -> None:
    """z = 2(s − ‖s‖² p/(1−‖p‖²))/(1−‖x‖²), with gap = 1−‖p‖² and room = 1−‖x‖²"""
    for j in range(p.size):
        z[j] = 2 * (x[j] - p[j] - ss * p[j] / gap) / room


# ------------------------------------------------------------------------------------------ rows


@compiled(_yes(_matrix, _f8, _i8))
def good_rows(rows: Floats, most: float, classes: int) -> bool:
    """Whether every row is a point with ‖x‖² ≤ most and, behind it, the index of a class"""
    d = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        xx, label = 0.0, rows[i, d]
        for j in range(d):
            xx += rows[i, j] * rows[i, j]
        if not (xx <= most and 0 <= label < classes and label == math.floor(label)):
            return False
    return True


# ---------------------------------------------------------------------------------- perceptron


@compiled()
def _lifted_ratios(X: Floats, p: Floats, w: Floats) -> Floats:
    """⟨w,z⟩/‖w‖ of every row, 0 when w = 0:  ⟨w,z⟩ = 2(⟨w,s⟩ − ‖s‖²⟨w,p⟩/(1−‖p‖²))/(1−‖x‖²)"""
    gap, norm, wp = 1 - _dot(p, p), math.sqrt(_dot(w, w)), _dot(w, p)
    ratios = np.zeros(X.shape[0])
    if norm > 0:
        for i in range(X.shape[0]):
            ws, ss, xx = _products(X[i], p, w)
            ratios[i] = 2 * (ws - ss * wp / gap) / (1 - xx) / norm
    return ratios


@compiled(_floats(_matrix, _vector, _vector))
def lifted_ratios(X: Floats, p: Floats, w: Floats) -> Floats:
    """⟨w,z⟩/‖w‖ of every row"""
    return _lifted_ratios(X, p, w)


@compiled(types.Tuple((_i8, _floats, _i8, _f8, _floats, _flags))(_matrix, _signs, _vector, _vector, _i8, _f8, _yes))
def perceptron(
    X: Floats, y: Signs, p: Floats, w0: Floats, k: int, reach: float, until_change: bool
) -> tuple[int, Floats, int, float, Floats, Flags]:
    """On a mistake w ← w + y z. Returns (points consumed, w, k, reach, ratios, changed). X may be whole rows, as they
    are stored, with the label behind the point."""
    n, d = X.shape[0], p.size
    w, z = w0.copy(), np.empty(d)
    ratios, changed = np.zeros(n), np.zeros(n, dtype=np.bool_)
    gap, norm, wp = 1 - _dot(p, p), math.sqrt(_dot(w, w)), _dot(w, p)
    for i in range(n):
        ws, ss, xx = _products(X[i], p, w)
        reach = max(reach, ss / (1 - xx) / gap)
        if norm > 0:
            ratios[i] = 2 * (ws - ss * wp / gap) / (1 - xx) / norm
        if (ratios[i] >= 0) != (y[i] > 0):
            _lift(X[i], p, ss, gap, 1 - xx, z)
            for j in range(d):
                w[j] += y[i] * z[j]
            norm, wp = math.sqrt(_dot(w, w)), _dot(w, p)
            k += 1
            changed[i] = True
            if until_change:
                return i + 1, w, k, reach, ratios, changed
    return n, w, k, reach, ratios, changed


# ---------------------------------------------------------------------------------- second order


@compiled()
def _rank_one(U: Floats, x: Floats, n: int) -> float:
    """U ← the triangular U' with U'ᵀU' = UᵀU + x xᵀ, by Givens rotations on the leading n; x is used up.

    Returns xᵀ(U'ᵀU')⁻¹x = 1 − det(UᵀU)/det(U'ᵀU') = 1 − Π (1 − sin²_j), summed so that nothing cancels.
    """
    q = 0.0
    for j in range(n):
        length = math.hypot(U[j, j], x[j])
        if length > 0:
            cos, sin = U[j, j] / length, x[j] / length
            q += (1 - q) * sin * sin
            U[j, j] = length
            for i in range(j + 1, n):
                upper = U[j, i]
                U[j, i] = cos * upper + sin * x[i]
                x[i] = cos * x[i] - sin * upper
    return q


@compiled()
def _solve(U: Floats, b: Floats, n: int) -> None:
    """b ← (UᵀU)⁻¹ b on the leading n, by two triangular solves"""
    for j in range(n):
        b[j] /= U[j, j]
        for i in range(j + 1, n):
            b[i] -= U[j, i] * b[j]
    for j in range(n - 1, -1, -1):
        t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
        i = j + 1
        while i + 3 < n:
            t0 += U[j, i] * b[i]
            t1 += U[j, i + 1] * b[i + 1]
            t2 += U[j, i + 2] * b[i + 2]
            t3 += U[j, i + 3] * b[i + 3]
            i += 4
        while i < n:
            t0 += U[j, i] * b[i]
            i += 1
        b[j] = (b[j] - (t0 + t1 + t2 + t3)) / U[j, j]


@compiled()
def _residual(z: Floats, basis: Floats, rank: int, b: Floats, e: Floats) -> float:
    """b = the coordinates of z in the orthonormal rows of the basis, e = what is left of z; returns ‖e‖.

    Projected twice: after the second pass e is orthogonal to the basis to the last bits.
    """
    e[:] = z
    b[:] = 0.0
    for _ in range(2):
        for m in range(rank):
            part = _dot(basis[m], e)
            b[m] += part
            for j in range(z.size):
                e[j] -= part * basis[m, j]
    return math.sqrt(_dot(e, e))


@compiled()
def _refactor(U: Floats, basis: Floats, rank: int, b: Floats, e: Floats, left: float) -> tuple[int, float]:
    """A ← A + z zᵀ, with b the coordinates of z (in the basis while rank < d), left = ‖e‖ > 0 if z is outside the span

    b is used up. Returns the new rank, and zᵀA⁺z of the new A; once the span is whole, U is in the ambient coordinates,
    for good.
    """
    d, was = U.shape[0], rank
    if left > 0:
        for j in range(d):
            basis[rank, j] = e[j] / left
        b[rank] = left
        rank += 1
    q = _rank_one(U, b, rank)
    if was < d and rank == d:
        rows = np.zeros((d, d))
        for m in range(d):
            for h in range(m, d):
                for j in range(d):
                    rows[m, j] += U[m, h] * basis[h, j]
        U[:, :] = 0.0
        for m in range(d):
            _rank_one(U, rows[m], d)
    return rank, q


@compiled()
def _weights(U: Floats, basis: Floats, rank: int, xi: Floats, b: Floats, w: Floats) -> None:
    """w ← A⁺ξ; b is scratch"""
    d = U.shape[0]
    if rank == d:
        for j in range(d):  # a slice costs more than the solves of a small matrix
            w[j] = xi[j]
        _solve(U, w, d)
        return
    for m in range(rank):
        b[m] = _dot(basis[m], xi)
    _solve(U, b, rank)
    w[:] = 0.0
    for m in range(rank):
        for j in range(d):
            w[j] += b[m] * basis[m, j]


@compiled(_floats(_matrix, _vector, _vector, _matrix, _i8, _f8))
def spanned_ratios(X: Floats, p: Floats, w: Floats, basis: Floats, rank: int, tolerance: float) -> Floats:
    """⟨w,z⟩/‖w‖ of every row, and exactly 0 for a z outside the span of the basis"""
    n, d = X.shape
    ratios = _lifted_ratios(X, p, w)
    z, b, e = np.empty(d), np.empty(d), np.empty(d)
    gap = 1 - _dot(p, p)
    if rank < d:
        for i in range(n):
            _, ss, xx = _products(X[i], p, w)
            _lift(X[i], p, ss, gap, 1 - xx, z)
            if _residual(z, basis, rank, b, e) > tolerance * math.sqrt(_dot(z, z)):
                ratios[i] = 0.0
    return ratios


@compiled(
    types.Tuple((_i8, _floats, _floats, _square, _square, _i8, _i8, _f8, _f8, _floats, _flags))(
        _matrix, _signs, _vector, _vector, _vector, _matrix, _matrix, _i8, _f8, _i8, _f8, _f8, _yes
    )
)
def second_order(
    X: Floats,
    y: Signs,
    p: Floats,
    w0: Floats,
    xi0: Floats,
    factor: Floats,
    basis0: Floats,
    rank: int,
    tolerance: float,
    k: int,
    q: float,
    reach: float,
    until_change: bool,
) -> tuple[int, Floats, Floats, Floats, Floats, int, int, float, float, Floats, Flags]:
    """On a mistake ξ ← ξ + y z, A ← A + z zᵀ, w ← A⁺ξ. While rank < d, U holds A in the basis' coordinates.

    Returns (points consumed, w, ξ, U, basis, rank, k, Q = Σ zᵀA⁺z, reach, ratios, changed).
    """
    n, d = X.shape
    w, xi, U, basis = w0.copy(), xi0.copy(), factor.copy(), basis0.copy()
    z, b, e = np.empty(d), np.empty(d), np.empty(d)
    ratios, changed = np.zeros(n), np.zeros(n, dtype=np.bool_)
    gap, norm, wp = 1 - _dot(p, p), math.sqrt(_dot(w, w)), _dot(w, p)
    for i in range(n):
        ws, ss, xx = _products(X[i], p, w)
        reach = max(reach, ss / (1 - xx) / gap)
        if norm > 0:
            ratios[i] = 2 * (ws - ss * wp / gap) / (1 - xx) / norm
        outside, left = False, 0.0
        if rank < d:
            _lift(X[i], p, ss, gap, 1 - xx, z)
            left = _residual(z, basis, rank, b, e)
            outside = left > tolerance * math.sqrt(_dot(z, z))
            if outside:
                ratios[i] = 0.0
        if (ratios[i] >= 0) != (y[i] > 0):
            if rank == d:
                _lift(X[i], p, ss, gap, 1 - xx, z)
                b[:] = z
            for j in range(d):
                xi[j] += y[i] * z[j]
            rank, more = _refactor(U, basis, rank, b, e, left if outside else 0.0)
            q += more
            _weights(U, basis, rank, xi, b, w)
            norm, wp = math.sqrt(_dot(w, w)), _dot(w, p)
            k += 1
            changed[i] = True
            if until_change:
                return i + 1, w, xi, U, basis, rank, k, q, reach, ratios, changed
    return n, w, xi, U, basis, rank, k, q, reach, ratios, changed


_cube, _some = types.float64[:, :, ::1], types.int64[::1]
_cubes = types.Array(types.float64, 3, "C", readonly=True)
_indices = types.Array(types.int64, 1, "C", readonly=True)


@compiled(
    types.Tuple((_i8, _square, _square, _cube, _cube, _some, _some, _floats, _floats, _square, _flags))(
        *(
            _matrix,
            _indices,
            _matrix,
            _matrix,
            _matrix,
            _cubes,
            _cubes,
            _indices,
            _f8,
            _indices,
            _vector,
            _vector,
            _yes,
        ),
    )
)
def second_orders(
    X: Floats,
    y: Counts,
    P: Floats,
    W0: Floats,
    xi0: Floats,
    factors: Floats,
    bases: Floats,
    rank0: Counts,
    tolerance: float,
    k0: Counts,
    q0: Floats,
    reach0: Floats,
    until_change: bool,
) -> tuple[int, Floats, Floats, Floats, Floats, Counts, Counts, Floats, Floats, Floats, Flags]:
    """A learner a row, each as `second_order` to the last bit; label r is positive for row r, and `changed` by any

    What depends on the point alone is computed once where a row has the reference point of the row before.
    """
    n, d = X.shape
    K = P.shape[0]
    W, xi, U, basis, rank = W0.copy(), xi0.copy(), factors.copy(), bases.copy(), rank0.copy()
    k, q, reach = k0.copy(), q0.copy(), reach0.copy()
    z, b, e, v, u = np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty((d, d))
    ratios, changed = np.zeros((n, K)), np.zeros(n, dtype=np.bool_)
    gap, norm, wp, again = np.empty(K), np.empty(K), np.empty(K), np.zeros(K, dtype=np.bool_)
    for r in range(K):
        gap[r], norm[r], wp[r] = 1 - _dot(P[r], P[r]), math.sqrt(_dot(W[r], W[r])), _dot(W[r], P[r])
        if r > 0:
            again[r] = True
            for j in range(d):
                again[r] = again[r] and P[r, j] == P[r - 1, j]
    for i in range(n):
        ss, xx, far, lifted = 0.0, 0.0, 0.0, False
        for r in range(K):
            if again[r]:
                ws = 0.0
                for j in range(d):
                    ws += W[r, j] * (X[i, j] - P[r, j])
            else:
                ws, ss, xx = _products(X[i], P[r], W[r])
                far, lifted = ss / (1 - xx) / gap[r], False
            reach[r] = max(reach[r], far)
            if norm[r] > 0:
                turned = ss * wp[r] / gap[r] if wp[r] != 0 else 0.0  # at the origin: a division less
                ratios[i, r] = 2 * (ws - turned) / (1 - xx) / norm[r]
            outside, left = False, 0.0
            if rank[r] < d:
                if not lifted:
                    _lift(X[i], P[r], ss, gap[r], 1 - xx, z)
                    lifted = True
                left = _residual(z, basis[r], rank[r], b, e)
                outside = left > tolerance * math.sqrt(_dot(z, z))
                if outside:
                    ratios[i, r] = 0.0
            if (ratios[i, r] >= 0) != (y[i] == r):
                if not lifted:
                    _lift(X[i], P[r], ss, gap[r], 1 - xx, z)
                    lifted = True
                for j in range(d):
                    xi[r, j] += z[j] if y[i] == r else -z[j]
                if rank[r] < d:
                    rank[r], more = _refactor(U[r], basis[r], rank[r], b, e, left if outside else 0.0)
                    q[r] += more
                    _weights(U[r], basis[r], rank[r], xi[r], b, v)
                else:  # the same on copies: slices cost more than the solves of a small matrix
                    for m in range(d):
                        b[m], v[m] = z[m], xi[r, m]
                        for j in range(d):
                            u[m, j] = U[r, m, j]
                    q[r] += _rank_one(u, b, d)
                    _solve(u, v, d)
                    for m in range(d):
                        for j in range(d):
                            U[r, m, j] = u[m, j]
                norm[r], wp[r] = math.sqrt(_dot(v, v)), 0.0
                for j in range(d):
                    wp[r] += v[j] * P[r, j]
                    W[r, j] = v[j]
                k[r] += 1
                changed[i] = True
        if until_change and changed[i]:
            return i + 1, W, xi, U, basis, rank, k, q, reach, ratios, changed
    return n, W, xi, U, basis, rank, k, q, reach, ratios, changed


# ---------------------------------------------------------------------------------- strategic


@compiled()
def _strategic_score(
    ws: float, ss: float, xx: float, gap: float, wp: float, norm: float, alpha: float, tolerance: float
) -> tuple[float, float, float]:
    """σ⟨w,v⟩/‖w‖ − α = (r/sinh r)⟨w,z⟩/‖w‖ − α, taken as 0 within the tolerance; also sinh(r)/r, and r"""
    h = math.sqrt(ss / (1 - xx) / gap)
    stretch, r = 1.0, 2 * math.asinh(h)
    if h > 0:
        stretch = 2 * h * math.sqrt(1 + h * h) / r
    if norm == 0:
        return 0.0, stretch, r
    score = 2 * (ws - ss * wp / gap) / (1 - xx) / norm / stretch - alpha
    if abs(score) <= tolerance * max(alpha, r):
        score = 0.0
    return score, stretch, r


@compiled(_floats(_matrix, _vector, _vector, _f8, _f8))
def strategic_scores(X: Floats, p: Floats, w: Floats, alpha: float, tolerance: float) -> Floats:
    gap, norm, wp = 1 - _dot(p, p), math.sqrt(_dot(w, w)), _dot(w, p)
    scores = np.empty(X.shape[0])
    for i in range(X.shape[0]):
        ws, ss, xx = _products(X[i], p, w)
        scores[i] = _strategic_score(ws, ss, xx, gap, wp, norm, alpha, tolerance)[0]
    return scores


@compiled()
def _stayed(bound: float, r: float, evidence: Floats, agents: Floats, counts: Counts, stays: int) -> None:
    """Take up that an agent at r stayed: into the newer generation, which becomes the older one when it is full"""
    m = evidence.size // 2
    at = 2 * m  # where it stands, or is to stand: behind all
    for j in range(m, 2 * m):
        if agents[j] >= 0 and abs(agents[j] - r) <= 1e-12 * max(r, 1.0):
            at = j
    if at == 2 * m:
        counts[1] += 1
        at -= 1
    if bound < evidence[at]:
        while at > m and evidence[at - 1] > bound:
            evidence[at], agents[at] = evidence[at - 1], agents[at - 1]
            at -= 1
        evidence[at], agents[at] = bound, r
    if counts[1] >= stays:
        evidence[:m], agents[:m], counts[0] = evidence[m:], agents[m:], counts[1]
        evidence[m:], agents[m:], counts[1] = np.inf, -1.0, 0


@compiled(
    types.Tuple((_i8, _floats, _f8, _floats, _floats, _counts, _i8, _f8, _floats, _flags))(
        *(_matrix, _signs, _vector, _vector, _f8, _f8, _vector, _vector, _count_vector, _count_vector, _f8),
        *(_yes, _f8, _i8, _f8, _yes),
    )
)
def strategic(
    X: Floats,
    y: Signs,
    p: Floats,
    w0: Floats,
    alpha: float,
    tolerance: float,
    evidence0: Floats,
    agents0: Floats,
    counts0: Counts,
    rules: Counts,
    cap: float,
    estimating: bool,
    far: float,
    k: int,
    reach: float,
    until_change: bool,
) -> tuple[int, Floats, float, Floats, Floats, Counts, int, float, Floats, Flags]:
    """On a mistake w ← w + y ηṽ, where ηṽ = z − α (sinh r / r) w/‖w‖ for a negative on the threshold, else z.

    While estimating, the smallest distances at which agents were seen to stay below the threshold are kept in order,
    rounded up by the tolerance: α is the m-th smallest, m = rules[0], at most `cap`. With a stay it falls to its own
    distance, and by half, at most. An agent whose way might lead beyond `far` proves nothing.
    counts: stays of the older and of the newer generation, which holds rules[1]; jumps.
    Returns (points consumed, w, α, evidence, agents, counts, k, reach, scores, changed).
    """
    n, d = X.shape
    w, z, evidence, agents, counts = w0.copy(), np.empty(d), evidence0.copy(), agents0.copy(), counts0.copy()
    scores, changed = np.zeros(n), np.zeros(n, dtype=np.bool_)
    gap, norm, wp = 1 - _dot(p, p), math.sqrt(_dot(w, w)), _dot(w, p)
    for i in range(n):
        ws, ss, xx = _products(X[i], p, w)
        reach = max(reach, ss / (1 - xx) / gap)
        score, stretch, r = _strategic_score(ws, ss, xx, gap, wp, norm, alpha, tolerance)
        scores[i] = score
        budget = alpha
        if estimating and until_change and score < 0:
            along = score + alpha
            if math.sqrt(max(r * r - along * along, 0.0) + alpha * alpha) < far:
                bound = tolerance * max(alpha, r) - score
                _stayed(bound, r, evidence, agents, counts, rules[1])
                proven = min(np.sort(evidence)[rules[0] - 1], cap)
                if proven > alpha or max(proven, bound) < alpha:
                    counts[2] += max(proven, bound) < alpha / 2
                    alpha = proven if proven > alpha else max(proven, bound, alpha / 2)
                    changed[i] = True
        if (score >= 0) != (y[i] > 0):
            _lift(X[i], p, ss, gap, 1 - xx, z)
            if y[i] < 0 and score == 0 and norm > 0:
                for j in range(d):
                    z[j] -= budget * stretch * w[j] / norm
            for j in range(d):
                w[j] += y[i] * z[j]
            norm, wp = math.sqrt(_dot(w, w)), _dot(w, p)
            k += 1
            changed[i] = True
        if until_change and changed[i]:
            return i + 1, w, alpha, evidence, agents, counts, k, reach, scores, changed
    return n, w, alpha, evidence, agents, counts, k, reach, scores, changed


# ---------------------------------------------------------------------------------- hyperboloid


@compiled()
def _minkowski(x: Floats, w: Floats) -> tuple[float, float]:
    """[w,h] = (2⟨w_s,x⟩ − w₀(1+‖x‖²))/(1−‖x‖²) for the point h of the hyperboloid over x; and ‖x‖²"""
    wx, xx = 0.0, 0.0
    for j in range(x.size):
        wx += w[j + 1] * x[j]
        xx += x[j] * x[j]
    return (2 * wx - w[0] * (1 + xx)) / (1 - xx), xx


@compiled()
def _length(w: Floats) -> float:
    """√[w,w] of a spacelike w, else the Euclidean ‖w‖: a timelike w has no hyperplane to be distant from"""
    space = 0.0
    for j in range(1, w.size):
        space += w[j] * w[j]
    time = w[0] * w[0]
    return math.sqrt(space - time) if space > time else math.sqrt(space + time)


@compiled(_floats(_matrix, _vector))
def hyperboloid_ratios(X: Floats, w: Floats) -> Floats:
    length = _length(w)
    ratios = np.zeros(X.shape[0])
    if length > 0:
        for i in range(X.shape[0]):
            ratios[i] = _minkowski(X[i], w)[0] / length
    return ratios


@compiled(types.Tuple((_i8, _floats, _i8, _f8, _floats, _flags))(_matrix, _signs, _vector, _i8, _f8, _yes))
def hyperboloid(
    X: Floats, y: Signs, w0: Floats, k: int, reach: float, until_change: bool
) -> tuple[int, Floats, int, float, Floats, Flags]:
    """On a mistake w ← w + y Hh, H = diag(−1, 1, …, 1). Returns as `perceptron` does."""
    n, d = X.shape
    w = w0.copy()
    ratios, changed = np.zeros(n), np.zeros(n, dtype=np.bool_)
    length = _length(w)
    for i in range(n):
        product, xx = _minkowski(X[i], w)
        reach = max(reach, xx / (1 - xx))
        if length > 0:
            ratios[i] = product / length
        if (ratios[i] >= 0) != (y[i] > 0):
            w[0] -= y[i] * (1 + xx) / (1 - xx)
            for j in range(d):
                w[j + 1] += y[i] * 2 * X[i, j] / (1 - xx)
            length = _length(w)
            k += 1
            changed[i] = True
            if until_change:
                return i + 1, w, k, reach, ratios, changed
    return n, w, k, reach, ratios, changed


# ---------------------------------------------------------------------------------- hemisphere


@compiled()
def _sphere_distance(s: float, room: float, w: Floats, root_c: float) -> float:
    """The signed distance to {⟨w,φ⟩ = 0} where that is a sphere of the geometry, else ⟨w,φ⟩/‖w‖

    With s = ⟨w,φ⟩, room = φ's last = 1/h₀, w = (b, n, t): h₀s = [ν,h] + t, ν = (−b, n), q = [ν,ν] = ‖n‖² − b².

        q > 0   as far from the hyperplane of ν as sinh δ = −t/√q:  asinh([ν,h]/√q) − asinh(−t/√q)
        q < 0   a ball about the point of ν, cosh ρ = ∓t/√−q ≥ 1:   ±(d − ρ),  cosh d = cosh ρ ± h₀s/√−q
        q = 0   a horosphere:                                        ±ln([ν,h]/−t)

    Each is written as a function of h₀s, which vanishes with it and has its sign; distances are in units of √c.
    """
    D = w.size
    b, t, nn = w[0], w[D - 1], 0.0
    for j in range(1, D - 1):
        nn += w[j] * w[j]
    norm = math.sqrt(b * b + nn + t * t)
    if norm == 0 or s == 0:
        return 0.0
    plain, q, rise, value = s / norm, nn - b * b, s / room, 0.0
    side = 1.0 if b > 0 else -1.0
    if q > 0:
        root = math.sqrt(q)
        low, step = -t / root, rise / root
        high = low + step
        if (low > 0) == (high > 0):
            value = math.asinh(
                step * (high + low) / (high * math.sqrt(1 + low * low) + low * math.sqrt(1 + high * high))
            )
        else:
            value = math.asinh(high) - math.asinh(low)
    elif q < 0:
        root = math.sqrt(-q)
        near = -side * t / root
        if near >= 1:
            far = max(near + side * rise / root, 1.0)
            middle = (math.acosh(far) + math.acosh(near)) / 2
            value = 2 * math.asinh(rise / root / (2 * math.sinh(middle)))
    elif -side * t > 0:
        value = side * math.log1p(-rise / t)
    return value / root_c if (value > 0) == (s > 0) and value != 0 and math.isfinite(value) else plain


@compiled()
def _spanned(
    f: Floats, w: Floats, basis: Floats, rank: int, tolerance: float, b: Floats, e: Floats
) -> tuple[float, float]:
    """⟨w,f⟩ and 0; where f is outside the span of the basis, 0 and what is left of it beside the span"""
    if rank < f.size:
        left = _residual(f, basis, rank, b, e)
        if left > tolerance * math.sqrt(_dot(f, f)):
            return 0.0, left
    return _dot(w, f), 0.0


@compiled(_square(_matrix, _matrix, _cubes, _indices, _f8, _yes, _f8))
def hemisphere_scores(
    F: Floats, rule: Floats, basis: Floats, rank: Counts, tolerance: float, spanned: bool, root_c: float
) -> Floats:
    """What the rule says of every row; `spanned`: exactly 0 of one outside the span of the mistakes"""
    n, D = F.shape
    rows = rule.shape[0]
    b, e = np.empty(D), np.empty(D)
    scores = np.empty((n, rows))
    for i in range(n):
        for r in range(rows):
            if spanned:
                scores[i, r] = _spanned(F[i], rule[r], basis[r], rank[r], tolerance, b, e)[0]
            else:
                scores[i, r] = _dot(rule[r], F[i])
        if rows == 1:
            scores[i, 0] = _sphere_distance(scores[i, 0], F[i, D - 1], rule[0], root_c)
    return scores


@compiled(
    types.Tuple(
        (
            _i8,
            _square,
            _square,
            _square,
            _square,
            _cube,
            _cube,
            _some,
            _some,
            _floats,
            _i8,
            _i8,
            _square,
            _flags,
            _flags,
        )
    )(
        *(_matrix, _indices, _matrix, _matrix, _matrix, _matrix, _cubes, _cubes, _indices, _indices, _vector, _i8, _i8),
        *(_yes, _f8, _f8, _yes),
    )
)
def hemisphere(
    F: Floats,
    y: Counts,
    weights: Floats,
    lag0: Floats,
    rule0: Floats,
    xi0: Floats,
    factor: Floats,
    basis0: Floats,
    rank0: Counts,
    k0: Counts,
    q0: Floats,
    t: int,
    last: int,
    average: bool,
    tolerance: float,
    root_c: float,
    until_change: bool,
) -> tuple[int, Floats, Floats, Floats, Floats, Floats, Floats, Counts, Counts, Floats, int, int, Floats, Flags, Flags]:
    """Each row of W its own perceptron, of first order where there are no factors; label r is positive for row r.

    On a mistake of the last iterate A ← A + (t−1)ΔW; after it, and 2^j points after it, the rule is W − A/t.
    Returns (points consumed, W, A, rule, ξ, U, basis, rank, k, Q, t, t of the last update, scores, changed, updates).
    """
    n, D = F.shape
    rows = weights.shape[0]
    W, lag, rule, xi = weights.copy(), lag0.copy(), rule0.copy(), xi0.copy()
    U, basis, rank, k, q = factor.copy(), basis0.copy(), rank0.copy(), k0.copy(), q0.copy()
    b, e, w = np.empty(D), np.empty(D), np.empty(D)
    scores, changed, updates = np.empty((n, rows)), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    second, pseudo = U.shape[0] > 0, basis.shape[0] > 0
    for i in range(n):
        f = F[i]
        t += 1
        for r in range(rows):
            if pseudo:
                s, left = _spanned(f, W[r], basis[r], rank[r], tolerance, b, e)
            else:
                s, left = _dot(W[r], f), 0.0
            scores[i, r] = _dot(rule[r], f) if average else s
            if (s >= 0) != (y[i] == r):
                sign = 1.0 if y[i] == r else -1.0
                for j in range(D):
                    xi[r, j] += sign * f[j]
                if second:
                    if rank[r] == D:
                        b[:] = f
                    rank[r], more = _refactor(U[r], basis[r], rank[r], b, e, left)
                    q[r] += more
                    _weights(U[r], basis[r], rank[r], xi[r], b, w)
                else:
                    w[:] = xi[r]
                for j in range(D):
                    lag[r, j] += (t - 1) * (w[j] - W[r, j])
                    W[r, j] = w[j]
                k[r] += 1
                updates[i] = True
        if rows == 1:
            scores[i, 0] = _sphere_distance(scores[i, 0], f[D - 1], rule[0], root_c)
        if updates[i]:
            last = t
        since = t - last
        if updates[i] or (average and last > 0 and since & (since - 1) == 0):
            for r in range(rows):
                for j in range(D):
                    rule[r, j] = W[r, j] - lag[r, j] / t if average else W[r, j]
            changed[i] = True
            if until_change:
                return i + 1, W, lag, rule, xi, U, basis, rank, k, q, t, last, scores, changed, updates
    return n, W, lag, rule, xi, U, basis, rank, k, q, t, last, scores, changed, updates


@compiled(
    types.Tuple((_f8, types.float64[:, ::1]))(
        types.Array(types.float64, 2, "C", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        _f8,
        types.Array(types.float64, 2, "C", readonly=True),
        _f8,
    )
)
def calibration(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    decided: NDArray[np.int64],
    loss: float,
    bins: NDArray[np.float64],
    least: float,
) -> tuple[float, NDArray[np.float64]]:
    """Σ −ln max(p, least) of the true classes; the bins (points, how sure, how right) of the decided: see tally.py"""
    bins = bins.copy()
    for i in range(labels.size):
        loss -= math.log(max(probabilities[i, labels[i]], least))
        sure = probabilities[i, decided[i]]
        b = min(int(sure * bins.shape[0]), bins.shape[0] - 1)
        bins[b, 0] += 1
        bins[b, 1] += sure
        bins[b, 2] += 1 if decided[i] == labels[i] else 0
    return loss, bins
