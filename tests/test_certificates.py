"""Certificates: what is proven, from the state alone. That the bounds hold is shown in test_theorems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service import geometry as g
from service.certificates import certificate, class_certificates, radius
from service.errors import InvalidParameter
from service.learners import LEARNERS, hyperboloid, one_vs_rest, perceptron, second_order, strategic
from tests.strategies import points
from tests.streams import flipped, separable

P2 = np.array([0.2, -0.1])
FIRST: dict[str, Any] = {
    "perceptron": perceptron.init(P2),
    "second order": second_order.init(P2),
    "second order, a=0": second_order.init(P2, a=0.0),
    "strategic": strategic.init(P2, budget=0.5),
    "hyperboloid": hyperboloid.init(2),
}
every_learner = pytest.mark.parametrize("first", FIRST.values(), ids=FIRST.keys())


def learn(first: Any, X: Any, y: Any) -> Any:
    learner: Any = next(m for m in LEARNERS.values() if m.State is type(first))
    return learner.observe(first, X, y).state


@every_learner
def test_before_any_point_nothing_is_claimed(first: Any) -> None:
    proof = certificate(first, 0.3)
    assert (proof.updates, proof.radius, proof.largest_margin, proof.disproved) == (0, 0.0, None, False)
    assert certificate(first).bound is None
    assert certificate(first).disproved is None


@every_learner
def test_the_radius_is_the_largest_distance_seen(first: Any) -> None:
    X = points(np.random.default_rng(0), 100, 2, 5.0)
    p = np.zeros(2) if isinstance(first, hyperboloid.State) else P2
    assert certificate(learn(first, X, np.ones(100))).radius == pytest.approx(float(g.distance(p, X).max()), rel=1e-12)


@every_learner
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), epsilon=st.sampled_from([0.02, 0.1, 0.5, 1.0]))
def test_a_true_margin_is_never_disproved(first: Any, seed: int, epsilon: float) -> None:
    """k sinh ε ≤ ‖w‖ from the first half of every proof, on a single pass. Here no agent moves."""
    X, y, w = separable(np.random.default_rng(seed), 100, P2, epsilon)
    margin = float(np.abs(g.signed_distance(P2, w, X)).min())
    for n in (1, 2, 5, len(X)):
        proof = certificate(learn(first, X[:n], y[:n]), margin)
        assert proof.disproved is False


def test_rounding_disproves_no_margin_that_is_reached_exactly() -> None:
    """One point, one update: its own distance to p is a margin, and the cap is exactly that"""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        p, x = points(rng, 2, 5, 8.0)
        proof = certificate(learn(perceptron.init(p), [x], [-1]), float(g.distance(p, x)))
        assert proof.updates == 1
        assert proof.disproved is False
        assert proof.largest_margin == pytest.approx(proof.margin, rel=1e-4)


@every_learner
def test_noise_disproves_a_margin(first: Any) -> None:
    """With a third of the labels flipped no margin is left, and the certificate says so ever more sharply"""
    rng = np.random.default_rng(1)
    X, y, _ = separable(rng, 3000, P2, 0.5)
    proof = certificate(learn(first, X, flipped(rng, y)), 0.5)
    assert proof.disproved is True
    assert proof.largest_margin is not None
    assert proof.largest_margin < 0.2


def test_what_is_not_proven_is_none() -> None:
    X, y = [[0.3, 0.1], [-0.2, 0.5]], [-1, 1]
    assert certificate(learn(second_order.init(P2, a=0.0), X, y), 0.1).bound is None
    assert certificate(learn(strategic.init(P2, budget=1.0, estimate=True), X, y), 0.1).bound is None
    assert certificate(learn(hyperboloid.init(2), X[:1], y[:1]), 0.1).bound is None
    assert certificate(learn(hyperboloid.init(2), X, y), 0.1).bound is not None


def test_only_the_strategic_learner_has_a_wrong_bound_to_show() -> None:
    X, y = [[0.3, 0.1], [-0.2, 0.5]], [-1, 1]
    state = learn(strategic.init(P2, budget=1.0), X, y)
    proof = certificate(state, 0.1)
    r, sigma = radius(state), float(g.conformal_factor(P2))
    assert proof.paper_bound == pytest.approx(((math.sinh(r) + 1 / sigma) / math.sinh(0.1)) ** 2)
    q = math.hypot(r, 1.0)
    assert proof.bound == pytest.approx((r * math.sinh(q) / q / math.sinh(0.1)) ** 2)
    assert certificate(learn(perceptron.init(P2), X, y), 0.1).paper_bound is None


def test_lengths_are_in_the_units_of_the_curvature() -> None:
    X, y, _ = separable(np.random.default_rng(2), 100, P2, 0.1)
    one = certificate(learn(perceptron.init(P2), X, y), 0.2)
    four = certificate(learn(perceptron.init(P2 / 2, c=4.0), X / 2, y), 0.1)
    assert four.bound == pytest.approx(one.bound, rel=1e-12)
    assert four.radius == pytest.approx(one.radius / 2, rel=1e-12)
    assert one.largest_margin is not None
    assert four.largest_margin == pytest.approx(one.largest_margin / 2, rel=1e-12)


def test_k_classes_have_a_certificate_each() -> None:
    X = points(np.random.default_rng(3), 60, 2, 3.0)
    y = np.arange(60) % 3
    state = one_vs_rest.observe(one_vs_rest.init([perceptron.init(P2)] * 3), X, y).state
    proofs = class_certificates(state, 0.2)
    assert [proof.updates for proof in proofs] == [member.k for member in state.members]
    assert proofs == tuple(certificate(member, 0.2) for member in state.members)


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
def test_a_margin_must_be_positive(margin: float) -> None:
    with pytest.raises(InvalidParameter):
        certificate(FIRST["perceptron"], margin)


def test_a_margin_beyond_every_float_is_disproved_without_overflow() -> None:
    for first in FIRST.values():
        state = learn(first, [[0.3, 0.1], [-0.2, 0.5]], [-1, 1])
        proof = certificate(state, 1e4)
        assert proof.disproved is True
        assert proof.bound in (None, 0.0)
