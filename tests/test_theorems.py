"""Each theorem, measured: what the paper proves, what it gets wrong, and what holds instead.

Every bound here was seen to break when a sign is flipped in the code it speaks of.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service import geometry as g
from service.batch import svm
from service.geometry import Array
from service.learners import hemisphere, hyperboloid, perceptron, second_order, strategic
from service.learners.certificates import Row, binaries, certificate, corrected_radius, hinge_bound
from tests.strategies import points
from tests.streams import flipped, plain_response, separable, separated_on_the_hemisphere, strategic_response

#: Updates of the long stream; `make soak` has it long enough to see what drifts slowly
LONG = 300_000 if os.environ.get("SOAK_SECONDS") else 40_000

seeds = st.integers(0, 10**6)
margins = st.sampled_from([0.05, 0.2, 0.7])
theorem = settings(max_examples=40, deadline=None, derandomize=True)


def until_clean(learner: Any, state: Any, X: Array, y: Any, passes: int = 100_000) -> Any:
    """Pass after pass until one makes no mistake: then every point is classified correctly."""
    for _ in range(passes):
        outcome = learner.observe(state, X, y)
        state = outcome.state
        if not outcome.changed.any():
            return state
    raise AssertionError("no clean pass")


def require_hyperboloid_bound(state: hyperboloid.State, margin: float, y: Any) -> None:
    """Its theorem needs a boundary, and so both classes."""
    proof = certificate(state, margin)
    if len(set(y.tolist())) == 2:
        assert proof.bound is not None
        assert state.k <= proof.bound
        assert proof.disproved is False
    else:
        assert proof.bound is None


@theorem
@given(seed=seeds, margin=margins, d=st.sampled_from([1, 2, 5]), c=st.sampled_from([0.5, 1.0, 3.0]))
def test_perceptron_converges_within_its_bound(seed: int, margin: float, d: int, c: float) -> None:
    """k ≤ (sinh r / sinh ε)²; the same with R_p = (‖p‖+R)/(1+‖p‖R) is the paper's Theorem 1"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, d, 1.5)[0] / math.sqrt(c)
    X, y, _ = separable(rng, 200, p, margin, c=c)
    state = until_clean(perceptron, perceptron.init(p, c=c), X, y)
    proof = certificate(state, margin)
    assert proof.bound is not None
    assert state.k <= proof.bound
    R, P = (math.sqrt(c) * float(np.linalg.norm(a, axis=-1).max()) for a in (X, p))
    R_p = (P + R) / (1 + P * R)
    assert proof.bound <= (2 * R_p / (1 - R_p**2) / math.sinh(math.sqrt(c) * margin)) ** 2 * (1 + 1e-9)
    assert proof.disproved is False


def test_the_perceptron_bound_is_tight() -> None:
    """Points p ± the same distance along orthogonal axes, taken in turn: k reaches (sinh r / sinh ε)² exactly"""
    d, r = 6, 2.0
    X = np.vstack([np.eye(d) * math.tanh(r / 2)])
    y = np.full(d, -1)
    state = until_clean(perceptron, perceptron.init(np.zeros(d)), X, y)
    # w* = −(1,…,1)/√d has sinh ε = sinh r/√d, so the bound is d
    epsilon = math.asinh(math.sinh(r) / math.sqrt(d))
    proof = certificate(state, epsilon)
    assert proof.bound == pytest.approx(d, rel=1e-12)
    assert d - 1 <= state.k <= d


@theorem
@given(seed=seeds, margin=margins, k=st.integers(1, 8))
def test_a_promoted_perceptron_converges_within_its_own_bound(seed: int, margin: float, k: int) -> None:
    """From w₁: k ≤ (sinh² r + 2‖w₁‖ sinh ε)/sinh² ε"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, 3, 1.0)[0]
    X, y, _ = separable(rng, 200, p, margin)
    state = until_clean(perceptron, perceptron.init(p, w=rng.normal(size=3) * 4.0**k), X, y)
    proof = certificate(state, margin)
    assert proof.bound is not None
    assert state.k <= proof.bound
    assert proof.disproved is False


@theorem
@given(seed=seeds, margin=margins, k=st.integers(-4, 6), a=st.sampled_from([0.1, 1.0, 10.0]))
def test_a_promoted_second_order_disproves_no_true_margin(seed: int, margin: float, k: int, a: float) -> None:
    """From ξ₁ = a w₁: k sinh ε ≤ ‖ξ − ξ₁‖. There is no bound on k"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, 3, 1.0)[0]
    X, y, _ = separable(rng, 200, p, margin)
    state = second_order.init(p, a=a, w=rng.normal(size=3) * 4.0**k)
    for _ in range(20):
        state = second_order.observe(state, X, y).state
        proof = certificate(state, margin)
        assert proof.bound is None
        assert proof.disproved is False


@theorem
@given(seed=seeds, margin=margins, k=st.integers(-2, 8), c=st.sampled_from([1.0, 3.0]))
def test_a_promoted_hyperboloid_converges_within_its_own_bound(seed: int, margin: float, k: int, c: float) -> None:
    """From w₁: k ≤ cosh 2r cosh 2(r−ε)/sinh² ε + 2‖w₁‖√cosh 2(r−ε)/sinh ε

    Near the origin, where the first term is small.
    """
    rng = np.random.default_rng(seed)
    p = points(rng, 1, 2, 0.4)[0] / math.sqrt(c)
    X, y, _ = separable(rng, 200, p, margin / math.sqrt(c), radius=1.2, c=c)
    state = until_clean(hyperboloid, hyperboloid.init(2, c=c, w=rng.normal(size=3) * 4.0**k), X, y)
    require_hyperboloid_bound(state, margin / math.sqrt(c), y)


@theorem
@given(seed=seeds, margin=margins, a=st.sampled_from([1e-3, 1.0, 100.0]))
def test_second_order_errs_within_its_bound(seed: int, margin: float, a: float) -> None:
    """k ≤ √((a + λ_max) log det(A/a)) / sinh ε"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, 4, 1.0)[0]
    X, y, _ = separable(rng, 300, p, margin)
    state = until_clean(second_order, second_order.init(p, a=a), X, y)
    proof = certificate(state, margin)
    assert proof.bound is not None
    assert state.k <= proof.bound
    assert proof.disproved is False
    A = state.factor.T @ state.factor
    eigenvalues = np.linalg.eigvalsh(A) - a
    printed = math.sqrt((a + eigenvalues.max()) * np.log1p(np.maximum(eigenvalues, 0) / a).sum()) / math.sinh(margin)
    assert proof.bound == pytest.approx(printed, rel=1e-6)


def test_the_second_order_needs_fewer_updates() -> None:
    """Over 20 streams of small margin, a fifth of the perceptron's updates on average, and never more"""
    first, second = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p = points(rng, 1, 6, 1.0)[0]
        X, y, _ = separable(rng, 1000, p, 0.02)
        first.append(until_clean(perceptron, perceptron.init(p), X, y).k)
        second.append(until_clean(second_order, second_order.init(p, a=0.0), X, y).k)
    assert all(s < f for f, s in zip(first, second, strict=True))
    assert np.mean(second) < np.mean(first) / 5


@theorem
@given(seed=seeds, margin=margins)
def test_hyperboloid_converges_within_its_bound(seed: int, margin: float) -> None:
    """k ≤ cosh 2r cosh 2(r−ε) / sinh² ε, whatever the hyperplane: it needs no reference point"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, 2, 1.5)[0]
    X, y, _ = separable(rng, 200, p, margin)
    state = until_clean(hyperboloid, hyperboloid.init(2), X, y)
    require_hyperboloid_bound(state, margin, y)


# ------------------------------------------------------------------------------------ strategic


def play(X: Array, y: Any, state: strategic.State, budget: float, rounds: int) -> tuple[strategic.State, list[int]]:
    """Rational agents, one after another: each sees the classifier, answers it, and is judged by it."""
    mistakes = []
    for _ in range(rounds):
        wrong = 0
        for x, label in zip(X, y, strict=True):
            root = math.sqrt(state.c)
            moved = strategic_response(x, state.p / root, state.w, state.alpha / root, budget, c=state.c)
            outcome = strategic.observe(state, moved, label, until_change=True)
            wrong += outcome.state.k - state.k
            state = outcome.state
        mistakes.append(wrong)
        if wrong == 0:
            break
    return state, mistakes


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=seeds, budget=st.sampled_from([0.3, 1.0, 3.0]), margin=margins, c=st.sampled_from([1.0, 2.0]))
def test_strategic_errs_within_the_corrected_bound(seed: int, budget: float, margin: float, c: float) -> None:
    """k ≤ (f(r)/sinh ε)², f(r) = r sinh(q)/q, q = √(r²+α²), r = max d(p, true x)"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, 2, 1.0)[0] / math.sqrt(c)
    X, y, _ = separable(rng, 60, p, margin, radius=2.0, c=c)
    state, mistakes = play(X, y, strategic.init(p, budget=budget, c=c), budget, rounds=400)
    r = math.sqrt(c) * float(g.distance(p, X, c=c).max())
    true_bound = (corrected_radius(r, math.sqrt(c) * budget) / math.sinh(math.sqrt(c) * margin)) ** 2
    assert state.k <= true_bound
    assert mistakes[-1] == 0
    seen = certificate(state, margin)
    assert seen.bound is not None
    assert true_bound <= seen.bound * (1 + 1e-9)  # the server sees moved points: valid, only looser
    assert seen.disproved is False


def test_a_promoted_strategic_learner_has_no_bound() -> None:
    """w₁ points the wrong way, u with it: the agent moves, its ṽ is 0, and nothing is learned from it, for ever"""
    agent, p = np.array([-0.3]), np.zeros(1)
    state = strategic.init(p, budget=1.0, w=[-1.0])
    for _ in range(100):
        moved = strategic_response(agent, p, state.w, state.alpha, 1.0)
        state = strategic.observe(state, moved, -1, until_change=True).state
    assert state.k == 100
    assert abs(state.w[0] + 1) <= 100 * 2.0**-52
    proof = certificate(state, float(g.distance(p, agent)))  # which is a margin: w* = 1 has it
    assert (proof.bound, proof.largest_margin, proof.disproved, proof.paper_bound) == (None, None, False, None)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=seeds, budget=st.sampled_from([0.3, 1.0, 3.0]), margin=margins, k=st.integers(-2, 4))
def test_a_strategic_learner_promoted_on_the_right_side_errs_no_more_than_a_perceptron_would(
    seed: int, budget: float, margin: float, k: int
) -> None:
    """While ⟨w₁,w*⟩ ≥ 0: k ≤ (f(r)/sinh ε)² + 2‖w₁‖/sinh ε and k sinh ε ≤ ‖w−w₁‖; the state does not tell whether"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, 2, 1.0)[0]
    X, y, w = separable(rng, 60, p, margin, radius=2.0)
    start = rng.normal(size=2) * 4.0**k
    start = start if start @ w >= 0 else -start
    state, mistakes = play(X, y, strategic.init(p, budget=budget, w=start), budget, rounds=400)
    f, sinh = corrected_radius(float(g.distance(p, X).max()), budget), math.sinh(margin)
    assert state.k <= (f / sinh) ** 2 + 2 * float(np.linalg.norm(start)) / sinh
    assert state.k * sinh <= float(np.linalg.norm(state.w - start)) * (1 + 1e-9)
    assert mistakes[-1] == 0


def test_the_papers_strategic_bound_is_wrong_and_the_corrected_one_holds() -> None:
    """p = 0, all ‖log x‖ = 1 (r = 2), α = 6, sinh ε = sinh(r)/5: the paper allows 83.5 mistakes.

    A negative that moved updates w by up to f(r) = 88, which only many positives of length sinh r = 3.6 undo. The
    worst agent comes next: a positive called negative, the worst first, else a negative called positive.
    """
    d, r, alpha, cos = 20, 2.0, 6.0, 0.2
    paper = ((math.sinh(r) + alpha / 2) / (math.sinh(r) * cos)) ** 2
    corrected = (corrected_radius(r, alpha) / (math.sinh(r) * cos)) ** 2
    assert paper == pytest.approx(83.5, abs=0.05)
    counts = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        y = np.where(np.arange(100) % 2, 1, -1)
        T = rng.normal(size=(100, d - 1))
        T *= math.sqrt(1 - cos * cos) / np.linalg.norm(T, axis=1, keepdims=True)
        X = math.tanh(r / 2) * np.column_stack([cos * y, T])
        state = strategic.init(np.zeros(d), budget=alpha)
        while True:
            moved = np.array([strategic_response(x, state.p, state.w, alpha, alpha) for x in X])
            wrong = np.flatnonzero(strategic.predict(state, moved) != y)
            if not wrong.size:
                break
            worst = min(wrong, key=lambda i: (-y[i], strategic.score(state, moved[i])[0]))
            state = strategic.observe(state, moved[worst], y[worst]).state
        counts.append(state.k)
        proof = certificate(state, math.asinh(math.sinh(r) * cos))
        assert proof.bound is not None
        assert state.k <= corrected <= proof.bound * (1 + 1e-9)
        assert proof.disproved is False
    assert max(counts) > paper


A = [-math.tanh(1), 0.0]
B = [0.0, -math.tanh(1)]
C = [-math.tanh(math.sqrt(5) / 2) / math.sqrt(5), -2 * math.tanh(math.sqrt(5) / 2) / math.sqrt(5)]
ABC, LABELS = np.array([A, B, C]), (-1, 1, -1)
ORIGIN = np.zeros(2)


def test_agents_a_b_c_make_the_plain_perceptron_cycle() -> None:
    """Two mistakes a round, for ever: C answers as B, and B is then called negative"""
    state = perceptron.init(ORIGIN)
    rounds = []
    for _ in range(50):
        wrong = 0
        for x, label in zip(ABC, LABELS, strict=True):
            outcome = perceptron.observe(state, plain_response(x, ORIGIN, state.w, 1.0), label)
            wrong, state = wrong + int(outcome.changed.sum()), outcome.state
        rounds.append(wrong)
    assert set(rounds[1:]) == {2}


def test_agents_a_b_c_fool_the_strategic_perceptron_once() -> None:
    state, mistakes = play(ABC, LABELS, strategic.init(ORIGIN, budget=1.0), 1.0, rounds=50)
    assert mistakes == [1, 0]
    assert state.k == 1


def test_the_papers_perfect_classifier_for_a_b_c_has_the_wrong_sign() -> None:
    def right(w: list[float]) -> list[bool]:
        return [bool((np.dot(w, x) >= 0) == (label > 0)) for x, label in zip(ABC, LABELS, strict=True)]

    assert right([2.0, 1.0]) == [True, False, True]  # as printed: it calls B negative
    assert right([0.966, -0.257]) == [True, True, True]


# ------------------------------------------------------------------------------- unknown budget


def band_population(rng: np.random.Generator, n: int) -> tuple[Array, Any, Array]:
    """Separable, with mass everywhere near the boundary's band: uniform in the disk of hyperbolic radius 3"""
    p = points(rng, 1, 2, 0.5)[0]
    X, y, _ = separable(rng, n, p, 0.2)
    return X, y, p


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=seeds, budget=st.sampled_from([0.2, 0.5, 1.0]), factor=st.sampled_from([1.0, 4.0]))
def test_an_unknown_budget_is_never_underestimated(seed: int, budget: float, factor: float) -> None:
    X, y, p = band_population(np.random.default_rng(seed), 80)
    state = strategic.init(p, budget=budget * factor, estimate=True)
    for _ in range(5):
        before = state.alpha
        state, _ = play(X, y, state, budget, rounds=1)
        assert budget <= state.alpha <= before


def test_from_four_times_too_high_the_estimate_comes_near_from_above_and_saves_most_mistakes() -> None:
    for seed in range(2):
        X, y, p = band_population(np.random.default_rng(seed), 800)
        state, _ = play(X, y, strategic.init(p, budget=2.0, estimate=True), 0.5, rounds=5)
        plain = perceptron.init(p)
        for _ in range(5):
            for x, label in zip(X, y, strict=True):
                plain = perceptron.observe(plain, plain_response(x, p, plain.w, 0.5), label).state
        assert 0.5 <= state.alpha <= 0.6
        assert state.k < plain.k / 5


def test_points_that_did_not_answer_this_classifier_are_no_evidence() -> None:
    X, y, p = band_population(np.random.default_rng(0), 200)
    state = strategic.observe(strategic.init(p, budget=2.0, estimate=True), X, y).state
    assert state.alpha == 2.0
    assert np.isinf(state.evidence).all()


def stays(state: strategic.State, below: float, aside: float = 0.0) -> strategic.State:
    """An agent that answers this classifier and stays so far below its threshold"""
    x = g.exp_map(ORIGIN, [(state.alpha - below) / 2, aside])
    return strategic.observe(state, x, -1, until_change=True).state


def estimating(budget: float) -> strategic.State:
    return strategic.observe(strategic.init(ORIGIN, budget=budget, estimate=True), [[-0.5, 0.0]], [-1]).state


def test_two_irrational_agents_do_not_corrupt_the_estimate_and_the_evidence_is_kept() -> None:
    """Two agents stay 0.01 below the threshold although their budget is 0.5: α moves with the third"""
    state = stays(stays(estimating(1.0), 0.01), 0.011)
    assert state.alpha == 1.0
    state = stays(state, 0.6)
    assert state.alpha == pytest.approx(0.6, rel=1e-8)
    assert np.sort(state.evidence)[:3] == pytest.approx([0.01, 0.011, 0.6], rel=1e-6)


def test_an_agent_counts_once() -> None:
    state = estimating(1.0)
    for _ in range(20):
        state = stays(state, 0.3)
    assert (state.alpha, state.newer, state.jumps) == (1.0, 1, 0)


def test_a_few_posts_do_not_take_an_estimate_down_for_good() -> None:
    """Who stays a hair below the threshold halves it, a post each; rational ones take it to the truth and outlive it"""
    rng, truth, state = np.random.default_rng(0), 0.5, estimating(4.0)
    for i in range(3):
        state = stays(state, 1e-6, 0.1 + 0.01 * i)
    assert (state.alpha, state.jumps) == (2.0, 1)
    for _ in range(1000):
        before, state = state.alpha, stays(state, truth + rng.exponential(), rng.uniform(0, 1))
        assert state.alpha >= min(before, truth)
    assert truth <= state.alpha <= 1.1 * truth  # with a rational stay it falls to that one's bound at most
    for i in range(24):
        state = stays(state, state.alpha / 4, 0.1 + 0.01 * i)
    assert state.alpha < 1e-6 and state.jumps > 10
    for _ in range(2 * strategic.STAYS):
        state = stays(state, truth + rng.exponential(), rng.uniform(0, 1))
    assert truth <= state.alpha <= 1.1 * truth  # expired
    assert state.alpha <= state.cap == 4.0


def test_an_agent_that_could_not_move_within_the_ball_is_no_evidence() -> None:
    state = strategic.observe(strategic.init(ORIGIN, budget=2.0, estimate=True), [[-0.5, 0.0]], [-1]).state
    far = g.exp_map(ORIGIN, [0.5, 5.95])  # 1 below the threshold, and 11.94 from the origin: it would leave
    for _ in range(5):
        state = strategic.observe(state, far, -1, until_change=True).state
    assert state.alpha == 2.0


# ------------------------------------------------------------------------------ the long stream


@pytest.mark.parametrize("a", [1.0, 1e-8, 0.0])
def test_second_order_agrees_with_a_fresh_solve_after_a_long_stream(a: float) -> None:
    """Many updates at d = 100: w against A⁻¹ξ solved afresh, to cond(A)·eps·√k (rounding errors add at random)"""
    rng = np.random.default_rng(0)
    d, block = 100, 20_000
    p, w = points(rng, 1, d, 0.5)[0], rng.normal(size=d)
    state = second_order.init(p, a=a)
    fresh, xi = a * np.eye(d), np.zeros(d)
    while state.k < LONG:
        X = points(rng, block, d, 3.0)
        Z = g.lift(p, X)
        y = flipped(rng, np.where(Z @ w >= 0, 1, -1).astype(np.int8), 0.45)
        outcome = second_order.observe(state, X, y)
        state = outcome.state
        wrong = Z[outcome.changed]
        fresh += wrong.T @ wrong
        xi += y[outcome.changed] @ wrong
    solved = np.linalg.solve(fresh, xi)
    tolerance = 4 * float(np.linalg.cond(fresh)) * 2.0**-52 * math.sqrt(state.k)
    assert np.linalg.norm(state.w - solved) <= tolerance * np.linalg.norm(solved)
    assert tolerance < 1e-9


# ------------------------------------------------------------------------------- a = 0, and the hemisphere


@theorem
@given(seed=seeds, margin=margins, d=st.sampled_from([1, 2, 4]))
def test_second_order_without_a_errs_within_its_bound(seed: int, margin: float, d: int) -> None:
    """a = 0: k sinh ε ≤ √(λ_max Q), with Q = Σ zᵀA⁺z recomputed from the mistakes by a pseudo-inverse"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, d, 1.0)[0]
    X, y, _ = separable(rng, 300, p, margin)
    state, Q, A = second_order.init(p, a=0.0), 0.0, np.zeros((d, d))
    while len(X):
        outcome = second_order.observe(state, X, y, until_change=True)
        x, X, y = X[outcome.accepted - 1], X[outcome.accepted :], y[outcome.accepted :]
        state, proof = outcome.state, certificate(outcome.state, margin)
        if outcome.changed[-1]:
            z = g.lift(p, x)
            A += np.outer(z, z)
            Q += float(z @ np.linalg.pinv(A, rcond=1e-12, hermitian=True) @ z)
        assert proof.bound is not None
        assert state.k <= proof.bound
    assert state.q == pytest.approx(Q, rel=1e-6)
    assert proof.bound == pytest.approx(math.sqrt(np.linalg.norm(A, 2) * Q) / math.sinh(margin), rel=1e-6)


@theorem
@given(seed=seeds, gamma=st.sampled_from([0.01, 0.1, 0.3]), start=st.sampled_from([0.0, 0.5, 30.0]))
def test_a_perceptron_on_the_hemisphere_updates_within_its_bound(seed: int, gamma: float, start: float) -> None:
    """k ≤ 2/γ² + 2‖w₁‖/γ and γ ≤ ‖w − w₁‖/k, of the last iterate, whatever the average answers"""
    rng = np.random.default_rng(seed)
    X, y = separated_on_the_hemisphere(rng, 300, 2, gamma)
    w = rng.normal(size=4)
    state = hemisphere.init(2, a=math.inf, W=start * w / np.linalg.norm(w), points=10)
    for _ in range(20):
        state = hemisphere.observe(state, X, y).state
    proof = certificate(state, gamma)
    assert proof.bound == pytest.approx(2 / gamma**2 + 2 * start / gamma)
    assert proof.updates == state.k[0] <= proof.bound
    assert proof.disproved is False
    assert proof.radius is None


@theorem
@given(seed=seeds, gamma=st.sampled_from([0.01, 0.1, 0.3]), a=st.sampled_from([0.0, 1e-3, 1.0, 100.0]))
def test_second_order_on_the_hemisphere_updates_within_its_bound(seed: int, gamma: float, a: float) -> None:
    """kγ ≤ √(λ_max log det(A/a)), and for a = 0 kγ ≤ √(λ_max Q)"""
    rng = np.random.default_rng(seed)
    X, y = separated_on_the_hemisphere(rng, 300, 2, gamma)
    state = hemisphere.init(2, a=a)
    for _ in range(20):
        state = hemisphere.observe(state, X, y).state
        proof = certificate(state, gamma)
        assert proof.bound is not None
        assert proof.updates <= proof.bound
        assert proof.disproved is False


def test_two_over_gamma_squared_is_not_a_bound_of_second_order() -> None:
    """All labels negative, γ = 1 by the constant of φ: a = 0 makes D updates, and 2/γ² = 2"""
    X = points(np.random.default_rng(0), 100, 2, 5.0)
    state = hemisphere.observe(hemisphere.init(2, a=0.0), X, -np.ones(100)).state
    proof = certificate(state, 1.0)
    assert proof.bound is not None
    assert 2 < state.k[0] == 4 <= proof.bound


def test_noise_disproves_a_margin_separated_on_the_hemisphere() -> None:
    rng = np.random.default_rng(0)
    X, y = separated_on_the_hemisphere(rng, 3000, 2, 0.2)
    for a in (0.0, 1.0, math.inf):
        state = hemisphere.observe(hemisphere.init(2, a=a), X, flipped(rng, y)).state
        proof = certificate(state, 0.2)
        assert proof.disproved is True
        assert proof.largest_margin is not None
        assert proof.largest_margin < 0.1


def only_row(state: hemisphere.State) -> Row:
    [row] = binaries(state)
    assert isinstance(row, Row)
    return row


@theorem
@given(seed=seeds, share=st.sampled_from([0.0, 0.05, 0.3]), a=st.sampled_from([0.0, 1.0, math.inf]))
def test_updates_on_a_noisy_stream_stay_within_the_hinge_loss_bound(seed: int, share: float, a: float) -> None:
    """Of any u: here of the best of an SVM, of a random one and of 0, whose losses are n"""
    rng = np.random.default_rng(seed)
    X, y = separated_on_the_hemisphere(rng, 400, 2, 0.05)
    y = flipped(rng, y, share)
    state = hemisphere.observe(hemisphere.init(2, a=a), X, y).state
    row = only_row(state)
    F = g.hemisphere(X)
    fitted = svm.fit(F, y, C=1.0).w if len(set(y.tolist())) == 2 else y[0] * np.eye(4)[0]
    for u in (fitted, rng.normal(size=4), np.zeros(4)):
        bound = hinge_bound(row, u, float(np.maximum(1 - y * (F @ u), 0).sum()))
        assert bound is not None
        assert row.k <= bound


def test_the_hinge_loss_bound_of_a_perceptron_is_near() -> None:
    """Within 4 of k on noise; and second order breaks it"""
    ratios, broken = [], 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = separated_on_the_hemisphere(rng, 1000, 2, 0.05)
        y = flipped(rng, y, 0.1)
        F = g.hemisphere(X)
        u = svm.fit(F, y, C=1.0).w
        loss = float(np.maximum(1 - y * (F @ u), 0).sum())
        row = only_row(hemisphere.observe(hemisphere.init(2, a=math.inf), X, y).state)
        bound = hinge_bound(row, u, loss)
        assert bound is not None
        ratios.append(bound / row.k)
    X, ones = points(np.random.default_rng(1), 100, 2, 5.0), np.ones(100)
    for a in (0.0, math.inf):  # u = −e₀ has no loss, ‖u‖ = 1
        row = only_row(hemisphere.observe(hemisphere.init(2, a=a), X, -ones).state)
        broken += row.k > 2
        bound = hinge_bound(row, -np.eye(4)[0], 0.0)
        assert bound is not None
        assert row.k <= bound
    assert broken == 1
    assert 1 <= min(ratios) and max(ratios) < 4


def test_there_is_no_hinge_loss_bound_from_weights() -> None:
    row = only_row(hemisphere.init(2, W=[1.0, 0.0, 0.0, 0.0], points=5))
    assert hinge_bound(row, np.zeros(4), 1.0) is None


@theorem
@given(seed=seeds)
def test_no_strategic_bound_where_agents_would_leave_the_ball(seed: int) -> None:
    """An agent that cannot go beyond the radius limit stays below a threshold it could pay for: no theorem speaks of
    that, and updates exceed the bound that would else be told"""
    rng = np.random.default_rng(seed)
    p, budget = np.zeros(2), 4.0
    X, y, _ = separable(rng, 100, p, 0.5, radius=float(rng.uniform(11.2, 11.9)))
    state = strategic.observe(strategic.init(p, budget=budget), X, y).state
    r = certificate(state).radius
    assert r is not None
    proof = certificate(state, 0.5)
    if math.hypot(r, budget) > g.RADIUS_LIMIT:
        assert (proof.bound, proof.paper_bound) == (None, None)
        assert proof.largest_margin is not None or state.k == 0
    else:
        assert proof.bound is not None
