"""Sessions listed, changed, ended and expired."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from service.learners import strategic
from service.store.keys import session_keys
from tests.opening import RAW, opened, raw
from tests.running import Running
from tests.sse import listening, spoken
from tests.storing import stored
from tests.strategies import points
from tests.streams import strategic_response


@pytest.fixture
def few(small: Running) -> Iterator[httpx.Client]:
    """A service with few sessions"""
    with httpx.Client(base_url=small.url, timeout=30) as client:
        yield client


def pages(http: httpx.Client, limit: int) -> Iterator[list[dict[str, Any]]]:
    """Page by page; between two of them the caller may do what he likes"""
    cursor: dict[str, str] = {}
    for _ in range(1000):
        page = http.get("/sessions", params={"limit": limit, **cursor}).json()
        assert len(page["sessions"]) <= limit
        yield page["sessions"]
        if page["cursor"] is None:
            return
        cursor = {"cursor": page["cursor"]}
    raise AssertionError("the list has no end")


# ---------------------------------------------------------------------------------- the list


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_the_list_has_no_repeats_and_no_gaps_whatever_happens_meanwhile(few: httpx.Client, limit: int) -> None:
    rng = np.random.default_rng(limit)
    mine = [opened(few, {"dimension": 2, "reference": "origin", "name": str(i)}) for i in range(24)]
    staying, seen = set(mine), []
    opening = 0
    for page in pages(few, limit):
        seen += [each["id"] for each in page]
        for sid in rng.choice(sorted(staying), size=2, replace=False) if len(staying) > 8 else ():
            few.delete(f"/sessions/{sid}").raise_for_status()  # listed already or not yet
            staying.remove(sid)
        if opening < 5:
            opened(few, {"dimension": 2, "reference": "origin"})
            opening += 1
    assert len(seen) == len(set(seen))
    assert staying <= set(seen)
    order = [sid for sid in seen if sid in mine]
    assert order == [sid for sid in reversed(mine) if sid in order]  # newest first


def test_a_session_is_listed_as_it_looks(few: httpx.Client) -> None:
    bodies = [
        {
            "dimension": 3,
            "reference": "origin",
            "algorithm": "strategic",
            "budget": {"estimate": {"initial": 2.0}},
            "ttl_seconds": 1000,
        },
        {
            "dimension": 2,
            "reference": "origin",
            "labels": ["a", "b", "c"],
            "algorithm": "second_order",
            "a": 2.0,
            "name": "ä",
        },
        {"dimension": 2, "algorithm": "hyperboloid", "keep_points": 0},
        {"dimension": 2, "reference": {"learn": {"warmup": 10, "method": "closest"}}},
    ]
    sids = [opened(few, body) for body in bodies]
    few.post(f"/sessions/{sids[1]}/observe", json={"point": [0.1, 0.2], "label": "b"}).raise_for_status()
    listed = few.get("/sessions", params={"limit": 4}).json()["sessions"]
    assert listed == [few.get(f"/sessions/{sid}").json() for sid in reversed(sids)]


def test_expired_sessions_do_not_shorten_a_page(few: httpx.Client, small: Running) -> None:
    """As many as asked for, as long as there are some"""
    mine = [opened(few, {"dimension": 2, "reference": "origin"}) for _ in range(6)]
    gone = [opened(few, {"dimension": 2, "reference": "origin"}) for _ in range(40)]
    with redis.Redis.from_url(small.redis_url) as store:
        for sid in gone:
            store.delete(*session_keys(sid))  # as expiry does
        listed = few.get("/sessions", params={"limit": 6}).json()
        assert [each["id"] for each in listed["sessions"]] == mine[::-1]
        assert few.get(f"/sessions/{gone[0]}").status_code == 410


# ------------------------------------------------------------------------------------- PATCH


def test_what_is_left_out_stays(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin", "name": "old", "ttl_seconds": 1000, "keep_points": 50})
    before = http.get(f"/sessions/{sid}").json()
    for change in (
        {"name": "new"},
        {"ttl_seconds": 2000},
        {"keep_points": 60},
        {},
        {"name": None},
        {"ttl_seconds": None},
    ):
        changed = http.patch(f"/sessions/{sid}", json=change)
        assert changed.status_code == 200, changed.text
        before |= change
        assert changed.json() == before == http.get(f"/sessions/{sid}").json()
        assert changed.headers["horocycle-epoch"]


def test_every_worker_knows_of_a_change(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    for number in range(10):
        with httpx.Client(base_url=http.base_url) as one, httpx.Client(base_url=http.base_url) as other:
            one.patch(f"/sessions/{sid}", json={"name": str(number)}).raise_for_status()
            assert other.get(f"/sessions/{sid}").json()["name"] == str(number)
            observed = other.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.1], "label": 1}).json()
            assert observed["session"]["observed"] == number + 1


def test_a_time_to_live_is_given_and_taken(http: httpx.Client, running: Running) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.1], "label": 1}, headers={"Idempotency-Key": "k"})
    http.post(f"/sessions/{sid}/predict", json={"point": [0.1, 0.1], "id": "a"}).raise_for_status()
    with running.client() as store:

        def lives() -> set[bool]:
            """Whether what there is of the session ends some time"""
            found = [store.ttl(key) for key in session_keys(sid) if store.exists(key)]
            assert len(found) >= 5
            return {ttl != -1 for ttl in found}

        assert lives() == {False}
        http.patch(f"/sessions/{sid}", json={"ttl_seconds": 1000}).raise_for_status()
        assert lives() == {True}
        http.post(f"/sessions/{sid}/predict", json={"point": [0.1, 0.2], "id": "b"}).raise_for_status()
        http.post(f"/sessions/{sid}/labels", json={"id": "a", "label": 1}).raise_for_status()
        assert lives() == {True}
        http.patch(f"/sessions/{sid}", json={"ttl_seconds": None}).raise_for_status()
        assert lives() == {False}


def test_use_keeps_a_session_alive_and_idleness_does_not(http: httpx.Client) -> None:
    used, idle = (opened(http, {"dimension": 2, "reference": "origin", "ttl_seconds": 1}) for _ in range(2))
    deadline = time.monotonic() + 20
    while http.get(f"/sessions/{idle}").status_code != 410:  # a look is no use
        assert http.get(f"/sessions/{used}/predict?x=0.1,0.2").status_code == 200
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for method, what in (("PATCH", ""), ("GET", "/metrics"), ("GET", "/snapshot"), ("GET", "/events"), ("DELETE", "")):
        gone = http.request(method, f"/sessions/{idle}{what}", json={} if method == "PATCH" else None)
        assert (gone.status_code, gone.json()["type"]) == (410, "/problems/session-gone")


def test_keep_points_shrinks_what_is_kept(http: httpx.Client, running: Running) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin", "keep_points": 1000})
    X = points(np.random.default_rng(5), 300, 2, 3.0)
    rows = raw(X, np.ones(300))
    for at in range(0, 300, 10):
        body = raw(X[at : at + 10], np.ones(10))
        http.post(f"/sessions/{sid}/observe", content=body, headers=RAW).raise_for_status()
    for keep in (1000, 100, 95, 5, 0):
        http.patch(f"/sessions/{sid}", json={"keep_points": keep}).raise_for_status()
        assert stored(running.redis_url, sid).rows.tobytes() == rows[len(rows) - min(keep, 300) * 24 :]
    http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.1], "label": 1}).raise_for_status()
    assert http.get(f"/sessions/{sid}/snapshot").json()["points"] == ""


def test_the_estimate_of_a_budget_begins_anew(http: httpx.Client, running: Running) -> None:
    sid = opened(
        http,
        {"dimension": 2, "reference": "origin", "algorithm": "strategic", "budget": {"estimate": {"initial": 3.0}}},
    )
    X = points(np.random.default_rng(6), 400, 2, 2.5)
    at, version = 0, 0
    while at < len(X):
        model = http.get(f"/sessions/{sid}/model").json()
        p, w = np.array(model["reference"]), np.array(model["weights"])
        moved = np.array([strategic_response(x, p, w, model["budget"], 0.5) for x in X[at:]])
        headers = {**RAW, "If-Match": f'"{model["version"]}"'}
        body = raw(moved, X[at:, 0] > 0)
        told = http.post(f"/sessions/{sid}/observe", content=body, headers=headers).json()
        at, version = at + told["accepted"], told["session"]["version"]
    before, model = http.get(f"/sessions/{sid}").json(), http.get(f"/sessions/{sid}/model").json()
    learned = stored(running.redis_url, sid).loaded.state
    assert isinstance(learned, strategic.State) and np.isfinite(learned.evidence).any() and learned.alpha < 3.0
    with listening(http, sid) as events:
        spoken(events, 1)  # the reset
        changed = http.patch(f"/sessions/{sid}", json={"budget": {"estimate": {"initial": 2.0}}}).json()
        [event] = spoken(events, 1)
    anew = stored(running.redis_url, sid).loaded.state
    assert isinstance(anew, strategic.State)
    assert anew.alpha == 2.0 and np.isinf(anew.evidence).all()
    assert np.array_equal(anew.w, learned.w) and anew.k == learned.k
    assert changed == before | {"version": version + 1, "budget": {"estimate": {"initial": 2.0}}}
    now = http.get(f"/sessions/{sid}/model")
    assert now.headers["etag"] == f'"{version + 1}"'
    assert now.json() == model | {"budget": 2.0, "threshold": 2.0 / model["sigma"], "version": version + 1}
    assert event.name == "model"
    counts = {name: changed[name] for name in ("observed", "mistakes", "updates", "version", "status")}
    assert event.data == {"kind": "budget", **counts}


@pytest.mark.parametrize(
    ("session", "change", "slug"),
    [
        ({}, {"budget": {"estimate": {"initial": 1.0}}}, "invalid-parameter"),
        ({"algorithm": "strategic"}, {"budget": {"estimate": {"initial": 1.0}}}, "invalid-parameter"),
        ({"algorithm": "strategic"}, {"budget": 1.0}, "invalid-request"),
        ({}, {"dimension": 3, "reference": "origin"}, "unknown-field"),
        ({}, {"id": "other"}, "unknown-field"),
        ({}, {"keep_events": 3}, "unknown-field"),
        ({}, {"keep_points": None}, "not-a-number"),
        ({}, {"keep_points": -1}, "invalid-request"),
        ({}, {"ttl_seconds": 0}, "invalid-request"),
        ({}, {"ttl_seconds": 1.5}, "not-a-number"),
        ({}, {"name": "x" * 201}, "invalid-request"),
        ({}, {"name": 1}, "invalid-request"),
        ({"labels": ["a", "b"]}, {"add_labels": ["x" * 201]}, "invalid-request"),
        ({}, {"add_labels": list(range(2, 1003))}, "invalid-request"),
        ({}, [], "invalid-request"),
    ],
    ids=str,
)
def test_a_change_that_is_refused_changes_nothing(http: httpx.Client, session: Any, change: Any, slug: str) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin", **session})
    before = http.get(f"/sessions/{sid}").json()
    refused = http.patch(f"/sessions/{sid}", content=json.dumps(change), headers={"content-type": "application/json"})
    assert (refused.status_code, refused.json()["type"]) == (422, f"/problems/{slug}")
    assert http.get(f"/sessions/{sid}").json() == before
