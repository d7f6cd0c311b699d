"""From a fit to the online learner: the same boundary, counted anew, and a certificate that knows where it began."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from service import geometry as g
from service.api.schemas import OpenSession
from service.batch.classifier import Classifier, Recipe, fit
from service.errors import InvalidParameter
from service.geometry import Array
from service.learners import (
    auto,
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
from service.learners.certificates import certificate
from service.sessions.promotion import agreement, promoted
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from tests.opening import RAW
from tests.real_data import embedding
from tests.sse import listening, spoken
from tests.strategies import points
from tests.streams import flipped, separable

P2 = np.array([0.3, -0.2])
EPS = float(np.finfo(float).eps)
Indices = NDArray[np.int64]


def data(K: int = 2, c: float = 1.0, seed: int = 0, n: int = 200) -> tuple[Array, Indices]:
    """Two classes, or K balls around the disk; some labels wrong"""
    rng = np.random.default_rng(seed)
    if K == 2:
        X, y, _ = separable(rng, n, P2, 0.1)
        return X / math.sqrt(c), (flipped(rng, y, 0.1) > 0).astype(np.int64)
    turn = 2 * math.pi * np.arange(K) / K
    indices = rng.integers(K, size=n)
    X = g.mobius_add(0.7 * np.column_stack([np.cos(turn), np.sin(turn)])[indices], points(rng, n, 2, 1.0))
    return X / math.sqrt(c), np.where(rng.random(n) < 0.1, (indices + 1) % K, indices)


def session(algorithm: str, K: int = 2, c: float = 1.0, **fields: Any) -> Spec:
    body = {
        "algorithm": algorithm,
        "dimension": 2,
        "reference": "origin",
        "curvature": c,
        "labels": list(range(K)),
        **fields,
    }
    return OpenSession(**body).spec()


def fitted(K: int = 2, c: float = 1.0, features: str = "tangent", **recipe: Any) -> Classifier:
    return fit(Recipe(features=features, **recipe), *data(K, c), K, c, lambda done: None)[0]


curvatures = pytest.mark.parametrize("c", [0.5, 1.0, 3.0])


# --------------------------------------------------------------------------------------- the same boundary


@curvatures
@pytest.mark.parametrize("features", ["tangent", "lift"])
@pytest.mark.parametrize("algorithm", ["perceptron", "second_order"])
def test_a_promoted_learner_has_the_fits_own_scores(algorithm: str, features: str, c: float) -> None:
    classifier, spec = fitted(features=features, c=c), session(algorithm, c=c)
    state = promoted(spec, spec.first_state(), classifier)
    asked = points(np.random.default_rng(1), 500, 2, 3.0) / math.sqrt(c)
    scores, truth = spec.learner.score(state, asked), classifier.scores(asked)
    # both are asinh of a product with z, each good to a few eps·σ_x
    tolerance = 32 * EPS * g.conformal_factor(asked, c=c) / math.sqrt(c)
    assert (np.abs(scores - truth) <= tolerance * (1 + np.abs(truth))).all()
    clear = np.abs(truth) > tolerance
    assert clear.mean() > 0.99
    assert np.array_equal(spec.decide(scores)[clear], classifier.decide(asked)[clear])
    assert (state.k, state.reach) == (0, 0.0)
    assert np.array_equal(state.w, classifier.weights[0])
    assert np.abs(state.p / math.sqrt(c) - classifier.references[0]).max() <= 2 * EPS


@curvatures
def test_a_promoted_hyperboloid_calls_every_point_as_the_fit_does(c: float) -> None:
    classifier, spec = fitted(features="hyperboloid", c=c), session("hyperboloid", c=c)
    state = promoted(spec, spec.first_state(), classifier)
    asked = points(np.random.default_rng(2), 500, 2, 3.0) / math.sqrt(c)
    clear = np.abs(classifier.scores(asked)) > 32 * EPS * np.abs(classifier.weights).sum() * np.cosh(3.0)
    assert clear.mean() > 0.99
    assert np.array_equal(spec.decide(spec.learner.score(state, asked))[clear], classifier.decide(asked)[clear])
    assert (state.k, state.seen_negative, state.seen_positive) == (0, False, False)


@curvatures
@pytest.mark.parametrize("estimate", [False, True])
def test_a_promoted_strategic_learner_has_the_fits_boundary_moved_by_the_budget(c: float, estimate: bool) -> None:
    """Positive from α beyond the fit's boundary on: that far an agent would come"""
    classifier = fitted(c=c, reference=[(P2 / math.sqrt(c)).tolist()])
    spec = session("strategic", c=c, budget={"estimate": {"initial": 0.5}} if estimate else 0.5)
    before = strategic.init(np.zeros(2), c=c, budget=0.3, estimate=estimate)  # what it knows of the budget is not lost
    state = promoted(spec, before, classifier)
    p, w = classifier.references[0], classifier.weights[0]
    asked = points(np.random.default_rng(3), 500, 2, 3.0) / math.sqrt(c)
    along = g.conformal_factor(p, c=c) * (g.log_map(p, asked, c=c) @ w) / np.linalg.norm(w)
    scores = strategic.score(state, asked)
    assert np.abs(scores - (along - 0.3)).max() <= 1e-9 * (1 + np.abs(along).max())
    outside = (along < -1e-9) | (along > 0.3 + 1e-9)
    assert 0.5 < outside.mean() < 1
    assert np.array_equal(spec.decide(scores)[outside], classifier.decide(asked)[outside])
    assert not spec.decide(scores)[~outside].any()
    assert (state.estimating, state.alpha) == (estimate, before.alpha)
    assert np.array_equal(state.evidence, before.evidence)


def require_the_fits_answers(spec: Spec, state: Any, classifier: Classifier, asked: Array) -> None:
    """Everywhere but where the fit itself hangs on the rounding of two log odds"""
    odds = classifier.decisions(asked)
    if len(classifier.platt):
        odds = odds * classifier.scales[:, 0] + classifier.scales[:, 1]
    first, second = np.sort(odds, axis=1)[:, -1], np.sort(odds, axis=1)[:, -2]
    clear = first - second > 1e-12 * (1 + np.abs(odds).max(axis=1)) * g.conformal_factor(asked, c=classifier.c)
    assert clear.mean() > 0.99
    learner = learner_of(state)
    assert np.array_equal(spec.decide(learner.score(state, asked))[clear], classifier.decide(asked)[clear])


@curvatures
@pytest.mark.parametrize("algorithm", ["perceptron", "second_order", "hyperboloid"])
@pytest.mark.parametrize("reference", ["hull", [[0.05, -0.02]]], ids=["a point each", "one point"])
@pytest.mark.parametrize("features", ["tangent", "lift"])
@pytest.mark.parametrize("probabilities", [True, False])
def test_k_promoted_classes_answer_as_the_fit(
    algorithm: str, reference: Any, features: str, probabilities: bool, c: float
) -> None:
    """By Platt's log odds, where the fit compares its classes by them"""
    features = "hyperboloid" if algorithm == "hyperboloid" else features
    classifier = fitted(4, c, features, reference=reference, probabilities=probabilities)
    spec = session(algorithm, 4, c)
    state = promoted(spec, spec.first_state(), classifier)
    asked = points(np.random.default_rng(4), 2000, 2, 3.0) / math.sqrt(c)
    require_the_fits_answers(spec, state, classifier, asked)
    scores, decisions = one_vs_rest.score(state, asked), classifier.decisions(asked)
    scales = classifier.scales if probabilities else np.tile([1.0, 0.0], (4, 1))
    odds = decisions * scales[:, 0] + scales[:, 1]
    assert np.abs(scores - odds).max() <= 1e-9 * (1 + np.abs(odds).max())
    if algorithm != "hyperboloid":
        begun = np.array([member.p for member in state.members]) / math.sqrt(c)
        assert np.abs(begun - classifier.references).max() <= 2 * EPS  # one row, or one a class


@pytest.mark.parametrize("name", ["olsson", "cifar", "fashion-mnist"])
@pytest.mark.parametrize("features", ["tangent", "hemisphere"])
def test_a_promoted_fit_of_the_real_data_loses_nothing(name: str, features: str) -> None:
    """One-vs-rest without Platt's scales fell from 87.5 to 64.8 % on Olsson"""
    (X, y), (asked, truth) = embedding(name, "train"), embedding(name, "test")
    X, y, K = X[:4000], y[:4000], int(y.max()) + 1
    recipe = Recipe(features=features, loss="squared_hinge", C=5.0, reference="lorentz")
    classifier = fit(recipe, X, y, K, 1.0, lambda done: None)[0]
    lifted = one_vs_rest.init([perceptron.init(np.zeros(2))] * K)
    spec = session("perceptron", K)
    for first in (
        [hemisphere.init(2, classes=K, a=a) for a in (1.0, math.inf)] if features == "hemisphere" else [lifted]
    ):
        state = promoted(spec, first, classifier)
        decided = spec.decide(learner_of(state).score(state, asked))
        assert np.array_equal(decided, classifier.decide(asked))
        assert (decided == truth).mean() > 0.83


@curvatures
@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("a", [1.0, math.inf])
def test_a_fit_on_the_hemisphere_goes_on_there(K: int, a: float, c: float) -> None:
    classifier, spec = fitted(K, c, "hemisphere"), session("perceptron", K, c)
    first = hemisphere.init(2, classes=K, c=c, a=a)
    state = promoted(spec, first, classifier)
    asked = points(np.random.default_rng(4), 2000, 2, 8.0) / math.sqrt(c)
    assert (state.t, state.last, state.a, state.average, state.k.tolist()) == (200, 0, a, True, [0] * len(state.k))
    if K == 2:
        assert np.array_equal(state.rule, classifier.weights)
        assert np.array_equal(spec.decide(hemisphere.score(state, asked)), classifier.decide(asked))
    else:
        require_the_fits_answers(spec, state, classifier, asked)


@curvatures
@pytest.mark.parametrize("K", [2, 4])
def test_a_softmax_on_the_hemisphere_goes_on_with_its_probabilities_and_its_hessian(K: int, c: float) -> None:
    classifier = Classifier.unpack(fitted(K, c, "hemisphere", kind="softmax", C=1000.0).pack())
    spec, X = session("perceptron", K, c), data(K, c)[0]
    state = promoted(spec, softmax.init(2, classes=K, c=c), classifier)
    asked = points(np.random.default_rng(4), 2000, 2, 8.0) / math.sqrt(c)
    P = classifier.probabilities(asked)
    assert P is not None
    assert np.abs(softmax.probabilities(state, asked) - P).max() <= 64 * EPS * np.abs(classifier.weights).max()
    assert np.array_equal(spec.decide(softmax.score(state, asked)), classifier.decide(asked))
    one_by_one = softmax.init(2, classes=K, c=c, W=state.w, points=X)
    assert state.t == one_by_one.t == 200
    # rank one after rank one loses a few eps·cond; the ridge of 0.1 keeps that small
    assert np.abs(state.inverse - one_by_one.inverse).max() <= 1e-9 * np.abs(state.inverse).max()


def test_where_only_diagonals_are_kept_those_of_the_fit_come_along() -> None:
    rng = np.random.default_rng(0)
    X, y = points(rng, 50, 400, 2.0), rng.integers(2, size=50)
    classifier = fit(Recipe(kind="softmax", features="hemisphere"), X, y, 2, 1.0, lambda done: None)[0]
    assert classifier.curvature.shape == (2, 1, 402)
    spec = session("perceptron", dimension=400)
    state = promoted(spec, softmax.init(400), classifier)
    assert state.diagonal == pytest.approx(softmax.init(400, W=state.w, points=X).diagonal, rel=1e-9)


def test_a_member_of_a_vote_begins_anew_and_the_vote_goes_on() -> None:
    X, y = data(4)
    state = auto.observe(auto.default(2, classes=4), X, y).state
    spec = session("auto", 4, reference=None)
    for member, at, classifier in (
        ("second_order", 0, fitted(4, features="hemisphere")),
        ("softmax", 1, fitted(4, features="hemisphere", kind="softmax")),
    ):
        after = promoted(spec, state, classifier, member)
        others = [i for i in range(3) if i != at]
        assert all(after.members[i] is state.members[i] for i in others)
        assert np.array_equal(after.log_weights, state.log_weights)
        assert (after.errors, after.t) == (state.errors, state.t)
        decided = spec.decide(learner_of(after.members[at]).score(after.members[at], X))
        assert np.array_equal(decided, classifier.decide(X))
        assert agreement(spec, state, classifier, Batch(X, y), member) == 1.0
    for wrong in (None, "perceptron", "hyperboloid"):
        with pytest.raises(InvalidParameter, match="second_order, softmax, gaussian"):
            promoted(spec, state, classifier, wrong)
    with pytest.raises(InvalidParameter, match="no weights to begin from"):
        promoted(spec, state, classifier, "gaussian")


def test_agreement_is_measured() -> None:
    X, y = data()
    classifier, spec = fitted(), session("strategic", budget=0.5)
    share = agreement(spec, spec.first_state(), classifier, Batch(X, y))
    state = promoted(spec, spec.first_state(), classifier)
    assert share == np.mean(spec.decide(strategic.score(state, X)) == classifier.decide(X))
    assert share is not None
    assert 0.5 < share < 1
    assert agreement(spec, spec.first_state(), classifier, Batch(X[:0], y[:0])) is None


@pytest.mark.parametrize("a", [1.0, math.inf])
def test_a_promoted_fit_stays_good_while_the_stream_goes_on(a: float) -> None:
    """2,000 points fitted, 8,000 streamed: the average is no worse than the fit was, the last iterate is"""
    X, y = embedding("fashion-mnist", "test")
    classifier = fit(Recipe(features="hemisphere", C=5.0), X[:2000], y[:2000], 10, 1.0, lambda done: None)[0]
    before = float((classifier.decide(X[2000:]) == y[2000:]).mean())
    spec, after = session("perceptron", 10), {}
    for average in (True, False):
        state = promoted(spec, hemisphere.init(2, classes=10, a=a, average=average), classifier)
        outcome = hemisphere.observe(state, X[2000:], y[2000:])
        after[average] = float((outcome.scores.argmax(axis=1) == y[2000:]).mean())
    assert after[True] >= before - 0.002
    assert after[False] < after[True] - 0.005


# ------------------------------------------------------------------------------------ what cannot be promoted


@pytest.mark.parametrize(
    ("state", "classifier", "says"),
    [
        (perceptron.init(P2), fitted(features="hyperboloid"), '"features": "tangent"'),
        (perceptron.init(P2), fitted(features="hemisphere"), '"features": "tangent"'),
        (hyperboloid.init(2), fitted(), '"features": "hyperboloid"'),
        (hyperboloid.init(2), fitted(kind="softmax", features="hyperboloid"), '"kind": "svm"'),
        (hemisphere.init(2), fitted(), '"kind": "svm", "features": "hemisphere"'),
        (hemisphere.init(2), fitted(kind="softmax", features="hemisphere"), '"kind": "svm", "features": "hemisphere"'),
        (softmax.init(2), fitted(features="hemisphere"), '"kind": "softmax", "features": "hemisphere"'),
        (
            softmax.init(2),
            fitted(kind="softmax", features="hyperboloid"),
            '"kind": "softmax", "features": "hemisphere"',
        ),
        (gaussian.init(2), fitted(), "no weights to begin from"),
        (second_order.init(P2, a=0.0), fitted(), "a is 0"),
        (hemisphere.init(2, a=0.0), fitted(features="hemisphere"), "a is 0"),
    ],
)
def test_what_would_answer_otherwise_is_refused(state: Any, classifier: Classifier, says: str) -> None:
    with pytest.raises(InvalidParameter, match=says):
        promoted(session("perceptron"), state, classifier)


def test_there_are_no_members_where_there_is_no_vote() -> None:
    with pytest.raises(InvalidParameter, match="left out"):
        promoted(session("perceptron"), perceptron.init(P2), fitted(), "softmax")


# ------------------------------------------------------------------------------------------ over HTTP


def opened(http: httpx.Client, X: Array, indices: Indices, **fields: Any) -> str:
    answer = http.post("/sessions", json={"dimension": 2, "reference": "origin", **fields})
    assert answer.status_code == 201, answer.text
    sid = str(answer.json()["id"])
    observe(http, sid, X, indices)
    return sid


def observe(http: httpx.Client, sid: str, X: Array, indices: Any) -> dict[str, Any]:
    answer = http.post(f"/sessions/{sid}/observe", content=np.column_stack([X, indices]).tobytes(), headers=RAW)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def done(http: httpx.Client, sid: str, **fields: Any) -> dict[str, Any]:
    fit = http.post(f"/sessions/{sid}/fits", json=fields).json()["id"]
    deadline = time.monotonic() + 120
    while (told := http.get(f"/sessions/{sid}/fits/{fit}").json())["status"] != "done":
        assert told["status"] in ("queued", "running"), told
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found: dict[str, Any] = told
    return found


SESSIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "perceptron": ({"algorithm": "perceptron"}, {"reference": "hull"}),
    "second order, c=2": (
        {"algorithm": "second_order", "curvature": 2.0},
        {"features": "lift", "reference": "lorentz"},
    ),
    "strategic": ({"algorithm": "strategic", "budget": 0.2}, {"reference": "hull"}),
    "hyperboloid": ({"algorithm": "hyperboloid"}, {"kind": "svm", "features": "hyperboloid"}),
    "three classes": ({"algorithm": "perceptron", "labels": ["a", "b", "c"]}, {"reference": "closest"}),
    "warming": ({"reference": {"learn": {"warmup": 5000}}}, {"reference": "hull"}),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_promotion_starts_the_learner_from_the_fit(http: httpx.Client, name: str) -> None:
    fields, recipe = SESSIONS[name]
    K, c = len(fields.get("labels", [-1, 1])), fields.get("curvature", 1.0)
    X, indices = data(K, c)
    sid = opened(http, X, indices, **fields)
    before = http.get(f"/sessions/{sid}").json()
    assert before["updates"] > 0
    fitted = done(http, sid, **recipe)
    with listening(http, sid) as events:
        assert spoken(events, 1)[0].name == "reset"
        answer = http.post(f"/sessions/{sid}/promote", json={"fit": fitted["id"]})
        assert answer.status_code == 200, answer.text
        event = spoken(events, 1)[0]
    after, model = answer.json(), http.get(f"/sessions/{sid}/model")
    agreed = after.pop("agreement")
    assert agreed == 1 if name != "strategic" else 0.5 < agreed < 1
    assert after == http.get(f"/sessions/{sid}").json()
    assert (after["updates"], after["version"], after["status"]) == (0, before["version"] + 1, "live")
    assert (after["observed"], after["mistakes"]) == (before["observed"], before["mistakes"])
    assert model.headers["etag"] == f'"{after["version"]}"'
    told = {name: event.data[name] for name in ("kind", "fit", "version")}
    assert (event.name, told) == ("model", {"kind": "promotion", "fit": fitted["id"], "version": after["version"]})
    before_it, after_it = (http.get(f"/sessions/{sid}/at/{at}/model").json() for at in (0, after["observed"]))
    assert after_it == model.json() and before_it["weights"] != after_it["weights"]
    if fitted["references"] is not None:
        shown = model.json()["reference"]
        assert np.abs(np.array(shown) - np.squeeze(fitted["references"])).max() <= 2 * EPS

    asked = points(np.random.default_rng(5), 100, 2, 3.0) / math.sqrt(c)
    online, batch = (
        http.post(f"/sessions/{sid}/predict?model={which}", json={"points": asked.tolist()}).json()
        for which in ("online", fitted["id"])
    )
    if name == "strategic":  # its threshold is its budget further
        assert np.array_equal(np.array(online["scores"]) + 0.2 >= 0, np.array(batch["scores"]) >= 0)
    else:
        assert online["predictions"] == batch["predictions"]

    proof = http.get(f"/sessions/{sid}/certificate?margin=0.1").json()
    assert (proof["updates"], proof["largest_margin"], proof["disproved"]) == (0, None, False)
    stale = http.post(
        f"/sessions/{sid}/observe",
        json={"point": [0.1, 0.1], "label": fields.get("labels", [1])[0]},
        headers={"If-Match": f'"{before["version"]}"'},
    )
    assert stale.status_code == 412
    learned = observe(http, sid, *data(K, c, seed=6))
    assert 0 < learned["session"]["updates"] <= 200
    assert learned["session"]["version"] == after["version"] + learned["session"]["updates"]
    assert learned["session"]["observed"] == before["observed"] + 200


WITHOUT_REFERENCE: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "perceptron": ({"algorithm": "perceptron"}, {"kind": "svm"}, None),
    "second order, three classes": (
        {"algorithm": "second_order", "labels": [1, 2, 3]},
        {"kind": "svm", "C": 5.0},
        None,
    ),
    "softmax": ({"algorithm": "softmax", "curvature": 2.0}, {}, None),
    "softmax, three classes": ({"algorithm": "softmax", "labels": ["a", "b", "c"]}, {}, None),
    "auto": ({"labels": ["a", "b", "c"]}, {}, "softmax"),
    "auto, second order": ({}, {"kind": "svm"}, "second_order"),
}


@pytest.mark.parametrize("name", WITHOUT_REFERENCE)
def test_a_session_without_a_reference_point_goes_on_from_a_fit(http: httpx.Client, name: str) -> None:
    """Also a copy of it by its snapshot, and the session as its log has it"""
    fields, recipe, member = WITHOUT_REFERENCE[name]
    K, c = len(fields.get("labels", [-1, 1])), fields.get("curvature", 1.0)
    sid = opened(http, *data(K, c), **{"reference": None, **fields})
    before, fitted = http.get(f"/sessions/{sid}").json(), done(http, sid, **recipe)
    assert fitted["features"] == "hemisphere"
    answer = http.post(f"/sessions/{sid}/promote", json={"fit": fitted["id"], **({"member": member} if member else {})})
    assert answer.status_code == 200, answer.text
    after = answer.json()
    assert (after["agreement"], after["version"]) == (1.0, before["version"] + 1)
    asked = {"points": (points(np.random.default_rng(5), 100, 2, 3.0) / math.sqrt(c)).tolist()}
    if member is None:
        online, batch = (
            http.post(f"/sessions/{sid}/predict?model={which}", json=asked).json() for which in ("online", fitted["id"])
        )
        assert online["predictions"] == batch["predictions"]
        if "softmax" in name:
            assert np.abs(np.array(online["probabilities"]) - batch["probabilities"]).max() < 1e-12
    observe(http, sid, *data(K, c, seed=6))
    copy = http.post("/sessions", json={"snapshot": http.get(f"/sessions/{sid}/snapshot").json()}).json()["id"]
    predicted = [http.post(f"/sessions/{each}/predict", json=asked).json() for each in (sid, copy)]
    assert predicted[0] == predicted[1]
    told = http.get(f"/sessions/{sid}/certificate?margin=0.01&loss=hinge").json()
    if member is None and "softmax" not in name:
        assert told["hinge"] is None and any("began from a fit" in note for note in told["notes"])
    past = http.get(f"/sessions/{sid}/at/400/model").json()
    assert {**past, "updates": 0, "version": 0} == {
        **http.get(f"/sessions/{sid}/model").json(),
        "updates": 0,
        "version": 0,
    }


def test_a_vote_wants_to_know_which_member(http: httpx.Client) -> None:
    sid = opened(http, *data(3), reference=None, labels=[1, 2, 3])
    fitted = done(http, sid)
    for member, says in ((None, "one of second_order, softmax, gaussian"), ("gaussian", "no weights"), ("x", "one of")):
        answer = http.post(f"/sessions/{sid}/promote", json={"fit": fitted["id"], "member": member})
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-parameter")
        assert says in answer.json()["detail"]


def test_the_scales_of_a_promoted_fit_go_with_its_snapshot_and_its_model(http: httpx.Client) -> None:
    sid = opened(http, *data(3), labels=["a", "b", "c"])
    fitted = done(http, sid, reference="lorentz", C=5.0)
    assert http.get(f"/sessions/{sid}/model").json()["scales"] is None
    assert http.post(f"/sessions/{sid}/promote", json={"fit": fitted["id"]}).json()["agreement"] == 1
    copy = http.post("/sessions", json={"snapshot": http.get(f"/sessions/{sid}/snapshot").json()}).json()["id"]
    asked = points(np.random.default_rng(5), 100, 2, 3.0)
    told = [http.post(f"/sessions/{each}/predict", json={"points": asked.tolist()}).json() for each in (sid, copy)]
    assert told[0] == told[1]
    model = http.get(f"/sessions/{copy}/model").json()
    scales = model["scales"]
    assert scales["tangent"] is True
    for j in range(3):  # as the model says it
        p, w = np.array(model["reference"][j]), np.array(model["weights"][j])
        r = g.distance(p, asked)
        scores = scales["scale"][j] * np.sinh(g.signed_distance(p, w, asked)) * r / np.sinh(r) + scales["offset"][j]
        assert np.abs(scores - np.array(told[0]["scores"])[:, j]).max() < 1e-9 * (1 + np.abs(scores).max())


def test_a_promoted_sessions_certificate_is_that_of_its_own_start(http: httpx.Client) -> None:
    """The stream is learned in process from the fit's weights; after a snapshot too"""
    X, indices = data()
    sid = opened(http, X, indices)
    fitted = done(http, sid, reference="hull", C=100.0)
    assert http.post(f"/sessions/{sid}/promote", json={"fit": fitted["id"]}).status_code == 200
    classifier = fit(Recipe(reference="hull", C=100.0), X, indices, 2, 1.0, lambda done: None)[0]
    spec = session("perceptron")
    state = promoted(spec, spec.first_state(), classifier)
    more, labels = data(seed=7)
    state = spec.learner.observe(state, more, spec.targets(labels)).state
    observe(http, sid, more, labels)
    told = http.get(f"/sessions/{sid}/certificate?margin=0.01").json()
    proof = certificate(state, 0.01)
    assert told["updates"] == proof.updates > 0
    start = float(np.linalg.norm(state.start))
    assert start > 1
    assert told["bound"] == pytest.approx(proof.bound, rel=1e-6)
    assert proof.radius is not None
    assert proof.bound == pytest.approx(
        (math.sinh(proof.radius) ** 2 + 2 * start * math.sinh(0.01)) / math.sinh(0.01) ** 2
    )
    assert told["largest_margin"] == pytest.approx(proof.largest_margin, rel=1e-6)
    snapshot = http.get(f"/sessions/{sid}/snapshot").json()
    copy = http.post("/sessions", json={"snapshot": snapshot}).json()["id"]
    assert http.get(f"/sessions/{copy}/certificate?margin=0.01").json() == told
    models = [http.get(f"/sessions/{each}/model").json() for each in (sid, copy)]
    assert models[0] == models[1]


def test_a_promotion_asked_for_twice_with_one_key_is_one(http: httpx.Client) -> None:
    X, indices = data()
    sid = opened(http, X, indices)
    fitted = done(http, sid, reference="hull")
    headers, body = {"Idempotency-Key": "p"}, {"fit": fitted["id"]}
    first = http.post(f"/sessions/{sid}/promote", json=body, headers=headers)
    learned = observe(http, sid, *data(seed=8))
    again = http.post(f"/sessions/{sid}/promote", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    now = http.get(f"/sessions/{sid}").json()
    assert {name: now[name] for name in learned["session"]} == learned["session"]  # nothing began anew
    assert http.post(f"/sessions/{sid}/promote", json=body).json()["updates"] == 0
    assert http.delete(f"/sessions/{sid}/fits/{fitted['id']}").status_code == 204
    forgotten = http.post(f"/sessions/{sid}/promote", json=body, headers=headers)
    assert forgotten.status_code == 200  # it was done
    other = http.post(f"/sessions/{sid}/promote", json={"fit": "another"}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (404, "/problems/unknown-fit")


def test_a_refused_promotion_changes_nothing(http: httpx.Client) -> None:
    X, indices = data()
    sid = opened(http, X, indices)
    before = [http.get(f"/sessions/{sid}{path}").json() for path in ("", "/model", "/metrics")]
    for recipe in ({"kind": "softmax"}, {"kind": "svm", "features": "hyperboloid"}):
        answer = http.post(f"/sessions/{sid}/promote", json={"fit": done(http, sid, **recipe)["id"]})
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-parameter")
        assert answer.json()["name"] == "fit"
    assert [http.get(f"/sessions/{sid}{path}").json() for path in ("", "/model", "/metrics")] == before
    flat = opened(http, X, indices, algorithm="second_order", a=0)
    answer = http.post(f"/sessions/{flat}/promote", json={"fit": done(http, flat, reference="hull")["id"]})
    assert (answer.status_code, answer.json()["name"]) == (422, "a")
    for body, slug in itertools.product(({}, {"fit": 1}, {"fit": None}), ("invalid-request",)):
        answer = http.post(f"/sessions/{sid}/promote", json=body)
        assert (answer.status_code, answer.json()["type"]) == (422, f"/problems/{slug}")
