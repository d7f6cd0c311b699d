"""Events: one a commit, without gaps or repeats, or a reset; heartbeats; so many streams and no more; an end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.process.http_protocol import GRACE
from service.store.keys import log_key
from tests.opening import RAW, opened, raw
from tests.running import Running, alive, service
from tests.sse import Sent, listening, parsed, spoken
from tests.storing import storing
from tests.strategies import points


@pytest.fixture
def near(small: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=small.url, timeout=30) as client:
        yield client


def commit(http: httpx.Client, sid: str, times: int = 1) -> None:
    for _ in range(times):
        answer = http.post(f"/sessions/{sid}/observe?reply=summary", json={"point": [0.1, 0.2], "label": 1})
        assert answer.status_code == 200, answer.text


def silent(events: Iterator[Sent]) -> None:
    """Nothing but a heartbeat comes next"""
    assert next(events).name == ""


def kept(running: Running, sid: str) -> list[str]:
    """The ids of the events that the store has"""
    with running.client() as store:
        entries: Any = store.xrange(log_key(sid))
    return [id.decode() for id, _ in entries]


def test_a_client_goes_on_behind_the_last_it_saw(near: httpx.Client, small: Running) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin"})
    commit(near, sid, 5)
    for seen in range(6):
        ids = ["0-0", *kept(small, sid)]
        with listening(near, sid, ids[seen]) as events:
            sent = spoken(events, len(ids) - 1 - seen)
            silent(events)
            commit(near, sid)
            sent += spoken(events, 1)
        assert [event.id for event in sent] == kept(small, sid)[seen:]
        assert [event.name for event in sent] == ["commit"] * len(sent)
        assert [(event.data["from"], event.data["observed"]) for event in sent] == [
            (at, at + 1) for at in range(seen, len(ids))
        ]


def test_a_new_client_begins_with_the_session_and_its_model(near: httpx.Client) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin"})
    for last in (None, "", "x", "1-7", "5", "-", "$", "9" * 30 + "-0"):
        near.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": -1}).raise_for_status()
        with listening(near, sid, last) as events:
            [reset] = spoken(events, 1)
            look, model = near.get(f"/sessions/{sid}").json(), near.get(f"/sessions/{sid}/model").json()
            assert reset.name == "reset" and reset.data["session"] == look
            assert model.items() <= reset.data["model"].items()
            commit(near, sid)
            [after] = spoken(events, 1)
            assert (after.name, after.data["from"]) == ("commit", look["observed"])
        with listening(near, sid, reset.id) as events:  # the id of a reset is good to go on from
            assert spoken(events, 1) == [after]


def test_before_the_first_event_a_reset_is_good_to_go_on_from(near: httpx.Client) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin"})
    with listening(near, sid) as events:
        [reset] = spoken(events, 1)
    commit(near, sid, 2)
    with listening(near, sid, reset.id) as events:
        assert [event.data["from"] for event in spoken(events, 2)] == [0, 1]


@pytest.mark.parametrize("keep", [0, 1])
def test_what_is_no_longer_kept_is_a_reset(near: httpx.Client, small: Running, keep: int) -> None:
    """The newest 64 entries stay in any case; Redis trims by whole nodes, of a hundred entries at the most"""
    sid = opened(near, {"dimension": 2, "reference": "origin", "keep_points": keep})
    commit(near, sid)
    with listening(near, sid, "0-0") as events:
        [first] = spoken(events, 1)
    commit(near, sid, 250)
    ids = kept(small, sid)
    assert 64 <= len(ids) <= 128 + 100 and ids[0] != first.id
    for last in (first.id, "0-0"):
        with listening(near, sid, last) as events:
            [reset] = spoken(events, 1)
            assert (reset.name, reset.data["session"]["observed"]) == ("reset", 251)
            silent(events)
    with listening(near, sid, ids[0]) as events:  # the oldest that is kept
        sent = spoken(events, len(ids) - 1)
    assert [event.id for event in sent] == ids[1:]
    assert [event.data["observed"] for event in sent] == list(range(251 - len(ids) + 2, 252))


def test_an_event_has_what_a_page_draws(near: httpx.Client) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin", "labels": ["no", "yes"]})
    rng = np.random.default_rng(2)
    X = points(rng, 40, 2, 2.0)
    labels = rng.choice(["no", "yes"], size=40).tolist()
    body = {"points": X.tolist(), "labels": labels, "truth": (X / 2).tolist()}
    told = near.post(f"/sessions/{sid}/observe", json=body).json()
    near.post(f"/sessions/{sid}/observe", json={"point": [0, 0], "label": "yes"}).raise_for_status()  # no mistake
    with listening(near, sid, "0-0") as events:
        first, second = (event.data for event in spoken(events, 2))
    assert {name: first[name] for name in told["session"]} == told["session"]
    assert first["points"] == X[:16].tolist() and first["truth"] == (X[:16] / 2).tolist()
    assert first["labels"] == labels[:16] and first["predictions"] == told["predictions"][:16]
    assert "truth" not in second and second["status"] == "live"
    assert first["alarms"] == [] and first["requests"] == []


def test_a_large_entry_shows_its_first_points(near: httpx.Client) -> None:
    """They stand in the entry itself: its block is not read"""
    sid = opened(near, {"dimension": 2, "reference": "origin"})
    X = points(np.random.default_rng(7), 5000, 2, 2.0)
    body = {"points": X.tolist(), "labels": [1, -1] * 2500, "truth": (X / 2).tolist()}
    told = near.post(f"/sessions/{sid}/observe", json=body).json()
    with listening(near, sid, "0-0") as events:
        [event] = spoken(events, 1)
    assert event.data["points"] == X[:16].tolist() and event.data["truth"] == (X[:16] / 2).tolist()
    assert event.data["labels"] == [1, -1] * 8 and event.data["predictions"] == told["predictions"][:16]
    assert (event.data["from"], event.data["observed"]) == (0, 5000)


def test_late_labels_and_gathered_requests_are_commits_too(near: httpx.Client, small: Running) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin"})
    X = points(np.random.default_rng(3), 60, 2, 2.0)

    def observe(part: int) -> None:
        body = raw(X[part : part + 3], np.ones(3))
        httpx.post(f"{small.url}/sessions/{sid}/observe", content=body, headers=RAW, timeout=30).raise_for_status()

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(observe, range(0, 60, 3)))
    with listening(near, sid, "0-0") as events:
        at = 0
        while at < 60:
            [event] = spoken(events, 1)
            assert event.data["from"] == at
            at = event.data["observed"]
        silent(events)


def test_heartbeats_come_while_nothing_happens(near: httpx.Client) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin"})
    with listening(near, sid) as events:
        spoken(events, 1)
        assert [next(events).name for _ in range(3)] == [""] * 3
        commit(near, sid)
        assert spoken(events, 1)[0].name == "commit"


def test_a_wait_for_events_has_no_end_but_ours(small: Running) -> None:
    """redis-py would give up after five seconds, and the stream with it"""

    async def timeout() -> float | None:
        async with storing(small.redis_url) as parts:
            await parts.connection.ping()
            connection = await parts.connection._pool.get_connection()  # type: ignore[no-untyped-call]
            found: float | None = connection.socket_timeout
            await parts.connection._pool.release(connection)
            return found

    assert asyncio.run(timeout()) is None


def test_only_so_many_streams_are_open(near: httpx.Client, small: Running) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin"})

    def ask() -> httpx.Response:
        return near.send(near.build_request("GET", f"/sessions/{sid}/events"), stream=True)

    with ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda _: ask(), range(12)))  # all at once
    good = [answer for answer in answers if answer.status_code == 200]
    assert len(good) == 4
    for answer in answers:
        if answer.status_code != 200:
            assert answer.status_code == 429 and answer.headers["retry-after"]
            assert b"/problems/rate-limited" in answer.read()
    commit(near, sid)  # others are served
    assert near.get(f"/sessions/{sid}/events").status_code == 429
    good.pop().close()
    deadline = time.monotonic() + 20
    while (again := ask()).status_code != 200:  # as soon as its end was noticed
        again.close()
        assert time.monotonic() < deadline
    for answer in (*good, again):
        answer.close()


def test_a_stream_ends_with_its_session(near: httpx.Client) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin"})
    commit(near, sid)
    with listening(near, sid, "0-0") as events:
        [last] = spoken(events, 1)
        near.delete(f"/sessions/{sid}").raise_for_status()
        rest = [event for event in events if event.name]  # until the service closes it
    assert rest == [Sent("end", last.id, {})]
    gone = near.get(f"/sessions/{sid}/events")
    assert (gone.status_code, gone.json()["type"]) == (410, "/problems/session-gone")


def test_a_session_that_keeps_no_points_has_events_without_them(near: httpx.Client) -> None:
    sid = opened(near, {"dimension": 2, "reference": "origin", "keep_points": 0})
    commit(near, sid)
    with listening(near, sid, "0-0") as events:
        [event] = spoken(events, 1)
    assert (event.name, event.data["observed"], event.data["points"]) == ("commit", 1, [])
    assert near.get("/sessions/never/events").status_code == 404


def test_streams_end_when_the_service_is_told_to(tmp_path: Path) -> None:
    """At once and whole, not when the server's patience is over; the heartbeat is far away"""
    with (
        service(tmp_path / "data", HOROCYCLE_HEARTBEAT="600", HOROCYCLE_FIT_WORKERS="0") as running,
        ExitStack() as held,
    ):
        http = held.enter_context(httpx.Client(base_url=running.url, timeout=30))
        sid = opened(http, {"dimension": 2, "reference": "origin"})
        streams = []
        for _ in range(3):
            answer = held.enter_context(http.stream("GET", f"/sessions/{sid}/events"))
            events = parsed(answer.iter_lines())
            assert spoken(events, 1)[0].name == "reset"
            streams.append(events)
        began, store = time.monotonic(), running.store_pid
        os.kill(running.launcher.pid, signal.SIGTERM)
        assert not any(event.name for events in streams for event in events)
        running.launcher.wait(20)
        assert time.monotonic() - began < GRACE
        assert running.launcher.returncode == 0 and not alive(store)
