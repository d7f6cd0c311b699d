"""The weighted majority: its theorem on any stream of votes, ties, and the winner that comes back after drift."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import InvalidParameter
from service.learners import auto, gaussian, hemisphere, learner_of, softmax
from service.learners.auto import BETA, SHARE, bound, vote
from tests.streams import rings

EPS = 2.0**-52


def textbook(decided: Any, y: Any, K: int) -> tuple[list[int], Any, Any]:
    """The answers, the weights and everybody's mistakes, with plain weights"""
    N = decided.shape[1]
    w, answers, mistakes = np.ones(N), [], np.zeros(N, dtype=int)
    for row, label in zip(decided, y, strict=True):
        shares = np.array([w[row == k].sum() for k in range(K)])
        top = shares >= shares.max() - 1e-12 * w.sum()
        weights = np.round(np.log(w), 9)
        answers.append(int(row[max(range(N), key=lambda m: (top[row[m]], weights[m], -m))]))
        wrong = row != label
        mistakes += wrong
        kept = BETA * w[wrong]
        w = np.where(wrong, BETA * (1 - SHARE) * w, w) + SHARE * kept.sum() / N
    return answers, w, mistakes


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), N=st.integers(1, 6), K=st.integers(2, 5))
def test_it_agrees_with_the_textbook(seed: int, N: int, K: int) -> None:
    """300 points: no weight underflows, and the logarithms of the plain weights are those kept"""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=300)
    good = rng.random((300, N)) < rng.uniform(0.4, 0.95, N)
    decided = np.where(good, y[:, None], rng.integers(K, size=(300, N)))
    answers, w, mistakes = textbook(decided, y, K)
    scores, log_weights, counted, errors = vote(decided, y, np.zeros(N), K)
    got = (scores >= 0).astype(int) if K == 2 else scores.argmax(axis=1)
    assert got.tolist() == answers
    assert np.array_equal(counted, mistakes)
    assert errors == int(np.sum(np.array(answers) != y))
    assert np.abs(log_weights - (np.log(w) - np.log(w.max()))).max() <= 1e-9
    assert log_weights.max() == 0.0


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), N=st.integers(1, 8), K=st.integers(2, 6), kind=st.integers(0, 3))
def test_the_vote_errs_within_its_theorem_on_any_stream(seed: int, N: int, K: int, kind: int) -> None:
    """M ≤ (m ln(1/(β(1−s))) + ln N)/ln(2/(1+β)) at every moment, not only at the end"""
    rng = np.random.default_rng(seed)
    n = 400
    y = rng.integers(K, size=n)
    chance = rng.uniform(0, 1, (4, N))
    if kind == 1:
        chance[:] = 0.1
        chance[:, 0] = 1.0  # one member never errs
    if kind == 2:
        chance = np.eye(4, N)  # the winner changes
    decided = np.where(rng.random((n, N)) < np.repeat(chance, n // 4, axis=0), y[:, None], rng.integers(K, size=(n, N)))
    log_weights, mistakes, errors = np.zeros(N), np.zeros(N, dtype=int), 0
    for i in range(n):
        one = decided[i : i + 1]
        if kind == 3:  # an adversary: the right class is one that the vote did not choose, if any member did
            scores, *_ = vote(one, None, log_weights, K)
            answer = int(scores[0] >= 0) if K == 2 else int(scores[0].argmax())
            others = [k for k in one[0] if k != answer]
            y[i] = others[0] if others else answer
        _, log_weights, counted, wrong = vote(one, y[i : i + 1], log_weights, K)
        mistakes, errors = mistakes + counted, errors + wrong
        assert errors <= bound(int(mistakes.min()), N)


def test_the_bound_is_not_idle() -> None:
    """Half of the weight errs each time, and the vote with it: log₂ N mistakes; the bound allows 2.41 times that"""
    N = 64
    decided = np.array([[(m >> bit) & 1 for m in range(N)] for bit in range(6)])
    log_weights, errors = np.zeros(N), 0
    for row in decided:
        scores, *_ = vote(row[None], None, log_weights, 2)
        right = np.array([0 if scores[0] >= 0 else 1])
        _, log_weights, _, wrong = vote(row[None], right, log_weights, 2)
        errors += wrong
    assert errors == 6
    assert errors <= bound(0, N) <= 2.5 * errors


def test_of_equal_shares_the_heaviest_decides() -> None:
    for K in (2, 3):
        for decided, answer in (([0, 1], 0), ([1, 0], 1)):
            scores, *_ = vote(np.array([decided]), None, np.zeros(2), K)
            assert (int(scores[0] >= 0) if K == 2 else int(scores[0].argmax())) == answer
    # 2 against 1 + 1: the class of the one member is the heaviest's
    scores, *_ = vote(np.array([[1, 1, 0]]), None, np.array([-math.log(2), -math.log(2), 0.0]), 2)
    assert scores[0] < 0
    scores, *_ = vote(np.array([[2, 2, 1]]), None, np.array([-math.log(2), -math.log(2), 0.0]), 3)
    assert int(scores[0].argmax()) == 1


def test_shares_sum_to_one_and_members_are_counted() -> None:
    X, y = rings(np.random.default_rng(0), 800, 5)
    outcome = auto.observe(auto.default(2, classes=5), X, y)
    assert np.abs(outcome.scores.sum(axis=1) - 1).max() <= 8 * EPS
    state = outcome.state
    assert state.errors == int(np.sum(outcome.scores.argmax(axis=1) != y))
    alone = (hemisphere.init(2, classes=5), softmax.init(2, classes=5), gaussian.init(2, classes=5))
    for member, mistakes in zip(alone, state.mistakes, strict=True):
        scores = learner_of(member).observe(member, X, y).scores
        assert mistakes == int(np.sum(scores.argmax(axis=1) != y))
    assert state.errors <= bound(int(state.mistakes[auto.best(state)]), 3)
    assert state.t == 800


def test_a_late_winner_comes_back() -> None:
    """5,000 points of one winner, then another: within 20 points the vote is his. Without sharing, after 2,500"""
    y = np.zeros(5100, dtype=int)
    decided = np.ones((5100, 2), dtype=int)
    decided[:5000, 0] = 0
    decided[5000:, 1] = 0
    decided[:5000:2, 1] = 0
    scores, *_ = vote(decided, y, np.zeros(2), 3)
    wrong = scores.argmax(axis=1) != y
    assert not wrong[1:5000].any()
    assert wrong[5000:].sum() <= 20


@pytest.mark.parametrize("before", [2, 3])
@pytest.mark.parametrize("which", [0, 1, 2, None])
def test_a_class_can_come_later(before: int, which: int | None) -> None:
    """What was learned is kept, the new class is not said before it is seen, and learned soon; alone and in the vote"""
    rng = np.random.default_rng(before)
    X, y = rings(rng, 3000, before + 1)
    old, first = y < before, auto.default(2, classes=before)
    signs = 2 * y[old] - 1 if before == 2 else y[old]
    whole = auto.observe(first, X[old], signs).state
    state: Any = whole if which is None else whole.members[which]
    learner: Any = sys.modules[type(state).__module__]
    grown = learner.grown(state, before + 1)
    was = learner.predict(state, X[old])
    now = learner.predict(grown, X[old])
    assert np.mean(now == ((was > 0).astype(int) if before == 2 else was)) > 0.99
    outcome = learner.observe(grown, X[:1000], y[:1000])
    late = slice(200, 1000)
    assert np.mean(outcome.scores[late].argmax(axis=1) == y[late]) > 0.9
    with pytest.raises(InvalidParameter):
        learner.grown(grown, before)


def test_beyond_full_matrices_its_state_stays_small() -> None:
    state = auto.default(400, classes=10)
    sizes = [sum(a.nbytes for a in vars(m).values() if isinstance(a, np.ndarray)) for m in state.members]
    assert sum(sizes) < 500_000
    assert state.members[0].a == math.inf
    assert auto.default(100, classes=10).members[0].a == 1.0
