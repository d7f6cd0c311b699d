"""Wrapped normals: against the textbook, whatever the order, in parts, and calibrated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from service import geometry as g
from service.geometry import Array
from service.learners import encode, gaussian
from service.learners.gaussian import LOWEST, RIDGE
from tests.strategies import points
from tests.streams import rings

EPS = 2.0**-52
Labels = NDArray[np.int64]


def stream(seed: int, n: int = 400, K: int = 4) -> tuple[Array, Labels]:
    rng = np.random.default_rng(seed)
    return points(rng, n, 3, 4.0), rng.integers(K, size=n)


def textbook(X: Array, y: Labels, Q: Array, K: int) -> Array:
    """log density + log n of the points Q, from all X at once; artanh gives the length of v"""
    norm = np.linalg.norm(X, axis=1, keepdims=True)
    V = 2 * np.arctanh(norm) * X / norm
    norm = np.linalg.norm(Q, axis=1, keepdims=True)
    U, columns = 2 * np.arctanh(norm) * Q / norm, []
    for k in range(K):
        own = V[y == k]
        n, m = len(own), own.mean(axis=0)
        covariance = ((own - m).T @ (own - m) + RIDGE * np.eye(V.shape[1])) / (n + 1)
        away = U - m
        square = np.vecdot(away, np.linalg.solve(covariance, away.T).T)
        columns.append(math.log(n) - 0.5 * (square + np.linalg.slogdet(covariance)[1]))
    return np.stack(columns, axis=1)


def test_it_agrees_with_the_textbook() -> None:
    """Log densities of some 100, and covariances of a condition of some 10: to 1e-10"""
    X, y = stream(0)
    Q = points(np.random.default_rng(1), 100, 3, 4.0)
    state = gaussian.observe(gaussian.init(3, classes=4), X, y).state
    want = textbook(X, y, Q, 4)
    want -= np.log(np.exp(want - want.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) + want.max(
        axis=1, keepdims=True
    )
    assert np.abs(gaussian.score(state, Q) - want).max() <= 1e-10
    two = gaussian.observe(gaussian.init(3), X, np.where(y == 2, 1, -1)).state
    odds = textbook(X, (y == 2).astype(int), Q, 2)
    assert np.abs(gaussian.score(two, Q) - (odds[:, 1] - odds[:, 0])).max() <= 1e-10


@pytest.mark.parametrize("c", [1.0, 4.0])
@pytest.mark.parametrize("full", [True, False])
def test_the_order_does_not_matter_and_parts_add_up(c: float, full: bool) -> None:
    """Any permutation, any split: means, scatters and scores are the same to rounding"""
    X, y = stream(2)
    X = X / math.sqrt(c)
    first = gaussian.init(3, classes=4, c=c)
    if not full:
        first = replace(first, factor=first.factor[:0], diagonal=np.full((4, 3), RIDGE))
    whole = gaussian.observe(first, X, y).state
    order = np.random.default_rng(3).permutation(400)
    shuffled = gaussian.observe(first, X[order], y[order]).state
    a, b = gaussian.observe(first, X[:130], y[:130]).state, gaussian.observe(first, X[130:], y[130:]).state
    for other in (shuffled, gaussian.merge(a, b), gaussian.merge(b, a), gaussian.merge(whole, first)):
        assert np.array_equal(other.n, whole.n)
        for name in ("mean", "factor", "diagonal"):
            got, want = getattr(other, name), getattr(whole, name)
            assert np.abs(got - want).max(initial=0) <= 400 * EPS * np.abs(want).max(initial=0)
        assert np.abs(gaussian.score(other, X) - gaussian.score(whole, X)).max() <= 1e-9


def test_two_states_without_a_common_class_add_up() -> None:
    X, y = stream(4)
    parts = [gaussian.observe(gaussian.init(3, classes=4), X[y == k], y[y == k]).state for k in range(4)]
    merged = gaussian.merge(gaussian.merge(parts[0], parts[1]), gaussian.merge(parts[2], parts[3]))
    whole = gaussian.observe(gaussian.init(3, classes=4), X, y).state
    assert np.abs(gaussian.score(merged, X) - gaussian.score(whole, X)).max() <= 1e-9


def test_a_merge_begins_the_temperature_anew() -> None:
    X, y = stream(5)
    a = gaussian.observe(gaussian.init(3, classes=4), X, y).state
    assert a.log_beta != 0
    assert (gaussian.merge(a, a).log_beta, gaussian.merge(a, a).steepness) == (0.0, 0.0)


def test_a_class_not_seen_has_probability_zero_and_before_all_they_are_equal() -> None:
    cold = gaussian.init(2, classes=3)
    assert np.array_equal(gaussian.probabilities(cold, [[0.1, 0.2]]), np.full((1, 3), 1 / 3))
    assert set(gaussian.score(cold, [[0.1, 0.2]])[0]) == {-math.log(3)}
    state = gaussian.observe(cold, [[0.1, 0.2], [0.3, 0.0]], [1, 1]).state
    assert gaussian.probabilities(state, [[0.1, 0.2]]).tolist() == [[0.0, 1.0, 0.0]]
    assert gaussian.score(state, [[0.1, 0.2]]).tolist() == [[LOWEST, 0.0, LOWEST]]
    two = gaussian.init(2)
    assert gaussian.score(two, [[0.1, 0.2]]).tolist() == [0.0]
    assert gaussian.score(gaussian.observe(two, [[0.1, 0.2]], [-1]).state, [[0.9, 0.2]]).tolist() == [LOWEST]


def test_scores_are_finite_wherever_the_points_are() -> None:
    near = np.tile([[0.5, 0.5]], (1000, 1))
    for y in (np.arange(1000) % 2 * 2 - 1, np.arange(1000) % 2):
        state = gaussian.observe(gaussian.init(2, classes=2 if y.min() < 0 else 3), near, y).state
        far = np.array([[math.tanh(5.99), 0.0], [0.0, -math.tanh(5.99)]])
        assert np.isfinite(gaussian.score(state, far)).all()
        assert np.isfinite(gaussian.probabilities(state, far)).all()


def test_the_temperature_makes_probabilities_honest() -> None:
    """Each coordinate four times over: the normals believe in four times the evidence, β learns that it is a quarter.
    Half as good again as the loss of β = 1, and within 2 % of the best β in hindsight."""
    rng = np.random.default_rng(6)
    y = rng.integers(3, size=6000)
    V = np.repeat(rng.normal(size=(6000, 1)) * 0.5 + np.array([-0.4, 0.0, 0.4])[y][:, None], 4, axis=1)
    X = g.exp_map(np.zeros(4), (V + 0.1 * rng.normal(size=V.shape)) / 2)
    first = gaussian.init(4, classes=3)
    first = replace(first, factor=first.factor[:0], diagonal=np.full((3, 4), RIDGE))
    outcome = gaussian.observe(first, X, y)
    late = slice(3000, None)

    def loss(beta: float) -> float:
        Z = beta * outcome.scores[late]
        return float(np.mean(np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(3000), y[late]]))

    learned = math.exp(outcome.state.log_beta)
    best = min(loss(beta) for beta in np.geomspace(0.02, 2, 200))
    assert loss(learned) <= 1.02 * best
    assert loss(1.0) >= 1.3 * loss(learned)


def test_it_cuts_out_each_of_many_clusters() -> None:
    X, y = rings(np.random.default_rng(7), 4000, 30)
    outcome = gaussian.observe(gaussian.init(2, classes=30), X, y)
    assert np.mean(outcome.scores.argmax(axis=1) == y) > 0.93


def test_above_the_limit_only_diagonals_are_kept_and_it_still_learns() -> None:
    d, K = 400, 10
    state = gaussian.init(d, classes=K)
    assert (state.factor.size, state.diagonal.shape) == (0, (K, d))
    rng = np.random.default_rng(8)
    centres, y = points(rng, K, d, 3.0), rng.integers(K, size=1000)
    V = 2 * g.log_map(np.zeros(d), centres)[y] + rng.normal(size=(1000, d)) * 0.15
    outcome = gaussian.observe(state, g.exp_map(np.zeros(d), V / 2), y)
    assert np.mean(outcome.scores[300:].argmax(axis=1) == y[300:]) > 0.95
    assert len(encode(outcome.state)) < 100_000
