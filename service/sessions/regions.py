"""What a published model makes of the disk that is drawn: the class of every point, and the outlines of the regions.

The drawn disk is a plane through the ball, spanned by the rows of E, through the origin or (`centred`) the reference
point. All but the strategic threshold and the gaussian are decided by generalised circles A‖x‖² + 2⟨b,x⟩ + C, of which
the largest value wins:

    hemisphere   ⟨w,φ⟩(1+‖x‖²) = (w₀−w_D)‖x‖² + 2⟨w_s,x⟩ + (w₀+w_D)
    geodesics    [N,h](1−‖x‖²) = 2⟨N_s,x⟩ − N₀(1+‖x‖²), over √[N,N], for a score is a signed distance
    gaussian     log n + log N(v; m, Σ), v the arrow at the origin
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service import geometry as g
from service.geometry import Array

Indices = NDArray[np.int64]
#: The class of each row of an n×2 array of points of the disk
Decide = Callable[[Array], Indices]
CELLS = 120  # of the grid, along the diameter


@dataclass(frozen=True)
class Plane:
    """The disk that is drawn, within the ball"""

    E: Array  # 2×d
    centred: bool = False  # the reference point is in its middle
    line: bool = False  # one dimension, and one more that nothing depends on


def normal(w: Array, p: Array) -> Array:
    """N = (σ_p⟨w,p⟩, w + σ_p⟨w,p⟩ p): the geodesic through p, orthogonal to w; [N,N] = ‖w‖²"""
    time = float(g.conformal_factor(p) * np.vecdot(w, p))
    return np.array([time, *(w + time * p)])


def forms(model: Mapping[str, Any], plane: Plane) -> Array:
    """A, b₁, b₂ and C of each row of weights, by which classes are compared"""
    W, root = np.atleast_2d(np.asarray(model["weights"], dtype=np.float64)), math.sqrt(model["curvature"])
    E, features = plane.E, model["features"]
    if features == "hemisphere":
        return np.column_stack([W[:, 0] - W[:, -1], W[:, 1:-1] @ E.T, W[:, 0] + W[:, -1]])
    if features == "hyperboloid":
        N, square = np.column_stack([W[:, 0], W[:, 1:] @ E.T]), np.vecdot(W, W) - 2 * W[:, 0] ** 2
    else:
        P = np.broadcast_to(root * np.atleast_2d(np.asarray(model["reference"], dtype=np.float64)), W.shape)
        full = [[0.0, *w] if plane.centred else normal(w, p) for w, p in zip(W, P, strict=True)]
        N, square = np.array([[n[0], *(E @ n[1:])] for n in full]), np.vecdot(W, W)
    square = np.where(square > 0, square, np.vecdot(W, W))
    N = N / np.sqrt(np.where(square > 0, square, 1))[:, None]
    return np.column_stack([-N[:, 0], N[:, 1:], -N[:, 0]])


def decider(model: Mapping[str, Any], plane: Plane) -> Decide | None:
    """How it decides; None if it has learned nothing yet"""
    if model.get("members"):
        return _vote(model, plane)
    if model["weights"] is None:
        return _gaussian(model, plane)
    if not np.any(model["weights"]):
        return None
    Q = forms(model, plane)

    def decide(X: Array) -> Indices:
        values = _values(Q, X)
        return (values[:, 0] >= 0).astype(np.int64) if len(Q) == 1 else values.argmax(axis=1)

    return decide


def _values(Q: Array, X: Array) -> Array:
    return np.asarray(np.vecdot(X, X)[:, None] * Q[:, 0] + 2 * X @ Q[:, 1:3].T + Q[:, 3])


def _gaussian(model: Mapping[str, Any], plane: Plane) -> Decide | None:
    seen = [(k, each) for k, each in enumerate(model["classes"]) if each["count"] > 0]
    if not seen:
        return None
    parts = []
    for k, each in seen:
        m = np.asarray(each["mean"], dtype=np.float64)
        full = each.get("covariance") is not None
        S = np.asarray(each["covariance"], dtype=np.float64) if full else np.asarray(each["variances"])
        solved = np.linalg.solve(S, np.column_stack([plane.E.T, m])) if full else (np.vstack([plane.E, m]) / S).T
        log_det = np.linalg.slogdet(S)[1] if full else np.log(S).sum()
        quadratic = plane.E @ solved[:, :2] + np.diag([0.0, float(plane.line)])
        parts.append((k, quadratic, plane.E @ solved[:, 2], math.log(each["count"]) - (log_det + m @ solved[:, 2]) / 2))

    def decide(X: Array) -> Indices:
        V = 2 * g.log_map(np.zeros(2), X)
        logs = [c + V @ b - np.vecdot(V, V @ P) / 2 for _, P, b, c in parts]
        return np.asarray(np.array([k for k, *_ in parts])[np.argmax(logs, axis=0)])

    return decide


def _vote(model: Mapping[str, Any], plane: Plane) -> Decide | None:
    """The plurality of the members' weights; ties go to the heaviest. One that is cold says what a score of 0 says"""
    first = int(len(model["labels"]) == 2)
    found = [(each["weight"], decider(each, plane)) for each in model["members"]]
    if not any(decide for _, decide in found):
        return None
    members = [(w, decide or (lambda X: np.full(len(X), first))) for w, decide in sorted(found, key=lambda m: -m[0])]

    def decide(X: Array) -> Indices:
        shares, rows = np.zeros((len(X), len(model["labels"]))), np.arange(len(X))
        said = [vote(X) for _, vote in members]
        for (weight, _), k in zip(members, said, strict=True):
            shares[rows, k] += weight
        top, answer = shares.max(axis=1), np.full(len(X), -1)
        for k in said:  # the heaviest first
            answer = np.where((answer < 0) & (shares[rows, k] >= top - 1e-12), k, answer)
        return answer

    return decide


def outlines(decide: Decide) -> Iterator[tuple[int, list[Array]]]:
    """The region of each class that has one, as polygons in the disk

    They are runs of whole cells of a grid; at a border, cells that are cut where the class changes between two corners.
    """
    step = np.linspace(-1, 1, CELLS + 1)
    grid = np.stack(np.meshgrid(step, step), axis=-1)
    corners = decide(_inside(grid.reshape(-1, 2))).reshape(CELLS + 1, CELLS + 1)
    same = (corners[:-1, :-1] == corners[1:, :-1]) & (corners[:-1, :-1] == corners[:-1, 1:])
    same &= corners[:-1, :-1] == corners[1:, 1:]
    near = np.linalg.norm(grid, axis=-1) < 1 + 3 / CELLS
    seen = near[:-1, :-1] | near[1:, :-1] | near[:-1, 1:] | near[1:, 1:]
    cuts = _cuts(decide, grid, corners)
    for k in np.unique(corners).tolist():
        whole = same & seen & (corners[:-1, :-1] == k)
        parts = list(_runs(whole, step))
        mixed = seen & ~same & _any_corner(corners == k)
        parts += [_clipped(i, j, corners == k, grid, cuts) for i, j in zip(*np.nonzero(mixed), strict=True)]
        if parts:
            yield k, parts


def _inside(X: Array) -> Array:
    """Those outside the disk are asked for just within it"""
    norm = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.maximum(1, norm / 0.9995))


def _any_corner(mine: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.asarray(mine[:-1, :-1] | mine[1:, :-1] | mine[:-1, 1:] | mine[1:, 1:])


def _runs(whole: NDArray[np.bool_], step: Array) -> Iterator[Array]:
    """A rectangle for each row of cells side by side"""
    edges = np.diff(np.pad(whole.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    for i in range(len(whole)):
        for a, b in zip(np.flatnonzero(edges[i] > 0), np.flatnonzero(edges[i] < 0), strict=True):
            x, X, y, Y = step[a], step[b], step[i], step[i + 1]
            yield np.array([[x, y], [X, y], [X, Y], [x, Y]])


def _cuts(decide: Decide, grid: Array, corners: Indices) -> tuple[Array, Array]:
    """Where the class changes on each side of a cell, as a share of it: sides along x, sides along y"""
    along = _bisected(decide, grid[:, :-1], grid[:, 1:], corners[:, :-1], corners[:, 1:])
    return along, _bisected(decide, grid[:-1], grid[1:], corners[:-1], corners[1:])


def _bisected(decide: Decide, A: Array, B: Array, a: Indices, b: Indices) -> Array:
    shares, at = np.full(a.shape, 0.5), np.nonzero(a != b)
    if not len(at[0]):
        return shares
    start, end, mine = A[at], B[at], a[at]
    low, high = np.zeros(len(mine)), np.ones(len(mine))
    for _ in range(6):
        middle = (low + high) / 2
        still = decide(_inside(start + middle[:, None] * (end - start))) == mine
        low, high = np.where(still, middle, low), np.where(still, high, middle)
    shares[at] = (low + high) / 2
    return shares


def _clipped(i: int, j: int, mine: NDArray[np.bool_], grid: Array, cuts: tuple[Array, Array]) -> Array:
    """What of the cell belongs to the class: its own corners, and the cuts between them and the others"""
    along, up = cuts
    ring: Sequence[tuple[tuple[int, int], tuple[int, int], float]] = (
        ((i, j), (i, j + 1), along[i, j]),
        ((i, j + 1), (i + 1, j + 1), up[i, j + 1]),
        ((i + 1, j + 1), (i + 1, j), 1 - along[i + 1, j]),
        ((i + 1, j), (i, j), 1 - up[i, j]),
    )
    found = []
    for a, b, share in ring:
        if mine[a]:
            found.append(grid[a])
        if mine[a] != mine[b]:
            found.append(grid[a] + share * (grid[b] - grid[a]))
    return np.array(found)


@dataclass(frozen=True)
class Curve:
    """A generalised circle in the disk: what it is there, its centre and radius; a line if that is infinite"""

    name: str
    centre: Array  # of a line: a point of it
    radius: float
    normal: Array  # of a line: towards the positive side


def curve(q: Array) -> Curve | None:
    """What {A‖x‖² + 2⟨b,x⟩ + C = 0} is: its normal is n = ((A+C)/2, b), and it is (A−C)/2 off n's geodesic

    Spacelike n: a geodesic or a hypercycle; lightlike: a horocycle; timelike: a circle, if it meets the disk at all.
    """
    A, b, C = float(q[0]), q[1:3], float(q[3])
    size, bb, time, off = float(np.abs(q).max()), float(b @ b), (A + C) / 2, (A - C) / 2
    if size == 0:
        return None
    spacelike = bb - time * time
    name = "horocycle" if abs(spacelike) <= 1e-12 * size**2 else "hypercycle" if spacelike > 0 else "circle"
    if name == "hypercycle" and abs(off) <= 1e-9 * math.sqrt(spacelike):
        name = "geodesic"
    if name == "circle" and (off * off <= -spacelike or off * time < 0):
        return None
    if abs(A) <= 1e-9 * size:
        return Curve(name, -C / 2 * b / bb, math.inf, b / math.sqrt(bb))
    square = bb / (A * A) - C / A
    return Curve(name, -b / A, math.sqrt(square), b) if square > 0 else None
