"""Hulls, closest pairs and reference points: three algorithms agree, isometries carry everything along, and the nearest
points of two hulls come with a proof that is checked here by other means.

Where the tolerances come from: coordinates are rounded to eps, which is eps·λ in hyperbolic length (λ = 2/(1−‖x‖²),
the largest of the points involved). Klein coordinates are rounded to eps as well, which is eps·λ² in length far out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.calibration import _SigmoidCalibration
from sklearn.svm import LinearSVC

from service.batch import hulls, svm
from service.batch.hulls import closest_pair, graham_scan, hull, nearest_points, quickhull
from service.batch.reference_point import learn, learn_each
from service.errors import EmptyClass, InvalidParameter, LengthMismatch, PointOutsideBall, UnknownLabel
from service.geometry import (
    conformal_factor,
    distance,
    exp_map,
    from_hyperboloid,
    from_klein,
    geodesic,
    lift,
    log_map,
    midpoint,
    mobius_add,
    signed_distance,
    to_hyperboloid,
    to_klein,
)
from tests.strategies import Array, directions, generators, points

EPS = float(np.finfo(np.float64).eps)
#: (0, .40) is the lowest of these, and inside: the geodesic between the two beside it passes below
COUNTEREXAMPLE = np.array([(0.0, 0.40), (0.5, 0.42), (-0.5, 0.42), (0.0, 0.8)])

each_algorithm = pytest.mark.parametrize("vertices", [hull, graham_scan, quickhull])
each_method = pytest.mark.parametrize("method", ["hull", "closest", "lorentz"])
each_dimension = pytest.mark.parametrize("d", [1, 2, 3, 5])
radii = st.sampled_from([1e-3, 1.0, 4.0, 8.0])

theorem = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def factor(*xs: Array) -> float:
    """λ: the largest conformal factor"""
    return max(float(conformal_factor(x).max()) for x in xs)


def from_least(cycle: NDArray[np.intp]) -> list[int]:
    """A cycle, from its least index on"""
    return [int(i) for i in np.roll(cycle, -int(np.argmin(cycle)))]


def as_points(X: Array, indices: NDArray[np.intp]) -> set[tuple[float, ...]]:
    return {tuple(x) for x in X[indices]}


def separated(rng: np.random.Generator, n: int, d: int, radius: float) -> tuple[Array, Array]:
    """n points and n points on either side of a hyperplane (which is flat in Klein coordinates about any p)"""
    p, w = points(rng, 1, d, radius / 2)[0], rng.standard_normal(d)
    X = points(rng, 2 * n, d, radius)
    order = np.argsort(to_klein(mobius_add(-p, X)) @ w)
    return X[order[n:]], X[order[:n]]


def isometry(rng: np.random.Generator, d: int, radius: float = 2) -> Callable[[Array], Array]:
    """A rotation that float64 performs exactly, then a translation"""
    p, order, sign = points(rng, 1, d, radius)[0], rng.permutation(d), rng.choice([-1.0, 1.0], d)
    return lambda x: mobius_add(p, x[..., order] * sign)


def in_hull(x: Array, X: Array) -> float:
    """How far, in Klein coordinates, the nearest convex combination of X is from x: non-negative least squares"""
    K = to_klein(X)
    E = np.vstack([K.T, np.ones(len(K))])
    return float(nnls(E, np.append(to_klein(x), 1.0))[1])


def sampled(rng: np.random.Generator, X: Array, n: int) -> Array:
    """n points of the hull of X, most of them near its faces: convex combinations in Klein coordinates"""
    return from_klein(rng.dirichlet(np.full(len(X), 0.3), n) @ to_klein(X))


# ---- hulls ----------------------------------------------------------------------------------------------------


@theorem
@given(generators, st.integers(1, 60), st.sampled_from([1e-3, 1.0, 4.0, 8.0, 12.0]))
def test_graham_scan_quickhull_and_klein_agree(rng: np.random.Generator, n: int, radius: float) -> None:
    """The same vertices, counterclockwise"""
    X = points(rng, n, 2, radius)
    assert from_least(hull(X)) == from_least(graham_scan(X)) == from_least(quickhull(X))


@theorem
@given(generators, st.integers(3, 60), radii)
def test_every_point_is_inside(rng: np.random.Generator, n: int, radius: float) -> None:
    """Left of every edge, or on it: no further than eps·λ² to the right"""
    X = points(rng, n, 2, radius)
    V = X[hull(X)]
    for a, b in zip(V, np.roll(V, -1, axis=0), strict=True):
        u = lift(a, b)
        assert signed_distance(a, [-u[1], u[0]], X).min() >= -8 * EPS * factor(X) ** 2


@theorem
@given(generators, st.integers(1, 60), st.integers(2, 4), st.sampled_from([1e-3, 1.0, 4.0]))
def test_every_point_is_a_combination_of_vertices(rng: np.random.Generator, n: int, d: int, radius: float) -> None:
    X = points(rng, n, d, radius)
    assert max(in_hull(x, X[hull(X)]) for x in X) <= 32 * EPS


@theorem
@given(generators, st.integers(1, 60), st.integers(1, 4), radii)
def test_the_hull_of_a_hull_is_the_hull(rng: np.random.Generator, n: int, d: int, radius: float) -> None:
    X = points(rng, n, d, radius)
    vertices = hull(X)
    assert sorted(hull(X[vertices])) == list(range(len(vertices)))


@theorem
@given(generators, st.integers(1, 60), st.integers(1, 4), st.sampled_from([0.1, 1.0, 4.0]))
def test_isometries_carry_hulls_along(rng: np.random.Generator, n: int, d: int, radius: float) -> None:
    X = points(rng, n, d, radius)
    assert set(hull(isometry(rng, d)(X))) == set(hull(X))


@each_algorithm
def test_the_lowest_point_need_not_be_a_vertex(vertices: Callable[[Array], NDArray[np.intp]]) -> None:
    """So a scan must not start there. Nor is the leftmost or the rightmost one, with the picture turned."""
    for turned in (COUNTEREXAMPLE, -COUNTEREXAMPLE, COUNTEREXAMPLE[:, ::-1], -COUNTEREXAMPLE[:, ::-1]):
        assert set(vertices(np.ascontiguousarray(turned))) == {1, 2, 3}


@each_algorithm
@pytest.mark.parametrize("radius", [1e-3, 1.0, 6.0, 12.0])
@pytest.mark.parametrize("n", [3, 12, 100])
def test_all_points_of_a_circle_are_vertices(
    vertices: Callable[[Array], NDArray[np.intp]], radius: float, n: int
) -> None:
    """Many are as far from an edge as each other: here the printed Quickhull never ends. Once more, each twice."""
    t = 2 * math.pi * np.arange(n) / n
    X = math.tanh(radius / 2) * np.column_stack([np.cos(t), np.sin(t)])
    assert from_least(vertices(X)) == list(range(n))
    assert as_points(X, vertices(X)) == as_points(np.tile(X, (2, 1)), vertices(np.tile(X, (2, 1))))


@each_algorithm
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_point_many_times_is_its_own_hull(vertices: Callable[[Array], NDArray[np.intp]], n: int) -> None:
    for x in ((0.0, 0.0), (0.3, -0.2), (0.99998, 0.0)):
        assert len(vertices(np.tile([x], (n, 1)))) == 1


@each_algorithm
@pytest.mark.parametrize("radius", [1e-3, 1.0, 4.0, 12.0])
def test_points_of_one_geodesic_have_two_vertices(vertices: Callable[[Array], NDArray[np.intp]], radius: float) -> None:
    rng = np.random.default_rng(2)
    for through_the_origin in (True, False):
        for _ in range(20):
            a, b = points(rng, 2, 2, radius)
            b = -a * rng.uniform(0, 1) if through_the_origin else b
            X = geodesic(a, b, np.append([0.0, 1.0], rng.uniform(0.1, 0.9, 20)))[rng.permutation(22)]
            ends = {int(distance(b, X).argmax()), int(distance(a, X).argmax())}
            assert set(vertices(X)) == ends


@each_algorithm
def test_a_short_geodesic_at_the_border_has_two_vertices(vertices: Callable[[Array], NDArray[np.intp]]) -> None:
    """Length 0.1 at radius 11.5: coordinates are known to some 1e-11 in length there, and what is thinner is flat."""
    rng = np.random.default_rng(21)
    for _ in range(20):
        a, b = mobius_add(math.tanh(11.5 / 2) * directions(rng, 1, 2)[0], points(rng, 2, 2, 0.1))
        X = geodesic(a, b, np.append([0.0, 1.0], rng.uniform(0.1, 0.9, 20)))
        assert set(vertices(X)) == {0, 1}


@each_algorithm
def test_a_small_cloud_at_the_border_has_the_hull_it_has_at_the_origin(
    vertices: Callable[[Array], NDArray[np.intp]],
) -> None:
    """Radius 1e-5 about a point at radius 11. Klein coordinates about the origin would know it to a hundredth only."""
    rng = np.random.default_rng(22)
    for _ in range(20):
        X = points(rng, 30, 2, 1e-5)
        assert set(vertices(mobius_add(math.tanh(11 / 2) * directions(rng, 1, 2)[0], X))) == set(vertices(X))


@each_algorithm
@pytest.mark.parametrize("radius", [1e-3, 1.0, 4.0, 12.0])
def test_points_of_an_edge_are_no_vertices(vertices: Callable[[Array], NDArray[np.intp]], radius: float) -> None:
    rng = np.random.default_rng(20)
    for _ in range(20):
        corners = points(rng, 3, 2, radius)
        t = rng.uniform(0.05, 0.95, (3, 8))
        along = geodesic(corners[:, None], np.roll(corners, -1, axis=0)[:, None], t).reshape(-1, 2)
        order = rng.permutation(27)
        assert set(vertices(np.concatenate([corners, along])[order])) == set(np.flatnonzero(order < 3))


@pytest.mark.parametrize(("flat", "d"), [(0, 1), (0, 3), (1, 1), (1, 3), (2, 3), (2, 5), (3, 5)])
def test_points_of_a_flat_have_the_hull_they_have_there(flat: int, d: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        low = points(rng, 30, max(flat, 1), 4) * (flat > 0)
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0][: max(flat, 1)]
        X = mobius_add(points(rng, 1, d, 2)[0], low @ axes)
        assert set(hull(X)) == set(hull(low))
        assert len(hull(X)) == {0: 1, 1: 2}.get(flat, len(hull(X)))


# ---- closest pairs --------------------------------------------------------------------------------------------


@theorem
@given(generators, st.integers(1, 200), st.integers(1, 200), st.sampled_from([1, 2, 3, 20]), radii)
def test_the_closest_pair_is_that_of_a_search_through_all(
    rng: np.random.Generator, n: int, m: int, d: int, radius: float
) -> None:
    X, Y = points(rng, n, d, radius), points(rng, m, d, radius)
    D = distance(X[:, None], Y)
    i, j = closest_pair(X, Y)
    assert D[i, j] <= D.min() * (1 + 4 * EPS)  # one square root and one division apart


@pytest.mark.parametrize(("cell", "cells", "block"), [(1, 1000, 1), (2, 1000, 7), (8, 4, 50), (32, 1024, 2**20)])
def test_of_equal_pairs_the_first_is_taken_however_the_search_is_cut(
    monkeypatch: pytest.MonkeyPatch, cell: int, cells: int, block: int
) -> None:
    """A lattice, exact in binary and symmetric under x ↦ −x, has many equal pairs."""
    for name, value in (("CELL", cell), ("CELLS", cells), ("BLOCK", block)):
        monkeypatch.setattr(hulls, name, value)
    rng = np.random.default_rng(4)
    for _ in range(10):
        X, Y = rng.integers(-5, 6, (200, 2)) / 8, (rng.integers(-5, 5, (200, 2)) + 0.5) / 8
        S = ((X[:, None] - Y) ** 2).sum(axis=-1) / np.multiply.outer(1 - (X**2).sum(axis=1), 1 - (Y**2).sum(axis=1))
        i, j = np.unravel_index(S.argmin(), S.shape)
        assert closest_pair(X, Y) == (i, j)
        assert (S == S.min()).sum() > 1


def test_classes_of_one_point_many_times_are_not_searched_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred million pairs of distance 0: the first that is found will do, and a block has about a million"""
    looked_at, squares = [], hulls._half_sinh_squares

    def counted(X: Array, Y: Array) -> Array:
        looked_at.append(len(X) * len(Y))
        return squares(X, Y)

    monkeypatch.setattr(hulls, "_half_sinh_squares", counted)
    X = np.full((10_000, 2), 0.25)
    i, j = closest_pair(X, X)
    assert distance(X[i], X[j]) == 0
    assert sum(looked_at) <= 2 * hulls.BLOCK


@theorem
@given(generators, st.integers(1, 50), st.integers(1, 4), st.sampled_from([0.1, 1.0, 4.0]))
def test_isometries_carry_closest_pairs_along(rng: np.random.Generator, n: int, d: int, radius: float) -> None:
    X, Y, move = points(rng, n, d, radius), points(rng, n, d, radius), isometry(rng, d)
    assert closest_pair(move(X), move(Y)) == closest_pair(X, Y)
    assert closest_pair(Y, X) == closest_pair(X, Y)[::-1]


# ---- the nearest points of two hulls --------------------------------------------------------------------------


@theorem
@given(generators, st.integers(1, 30), st.sampled_from([1, 2, 3, 5, 10]), st.sampled_from([1e-3, 1.0, 4.0, 8.0]))
def test_nearest_points_are_in_the_hulls_and_nothing_is_nearer(
    rng: np.random.Generator, n: int, d: int, radius: float
) -> None:
    """Primal: x and y are convex combinations. Dual: the hyperplanes through x and y across their geodesic have X and Y
    behind them. The two together are a proof, and this one uses nothing of the code's own."""
    X, Y = separated(rng, n, d, radius)
    nearest = nearest_points(X, Y)
    x, y, D = nearest.x, nearest.y, nearest.distance
    assert D == distance(x, y) > 0
    assert 0 <= nearest.gap <= 1e-9 * D
    assert max(in_hull(x, X), in_hull(y, Y)) <= 64 * EPS
    for end, other, behind in ((x, y, X), (y, x, Y)):
        slack = (64 * EPS * factor(X, Y) ** 2 + 2 * nearest.gap) * np.cosh(distance(end, behind)).max()
        assert signed_distance(end, -log_map(end, other), behind).min() >= -slack


@settings(theorem, max_examples=30)
@given(generators, st.integers(1, 8), st.sampled_from([2, 3]), st.sampled_from([0.3, 1.0, 2.0]))
def test_no_sampled_points_of_the_hulls_are_nearer(rng: np.random.Generator, n: int, d: int, radius: float) -> None:
    """And in the disk some are nearly as near: on the edges, not a step away from the nearest"""
    X, Y = separated(rng, n, d, radius)
    D = nearest_points(X, Y).distance
    assert distance(sampled(rng, X, 300)[:, None], sampled(rng, Y, 300)).min() >= D * (1 - 1e-9)
    assert D <= distance(X[:, None], Y).min() * (1 + 1e-9)
    if d == 2:
        (on_X, step_X), (on_Y, step_Y) = edges(X), edges(Y)
        assert D * (1 - 1e-9) <= distance(on_X[:, None], on_Y).min() <= D + (step_X + step_Y) / 2


def edges(X: Array, steps: int = 200) -> tuple[Array, float]:
    """Points along the edges of a hull in the disk, and the longest step between them"""
    V = X[hull(X)]
    W = np.roll(V, -1, axis=0)
    along = geodesic(V[:, None], W[:, None], np.linspace(0, 1, steps + 1))
    return along.reshape(-1, 2), float(distance(V, W).max()) / steps


@pytest.mark.parametrize("D", [1e-5, 0.01, 1.0, 6.0])
@pytest.mark.parametrize("length", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_common_perpendicular_of_two_edges(D: float, length: float, d: int) -> None:
    """In hyperbolic space two edges may be nearest inside both: here at ±D/2 on the first axis, not at any vertex."""
    rng = np.random.default_rng(5)
    a = np.zeros(d)
    a[0] = math.tanh(D / 4)
    across = np.zeros(d)
    across[1] = length / float(conformal_factor(a))
    for _ in range(5):
        move = isometry(rng, d)
        X = move(exp_map(a, np.array([[1.0], [-rng.uniform(0.2, 2)]]) * across))
        Y = move(exp_map(-a, np.array([[1.0], [-rng.uniform(0.2, 2)]]) * across))
        nearest = nearest_points(X, Y)
        assert abs(nearest.distance - D) <= 16 * EPS * factor(X, Y) * (1 + length) + nearest.gap
        assert nearest.distance < distance(X[:, None], Y).min()
        # a point off by δ is further by D·δ²/2 at least, and the distance is known to the gap
        off = float(distance(midpoint(nearest.x, nearest.y), move(np.zeros(d))))
        assert off <= 4 * math.sqrt((nearest.gap + 16 * EPS * factor(X, Y)) / min(D, 1.0))


@each_dimension
def test_hulls_that_meet_are_at_distance_zero(d: int) -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        X = points(rng, 2 * d + 4, d, 3)
        inside = sampled(rng, X, 3)
        for Y in (inside, X, X[:1], np.concatenate([inside, points(rng, 3, d, 4)])):
            for A, B in ((X, Y), (Y, X)):
                nearest = nearest_points(A, B)
                assert (nearest.distance, nearest.gap) == (0.0, 0.0)
                assert np.array_equal(nearest.x, nearest.y)


@theorem
@given(generators, st.integers(1, 20), st.integers(1, 4), st.sampled_from([0.1, 1.0, 4.0]))
def test_isometries_carry_nearest_points_along(rng: np.random.Generator, n: int, d: int, radius: float) -> None:
    """The distance, that is: in thin wedges the points themselves are known only to the root of it."""
    X, Y = separated(rng, n, d, radius)
    move = isometry(rng, d)
    here, there = nearest_points(X, Y), nearest_points(move(X), move(Y))
    slack = 64 * EPS * factor(X, Y, move(X), move(Y)) + here.gap + there.gap
    assert abs(here.distance - there.distance) <= slack


@theorem
@given(generators, st.integers(1, 20), st.integers(1, 4))
def test_at_the_border_nearest_points_are_no_further_than_vertices(rng: np.random.Generator, n: int, d: int) -> None:
    """Radius 12. What the proof lacks is reported, never more than eps·λ²: how well Klein coordinates resolve there."""
    X, Y = separated(rng, n, d, 12)
    nearest = nearest_points(X, Y)
    assert nearest.distance <= distance(X[:, None], Y).min() + 16 * EPS * factor(X, Y)
    assert nearest.gap <= 1e-9 * nearest.distance + 8 * EPS * factor(X, Y) ** 2


def test_far_apart_at_the_border() -> None:
    """Two clusters 20 apart and more"""
    rng = np.random.default_rng(7)
    for _ in range(20):
        q = np.array([math.tanh(11 / 2), 0.0])
        X, Y = mobius_add(q, points(rng, 10, 2, 0.9)), mobius_add(-q, points(rng, 10, 2, 0.9))
        nearest, among = nearest_points(X, Y), distance(X[:, None], Y).min()
        assert among - 1 < nearest.distance <= among + 16 * EPS * factor(X, Y)
        assert nearest.gap <= 8 * EPS * factor(X, Y) ** 2


# ---- reference points -----------------------------------------------------------------------------------------


def labelled(P: Array, N: Array) -> tuple[Array, NDArray[np.int_]]:
    return np.concatenate([P, N]), np.repeat([1, -1], [len(P), len(N)])


@theorem
@given(generators, st.integers(1, 30), st.integers(1, 4), st.sampled_from([0.1, 1.0, 4.0]))
def test_p_is_halfway(rng: np.random.Generator, n: int, d: int, radius: float) -> None:
    """The hyperplane at p across the way between the hulls keeps half their distance to each point, or more."""
    P, N = separated(rng, n, d, radius)
    learned = learn(*labelled(P, N), "hull")
    half, nearest = learned.report["distance"] / 2, nearest_points(P, N)
    w = log_map(learned.p, nearest.x)
    margin = min(float(signed_distance(learned.p, w, P).min()), -float(signed_distance(learned.p, w, N).max()))
    slack = (64 * EPS * factor(P, N) ** 2 + 2 * learned.report["gap"]) * math.cosh(2 * radius)
    assert (learned.method, learned.report["overlap"]) == ("hull", False)
    assert margin >= half - slack
    assert abs(distance(learned.p, nearest.x) - half) <= slack
    assert abs(distance(learned.p, nearest.y) - half) <= slack
    closest = learn(*labelled(P, N), "closest")
    i, j = closest_pair(P, N)
    assert np.array_equal(closest.p, midpoint(P[i], N[j]))
    assert closest.report["distance"] == distance(P[i], N[j]) >= 2 * half * (1 - 1e-9)


@each_method
@each_dimension
def test_isometries_carry_reference_points_along(method: str, d: int) -> None:
    """But for `lorentz`, whose SVM knows the origin: it goes along with rotations alone."""
    rng = np.random.default_rng(8)
    for _ in range(10):
        P, N = mobius_add([*np.zeros(d - 1), 0.4], points(rng, 15, d, 1)), points(rng, 20, d, 1) - 0.01
        move = isometry(rng, d, radius=0 if method == "lorentz" else 2)
        here, there = learn(*labelled(P, N), method), learn(*labelled(move(P), move(N)), method)
        assert distance(move(here.p), there.p) <= 1e-6


def test_hulls_that_meet_get_the_closest_vertices() -> None:
    """The paper's rule"""
    rng = np.random.default_rng(9)
    P, N = points(rng, 200, 2, 3), points(rng, 300, 2, 2)
    learned = learn(*labelled(P, N))
    V, W = P[graham_scan(P)], N[graham_scan(N)]
    D = distance(V[:, None], W)
    i, j = np.unravel_index(D.argmin(), D.shape)
    assert np.array_equal(learned.p, midpoint(V[i], W[j]))
    assert (learned.method, learned.report) == ("hull", {"distance": 0.0, "gap": 0.0, "overlap": True})


@pytest.mark.parametrize("d", [4, 6, 20])
def test_in_many_dimensions_the_nearest_points_need_no_vertices(d: int) -> None:
    P, N = separated(np.random.default_rng(10), 100, d, 2)
    learned, nearest = learn(*labelled(P, N), "hull"), nearest_points(P, N)
    assert np.array_equal(learned.p, midpoint(nearest.x, nearest.y))
    assert (learned.method, learned.report["distance"], learned.report["overlap"]) == ("hull", nearest.distance, False)
    assert learned.report["gap"] <= 1e-9 * nearest.distance
    if d == 4:
        with_vertices = nearest_points(P[hull(P)], N[hull(N)])
        assert with_vertices.distance == pytest.approx(nearest.distance, rel=3e-9)


def test_what_the_search_has_no_time_for_is_in_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    P, N = separated(np.random.default_rng(11), 300, 20, 2)
    exact = nearest_points(P, N)
    monkeypatch.setattr(hulls, "WORK", 1e6)
    rough = nearest_points(P, N)
    assert rough.distance - rough.gap <= exact.distance <= rough.distance
    assert rough.gap > exact.gap


@pytest.mark.parametrize("method", ["graham", "quickhull"])
def test_the_papers_hulls_learn_what_klein_s_does_in_the_disk_alone(method: str) -> None:
    rng = np.random.default_rng(12)
    for make in (separated, lambda rng, n, d, radius: (points(rng, n, d, radius), points(rng, n, d, radius))):
        P, N = make(rng, 40, 2, 3.0)
        learned, klein = learn(*labelled(P, N), method), learn(*labelled(P, N), "hull")
        assert learned.method == method
        assert distance(learned.p, klein.p) <= 1e-6
        assert learned.report["overlap"] == klein.report["overlap"]
    with pytest.raises(InvalidParameter, match="disk"):
        learn(*labelled(*separated(rng, 10, 3, 1.0)), method)


@each_dimension
def test_lorentz_is_the_foot_on_the_hyperplane(d: int) -> None:
    """p is on it, and as far from the positives' centroid as the centroid is from it. The SVM is LIBLINEAR's here, to
    its tolerance."""
    rng = np.random.default_rng(11)
    for _ in range(5):
        P, N = separated(rng, 40, d, 2)
        learned = learn(*labelled(P, N), "lorentz")
        X, y = labelled(P, N)
        h = to_hyperboloid(X)
        w = LinearSVC(C=5, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(h, y).coef_[0]
        size = math.sqrt(w[1:] @ w[1:] - w[0] ** 2)
        total = to_hyperboloid(P).sum(axis=0)
        q = from_hyperboloid(total / math.sqrt(total[0] ** 2 - total[1:] @ total[1:]))
        assert learned.method == "lorentz" and learned.report["spacelike"]
        assert abs(to_hyperboloid(learned.p) @ w) / size <= 1e-4
        assert distance(q, learned.p) == pytest.approx(abs(math.asinh(to_hyperboloid(q) @ w / size)), abs=1e-4)


def test_without_a_hyperplane_lorentz_is_the_closest_pair() -> None:
    """One positive in a ring of negatives: by symmetry w = (−w₀, 0), which is timelike."""
    t = np.arange(8) * math.pi / 4
    P, N = np.zeros((1, 2)), 0.5 * np.column_stack([np.cos(t), np.sin(t)])
    learned = learn(*labelled(P, N), "lorentz")
    assert learned.method == "closest" and not learned.report["spacelike"]
    assert distance(learned.p, [0, 0]) == pytest.approx(math.atanh(0.5), abs=4 * EPS)


@pytest.mark.parametrize(("w0", "method"), [(1 - 1e-9, "lorentz"), (1 - 1e-12, "closest"), (1.0, "closest")])
def test_a_foot_beyond_the_limit_is_no_reference(monkeypatch: pytest.MonkeyPatch, w0: float, method: str) -> None:
    """The hyperplane of (w₀, 1, 0) is artanh(w₀) from 0: 10.7, 14.2, and nowhere"""
    monkeypatch.setattr(svm, "fit", lambda *a, **k: svm.Fit(np.array([w0, 1.0, 0.0]), np.ones(2), 1, 1, 1))
    learned = learn([[0.0, 0.0], [0.1, 0.1]], [1, -1], "lorentz")
    assert learned.method == method
    if method == "lorentz":
        assert distance([0.0, 0.0], learned.p) == pytest.approx(math.atanh(w0), rel=1e-6)


@each_method
@each_dimension
@pytest.mark.parametrize("c", [0.25, 4.0])
def test_curvature_is_a_change_of_unit(method: str, d: int, c: float) -> None:
    """p_c(X/√c) = p_1(X)/√c, and so are distances: exact, since √c is a power of two"""
    P, N = separated(np.random.default_rng(12), 20, d, 3)
    X, y = labelled(P, N)
    plain, scaled = learn(X, y, method), learn(X / math.sqrt(c), y, method, c=c)
    assert np.array_equal(scaled.p, plain.p / math.sqrt(c))
    assert scaled.report.get("distance", 0) == plain.report.get("distance", 0) / math.sqrt(c)


@each_method
@each_dimension
def test_degenerate_classes_have_a_reference_point(method: str, d: int) -> None:
    """Somewhere among the points: no further from the origin than the farthest of them, but for `lorentz`"""
    rng = np.random.default_rng(13)
    a, b, c = points(rng, 3, d, 2)
    line = geodesic(a, b, np.linspace(0, 1, 12))
    ring = points(rng, 40, d, 3)
    cases: dict[str, tuple[Any, Any]] = {
        "one point each": ([a], [b]),
        "one geodesic": (line[:6], line[6:]),
        "one geodesic, mixed": (line[::2], line[1::2]),
        "duplicates": ([a, a, a, b], [c, c]),
        "the same point": ([a], [a]),
        "identical classes": (ring, ring),
        "one inside the other": (sampled(rng, ring, 10), ring),
        "at the origin": ([np.zeros(d)], [np.zeros(d), a]),
    }
    for name, (P, N) in cases.items():
        X, y = labelled(np.array(P), np.array(N))
        learned = learn(X, y, method)
        assert learned.p.shape == (d,) and np.isfinite(learned.p).all(), name
        if learned.method != "lorentz":
            assert np.linalg.norm(learned.p) <= np.linalg.norm(X, axis=1).max() * (1 + 4 * EPS), name
        if name in ("the same point", "one point each") and learned.method != "lorentz":
            assert distance(learned.p, midpoint(P[0], N[0])) <= 8 * EPS * factor(X), name


@pytest.mark.parametrize("method", ["hull", "closest", "lorentz", "cv"])
def test_what_cannot_be_learned_is_refused(method: str) -> None:
    X = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    for y in ([1, 1, 1], [-1, -1, -1]):
        with pytest.raises(EmptyClass):
            learn(X, y, method)
    with pytest.raises(EmptyClass, match="2"):
        learn_each(X, [0, 1, 1], 3, method)
    with pytest.raises(LengthMismatch):
        learn(X, [1, -1], method)
    with pytest.raises(UnknownLabel):
        learn(X, [1, -1, 0], method)
    with pytest.raises(UnknownLabel):
        learn_each(X, [0, 1, 2], 2, method)
    with pytest.raises(PointOutsideBall):
        learn([[0.1, 0.2], [0.8, 0.8]], [1, -1], method)
    with pytest.raises(EmptyClass):
        learn(np.empty((0, 2)), [], method)
    with pytest.raises(InvalidParameter):
        learn(X, [1, -1, 1], method, c=0)


def test_unknown_methods_and_folds_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="hull, closest, lorentz, cv"):
        learn([[0.1], [0.2]], [1, -1], "median")
    with pytest.raises(InvalidParameter, match="folds"):
        learn([[0.1], [0.2]], [1, -1], "cv", folds=1)


# ---- cross-validation -----------------------------------------------------------------------------------------


def blobs(rng: np.random.Generator, n: int, K: int) -> tuple[Array, NDArray[np.int_]]:
    """K clouds that overlap a little, n points each, in turn"""
    centres = 0.6 * np.column_stack([np.cos(t := 2 * math.pi * np.arange(K) / K), np.sin(t)])
    return np.concatenate([mobius_add(centres, points(rng, K, 2, 1.8)) for _ in range(n)]), np.tile(np.arange(K), n)


def test_cv_sees_the_accuracies_that_liblinear_sees() -> None:
    """A textbook loop over the folds: the i-th point of its class is in fold i mod 3"""
    X, k = blobs(np.random.default_rng(14), 60, 3)
    y = np.where(k == 0, 1, -1)
    learned = learn(X, y, "cv")
    fold = np.empty(len(y), dtype=int)
    fold[y == 1], fold[y == -1] = np.arange(60) % 3, np.arange(120) % 3
    want: dict[str, Any] = dict.fromkeys(("hull", "closest", "lorentz"), 0)
    for method in want:
        for f in range(3):
            p = learn(X[fold != f], y[fold != f], method).p
            V = log_map(p, X)
            machine = LinearSVC(C=5, fit_intercept=False, tol=1e-8, max_iter=100_000)
            machine.fit(V[fold != f], y[fold != f])
            want[method] += (machine.predict(V[fold == f]) == y[fold == f]).sum() / len(y)
    assert learned.report["folds"] == 3
    assert learned.report["accuracy"] == pytest.approx(want)
    assert len(set(want.values())) > 1, "a choice without a difference shows nothing"
    best = max(want, key=want.__getitem__)
    assert learned.method == best and np.array_equal(learned.p, learn(X, y, best).p)


def test_each_class_gets_the_point_of_the_class_against_the_rest() -> None:
    X, k = blobs(np.random.default_rng(15), 30, 4)
    for method in ("hull", "closest", "lorentz"):
        each = learn_each(X, k, 4, method)
        assert len(each) == 4
        for label, learned in enumerate(each):
            assert np.array_equal(learned.p, learn(X, np.where(k == label, 1, -1), method).p)


def test_cv_of_many_classes_chooses_one_method_for_all() -> None:
    """By the accuracy of the K classifiers together: the same loop, with scikit-learn's machines and sigmoids. Classes
    are of unequal size: there the largest score and the largest probability differ."""
    X, k = blobs(np.random.default_rng(16), 60, 4)
    X, k = X[: -len(X) // 4], k[: -len(X) // 4]
    keep = (k > 1) | (np.arange(len(k)) % 5 == 0)
    X, k = X[keep], k[keep]
    fold = np.empty(len(k), dtype=int)
    for label in range(4):
        fold[k == label] = np.arange((k == label).sum()) % 4
    want = dict.fromkeys(("hull", "closest", "lorentz"), 0.0)
    for method, f in itertools.product(want, range(4)):
        P = []
        for label in range(4):
            y = np.where(k == label, 1, -1)
            V = log_map(learn(X[fold != f], y[fold != f], method).p, X)
            machine = LinearSVC(C=5, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(V[fold != f], y[fold != f])
            scores = machine.decision_function(V)
            P.append(_SigmoidCalibration().fit(scores[fold != f], y[fold != f]).predict(scores[fold == f]))
        want[method] += (np.argmax(P, axis=0) == k[fold == f]).sum() / len(k)
    each = learn_each(X, k, 4, "cv", folds=4)
    assert len(set(want.values())) > 1
    best = max(want, key=want.__getitem__)
    for learned, one in zip(each, learn_each(X, k, 4, best), strict=True):
        assert learned.report["folds"] == 4 and learned.report["accuracy"] == pytest.approx(want)
        assert np.array_equal(learned.p, one.p)


def test_cv_knows_the_unit() -> None:
    """Its SVM sees log_p(x) in the units of curvature −c, as the fit to come will: C weighs otherwise there"""
    X, k = blobs(np.random.default_rng(17), 60, 4)
    y = np.where(k == 0, 1, -1)
    assert learn(X, y, "cv").report["accuracy"] != learn(X / 32, y, "cv", c=1024.0).report["accuracy"]


def test_folds_are_no_more_than_the_smallest_class_has_points() -> None:
    X, k = blobs(np.random.default_rng(18), 10, 2)
    two = np.flatnonzero((k == 1) | (np.cumsum(k == 0) <= 2))
    one = np.flatnonzero((k == 1) | (np.cumsum(k == 0) <= 1))
    assert learn(X[two], np.where(k[two] == 0, 1, -1), "cv", folds=5).report["folds"] == 2
    alone = learn(X[one], np.where(k[one] == 0, 1, -1), "cv")
    assert (alone.method, alone.report["folds"], alone.report["accuracy"]) == ("hull", 1, {})


@pytest.mark.parametrize("method", ["hull", "closest", "lorentz", "cv"])
def test_learning_is_deterministic_and_leaves_its_input_alone(method: str) -> None:
    X, k = blobs(np.random.default_rng(19), 50, 2)
    y = np.where(k == 0, 1, -1)
    before = X.copy(), y.copy()
    first, second = learn(X, y, method), learn(X, y, method)
    assert np.array_equal(first.p, second.p) and first.report == second.report
    assert np.array_equal(X, before[0]) and np.array_equal(y, before[1])
