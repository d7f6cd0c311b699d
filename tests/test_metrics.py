"""GET /sessions/{id}/metrics says what counting the answers by hand says."""

from __future__ import annotations

import re
from typing import Any

import httpx
import numpy as np
import pytest

from service import geometry as g
from service.api.schemas import OpenSession
from service.sessions import tally
from tests.opening import RAW, opened, raw
from tests.sse import listening, spoken
from tests.strategies import points


def alarms_of(wrong: Any) -> list[int]:
    """tests/test_drift.py compares with the textbook"""
    each = np.array(wrong, dtype=bool)
    return list(tally.observe(tally.Tally(), tally.Confusion(), 2, each.astype(np.int64), 0 * each).alarms)


def share(part: Any, whole: Any) -> float | None:
    return int(part) / int(whole) if whole else None


@pytest.mark.parametrize(
    "session",
    [
        {"dimension": 2, "reference": "origin", "labels": ["no", "yes"]},
        {"dimension": 2, "reference": "origin", "labels": [10, 20, "other"], "algorithm": "second_order"},
        {"dimension": 2, "reference": "origin", "labels": ["a", "b", "c", "never"]},
        {"dimension": 2, "reference": "origin", "algorithm": "strategic", "budget": 0.3},
    ],
)
def test_the_metrics_are_those_of_the_answers(http: httpx.Client, session: dict[str, Any]) -> None:
    """2,600 points in requests of every size; some through late labels, some refused"""
    rng = np.random.default_rng(8)
    spec = OpenSession(**session).spec()
    K = min(len(spec.labels), 3)
    sid = opened(http, session)
    X = points(rng, 2600, 2, 3.0)
    indices = rng.integers(0, K, size=2600)
    decided: list[int] = []
    for part in np.split(np.arange(2600), [1, 2, 5, 305, 900, 1000, 1700, 2500]):
        if part[0] == 5:  # late
            http.post(f"/sessions/{sid}/predict", json={"points": X[part].tolist(), "ids": part.tolist()})
            late = {"ids": part.tolist(), "labels": [spec.labels[i] for i in indices[part]]}
            told = http.post(f"/sessions/{sid}/labels", json=late).json()
        else:
            told = http.post(f"/sessions/{sid}/observe", content=raw(X[part], indices[part]), headers=RAW).json()
        decided += [spec.labels.index(label) for label in told["predictions"]]
    assert http.post(f"/sessions/{sid}/observe", json={"point": [2, 0], "label": spec.labels[0]}).status_code == 422

    found = http.get(f"/sessions/{sid}/metrics").json()
    wrong = np.array(decided) != indices
    every = range(len(spec.labels))
    confusion = [[int(((indices == i) & (np.array(decided) == j)).sum()) for j in every] for i in every]
    assert {name: found[name] for name in told["session"]} == told["session"]
    assert (found["observed"], found["mistakes"]) == (2600, wrong.sum())
    assert found["accuracy"] == share(2600 - wrong.sum(), 2600)
    window = wrong[-1000:].sum()
    assert found["window"] == {"points": 1000, "mistakes": window, "accuracy": share(1000 - window, 1000)}
    assert found["labels"] == list(spec.labels)
    assert found["confusion"] == confusion
    for j, one in enumerate(found["classes"]):
        true, guessed = sum(confusion[j]), sum(row[j] for row in confusion)
        assert one == {
            **{"label": spec.labels[j], "points": true, "predicted": guessed},
            **{"precision": share(confusion[j][j], guessed), "recall": share(confusion[j][j], true)},
        }
    assert found["log"] == {"block": 1000, "first": 0, "mistakes": [wrong[:1000].sum(), wrong[1000:2000].sum()]}
    assert found["drift"]["alarms"] == len(alarms_of(wrong))


def test_a_session_without_points_has_no_rates(http: httpx.Client) -> None:
    found = http.get(f"/sessions/{opened(http, {'dimension': 2, 'reference': 'origin'})}/metrics").json()
    assert found["accuracy"] is found["window"]["accuracy"] is found["drift"]["last_alarm"] is None
    assert found["classes"][0] == {"label": -1, "points": 0, "predicted": 0, "precision": None, "recall": None}
    assert found["log"] == {"block": 1000, "first": 0, "mistakes": []}
    assert found["drift"] == {
        **{"alarms": 0, "last_alarm": None, "window": 0},
        **{"sensitivity": 0.002, "on_drift": "alarm"},
    }


def test_drift_is_told_by_the_metrics_and_by_an_event(http: httpx.Client) -> None:
    """A boundary that is learned, and then labels that nobody can learn"""
    rng = np.random.default_rng(9)
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    X = points(rng, 4000, 2, 3.0)
    X = X[np.abs(X[:, 0]) > 0.05][:3000]
    indices = (X[:, 0] > 0).astype(int)
    indices[2000:] = rng.integers(0, 2, size=len(X) - 2000)
    correct: list[bool] = []
    for at in range(0, len(X), 150):
        part = slice(at, at + 150)
        told = http.post(f"/sessions/{sid}/observe", content=raw(X[part], indices[part]), headers=RAW).json()
        correct += told["correct"]
    alarms = alarms_of([not each for each in correct])
    assert len(alarms) == 1 and alarms[0] > 2000
    found = http.get(f"/sessions/{sid}/metrics").json()["drift"]
    assert (found["alarms"], found["last_alarm"]) == (1, alarms[0])
    commits = -(-len(X) // 150)
    with listening(http, sid, "0-0") as events:
        sent = spoken(events, commits)
    [told_of] = [event for event in sent if event.data["alarms"]]
    assert told_of.data["alarms"] == alarms
    assert told_of.data["from"] < alarms[0] <= told_of.data["observed"]


def test_the_log_keeps_its_newest_thousand_entries(http: httpx.Client) -> None:
    """A million points and more, in one request"""
    sid = opened(http, {"dimension": 1, "reference": "origin", "keep_points": 0})
    n = 1_003_500
    rng = np.random.default_rng(10)
    x = np.where(rng.random(n) < 0.5, -0.5, 0.5)
    wrong = rng.random(n) < np.linspace(0, 0.01, n)
    indices = (x > 0) ^ wrong
    X, spec = x[:, None], OpenSession(dimension=1, reference="origin").spec()
    scores = spec.learner.observe(spec.first_state(), X, spec.targets(indices.astype(np.int64))).scores
    mistakes = spec.decide(scores) != indices
    told = http.post(f"/sessions/{sid}/observe?reply=summary", content=raw(X, indices), headers=RAW).json()
    assert told["mistakes"] == mistakes.sum()
    found = http.get(f"/sessions/{sid}/metrics").json()
    assert found["log"]["first"] == 3000
    assert found["log"]["mistakes"] == mistakes[3000:1_003_000].reshape(1000, 1000).sum(axis=1).tolist()


def test_a_jump_of_an_estimated_budget_is_told(http: httpx.Client) -> None:
    """Three agents a hair below the threshold halve it: on the session's metrics, in the events, for Prometheus"""

    def counted() -> float:
        [found] = re.findall(r"^horocycle_budget_jumps_total (\S+)$", http.get("/metrics").text, re.MULTILINE)
        return float(found)

    spec = {"dimension": 2, "algorithm": "strategic", "reference": "origin", "budget": {"estimate": {"initial": 4.0}}}
    sid, before = opened(http, spec), counted()
    http.post(f"/sessions/{sid}/observe", json={"point": [-0.5, 0.0], "label": -1}).raise_for_status()
    for i in range(3):
        version = http.get(f"/sessions/{sid}/model").headers["etag"]
        x = g.exp_map([0.0, 0.0], [(4.0 - 1e-6) / 2, 0.1 + 0.01 * i])
        told = {"point": x.tolist(), "label": -1}
        http.post(f"/sessions/{sid}/observe", json=told, headers={"if-match": version}).raise_for_status()
    assert http.get(f"/sessions/{sid}/metrics").json()["budget"] == {"estimate": 2.0, "evidence": 3, "jumps": 1}
    assert counted() == before + 1
    with listening(http, sid, "0-0") as events:
        assert [event.data["jumps"] for event in spoken(events, 4)] == [0, 0, 0, 1]
    plain = opened(http, {**spec, "budget": 0.5})
    assert http.get(f"/sessions/{plain}/metrics").json()["budget"] is None
