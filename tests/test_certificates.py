"""Certificates: what is proven, from the state alone. That the bounds hold is shown in test_theorems."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from service import geometry as g
from service.api.schemas import Certified, OpenSession
from service.errors import InvalidParameter
from service.geometry import Array
from service.learners import (
    LEARNERS,
    auto,
    certificates,
    confidence,
    gaussian,
    hemisphere,
    hyperboloid,
    learner_of,
    one_vs_rest,
    perceptron,
    second_order,
    softmax,
    strategic,
)
from service.learners.certificates import certificate, largest_eigenvalue, leaves_the_ball, radius
from service.sessions.certify import certified
from service.sessions.records import Counters, Loaded
from service.sessions.rows import Batch
from tests.strategies import points
from tests.streams import flipped, rings, separable, separated_on_the_hemisphere

EPS = float(np.finfo(np.float64).eps)
P2 = np.array([0.2, -0.1])
FIRST: dict[str, Any] = {
    "perceptron": perceptron.init(P2),
    "second order": second_order.init(P2),
    "second order, a=0": second_order.init(P2, a=0.0),
    "strategic": strategic.init(P2, budget=0.5),
    "hyperboloid": hyperboloid.init(2),
}
#: Begun from weights, as from a fit.
PROMOTED: dict[str, Any] = {
    "perceptron, promoted": perceptron.init(P2, w=[3.0, -40.0]),
    "second order, promoted": second_order.init(P2, w=[3.0, -40.0]),
    "hyperboloid, promoted": hyperboloid.init(2, w=[-2.0, 0.3, -4.0]),
}
every_learner = pytest.mark.parametrize("first", FIRST.values(), ids=FIRST.keys())
every_start = pytest.mark.parametrize("first", [*FIRST.values(), *PROMOTED.values()], ids=[*FIRST, *PROMOTED])


def learn(first: Any, X: Any, y: Any) -> Any:
    learner: Any = next(m for m in LEARNERS.values() if m.State is type(first))
    return learner.observe(first, X, y).state


@every_start
def test_before_any_point_nothing_is_claimed(first: Any) -> None:
    proof = certificate(first, 0.3)
    assert (proof.updates, proof.radius, proof.largest_margin, proof.disproved) == (0, 0.0, None, False)
    assert certificate(first).bound is None
    assert certificate(first).disproved is None


@every_start
def test_the_radius_is_the_largest_distance_seen(first: Any) -> None:
    X = points(np.random.default_rng(0), 100, 2, 5.0)
    p = np.zeros(2) if isinstance(first, hyperboloid.State) else P2
    assert certificate(learn(first, X, np.ones(100))).radius == pytest.approx(float(g.distance(p, X).max()), rel=1e-12)


@every_start
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


@pytest.mark.parametrize("d", [1, 2, 5, 40])
def test_rounding_never_allows_fewer_updates_than_there_were(d: int) -> None:
    """One point at its own margin: (sinh r / sinh ε)² = 1, of which rounding made 0.9999999999999991"""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        p, x = points(rng, 2, d, 8.0)
        for first in (perceptron.init(p), strategic.init(p, budget=1e-9), second_order.init(p, a=1e-9)):
            state = learn(first, [x], [-1])
            proof = certificate(state, float(g.distance(p, x)))
            assert proof.updates == 1
            if isinstance(state, strategic.State) and leaves_the_ball(state):
                assert proof.bound is None
                continue
            assert proof.bound is not None
            assert 1 <= proof.bound
            if not isinstance(first, second_order.State):
                assert proof.bound <= 1 + 64 * EPS * math.exp(24)


@pytest.mark.parametrize("d", [1, 2, 10, 100, 300])
@pytest.mark.parametrize("a", [1e-8, 1.0, 100.0])
@pytest.mark.parametrize("updates", [0, 1, 3, 400])
def test_the_largest_eigenvalue_is_bounded_from_above(d: int, a: float, updates: int) -> None:
    rng = np.random.default_rng(d)
    Z = rng.normal(size=(updates, d)) * 10.0 ** rng.uniform(-3, 3, (updates, 1))
    U = np.linalg.qr(np.vstack([math.sqrt(a) * np.eye(d), Z]), mode="r")
    U *= np.sign(np.diag(U))[:, None]
    largest, bound = float(np.linalg.norm(U, 2)) ** 2, largest_eigenvalue(U, a)
    assert largest * (1 - 64 * EPS) <= bound <= 1.0101 * largest


SPECTRA: dict[str, Callable[[int], Array]] = {
    "all equal": np.ones,
    "two, nearly equal": lambda d: np.r_[1.0, 1 - 1e-9, np.full(d - 2, 0.5)],
    "all, nearly equal": lambda d: np.linspace(1 - 1e-3, 1.0, d),
    "evenly spread": lambda d: np.linspace(1e-3, 1.0, d),
    "one just outside": lambda d: np.r_[1.02, np.linspace(0.0, 1.0, d - 1)],
    "falling": lambda d: np.power(0.9, np.arange(d, dtype=np.float64)),
    "one of 10¹²": lambda d: np.r_[1e12, np.ones(d - 1)],
    "of a random matrix": lambda d: np.linalg.svd(np.random.default_rng(d).normal(size=(2 * d, d)))[1] ** 2,
}


@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("d", [65, 400])
def test_no_spectrum_makes_the_bound_too_small_or_loose(spectrum: Callable[[int], Array], turned: bool, d: int) -> None:
    """Also where λ_max is the last of a diagonal matrix, away from the others"""
    lengths = np.sqrt(spectrum(d))[::-1]
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    U: Array = np.linalg.qr(lengths[:, None] * Q)[1] if turned else np.diag(lengths)
    largest = float(lengths.max()) ** 2
    assert largest * (1 - 64 * d * EPS) <= largest_eigenvalue(U, 0.0) <= 1.06 * largest


def test_a_guess_that_is_too_low_is_not_taken() -> None:
    """λ_max = 1.03 away from where Lanczos begins, so that it sees the others alone, up to 1: the proof finds out"""
    d = 200
    rng, begun = np.random.default_rng(1), np.random.default_rng(0).standard_normal(d)
    first = rng.standard_normal(d)
    first -= first @ begun / (begun @ begun) * begun
    Q = np.linalg.qr(np.column_stack([first, rng.standard_normal((d, d - 1))]))[0]
    U: Array = np.linalg.qr(np.sqrt(np.r_[1.03, np.linspace(0.0, 1.0, d - 1)])[:, None] * Q.T)[1]
    assert certificates._ritz_value(U.T @ U) * 1.01 < 1.03
    assert 1.03 <= largest_eigenvalue(U, 0.0) <= 1.06


def test_a_certificate_without_a_margin_needs_no_eigenvalues(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds in thousands of dimensions"""
    asked = list[int]()

    def counted(U: Array, a: float) -> float:
        asked.append(len(U))
        return largest_eigenvalue(U, a)

    monkeypatch.setattr(certificates, "largest_eigenvalue", counted)
    for first in (second_order.init(np.zeros(100)), hemisphere.init(100)):
        state = learn(first, points(np.random.default_rng(0), 3, 100, 2.0), [-1, -1, -1])
        assert certificate(state).largest_margin is not None
        assert asked == []
        assert certificate(state, 0.1).bound is not None
        assert asked.pop() == len(state.factor[-1])


@every_start
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
    assert certificate(learn(strategic.init(P2, budget=1.0, estimate=True), X, y), 0.1).bound is None
    assert certificate(learn(hyperboloid.init(2), X[:1], y[:1]), 0.1).bound is None
    assert certificate(learn(hyperboloid.init(2), X, y), 0.1).bound is not None
    promoted = certificate(learn(second_order.init(P2, w=[1.0, 2.0]), X, y), 0.1)
    assert promoted.bound is None
    assert promoted.largest_margin is not None
    promoted = certificate(learn(strategic.init(P2, budget=1.0, w=[1.0, 2.0]), X, y), 0.1)
    assert (promoted.bound, promoted.largest_margin, promoted.disproved) == (None, None, False)


def test_a_learner_begun_from_weights_keeps_them_in_its_certificate() -> None:
    """k ≤ (sinh r/sinh ε)² + 2‖w₁‖/sinh ε and ε ≤ asinh(‖w−w₁‖/k), the hyperboloid's times what its w* can be"""
    X, y, _ = separable(np.random.default_rng(4), 200, P2, 0.2)
    for first in PROMOTED.values():
        state = learn(first, X, y)
        proof, start = certificate(state, 0.2), float(np.linalg.norm(first.start))
        assert np.array_equal(state.start, first.start)
        assert state.k > 0
        assert start > 4
        r, sinh = radius(state), math.sinh(0.2)
        if isinstance(first, perceptron.State):
            assert proof.bound == pytest.approx((math.sinh(r) / sinh) ** 2 + 2 * start / sinh)
            moved = float(np.linalg.norm(state.w - state.start))
            assert proof.largest_margin == pytest.approx(math.asinh(moved / state.k), rel=1e-9)
        elif isinstance(first, hyperboloid.State):
            steep = math.sqrt(math.cosh(2 * (r - 0.2))) / sinh
            assert proof.bound == pytest.approx(math.cosh(2 * r) * steep**2 + 2 * start * steep)
            moved, cap = float(np.linalg.norm(state.w - state.start)), proof.largest_margin
            assert cap is not None
            assert state.k * math.sinh(cap) == pytest.approx(moved * math.sqrt(math.cosh(2 * (r - cap))), rel=1e-9)
        else:
            moved = float(np.linalg.norm(state.xi - state.start))
            assert proof.largest_margin == pytest.approx(math.asinh(moved / state.k), rel=1e-9)


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
    assert one.radius is not None
    assert four.radius == pytest.approx(one.radius / 2, rel=1e-12)
    assert one.largest_margin is not None
    assert four.largest_margin == pytest.approx(one.largest_margin / 2, rel=1e-12)


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
def test_a_margin_must_be_positive(margin: float) -> None:
    with pytest.raises(InvalidParameter):
        certificate(FIRST["perceptron"], margin)


def test_a_margin_beyond_every_float_is_disproved_without_overflow() -> None:
    for first in (*FIRST.values(), *PROMOTED.values()):
        state = learn(first, [[0.3, 0.1], [-0.2, 0.5], [-0.3, -0.1], [0.2, -0.5]], [-1, 1, 1, -1])
        proof = certificate(state, 1e4)
        assert proof.disproved is True
        assert proof.bound in (None, 0.0)


# ------------------------------------------------------------------------------- the best margin there is


def best_margin(p: Array, X: Array, y: NDArray[Any], c: float) -> float:
    """max over w = (cos θ, sin θ) of min y·d(x, H_{w,p}), in the plane: first all around, then near the best"""

    def least(theta: float) -> float:
        side = g.signed_distance(p, [math.cos(theta), math.sin(theta)], X, c=c)
        return float((y * side).min())

    around = np.linspace(-math.pi, math.pi, 2001)
    at = max(around, key=least)
    near = minimize_scalar(
        lambda theta: -least(theta), bounds=(at - 0.004, at + 0.004), method="bounded", options={"xatol": 1e-12}
    )
    return -float(near.fun)


def observed(http: httpx.Client, X: Array, indices: Any, **fields: Any) -> str:
    sid = str(http.post("/sessions", json={"dimension": 2, "reference": "origin", **fields}).json()["id"])
    rows = np.column_stack([X, indices]).tobytes()
    headers = {"content-type": "application/octet-stream"}
    assert http.post(f"/sessions/{sid}/observe", content=rows, headers=headers).status_code == 200
    return sid


@pytest.mark.parametrize("algorithm", ["perceptron", "second_order", "strategic"])
@pytest.mark.parametrize("c", [1.0, 2.0])
def test_the_best_margin_is_found_and_makes_the_bound_a_number(http: httpx.Client, algorithm: str, c: float) -> None:
    p = P2 / math.sqrt(c)
    X, y, _ = separable(np.random.default_rng(5), 300, p, 0.1, c=c)
    fields = {"algorithm": algorithm, "curvature": c, "reference": p.tolist(), "budget": 0.2}
    sid = observed(http, X, y > 0, **fields)
    told = http.get(f"/sessions/{sid}/certificate", params={"margin": "best"}).json()
    assert told["margin"] == pytest.approx(best_margin(p, X, y, c), rel=1e-6)
    assert told["margin"] >= 0.1
    assert (told["points"], told["whole_stream"]) == (300, True)
    if algorithm != "strategic":  # whose points here are no rational agents'
        assert told["updates"] <= told["bound"]
        assert told["disproved"] is False
    stated = http.get(f"/sessions/{sid}/certificate", params={"margin": repr(told["margin"])}).json()
    claims = ("moved them to" in note for note in told["notes"])  # best is of where agents went, not of where they were
    assert any(claims) == (algorithm == "strategic")
    assert {**stated, "points": 300, "whole_stream": True, "notes": told["notes"]} == told


def test_the_best_margin_of_k_classes_is_one_a_class(http: httpx.Client) -> None:
    rng = np.random.default_rng(6)
    E = np.array([[1, 0], [-0.5, 0.866], [-0.5, -0.866]])
    indices = rng.integers(3, size=200)
    X = g.mobius_add(0.8 * E[indices], points(rng, 200, 2, 0.5))
    sid = observed(http, X, indices, labels=["a", "b", "c"])
    told = http.get(f"/sessions/{sid}/certificate?margin=best").json()
    margins = [best_margin(np.zeros(2), X, np.where(indices == j, 1, -1), 1.0) for j in range(3)]
    assert [each["margin"] for each in told["classes"]] == pytest.approx(margins, rel=1e-6)
    assert told["margin"] == min(each["margin"] for each in told["classes"])
    assert told["bound"] == pytest.approx(sum(each["bound"] for each in told["classes"]))
    assert told["mistakes"] <= told["bound"]
    assert all(each["updates"] <= each["bound"] for each in told["classes"])

    mixed = np.where((indices < 2) & (np.arange(200) < 20), 1 - indices, indices)  # some of a and b, but none of c
    sid = observed(http, X, mixed, labels=["a", "b", "c"])
    told = http.get(f"/sessions/{sid}/certificate?margin=best").json()
    assert (told["margin"], told["bound"]) == (None, None)
    assert [each["margin"] is None for each in told["classes"]] == [True, True, False]
    assert told["classes"][2]["bound"] is not None


def test_points_that_no_classifier_separates_have_no_best_margin(http: httpx.Client) -> None:
    rng = np.random.default_rng(7)
    X, y, _ = separable(rng, 200, np.zeros(2), 0.1)
    sid = observed(http, X, flipped(rng, y, 0.2) > 0)
    told = http.get(f"/sessions/{sid}/certificate?margin=best").json()
    assert (told["margin"], told["bound"], told["disproved"]) == (None, None, None)
    assert told["largest_margin"] is not None


@pytest.mark.parametrize("algorithm", ["perceptron", "second_order"])
def test_points_on_the_reference_point_have_no_best_margin(http: httpx.Client, algorithm: str) -> None:
    """Their lift is 0, on no side of anything"""
    sid = observed(http, np.zeros((2, 2)), [1, 0], algorithm=algorithm)
    answer = http.get(f"/sessions/{sid}/certificate?margin=best")
    assert (answer.status_code, answer.json()["margin"]) == (200, None)


def test_the_best_margin_is_that_of_the_points_that_are_kept(http: httpx.Client) -> None:
    X, y, _ = separable(np.random.default_rng(8), 400, np.zeros(2), 0.1)
    sid = observed(http, X[:200], y[:200] > 0, keep_points=100)
    rows = np.column_stack([X[200:300], y[200:300] > 0]).tobytes()
    http.post(f"/sessions/{sid}/observe", content=rows, headers={"content-type": "application/octet-stream"})
    told = http.get(f"/sessions/{sid}/certificate?margin=best").json()
    assert (told["points"], told["whole_stream"], told["observed"]) == (100, False, 300)
    assert told["margin"] == pytest.approx(best_margin(np.zeros(2), X[200:300], y[200:300], 1.0), rel=1e-6)


def test_where_a_class_is_missing_its_label_is_named(http: httpx.Client) -> None:
    X = points(np.random.default_rng(9), 20, 2, 2.0)
    for labels, indices, missing in (
        (["no", "yes"], np.zeros(20), "yes"),
        (["no", "yes"], np.ones(20), "no"),
        (["a", "b", "c"], np.zeros(20), "b"),
        (["a", "b", "c"], np.arange(20) % 2, "c"),
    ):
        sid = observed(http, X, indices, labels=labels)
        answer = http.get(f"/sessions/{sid}/certificate?margin=best")
        told = answer.json()
        assert (answer.status_code, told["type"], told["label"]) == (422, "/problems/empty-class", missing)
    empty = http.post("/sessions", json={"dimension": 2, "reference": "origin"}).json()["id"]
    assert http.get(f"/sessions/{empty}/certificate?margin=best").json()["type"] == "/problems/empty-class"
    flat = observed(http, X, np.arange(20) % 2, algorithm="hyperboloid")
    answer = http.get(f"/sessions/{flat}/certificate?margin=best")
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-parameter")
    for wrong in ("worst", "", "0", "-1", "nan"):
        answer = http.get(f"/sessions/{flat}/certificate", params={"margin": wrong})
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-parameter")


# ------------------------------------------------------------------------------- what needs no margin


def loaded(state: Any, X: Array, indices: Any, mistakes: int = 0, labels: tuple[Any, ...] = (-1, 1)) -> Loaded:
    """A session of that learner which has observed these points"""
    spec = OpenSession(dimension=2, labels=list(labels)).spec()
    outcome = learner_of(state).observe(state, X, spec.targets(np.asarray(indices)))
    updates = int(np.count_nonzero(outcome.updated))
    counters = Counters(len(X), mistakes, updates, updates)
    return Loaded(spec, 1, counters, outcome.state)


def test_every_certificate_has_an_error_rate(http: httpx.Client) -> None:
    """At all times at once: wider than 1.96 standard errors, and by the formula of `confidence`"""
    rng = np.random.default_rng(3)
    X, y, _ = separable(rng, 2000, P2, 0.05)
    sid = observed(http, X, flipped(rng, y, 0.1) > 0, algorithm="perceptron", reference="origin")
    told = http.get(f"/sessions/{sid}/certificate").json()
    rate, p = told["error_rate"], told["mistakes"] / 2000
    assert rate["estimate"] == p
    assert (
        rate["low"] < p - 1.96 * math.sqrt(p * (1 - p) / 2000) < p + 1.96 * math.sqrt(p * (1 - p) / 2000) < rate["high"]
    )
    assert rate == asdict(confidence.interval(2000, told["mistakes"]))
    empty = http.post("/sessions", json={"dimension": 2}).json()["id"]
    rate = http.get(f"/sessions/{empty}/certificate").json()["error_rate"]
    assert (rate["estimate"], rate["low"], rate["high"]) == (None, 0.0, 1.0)


def test_a_vote_is_certified_by_its_best_member() -> None:
    rng = np.random.default_rng(0)
    X, y = rings(rng, 500, 4)
    session = loaded(auto.default(2, classes=4), X, y, labels=("a", "b", "c", "d"))
    told = certified(session, None)
    vote, state = told["vote"], session.state
    assert vote["mistakes"] == state.errors <= vote["bound"]
    assert vote["bound"] == auto.bound(int(state.mistakes.min()), 3)
    names = ["second_order", "softmax", "gaussian"]
    assert vote["members"] == [
        {"algorithm": name, "mistakes": int(m)} for name, m in zip(names, state.mistakes, strict=True)
    ]
    assert vote["best"] == names[int(state.mistakes.argmin())]
    assert (told["bound"], told["classes"], told["radius"]) == (None, None, None)
    [note] = told["notes"]
    assert "needs no margin" in note
    anew = replace(session, counters=replace(session.counters, observed=700))  # it began anew after 200 points
    assert [note.split(":")[0] for note in certified(anew, 0.1)["notes"]] == [
        "vote",
        "vote is of the newest 500 of 700 points",
        "margin",
    ]
    with pytest.raises(InvalidParameter):
        certified(session, -1.0)


@pytest.mark.parametrize("learner", [softmax, gaussian])
def test_where_nothing_is_proven_a_sentence_says_so(learner: Any) -> None:
    X, y = rings(np.random.default_rng(0), 100, 3)
    told = certified(
        loaded(learner.init(2, classes=3), X, y, labels=(0, 1, 2)), 0.1, Batch(X, y), best=True, hinge=True
    )
    assert (told["bound"], told["largest_margin"], told["hinge"], told["vote"]) == (None, None, None, None)
    assert any("error_rate" in note for note in told["notes"])
    Certified.model_validate(told)


@pytest.mark.parametrize("a", [1.0, math.inf])
def test_the_margin_on_the_hemisphere_is_euclids(a: float) -> None:
    """margin=best is the hard margin on φ: no other plane through 0 has a larger one"""
    rng = np.random.default_rng(1)
    X, y = separated_on_the_hemisphere(rng, 300, 2, 0.1)
    indices = (y > 0).astype(np.int64)
    told = certified(loaded(hemisphere.init(2, a=a), X, indices), None, Batch(X, indices), best=True)
    F = y[:, None] * g.hemisphere(X)
    assert 0.1 <= told["margin"] < math.sqrt(2)
    tried = rng.normal(size=(20_000, 4))
    assert (F @ tried.T / np.linalg.norm(tried, axis=1)).min(axis=0).max() <= told["margin"]
    assert told["updates"] <= told["bound"]
    assert told["margin"] <= told["largest_margin"]
    if a == math.inf:
        assert told["bound"] == pytest.approx(2 / told["margin"] ** 2)
    assert any("γ" in note for note in told["notes"])


def test_k_classes_on_the_hemisphere_have_a_proof_each() -> None:
    X, y = rings(np.random.default_rng(2), 600, 3)
    session = loaded(hemisphere.init(2, classes=3, a=math.inf), X, y, labels=("a", "b", "c"))
    told = certified(session, None, Batch(X, y), best=True, hinge=True)
    shown = Certified.model_validate(told).model_dump()
    assert "label" not in shown and [each["label"] for each in shown["classes"]] == ["a", "b", "c"]
    assert [each["label"] for each in told["classes"]] == ["a", "b", "c"]
    for each, k in zip(told["classes"], session.state.k, strict=True):
        assert each["updates"] == k <= each["hinge"]["bound"]
        assert each["bound"] is None or k <= each["bound"]
    assert told["hinge"]["bound"] == pytest.approx(sum(each["hinge"]["bound"] for each in told["classes"]))
    assert told["updates"] <= told["hinge"]["bound"]


def test_classes_that_nothing_separates_are_named() -> None:
    X, y = rings(np.random.default_rng(2), 600, 3)
    mixed = np.where(np.arange(600) % 7 == 0, np.where(y == 0, 1, np.where(y == 1, 0, y)), y)
    labels = ("oak", "elm", "fir")
    told = certified(loaded(hemisphere.init(2, classes=3), X, mixed, labels=labels), None, Batch(X, mixed), best=True)
    [note] = [note for note in told["notes"] if "separates" in note]
    assert "oak, elm" in note
    assert "loss=hinge" in note
    lifted = one_vs_rest.init([perceptron.init(np.zeros(2))] * 3)
    told = certified(loaded(lifted, X, mixed, labels=labels), None, Batch(X, mixed), best=True)
    [note] = [note for note in told["notes"] if "separates" in note]
    assert "without a reference point" in note


def test_two_classes_that_nothing_separates_are_told() -> None:
    X, y = np.array([[0.1, 0.2], [0.1, 0.2]]), np.array([0, 1])
    for first, remedy in ((hemisphere.init(2), "loss=hinge"), (perceptron.init(P2), "without a reference point")):
        told = certified(loaded(first, X, y), None, Batch(X, y), best=True)
        assert (told["margin"], told["bound"]) == (None, None)
        [note] = [note for note in told["notes"] if "Nothing separates the two classes" in note]
        assert remedy in note


def test_the_hinge_bounds_need_the_whole_stream_and_a_start_at_nothing() -> None:
    rng = np.random.default_rng(1)
    X, y = separated_on_the_hemisphere(rng, 300, 2, 0.1)
    y = flipped(rng, y, 0.1)
    indices = (y > 0).astype(np.int64)
    whole = loaded(hemisphere.init(2, a=1.0), X, indices)
    told = certified(whole, None, Batch(X, indices), hinge=True)
    assert whole.state.k[0] <= told["hinge"]["bound"] < 300
    assert told["hinge"]["loss"] > 0
    part = certified(whole, None, Batch(X[50:], indices[50:]), hinge=True)
    assert part["hinge"] is None
    assert any("250 of 300 points" in note for note in part["notes"])
    promoted = loaded(hemisphere.init(2, W=[0.1, 1.0, 0.0, 0.0], points=50), X, indices)
    restarted = replace(whole, counters=replace(whole.counters, observed=400))
    for session, kept, says in (
        (promoted, Batch(X, indices), "began from a fit"),
        (restarted, Batch(np.vstack([X, X[:100]]), np.r_[indices, indices[:100]]), "began anew"),
        (loaded(perceptron.init(P2), X, indices), Batch(X, indices), "without a reference point"),
    ):
        told = certified(session, None, kept, hinge=True)
        assert told["hinge"] is None
        assert any(says in note for note in told["notes"])


def test_hinge_bounds_of_one_class_alone_are_those_of_a_constant() -> None:
    X = points(np.random.default_rng(1), 100, 2, 5.0)
    negative = np.zeros(100, dtype=np.int64)
    for a in (math.inf, 1.0, 0.0):
        session = loaded(hemisphere.init(2, a=a), X, negative)
        assert certified(session, None)["hinge"] is None
        told = certified(session, None, Batch(X, negative), hinge=True)
        assert told["hinge"]["loss"] == 0
        assert session.state.k[0] <= told["hinge"]["bound"]
        assert told["hinge"]["bound"] == pytest.approx(2) or a < math.inf


def test_a_strategic_learner_near_the_rim_has_no_bound_and_says_why(http: httpx.Client) -> None:
    far = g.exp_map(np.zeros(2), np.array([[6.1, 0.0], [-6.1, 0.0]]))
    sid = observed(http, far, [1, 0], algorithm="strategic", budget=3.0, reference="origin")
    told = http.get(f"/sessions/{sid}/certificate?margin=0.1").json()
    assert (told["bound"], told["paper_bound"]) == (None, None)
    assert any("radius limit" in note for note in told["notes"])
    near = observed(http, far / 2, [1, 0], algorithm="strategic", budget=3.0, reference="origin")
    told = http.get(f"/sessions/{near}/certificate?margin=0.1").json()
    assert told["bound"] is not None
    assert not any("radius limit" in note for note in told["notes"])


def test_a_loss_that_is_not_hinge_is_refused(http: httpx.Client) -> None:
    sid = http.post("/sessions", json={"dimension": 2}).json()["id"]
    assert http.get(f"/sessions/{sid}/certificate?loss=squared").status_code == 422


def test_a_default_session_is_certified_by_its_vote_and_its_error_rate(http: httpx.Client) -> None:
    X, y = rings(np.random.default_rng(4), 600, 4)
    sid = observed(http, X, y, labels=["a", "b", "c", "d"], reference=None)
    told = http.get(f"/sessions/{sid}/certificate", params={"margin": "best", "loss": "hinge"}).json()
    vote, rate = told["vote"], told["error_rate"]
    assert vote["mistakes"] == told["mistakes"] <= vote["bound"]
    assert vote["points"] == told["observed"] == 600
    assert [member["algorithm"] for member in vote["members"]] == ["second_order", "softmax", "gaussian"]
    assert vote["best"] in {m["algorithm"] for m in vote["members"] if m["mistakes"] == min_mistakes(vote)}
    assert rate["low"] <= rate["estimate"] == told["mistakes"] / 600 <= rate["high"] < 0.25
    assert (told["bound"], told["hinge"], told["classes"]) == (None, None, None)


def min_mistakes(vote: dict[str, Any]) -> int:
    return min(int(member["mistakes"]) for member in vote["members"])


@pytest.mark.parametrize("algorithm", ["perceptron", "second_order"])
def test_a_noisy_session_on_the_hemisphere_has_hinge_bounds(http: httpx.Client, algorithm: str) -> None:
    rng = np.random.default_rng(5)
    X, y = separated_on_the_hemisphere(rng, 400, 2, 0.1)
    sid = observed(http, X, flipped(rng, y, 0.1) > 0, algorithm=algorithm, reference=None)
    told = http.get(f"/sessions/{sid}/certificate", params={"loss": "hinge", "margin": "best"}).json()
    assert (told["margin"], told["bound"], told["radius"]) == (None, None, None)
    assert told["updates"] <= told["hinge"]["bound"]
    assert (told["points"], told["whole_stream"]) == (400, True)
    stated = http.get(f"/sessions/{sid}/certificate", params={"margin": 0.1}).json()
    assert stated["disproved"] is True
    assert stated["largest_margin"] < 0.1
