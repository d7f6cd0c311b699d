"""The store dies, is full, takes no writes, is damaged: what was acknowledged stays, and nothing is half-written."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
import redis

from service.process.private_store import EmbeddedServer
from service.sessions import rows
from service.sessions.records import EntryId
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.store import scripts
from service.store.keys import answers_key, born_key, log_key, state_key
from service.store.scripts import Script
from tests.faults.stream import known
from tests.problem import require_problem
from tests.running import Running, service
from tests.storing import storing
from tests.waiting import wait_until

LEARNED = {"points": [[0.5, 0.1], [-0.4, 0.2], [0.3, -0.6]], "labels": [-1, 1, -1]}
NEXT = {"points": [[0.1, 0.7], [-0.2, -0.2]], "labels": [-1, -1]}
RAW = "application/octet-stream"
LARGE = 4_000  # points that the log has in a block of their own


def open_session(http: httpx.Client, **fields: Any) -> str:
    sid = f"faults-{uuid4().hex}"
    assert http.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin", **fields}).status_code == 201
    assert observe(http, sid, LEARNED, key="learned").status_code == 200
    return sid


def observe(http: httpx.Client, sid: str, body: object, key: str | None = None) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return http.post(f"/sessions/{sid}/observe", json=body, headers=headers)


def observe_many(http: httpx.Client, sid: str, key: str, d: int = 2) -> httpx.Response:
    rows = np.random.default_rng(0).uniform(-0.9, 0.9, (LARGE, d + 1)) / d**0.5
    rows[:, -1] = rows[:, 0] > 0
    headers = {"Idempotency-Key": key, "content-type": RAW}
    return http.post(f"/sessions/{sid}/observe?reply=summary", content=rows.tobytes(), headers=headers)


def views(http: httpx.Client, sid: str) -> list[Any]:
    """The session, its model and its predictions"""
    paths = ("", "/model", "/predict?x=0.1,0.2&x=-0.3,0.1")
    answers = [http.get(f"/sessions/{sid}{path}") for path in paths]
    assert [answer.status_code for answer in answers] == [200, 200, 200], [answer.text for answer in answers]
    return [answer.json() for answer in answers]


def stored(client: redis.Redis, sid: str) -> dict[bytes | str, bytes | None]:
    """Every key of a session, byte for byte"""
    found = {key: client.dump(key) for key in client.keys("*") if sid in str(key)}
    assert {key(sid).encode() for key in (born_key, state_key, log_key)} < set(found)
    assert answers_key(sid, 0).encode() in found
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service whose store may be made to refuse, if it is left as it was"""
    with service(tmp_path_factory.mktemp("own") / "data", HOROCYCLE_FIT_WORKERS="0") as found:
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
        open_session(http, keep_points=2),
        open_session(http, keep_points=0),
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
        require_problem(observe_many(http, sid, key="many"), 503, slug)
    fresh = f"faults-{uuid4().hex}"
    require_problem(http.post("/sessions", json={"id": fresh, "dimension": 2, "reference": "origin"}), 503, slug)
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
        assert observe_many(http, sid, key="many").json()["session"]["observed"] == 5 + LARGE
    assert http.post("/sessions", json={"id": fresh, "dimension": 2, "reference": "origin"}).status_code == 201


def test_a_session_ends_in_a_full_store(http: httpx.Client, sessions: list[str], full: None) -> None:
    """How else would there be room again"""
    assert http.delete(f"/sessions/{sessions[0]}").status_code == 204
    assert http.get(f"/sessions/{sessions[0]}").status_code == 410


def test_a_session_does_not_end_in_a_read_only_store(http: httpx.Client, sessions: list[str], read_only: None) -> None:
    require_problem(http.delete(f"/sessions/{sessions[0]}"), 503, "store-read-only")
    assert http.get(f"/sessions/{sessions[0]}").status_code == 200


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "first byte of the learner": ("learner", lambda good: bytes([good[0] ^ 1]) + good[1:]),
    "last byte of the learner": ("learner", lambda good: good[:-1] + bytes([good[-1] ^ 1])),
    "learner cut short": ("learner", lambda good: good[:-8]),
    "learner empty": ("learner", lambda _: b""),
    "spec": ("spec", lambda _: b"{"),
    "head": ("head", lambda good: good[: good.index(b" ")]),
    "tally": ("tally", lambda good: good[:-8]),
}


@pytest.mark.parametrize(("field", "damaged"), DAMAGE.values(), ids=DAMAGE)
def test_damage_hurts_its_own_session_only(
    http: httpx.Client, store: redis.Redis, field: str, damaged: Callable[[bytes], bytes]
) -> None:
    other = open_session(http)
    sid = f"faults-{uuid4().hex}"
    assert (
        http.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin"}).status_code == 201
    )  # and no worker knows it yet
    good, healthy = store.hget(state_key(sid), field), views(http, other)
    assert isinstance(good, bytes)
    store.hset(state_key(sid), field, damaged(good))
    require_corrupt(http, sid)
    assert views(http, other) == healthy
    assert observe(http, other, NEXT).status_code == 200
    listed = [each["id"] for each in http.get("/sessions").json()["sessions"]]
    assert other in listed and (sid in listed) == (field not in ("spec", "head"))  # all that the list reads
    assert http.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin"}).status_code == 409

    store.hset(state_key(sid), field, good)
    assert http.get(f"/sessions/{sid}").json()["observed"] == 0  # whoever mends the bytes has the session again
    assert observe(http, sid, NEXT, key="first").status_code == 200


def require_corrupt(http: httpx.Client, sid: str, dimension: int = 2) -> None:
    """Whatever is asked of it"""
    point = [0.1] * dimension
    for answer in (
        http.get(f"/sessions/{sid}"),
        http.get(f"/sessions/{sid}/model"),
        http.get(f"/sessions/{sid}/predict?x={','.join(map(str, point))}"),
        observe(http, sid, {"point": point, "label": -1}, key="first"),
    ):
        require_problem(answer, 500, "state-corrupt")


@pytest.fixture
def large(http: httpx.Client) -> str:
    """A session whose learner is stored now and then, and replayed from the log in between"""
    sid = f"large-{uuid4().hex}"
    session = {"id": sid, "dimension": 40, "reference": "origin", "algorithm": "second_order"}
    assert http.post("/sessions", json=session).status_code == 201
    rows = np.random.default_rng(1).uniform(-0.1, 0.1, (80, 40))
    for at in range(0, 80, 2):
        body = {"points": rows[at : at + 2].tolist(), "labels": [-1, 1]}
        assert observe(http, sid, body).status_code == 200
    return sid


def since_the_learner(store: redis.Redis, sid: str) -> list[bytes]:
    """The ids of the entries that the learner is replayed from"""
    at = store.hget(state_key(sid), "learner_at")
    assert isinstance(at, bytes)
    found = entries(store, sid, f"({at.decode()}")
    assert len(found) >= 3
    return [id for id, _ in found]


def entries(store: redis.Redis, sid: str, first: str = "-") -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The log, as it is stored"""
    found: Any = store.xrange(log_key(sid), first)
    return list(found)


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "last"])
def test_a_learner_is_not_replayed_from_a_log_with_a_gap(
    http: httpx.Client, store: redis.Redis, large: str, which: int
) -> None:
    assert views_of_large(http, large)["observed"] == 80
    store.xdel(log_key(large), since_the_learner(store, large)[which])
    forget_what_workers_know(store, large)
    require_corrupt(http, large, 40)


def test_a_learner_that_was_stored_now_and_then_survives_damage_before_it(
    http: httpx.Client, store: redis.Redis, large: str
) -> None:
    """The entries before the stored learner are not read for it"""
    healthy = views_of_large(http, large)
    store.xdel(log_key(large), *(id for id, _ in entries(store, large)[:3]))
    forget_what_workers_know(store, large)
    assert views_of_large(http, large) == healthy


def views_of_large(http: httpx.Client, sid: str) -> dict[str, Any]:
    look, model = http.get(f"/sessions/{sid}"), http.get(f"/sessions/{sid}/model")
    assert (look.status_code, model.status_code) == (200, 200)
    return {**look.json(), "model": model.json()}


def forget_what_workers_know(store: redis.Redis, sid: str) -> None:
    """Another revision than the one they have decoded"""
    old, check = store.hget(state_key(sid), "revision"), store.hget(state_key(sid), "check")
    assert isinstance(old, bytes) and isinstance(check, bytes)
    revision = int(old) + 1
    rest = check.partition(b" ")[2].decode()
    store.hset(state_key(sid), mapping={"revision": revision, "check": f"{revision} {rest}"})


#: Where the commit's script may stop, and whether the commit counts if it does
STOPS = {
    "behind its log entry": ("-- Late labels: P with", False),
    "behind its late labels": ("-- The older generation of answers goes", False),
    "behind its answers": ("check = check_of(new_revision", False),
    "once it is written": ("-- Committed.", True),
}


@pytest.mark.parametrize(("before", "counts"), STOPS.values(), ids=STOPS)
def test_a_commit_that_stops_in_the_middle_counts_whole_or_not_at_all(
    own: Running, monkeypatch: pytest.MonkeyPatch, before: str, counts: bool
) -> None:
    assert scripts.COMMIT.text.count(before) == 1
    stopping = scripts.script(scripts.COMMIT.text.replace(before, f"if true then error('stopped') end\n{before}"))
    X = np.random.default_rng(2).uniform(-0.6, 0.6, (300, 2))
    asyncio.run(_stopped(own.redis_url, X, stopping, monkeypatch, counts))


async def _stopped(url: str, X: Any, stopping: Script, monkeypatch: pytest.MonkeyPatch, counts: bool) -> None:
    """Every fourth commit stops, and is asked for again under its key; other fourths learn a late label"""
    async with storing(url) as parts:
        spec = (await parts.opened(keep_points=1000)).spec
        for i, x in enumerate(X):
            ids = (f'"{i}"',) if i % 2 else ()
            if ids:
                point = [(ids[0], np.asarray(x).astype("<f8").tobytes())]
                await parts.late.wait(spec, point, ttl=60, limit=1000)
            request = Request(
                rows.empty(2) if ids else Batch(x[None], np.array([i % 3 % 2])),
                bytes(16),
                key=f"key-{i}",
                ids=ids,
                late=np.array([i % 3 % 2]) if ids else None,
            )
            if i % 4 < 2:
                with monkeypatch.context() as patch:
                    patch.setattr(scripts, "COMMIT", stopping)
                    with pytest.raises(redis.ResponseError, match="stopped"):
                        await parts.ingest.observe(spec.id, request)
                assert (await parts.store.load(spec.id)).counters.observed == i + counts
                if ids:
                    assert (await parts.late.look(spec.id, ids))[0].status == ("learned" if counts else "waiting")
            answer = await parts.ingest.observe(spec.id, request)
            assert (answer.accepted, answer.counters.observed) == (1, i + 1)
            assert answer.replayed == (counts and i % 4 < 2)
        loaded = await parts.store.load(spec.id)
        log = [each async for each in parts.log.entries(loaded, EntryId(), len(X))]
        assert [id for id, _ in log] == [EntryId(i, i) for i in range(1, len(X) + 1)]
        assert np.array_equal(np.concatenate([entry.batch.X for _, entry in log if entry.batch is not None]), X)
        assert known(await parts.log.at(loaded, len(X))) == known(loaded)


def test_a_killed_store_comes_back_with_all_that_was_acknowledged(own: Running, http: httpx.Client) -> None:
    sid, killed = open_session(http), own.store_pid
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
    assert own.store_pid != killed and own.launcher.poll() is None
    assert views(http, sid)[0]["observed"] == 63
    with own.client() as store:
        log = entries(store, sid)
    assert [id for id, _ in log] == [b"%d-%d" % (3 + 2 * number, number + 1) for number in range(31)]
    assert sum(int(fields[b"points"]) for _, fields in log) == 63
    assert all(len(fields[b"rows"]) == 24 * int(fields[b"points"]) for _, fields in log)


def test_without_a_store_everything_is_503_until_it_is_back(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "store")
    with (
        server,
        service(tmp_path / "unused", REDIS_URL=server.url, HOROCYCLE_FIT_WORKERS="0") as running,
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
            http.post("/sessions", json={"dimension": 2, "reference": "origin"}),
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


GONE = ("", "/model", "/metrics", "/events", "/snapshot", "/predict?x=0,0", "/disk.svg", "/certificate")


def test_a_restart_keeps_what_was_and_what_is_gone(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data", HOROCYCLE_FIT_WORKERS="0") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        kept = [
            open_session(http, algorithm=name) for name in ("perceptron", "second_order", "strategic", "hyperboloid")
        ]
        answers = [observe(http, sid, NEXT, key="before").json() for sid in kept]
        before, epoch = [views(http, sid) for sid in kept], http.get(f"/sessions/{kept[0]}").headers["horocycle-epoch"]
        ended, damaged, expired = open_session(http), open_session(http), f"expired-{uuid4().hex}"
        assert http.delete(f"/sessions/{ended}").status_code == 204
        assert http.post("/sessions", json={"id": expired, "dimension": 2, "ttl_seconds": 1}).status_code == 201
        wait_until(lambda: http.get(f"/sessions/{expired}").status_code == 410)
        with running.client() as store:
            good = store.hget(state_key(damaged), "learner")
            assert isinstance(good, bytes)
            store.hset(state_key(damaged), "learner", good[:40] + bytes([good[40] ^ 255]) + good[41:])
    with (
        service(tmp_path / "data", HOROCYCLE_FIT_WORKERS="0") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        assert [views(http, sid) for sid in kept] == before
        for sid, answer in zip(kept, answers, strict=True):
            again = observe(http, sid, NEXT, key="before")
            assert again.json() == answer and again.headers["idempotency-replayed"] == "true"
        assert [views(http, sid) for sid in kept] == before
        assert int(http.get(f"/sessions/{kept[0]}").headers["horocycle-epoch"]) > int(epoch)
        for sid in (ended, expired):
            for answer in (http.delete(f"/sessions/{sid}"), observe(http, sid, NEXT)):
                require_problem(answer, 410, "session-gone")
            for what in GONE:
                require_problem(http.get(f"/sessions/{sid}{what}"), 410, "session-gone")
            taken = http.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin"})
            require_problem(taken, 409, "session-exists")
        assert http.get("/sessions/never").status_code == 404
        require_problem(observe(http, damaged, NEXT), 500, "state-corrupt")
        require_problem(http.get(f"/sessions/{damaged}/model"), 500, "state-corrupt")
        assert {each["id"] for each in http.get("/sessions").json()["sessions"]} == {*kept, damaged}
