"""Whatever word the store refuses with: 503 with that word, never a 500. The fit worker and the service go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from redis.exceptions import MovedError, NoPermissionError, RedisError, ResponseError

from service.errors import StoreFull, StoreReadOnly, StoreUnavailable
from service.store.connection import _refusal
from tests.problem import require_problem
from tests.running import Running, service
from tests.waiting import retry, wait_until

#: What makes a real store say each word, and what ends it
SAID: dict[str, tuple[list[tuple[str, ...]], list[tuple[str, ...]]]] = {
    "MASTERDOWN": (
        [("CONFIG", "SET", "replica-serve-stale-data", "no"), ("REPLICAOF", "127.0.0.1", "1")],
        [("REPLICAOF", "NO", "ONE")],
    ),
    "NOPERM": (
        [("ACL", "SETUSER", "default", "-evalsha", "-eval", "-set", "-hget")],
        [("ACL", "SETUSER", "default", "+@all")],
    ),
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(tmp_path_factory.mktemp("words") / "data") as found:
        yield found


@contextmanager
def saying(running: Running, word: str) -> Iterator[None]:
    begin, end = SAID[word]
    with running.client() as client:
        for command in begin:
            client.execute_command(*command)
        try:
            yield
        finally:
            for command in end:
                client.execute_command(*command)


def fit_workers(running: Running) -> list[int]:
    tasks = Path(f"/proc/{running.launcher.pid}/task").iterdir()
    pids = [pid for task in tasks for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in pids if b"fits.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def times_said(running: Running, word: str) -> int:
    with running.client() as client:
        return int(client.info("errorstats").get(f"errorstat_{word}", {"count": 0})["count"])


@pytest.mark.parametrize("word", SAID)
def test_any_word_of_the_store_is_503_and_passes(own: Running, word: str) -> None:
    point = {"point": [0.1, 0.2], "label": 1}
    with httpx.Client(base_url=own.url, timeout=30) as http:
        sid = http.post("/sessions", json={"dimension": 2}).json()["id"]
        [worker] = fit_workers(own)
        with saying(own, word):
            for answer in (
                http.post(f"/sessions/{sid}/observe", json=point),
                http.post(f"/sessions/{sid}/labels", json={"ids": ["a"], "labels": [1]}),
                http.get(f"/sessions/{sid}/predict?x=0.1,0.2"),
                http.get(f"/sessions/{sid}/model"),
                http.post(f"/sessions/{sid}/fits", json={}),
                http.post("/sessions", json={"dimension": 2}),
            ):
                assert word in require_problem(answer, 503, "store-unavailable")["detail"]
                assert answer.headers["retry-after"] == "1"
            said = times_said(own, word)
            wait_until(lambda: times_said(own, word) > said)  # to the fit worker, which asks by itself
            assert http.get("/health/ready").status_code == 503  # a replica says READONLY to a write
            assert http.get("/health/live").status_code == 200
        retry(lambda: http.get("/health/ready"), 200)
        both = {"points": [[0.1, 0.2], [-0.1, 0.2]], "labels": [1, -1]}
        retry(lambda: http.post(f"/sessions/{sid}/observe", json=both), 200)
        fit = retry(lambda: http.post(f"/sessions/{sid}/fits", json={"margin": "soft"}), 202).headers["location"]
        wait_until(lambda: http.get(fit).json()["status"] in ("done", "failed"))
        assert fit_workers(own) == [worker]


@pytest.mark.parametrize(
    ("error", "kind", "detail"),
    [
        (MovedError("3999 127.0.0.1:6381"), StoreUnavailable, "MOVED 3999"),
        (NoPermissionError("this user has no permissions"), StoreUnavailable, "NOPERM"),
        (ResponseError("WRONGTYPE Operation against a key"), StoreUnavailable, "WRONGTYPE"),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), StoreUnavailable, "NOREPLICAS"),
        (ResponseError("anything else " * 99), StoreUnavailable, "anything else"),
        (ResponseError("OOM command not allowed when used memory > 'maxmemory'."), StoreFull, "no room"),
        (ResponseError("READONLY You can't write against a read only replica."), StoreReadOnly, "no writes"),
        (
            ResponseError("user_script:3: a fault of ours script: 0, on @user_script:3."),
            ResponseError,
            "a fault of ours",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_a_refusal_means(error: RedisError, kind: type[Exception], detail: str) -> None:
    meant = _refusal(error)
    assert type(meant) is kind and detail in str(meant) and len(str(meant)) < 300
