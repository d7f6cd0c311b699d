"""Forks: a new session from another's log, replayed on the server; the state of the same stream, bit for bit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
import redis

from service.api import opening
from service.api.schemas import ForkSession, OpenSession
from service.errors import SessionReplaying
from service.geometry import Array
from service.sessions.changes import with_promotion
from service.sessions.promotion import begun as begun_from
from service.sessions.spec import asked
from service.store.keys import fork_queue_key, session_keys
from tests.opening import opened, raw
from tests.running import Running
from tests.storing import bits, some_classifier, stored, storing
from tests.strategies import points

RAW = {"content-type": "application/octet-stream"}
LEARN = {"learn": {"warmup": 40, "method": "closest"}}
SESSIONS: dict[str, dict[str, Any]] = {
    "perceptron": {"algorithm": "perceptron", "reference": [0.2, -0.1]},
    "second order, a=0": {"algorithm": "second_order", "a": 0, "curvature": 2.0},
    "strategic, estimating": {"algorithm": "strategic", "budget": {"estimate": {"initial": 2.0}}},
    "three classes, hyperboloid": {"algorithm": "hyperboloid", "labels": ["a", "b", "c"]},
    "warming": {"reference": LEARN},
    "warming, three classes": {"algorithm": "second_order", "labels": [1, 2, 3], "reference": LEARN},
}


def stream(n: int, K: int = 2, d: int = 2, seed: int = 4, curvature: float = 1.0) -> tuple[Array, Any]:
    rng = np.random.default_rng(seed)
    return points(rng, n, d, 3.0) / np.sqrt(curvature), rng.integers(0, K, size=n)


def observe(http: httpx.Client, sid: str, X: Array, indices: Any, if_match: int | None = None) -> dict[str, Any]:
    headers = RAW if if_match is None else {**RAW, "If-Match": f'"{if_match}"'}
    answer = http.post(f"/sessions/{sid}/observe", content=raw(X, indices), headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def begun(http: httpx.Client, source: str, **settings: Any) -> dict[str, Any]:
    answer = http.post("/sessions", json={"fork": {"session": source, **settings}})
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    assert told["status"] == "replaying" and answer.headers["location"] == f"/sessions/{told['id']}"
    return told


def until(http: httpx.Client, sid: str, *ends: str, seconds: float = 120.0) -> list[dict[str, Any]]:
    """Looked at until its status is one of these: all that was seen on the way"""
    seen, deadline = list[dict[str, Any]](), time.monotonic() + seconds
    while True:
        seen.append(http.get(f"/sessions/{sid}").raise_for_status().json())
        if seen[-1]["status"] in ends:
            return seen
        assert seen[-1]["status"] == "replaying", seen[-1]
        assert time.monotonic() < deadline, seen[-1]
        time.sleep(0.005)


def forked(http: httpx.Client, source: str, **settings: Any) -> str:
    sid = str(begun(http, source, **settings)["id"])
    assert until(http, sid, "live", "warming")[-1]["progress"] is None
    return sid


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["type"]).removeprefix("/problems/")


def equal(http: httpx.Client, running: Running, one: str, other: str) -> None:
    """Everything that can be asked of two sessions, and all that is stored of what they learned"""
    first, second = stored(running.redis_url, one), stored(running.redis_url, other)
    assert bits(first.loaded) == bits(second.loaded)
    assert first.rows.tobytes() == second.rows.tobytes()
    for path in ("model", "metrics"):
        assert http.get(f"/sessions/{one}/{path}").json() == http.get(f"/sessions/{other}/{path}").json()
    looks = [http.get(f"/sessions/{sid}").json() for sid in (one, other)]
    first_look, second_look = (
        {k: v for k, v in look.items() if k not in ("id", "name", "created_at")} for look in looks
    )
    assert first_look == second_look
    asked = {"points": (stream(20, d=first.loaded.spec.dimension, seed=9)[0] / 2).tolist()}
    answers = [http.post(f"/sessions/{sid}/predict", json=asked).json() for sid in (one, other)]
    assert answers[0] == answers[1]


# -------------------------------------------------------------------------------------- the same settings

#: Where commits end, and what they are or what comes after them.
STEPS = ((1, ""), (25, ""), (31, "match"), (46, "promote"), (47, "promote"), (80, "budget"), (120, "promote"))


def promote(running: Running, sid: str, seed: int) -> None:
    """As POST /promote does, from a fit that need not be waited for"""

    async def run() -> None:
        async with storing(running.redis_url) as parts:
            was = await parts.ingest.current(sid)
            learner = begun_from(was.spec, was.state, some_classifier(was.spec, np.random.default_rng(seed)))
            await parts.ingest.change(sid, lambda now: with_promotion(now, learner, "fit"))

    asyncio.run(run())


def told(http: httpx.Client, running: Running, session: dict[str, Any], at: int) -> str:
    """A session that was sent the first `at` points of a stream, with If-Match, promotions and a new estimate"""
    K, c = len(session.get("labels", [0, 1])), session.get("curvature", 1.0)
    X, indices = stream(120, K, curvature=c)
    sid, position, version = opened(http, {"dimension": 2, "reference": "origin", **session}), 0, 0
    for end, what in STEPS:
        while position < min(end, at):
            part = slice(position, min(end, at))
            answer = observe(http, sid, X[part], indices[part], version if what == "match" else None)
            position, version = position + answer["accepted"], answer["session"]["version"]
        if position < end:
            break
        if what == "promote" and "a" not in session:
            promote(running, sid, seed=end)
        if what == "budget" and isinstance(session.get("budget"), dict):
            body = {"budget": {"estimate": {"initial": 1.5}}}
            http.patch(f"/sessions/{sid}", json=body).raise_for_status()
        version = http.get(f"/sessions/{sid}").json()["version"]
    return sid


@pytest.mark.parametrize("name", SESSIONS)
def test_a_fork_is_the_session_at_that_position(http: httpx.Client, running: Running, name: str) -> None:
    """At the start, in the middle of a commit, at a promotion, at the end; and it goes on as the session would have"""
    session = SESSIONS[name]
    K, c = len(session.get("labels", [0, 1])), session.get("curvature", 1.0)
    source, positions = told(http, running, session, 120), (0, 28, 46, 47, 60, 120)
    forks = [str(begun(http, source, at=at)["id"]) for at in positions]
    more = stream(60, K, seed=5, curvature=c)
    for at, fork in zip(positions, forks, strict=True):
        assert until(http, fork, "live", "warming")[-1]["observed"] == at
        same = told(http, running, session, at)
        equal(http, running, fork, same)
        for position in {0, at // 2, min(at, 31), min(at, 46), min(at, 47), at}:
            then = http.get(f"/sessions/{source}/at/{position}/model").json()
            assert http.get(f"/sessions/{fork}/at/{position}/model").json() == then
        for part in (slice(0, 50), slice(50, 60)):
            answers = [observe(http, sid, more[0][part], more[1][part]) for sid in (fork, same)]
            assert answers[0] == answers[1]
        equal(http, running, fork, same)
    assert http.get(f"/sessions/{source}").json()["observed"] == 120  # nothing of it changed


def test_a_fork_of_a_fork_and_one_without_a_position(http: httpx.Client, running: Running) -> None:
    source = told(http, running, SESSIONS["perceptron"], 120)
    first = forked(http, source)
    second = forked(http, first, at=100)
    third = forked(http, second, name="the third")
    equal(http, running, first, source)
    equal(http, running, second, told(http, running, SESSIONS["perceptron"], 100))
    equal(http, running, third, second)
    assert http.get(f"/sessions/{third}").json()["name"] == "the third"
    assert http.get(f"/sessions/{second}").json()["name"] is None


def test_a_fork_may_keep_other_points_and_is_the_same_learner(http: httpx.Client, running: Running) -> None:
    source = told(http, running, SESSIONS["warming"], 120)
    for keep in (40, 100_000):
        fork = stored(running.redis_url, forked(http, source, keep_points=keep, ttl_seconds=1000))
        was = stored(running.redis_url, source)
        assert bits(fork.loaded) == bits(was.loaded)
        assert fork.rows.tobytes() == was.rows[-keep:].tobytes()
        assert (fork.loaded.spec.keep_points, fork.loaded.spec.ttl_seconds) == (keep, 1000)


# -------------------------------------------------------------------------------------------- other settings

OTHER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another algorithm": ({"algorithm": "perceptron"}, {"algorithm": "second_order"}),
    "another reference": ({"algorithm": "perceptron"}, {"reference": [0.3, 0.1]}),
    "another a": ({"algorithm": "second_order"}, {"a": 0}),
    "another budget": ({"algorithm": "strategic", "budget": 1.0}, {"budget": 0.25}),
    "an estimate": ({"algorithm": "strategic", "budget": 1.0}, {"budget": {"estimate": {"initial": 1.0}}}),
    "a warm-up": ({"algorithm": "perceptron"}, {"reference": LEARN}),
    "three classes": ({"labels": ["a", "b", "c"]}, {"algorithm": "hyperboloid"}),
    "no warm-up any more": ({"reference": LEARN}, {"reference": "origin"}),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_fork_with_other_settings_is_a_fresh_session_with_the_same_stream(
    http: httpx.Client, running: Running, name: str
) -> None:
    """Promotions of the source are left out, and so is what its agents named"""
    was, other = OTHER[name]
    source = told(http, running, was, 120)
    X, indices = stream(120, len(was.get("labels", [0, 1])))
    forks = {at: str(begun(http, source, at=at, **other)["id"]) for at in (0, 30, 75, 120)}
    for at, fork in forks.items():
        until(http, fork, "live", "warming")
        fresh = opened(http, {"dimension": 2, "reference": "origin", **was, **other})
        if at:
            observe(http, fresh, X[:at], indices[:at])
        equal(http, running, fork, fresh)
        for sid in (fork, fresh):
            observe(http, sid, X[60:], indices[60:])
        equal(http, running, fork, fresh)


@pytest.mark.parametrize(
    ("was", "other", "expected"),
    [
        ({"algorithm": "perceptron"}, {"algorithm": "auto"}, "restart"),
        ({}, {"algorithm": "gaussian"}, "alarm"),
        ({}, {"refit": "none"}, "restart"),
        ({"drift": {"on_drift": "alarm"}}, {"refit": "none"}, "alarm"),
        ({"algorithm": "perceptron", "drift": {"on_drift": "restart"}}, {"algorithm": "gaussian"}, "restart"),
        ({"algorithm": "perceptron"}, {"algorithm": "auto", "drift": {"on_drift": "alarm"}}, "alarm"),
    ],
)
def test_a_fork_with_another_algorithm_does_about_drift_what_that_does_unless_it_was_chosen(
    was: dict[str, Any], other: dict[str, Any], expected: str
) -> None:
    drift = {"sensitivity": 0.002, **was.get("drift", {})}
    source = OpenSession.model_validate({"dimension": 2, **was, "drift": drift}).spec()
    fork = opening.forked(ForkSession.model_validate({"fork": {"session": source.id, **other}}), source)
    told = asked(fork)["drift"]
    assert told["on_drift"] == expected
    assert "drift" in other or told["sensitivity"] == 0.002


# ----------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_forked_is_refused_and_leaves_nothing(http: httpx.Client) -> None:
    source = opened(http, {"dimension": 2, "reference": "origin", "labels": ["a", "b"]})
    observe(http, source, *stream(10))
    id = f"fork-{uuid4().hex}"

    def ask(**settings: Any) -> tuple[int, str]:
        return problem(http.post("/sessions", json={"fork": {"session": source, "id": id, **settings}}))

    fixed: list[dict[str, Any]] = [
        {"dimension": 3, "reference": "origin"},
        {"curvature": 2.0},
        {"labels": ["a", "c"]},
        {"labels": ["b", "a"]},
    ]
    for settings in [*fixed, {"at": 11}]:
        assert ask(**settings) == (422, "invalid-parameter")
    wrong: list[dict[str, Any]] = [{"at": -1}, {"at": 1.5}, {"algorithm": "none"}, {"unheard": 1}, {"reference": [0.1]}]
    for settings in wrong:
        assert ask(**settings)[0] == 422
    assert ask(session="nobody-has-this-id") == (404, "unknown-session")
    assert ask(id=source) == (409, "session-exists")
    assert http.get(f"/sessions/{id}").status_code == 404
    same = {"dimension": 2, "reference": "origin", "curvature": 1.0, "labels": ["a", "b"]}
    assert forked(http, source, id=id, **same) == id
    assert ask() == (409, "session-exists")
    http.delete(f"/sessions/{id}").raise_for_status()
    assert ask() == (409, "session-exists")  # an id is not given away again
    http.delete(f"/sessions/{source}").raise_for_status()
    assert ask(id="another") == (410, "session-gone")


def test_of_a_trimmed_log_other_settings_are_410_and_the_same_begin_at_a_checkpoint(
    http: httpx.Client, running: Running
) -> None:
    """With many small commits, and with few large ones, whose entries stay when their points are gone"""
    for sizes in ([4] * 200, [200] * 4):
        X, indices = stream(800)
        source, at = opened(http, {"dimension": 2, "reference": "origin", "keep_points": 60}), 0
        for size in sizes:
            observe(http, source, X[at : at + size], indices[at : at + size])
            at += size
        body = {"fork": {"session": source, "algorithm": "second_order"}}
        gone = http.post("/sessions", json=body)
        assert gone.status_code == 410, gone.text
        assert problem(gone) == (410, "log-trimmed")
        assert 0 < gone.json()["first"] <= 740
        for position in (745, 800):
            fork, same = (
                forked(http, source, at=position),
                opened(http, {"dimension": 2, "reference": "origin", "keep_points": 60}),
            )
            observe(http, same, X[:position], indices[:position])
            first, second = (stored(running.redis_url, sid) for sid in (fork, same))
            assert bits(first.loaded) == bits(second.loaded)
            assert len(first.rows) >= position - 740  # those that the source still has
            assert first.rows.tobytes() == second.rows[-len(first.rows) :].tobytes()
        early = http.post("/sessions", json={"fork": {"session": source, "at": 1}})
        assert problem(early) == (410, "log-trimmed"), early.text


def test_a_session_that_keeps_nothing_cannot_be_forked(http: httpx.Client) -> None:
    source = opened(http, {"dimension": 2, "reference": "origin", "keep_points": 0})
    observe(http, source, *stream(10))
    for settings in ({"algorithm": "second_order"}, {"at": 5}):
        answer = http.post("/sessions", json={"fork": {"session": source, **settings}})
        assert problem(answer) == (410, "log-trimmed"), answer.text


# ------------------------------------------------------------------------------------------- a million points

LARGE: dict[str, Any] = {
    "dimension": 2,
    "reference": "origin",
    "algorithm": "hyperboloid",
    "labels": list(range(10)),
    "keep_points": 10_000_000,
}
MILLION = 1_000_000


def large(http: httpx.Client, n: int, **settings: Any) -> str:
    sid = opened(http, {**LARGE, **settings})
    for at in range(0, n, 20_000):  # one step of a fork each
        X, indices = stream(20_000, 10, seed=at)
        content, where = raw(X, indices), f"/sessions/{sid}/observe?reply=summary"
        http.post(where, content=content, headers=RAW).raise_for_status()
    return sid


@pytest.fixture(scope="module")
def million(mortal: Running) -> Iterator[tuple[httpx.Client, str]]:
    """A client of a service whose fit worker may be killed, and a session of a million points"""
    with httpx.Client(base_url=mortal.url, timeout=60) as http:
        yield http, large(http, MILLION)


def queued(url: str, sid: str) -> bool:
    with redis.Redis.from_url(url) as client:
        entries: Any = client.zrange(fork_queue_key(), 0, -1)
        return any(entry.decode().split()[0] == sid for entry in entries)


def fit_worker(running: Running) -> int:
    """The process id of the fit worker, which the launcher starts again"""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for children in Path(f"/proc/{running.launcher.pid}/task").glob("*/children"):
            for pid in children.read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):
                    if b"service.fits.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        time.sleep(0.02)
    raise AssertionError("the launcher has no fit worker")


@contextmanager
def in_the_middle(http: httpx.Client, running: Running, source: str, **settings: Any) -> Iterator[tuple[str, int]]:
    """A fork under way, whose worker stands still; and that worker's process id. One that was too fast is not it"""
    for _ in range(10):
        sid, deadline = str(begun(http, source, **settings)["id"]), time.monotonic() + 120
        while http.get(f"/sessions/{sid}").raise_for_status().json()["progress"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        pid = fit_worker(running)
        os.kill(pid, signal.SIGSTOP)
        try:
            look = http.get(f"/sessions/{sid}").json()
            if look["status"] == "replaying" and 0 < look["progress"] < 0.95:
                yield sid, pid
                return
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        http.delete(f"/sessions/{sid}").raise_for_status()
    raise AssertionError("ten forks were done before they could be looked at")


def test_a_fork_of_a_million_points_shows_progress_and_refuses_to_learn(
    million: tuple[httpx.Client, str], mortal: Running
) -> None:
    http, source = million
    with in_the_middle(http, mortal, source, algorithm="second_order", reference="origin") as (sid, _):
        refused = [
            http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": 1}),
            http.patch(f"/sessions/{sid}", json={"name": "x"}),
            http.post(f"/sessions/{sid}/labels", json={"ids": ["a"], "labels": [1]}),
        ]
        assert [problem(answer) for answer in refused] == [(409, "session-replaying")] * 3
        with pytest.raises(SessionReplaying):
            promote(mortal, sid, seed=1)
        assert http.get(f"/sessions/{sid}/predict?x=0.1,0.2").status_code == 200
        assert http.get(f"/sessions/{sid}").json()["status"] == "replaying"
    seen = until(http, sid, "live")
    progress = [each["progress"] for each in seen[:-1]]
    assert progress == sorted(progress) and len(set(progress)) >= 3
    for each in seen[:-1]:
        assert each["progress"] == each["observed"] / MILLION
    assert (seen[-1]["observed"], seen[-1]["progress"]) == (MILLION, None)
    observe(http, sid, *stream(10, 10))


def test_a_fork_is_cancelled_by_ending_it_and_leaves_nothing(
    million: tuple[httpx.Client, str], mortal: Running
) -> None:
    http, source = million
    with in_the_middle(http, mortal, source, algorithm="second_order", reference="origin") as (sid, _):
        assert http.delete(f"/sessions/{sid}").status_code == 204
        assert problem(http.get(f"/sessions/{sid}")) == (410, "session-gone")
    deadline = time.monotonic() + 60
    while queued(mortal.redis_url, sid):  # until its worker has noticed
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert problem(http.get(f"/sessions/{sid}")) == (410, "session-gone")
    with redis.Redis.from_url(mortal.redis_url) as client:
        assert [key for key in session_keys(sid) if client.exists(key)] == []


def killed(http: httpx.Client, running: Running, source: str, **settings: Any) -> str:
    """A fork whose worker was killed in the middle, after it came to its end"""
    with in_the_middle(http, running, source, **settings) as (sid, first):
        os.kill(first, signal.SIGKILL)
    until(http, sid, "live")
    assert fit_worker(running) != first
    return sid


def test_a_fork_goes_on_when_its_worker_is_killed(million: tuple[httpx.Client, str], mortal: Running) -> None:
    """Whoever comes next finds where it was. There is no checkpoint before this position: it begins at the start"""
    http, source = million
    equal(http, mortal, killed(http, mortal, source, at=300_000), large(http, 300_000))


def test_so_does_one_with_other_settings(million: tuple[httpx.Client, str], mortal: Running) -> None:
    http, source = million
    own = {"algorithm": "perceptron", "reference": "origin", "keep_points": 1000}
    equal(http, mortal, killed(http, mortal, source, at=400_000, **own), large(http, 400_000, **own))


def test_a_fork_whose_source_is_ended_fails_and_says_why(million: tuple[httpx.Client, str], mortal: Running) -> None:
    http, _ = million
    source = large(http, 300_000)
    with in_the_middle(http, mortal, source, algorithm="second_order", reference="origin") as (sid, _):
        http.delete(f"/sessions/{source}").raise_for_status()
    failed = until(http, sid, "failed")[-1]
    assert failed["failure"]["type"] == "/problems/log-trimmed"
    assert failed["failure"]["detail"] and failed["progress"] is None
    assert 0 < failed["observed"] < 300_000
    answer = http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": 1})
    assert problem(answer) == (409, "session-replaying")
    assert http.get(f"/sessions/{sid}/model").status_code == 200  # what it had come to can be looked at
    assert http.delete(f"/sessions/{sid}").status_code == 204
