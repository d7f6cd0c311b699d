"""Batch classifiers: scores are distances, probabilities sum to one, and the certificate is of these very weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from threadpoolctl import threadpool_limits

from service import geometry as g
from service.batch import softmax, svm
from service.batch.classifier import Classifier, Recipe, fit, require
from service.errors import EmptyClass, InvalidParameter, NotConverged, NotSeparable, StateCorrupt, TooManyPoints
from service.geometry import Array, mobius_add
from tests.strategies import directions, generators, points
from tests.streams import flipped, separable

EPS = float(np.finfo(float).eps)
P2 = np.array([0.3, -0.2])
METHODS = ("hull", "closest", "lorentz", "cv")
curvatures = pytest.mark.parametrize("c", [0.5, 1.0, 3.0])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the process of a fit"""
    with threadpool_limits(1):
        yield


def two_classes(seed: int = 0, n: int = 150, c: float = 1.0, noise: float = 0.0) -> tuple[Array, NDArray[np.int64]]:
    """On the two sides of a geodesic through P2, and 0.1 from it; some with the other label"""
    rng = np.random.default_rng(seed)
    X, y, _ = separable(rng, n, P2 / math.sqrt(c), 0.1 / math.sqrt(c), c=c)
    return X, (flipped(rng, y, noise) > 0).astype(np.int64)


def classes(seed: int = 0, n: int = 150, K: int = 3, c: float = 1.0) -> tuple[Array, NDArray[np.int64], Array]:
    """K balls around the disk, and K points on geodesics that each divide one from the rest"""
    rng = np.random.default_rng(seed)
    turn = 2 * math.pi * np.arange(K) / K
    E = np.column_stack([np.cos(turn), np.sin(turn)])
    indices = rng.integers(K, size=n)
    X = g.mobius_add(0.8 * E[indices], points(rng, n, 2, 0.8))
    return X / math.sqrt(c), indices, 0.5 * E / math.sqrt(c)


def fitted(recipe: Recipe, X: Array, indices: NDArray[np.int64], c: float = 1.0) -> tuple[Classifier, dict[str, Any]]:
    return fit(recipe, X, indices, int(indices.max()) + 1, c, lambda done: None)


def recipes() -> Iterator[Recipe]:
    """Everything that can be asked for"""
    for margin, loss in (("hard", "hinge"), ("soft", "hinge"), ("soft", "squared_hinge")):
        ways: list[Any] = [*METHODS, [P2.tolist()]]
        for features, reference in itertools.product(("tangent", "lift"), ways):
            yield Recipe(margin=margin, loss=loss, features=features, reference=reference)
        yield Recipe(margin=margin, loss=loss, features="hyperboloid")
    yield Recipe(kind="softmax", features="hyperboloid")


def told(recipe: Recipe) -> str:
    return f"{recipe.kind} {recipe.margin} {recipe.loss} {recipe.features} {str(recipe.reference)[:7]}"


every_recipe = pytest.mark.parametrize("recipe", list(recipes()), ids=told)


# ------------------------------------------------------------------------------------- what is fitted


@every_recipe
def test_every_fit_is_optimal_and_says_what_it_is(recipe: Recipe) -> None:
    X, indices = two_classes()
    try:
        classifier, report = fitted(recipe, X, indices)
    except NotSeparable as error:  # there need be no margin through such a point, and then it says so
        assert recipe.margin == "hard" and recipe.reference in ("closest", "lorentz", "cv")
        assert error.witness
        return
    proof = report["certificate"]
    assert -8 * EPS <= proof["gap"] <= 1e-6
    assert proof["gap"] == (proof["primal"] - proof["dual"]) / proof["primal"]
    assert proof["classes"] is None
    assert report["points"] == len(X)
    assert report["stopped"] == ["gap"]
    right = (classifier.decide(X) == indices).mean()
    assert report["training_accuracy"] == right > 0.9
    assert (right == 1) or recipe.margin == "soft"
    if recipe.features == "hyperboloid":
        assert report["references"] is None and report["reference_methods"] == []
    else:
        assert report["references"] == classifier.references.tolist()
        assert [each["method"] for each in report["reference_methods"]]
    if recipe.kind == "svm":
        assert proof["primal"] == pytest.approx(primal(recipe, classifier, X, indices), rel=1e-9)
        assert 0 < report["support_vectors"][0] <= len(X)


def primal(recipe: Recipe, classifier: Classifier, X: Array, indices: NDArray[np.int64]) -> float:
    """½‖w‖² + C Σ ℓ(1 − y⟨w,f⟩), from the definition"""
    p = None if recipe.features == "hyperboloid" else classifier.references[0]
    t = 1 - (2 * indices - 1) * (svm.features(X, p, recipe.features) @ classifier.weights[0])
    losses = {"hinge": np.maximum(t, 0), "squared_hinge": np.maximum(t, 0) ** 2}[recipe.loss]
    half = float(classifier.weights[0] @ classifier.weights[0]) / 2
    return half if recipe.margin == "hard" else half + recipe.C * float(losses.sum())


@every_recipe
def test_a_fit_is_the_same_bit_for_bit_whenever_it_is_made(recipe: Recipe) -> None:
    X, indices = two_classes(1, n=60, noise=0.0 if recipe.margin == "hard" else 0.1)
    try:
        first, report = fitted(recipe, X, indices)
    except NotSeparable:
        with pytest.raises(NotSeparable):
            fitted(recipe, X.copy(), indices.copy())
    else:
        again, repeated = fitted(recipe, X.copy(), indices.copy())
        assert again.pack() == first.pack()
        assert repeated == report


@pytest.mark.parametrize("features", ["tangent", "lift", "hyperboloid"])
@pytest.mark.parametrize("reference", ["hull", [P2.tolist()]], ids=["hull", "given"])
@curvatures
def test_a_hard_margin_makes_no_mistake_on_separable_points(features: str, reference: Any, c: float) -> None:
    for seed in range(3):
        X, indices = two_classes(seed, c=c)
        if isinstance(reference, list):
            reference = [(P2 / math.sqrt(c)).tolist()]
        _, report = fitted(Recipe(margin="hard", features=features, reference=reference), X, indices, c)
        assert report["training_accuracy"] == 1.0
        assert report["certificate"]["gap"] <= 1e-6


@pytest.mark.parametrize("features", ["tangent", "lift", "hyperboloid"])
def test_a_hard_margin_of_inseparable_points_is_refused_with_a_witness(features: str) -> None:
    """Convex weights s with Σ s_i y_i f_i = 0: a classifier with y⟨w,f⟩ > 0 for all of them cannot be"""
    X, indices = two_classes(noise=0.1)
    with pytest.raises(NotSeparable) as caught:
        fitted(Recipe(margin="hard", features=features, reference=[P2.tolist()]), X, indices)
    assert caught.value.witness is not None
    rows, weights = map(np.array, zip(*caught.value.witness, strict=True))
    F = svm.features(X, None if features == "hyperboloid" else P2, features)[rows]
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1)
    residual = np.linalg.norm((weights * (2 * indices[rows] - 1)) @ F)
    assert residual <= 1e-9 * float(weights @ np.linalg.norm(F, axis=1))


def test_where_the_gap_is_not_reached_there_is_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, indices = two_classes()
    monkeypatch.setattr(svm, "solve", partial(svm.solve, max_iterations=1))
    with pytest.raises(NotConverged, match="1 iterations"):
        fitted(Recipe(margin="hard", reference=[P2.tolist()]), X, indices)


def test_progress_is_told_and_never_falls() -> None:
    X, indices, _ = classes(n=300)
    heard: list[float] = []
    fit(Recipe(reference=[[0.0, 0.0]]), X, indices, 3, 1.0, heard.append)
    assert heard == sorted(heard)
    assert 0 <= heard[0] <= heard[-1] <= 1
    assert heard[-1] > 2 / 3


# ------------------------------------------------------------------------------------- what it answers


@curvatures
@pytest.mark.parametrize("features", ["tangent", "lift"])
def test_scores_are_signed_hyperbolic_distances(features: str, c: float) -> None:
    """The least distance to a point of the geodesic exp_p(t·w⊥), found by search; the sign is that of ⟨w, log_p x⟩"""
    X, indices = two_classes(2, c=c, noise=0.1)
    classifier, _ = fitted(Recipe(features=features), X, indices, c)
    p, w = classifier.references[0], classifier.weights[0] / np.linalg.norm(classifier.weights[0])
    along = np.array([-w[1], w[0]]) / float(g.conformal_factor(p, c=c))

    def least(x: Array) -> float:
        def away(t: float) -> float:
            return float(g.distance(g.exp_map(p, t * along, c=c), x, c=c))

        return float(minimize_scalar(away, bounds=(-10, 10), method="bounded", options={"xatol": 1e-10}).fun)

    asked = points(np.random.default_rng(3), 40, 2, 3.0) / math.sqrt(c)
    truth = [math.copysign(least(x), float(w @ g.log_map(p, x, c=c))) for x in asked]
    # t is good to 1e-8 or so (√eps), the least value to its square; then the points' own rounding, eps·σ²
    assert np.abs(classifier.scores(asked) - truth).max() <= 1e-12
    assert np.array_equal(classifier.decide(asked), np.array(truth) >= 0)


@curvatures
def test_tangent_and_lifted_features_with_the_same_weights_have_the_same_boundary(c: float) -> None:
    X, indices = two_classes(4, c=c, noise=0.1)
    tangent, _ = fitted(Recipe(features="tangent"), X, indices, c)
    lift = replace(tangent, features="lift")
    asked = points(np.random.default_rng(5), 500, 2, 4.0) / math.sqrt(c)
    assert np.array_equal(tangent.scores(asked), lift.scores(asked))
    assert np.array_equal(tangent.decide(asked), lift.decide(asked))
    assert np.array_equal(np.sign(tangent.decisions(asked)), np.sign(lift.decisions(asked)))


def test_another_curvature_is_the_unit_ball_scaled() -> None:
    """At c = 4 all numbers are powers of two away: lifted features are the same bits, distances are halved"""
    X, indices = two_classes(6, noise=0.1)
    one, report = fitted(Recipe(features="lift", reference=[P2.tolist()]), X, indices)
    four, same = fitted(Recipe(features="lift", reference=[(P2 / 2).tolist()]), X / 2, indices, 4.0)
    assert np.array_equal(one.weights, four.weights)
    assert np.array_equal(one.scores(X), 2 * four.scores(X / 2))
    assert np.array_equal(one.probabilities(X), four.probabilities(X / 2))  # type: ignore[arg-type]
    assert report["certificate"] == same["certificate"]


def some(kind: str, K: int, reference: Any = "hull", c: float = 1.0, **options: Any) -> tuple[Classifier, Array]:
    """A classifier of K classes and points to ask it about"""
    X, indices = two_classes(7, noise=0.1, c=c) if K == 2 else classes(7, K=K, c=c)[:2]
    features = "hyperboloid" if kind == "softmax" else "tangent"
    classifier, _ = fitted(Recipe(kind=kind, features=features, reference=reference, **options), X, indices, c)
    return classifier, points(np.random.default_rng(8), 300, 2, 4.0) / math.sqrt(c)


kinds_and_classes = pytest.mark.parametrize(("kind", "K"), list(itertools.product(("svm", "softmax"), (2, 3, 5))))


@kinds_and_classes
@curvatures
def test_probabilities_sum_to_one(kind: str, K: int, c: float) -> None:
    classifier, asked = some(kind, K, c=c)
    P = classifier.probabilities(asked)
    assert P is not None
    assert P.shape == (300, K)
    assert (P >= 0).all()
    assert np.abs(P.sum(axis=1) - 1).max() <= K * EPS
    if K > 2 or kind == "softmax":
        assert np.array_equal(classifier.decide(asked), P.argmax(axis=1))
    assert len(np.unique(classifier.decide(asked))) == K


def test_without_probabilities_there_are_none_and_the_largest_decision_wins() -> None:
    for K in (2, 3):
        classifier, asked = some("svm", K, probabilities=False)
        assert classifier.probabilities(asked) is None
        scores = classifier.scores(asked)
        expected = scores >= 0 if K == 2 else classifier.decisions(asked).argmax(axis=1)
        assert np.array_equal(classifier.decide(asked), expected)


@pytest.mark.parametrize("K", [2, 4])
def test_a_softmax_is_the_textbooks_on_hyperboloid_coordinates_and_a_constant(K: int) -> None:
    classifier, asked = some("softmax", K)
    x = g.to_hyperboloid(asked)
    F = np.column_stack([np.ones(len(x)), x])
    logits = F @ classifier.weights.T
    logits = np.column_stack([np.zeros(len(x)), logits]) if K == 2 else logits
    E = np.exp(logits - logits.max(axis=1, keepdims=True))
    P = classifier.probabilities(asked)
    assert P is not None
    # log P is good to eps times the largest logit
    assert np.abs(P - E / E.sum(axis=1, keepdims=True)).max() <= 32 * EPS * np.abs(logits).max()
    expected = logits[:, 1] - logits[:, 0] if K == 2 else logits
    assert np.abs(classifier.scores(asked) - expected).max() <= 32 * EPS * np.abs(logits).max()


def test_two_classes_of_a_softmax_have_the_probabilities_of_its_two_rows() -> None:
    X, indices = two_classes(9, noise=0.1)
    classifier, _ = fitted(Recipe(kind="softmax", features="hyperboloid", C=2.0), X, indices)
    W = softmax.fit(softmax.features(X), indices, classes=2, C=2.0).W
    P = classifier.probabilities(X)
    assert P is not None
    assert np.abs(P - softmax.probabilities(W, softmax.features(X))).max() <= 1e-12


@curvatures
def test_k_classes_with_a_reference_each_are_k_binary_fits(c: float) -> None:
    X, indices, P = classes(10, K=4, c=c)
    recipe = Recipe(loss="squared_hinge", C=5.0, reference=P.tolist())
    classifier, report = fitted(recipe, X, indices, c)
    assert report["references"] == P.tolist()
    assert report["training_accuracy"] > 0.9
    assert len(report["certificate"]["classes"]) == len(report["support_vectors"]) == 4
    alone = []
    for k, p in enumerate(P):
        one, told = fitted(replace(recipe, reference=[p.tolist()]), X, (indices == k).astype(np.int64), c)
        assert np.array_equal(one.weights[0], classifier.weights[k])
        assert np.array_equal(one.scores(X), classifier.scores(X)[:, k])
        assert np.array_equal(classifier.scores(X)[:, k], g.signed_distance(p, classifier.weights[k], X, c=c))
        certificate = {name: told["certificate"][name] for name in ("primal", "dual", "gap")}
        assert report["certificate"]["classes"][k] == certificate
        alone.append(certificate)
    assert report["certificate"]["primal"] == pytest.approx(sum(each["primal"] for each in alone))
    assert report["certificate"]["gap"] <= max(each["gap"] for each in alone) + 8 * EPS <= 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_k_classes_learn_a_reference_each(method: str) -> None:
    X, indices, _ = classes(11)
    classifier, report = fitted(Recipe(reference=method), X, indices)
    assert classifier.references.shape == (3, 2)
    assert len(report["reference_methods"]) == 3
    assert report["training_accuracy"] > 0.9
    assert report["certificate"]["gap"] <= 1e-6


CLASSIFIERS = {
    "two classes": partial(some, "svm", 2),
    "two classes, lifted": lambda: (replace(some("svm", 2)[0], features="lift"), some("svm", 2)[1]),
    "three classes": partial(some, "svm", 3),
    "three classes, one point": partial(some, "svm", 3, [[0.0, 0.1]]),
    "no probabilities": partial(some, "svm", 3, probabilities=False),
    "softmax of two": partial(some, "softmax", 2),
    "softmax of three": partial(some, "softmax", 3),
    "c=3": partial(some, "svm", 2, c=3.0),
}
every_classifier = pytest.mark.parametrize("made", CLASSIFIERS.values(), ids=CLASSIFIERS.keys())


@every_classifier
def test_a_point_is_answered_the_same_alone_and_among_others(made: Any) -> None:
    classifier, asked = made()
    for answer in (classifier.decisions, classifier.scores, classifier.decide, classifier.probabilities):
        whole = answer(asked)
        if whole is None:
            continue
        assert np.array_equal(np.concatenate([answer(x[None]) for x in asked]), whole)
        assert np.array_equal(answer(asked[::3]), whole[::3])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(rng=generators, d=st.sampled_from([2, 3, 10]), features=st.sampled_from(["tangent", "lift"]))
def test_a_prediction_is_the_sign_of_its_score_even_on_the_boundary(
    rng: np.random.Generator, d: int, features: str
) -> None:
    p, w = points(rng, 1, d, 1.0), rng.normal(size=(1, d))
    classifier = Classifier("svm", features, 1.0, p, w, np.empty((0, 2)))
    V = 0.3 * directions(rng, 200, d)
    on = g.exp_map(p[0], V - np.outer(V @ w[0], w[0]) / (w[0] @ w[0]))
    assert np.array_equal(classifier.decide(on), classifier.scores(on) >= 0)
    assert classifier.decide(p).tolist() == [1]  # a score of 0 is positive


# --------------------------------------------------------------------------------------- as bytes


def same(left: Classifier, right: Classifier) -> bool:
    numbers = all(
        np.array_equal(getattr(left, f), getattr(right, f)) for f in ("references", "weights", "platt", "curvature")
    )
    names = ("kind", "features", "c", "points")
    return numbers and all(getattr(left, name) == getattr(right, name) for name in names)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    rng=generators,
    rows=st.integers(1, 5),
    references=st.integers(0, 5),
    platt=st.integers(0, 5),
    d=st.integers(1, 8),
    c=st.floats(1e-6, 1e6),
)
def test_unpack_undoes_pack(rng: np.random.Generator, rows: int, references: int, platt: int, d: int, c: float) -> None:
    sizes = ((references, d), (rows, d + 1), (platt, 2))
    each = (rng.normal(size=size) * 10.0 ** rng.integers(-300, 300, size=size) for size in sizes)
    P, W, platt_ab = each
    curvature = rng.normal(size=(rows, d, d))
    classifier = Classifier("svm", "lift", c, P, W, platt_ab, points=rows, curvature=curvature)
    data = classifier.pack()
    assert same(Classifier.unpack(data), classifier)
    assert Classifier.unpack(data).pack() == data


@every_classifier
def test_a_stored_classifier_answers_as_the_fitted_one(made: Any) -> None:
    classifier, asked = made()
    stored = Classifier.unpack(classifier.pack())
    assert same(stored, classifier)
    for answer in ("decisions", "scores", "decide", "probabilities"):
        assert np.array_equal(getattr(stored, answer)(asked), getattr(classifier, answer)(asked))


def test_damaged_bytes_are_corrupt_wherever_the_damage_is() -> None:
    data = some("svm", 3)[0].pack()
    for at in range(len(data)):
        with pytest.raises(StateCorrupt):
            Classifier.unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for end in (0, 1, 15, 16, 17, 20, 40, len(data) - 1):
        with pytest.raises(StateCorrupt):
            Classifier.unpack(data[:end])
    with pytest.raises(StateCorrupt):
        Classifier.unpack(data + b"\0")


# ------------------------------------------------------------------------------ what cannot be fitted


def test_what_cannot_be_fitted_is_known_before_it_begins() -> None:
    three = np.array([0, 1, 2, 1])
    require(Recipe(), ("a", "b", "c"), three, 4)
    with pytest.raises(TooManyPoints):
        require(Recipe(), ("a", "b", "c"), three, 3)
    with pytest.raises(EmptyClass, match="'b'"):
        require(Recipe(), ("a", "b", "c"), np.array([0, 2]), 4)
    with pytest.raises(EmptyClass):
        require(Recipe(), ("a", "b", "c"), np.empty(0, dtype=np.int64), 4)
    for count in (1, 3):
        require(Recipe(reference=[[0.0, 0.0]] * count), ("a", "b", "c"), three, 4)
    for labels, count in ((("a", "b", "c"), 2), (("a", "b", "c"), 4), (("a", "b"), 2)):
        with pytest.raises(InvalidParameter, match="reference"):
            require(Recipe(reference=[[0.0, 0.0]] * count), labels, np.arange(len(labels)), 4)


@pytest.mark.parametrize("reference", ["hull", "closest", "graham", "quickhull"])
@pytest.mark.parametrize("x", [(0.0, 0.0), (0.1, 0.2)])
def test_one_point_of_two_labels_has_no_hard_margin(reference: str, x: tuple[float, float]) -> None:
    """p is the point itself, and its features are 0"""
    with pytest.raises(NotSeparable) as caught:
        fitted(Recipe(margin="hard", reference=reference), np.array([x, x]), np.array([0, 1]))
    assert caught.value.witness


def test_scales_make_the_log_odds_that_decide() -> None:
    """ln P/(1−P) of each class before they are divided by their sum, and their largest is the decision"""
    rng = np.random.default_rng(3)
    indices = rng.integers(3, size=200)
    X = mobius_add(0.7 * directions(rng, 3, 2)[indices], points(rng, 200, 2, 1.0))
    classifier, _ = fitted(Recipe(loss="squared_hinge"), X, indices)
    odds = classifier.decisions(X) * classifier.scales[:, 0] + classifier.scales[:, 1]
    P = 1 / (1 + np.exp(-odds))
    assert classifier.probabilities(X) == pytest.approx(P / P.sum(axis=1, keepdims=True), rel=1e-9)
    assert np.array_equal(classifier.decide(X), odds.argmax(axis=1))
    assert fitted(Recipe(probabilities=False), X, indices)[0].scales.shape == (0, 2)
