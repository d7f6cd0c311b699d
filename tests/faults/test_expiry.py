"""Sessions that expire in the middle of something. Each ends as one that was never there after all, or had not expired
yet: 410, and nothing half-written; no key of the session is left behind, and its id is not given away again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from service.errors import SessionGone
from service.process.private_store import EmbeddedServer
from service.sessions import rows
from service.sessions.requests import Request
from service.store.keys import born_key, session_keys, state_key
from tests.opening import RAW, opened
from tests.problem import require_problem
from tests.running import Running
from tests.sse import parsed
from tests.storing import storing
from tests.waiting import wait_until

#: Long enough for what comes before, also on a busy machine; nobody waits for it to pass.
TTL = 600
POINT = {"point": [0.1, 0.2], "label": 1}


@pytest.fixture(scope="module")
def http(mortal: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mortal.url, timeout=60) as client:
        yield client


def expire(running: Running, sid: str, after_ms: int = 0) -> None:
    """As its time to live would: all of its keys, at one moment of the store's"""
    with running.client() as client:
        moment = int(client.time()[0] * 1000 + client.time()[1] / 1000) + max(after_ms, 1)
        with client.pipeline(transaction=True) as once:
            for key in session_keys(sid):
                once.execute_command("PEXPIREAT", key, moment)
            once.execute()


def require_gone(running: Running, http: httpx.Client, sid: str) -> None:
    require_problem(http.get(f"/sessions/{sid}"), 410, "session-gone")
    require_problem(http.post("/sessions", json={"id": sid, "dimension": 2}), 409, "session-exists")
    with running.client() as client:
        left = [key for key in client.scan_iter(match=f"*{{{sid}}}*", count=10_000)]
        assert left == [born_key(sid).encode()], left


@pytest.mark.parametrize("how", ["observe", "observe with a key", "labels", "patch", "stream of points"])
def test_between_load_and_commit(mortal: Running, http: httpx.Client, how: str) -> None:
    """The worker has the session in memory; the commit finds none"""
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL})
    assert http.post(f"/sessions/{sid}/observe", json=POINT).status_code == 200
    assert http.post(f"/sessions/{sid}/predict", json={"point": [0.1, 0.2], "id": "a"}).status_code == 200
    expire(mortal, sid)
    rows = np.tile([0.1, 0.2, 1.0], (20_000, 1)).tobytes()
    asked: dict[str, dict[str, Any]] = {
        "observe": {"url": "observe", "json": POINT},
        "observe with a key": {"url": "observe", "json": POINT, "headers": {"idempotency-key": "k"}},
        "labels": {"url": "labels", "json": {"id": "a", "label": 1}},
        "patch": {"url": "", "json": {"name": "another"}},
        "stream of points": {"url": "observe", "content": rows, "headers": RAW},  # whose blocks are sent before
    }
    path = f"/sessions/{sid}/{asked[how].pop('url')}".rstrip("/")
    for _ in range(2):  # on either worker
        answer = http.request("PATCH" if how == "patch" else "POST", path, **asked[how])
        require_problem(answer, 410, "session-gone")
    require_gone(mortal, http, sid)


def test_while_requests_are_under_way(mortal: Running, http: httpx.Client) -> None:
    """Each is answered: 200 until one moment, 410 from then on; nothing comes back to life"""
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL})
    answers = list[tuple[float, int]]()

    def ask(client: int) -> None:
        with httpx.Client(base_url=mortal.url, timeout=60) as own:
            while True:
                sent = time.monotonic()
                answer = own.post(f"/sessions/{sid}/observe", json=POINT)
                answers.append((sent, answer.status_code))
                if answer.status_code != 200:
                    require_problem(answer, 410, "session-gone")
                    return

    with ThreadPoolExecutor(6) as aside:
        asking = [aside.submit(ask, client) for client in range(6)]
        wait_until(lambda: len(answers) > 30)
        with mortal.client() as client:  # an observe would begin its time to live anew: it is to end in spite of that
            client.unlink(*session_keys(sid))
        for each in asking:
            each.result()
    require_gone(mortal, http, sid)


def test_between_predict_with_ids_and_labels(mortal: Running, http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL})
    asked = {"points": [[0.1, 0.2], [0.3, 0.1]], "ids": ["a", "b"]}
    assert http.post(f"/sessions/{sid}/predict", json=asked).status_code == 200
    expire(mortal, sid)
    require_problem(
        http.post(f"/sessions/{sid}/labels", json={"ids": ["a", "b"], "labels": [1, -1]}), 410, "session-gone"
    )
    require_problem(http.post(f"/sessions/{sid}/predict", json=asked), 410, "session-gone")
    require_gone(mortal, http, sid)


def test_points_that_wait_expire_with_their_session_and_not_before(mortal: Running, http: httpx.Client) -> None:
    """To wait for a label is to be used: every key has the same time to live"""
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL})
    assert http.post(f"/sessions/{sid}/predict", json={"point": [0.1, 0.2], "id": "a"}).status_code == 200
    assert http.post(f"/sessions/{sid}/observe", json=POINT, headers={"idempotency-key": "k"}).status_code == 200
    with mortal.client() as client:
        left = {key: client.pttl(key) for key in session_keys(sid) if client.exists(key)}
    assert len(left) >= 4 and max(left.values()) - min(left.values()) <= 1000 and min(left.values()) > 0, left


def test_while_an_event_stream_follows(mortal: Running, http: httpx.Client) -> None:
    """It is told, and ends; a follower that comes later is told 410"""
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL})
    with http.stream("GET", f"/sessions/{sid}/events") as stream:
        events = parsed(stream.iter_lines())
        assert next(each for each in events if each.name == "reset")
        assert http.post(f"/sessions/{sid}/observe", json=POINT).status_code == 200
        assert next(each for each in events if each.name == "commit")
        expire(mortal, sid)
        rest = [each.name for each in events]
    assert rest[-1] == "end", rest
    require_problem(http.get(f"/sessions/{sid}/events"), 410, "session-gone")
    require_gone(mortal, http, sid)


@pytest.mark.parametrize("when", ["queued", "running"])
def test_while_a_fit_runs(mortal: Running, http: httpx.Client, when: str) -> None:
    """It ends with its session, leaves nothing, and the next fit of another is done"""
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL, "keep_points": 200_000})
    rng = np.random.default_rng(5)
    rows = np.column_stack([rng.uniform(-0.6, 0.6, (100_000, 2)), rng.integers(0, 2, 100_000)])
    assert http.post(f"/sessions/{sid}/observe?reply=summary", content=rows.tobytes(), headers=RAW).status_code == 200
    fit = http.post(f"/sessions/{sid}/fits", json={"kind": "svm"}).headers["location"]
    if when == "running":
        wait_until(lambda: http.get(fit).json()["status"] != "queued")
    expire(mortal, sid)
    require_problem(http.get(fit), 410, "session-gone")
    other = opened(http, {"dimension": 2})
    few = {"points": [[0.1, 0.2], [-0.3, 0.1]], "labels": [1, -1]}
    assert http.post(f"/sessions/{other}/observe", json=few).status_code == 200
    another = http.post(f"/sessions/{other}/fits", json={}).headers["location"]
    wait_until(lambda: http.get(another).json()["status"] == "done")
    require_gone(mortal, http, sid)


def test_while_a_fork_is_replayed(mortal: Running, http: httpx.Client) -> None:
    """The source may go: the fork is live, failed with a reason or gone, never replaying for good"""
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL, "keep_points": 50_000})
    rng = np.random.default_rng(6)
    rows = np.column_stack([rng.uniform(-0.6, 0.6, (40_000, 2)), rng.integers(0, 2, 40_000)])
    assert http.post(f"/sessions/{sid}/observe?reply=summary", content=rows.tobytes(), headers=RAW).status_code == 200
    fork = http.post("/sessions", json={"fork": {"session": sid, "algorithm": "second_order"}}).headers["location"]
    expire(mortal, sid)
    wait_until(lambda: http.get(fork).json()["status"] != "replaying")
    told = http.get(fork).json()
    assert told["status"] == "live" or (told["status"] == "failed" and told["failure"]["detail"]), told
    require_gone(mortal, http, sid)


def test_state_alone_is_never_left(mortal: Running, http: httpx.Client) -> None:
    """Keys expire one after another, within a millisecond or in a store that was stopped in between"""
    sid = opened(http, {"dimension": 2, "ttl_seconds": TTL})
    assert http.post(f"/sessions/{sid}/observe", json=POINT, headers={"idempotency-key": "k"}).status_code == 200
    with mortal.client() as client:
        client.unlink(state_key(sid))  # the first to go
    require_problem(
        http.post(f"/sessions/{sid}/observe", json=POINT, headers={"idempotency-key": "k"}), 410, "session-gone"
    )
    require_problem(http.post(f"/sessions/{sid}/labels", json={"id": "a", "label": 1}), 410, "session-gone")
    require_problem(http.get(f"/sessions/{sid}/log"), 410, "session-gone")


def test_the_list_of_sessions_is_bounded_by_those_that_are_there(server: EmbeddedServer) -> None:
    """Also if nobody reads it: whoever opens some takes off what has expired"""

    async def opened_and_expired() -> int:
        async with storing(server.url) as parts:
            with redis.Redis.from_url(server.url) as client:
                for _ in range(300):
                    sid = (await parts.opened(ttl_seconds=TTL)).spec.id
                    client.unlink(*session_keys(sid))
            return await parts.store.count("default")

    assert asyncio.run(opened_and_expired()) < 60


def test_between_load_and_the_look_for_ids(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are unknown because the session has gone meanwhile are not said to be unknown"""

    async def asked() -> None:
        async with storing(server.url) as parts:
            sid = (await parts.opened(ttl_seconds=TTL)).spec.id
            await parts.ingest.current(sid)
            look = parts.late.look

            async def gone(sid: str, ids: Any) -> Any:
                with redis.Redis.from_url(server.url) as client:
                    client.unlink(*session_keys(sid))
                return await look(sid, ids)

            monkeypatch.setattr(parts.late, "look", gone)
            with pytest.raises(SessionGone):
                await parts.ingest.observe(sid, Request(rows.empty(2), ids=('"a"',), late=np.array([0])))

    asyncio.run(asked())
