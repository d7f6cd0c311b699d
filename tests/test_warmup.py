"""A reference point learned from the first points: when, and what the learner is then, bit for bit."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.schemas import OpenSession
from service.batch import reference_point as reference
from service.geometry import Array
from service.learners import encode, one_vs_rest
from service.sessions import warmup
from service.sessions.spec import Spec
from tests.opening import RAW, opened, raw
from tests.running import Running
from tests.sse import listening, spoken
from tests.storing import stored
from tests.strategies import points
from tests.waiting import retry

LEARN = {"learn": {"warmup": 60, "method": "closest"}}
SESSIONS: dict[str, dict[str, Any]] = {
    "perceptron": {"dimension": 2, "reference": "origin"},
    "curved": {"dimension": 2, "reference": "origin", "curvature": 0.5},
    "second order": {"dimension": 2, "reference": "origin", "algorithm": "second_order"},
    "strategic": {"dimension": 2, "reference": "origin", "algorithm": "strategic", "budget": 0.3},
    "three classes": {"dimension": 2, "reference": "origin", "labels": ["a", "b", "c"]},
    "three classes, second order": {
        "dimension": 3,
        "reference": "origin",
        "labels": [1, 2, 3],
        "algorithm": "second_order",
    },
    "few kept": {"dimension": 2, "reference": "origin", "keep_points": 60},
}


@dataclass(frozen=True)
class Warmed:
    """What a warming session comes to, by the definition"""

    position: int  # points behind which it goes live
    scores: Array
    state: Any
    updates: int
    version: int


def first_ready(spec: Spec, indices: Any) -> int | None:
    """The first position with `warmup` points behind it, of which the newest `keep` hold enough of every class"""
    enough = max(1, spec.warmup // (10 * len(spec.labels)))
    for t in range(spec.warmup, len(indices) + 1):
        newest = Counter(indices[max(0, t - spec.keep_points) : t].tolist())
        if all(newest[j] >= enough for j in range(len(spec.labels))):
            return t
    return None


def begun(spec: Spec, X: Array, indices: Any) -> Any:
    """A learner at the reference point, or the K of them, that these points have"""
    if spec.binary:
        p = reference.learn(X, 2 * indices - 1, spec.method, c=spec.curvature).p
        return replace(spec, reference=tuple(p)).first_state()
    two = replace(spec, labels=spec.labels[:2])
    ps = [one.p for one in reference.learn_each(X, indices, len(spec.labels), spec.method, c=spec.curvature)]
    return one_vs_rest.init([replace(two, reference=tuple(p)).first_state() for p in ps])


def warmed(spec: Spec, X: Array, indices: Any) -> Warmed:
    n = first_ready(spec, indices)
    assert n is not None
    y, oldest = spec.targets(indices), max(0, n - spec.keep_points)
    cold = spec.learner.observe(spec.first_state(), X[:n], y[:n])
    replay = spec.learner.observe(begun(spec, X[oldest:n], indices[oldest:n]), X[oldest:n], y[oldest:n])
    live = spec.learner.observe(replay.state, X[n:], y[n:])
    k = int((spec.decide(replay.scores) != indices[oldest:n]).sum()) if spec.binary else int(replay.changed.sum())
    k += int((spec.decide(live.scores) != indices[n:]).sum()) if spec.binary else int(live.changed.sum())
    version = int(cold.changed[:-1].sum()) + 1 + int(live.changed.sum())
    return Warmed(n, np.concatenate([cold.scores, live.scores]), live.state, k, version)


def stream(spec: Spec, n: int = 120) -> tuple[Array, Any]:
    """Two or more clusters away from the origin, and some noise"""
    rng = np.random.default_rng(12)
    indices = rng.integers(0, len(spec.labels), size=n)
    angles = 0.3 + 2 * np.pi * indices / len(spec.labels) / 3
    centres = np.zeros((n, spec.dimension))
    centres[:, 0], centres[:, 1] = 0.55 * np.cos(angles), 0.55 * np.sin(angles)
    X = centres + 0.3 * points(rng, n, spec.dimension, 1.5)
    return X / np.sqrt(spec.curvature), np.where(rng.random(n) < 0.05, 0, indices)


def whole(http: httpx.Client, sid: str, X: Array, indices: Any) -> Iterator[dict[str, Any]]:
    yield from pieces(http, sid, X, indices, [len(X)])


def singles(http: httpx.Client, sid: str, X: Array, indices: Any) -> Iterator[dict[str, Any]]:
    yield from pieces(http, sid, X, indices, [1] * len(X))


def anyhow(http: httpx.Client, sid: str, X: Array, indices: Any) -> Iterator[dict[str, Any]]:
    yield from pieces(http, sid, X, indices, np.random.default_rng(2).integers(1, 40, size=len(X)).tolist())


def pieces(http: httpx.Client, sid: str, X: Array, indices: Any, sizes: list[int]) -> Iterator[dict[str, Any]]:
    at = 0
    for size in sizes:
        part = slice(at, at + size)
        if at < len(X):
            answer = http.post(f"/sessions/{sid}/observe", content=raw(X[part], indices[part]), headers=RAW)
            assert answer.status_code == 200, answer.text
            yield answer.json()
        at += size


def matched(http: httpx.Client, sid: str, X: Array, indices: Any) -> Iterator[dict[str, Any]]:
    """With If-Match: up to the first point that changes the version, and anew from there"""
    at, version = 0, 0
    while at < len(X):
        headers = {**RAW, "If-Match": f'"{version}"'}
        answer = http.post(f"/sessions/{sid}/observe", content=raw(X[at:], indices[at:]), headers=headers)
        assert answer.status_code == 200, answer.text
        yield answer.json()
        at, version = at + answer.json()["accepted"], answer.json()["session"]["version"]


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())
def test_it_goes_live_at_one_position_however_the_stream_is_cut(
    http: httpx.Client, running: Running, session: dict[str, Any]
) -> None:
    session = {**session, "reference": LEARN}
    spec = OpenSession(**session).spec()
    X, indices = stream(spec)
    expected = warmed(spec, X, indices)
    assert 60 <= expected.position < 120
    for cut in (whole, singles, anyhow, matched):
        sid = opened(http, session)
        assert http.get(f"/sessions/{sid}").json()["reference"] == LEARN
        told, versions = [], [0]
        for answer in cut(http, sid, X, indices):
            told += answer["scores"]
            versions.append(answer["session"]["version"])
            status = http.get(f"/sessions/{sid}").json()["status"] if cut is not singles else None
            assert status in (None, "live" if len(told) >= expected.position else "warming")
            if cut is singles and len(told) in (expected.position - 1, expected.position):
                status = http.get(f"/sessions/{sid}").json()["status"]
                assert status == ("live" if len(told) == expected.position else "warming")
        assert versions == sorted(versions)
        assert np.array_equal(np.array(told), expected.scores)
        assert stored(running.redis_url, sid).state == encode(expected.state)
        found = http.get(f"/sessions/{sid}").json()
        assert (found["updates"], found["version"], found["status"]) == (expected.updates, expected.version, "live")
        members = [expected.state] if spec.binary else expected.state.members
        ps = [(member.p / np.sqrt(spec.curvature)).tolist() for member in members]
        assert any(map(any, ps)) and found["reference"] == (ps[0] if spec.binary else ps)
        assert http.get(f"/sessions/{sid}/model").json()["reference"] == found["reference"]


def test_k_restarts_and_the_event_says_that_it_is_live(http: httpx.Client) -> None:
    session: dict[str, Any] = {"dimension": 2, "reference": LEARN}
    spec = OpenSession(**session).spec()
    X, indices = stream(spec)
    n = warmed(spec, X, indices).position
    noisy = indices.copy()
    noisy[: n - 1 : 3] ^= 1  # many mistakes on the way
    n = warmed(spec, X, noisy).position
    sid = opened(http, session)
    before = list(pieces(http, sid, X, noisy, [n - 1]))[-1]["session"]
    [after] = pieces(http, sid, X[n - 1 :], noisy[n - 1 :], [1])
    expected = warmed(spec, X[:n], noisy[:n])
    assert after["session"]["updates"] == expected.updates != before["updates"] + after["mistakes"]
    assert after["session"]["version"] == before["version"] + 1
    assert after["session"]["mistakes"] == before["mistakes"] + after["mistakes"]  # its predictions count
    with listening(http, sid, "0-0") as events:
        first, second = spoken(events, 2)
    assert (first.data["status"], second.data["status"]) == ("warming", "live")
    shown = [http.get(f"/sessions/{sid}/at/{each.data['observed']}/model").json() for each in (first, second)]
    assert [each["reference"] for each in shown] == [[0, 0], expected.state.p.tolist()]


def test_a_rare_class_is_waited_for(http: httpx.Client, running: Running) -> None:
    """Enough points, but one class comes late; of those kept it needs its share"""
    session: dict[str, Any] = {"dimension": 2, "reference": LEARN, "keep_points": 80}
    spec = OpenSession(**session).spec()
    assert warmup.quota(spec) == 3
    X, indices = stream(spec, 300)
    indices[:] = 0
    indices[[10, 11, 100, 190, 200, 210]] = 1  # three within 80 only at the end
    assert first_ready(spec, indices) == 211
    sid, at = opened(http, session), 0
    for answer in anyhow(http, sid, X, indices):
        at += answer["accepted"]
        assert http.get(f"/sessions/{sid}").json()["status"] == ("live" if at >= 211 else "warming")
    assert stored(running.redis_url, sid).state == encode(warmed(spec, X, indices).state)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.data())
def test_ready_at_is_the_definition(data: st.DataObject) -> None:
    K, need = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 60))
    keep = data.draw(st.integers(need, 80))
    learn: Any = {"learn": {"warmup": need, "method": "closest"}}
    spec = OpenSession(dimension=1, reference=learn, labels=list(range(K)), keep_points=keep).spec()
    weights = data.draw(st.sampled_from([[1.0, 1.0, 1.0, 1.0], [20.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]]))[:K]
    seed, n = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(1, 150))
    indices = np.random.default_rng(seed).choice(K, size=n, p=np.array(weights) / sum(weights))
    at, extra = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, 30))
    expected = first_ready(spec, indices)
    kept = indices[max(0, at - keep - extra) : at]  # retained are at least `keep`
    found = warmup.ready_at(spec, kept, indices[at:], at)
    if expected is None or expected > at:
        assert found == (None if expected is None else expected - at)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"keep_points": 59}, "keep_points"),
        ({"keep_points": 0}, "keep_points"),
        ({"algorithm": "hyperboloid"}, "reference"),
    ],
)
def test_what_cannot_warm_is_refused(http: httpx.Client, change: dict[str, Any], name: str) -> None:
    answer = http.post("/sessions", json={"dimension": 2, "reference": LEARN, **change})
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-parameter")
    assert answer.json()["name"] == name


def test_keep_points_may_not_shrink_below_the_warmup_before_it_is_live(http: httpx.Client) -> None:
    session: dict[str, Any] = {"dimension": 2, "reference": LEARN}
    X, indices = stream(OpenSession(**session).spec())
    sid = opened(http, session)
    refused = http.patch(f"/sessions/{sid}", json={"keep_points": 59})
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid-parameter")
    assert http.patch(f"/sessions/{sid}", json={"keep_points": 60}).status_code == 200
    list(whole(http, sid, X, indices))
    assert http.patch(f"/sessions/{sid}", json={"keep_points": 59}).json()["status"] == "live"


def test_it_warms_through_kill_9(mortal: Running) -> None:
    """A client that retries; a worker is killed, and the store; the retained points give the state"""
    session: dict[str, Any] = {
        "dimension": 2,
        "labels": ["a", "b", "c"],
        "reference": LEARN,
        "id": f"warm-{uuid4().hex}",
    }
    spec = OpenSession(**session).spec()
    X, indices = stream(spec, 240)
    with httpx.Client(base_url=mortal.url, timeout=30) as http:
        retry(lambda: http.post("/sessions", json=session), 201)
        for number, at in enumerate(range(0, 240, 6)):
            if number == 8:  # just before it goes live
                os.kill(mortal.worker_pids[0], signal.SIGKILL)
            if number in (9, 20):
                os.kill(mortal.store_pid, signal.SIGKILL)
            body, headers = raw(X[at : at + 6], indices[at : at + 6]), {**RAW, "Idempotency-Key": str(number)}
            retry(lambda: http.post(f"/sessions/{spec.id}/observe", content=body, headers=headers), 200)  # noqa: B023
        assert http.get(f"/sessions/{spec.id}").json()["status"] == "live"
    found = stored(mortal.redis_url, spec.id)
    assert np.array_equal(found.rows, np.column_stack([X, indices]))
    expected = warmed(spec, np.ascontiguousarray(found.rows[:, :-1]), found.rows[:, -1].astype(np.int64))
    assert found.state == encode(expected.state)
