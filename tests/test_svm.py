"""The convex programmes: their certificates against the textbook, LIBLINEAR and a conic solver."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import clarabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from service import geometry
from service.batch import interior_point, linear_systems, svm
from service.batch.duality import Best, Problem, Run
from service.batch.passes import Block, held
from service.batch.svm_sums import Multipliers
from service.errors import (
    DimensionMismatch,
    EmptyBatch,
    EmptyClass,
    InvalidParameter,
    LengthMismatch,
    NonFinite,
    NotANumber,
    NotConverged,
    NotSeparable,
    UnknownLabel,
)
from service.geometry import Array
from tests.strategies import points
from tests.streams import flipped, separable

EPS = float(np.finfo(float).eps)
KINDS = ("hinge", "squared_hinge", "hard")
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of BLAS that wait for each other make small problems slow on a busy machine."""
    with threadpool_limits(1):
        yield


def objectives(F: Array, y: Any, c: Array, kind: str, w: Array, lam: Array) -> tuple[float, float]:
    """P and D straight from the definitions; infinitely bad where w or λ is not feasible, but for rounding"""
    B = y[:, None] * F
    t, v = 1 - B @ w, B.T @ lam
    rounding = 1e3 * EPS * (1 + float(np.max(np.abs(B) @ np.abs(w))))
    if lam.min() < 0 or (kind == "hinge" and (lam > c * (1 + EPS)).any()):
        return math.inf, -math.inf
    P, D = float(w @ w) / 2, float(lam.sum() - v @ v / 2)
    if kind == "hard":
        return P if t.max() <= rounding else math.inf, D
    if kind == "hinge":
        return P + float(c @ np.maximum(t, 0)), D
    return P + float(c @ np.maximum(t, 0) ** 2), D - float(np.sum(lam[c > 0] ** 2 / c[c > 0])) / 4


def fit(F: Array, y: Any, kind: str, **options: Any) -> svm.Fit:
    return svm.fit(F, y, margin="hard", **options) if kind == "hard" else svm.fit(F, y, loss=kind, **options)


def problem(rng: np.random.Generator, n: int, d: int, kind: str, features: str = "tangent") -> tuple[Array, Any]:
    """Points, a fifth of their labels wrong unless the margin is hard; hyperboloid features have no p"""
    p = points(rng, 1, d, 1.0)[0]
    X, y, _ = separable(rng, n, p, 0.05)
    if features == "hyperboloid" or kind == "hard":
        return svm.features(X, p if features != "hyperboloid" else None, features), y
    return svm.features(X, p, features), flipped(rng, y, 0.2)


def assert_certified(found: svm.Fit, F: Array, y: Any, c: Array, kind: str, gap: float = 1e-6) -> None:
    P, D = objectives(F, y, c, kind, found.w, found.dual_variables)
    assert found.primal == pytest.approx(P, rel=1e-9)
    assert found.dual == pytest.approx(D, rel=1e-9)
    assert -1e-9 <= (P - D) / P <= gap * (1 + 1e-6)


# ---------------------------------------------------------------------------------- optimality


@every_kind
@pytest.mark.parametrize("features", ["tangent", "lift", "hyperboloid"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([10, 60, 400, 3000]),
    d=st.sampled_from([1, 2, 5, 30]),
    C=st.sampled_from([1e-3, 1.0, 1e3]),
    weighted=st.booleans(),
)
def test_the_gap_is_certified(kind: str, features: str, seed: int, n: int, d: int, C: float, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    F, y = problem(rng, n, d, kind, features)
    if len(set(y.tolist())) < 2:
        y = np.where(np.arange(len(y)) == 0, -y, y) if kind != "hard" else y
    s = rng.exponential(size=len(y)) * (rng.random(len(y)) > 0.1) + 1e-3 if weighted else np.ones(len(y))
    if len(set(y.tolist())) == 2:
        assert_certified(fit(F, y, kind, C=C, sample_weight=s if weighted else None), F, y, C * s, kind)


@every_kind
@pytest.mark.parametrize(("n", "d"), [(40, 600), (700, 300), (900, 600), (3000, 300), (300, 3000)])
def test_large_dimensions(kind: str, n: int, d: int) -> None:
    """Above DIRECT by conjugate gradients, with more dimensions than rows too"""
    F, y = problem(np.random.default_rng(0), n, d, kind)
    assert_certified(fit(F, y, kind), F, y, np.ones(len(y)), kind)


@every_kind
def test_no_factor_is_needed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems too large to factorise are left to conjugate gradients"""
    monkeypatch.setattr(linear_systems, "DIRECT", 1)
    monkeypatch.setattr(linear_systems, "FALLBACK", 1)
    monkeypatch.delattr(linear_systems, "_gram")
    F, y = problem(np.random.default_rng(0), 500, 20, kind)
    assert_certified(fit(F, y, kind), F, y, np.ones(len(y)), kind)


@every_kind
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scale_of_the_features_does_not_matter(kind: str, scale: float) -> None:
    """w/s solves the problem of s·F with C/s²: the same steps, but for rounding"""
    F, y = problem(np.random.default_rng(1), 3000, 3, kind)
    one, other = fit(F, y, kind), fit(scale * F, y, kind, C=scale**-2)
    assert_certified(other, scale * F, y, np.full(len(y), scale**-2), kind)
    assert other.w * scale == pytest.approx(one.w, rel=1e-3)


@every_kind
def test_points_at_the_limit_of_the_ball(kind: str) -> None:
    """Lifts as long as e¹², a margin of 0.001"""
    rng = np.random.default_rng(2)
    p = np.array([0.3, 0.1])
    X, y, _ = separable(rng, 2000, p, 0.001, radius=11.9)
    F = svm.features(X, p, "lift")
    assert np.abs(F).max() > 1e4
    y = y if kind == "hard" else flipped(rng, y, 0.1)
    assert_certified(fit(F, y, kind), F, y, np.ones(len(y)), kind)


@pytest.mark.parametrize("kind", ["hinge", "hard"])
def test_rows_left_out_wrongly_come_in(kind: str) -> None:
    """The working set grows from the few rows that a w of the wrong sign calls near, with most others misjudged"""
    F, y = problem(np.random.default_rng(3), 2000, 2, kind)
    c = np.ones(len(y))
    block = Block(F, y.astype(float), c, np.linalg.norm(F, axis=1), np.arange(len(y)))
    passes, rows = held(block), Problem.of(block, kind)
    best = Best(passes, kind, 1e-6, Run(1e-6, 1000, lambda _: None))
    best.h = 1e-3
    rough = fit(F, y, kind, gap=0.5).w
    best.take(*rows.primal(rough, rows.slack(rough)), 0.0, Multipliers(kind))
    interior_point.near_the_margin(best, -5 * rough)
    assert best.certify()
    lam = np.concatenate([best.lam.on(chunk) for chunk in passes.parts[0].chunks(passes.rows)])
    assert_certified(svm.Fit(best.w, lam, best.primal, best.dual, best.run.steps), F, y, c, kind)


def test_many_copies_of_few_points() -> None:
    F = np.repeat([[1.0, 0.2], [-1.0, 0.3], [0.5, 0.5], [-0.2, -1.0]], 500, axis=0)
    y = np.repeat([1, -1, -1, 1], 500)
    for kind in KINDS[:2]:
        assert_certified(fit(F, y, kind), F, y, np.ones(len(y)), kind)
    y = np.repeat([1, -1, 1, -1], 500)
    assert_certified(fit(F, y, "hard"), F, y, np.ones(len(y)), "hard")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS), d=st.sampled_from([2, 8]), C=st.sampled_from([0.1, 10.0])
)
def test_the_conditions_of_karush_kuhn_and_tucker(seed: int, kind: str, d: int, C: float) -> None:
    """w = Σλ_i b_i;  λ_i = 0 beyond the margin, c_i (or 2c_i t_i) on its wrong side: to the √ of the gap"""
    F, y = problem(np.random.default_rng(seed), 300, d, kind)
    found = fit(F, y, kind, C=C, gap=1e-12)
    w, lam = found.w, found.dual_variables
    t, near = 1 - y * (F @ w), 1e-4 * (1 + np.linalg.norm(F, axis=1).max())
    assert found.gap <= 1e-12
    assert w == pytest.approx(y * lam @ F, abs=1e-4 * float(np.linalg.norm(w)))
    assert (lam[t < -near] == 0).all() if kind != "squared_hinge" else (lam[t < -near] <= 1e-4).all()
    if kind == "hinge":
        assert (lam[t > near] == C).all()
    if kind == "squared_hinge":
        assert lam == pytest.approx(2 * C * np.maximum(t, 0), abs=1e-4 * C)
    if kind == "hard":
        assert t.max() <= 1e-9
    assert np.array_equal(found.support, np.flatnonzero(lam > 0))


# ---------------------------------------------------------------------------------- the peers


@pytest.mark.parametrize("loss", KINDS[:2])
@pytest.mark.parametrize("d", [2, 10])
def test_liblinear_agrees(loss: str, d: int) -> None:
    F, y = problem(np.random.default_rng(d), 400, d, loss)
    s = np.random.default_rng(9).uniform(0.5, 2, len(y))
    peer = LinearSVC(loss=loss, C=0.7, fit_intercept=False, tol=1e-12, max_iter=10**5, random_state=0)
    with warnings.catch_warnings():  # that 1e-12 is not reached is no harm: w is compared
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer.fit(F, y, sample_weight=s)
    found = fit(F, y, loss, C=0.7, sample_weight=s, gap=1e-10)
    w = peer.coef_[0]
    assert found.primal == pytest.approx(objectives(F, y, 0.7 * s, loss, w, np.zeros(len(y)))[0], rel=1e-6)
    assert np.linalg.norm(found.w - w) <= 1e-4 * np.linalg.norm(w)


def conic_optimum(F: Array, y: Any, c: Array, kind: str) -> tuple[float, Array]:
    """min ½‖w‖² + Σc_i ξ_i (or ξ_i²) with ξ ≥ 0, b_i·w ≥ 1 − ξ_i, by Clarabel; ξ = 0 for a hard margin"""
    n, d = F.shape
    curvature = 2 * c if kind == "squared_hinge" else np.zeros(n)
    P = sparse.diags(np.concatenate([np.ones(d), curvature])).tocsc()
    q = np.concatenate([np.zeros(d), c if kind == "hinge" else np.zeros(n)])
    E, B = sparse.identity(n), sparse.csc_matrix(y[:, None] * F)
    A = sparse.vstack([sparse.hstack([-B, -E]), sparse.hstack([sparse.csc_matrix((n, d)), -E])]).tocsc()
    b, cones = np.concatenate([-np.ones(n), np.zeros(n)]), [clarabel.NonnegativeConeT(2 * n)]
    if kind == "hard":
        cones = [clarabel.NonnegativeConeT(n), clarabel.ZeroConeT(n)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_rel = options.tol_gap_abs = options.tol_feas = 1e-10
    solution = clarabel.DefaultSolver(P, q, A, b, cones, options).solve()
    return solution.obj_val, np.array(solution.x[:d])


@every_kind
@pytest.mark.parametrize(("n", "d"), [(30, 2), (100, 5), (20, 40)])
def test_a_conic_solver_agrees(kind: str, n: int, d: int) -> None:
    F, y = problem(np.random.default_rng(n), n, d, kind)
    c = 3.0 * np.random.default_rng(1).uniform(0.1, 2, len(y))
    found = fit(F, y, kind, C=3.0, sample_weight=c / 3, gap=1e-9)
    value, w = conic_optimum(F, y, c, kind)
    assert found.primal == pytest.approx(value, rel=1e-6)
    assert np.linalg.norm(found.w - w) <= 1e-3 * np.linalg.norm(w)


def test_a_hard_margin_on_the_lift_is_the_largest_margin() -> None:
    """asinh(1/‖w‖) is the least distance to H_{w,p}, and more than that of the plane that made the points"""
    p = np.array([0.2, -0.3, 0.1])
    X, y, true = separable(np.random.default_rng(4), 500, p, 0.2)
    w = svm.fit(svm.features(X, p, "lift"), y, margin="hard").w
    margin = np.min(y * geometry.signed_distance(p, w, X))
    assert margin == pytest.approx(np.arcsinh(1 / np.linalg.norm(w)), rel=1e-9)
    assert margin >= np.min(y * geometry.signed_distance(p, true, X))


# ---------------------------------------------------------------------------------- invariances


@every_kind
def test_the_order_of_the_rows_does_not_matter(kind: str) -> None:
    """Two points within a gap of the optimum are within √(8·gap·P) of each other, as P is 1-strongly convex"""
    F, y = problem(np.random.default_rng(5), 5000, 4, kind)
    order = np.random.default_rng(0).permutation(len(y))
    one, other = fit(F, y, kind), fit(F[order], y[order], kind)
    assert other.primal == pytest.approx(one.primal, rel=1e-6)
    assert np.linalg.norm(one.w - other.w) <= math.sqrt(8e-6 * one.primal)


@every_kind
def test_a_weight_is_a_number_of_copies(kind: str) -> None:
    F, y = problem(np.random.default_rng(6), 200, 3, kind)
    copies = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = fit(F, y, kind, sample_weight=copies)
    repeated = fit(np.repeat(F, copies, axis=0), np.repeat(y, copies), kind)
    assert weighted.primal == pytest.approx(repeated.primal, rel=1e-6)
    assert not weighted.dual_variables[copies == 0].any()


@every_kind
def test_the_same_twice_bit_for_bit(kind: str) -> None:
    F, y = problem(np.random.default_rng(7), 4000, 5, kind)
    before = F.copy(), y.copy()
    one, other = fit(F, y, kind), fit(F, y, kind)
    assert one.w.tobytes() == other.w.tobytes()
    assert one.dual_variables.tobytes() == other.dual_variables.tobytes()
    assert np.array_equal(F, before[0])
    assert np.array_equal(y, before[1])


@every_kind
def test_a_warm_start_ends_in_the_same_place_sooner(kind: str) -> None:
    F, y = problem(np.random.default_rng(8), 3000, 4, kind)
    cold = fit(F, y, kind)
    assert fit(F, y, kind, start=cold).iterations == 0
    for start in (cold, cold.w):
        less = fit(F[:-5], y[:-5], kind, start=start)  # a Fit of other rows: its w is used
        assert_certified(less, F[:-5], y[:-5], np.ones(len(y) - 5), kind)
        assert less.iterations <= fit(F[:-5], y[:-5], kind).iterations
    for C in (0.9, 1.1):  # λ ≤ C must hold again
        other = fit(F, y, kind, start=cold, C=C)
        assert_certified(other, F, y, np.full(len(y), C), kind)
        assert other.iterations <= fit(F, y, kind, C=C).iterations


# ---------------------------------------------------------------------------------- no margin


def assert_witness(error: NotSeparable, F: Array, y: Any) -> None:
    """Gordan: convex weights of rows y_i f_i that sum to zero, so that no w has all of them on its side"""
    assert error.witness
    index, weights = np.array([i for i, _ in error.witness]), np.array([s for _, s in error.witness])
    assert len(set(index.tolist())) == len(index)
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    B = y[index, None] * F[index]
    assert np.linalg.norm(weights @ B) <= 1e-11 * (weights @ np.linalg.norm(B, axis=1))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), n=st.sampled_from([20, 300, 5000]), d=st.sampled_from([1, 2, 7]))
def test_what_is_not_separable_has_a_witness(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(n * d, d)) * rng.exponential(size=(n * d, 1))
    y = rng.choice([-1, 1], n * d)
    y[:2] = -1, 1
    with pytest.raises(NotSeparable) as caught:
        svm.fit(F, y, margin="hard")
    assert_witness(caught.value, F, y)


def test_one_wrong_label_among_many() -> None:
    F, y = problem(np.random.default_rng(3), 20_000, 2, "hard")
    y[np.argmax(F[:, 0] * y)] *= -1
    with pytest.raises(NotSeparable) as caught:
        svm.fit(F, y, margin="hard")
    assert_witness(caught.value, F, y)


def test_opposite_points_and_a_point_on_the_reference_point_have_no_margin() -> None:
    for F, y in (([[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]], [1, -1, 1]), ([[1.0, 0.0], [0.0, 0.0]], [1, -1])):
        with pytest.raises(NotSeparable) as caught:
            svm.fit(F, y, margin="hard")
        assert_witness(caught.value, np.array(F), np.array(y))


@pytest.mark.parametrize("exponent", range(2, 17, 2))
def test_the_border_between_a_margin_and_none(exponent: int) -> None:
    """Margins of 10⁻² … 10⁻⁷ are found; below, either is an answer, and both are true"""
    angle = 10.0**-exponent
    F = np.array([[1.0, angle], [-1.0, angle], [0.5, 1.0], [-0.5, -1.0]])
    y = np.array([1, 1, 1, -1])
    try:
        found = svm.fit(F, y, margin="hard")
    except NotSeparable as error:
        assert exponent > 7
        assert error.witness
        index, weights = np.array([i for i, _ in error.witness]), np.array([s for _, s in error.witness])
        assert np.linalg.norm((y[index] * weights) @ F[index]) <= 1e-7
    else:
        assert found.w == pytest.approx([0, 1 / angle], abs=1e-3 / angle)


# ---------------------------------------------------------------------------------- stopping, progress, bad input


def test_it_stops_when_told_to() -> None:
    F, y = problem(np.random.default_rng(0), 1000, 5, "hinge")
    with pytest.raises(NotConverged) as caught:
        svm.fit(F, y, max_iterations=2)
    assert caught.value.iterations == 2
    assert 1e-6 < caught.value.gap <= 1
    with pytest.raises(NotConverged) as caught:
        svm.fit(*problem(np.random.default_rng(0), 1000, 5, "hard"), margin="hard", max_iterations=1)
    assert (caught.value.iterations, caught.value.gap) == (1, 1.0)


def test_progress_rises_and_may_cancel() -> None:
    class Cancelled(Exception):
        pass

    F, y = problem(np.random.default_rng(0), 1000, 5, "hinge")
    heard: list[float] = []
    found = svm.fit(F, y, progress=heard.append)
    assert len(heard) == found.iterations
    assert heard == sorted(heard)
    assert 0 <= heard[0] <= heard[-1] <= 1
    assert heard[-1] > 0.3

    def cancel(_: float) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        svm.fit(F, y, progress=cancel)


ROWS: list[list[float]] = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
BAD: list[tuple[type[Exception], Any, Any, dict[str, Any]]] = [
    (EmptyBatch, np.zeros((0, 2)), [], {}),
    (NotANumber, [1.0, 2.0], [1, -1], {}),
    (NotANumber, [["a"], ["b"]], [1, -1], {}),
    (NotANumber, np.zeros((2, 0)), [1, -1], {}),
    (NonFinite, [[1.0, 0.0], [0.0, math.nan], [1.0, 1.0]], [1, -1, 1], {}),
    (NonFinite, [[1.0, 0.0], [0.0, math.inf], [1.0, 1.0]], [1, -1, 1], {}),
    (LengthMismatch, ROWS, [1, -1], {}),
    (UnknownLabel, ROWS, [1, -1, 0], {}),
    (UnknownLabel, ROWS, ["a", "b", "a"], {}),
    (EmptyClass, ROWS, [1, 1, 1], {}),
    (EmptyClass, ROWS, [1, -1, 1], {"sample_weight": [1, 0, 1]}),
    (LengthMismatch, ROWS, [1, -1, 1], {"sample_weight": [1, 1]}),
    (InvalidParameter, ROWS, [1, -1, 1], {"sample_weight": [1, -1, 1]}),
    (InvalidParameter, ROWS, [1, -1, 1], {"sample_weight": [1, math.nan, 1]}),
    *((InvalidParameter, ROWS, [1, -1, 1], {"C": C}) for C in (0, -1, math.nan, math.inf)),
    *((InvalidParameter, ROWS, [1, -1, 1], {"gap": gap}) for gap in (0, 1, math.nan)),
    (InvalidParameter, ROWS, [1, -1, 1], {"loss": "logistic"}),
    (InvalidParameter, ROWS, [1, -1, 1], {"margin": "none"}),
    (InvalidParameter, ROWS, [1, -1, 1], {"max_iterations": 0}),
    (DimensionMismatch, ROWS, [1, -1, 1], {"start": [1.0, 2.0, 3.0]}),
    (NonFinite, ROWS, [1, -1, 1], {"start": [1.0, math.nan]}),
]


@pytest.mark.parametrize(("error", "F", "y", "options"), BAD)
def test_bad_input_is_refused(error: type[Exception], F: Any, y: Any, options: dict[str, Any]) -> None:
    with pytest.raises(error):
        svm.fit(F, y, **options)


def test_features() -> None:
    X, p = points(np.random.default_rng(0), 5, 3, 2.0), np.array([0.1, 0.2, 0.3])
    assert np.array_equal(svm.features(X, p), geometry.log_map(p, X))
    assert np.array_equal(svm.features(X, p, "lift"), geometry.lift(p, X))
    assert np.array_equal(svm.features(X, None, "hyperboloid"), geometry.to_hyperboloid(X))
    assert svm.features(X / 2, p / 2, "lift", c=4.0) == pytest.approx(geometry.lift(p, X), rel=1e-12)
    with pytest.raises(InvalidParameter):
        svm.features(X, p, "klein")
    with pytest.raises(InvalidParameter):
        svm.features(X, None, "tangent")
    with pytest.raises(DimensionMismatch):
        svm.features(X, p[:2])
