"""Multinomial logistic regression: its certificate against the textbook, a conic solver and scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import clarabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from service import geometry
from service.batch import softmax
from service.errors import (
    DimensionMismatch,
    EmptyBatch,
    EmptyClass,
    InvalidParameter,
    LengthMismatch,
    NonFinite,
    NotANumber,
    NotConverged,
    UnknownLabel,
)
from service.geometry import Array
from tests.strategies import points


def objectives(F: Array, y: Any, c: Array, W: Array) -> tuple[float, float]:
    """P(W), and D at α = the probabilities, straight from the definitions"""
    Z = F @ W.T
    top = Z.max(axis=1, keepdims=True)
    log_pi = Z - top - np.log(np.exp(Z - top).sum(axis=1, keepdims=True))
    alpha = np.exp(log_pi)
    V = (c[:, None] * (np.eye(len(W))[y] - alpha)).T @ F
    entropy = -np.sum(alpha * np.maximum(log_pi, -1e4), axis=1)
    return float(np.sum(W * W) / 2 - c @ log_pi[np.arange(len(y)), y]), float(c @ entropy - np.sum(V * V) / 2)


def problem(rng: np.random.Generator, n: int, d: int, K: int, radius: float = 3.0) -> tuple[Array, Any]:
    """Points around K others, and every class there"""
    centres, y = points(rng, K, d, radius), rng.permutation(np.arange(n) % K)
    return softmax.features(geometry.mobius_add(centres[y], points(rng, n, d, 1.5))), y


def assert_certified(found: softmax.Fit, F: Array, y: Any, c: Array, gap: float = 1e-6) -> None:
    P, D = objectives(F, y, c, found.W)
    assert found.primal == pytest.approx(P, rel=1e-9)
    assert found.dual == pytest.approx(D, rel=1e-9, abs=1e-9 * P)
    assert -1e-9 <= (P - D) / P <= gap * (1 + 1e-3) + 1e-12


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([6, 50, 1000]),
    d=st.sampled_from([1, 2, 10]),
    K=st.sampled_from([2, 3, 6]),
    C=st.sampled_from([1e-3, 1.0, 1e3]),
    weighted=st.booleans(),
)
def test_the_gap_is_certified(seed: int, n: int, d: int, K: int, C: float, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    F, y = problem(rng, n, d, K)
    s = rng.exponential(size=n) + 1e-3 if weighted else np.ones(n)
    assert_certified(softmax.fit(F, y, C=C, sample_weight=s if weighted else None), F, y, C * s)


@pytest.mark.parametrize(("n", "d", "K"), [(300, 100, 5), (50, 400, 3), (600, 3, 90)])
def test_large_problems_by_conjugate_gradients(n: int, d: int, K: int) -> None:
    F, y = problem(np.random.default_rng(0), n, d, K)
    assert K * F.shape[1] > softmax.DIRECT
    assert_certified(softmax.fit(F, y), F, y, np.ones(n))


def test_points_at_the_limit_of_the_ball() -> None:
    rng = np.random.default_rng(0)
    F, y = softmax.features(points(rng, 500, 2, 12.0)), rng.integers(0, 4, 500)
    assert F.max() > 1e4
    assert_certified(softmax.fit(F, y, C=5.0), F, y, np.full(500, 5.0))


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_agrees(weighted: bool) -> None:
    F, y = problem(np.random.default_rng(1), 300, 2, 4)
    s = np.random.default_rng(2).uniform(0.2, 2, 300) if weighted else np.ones(300)
    peer = LogisticRegression(C=0.7, fit_intercept=False, solver="newton-cg", tol=1e-10, max_iter=1000)
    peer.fit(F, y, sample_weight=s)
    found = softmax.fit(F, y, C=0.7, sample_weight=s, gap=1e-14)
    assert np.abs(found.W - peer.coef_).max() <= 1e-6 * np.abs(found.W).max()
    assert softmax.probabilities(found.W, F) == pytest.approx(peer.predict_proba(F), abs=1e-6)


def test_a_conic_solver_agrees() -> None:
    """log Σ_k exp z_k ≤ s  iff  Σ_k u_k ≤ 1, (z_k − s, 1, u_k) in the exponential cone; over (W, s, u), by Clarabel"""
    n, K, C = 25, 3, 2.0
    F, y = problem(np.random.default_rng(3), n, 2, K)
    d = F.shape[1]
    m = K * d + n + n * K
    P = sparse.diags(np.concatenate([np.ones(K * d), np.zeros(m - K * d)])).tocsc()
    q = np.zeros(m)
    q[K * d : K * d + n] = C
    A, b, cones = [], [], []
    for i in range(n):
        q[y[i] * d : y[i] * d + d] -= C * F[i]
        row = np.zeros(m)
        row[K * d + n + i * K : K * d + n + (i + 1) * K] = 1
        A.append(row)
        b.append(1.0)
    cones.append(clarabel.NonnegativeConeT(n))
    for i in range(n):
        for k in range(K):
            z, u = np.zeros(m), np.zeros(m)
            z[k * d : (k + 1) * d], z[K * d + i], u[K * d + n + i * K + k] = -F[i], 1, -1
            A += [z, np.zeros(m), u]
            b += [0.0, 1.0, 0.0]
            cones.append(clarabel.ExponentialConeT())
    options = clarabel.DefaultSettings()
    options.verbose = False
    solution = clarabel.DefaultSolver(P, q, sparse.csc_matrix(np.array(A)), np.array(b), cones, options).solve()
    assert softmax.fit(F, y, C=C, gap=1e-9).primal == pytest.approx(solution.obj_val, rel=1e-6)


def test_probabilities_sum_to_one_and_depend_on_their_row_alone() -> None:
    F, y = problem(np.random.default_rng(4), 200, 3, 5)
    W = softmax.fit(F, y).W
    pi = softmax.probabilities(W, F)
    assert pi.shape == (200, 5)
    assert np.abs(pi.sum(axis=1) - 1).max() <= 5 * np.finfo(float).eps
    assert all(np.array_equal(softmax.probabilities(W, F[i : i + 1])[0], pi[i]) for i in range(200))
    assert np.array_equal(softmax.probabilities(1e6 * W, F).argmax(axis=1), (F @ W.T).argmax(axis=1))
    with pytest.raises(DimensionMismatch):
        softmax.probabilities(W, F[:, 1:])


def test_order_start_copies_and_repetition() -> None:
    F, y = problem(np.random.default_rng(5), 400, 2, 4)
    found, order = softmax.fit(F, y), np.random.default_rng(0).permutation(400)
    assert softmax.fit(F[order], y[order]).primal == pytest.approx(found.primal, rel=1e-6)
    assert softmax.fit(F, y).W.tobytes() == found.W.tobytes()
    assert softmax.fit(F, y, start=found).iterations == 0
    far = softmax.fit(F, y, start=1e3 * found.W)  # where exp⟨w,f⟩ overflows
    assert far.primal == pytest.approx(found.primal, rel=1e-6)
    assert softmax.fit(F[:-3], y[:-3], start=found.W).iterations <= softmax.fit(F[:-3], y[:-3]).iterations
    copies = np.random.default_rng(1).integers(0, 3, 400)
    repeated = softmax.fit(np.repeat(F, copies, axis=0), np.repeat(y, copies))
    assert softmax.fit(F, y, sample_weight=copies).primal == pytest.approx(repeated.primal, rel=1e-6)


def test_it_stops_when_told_to_and_tells_how_far_it_is() -> None:
    class Cancelled(Exception):
        pass

    def cancel(_: float) -> None:
        raise Cancelled

    F, y = problem(np.random.default_rng(6), 400, 2, 4)
    with pytest.raises(NotConverged) as early:
        softmax.fit(F, y, max_iterations=1)
    assert early.value.iterations == 1
    assert early.value.gap > 1e-6
    heard: list[float] = []
    found = softmax.fit(F, y, progress=heard.append)
    assert len(heard) == found.iterations
    assert 0 == heard[0] < heard[-1] < 1
    with pytest.raises(Cancelled):
        softmax.fit(F, y, progress=cancel)


def test_the_features_are_hyperboloid_coordinates_behind_a_one() -> None:
    X = points(np.random.default_rng(7), 10, 3, 3.0)
    F = softmax.features(X / 2, c=4.0)
    assert (F[:, 0] == 1).all()
    assert np.array_equal(F[:, 1:], geometry.to_hyperboloid(X / 2, c=4.0))


ROWS: list[list[float]] = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
BAD: list[tuple[type[Exception], Any, Any, dict[str, Any]]] = [
    (EmptyBatch, np.zeros((0, 2)), [], {}),
    (NotANumber, [1.0, 2.0], [0, 1], {}),
    (NotANumber, [["a"], ["b"]], [0, 1], {}),
    (NonFinite, [[1.0, 0.0], [0.0, math.nan], [1.0, 1.0]], [0, 1, 0], {}),
    (LengthMismatch, ROWS, [0, 1], {}),
    (UnknownLabel, ROWS, [0, 1, -1], {}),
    (UnknownLabel, ROWS, [0, 1, 0.5], {}),
    (UnknownLabel, ROWS, [0, 1, 2], {"classes": 2}),
    (UnknownLabel, ROWS, ["a", "b", "a"], {}),
    (EmptyClass, ROWS, [0, 0, 0], {}),
    (EmptyClass, ROWS, [0, 2, 0], {}),
    (EmptyClass, ROWS, [0, 1, 0], {"classes": 3}),
    (EmptyClass, ROWS, [0, 1, 0], {"sample_weight": [1, 0, 1]}),
    (LengthMismatch, ROWS, [0, 1, 0], {"sample_weight": [1, 1]}),
    (InvalidParameter, ROWS, [0, 1, 0], {"sample_weight": [1, -1, 1]}),
    *((InvalidParameter, ROWS, [0, 1, 0], {"C": C}) for C in (0, -1, math.nan, math.inf)),
    *((InvalidParameter, ROWS, [0, 1, 0], {"gap": gap}) for gap in (0, 1, math.nan)),
    (InvalidParameter, ROWS, [0, 1, 0], {"max_iterations": 0}),
    (DimensionMismatch, ROWS, [0, 1, 0], {"start": [1.0, 2.0]}),
    (NonFinite, ROWS, [0, 1, 0], {"start": [[1.0, math.nan], [0.0, 0.0]]}),
]


@pytest.mark.parametrize(("error", "F", "y", "options"), BAD)
def test_bad_input_is_refused(error: type[Exception], F: Any, y: Any, options: dict[str, Any]) -> None:
    with pytest.raises(error):
        softmax.fit(F, y, **options)
