"""The geometry contract: right to a small multiple of eps·λ, isometric, rows independent, input gated.

Where the tolerances come from. ‖x‖² is rounded to about eps, so 1−‖x‖² is known to eps·λ/2 relative, with
λ = 2/(1−‖x‖²). Every formula uses that factor of each of its (at most two) points and cancels nothing else:
one operation errs by at most 2·eps·λ on the natural scale of its result, λ the largest of its points'. n
chained operations err by 2n·eps·λ. Where a theorem needs another scale, its docstring derives it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from service import geometry
from service.errors import DimensionMismatch, InvalidParameter, NonFinite, NotANumber, PointOutsideBall
from service.geometry import (
    RADIUS_LIMIT,
    conformal_factor,
    distance,
    exp_map,
    from_hyperboloid,
    from_klein,
    geodesic,
    hemisphere,
    lift,
    log_map,
    midpoint,
    mobius_add,
    mobius_scale,
    parallel_transport,
    require_ball,
    signed_distance,
    sinh_ratio,
    to_hyperboloid,
    to_klein,
)
from tests import oracle
from tests.strategies import Array, directions, points, triples

Sample = dict[str, Array]

EPS = float(np.finfo(np.float64).eps)
T = np.linspace(0, 1, 8)
VECTORS = json.loads((Path(__file__).parent / "vectors" / "geometry.json").read_text())["cases"]

#: each operation and its arguments: points x, y, p; a normal w; a tangent v at p; t in [0, 1]; h, k: x elsewhere
BY_ARGUMENTS = {
    "x": "conformal_factor to_hyperboloid to_klein hemisphere",
    "x y": "mobius_add distance midpoint",
    "x y t": "geodesic",
    "t x": "mobius_scale",
    "p x": "lift log_map",
    "p v": "exp_map",
    "p w x": "signed_distance",
    "p x v": "parallel_transport",
    "h": "from_hyperboloid",
    "k": "from_klein",
}
OPERATIONS = {name: arguments for arguments, names in BY_ARGUMENTS.items() for name in names.split()}
IN_VECTORS = {"signed_distance": "signed_distance_to_hyperplane", "to_hyperboloid": "hyperboloid", "to_klein": "klein"}
IN_VECTORS |= {name: name for name in ("mobius_add", "distance", "exp_map", "log_map", "lift", "geodesic")}

each_operation = pytest.mark.parametrize("name", OPERATIONS)
each_dimension = pytest.mark.parametrize("d", [1, 2, 3, 10, 1000])
each_curvature = pytest.mark.parametrize("c", [0.25, 1.0, 4.0])


def theorem(test: Callable[[Array], None]) -> Callable[[], None]:
    """For all triples of points: 60 draws, the same on every run."""
    return given(triple=triples)(settings(max_examples=60, deadline=None, derandomize=True, database=None)(test))


def sample(rng: np.random.Generator, n: int, d: int, *, radius: float = RADIUS_LIMIT, c: float = 1.0) -> Sample:
    """n rows of every kind of argument. A third of the p and y lie near x, a third of the p near −x."""
    x, y, p, q = (points(rng, n, d, radius) for _ in range(4))
    y[::3] = exp_map(x[::3], nearby(rng, x[::3]))
    p[1::3] = exp_map(x[1::3], nearby(rng, x[1::3]))
    p[2::3] = exp_map(-x[2::3], nearby(rng, x[2::3]))
    w, t = rng.standard_normal((n, d)), rng.uniform(0, 1, n)
    lengths = {"x": x, "y": y, "p": p, "v": log_map(p, q), "h": to_hyperboloid(x), "k": to_klein(x)}
    return {name: a / math.sqrt(c) for name, a in lengths.items()} | {"w": w, "t": t}


def nearby(rng: np.random.Generator, x: Array) -> Array:
    """Tangents at x of hyperbolic length 1e-6 to 1."""
    length = 10 ** rng.uniform(-6, 0, (len(x), 1)) / conformal_factor(x)[:, None]
    return np.asarray(length * directions(rng, *x.shape))


def apply(name: str, S: Sample, rows: Any = slice(None), c: float = 1.0) -> Array:
    return np.asarray(getattr(geometry, name)(*(S[a][rows] for a in OPERATIONS[name].split()), c=c))


def norm(a: Array) -> Array:
    return np.asarray(np.linalg.norm(a, axis=-1))


def unit(a: Array) -> Array:
    return np.asarray(a / np.where(a.any(axis=-1), norm(a), 1)[:, None])


def largest(*xs: Array) -> Array:
    """λ: the largest conformal factor, row by row."""
    return np.asarray(np.maximum.reduce([conformal_factor(x) for x in xs]))


def natural_scale(name: str, want: Array, S: Sample, c: float) -> Array | float:
    """What the error of an operation is relative to, from the relative error eps·λ of 1−‖x‖²."""
    root = math.sqrt(c)
    match name:
        case "exp_map":  # the step r is off by r·eps·λ, and the result with it
            return (1 + root * norm(S["v"]) * conformal_factor(S["p"], c=c)) / root
        case "distance":  # d = 2asinh(h): dd = 2tanh(d/2)·dh/h ≤ min(d, 2)·dh/h
            return np.minimum(want, 2 / root)
        case "signed_distance":  # s = asinh⟨w,z⟩: ds = dz/cosh s, where dz is relative to ‖z‖
            return np.asarray(norm(lift(S["p"], S["x"], c=c)) / np.cosh(want * root) / root)
        case "conformal_factor":
            return want
        case "lift" | "log_map" | "parallel_transport" | "to_hyperboloid" | "hemisphere":
            return norm(want)
    return 1 / root  # a point: the ball's size


def assert_agree(name: str, got: Array, want: Array, S: Sample, c: float = 1.0, operations: int = 1) -> None:
    """‖got − want‖ ≤ 2·eps·λ·scale in every row; to_klein, hemisphere, from_hyperboloid add only, and lose no λ."""
    of = {"x": "x", "y": "y", "p": "p", "k": "x"}
    used = [conformal_factor(S[of[a]], c=c) for a in OPERATIONS[name].split() if a in of]
    lam = 1.0 if name in ("to_klein", "hemisphere", "from_hyperboloid") else np.maximum.reduce(used)
    error = np.abs(got - want) if want.ndim == 1 else norm(got - want)
    assert got.shape == want.shape
    assert np.all(error <= 2 * operations * EPS * lam * natural_scale(name, want, S, c))


# ---- values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IN_VECTORS)
def test_agrees_with_the_shared_vectors(name: str) -> None:
    for case in VECTORS:
        S = {a: np.array([case[a]]) for a in "xypwvt"}
        assert_agree(name, apply(name, S), np.array([case[IN_VECTORS[name]]]), S)


@pytest.mark.no_cover  # tracing mpmath would take longer than all else
@each_operation
@each_dimension
@each_curvature
def test_agrees_with_the_textbook_at_fifty_digits(name: str, d: int, c: float) -> None:
    S = sample(np.random.default_rng(d), 3 if d == 1000 else 45, d, c=c)
    want = oracle.rows(getattr(oracle, name), *(S[a] for a in OPERATIONS[name].split()), c=c)
    assert_agree(name, apply(name, S, c=c), want, S, c)


def test_sinh_ratio_agrees_with_the_textbook_at_fifty_digits() -> None:
    h = np.append(0, np.geomspace(1e-160, math.sinh(12), 200))
    want = oracle.rows(oracle.sinh_ratio, h, c=1)
    assert np.all(np.abs(sinh_ratio(h) - want) <= 4 * EPS * want)  # four roundings
    assert np.array_equal(sinh_ratio(h), [sinh_ratio(one) for one in h])


@pytest.mark.parametrize("t", [-1.0, -0.25, 1.25, 2.0])
def test_the_geodesic_goes_on_beyond_its_ends(t: float) -> None:
    """Beyond the ends an end's error grows as geodesics part: for −1 ≤ t ≤ 2 by sinh(2D)/sinh D at most."""
    S = sample(np.random.default_rng(3), 60, 3, radius=3)
    S["t"] = np.full(60, t)
    want, D = oracle.rows(oracle.geodesic, S["x"], S["y"], S["t"], c=1), distance(S["x"], S["y"])
    growth = np.sinh(2 * D) / np.sinh(D)
    assert np.all(norm(apply("geodesic", S) - want) <= 2 * EPS * largest(S["x"], S["y"]) * growth)


@each_operation
@each_dimension
@pytest.mark.parametrize("c", [0.25, 4.0])
def test_curvature_is_a_change_of_unit(name: str, d: int, c: float) -> None:
    """f_c(x/√c) = f_1(x)/√c (lifts and factors have no unit): exact, since √c is a power of two."""
    plain, scaled = (sample(np.random.default_rng(d), 9, d, c=k) for k in (1.0, c))
    root = 1.0 if name in ("lift", "conformal_factor", "hemisphere") else math.sqrt(c)
    assert np.array_equal(apply(name, scaled, c=c), apply(name, plain) / root)


# ---- theorems -------------------------------------------------------------------------------------------------


@theorem
def test_left_translation_is_an_isometry(triple: Array) -> None:
    """d(p⊕x, p⊕y) = d(x, y); the images may be 24 away, and λ counts them"""
    p, x, y = triple
    px, py = mobius_add(p, x), mobius_add(p, y)
    assert np.all(np.abs(distance(px, py) - distance(x, y)) <= 8 * EPS * largest(p, x, y, px, py))


@theorem
def test_left_translation_cancels(triple: Array) -> None:
    """(−x) ⊕ (x ⊕ y) = y"""
    _, x, y = triple
    xy = mobius_add(x, y)
    assert np.all(norm(mobius_add(-x, xy) - y) <= 4 * EPS * largest(x, y, xy))


@theorem
def test_exp_undoes_log(triple: Array) -> None:
    p, x, _ = triple
    assert np.all(norm(exp_map(p, log_map(p, x)) - x) <= 4 * EPS * largest(p, x) * (1 + distance(p, x)))


@theorem
def test_log_undoes_exp(triple: Array) -> None:
    """exp misses x by eps·λ_p, which is eps·λ_p·λ_x in hyperbolic length, and log_p does not stretch."""
    p, x, _ = triple
    v = log_map(p, x)
    missed = norm(log_map(p, exp_map(p, v)) - v) * conformal_factor(p)
    assert np.all(missed <= 4 * EPS * conformal_factor(p) * conformal_factor(x))


@theorem
def test_a_geodesic_has_constant_speed(triple: Array) -> None:
    """d(x, γ(t)) = t·d(x, y)"""
    _, x, y = triple
    error = np.abs(distance(x, geodesic(x, y, T)) - T * distance(x, y))
    assert np.all(error <= 6 * EPS * largest(x, y))


@theorem
def test_the_midpoint_is_halfway(triple: Array) -> None:
    _, x, y = triple
    m = midpoint(x, y)
    for half in (distance(x, m), distance(m, y)):
        assert np.all(np.abs(half - distance(x, y) / 2) <= 6 * EPS * largest(x, y))


@theorem
def test_geodesics_are_straight_in_klein(triple: Array) -> None:
    """k(γ(t)) lies on the chord: nothing of it is left across k(y)−k(x)"""
    _, x, y = triple
    along, step = unit(to_klein(y) - to_klein(x)), to_klein(geodesic(x, y, T)) - to_klein(x)
    across = step - np.vecdot(step, along)[:, None] * along
    assert np.all(norm(across) <= 4 * EPS * largest(x, y))


@theorem
def test_parallel_transport_is_an_isometry(triple: Array) -> None:
    """σ_q‖P_{p→q}v‖ = σ_p‖v‖"""
    p, q, v = triple
    length = norm(v) * conformal_factor(p)
    moved = norm(parallel_transport(p, q, v)) * conformal_factor(q)
    assert np.all(np.abs(moved - length) <= 4 * EPS * largest(p, q) * length)


@theorem
def test_parallel_transport_carries_the_velocity_of_the_geodesic(triple: Array) -> None:
    """P_{p→q} log_p(q) = −log_q(p)"""
    p, q, _ = triple
    back = log_map(q, p)
    assert np.all(norm(parallel_transport(p, q, log_map(p, q)) + back) <= 6 * EPS * largest(p, q) * norm(back))


@theorem
def test_the_lift_has_length_sinh_of_the_distance(triple: Array) -> None:
    p, x, _ = triple
    sinh = np.sinh(distance(p, x))
    assert np.all(np.abs(norm(lift(p, x)) - sinh) <= 4 * EPS * largest(p, x) * sinh)


@theorem
def test_points_of_the_hyperplane_are_at_distance_zero(triple: Array) -> None:
    """x = exp_p(v), v ⊥ w. As in log∘exp, x misses H_{w,p} by eps·λ_p·λ_x."""
    p, v, w = triple[0], log_map(*triple[:2]), unit(triple[2])
    x = exp_map(p, v - np.vecdot(v, w)[:, None] * w)
    assert np.all(np.abs(signed_distance(p, w, x)) <= 4 * EPS * conformal_factor(p) * conformal_factor(x))


@theorem
def test_no_hyperplane_through_p_is_further_than_p(triple: Array) -> None:
    """|s| ≤ d(p, x), and s = ±d if w points to or from x"""
    p, x, w = triple
    D, z = distance(p, x), lift(p, x)
    slack = 4 * EPS * largest(p, x) * np.minimum(D, 2)
    assert np.all(np.abs(signed_distance(p, w, x)) <= D + slack)
    assert np.all(np.abs(signed_distance(p, z, x) - D) <= slack)
    assert np.all(np.abs(signed_distance(p, -z, x) + D) <= slack)


@theorem
def test_klein_and_hyperboloid_come_back(triple: Array) -> None:
    x = triple[0]
    h = to_hyperboloid(x)
    assert np.all(norm(from_klein(to_klein(x)) - x) <= 4 * EPS * largest(x))
    assert np.all(norm(from_hyperboloid(h) - x) <= 4 * EPS)
    assert np.all(np.abs(np.vecdot(h[:, 1:], h[:, 1:]) - h[:, 0] ** 2 + 1) <= 4 * EPS * largest(x) * h[:, 0] ** 2)


@theorem
def test_the_hemisphere_is_a_sphere_and_its_planes_are_the_spheres_of_the_geometry(triple: Array) -> None:
    """‖φ‖² = 2; and ⟨w,φ⟩ = 0 with the right w is d(x, m) = ρ: h₀⟨w,φ⟩ = cosh d(x,m) − cosh ρ

    with w = (m₀, −m_s, −cosh ρ), m on the hyperboloid. Both sides are sums of terms no larger than h₀m₀.
    """
    x, m, _ = triple
    phi = hemisphere(x)
    assert np.all(np.abs(np.vecdot(phi, phi) - 2) <= 8 * EPS)
    h0, centre, rho = to_hyperboloid(x)[:, 0], to_hyperboloid(m), distance(m, triple[2])
    w = np.column_stack([centre[:, 0], -centre[:, 1:], -np.cosh(rho)])
    error = np.abs(h0 * np.vecdot(w, phi) - (np.cosh(distance(x, m)) - np.cosh(rho)))
    assert np.all(error <= 16 * EPS * largest(x, m) * h0 * (centre[:, 0] + np.cosh(rho)))


@each_operation
@each_dimension
def test_commutes_with_rotations(name: str, d: int) -> None:
    """f(Rx) = R f(x) for R that float64 performs exactly, signed permutations; h₀ and φ's ends stay where they are."""
    rng = np.random.default_rng(d)
    order, sign = rng.permutation(d), rng.choice([-1.0, 1.0], d)

    def turned(a: Array) -> Array:
        return a if a.ndim == 1 else np.concatenate([a[:, :-d], a[:, -d:][:, order] * sign], axis=1)

    S = sample(rng, 30, d)
    R = {a: turned(value) for a, value in S.items()}
    got, plain = apply(name, R), apply(name, S)
    if name == "hemisphere":
        assert np.array_equal(got[:, 0], plain[:, 0])
        assert np.all(np.abs(got[:, -1] - plain[:, -1]) <= 4 * EPS)
        got, plain = got[:, :-1], plain[:, :-1]
    assert_agree(name, got, turned(plain), R, operations=2)


# ---- rows -----------------------------------------------------------------------------------------------------


@each_operation
@pytest.mark.parametrize("d", [1, 2, 3, 7, 10, 33, 1000])
def test_a_row_depends_on_its_row_alone_bit_for_bit(name: str, d: int) -> None:
    S = sample(np.random.default_rng(d), 21, d)
    whole = apply(name, S)
    for rows in [*range(21), slice(5, 6), slice(3, None), slice(None, None, 2), slice(None, None, -1), [4, 4, 0]]:
        assert np.array_equal(apply(name, S, rows), whole[rows])
    assert np.array_equal(apply(name, {a: np.asfortranarray(value) for a, value in S.items()}), whole)


@each_operation
@pytest.mark.parametrize("d", [1, 2, 10])
def test_leading_axes_broadcast(name: str, d: int) -> None:
    """A first argument of shape (3, 1, …) meets others of shape (4, …): as if each pair were a row."""
    S = sample(np.random.default_rng(d), 12, d)
    first, *others = OPERATIONS[name].split()
    outer = {first: S[first][:3, None]} | {a: S[a][:4] for a in others}
    pairs = {first: S[first][np.repeat(range(3), 4 if others else 1)]} | {a: S[a][[0, 1, 2, 3] * 3] for a in others}
    flat = apply(name, pairs)
    assert np.array_equal(apply(name, outer), flat.reshape(3, -1, *flat.shape[1:]))


@each_operation
@pytest.mark.parametrize("d", [1, 2, 10])
def test_no_rows_in_no_rows_out(name: str, d: int) -> None:
    S = sample(np.random.default_rng(d), 3, d)
    one = apply(name, S, 0)
    assert apply(name, S, slice(0, 0)).shape == (0, *one.shape)


# ---- borders --------------------------------------------------------------------------------------------------


@each_dimension
def test_what_is_zero_is_exactly_zero(d: int) -> None:
    rng = np.random.default_rng(d)
    x, w, zero = points(rng, 20, d, 12), rng.standard_normal((20, d)), np.zeros((20, d))
    for nothing in (
        *(lift(x, x), log_map(x, x), distance(x, x), signed_distance(x, w, x), signed_distance(x, zero, -x)),
        *(mobius_add(x, -x), mobius_scale(0, x), mobius_scale(0.7, zero), midpoint(x, -x), exp_map(zero, zero)),
        *(parallel_transport(x, -x, zero), parallel_transport(x, x, w) - w, to_klein(zero), from_klein(zero)),
        *(from_hyperboloid(to_hyperboloid(zero)), conformal_factor(zero) - 2, geodesic(zero, zero, 0.3)),
    ):
        assert not nothing.any()


@each_dimension
def test_what_changes_nothing_gives_its_argument_back(d: int) -> None:
    """x⊕0 = 0⊕x = 1⊗x = exp_x(0) = γ(0) = x, γ(1) = y, and γ(t) = x if y = x"""
    rng = np.random.default_rng(d)
    x, y, zero = points(rng, 20, d, 12), points(rng, 20, d, 12), np.zeros((20, d))
    stays = (mobius_add(x, zero), mobius_add(zero, x), mobius_scale(1, x), exp_map(x, zero), geodesic(x, y, 0))
    for same in (*stays, geodesic(y, x, 1), midpoint(x, x), geodesic(x, x, 0.3)):
        assert np.all(norm(same - x) <= 2 * EPS * largest(x, y))


@each_dimension
def test_at_the_origin_the_maps_are_radial(d: int) -> None:
    """lift_0(x) = 2x/(1−‖x‖²), log_0(x) = artanh‖x‖ x/‖x‖, exp_0(v) = tanh‖v‖ v/‖v‖"""
    x, zero = points(np.random.default_rng(d), 20, d, 12), np.zeros(d)
    v = np.arctanh(norm(x))[:, None] * unit(x)
    tolerance = 4 * EPS * largest(x)
    assert np.all(norm(lift(zero, x) - conformal_factor(x)[:, None] * x) <= tolerance * conformal_factor(x))
    assert np.all(norm(log_map(zero, x) - v) <= tolerance)
    assert np.all(norm(exp_map(zero, v) - np.tanh(norm(v))[:, None] * unit(v)) <= tolerance)


@pytest.mark.parametrize("name", [*OPERATIONS, "require_ball"])
@pytest.mark.parametrize("c", [0, -1, math.nan, math.inf])
def test_curvature_is_positive(name: str, c: float) -> None:
    arguments = OPERATIONS.get(name, "x").split()
    with pytest.raises(InvalidParameter) as refused:
        getattr(geometry, name)(*(np.array([0.1, 0.2])[0 if a == "t" else ...] for a in arguments), c=c)
    assert refused.value.members == {"name": "curvature c", "value": repr(c)}


# ---- the gate -------------------------------------------------------------------------------------------------

LIMIT = math.tanh(RADIUS_LIMIT / 2)


@pytest.mark.parametrize("beyond", [math.nextafter(LIMIT, 1), math.nextafter(1, 0), 1.0, 3.0, -1.0])
@each_curvature
def test_the_first_point_beyond_the_limit_is_named(beyond: float, c: float) -> None:
    X = np.array([[0.1, 0.2], [0, LIMIT], [0, beyond], [0, 9]]) / math.sqrt(c)
    with pytest.raises(PointOutsideBall) as refused:
        require_ball(X, 2, c=c)
    assert refused.value.members == {"index": 2, "norm": abs(X[2, 1]), "limit": LIMIT / math.sqrt(c)}


@each_curvature
@pytest.mark.parametrize("radius", [0.5, 12, RADIUS_LIMIT])
def test_a_point_on_the_limit_is_taken(c: float, radius: float) -> None:
    X = np.array([[math.tanh(radius / 2)], [-math.tanh(radius / 2)]]) / math.sqrt(c)
    assert np.array_equal(require_ball(X, 1, c=c, radius=radius), X)
    with pytest.raises(PointOutsideBall):
        require_ball(X * (1 + EPS), 1, c=c, radius=radius)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_value_that_is_not_finite_is_named(value: float) -> None:
    with pytest.raises(NonFinite) as refused:
        require_ball([[0.1, 0.2], [0.3, value], [7, math.nan]])
    assert refused.value.members == {"index": 1, "value": str(value)}


@pytest.mark.parametrize(("X", "got"), [([0.1, 0.2], 2), ([[0.1], [0.2]], 1), (np.empty((0, 4)), 4)])
def test_another_dimension_is_refused(X: Any, got: int) -> None:
    with pytest.raises(DimensionMismatch) as refused:
        require_ball(X, 3)
    assert refused.value.members == {"index": 0, "expected": 3, "got": got}


@pytest.mark.parametrize(
    ("X", "value"),
    [
        ([[0.1, 0.2], [0.3]], "[[0.1, 0.2], [0.3]]"),
        ([["0.1", "0.2"]], "np.str_('0.1')"),
        ([[0.1, "0.2"]], "np.str_('0.1')"),
        ("0.1", "np.str_('0.1')"),
        ([[True, False]], "[[True, False]]"),
        (np.array([[True, False]]), "np.True_"),
        ([[None, 0.1]], "None"),
        ([[0.1j, 0.2]], "np.complex128(0.1j)"),
        (np.zeros((1, 2, 3)), "(1, 2, 3)"),
        (0.1, "()"),
        ([[False, 0.5]], "[[False, 0.5]]"),
        ([[]], "(1, 0)"),
    ],
)
def test_what_is_not_rows_of_numbers_is_refused(X: Any, value: str) -> None:
    with pytest.raises(NotANumber) as refused:
        require_ball(X)
    assert refused.value.members == {"index": None, "value": value}


def test_a_point_whose_square_overflows_is_named_too() -> None:
    with pytest.raises(PointOutsideBall) as refused:
        require_ball([[0.0, 0.0], [3e200, 4e200]])
    assert refused.value.members == {"index": 1, "norm": pytest.approx(5e200), "limit": LIMIT}


def test_no_radius_takes_the_border() -> None:
    with pytest.raises(PointOutsideBall):
        require_ball([[1.0, 0.0]], radius=40)


@pytest.mark.parametrize("radius", [0, -1, math.nan])
def test_a_radius_is_positive(radius: float) -> None:
    with pytest.raises(InvalidParameter):
        require_ball([[0.0]], radius=radius)


@pytest.mark.parametrize("size", [1e-170, 1e-161, 1, 1e170])
def test_of_a_normal_only_the_direction_counts(size: float) -> None:
    x, w = np.array([0.5, 0.1]), np.array([1.0, 1.0])
    assert signed_distance([0, 0], size * w, x) == pytest.approx(float(signed_distance([0, 0], w, x)), rel=4 * EPS)


@pytest.mark.parametrize(
    "X",
    [
        [[0, 0], [0, 0.5]],
        np.array([[0, 0], [0, 0.5]]),
        np.array([[0, 0], [0, 0.5]], order="F"),
        np.array([[0, 0], [0, 0.5]], np.float32),
        np.array([[0, 0], [0, 0.5]], ">f8"),
        np.array([[0, 0], [0, 7], [0, 0.5]])[::2],
    ],
)
def test_points_come_out_contiguous_and_the_input_untouched(X: Any) -> None:
    before = np.array(X)
    if isinstance(X, np.ndarray):
        X.flags.writeable = False
    taken = require_ball(X, 2)
    assert taken.dtype == np.dtype("=f8") and taken.flags.c_contiguous and taken.tolist() == [[0, 0], [0, 0.5]]
    assert np.array_equal(X, before)


@pytest.mark.parametrize(
    ("X", "d", "shape"),
    [
        ([0.1, 0.2], 2, (1, 2)),
        ([0.1], None, (1, 1)),
        ([], 3, (0, 3)),
        ([], None, (0, 0)),
        (np.empty((0, 3)), 3, (0, 3)),
    ],
)
def test_one_point_is_one_row_and_no_points_are_no_rows(X: Any, d: int | None, shape: tuple[int, int]) -> None:
    assert require_ball(X, d).shape == shape
