"""The store dies, is full, takes no writes, is damaged: what was acknowledged stays, and nothing is half-written."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis

from service.process.private_store import EmbeddedServer
from service.store.keys import session_key, state_key
from tests.problem import require_problem
from tests.running import Running, service

LEARNED = {"points": [[0.5, 0.1], [-0.4, 0.2], [0.3, -0.6]], "labels": [-1, 1, -1]}
NEXT = {"points": [[0.1, 0.7], [-0.2, -0.2]], "labels": [-1, -1]}


def open_session(http: httpx.Client, **fields: Any) -> str:
    sid = f"faults-{uuid4().hex}"
    assert http.post("/sessions", json={"id": sid, "dimension": 2, **fields}).status_code == 201
    assert observe(http, sid, LEARNED).status_code == 200
    return sid


def observe(http: httpx.Client, sid: str, body: object, key: str | None = None) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return http.post(f"/sessions/{sid}/observe", json=body, headers=headers)


def views(http: httpx.Client, sid: str) -> list[Any]:
    """The session, its model and its predictions"""
    paths = ("", "/model", "/predict?x=0.1,0.2&x=-0.3,0.1")
    answers = [http.get(f"/sessions/{sid}{path}") for path in paths]
    assert [answer.status_code for answer in answers] == [200, 200, 200], [answer.text for answer in answers]
    return [answer.json() for answer in answers]


def stored(client: redis.Redis, sid: str) -> dict[bytes | str, bytes | None]:
    """Every key of a session, byte for byte"""
    found = {key: client.dump(key) for key in client.keys("*") if sid in str(key)}
    assert len(found) >= 5
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service whose store may be made to refuse, if it is left as it was"""
    with service(tmp_path_factory.mktemp("own") / "data") as found:
        yield found


@pytest.fixture
def http(own: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own.url, timeout=30) as client:
        yield client


@pytest.fixture
def store(own: Running) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own.redis_url) as client:
        yield client


@pytest.fixture
def full(store: redis.Redis) -> Iterator[None]:
    store.config_set("maxmemory", 1)
    yield
    store.config_set("maxmemory", 0)


@pytest.fixture
def read_only(store: redis.Redis) -> Iterator[None]:
    store.replicaof("127.0.0.1", "1")  # a replica of nobody
    yield
    store.replicaof("NO", "ONE")


@pytest.fixture
def sessions(http: httpx.Client) -> list[str]:
    """Asked for before the store refuses"""
    return [
        open_session(http),
        open_session(http, ttl_seconds=1000),
        open_session(http, keep_points=2, keep_events=0),
        open_session(http, algorithm="second_order", labels=["b", -1, 1]),
    ]


@pytest.mark.parametrize(
    ("fault", "slug", "undo"),
    [
        ("full", "store-full", lambda store: store.config_set("maxmemory", 0)),
        ("read_only", "store-read-only", lambda store: store.replicaof("NO", "ONE")),
    ],
)
def test_a_store_that_refuses_is_not_half_written(
    http: httpx.Client,
    store: redis.Redis,
    sessions: list[str],
    request: pytest.FixtureRequest,
    fault: str,
    slug: str,
    undo: Callable[[redis.Redis], object],
) -> None:
    before = [(views(http, sid), stored(store, sid)) for sid in sessions]
    listed = http.get("/sessions").json()
    request.getfixturevalue(fault)
    for sid in sessions:
        require_problem(observe(http, sid, NEXT, key="again"), 503, slug)
        require_problem(observe(http, sid, NEXT), 503, slug)
    fresh = f"faults-{uuid4().hex}"
    require_problem(http.post("/sessions", json={"id": fresh, "dimension": 2}), 503, slug)
    assert http.get(f"/sessions/{fresh}").status_code == 404
    assert [(views(http, sid), stored(store, sid)) for sid in sessions] == before
    assert http.get("/sessions").json() == listed
    assert http.get("/health/live").status_code == 200

    undo(store)
    for sid in sessions:
        answer = observe(http, sid, NEXT, key="again")
        assert answer.status_code == 200 and "idempotency-replayed" not in answer.headers
        assert answer.json()["session"]["observed"] == 5
        assert observe(http, sid, NEXT, key="again").headers["idempotency-replayed"] == "true"
    assert http.post("/sessions", json={"id": fresh, "dimension": 2}).status_code == 201


def test_a_session_ends_in_a_full_store(http: httpx.Client, sessions: list[str], full: None) -> None:
    """How else would there be room again"""
    assert http.delete(f"/sessions/{sessions[0]}").status_code == 204
    assert http.get(f"/sessions/{sessions[0]}").status_code == 410


def test_a_session_does_not_end_in_a_read_only_store(http: httpx.Client, sessions: list[str], read_only: None) -> None:
    require_problem(http.delete(f"/sessions/{sessions[0]}"), 503, "store-read-only")
    assert http.get(f"/sessions/{sessions[0]}").status_code == 200


@pytest.mark.parametrize("damage", ["first byte", "last byte", "cut short", "empty", "spec"])
def test_damage_hurts_its_own_session_only(http: httpx.Client, store: redis.Redis, damage: str) -> None:
    other = open_session(http)
    sid = f"faults-{uuid4().hex}"
    assert http.post("/sessions", json={"id": sid, "dimension": 2}).status_code == 201  # and no worker knows it yet
    good, healthy = store.get(state_key(sid)), views(http, other)
    assert isinstance(good, bytes)
    if damage == "spec":
        spec = store.hget(session_key(sid), "spec")
        store.hset(session_key(sid), "spec", "{")
    else:
        broken = {
            "first byte": bytes([good[0] ^ 1]) + good[1:],
            "last byte": good[:-1] + bytes([good[-1] ^ 1]),
            "cut short": good[:-8],
            "empty": b"",
        }
        store.set(state_key(sid), broken[damage])
    for answer in (
        http.get(f"/sessions/{sid}"),
        http.get(f"/sessions/{sid}/model"),
        http.get(f"/sessions/{sid}/predict?x=0,0"),
        observe(http, sid, NEXT, key="first"),
    ):
        require_problem(answer, 500, "state-corrupt")
    assert views(http, other) == healthy
    assert observe(http, other, NEXT).status_code == 200
    listed = [each["id"] for each in http.get("/sessions").json()["sessions"]]
    assert other in listed and (sid in listed) == (damage != "spec")  # the list reads no learner
    assert http.post("/sessions", json={"id": sid, "dimension": 2}).status_code == 409

    if damage == "spec":
        store.hset(session_key(sid), "spec", spec)
    else:
        store.set(state_key(sid), good)
    assert http.get(f"/sessions/{sid}").json()["observed"] == 0  # whoever mends the bytes has the session again
    assert observe(http, sid, NEXT, key="first").status_code == 200


def test_a_killed_store_comes_back_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        sid, killed = open_session(http), running.store_pid
        refused = []
        for number in range(30):
            if number == 10:
                os.kill(killed, signal.SIGKILL)
            deadline = time.monotonic() + 20
            while (answer := observe(http, sid, NEXT, key=str(number))).status_code != 200:
                refused.append(answer)
                assert time.monotonic() < deadline, answer.text
                time.sleep(0.01)
            assert answer.json()["session"]["observed"] == 3 + 2 * (number + 1)
        for answer in refused:
            slug = {503: "store-unavailable", 504: "outcome-unknown"}[answer.status_code]
            require_problem(answer, answer.status_code, slug)
        assert running.store_pid != killed and running.launcher.poll() is None
        assert views(http, sid)[0]["observed"] == 63
        with redis.Redis.from_url(running.redis_url) as store:
            assert int(store.hget(session_key(sid), "kept") or 0) == 63


def test_without_a_store_everything_is_503_until_it_is_back(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "store")
    with (
        server,
        service(tmp_path / "unused", REDIS_URL=server.url) as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        sid = open_session(http)
        before, epoch = views(http, sid), int(http.get(f"/sessions/{sid}").headers["horocycle-epoch"])
        server.stop()
        for answer in (
            observe(http, sid, NEXT, key="again"),
            observe(http, sid, NEXT),
            http.get(f"/sessions/{sid}"),
            http.get(f"/sessions/{sid}/model"),
            http.get(f"/sessions/{sid}/predict?x=0,0"),
            http.get("/sessions"),
            http.post("/sessions", json={"dimension": 2}),
            http.delete(f"/sessions/{sid}"),
            http.get("/health/ready"),
        ):
            require_problem(answer, 503, "store-unavailable")
        assert http.get("/health/live").status_code == 200
        assert observe(http, sid, {"points": [[2, 0]], "labels": [1]}).status_code in (422, 503)
        server.start()
        assert views(http, sid) == before
        answer = observe(http, sid, NEXT, key="again")
        assert answer.status_code == 200 and "idempotency-replayed" not in answer.headers
        assert int(answer.headers["horocycle-epoch"]) > epoch


def test_a_restart_keeps_what_was_and_what_is_gone(tmp_path: Path) -> None:
    with service(tmp_path / "data") as running, httpx.Client(base_url=running.url, timeout=30) as http:
        kept = [
            open_session(http, algorithm=name) for name in ("perceptron", "second_order", "strategic", "hyperboloid")
        ]
        answers = [observe(http, sid, NEXT, key="before").json() for sid in kept]
        before, epoch = [views(http, sid) for sid in kept], http.get(f"/sessions/{kept[0]}").headers["horocycle-epoch"]
        ended, damaged = open_session(http), open_session(http)
        assert http.delete(f"/sessions/{ended}").status_code == 204
        with redis.Redis.from_url(running.redis_url) as store:
            state = store.get(state_key(damaged))
            assert isinstance(state, bytes)
            store.set(state_key(damaged), state[:40] + bytes([state[40] ^ 255]) + state[41:])
    with service(tmp_path / "data") as running, httpx.Client(base_url=running.url, timeout=30) as http:
        assert [views(http, sid) for sid in kept] == before
        for sid, answer in zip(kept, answers, strict=True):
            again = observe(http, sid, NEXT, key="before")
            assert again.json() == answer and again.headers["idempotency-replayed"] == "true"
        assert [views(http, sid) for sid in kept] == before
        assert int(http.get(f"/sessions/{kept[0]}").headers["horocycle-epoch"]) > int(epoch)
        for answer in (http.get(f"/sessions/{ended}"), http.delete(f"/sessions/{ended}"), observe(http, ended, NEXT)):
            require_problem(answer, 410, "session-gone")
        assert http.post("/sessions", json={"id": ended, "dimension": 2}).status_code == 409
        require_problem(observe(http, damaged, NEXT), 500, "state-corrupt")
        require_problem(http.get(f"/sessions/{damaged}/model"), 500, "state-corrupt")
        assert {each["id"] for each in http.get("/sessions").json()["sessions"]} == {*kept, damaged}
