"""Perceptrons on the hemisphere: against the textbook, their average and its versions, distances, theorems."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service import geometry as g
from service.geometry import Array
from service.learners import hemisphere
from tests.strategies import directions, points
from tests.streams import flipped, separated_on_the_hemisphere

EPS = 2.0**-52
seeds = st.integers(0, 10**6)
theorem = settings(max_examples=40, deadline=None, derandomize=True)
orders = pytest.mark.parametrize("a", [math.inf, 1.0, 1e-3, 0.0])


def textbook(X: Array, y: NDArray[Any], rows: int, a: float) -> tuple[list[Array], NDArray[np.bool_]]:
    """Every iterate W_1 … W_n, each solved afresh from the mistakes so far, and which points were mistakes of a row"""
    F, D = g.hemisphere(X), X.shape[1] + 2
    W, iterates, updates = np.zeros((rows, D)), [], []
    seen: list[list[tuple[Array, float]]] = [[] for _ in range(rows)]
    for f, label in zip(F, y, strict=True):
        wrong = False
        for r in range(rows):
            sign = 1.0 if label == (1 if rows == 1 else r) else -1.0
            S = np.array([one for one, _ in seen[r]]).reshape(-1, D)
            outside = a == 0 and np.linalg.matrix_rank(np.vstack([S, f]), 1e-8) > np.linalg.matrix_rank(S, 1e-8)
            if (outside or W[r] @ f >= 0) == (sign > 0):
                continue
            wrong = True
            seen[r].append((f, sign))
            S, signs = np.array([one for one, _ in seen[r]]), np.array([one for _, one in seen[r]])
            xi = signs @ S
            if a == math.inf:
                fresh = xi
            elif a == 0:
                fresh = np.linalg.pinv(S.T @ S, rcond=1e-12, hermitian=True) @ xi
            else:
                fresh = np.linalg.solve(a * np.eye(D) + S.T @ S, xi)
            W = W.copy()
            W[r] = fresh
        iterates.append(W)
        updates.append(wrong)
    return iterates, np.array(updates)


@orders
@pytest.mark.parametrize("rows", [1, 4])
def test_it_agrees_with_the_textbook_and_answers_with_the_mean_of_its_iterates(a: float, rows: int) -> None:
    """The rule after t points is the mean of the iterates after each, as of the newest t_u + 2^j: a version each.

    Weights to 200 roundings and the condition of what was solved, some 1e8 for the pseudo-inverse.
    """
    rng = np.random.default_rng(rows)
    X = points(rng, 200, 2, 3.0)
    y = rng.integers(rows, size=200) if rows > 1 else rng.choice([-1, 1], 200)
    iterates, updates = textbook(X, y, rows, a)
    state: Any = hemisphere.init(2, classes=max(rows, 2), a=a)
    outcome = hemisphere.observe(state, X, y)
    assert np.array_equal(outcome.updated, updates)
    last, rule, tolerance = 0, np.zeros_like(iterates[0]), 200 * EPS * (1e8 if a == 0 else 1e4)
    for t in range(1, 201):
        one = hemisphere.observe(state, X[t - 1], y[t - 1])
        raw = rule @ g.hemisphere(X[t - 1])
        if rows > 1:
            assert np.abs(one.scores[0] - raw).max() <= tolerance * np.abs(rule).max(initial=1)
        elif np.abs(raw[0]) > tolerance:
            assert np.sign(one.scores[0]) == np.sign(raw[0])
        last = t if updates[t - 1] else last
        renewed = bool(last) and (t == last or math.log2(t - last).is_integer())
        assert one.changed.tolist() == [renewed]
        rule = np.mean(iterates[:t], axis=0) if renewed else rule
        state = one.state
        assert np.abs(state.w - iterates[t - 1]).max() <= tolerance * np.abs(iterates[t - 1]).max(initial=1)
        assert np.abs(state.rule - rule).max() <= tolerance * np.abs(rule).max(initial=1)
    assert (outcome.changed & ~updates).sum() > 5


def test_the_first_order_is_the_second_with_no_limit_to_a() -> None:
    """With a = 2^80 A is aI to the last bit, and w = ξ/a: the same updates, and the same rule but for its length"""
    rng = np.random.default_rng(1)
    X, y = points(rng, 300, 3, 4.0), rng.integers(3, size=300)
    first = hemisphere.observe(hemisphere.init(3, classes=3, a=math.inf), X, y)
    second = hemisphere.observe(hemisphere.init(3, classes=3, a=2.0**80), X, y)
    assert np.array_equal(first.updated, second.updated)
    assert np.array_equal(first.state.rule, second.state.rule * 2.0**80)


def test_a_fit_weighs_as_much_as_the_points_it_was_fitted_to() -> None:
    """One update after t₀ points: the rule moves by ΔW/(t₀ + 1)"""
    W = np.array([[1.0, 2.0, 0.5, -1.0]])
    x = np.array([[0.3, 0.1]])
    label = -1 if W[0] @ g.hemisphere(x[0]) >= 0 else 1
    state = hemisphere.observe(hemisphere.init(2, a=math.inf, W=W, points=999), x, [label]).state
    assert np.abs(state.rule - (W + label * g.hemisphere(x) / 1000)).max() <= 8 * EPS
    assert state.t == 1000


def test_a_fit_stays_good_while_the_stream_goes_on() -> None:
    """Noise moves the last iterate about; the average of a good start stays good"""
    rng = np.random.default_rng(3)
    X = points(rng, 6000, 2, 3.0)
    u = np.array([0.3, 1.0, -0.5, 0.2])
    y = flipped(rng, np.where(g.hemisphere(X) @ u >= 0, 1, -1).astype(np.int8), 0.1)
    right = {}
    for average in (False, True):
        outcome = hemisphere.observe(hemisphere.init(2, W=u, points=2000, average=average), X, y)
        right[average] = float(np.mean((outcome.scores >= 0) == (y > 0)))
    assert right[True] > 0.885
    assert right[False] < right[True] - 0.02


# ------------------------------------------------------------------------------ distances


def scored(w: Any, X: Array, c: float = 1.0) -> Array:
    w = np.atleast_2d(w)
    return hemisphere.score(replace(hemisphere.init(X.shape[1], c=c), rule=w), X)


@pytest.mark.parametrize("c", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_two_classes_are_scored_by_the_distance_to_the_sphere_between_them(c: float, d: int) -> None:
    """Circles d(x,m) = ρ, hypercycles at δ from a geodesic, horocycles by Busemann's function. Each to what ⟨w,φ⟩ loses
    by cancellation, eps·h₀ times the length of w, for the steepest slope of the distance."""
    rng = np.random.default_rng(d)
    X, m, u = points(rng, 300, d, 4.0), points(rng, 1, d, 2.0)[0], directions(rng, 1, d)[0]
    rho, root = 1.7, math.sqrt(c)
    h = g.to_hyperboloid(m)
    busemann = np.log(np.sum((u - X) ** 2, axis=1) / (1 - np.vecdot(X, X)))
    cases = [
        ([h[0], *-h[1:], -math.cosh(rho)], g.distance(X, m) - rho),
        ([0.0, *u, -math.sinh(0.4)], g.signed_distance(np.zeros(d), u, X) - 0.4),
        ([0.0, *u, math.sinh(0.4)], g.signed_distance(np.zeros(d), u, X) + 0.4),
        ([1.0, *-u, -math.exp(-0.5)], busemann + 0.5),
    ]
    tolerance = 64 * EPS * g.conformal_factor(X) ** 2
    for w, want in cases:
        for sign in (1, -1):
            got = scored(sign * np.array(w) * 3.0, X / root, c) * root
            assert np.all(np.abs(got - sign * want) <= tolerance * math.exp(8) * (1 + np.abs(want)))


def test_where_there_is_no_sphere_the_score_is_the_height_above_the_plane() -> None:
    X = points(np.random.default_rng(0), 50, 2, 5.0)
    for w in ([2.0, 0.1, 0.3, 1.0], [-2.0, 0.1, 0.3, -1.0], [3.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 1.0]):
        height = g.hemisphere(X) @ w / np.linalg.norm(w)
        assert np.all(np.abs(scored(w, X) - height) <= 8 * EPS)
    assert not scored(np.zeros(4), X).any()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(seed=seeds, kind=st.integers(0, 5), size=st.sampled_from([1e-150, 1.0, 1e150]))
def test_the_score_has_the_sign_of_the_product(seed: int, kind: int, size: float) -> None:
    """Also for points on the sphere to the last bit, spheres about to become horocycles, points, or nothing at all"""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    X = points(rng, 40, d, 12.0)
    w = rng.normal(size=d + 2)
    w[0] = np.linalg.norm(w[1:-1]) * (1 + (0, 1e-16, 1e-8, -1e-8, 0.5, -0.5)[kind]) * rng.choice([-1, 1])
    F = g.hemisphere(X)
    w[-1] = -(w[:-1] @ F[0, :-1]) / F[0, -1] if rng.random() < 0.7 else w[-1]  # through the first point
    w *= size
    scores = scored(w, X)
    raw = np.array([sum(a * b for a, b in zip(w, f, strict=True)) for f in F])
    assert np.isfinite(scores).all()
    assert np.array_equal(np.sign(scores), np.sign(raw))


# ------------------------------------------------------------------------------ theorems


def until_clean(state: hemisphere.State, X: Array, y: Any) -> hemisphere.State:
    for _ in range(3000):
        outcome = hemisphere.observe(state, X, y)
        state = outcome.state
        if not outcome.updated.any():
            return state
    raise AssertionError("no clean pass")


@theorem
@given(seed=seeds, gamma=st.sampled_from([0.05, 0.2, 0.5]), d=st.sampled_from([1, 2, 5]))
def test_the_first_order_converges_within_two_over_the_square_of_its_margin(seed: int, gamma: float, d: int) -> None:
    """k ≤ 2/γ², and k γ ≤ ‖w‖ caps the margin"""
    X, y = separated_on_the_hemisphere(np.random.default_rng(seed), 150, d, gamma)
    state = until_clean(hemisphere.init(d, a=math.inf), X, y)
    k = int(state.k[0])
    assert k <= 2 / gamma**2
    assert k * gamma <= np.linalg.norm(state.w) * (1 + 1e-12)


def test_the_first_order_bound_is_met() -> None:
    """Points at the rim, orthogonal in φ but for the 1: k comes within a factor of two of 2/γ²"""
    d = 6
    X, y = np.eye(d) * math.tanh(5), np.full(d, -1)
    state = until_clean(hemisphere.init(d, a=math.inf), np.vstack([X, -X]), np.concatenate([y, -y]))
    gamma = float(np.abs(g.hemisphere(X) @ np.r_[0, np.ones(d), 0]).min()) / math.sqrt(d)
    assert 1 / gamma**2 <= int(state.k[0]) <= 2 / gamma**2


@theorem
@given(seed=seeds, gamma=st.sampled_from([0.05, 0.2, 0.5]), a=st.sampled_from([1e-3, 1.0, 100.0]))
def test_the_second_order_converges_within_its_bound(seed: int, gamma: float, a: float) -> None:
    """k ≤ √((a + λ_max) log det(A/a))/γ, and k γ ≤ ‖ξ‖"""
    X, y = separated_on_the_hemisphere(np.random.default_rng(seed), 150, 3, gamma)
    state = until_clean(hemisphere.init(3, a=a), X, y)
    k, A = int(state.k[0]), state.factor[0].T @ state.factor[0]
    assert k <= math.sqrt(np.linalg.eigvalsh(A).max() * max(np.linalg.slogdet(A / a)[1], 0.0)) / gamma
    assert k * gamma <= np.linalg.norm(state.xi) * (1 + 1e-12)


@theorem
@given(seed=seeds, gamma=st.sampled_from([0.05, 0.2, 0.5]))
def test_the_pseudo_inverse_converges_within_its_bound(seed: int, gamma: float) -> None:
    """k γ ≤ √(λ_max Q), Q = Σ φᵀA_k⁺φ over the mistakes, A_k with the k-th of them in it"""
    X, y = separated_on_the_hemisphere(np.random.default_rng(seed), 150, 2, gamma)
    state, A = hemisphere.init(2, a=0.0, average=False), np.zeros((4, 4))
    Q = 0.0
    for x, label in zip(X, y, strict=True):
        outcome = hemisphere.observe(state, x, label)
        state = outcome.state
        if outcome.updated[0]:
            f = g.hemisphere(x)
            A += np.outer(f, f)
            Q += float(f @ np.linalg.pinv(A, rcond=1e-12, hermitian=True) @ f)
    assert int(state.k[0]) * gamma <= math.sqrt(np.linalg.eigvalsh(A).max() * Q) * (1 + 1e-9)


@theorem
@given(seed=seeds, noise=st.sampled_from([0.05, 0.2]), length=st.sampled_from([1.0, 4.0, 16.0]))
def test_on_noise_the_updates_are_bounded_by_the_hinge_loss_of_any_rule(seed: int, noise: float, length: float) -> None:
    """First order: √k ≤ (R‖u‖ + √(R²‖u‖² + 4L_u))/2, R² = 2.
    Second: k ≤ L_u + √((a‖u‖² + Σ⟨u,φ⟩²) ln det(A/a)), the sum over the mistakes. The first breaks for the second."""
    rng = np.random.default_rng(seed)
    X, y = separated_on_the_hemisphere(rng, 400, 3, 0.1)
    F = g.hemisphere(X)
    u = np.linalg.lstsq(F, y.astype(float), rcond=None)[0]
    u *= length / np.linalg.norm(u)
    y = flipped(rng, y, noise)
    loss = float(np.maximum(0, 1 - y * (F @ u)).sum())
    first = hemisphere.observe(hemisphere.init(3, a=math.inf), X, y)
    R = math.sqrt(2) * length
    assert math.sqrt(first.updated.sum()) <= (R + math.sqrt(R * R + 4 * loss)) / 2
    second = hemisphere.observe(hemisphere.init(3, a=1.0), X, y)
    A = second.state.factor[0].T @ second.state.factor[0]
    spread = length**2 + float(((F[second.updated] @ u) ** 2).sum())
    assert second.updated.sum() <= loss + math.sqrt(spread * np.linalg.slogdet(A)[1])
