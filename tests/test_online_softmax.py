"""The online softmax: against the textbook, from a batch fit, and where only diagonals are kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from service import geometry as g
from service.batch import hemisphere_softmax
from service.batch import softmax as batch
from service.errors import DimensionMismatch
from service.geometry import Array
from service.learners import encode, softmax
from service.learners.softmax import FLOOR, RIDGE
from tests.strategies import points
from tests.streams import rings

EPS = 2.0**-52
Labels = NDArray[np.int64]


def textbook(X: Array, y: Labels, K: int) -> tuple[Array, Array]:
    """As MATHS has it, with A_k kept and solved afresh each time; and the probabilities before each point"""
    F = g.hemisphere(X)
    D = F.shape[1]
    w, A, before = np.zeros((K, D)), np.stack([RIDGE * np.eye(D)] * K), []
    for f, label in zip(F, y, strict=True):
        s = w @ f
        e = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
        before.append(e)
        for k in range(K):
            A[k] += max(e[k] * (1 - e[k]), FLOOR) * np.outer(f, f)
            w[k] -= (e[k] - (label == k)) * np.linalg.solve(A[k], f)
    return w, np.array(before)


@pytest.mark.parametrize("K", [2, 5])
def test_it_agrees_with_the_textbook(K: int) -> None:
    """To the condition of A, below 1e4 here, a rounding a point"""
    rng = np.random.default_rng(K)
    X, y = points(rng, 400, 3, 3.0), rng.integers(K, size=400)
    w, before = textbook(X, y, K)
    outcome = softmax.observe(softmax.init(3, classes=K), X, y if K > 2 else 2 * y - 1)
    assert np.abs(outcome.state.w - w).max() <= 400 * EPS * 1e4 * np.abs(w).max()
    want = np.log(before[:, 1] / before[:, 0]) if K == 2 else np.log(before)
    got = outcome.scores if K == 2 else outcome.scores - np.log(np.exp(outcome.scores).sum(axis=1, keepdims=True))
    assert np.abs(got - want).max() <= 1e-9


def test_probabilities_are_those_of_the_scores_and_sum_to_one() -> None:
    rng = np.random.default_rng(1)
    X, y = points(rng, 300, 2, 5.0), rng.integers(3, size=300)
    state = softmax.observe(softmax.init(2, classes=3), X, y).state
    P, S = softmax.probabilities(state, X), softmax.score(state, X)
    assert np.abs(P.sum(axis=1) - 1).max() <= 4 * EPS
    assert np.abs(np.log(P) - (S - np.log(np.exp(S).sum(axis=1, keepdims=True)))).max() <= 1e-12
    assert np.array_equal(softmax.probabilities(state, X[3]), P[3:4])
    two = softmax.observe(softmax.init(2), X, np.where(y == 0, 1, -1)).state
    odds = softmax.probabilities(two, X)
    assert np.abs(np.log(odds[:, 1] / odds[:, 0]) - softmax.score(two, X)).max() <= 1e-12
    assert np.array_equal(softmax.probabilities(softmax.init(2, classes=4), X[:2]), np.full((2, 4), 0.25))


def test_the_inverse_stays_that_of_the_sum_over_a_long_stream() -> None:
    """2·10⁵ points, all near one place, so that A is ill-conditioned: against a fresh inverse, to cond·eps·√t"""
    rng = np.random.default_rng(2)
    X = np.clip(0.5 + 0.01 * rng.normal(size=(200_000, 2)), -0.65, 0.65)
    y = rng.integers(3, size=len(X))
    state = softmax.observe(softmax.init(2, classes=3), X, y).state
    fitted = softmax.init(2, classes=3, W=state.w, points=X)  # with weights that stay, the sum is known
    F = g.hemisphere(X)
    P = softmax.probabilities(state, X)
    for k in range(3):
        A = RIDGE * np.eye(4) + (F * np.maximum(P[:, k] * (1 - P[:, k]), FLOOR)[:, None]).T @ F
        error = np.linalg.norm(fitted.inverse[k] @ A - np.eye(4))
        assert error <= 4 * EPS * np.linalg.cond(A) * math.sqrt(len(X))
        assert np.array_equal(state.inverse[k], state.inverse[k].T)
        assert np.linalg.eigvalsh(state.inverse[k]).min() > 0


def test_a_batch_softmax_on_the_hemisphere_is_its_exact_start() -> None:
    rng = np.random.default_rng(3)
    X, y = rings(rng, 500, 6)
    W = hemisphere_softmax.fit(X, y, 6)
    assert W is not None
    state = softmax.init(2, classes=6, W=W, points=X)
    assert np.abs(softmax.probabilities(state, X) - batch.probabilities(W, g.hemisphere(X))).max() <= 32 * EPS * 100
    assert state.t == 500
    with pytest.raises(DimensionMismatch):
        softmax.init(2, classes=6, W=W, points=np.zeros((3, 4)))


def prequential(X: Array, y: Labels, K: int, *, refit: bool) -> float:
    state, right = softmax.init(2, classes=K), 0
    for i in range(len(y)):
        outcome = softmax.observe(state, X[i], y[i])
        right += int(np.argmax(outcome.scores[0]) == y[i])
        state = outcome.state
        if refit and hemisphere_softmax.due(i + 1):
            W = hemisphere_softmax.fit(X[: i + 1], y[: i + 1], K)
            state = state if W is None else softmax.init(2, classes=K, W=W, points=X[: i + 1])
    return right / len(y)


def test_restarted_at_each_doubling_it_is_much_better_on_many_clusters() -> None:
    X, y = rings(np.random.default_rng(4), 3000, 30)
    alone, restarted = (prequential(X, y, 30, refit=refit) for refit in (False, True))
    assert restarted > 0.85
    assert alone < restarted - 0.1


def test_refits_are_due_at_25_times_the_powers_of_two() -> None:
    assert [t for t in range(2000) if hemisphere_softmax.due(t)] == [25, 50, 100, 200, 400, 800, 1600]


def test_a_refit_needs_two_classes_and_gives_an_absent_one_a_small_probability() -> None:
    X, y = rings(np.random.default_rng(5), 200, 3)
    assert hemisphere_softmax.fit(X, np.zeros(200, dtype=int), 3) is None
    W = hemisphere_softmax.fit(X, y, 5)
    assert W is not None
    P = batch.probabilities(W, g.hemisphere(X))
    assert P[:, 3:].max() < 0.01
    assert np.mean(P.argmax(axis=1) == y) > 0.95


def test_above_the_limit_only_diagonals_are_kept_and_it_still_learns() -> None:
    """K(d+2)² > 2¹⁸ at d = 200, K = 10; a state of megabytes becomes one of kilobytes"""
    d, K = 200, 10
    state = softmax.init(d, classes=K)
    assert (state.inverse.size, state.diagonal.shape) == (0, (K, d + 2))
    assert softmax.init(150, classes=K).diagonal.size == 0
    rng = np.random.default_rng(6)
    centres, y = points(rng, K, d, 3.0), rng.integers(K, size=3000)
    V = 2 * g.log_map(np.zeros(d), centres)[y] + rng.normal(size=(3000, d)) * 0.15
    outcome = softmax.observe(state, g.exp_map(np.zeros(d), V / 2), y)
    assert np.mean(outcome.scores[1000:].argmax(axis=1) == y[1000:]) > 0.9
    assert len(encode(outcome.state)) < 100_000


def test_the_diagonals_are_those_of_the_sums() -> None:
    """A_kk = RIDGE + Σ g φ², and the step is along φ/A before the point, shortened by 1/(1 + g⟨φ,φ/A⟩)"""
    rng = np.random.default_rng(7)
    X, y = points(rng, 200, 2, 3.0), rng.integers(3, size=200)
    w, A = np.zeros((3, 4)), np.full((3, 4), RIDGE)
    for f, label in zip(g.hemisphere(X), y, strict=True):
        e = np.exp(w @ f) / np.exp(w @ f).sum()
        for k in range(3):
            factor, v = max(e[k] * (1 - e[k]), FLOOR), f / A[k]
            A[k] += factor * f * f
            w[k] -= (e[k] - (label == k)) * v / (1 + factor * (f @ v))
    full = softmax.init(2, classes=3)
    first = replace(full, inverse=full.inverse[:0], diagonal=np.full((3, 4), 1 / RIDGE))
    state = softmax.observe(first, X, y).state
    assert np.abs(state.w - w).max() <= 1e-10 * np.abs(w).max()
    assert np.abs(state.diagonal * A - 1).max() <= 1e-11
