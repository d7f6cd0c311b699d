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
from service.learners import one_vs_rest, strategic
from service.learners.certificates import certificate
from service.sessions.promotion import promoted
from service.sessions.spec import Spec
from tests.opening import RAW
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


@curvatures
@pytest.mark.parametrize("algorithm", ["perceptron", "second_order", "hyperboloid"])
@pytest.mark.parametrize("reference", ["hull", [[0.05, -0.02]]], ids=["a point each", "one point"])
def test_k_promoted_classes_have_the_fits_k_boundaries(algorithm: str, reference: Any, c: float) -> None:
    features = "hyperboloid" if algorithm == "hyperboloid" else "lift"
    classifier, spec = fitted(4, c, features, reference=reference), session(algorithm, 4, c)
    state = promoted(spec, spec.first_state(), classifier)
    asked = points(np.random.default_rng(4), 300, 2, 3.0) / math.sqrt(c)
    scores, decisions = one_vs_rest.score(state, asked), classifier.decisions(asked)
    clear = np.abs(decisions) > 1e-12 * np.abs(classifier.weights).sum() * np.cosh(3.0)
    assert clear.mean() > 0.99
    assert np.array_equal((scores >= 0)[clear], (decisions >= 0)[clear])
    if algorithm != "hyperboloid":
        assert np.abs(scores - classifier.scores(asked)).max() <= 1e-12
        begun = np.array([member.p for member in state.members]) / math.sqrt(c)
        assert np.abs(begun - classifier.references).max() <= 2 * EPS  # one row, or one a class


# ------------------------------------------------------------------------------------ what cannot be promoted


@pytest.mark.parametrize(
    ("spec", "classifier", "says"),
    [
        (session("perceptron"), fitted(features="hyperboloid"), "tangent or lift features"),
        (session("hyperboloid"), fitted(), "hyperboloid features"),
        (session("hyperboloid"), fitted(kind="softmax", features="hyperboloid"), "no hyperplane"),
        (session("perceptron", 3), fitted(3, kind="softmax", features="hyperboloid"), "no hyperplane"),
        (session("second_order", a=0), fitted(), "a is 0"),
    ],
    ids=["hyperboloid features", "tangent features", "softmax", "softmax of three", "a=0"],
)
def test_what_has_no_such_boundary_is_refused(spec: Spec, classifier: Classifier, says: str) -> None:
    with pytest.raises(InvalidParameter, match=says):
        promoted(spec, spec.first_state(), classifier)


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
    "hyperboloid": ({"algorithm": "hyperboloid"}, {"features": "hyperboloid"}),
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
    scores = np.array(online["scores"]) + (0.2 if name == "strategic" else 0)  # its threshold is its budget further
    assert np.array_equal(scores >= 0, np.array(batch["scores"]) >= 0)

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
    fitted = done(http, sid)
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
    for recipe in ({"kind": "softmax"}, {"features": "hyperboloid"}):
        answer = http.post(f"/sessions/{sid}/promote", json={"fit": done(http, sid, **recipe)["id"]})
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-parameter")
        assert answer.json()["name"] == "fit"
    assert [http.get(f"/sessions/{sid}{path}").json() for path in ("", "/model", "/metrics")] == before
    flat = opened(http, X, indices, algorithm="second_order", a=0)
    answer = http.post(f"/sessions/{flat}/promote", json={"fit": done(http, flat)["id"]})
    assert (answer.status_code, answer.json()["name"]) == (422, "a")
    for body, slug in itertools.product(({}, {"fit": 1}, {"fit": None}), ("invalid-request",)):
        answer = http.post(f"/sessions/{sid}/promote", json=body)
        assert (answer.status_code, answer.json()["type"]) == (422, f"/problems/{slug}")
