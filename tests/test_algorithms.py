"""What a session is opened as, what its model says, how it may be changed: the learners for real streams, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from service.learners import auto, gaussian, hemisphere, learner_of, softmax
from tests.opening import RAW, opened, raw
from tests.problem import require_problem
from tests.strategies import points
from tests.streams import rings

K = 4
LABELS = ["a", "b", "c", "d"]


def look(http: httpx.Client, sid: str, what: str = "") -> Any:
    answer = http.get(f"/sessions/{sid}{what}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def observe(http: httpx.Client, sid: str, X: Any, y: Any, query: str = "", **headers: str) -> Any:
    answer = http.post(f"/sessions/{sid}/observe{query}", content=raw(X, y), headers={**RAW, **headers})
    assert answer.status_code == 200, answer.text
    return answer.json()


# --------------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, {"algorithm": "auto", "features": "hemisphere", "members": list(auto.MEMBERS), "refit": "doubling"}),
        ({"reference": "origin"}, {"algorithm": "perceptron", "features": "lift", "average": None, "members": None}),
        ({"features": "lift"}, {"algorithm": "perceptron", "reference": [0.0, 0.0]}),
        ({"algorithm": "perceptron"}, {"features": "hemisphere", "average": True, "reference": None}),
        ({"algorithm": "second_order", "average": False}, {"features": "hemisphere", "average": False, "a": 1.0}),
        ({"algorithm": "strategic"}, {"features": "tangent", "reference": [0.0, 0.0], "refit": None}),
        ({"algorithm": "hyperboloid"}, {"features": "hyperboloid", "reference": None}),
        ({"algorithm": "softmax", "refit": "none"}, {"features": "hemisphere", "refit": "none", "average": None}),
        ({"algorithm": "gaussian"}, {"features": "tangent", "refit": None}),
        ({"members": ["gaussian", "perceptron"]}, {"algorithm": "auto", "refit": None, "a": 1.0}),
        ({"drift": {"on_drift": "restart"}}, {"drift": {"sensitivity": 0.002, "on_drift": "restart"}}),
    ],
)
def test_what_is_left_out_follows_from_what_is_given(
    http: httpx.Client, asked: dict[str, Any], shown: dict[str, Any]
) -> None:
    found = look(http, opened(http, {"dimension": 2, **asked}))
    assert {name: found[name] for name in shown} == shown
    assert found["hints"] == []


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"algorithm": "auto", "reference": "origin"}, "reference"),
        ({"algorithm": "softmax", "reference": [0.1, 0.2]}, "reference"),
        ({"algorithm": "gaussian", "reference": {"learn": {}}}, "reference"),
        ({"algorithm": "hyperboloid", "reference": [0.1, 0.2]}, "reference"),
        ({"algorithm": "gaussian", "features": "lift"}, "features"),
        ({"features": "hemisphere", "reference": "origin"}, "features"),
        ({"reference": "origin", "average": True}, "average"),
        ({"algorithm": "gaussian", "average": True}, "average"),
        ({"algorithm": "softmax", "members": ["softmax"]}, "members"),
        ({"members": ["softmax", "softmax"]}, "members"),
        ({"algorithm": "gaussian", "refit": "doubling"}, "refit"),
        ({"members": ["gaussian"], "refit": "doubling"}, "refit"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_remedy(
    http: httpx.Client, asked: dict[str, Any], field: str
) -> None:
    answer = http.post("/sessions", json={"dimension": 2, **asked})
    told = require_problem(answer, 422, "invalid-parameter")
    assert told["detail"].startswith(field) and "it must be" in told["detail"]


@pytest.mark.parametrize("body", [{"members": []}, {"members": ["strategic"]}, {"drift": {"sensitivity": 1}}])
def test_settings_out_of_range_are_refused(http: httpx.Client, body: dict[str, Any]) -> None:
    require_problem(http.post("/sessions", json={"dimension": 2, **body}), 422, "invalid-request")


# ----------------------------------------------------------------------------------------------- what it answers

STATES: dict[str, Any] = {
    "perceptron": lambda c: hemisphere.init(2, classes=K, c=c, a=np.inf),
    "second_order": lambda c: hemisphere.init(2, classes=K, c=c),
    "softmax": lambda c: softmax.init(2, classes=K, c=c),
    "gaussian": lambda c: gaussian.init(2, classes=K, c=c),
    "auto": lambda c: auto.default(2, classes=K, c=c),
}


@pytest.mark.parametrize("algorithm", STATES)
@pytest.mark.parametrize("c", [1.0, 2.0])
def test_a_session_is_its_learner_bit_for_bit(http: httpx.Client, algorithm: str, c: float) -> None:
    """In requests of every size; without refits, which tests/test_refits.py is about"""
    X, y = rings(np.random.default_rng(1), 400, K)
    X, refit = X / np.sqrt(c), {"refit": "none"} if algorithm in ("auto", "softmax") else {}
    sid = opened(http, {"dimension": 2, "labels": LABELS, "algorithm": algorithm, "curvature": c, **refit})
    state = STATES[algorithm](c)
    learner: Any = learner_of(state)
    for part in np.split(np.arange(400), [1, 2, 30, 250]):
        told = observe(http, sid, X[part], y[part], "?probabilities=true")
        outcome = learner.observe(state, X[part], y[part])
        assert np.array_equal(told["scores"], outcome.scores)
        assert told["predictions"] == [LABELS[i] for i in outcome.scores.argmax(axis=1)]
        if outcome.probabilities is None:
            assert "probabilities" not in told
        else:
            assert np.array_equal(told["probabilities"], outcome.probabilities)
        state = outcome.state
    asked = http.post(f"/sessions/{sid}/predict", json={"points": X[:20].tolist()}).json()
    assert np.array_equal(asked["scores"], learner.score(state, X[:20]))
    if hasattr(learner, "probabilities"):
        assert np.array_equal(asked["probabilities"], learner.probabilities(state, X[:20]))
    else:
        assert "probabilities" not in asked


def test_an_answer_with_probabilities_is_replayed_whole(http: httpx.Client) -> None:
    X, y = rings(np.random.default_rng(2), 60, K)
    sid = opened(http, {"dimension": 2, "labels": LABELS, "algorithm": "gaussian"})
    first, again = (observe(http, sid, X, y, "?probabilities=true", **{"Idempotency-Key": "once"}) for _ in range(2))
    assert first == again and len(first["probabilities"]) == 60
    other = http.post(f"/sessions/{sid}/observe", content=raw(X, y), headers={**RAW, "Idempotency-Key": "once"})
    require_problem(other, 422, "key-reused")
    require_problem(
        http.post(f"/sessions/{sid}/observe?probabilities=maybe", content=raw(X, y), headers=RAW),
        422,
        "invalid-request",
    )


def phi(X: Any) -> Any:
    square = (X**2).sum(axis=1, keepdims=True)
    return np.concatenate([np.ones_like(square), 2 * X, 1 - square], axis=1) / np.concatenate(
        [np.ones_like(square), 1 + square, 1 + square, 1 + square], axis=1
    )


def decide(model: dict[str, Any], X: Any) -> list[Any]:
    """From the published model alone, straight from its description"""
    X, labels = X * np.sqrt(model["curvature"]), model["labels"]
    if model["members"] is not None:
        votes = np.zeros((len(X), len(labels)))
        for member in model["members"]:
            chosen = [labels.index(label) for label in decide(member, X / np.sqrt(model["curvature"]))]
            votes[np.arange(len(X)), chosen] += member["weight"]
        return [labels[i] for i in votes.argmax(axis=1)]
    if model["classes"] is not None:
        norm = np.linalg.norm(X, axis=1, keepdims=True)
        V, logs = X / norm * 2 * np.arctanh(norm), []
        for each in model["classes"]:
            cov, r = np.array(each["covariance"]), V - np.array(each["mean"])
            square = (r * np.linalg.solve(cov, r.T).T).sum(axis=1)
            log = np.log(each["count"]) if each["count"] else -np.inf
            logs.append(log - square / 2 - np.linalg.slogdet(cov)[1] / 2)
        return [labels[i] for i in np.argmax(logs, axis=0)]
    scores = phi(X) @ np.array(model["weights"]).T
    return [labels[i] for i in ((scores >= 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1))]


@pytest.mark.parametrize("algorithm", STATES)
@pytest.mark.parametrize("labels", [LABELS, ["no", "yes"]], ids=["four", "two"])
def test_the_published_model_is_enough_to_predict_by(http: httpx.Client, algorithm: str, labels: list[str]) -> None:
    X, y = rings(np.random.default_rng(3), 500, len(labels))
    X = X / np.sqrt(0.5)
    sid = opened(http, {"dimension": 2, "labels": labels, "algorithm": algorithm, "curvature": 0.5})
    observe(http, sid, X, y)
    told = http.post(f"/sessions/{sid}/predict", json={"points": X[:200].tolist()}).json()
    assert decide(look(http, sid, "/model"), X[:200]) == told["predictions"]


# ------------------------------------------------------------------------------------------------------- labels


def test_labels_are_added_while_the_stream_goes_on(http: httpx.Client) -> None:
    """On any worker, with keys of before still replayed; the old classes stay as they were"""
    X, y = rings(np.random.default_rng(4), 900, 3)
    sid = opened(http, {"dimension": 2, "labels": ["a", "b"]})
    two = y < 2
    first = observe(http, sid, X[two], y[two], **{"Idempotency-Key": "first"})
    require_problem(http.post(f"/sessions/{sid}/observe", json={"point": [0, 0], "label": "c"}), 422, "unknown-label")
    changed = http.patch(f"/sessions/{sid}", json={"add_labels": ["c"]}).json()
    assert changed["labels"] == ["a", "b", "c"] and changed["version"] == first["session"]["version"] + 1
    for _ in range(8):  # on either worker
        told = http.post(f"/sessions/{sid}/observe", json={"point": X[y == 2][0].tolist(), "label": "c"})
        assert told.status_code == 200, told.text
    right = observe(http, sid, X, y)["correct"]
    assert np.mean(right[-300:]) > 0.93
    again = observe(http, sid, X[two], y[two], **{"Idempotency-Key": "first"})
    assert again == first
    assert len(look(http, sid, "/metrics")["confusion"]) == 3


@pytest.mark.parametrize(
    "session",
    [
        {"algorithm": "perceptron", "reference": "origin"},
        {"algorithm": "second_order", "reference": "origin", "labels": [1, 2, 3]},
        {"algorithm": "hyperboloid"},
        {"algorithm": "perceptron"},
        {"algorithm": "softmax"},
        {"algorithm": "gaussian"},
    ],
)
def test_every_learner_of_many_classes_takes_more(http: httpx.Client, session: dict[str, Any]) -> None:
    X = points(np.random.default_rng(5), 60, 2, 3.0)
    sid = opened(http, {"dimension": 2, **session})
    K = len(look(http, sid)["labels"])
    observe(http, sid, X[:40], np.arange(40) % K)
    before = http.post(f"/sessions/{sid}/predict", json={"points": X.tolist()}).json()
    assert http.patch(f"/sessions/{sid}", json={"add_labels": ["new"]}).status_code == 200
    after = http.post(f"/sessions/{sid}/predict", json={"points": X.tolist()}).json()
    old = np.array(before["scores"]).reshape(60, -1)
    new = np.array(after["scores"])
    assert new.shape == (60, K + 1)
    if session["algorithm"] in ("perceptron", "second_order", "hyperboloid"):
        assert np.array_equal(new[:, K - 1 : K] if old.shape[1] == 1 else new[:, :K], old) or session == {
            "algorithm": "perceptron"
        }  # on the hemisphere two classes score a distance, three ⟨w,φ⟩
    told = observe(http, sid, X[40:], np.arange(20) % (K + 1))
    assert told["session"]["observed"] == 60


@pytest.mark.parametrize(
    ("session", "labels"),
    [
        ({"algorithm": "strategic"}, ["c"]),
        ({}, [1]),
        ({}, ["x", "x"]),
        ({"reference": {"learn": {}}}, ["c"]),
        ({"dimension": 300}, ["c"]),
    ],
)
def test_labels_that_cannot_be_added_are_refused(http: httpx.Client, session: dict[str, Any], labels: Any) -> None:
    sid = opened(http, {"dimension": 2, **session})
    answer = http.patch(f"/sessions/{sid}", json={"add_labels": labels})
    assert answer.status_code == 422, answer.text
    assert look(http, sid)["labels"] == [-1, 1]


# -------------------------------------------------------------------------------------------------------- hints


def test_a_session_that_is_no_better_than_the_majority_says_so(http: httpx.Client) -> None:
    X, y = rings(np.random.default_rng(6), 1200, 10)
    sid = opened(http, {"dimension": 2, "reference": "origin", "labels": list(range(10))})
    observe(http, sid, X, y)
    [hint] = look(http, sid)["hints"]
    assert "were right; always saying" in hint and '"algorithm": "auto"' in hint
    assert look(http, sid, "/metrics")["hints"] == [hint]
    good = opened(http, {"dimension": 2, "labels": list(range(10))})
    observe(http, good, X, y)
    assert look(http, good)["hints"] == []


def test_sorted_labels_are_told(http: httpx.Client) -> None:
    X, y = rings(np.random.default_rng(7), 600, 3)
    order = np.argsort(y, kind="stable")
    sid = opened(http, {"dimension": 2, "labels": [0, 1, 2]})
    observe(http, sid, X[order], y[order])
    assert any("come sorted: 2 of 600" in hint for hint in look(http, sid)["hints"])


def test_noise_without_structure_is_told(http: httpx.Client) -> None:
    rng = np.random.default_rng(8)
    sid = opened(http, {"dimension": 2})
    observe(http, sid, points(rng, 1000, 2, 3.0), (rng.random(1000) < 0.1).astype(int))
    [hint] = look(http, sid)["hints"]
    assert "always saying -1 would be right for" in hint


def test_a_session_that_has_not_got_over_a_change_says_so(http: httpx.Client) -> None:
    """Better than the majority, worse than it was; one that begins anew has nothing to say, as a fork that does"""
    X, y = rings(np.random.default_rng(12), 4000, 10)
    y[2000:] = (y[2000:] + 1) % 10
    alarming = {"drift": {"on_drift": "alarm"}}
    told = {}
    for name, more in (("alarm", alarming), ("restart", {})):
        told[name] = opened(http, {"dimension": 2, "labels": list(range(10)), **more})
        observe(http, told[name], X, y)
    [hint] = look(http, told["alarm"])["hints"]
    assert "The stream has changed, last at point" in hint and '{"on_drift": "restart"}' in hint
    assert look(http, told["restart"])["hints"] == []


def test_diagonals_are_told_and_many_dimensions_are_served(http: httpx.Client) -> None:
    """d = 4,096 and ten classes"""
    rng = np.random.default_rng(9)
    sid = opened(http, {"dimension": 4096, "labels": list(range(10))})
    assert "only the diagonals" in look(http, sid)["hints"][0]
    y = rng.integers(10, size=60)
    X = 0.004 * rng.normal(size=(60, 4096))
    X[np.arange(60), y] += 0.5
    told = observe(http, sid, X, y, "?reply=summary")
    assert told["session"]["observed"] == 60 and told["session"]["mistakes"] < 40


# ------------------------------------------------------------------------------------------------------ metrics


def test_metrics_show_the_members_side_by_side(http: httpx.Client) -> None:
    X, y = rings(np.random.default_rng(10), 500, K)
    sid = opened(http, {"dimension": 2, "labels": LABELS})
    observe(http, sid, X, y)
    found = look(http, sid, "/metrics")
    assert [each["algorithm"] for each in found["members"]] == list(auto.MEMBERS)
    assert all(each["accuracy"] == 1 - each["mistakes"] / 500 for each in found["members"])
    assert sum(each["weight"] for each in found["members"]) == pytest.approx(1)
    assert found["log_loss"] is found["calibration_error"] is None


@pytest.mark.parametrize("algorithm", ["softmax", "gaussian"])
def test_metrics_judge_the_probabilities(http: httpx.Client, algorithm: str) -> None:
    X, y = rings(np.random.default_rng(11), 800, K)
    sid = opened(http, {"dimension": 2, "labels": LABELS, "algorithm": algorithm})
    P = np.concatenate(
        [
            observe(http, sid, X[part], y[part], "?probabilities=true")["probabilities"]
            for part in (slice(0, 1), slice(1, 300), slice(300, 800))
        ]
    )
    found = look(http, sid, "/metrics")
    true = P[np.arange(800), y]
    assert found["log_loss"] == pytest.approx(-np.log(np.maximum(true, 1e-15)).mean(), rel=1e-12)
    assert 0 <= found["calibration_error"] < 0.2


def test_a_restart_begins_learner_schedule_and_votes_anew_and_counts_go_on(http: httpx.Client) -> None:
    X, y = rings(np.random.default_rng(12), 1400, K)
    y[800:] = (y[800:] + 1) % K
    sid = opened(http, {"dimension": 2, "labels": LABELS})
    observe(http, sid, X[:800], y[:800])
    told = observe(http, sid, X[800:], y[800:])
    drift = look(http, sid, "/metrics")["drift"]
    assert drift["alarms"] == 1 and 800 < drift["last_alarm"] < 840
    assert told["session"]["observed"] == 1400
    members = look(http, sid, "/metrics")["members"]
    since = 1400 - drift["last_alarm"]
    assert all(each["accuracy"] == 1 - each["mistakes"] / since for each in members)
    fork = http.post("/sessions", json={"fork": {"session": sid, "at": drift["last_alarm"]}}).json()
    assert fork["status"] in ("replaying", "live")
    was = look(http, sid, f"/at/{drift['last_alarm']}/model")
    assert all(each["weight"] == pytest.approx(1 / 3) for each in was["members"])
