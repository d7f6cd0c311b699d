"""The contract of every learner: exact sequential semantics, purity, bounded memory. And the learners themselves
against the textbook, written as the paper prints it."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service import geometry as g
from service.api.schemas import Algorithm
from service.errors import (
    DimensionMismatch,
    HorocycleError,
    InvalidParameter,
    LengthMismatch,
    NonFinite,
    NotANumber,
    PointOutsideBall,
    UnknownLabel,
)
from service.geometry import Array
from service.learners import (
    LEARNERS,
    auto,
    encode,
    gaussian,
    hemisphere,
    hyperboloid,
    one_vs_rest,
    perceptron,
    second_order,
    softmax,
    strategic,
)
from tests.learner_cases import CASES, LAST_ITERATES, P3, W3, Case, stream
from tests.strategies import points
from tests.streams import flipped, separable

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def same(left: Any, right: Any) -> bool:
    return encode(left) == encode(right)


@every_case
@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 80), max_size=6))
def test_a_batch_is_a_fold_of_singles_however_it_is_cut(case: Case, seed: int, cuts: list[int]) -> None:
    X, y = stream(case, seed, 80)
    whole = case.learner.observe(case.first(), X, y)
    for edges in ([0, *sorted(cuts), 80], range(81)):
        state, scores, changed, updated = case.first(), [], [], []
        for i, j in itertools.pairwise(edges):
            outcome = case.learner.observe(state, X[i:j], y[i:j])
            state = outcome.state
            scores.append(outcome.scores)
            changed.append(outcome.changed)
            updated.append(outcome.updated)
        assert same(state, whole.state)
        assert np.array_equal(np.concatenate(scores), whole.scores)
        assert np.array_equal(np.concatenate(changed), whole.changed)
        assert np.array_equal(np.concatenate(updated), whole.updated)
    assert whole.changed.any()


@pytest.mark.parametrize("c", [1.0, 4.0])
@pytest.mark.parametrize("a", [0.0, 1.0])
@pytest.mark.parametrize("steps", [(0, 0, 0, 0), (0, 1, 1, 2), (0, 1, 2, 3)], ids=["one p", "some", "own p"])
@pytest.mark.parametrize("until_change", [False, True])
def test_second_order_learners_together_are_what_each_is_alone(
    c: float, a: float, steps: tuple[int, ...], until_change: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, also where they share reference points, and while their mistakes span little: few in a plane"""
    rng = np.random.default_rng(len(steps))
    X = points(rng, 400, 3, 4.0) / math.sqrt(c)
    X[:40, 2] = 0.0
    y = rng.integers(4, size=400)
    members = [second_order.init(step * P3 / 4 / math.sqrt(c), c=c, a=a) for step in steps]
    together = alone = one_vs_rest.init(members)
    for block in np.array_split(np.arange(400), 7):
        outcome = one_vs_rest.observe(together, X[block], y[block], until_change=until_change)
        with monkeypatch.context() as patch:
            patch.setattr(one_vs_rest, "TOGETHER", 0)
            expected = one_vs_rest.observe(alone, X[block], y[block], until_change=until_change)
        together, alone = outcome.state, expected.state
        assert same(together, alone)
        assert np.array_equal(outcome.scores, expected.scores)
        assert np.array_equal(outcome.changed, expected.changed)
    assert all(member.k for member in together.members)


@every_case
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_until_change_stops_after_the_first_change_and_loses_nothing(case: Case, seed: int) -> None:
    X, y = stream(case, seed, 40)
    state, at = case.first(), 0
    while at < 40:
        outcome = case.learner.observe(state, X[at:], y[at:], until_change=True)
        assert outcome.accepted == len(outcome.scores) >= 1
        assert not outcome.changed[:-1].any()
        assert outcome.changed[-1] or at + outcome.accepted == 40
        assert np.array_equal(outcome.scores, case.learner.score(state, X[at : at + outcome.accepted]))
        state, at = outcome.state, at + outcome.accepted
    if case is not CASES["strategic, estimating"]:  # which learns more from points that answer it
        assert same(state, case.learner.observe(case.first(), X, y).state)


@every_case
def test_scores_are_those_before_each_point_was_learned_and_rows_are_independent(case: Case) -> None:
    X, y = stream(case, 1, 60)
    state = case.first()
    for x, label in zip(X, y, strict=True):
        before = case.learner.score(state, x)
        outcome = case.learner.observe(state, x, label)
        assert np.array_equal(before, outcome.scores)
        state = outcome.state
    batch = case.learner.score(state, X)
    for i, x in enumerate(X):
        assert np.array_equal(case.learner.score(state, x)[0], batch[i])
    assert np.array_equal(case.learner.score(state, X[7:23]), batch[7:23])
    assert np.array_equal(case.learner.score(state, X[::3]), batch[::3])
    assert np.array_equal(case.learner.score(state, np.asfortranarray(X)), batch)


@pytest.mark.parametrize("case", LAST_ITERATES)
def test_a_change_is_a_wrong_prediction_and_sgn_0_is_positive(case: Case) -> None:
    X, y = stream(case, 2, 60)
    outcome = case.learner.observe(case.first(), X, y)
    if case.learner is one_vs_rest:
        wrong = ((outcome.scores >= 0) != (y[:, None] == np.arange(len(case.classes)))).any(axis=1)
    else:
        wrong = np.where(outcome.scores >= 0, 1, -1) != y
    assert np.array_equal(wrong, outcome.changed)
    assert np.array_equal(wrong, outcome.updated)


@every_case
def test_inputs_are_untouched_and_predict_is_pure(case: Case) -> None:
    X, y = stream(case, 3, 50)
    state = case.learner.observe(case.first(), X, y).state
    kept, kept_X, kept_y = copy.deepcopy(state), X.copy(), y.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    first = case.learner.predict(state, X)
    case.learner.observe(state, X, y)
    assert np.array_equal(case.learner.predict(state, X), first)
    assert same(state, kept)
    assert np.array_equal(X, kept_X)
    assert np.array_equal(y, kept_y)
    if len(case.classes) > 2:
        assert np.array_equal(first, np.argmax(case.learner.score(state, X), axis=1))
    else:
        assert np.array_equal(first, np.where(case.learner.score(state, X) >= 0, 1, -1))


@every_case
def test_memory_is_bounded(case: Case) -> None:
    X, y = stream(case, 4, 50)
    early = case.learner.observe(case.first(), X, y).state
    late = early
    for _ in range(20):
        late = case.learner.observe(late, X, y).state
    assert len(encode(late)) == len(encode(early))


@every_case
def test_nothing_in_nothing_out(case: Case) -> None:
    state = case.first()
    outcome = case.learner.observe(state, np.empty((0, 3)), [])
    assert outcome.accepted == len(outcome.scores) == 0
    assert same(outcome.state, state)
    assert len(case.learner.predict(state, np.empty((0, 3)))) == 0


@every_case
def test_bad_points_and_labels_are_named(case: Case) -> None:
    state, good, fine = case.first(), np.zeros((3, 3)), [*list(case.classes[:2]), case.classes[0]]
    spoil = np.zeros((3, 3))

    def refused(error: type[HorocycleError], X: Any, y: Any, **members: object) -> None:
        with pytest.raises(error) as caught:
            case.learner.observe(state, X, y)
        assert {name: caught.value.members[name] for name in members} == members

    spoil[1, 2] = np.nan
    refused(NonFinite, spoil, fine, index=1, value="nan")
    spoil[1, 2] = 5.0
    refused(PointOutsideBall, spoil, fine, index=1, norm=5.0)
    refused(DimensionMismatch, np.zeros((3, 4)), fine, expected=3, got=4)
    refused(NotANumber, [["a", "b", "c"]] * 3, fine)
    refused(LengthMismatch, good, fine[:2], points=3, labels=2)
    refused(UnknownLabel, good, [fine[0], 7, fine[0]], index=1, value="7")
    refused(UnknownLabel, good, [fine[0], fine[1], 0.5], index=2, value="0.5")
    refused(UnknownLabel, good, [True, False, True], index=0, value="True")
    with pytest.raises(PointOutsideBall):
        case.learner.score(state, [5.0, 0.0, 0.0])


def test_bad_parameters_are_named() -> None:
    for make in (
        lambda: perceptron.init(P3, c=0.0),
        lambda: perceptron.init([[0.1, 0.2], [0.0, 0.0]]),
        lambda: second_order.init(P3, a=-1.0),
        lambda: second_order.init(P3, a=math.nan),
        lambda: second_order.init(P3, a=0.0, w=W3[0]),
        lambda: strategic.init(P3, budget=0.0),
        lambda: strategic.init(P3, budget=math.inf),
        lambda: hyperboloid.init(0),
        lambda: hyperboloid.init(2, c=-1.0),
        lambda: one_vs_rest.init([perceptron.init(P3)]),
        lambda: hemisphere.init(0),
        lambda: hemisphere.init(2, c=0.0),
        lambda: hemisphere.init(2, a=-1.0),
        lambda: hemisphere.init(2, a=math.nan),
        lambda: hemisphere.init(2, classes=1.5),  # type: ignore[arg-type]
        lambda: hemisphere.init(2, classes=0),
        lambda: hemisphere.init(2, points=-1),
        lambda: hemisphere.init(2, a=0.0, W=[1.0, 0.0, 0.0, 0.0]),
        lambda: hemisphere.init(2, classes=3, W=np.ones((2, 4))),
        lambda: auto.init([]),
        lambda: auto.init([gaussian.init(2)], classes=1),
        lambda: softmax.init(2, classes=0),
        lambda: softmax.init(2, classes=3, W=np.ones((2, 4))),
        lambda: gaussian.init(2, c=-1.0),
        lambda: gaussian.merge(gaussian.init(2), gaussian.init(3)),
        lambda: gaussian.merge(gaussian.init(2), gaussian.init(2, c=2.0)),
        lambda: one_vs_rest.init([perceptron.init(P3), hyperboloid.init(3)]),
        lambda: one_vs_rest.init([strategic.init(P3, budget=1.0)] * 3),  # type: ignore[list-item]
    ):
        with pytest.raises(InvalidParameter):
            make()
    begin: tuple[Callable[[Any], Any], ...] = (
        lambda w: perceptron.init(P3, w=w),
        lambda w: second_order.init(P3, w=w),
        lambda w: strategic.init(P3, budget=1.0, w=w),
        lambda w: hyperboloid.init(2, w=w),
    )
    for first in begin:
        for w in ([1.0, 2.0], [1.0] * 4, [[1.0, 2.0, 3.0]]):
            with pytest.raises(DimensionMismatch):
                first(w)
        for wrong in (math.nan, math.inf):
            with pytest.raises(NonFinite):
                first([0.0, wrong, 1.0])
    with pytest.raises(DimensionMismatch):
        hemisphere.init(2, W=[1.0, 2.0, 3.0])
    with pytest.raises(NonFinite):
        hemisphere.init(1, W=[1.0, 2.0, math.nan])
    with pytest.raises(PointOutsideBall):
        perceptron.init([2.0, 0.0])


def test_every_learner_is_listed_and_frozen() -> None:
    assert {case.learner for case in CASES.values()} == set(LEARNERS.values())
    for learner in LEARNERS.values():
        assert isinstance(learner, ModuleType)
        state = next(case.first() for case in CASES.values() if case.learner is learner)
        with pytest.raises(AttributeError):
            setattr(state, fields(state)[0].name, None)


# ------------------------------------------------------------------------- against the textbook


def textbook_perceptron(X: Array, y: Any, p: Array) -> tuple[Array, int]:
    """Algorithm 1, as printed: η_t = 2tanh(σ‖v‖/2)/((1−tanh²(σ‖v‖/2))‖v‖), w ← w + η y v"""
    w, k, sigma = np.zeros(p.size), 0, float(g.conformal_factor(p))
    for x, label in zip(X, y, strict=True):
        v = g.log_map(p, x)
        th = math.tanh(sigma * float(np.linalg.norm(v)) / 2)
        if (1 if w @ v >= 0 else -1) != label:
            w, k = w + 2 * th / ((1 - th * th) * np.linalg.norm(v)) * label * v, k + 1
    return w, k


def textbook_second_order(X: Array, y: Any, p: Array, a: float) -> tuple[Array, int]:
    """Algorithm 3, as printed: predict with (aI + S Sᵀ)⁺ξ, S = [mistakes, z]; w = (aI + X Xᵀ)⁺ξ at the end"""
    d = p.size
    xi, mistakes = np.zeros(d), np.zeros((0, d))

    def solve(S: Array) -> Array:
        if a > 0:
            return np.asarray(np.linalg.solve(a * np.eye(d) + S.T @ S, xi))
        return np.asarray(np.linalg.pinv(S.T @ S, rcond=1e-12, hermitian=True) @ xi)

    for z, label in zip(g.lift(p, X), y, strict=True):
        S = np.vstack([mistakes, z])
        # outside the span the product is 0 in exact arithmetic: decide by rank, as pinv does
        outside = a == 0 and np.linalg.matrix_rank(S, 1e-8) > np.linalg.matrix_rank(mistakes, 1e-8)
        if (1 if outside or solve(S) @ z >= 0 else -1) != label:
            xi, mistakes = xi + label * z, S
    return solve(mistakes), len(mistakes)


def textbook_strategic(X: Array, y: Any, p: Array, alpha: float) -> tuple[Array, int]:
    """Algorithm 4, with η = sinh(σ‖v‖)/‖v‖ and the threshold's tolerance"""
    w, k, sigma = np.zeros(p.size), 0, float(g.conformal_factor(p))
    for x, label in zip(X, y, strict=True):
        v = g.log_map(p, x)
        r = sigma * float(np.linalg.norm(v))
        s = sigma * float(w @ v) / float(np.linalg.norm(w)) - alpha if w.any() else 0.0
        on = abs(s) <= strategic.TOLERANCE * max(alpha, r)
        if (1 if s >= 0 or on else -1) != label:
            v_tilde = v - alpha / sigma * w / np.linalg.norm(w) if label < 0 and on and w.any() else v
            w, k = w + math.sinh(r) / (r / sigma) * label * v_tilde, k + 1
    return w, k


def textbook_hyperboloid(X: Array, y: Any) -> tuple[Array, int]:
    """Algorithm 6, as printed: ŷ = sgn[w,h], w ← w + y Hh"""
    H = np.diag([-1.0, *np.ones(X.shape[1])])
    w, k = np.zeros(X.shape[1] + 1), 0
    for h, label in zip(g.to_hyperboloid(X), y, strict=True):
        if (1 if w @ H @ h >= 0 else -1) != label:
            w, k = w + label * H @ h, k + 1
    return w, k


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("d", [1, 2, 7])
def test_learners_agree_with_the_textbook(seed: int, d: int) -> None:
    """Same updates; weights to n·eps·σ²: n terms, and the printed tanh form of η loses σ² of each"""
    rng = np.random.default_rng(seed)
    p = points(rng, 1, d, 1.0)[0]
    X, y, _ = separable(rng, 300, p, 0.05)
    y = flipped(rng, y, 0.2)
    tolerance = 300 * 2.0**-52 * float(g.conformal_factor(X).max()) ** 2

    def agree(state: Any, oracle: tuple[Array, int], condition: float = 1.0) -> None:
        w, k = oracle
        assert state.k == k > 5
        assert np.linalg.norm(state.w - w) <= tolerance * condition * np.linalg.norm(w)

    agree(perceptron.observe(perceptron.init(p), X, y).state, textbook_perceptron(X, y, p))
    agree(strategic.observe(strategic.init(p, budget=0.3), X, y).state, textbook_strategic(X, y, p, 0.3))
    agree(hyperboloid.observe(hyperboloid.init(d), X, y).state, textbook_hyperboloid(X, y))
    for a in (1.0, 1e-8, 0.0):
        state = second_order.observe(second_order.init(p, a=a), X, y).state
        A = state.factor.T @ state.factor
        agree(state, textbook_second_order(X, y, p, a), float(np.linalg.cond(A)))


def test_scores_are_signed_distances() -> None:
    rng = np.random.default_rng(5)
    X = points(rng, 200, 3, 5.0)
    y = rng.choice([-1, 1], size=200)
    for c in (0.3, 1.0, 2.5):
        p, Xc = P3 / math.sqrt(c), X / math.sqrt(c)
        tolerance = 32 * 2.0**-52 * g.conformal_factor(X)
        for learner, first in ((perceptron, perceptron.init(p, c=c)), (second_order, second_order.init(p, c=c))):
            state: Any = learner.observe(first, Xc, y).state
            truth = g.signed_distance(p, state.w, Xc, c=c)
            assert (np.abs(learner.score(state, Xc) - truth) <= tolerance * (1 + np.abs(truth))).all()
        agent = strategic.observe(strategic.init(p, budget=0.4, c=c), Xc, y).state
        v, unit = g.log_map(p, Xc, c=c), agent.w / np.linalg.norm(agent.w)
        tangent = g.conformal_factor(p, c=c) * (v @ unit) - 0.4
        assert (np.abs(strategic.score(agent, Xc) - tangent) <= tolerance * (1 + np.abs(tangent))).all()


def test_a_session_of_another_curvature_is_the_unit_ball_scaled() -> None:
    """At c = 4 every number is a power of two away: bit for bit the same learner, distances halved"""
    X, y = stream(CASES["perceptron"], 6, 200)
    for one, four in (
        (perceptron.init(P3), perceptron.init(P3 / 2, c=4.0)),
        (second_order.init(P3), second_order.init(P3 / 2, c=4.0)),
        (strategic.init(P3, budget=0.6), strategic.init(P3 / 2, budget=0.3, c=4.0)),
        (hyperboloid.init(3), hyperboloid.init(3, c=4.0)),
    ):
        learner: Any = next(m for m in LEARNERS.values() if m.State is type(one))
        left, right = learner.observe(one, X, y), learner.observe(four, X / 2, y)
        assert np.array_equal(left.state.w, right.state.w)
        assert np.array_equal(left.scores, 2 * right.scores)


def test_a_timelike_hyperboloid_state_calls_everything_the_same() -> None:
    state = hyperboloid.observe(hyperboloid.init(2), [[0.3, 0.1], [0.2, -0.1]], [-1, -1]).state
    assert state.w[0] ** 2 >= state.w[1:] @ state.w[1:]
    X = points(np.random.default_rng(7), 100, 2, 5.0)
    assert set(hyperboloid.predict(state, X).tolist()) == {-1}


@pytest.mark.parametrize("a", [1.0, 0.0])
def test_outside_the_span_the_second_order_scores_exactly_zero_only_with_the_pseudo_inverse(a: float) -> None:
    state = second_order.observe(second_order.init(np.zeros(3), a=a), [[0.5, 0.0, 0.0]], [-1]).state
    inside, outside = second_order.score(state, [[0.2, 0.0, 0.0], [0.2, 0.1, 0.0]])
    assert inside < 0
    assert (outside == 0.0) == (a == 0.0)


def test_second_order_within_a_subspace_never_leaves_it() -> None:
    """Points of a rotated 3-dimensional subspace of R⁷ span 3 dimensions, not 7 filled up with rounding"""
    rng = np.random.default_rng(8)
    Q = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    inner = points(rng, 400, 3, 6.0)
    y = rng.choice([-1, 1], size=400)
    flat = second_order.observe(second_order.init(np.zeros(7), a=0), inner @ Q[:3], y).state
    small = second_order.observe(second_order.init(np.zeros(3), a=0), inner, y).state
    assert flat.rank == 3 == small.rank
    assert flat.k == small.k
    assert np.linalg.norm(flat.w - small.w @ Q[:3]) <= 1e-9 * np.linalg.norm(small.w)


def test_every_learner_that_a_session_can_begin_is_an_algorithm() -> None:
    """hemisphere is what perceptron and second_order are without a reference point"""
    begun = {name for name, module in LEARNERS.items() if hasattr(module, "first")}
    assert {*get_args(Algorithm), "hemisphere"} == begun
