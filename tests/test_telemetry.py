"""/metrics over all workers, also while some are killed; the id of every request; logs as JSON."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.api.front import METHODS
from service.store.keys import state_key
from tests.faults.stream import alive, two_workers
from tests.opening import RAW, opened, raw
from tests.running import Running, service, wait_until_ready
from tests.sse import Sent, listening, spoken
from tests.strategies import points
from tests.waiting import wait_until

OBSERVE = '{method="POST",route="/sessions/{id}/observe",status="%s"}'


def exposed(url: str) -> dict[str, float]:
    """Every sample by its name and labels"""
    answer = httpx.get(f"{url}/metrics", timeout=30)
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert list(text_string_to_metric_families(answer.text))
    found: dict[str, float] = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found
            found[name] = float(value)
    return found


@contextmanager
def only(running: Running, pid: int) -> Iterator[None]:
    """Meanwhile the other workers are stopped"""
    others = [other for other in running.worker_pids if other != pid]
    for other in others:
        os.kill(other, signal.SIGSTOP)
    try:
        yield
    finally:
        for other in others:
            os.kill(other, signal.SIGCONT)


def replaced(running: Running, *killed: int) -> None:
    """Wait until none of them runs, and two workers serve"""
    wait_until(lambda: not any(map(alive, killed)) and len(set(running.worker_pids) - set(killed)) == 2)
    wait_until_ready(running.url)


def ended_pid() -> int:
    """Of a process that has run"""
    with subprocess.Popen(["true"]) as process:
        return process.pid


def test_counters_are_those_of_both_workers_and_survive_them(mortal: Running) -> None:
    """Each worker serves while the other is stopped; then one is killed, and nothing that was shown is lost"""
    first, second = two_workers(mortal)
    rng = np.random.default_rng(1)
    X, indices = points(rng, 60, 2, 3.0), rng.integers(0, 2, size=60)
    before, mistakes = exposed(mortal.url), 0
    with httpx.Client(base_url=mortal.url, timeout=30) as http:
        sid = opened(http, {"dimension": 2, "reference": "origin"})
    for pid, start in ((first, 0), (second, 30)):
        with only(mortal, pid), httpx.Client(base_url=mortal.url, timeout=30) as http:
            for at in range(start, start + 30, 5):
                body = raw(X[at : at + 5], indices[at : at + 5])
                answer = http.post(f"/sessions/{sid}/observe", content=body, headers=RAW)
                mistakes += answer.json()["mistakes"]
            assert http.post(f"/sessions/{sid}/observe", json={"point": [2, 0], "label": 1}).status_code == 422
            assert http.get("/nowhere/at/all").status_code == 404

    def counted() -> dict[str, float]:
        after = exposed(mortal.url)
        return {name: after[name] - before.get(name, 0) for name in after}

    def require() -> None:
        grown = counted()
        assert grown["horocycle_points_total"] == 60
        assert grown["horocycle_mistakes_total"] == mistakes > 0
        assert grown["horocycle_commits_total"] == grown["horocycle_commit_seconds_count"] == 12
        assert grown["horocycle_requests_total" + OBSERVE % 200] == 12
        assert grown["horocycle_requests_total" + OBSERVE % 422] == 2
        assert grown['horocycle_requests_total{method="any",route="none",status="404"}'] == 2
        assert grown['horocycle_requests_total{method="POST",route="/sessions",status="201"}'] == 1
        assert grown['horocycle_request_seconds_count{route="/sessions/{id}/observe"}'] == 14

    wait_until(lambda: counted()["horocycle_points_total"] == 60)  # a worker publishes once a second
    require()
    os.kill(first, signal.SIGKILL)
    require()
    replaced(mortal, first)
    require()
    assert exposed(mortal.url)["horocycle_store_up"] == 1


def test_gauges_of_the_dead_vanish(mortal: Running) -> None:
    first, second = two_workers(mortal)
    wait_until(lambda: exposed(mortal.url)["horocycle_event_streams"] == 0)
    with httpx.Client(base_url=mortal.url, timeout=30) as http:
        sid = opened(http, {"dimension": 2, "reference": "origin"})
    streams: list[Iterator[Sent]] = []  # one that nobody holds is closed
    with ExitStack() as one, ExitStack() as other:
        for pid, held in ((first, one), (second, other)):
            with only(mortal, pid):  # a new connection, which only that worker can take
                http = held.enter_context(httpx.Client(base_url=mortal.url, timeout=30))
                streams.append(held.enter_context(listening(http, sid)))
                assert spoken(streams[-1], 1)[0].name == "reset"
        wait_until(lambda: exposed(mortal.url)["horocycle_event_streams"] == 2)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: exposed(mortal.url)["horocycle_event_streams"] == 1)
        other.close()
        wait_until(lambda: exposed(mortal.url)["horocycle_event_streams"] == 0)
    assert exposed(mortal.url)["horocycle_queue_length"] == 0


def test_a_counter_never_goes_backwards_while_workers_are_killed_at_their_start(mortal: Running) -> None:
    """Whoever is found is killed, most of them before they serve; in between, what a scrape shows only grows"""
    two_workers(mortal)
    name, seen = 'horocycle_requests_total{method="GET",route="/metrics",status="200"}', [0.0]
    for pause in (0.0, 0.05, 0.2, 0.8):
        killed = mortal.worker_pids[-1]  # the other one serves meanwhile
        os.kill(killed, signal.SIGKILL)
        for _ in range(5):
            seen.append(exposed(mortal.url)[name])
        wait_until(lambda killed=killed: len(set(mortal.worker_pids) - {killed}) == 2)  # type: ignore[misc]
        time.sleep(pause)
    two_workers(mortal)
    seen.append(exposed(mortal.url)[name])
    assert seen == sorted(seen)
    wait_until(lambda: len(list(mortal.metrics_folder.iterdir())) <= 3)  # two workers and `retired`


def test_files_that_are_not_whole_do_no_harm(mortal: Running) -> None:
    """An empty file of a worker that was killed at its start, and garbage beside it"""
    first, _ = two_workers(mortal)
    before, ended = exposed(mortal.url), ended_pid()
    for name, content in ((f"{ended}-empty", b""), (f"{ended}-garbage", b"\0{"), (f"{ended}-x.part", b"{")):
        (mortal.metrics_folder / name).write_bytes(content)
    (mortal.metrics_folder / f"{first}-garbage").write_bytes(b"garbage")
    (mortal.metrics_folder / "garbage").write_bytes(b"garbage")
    try:
        assert exposed(mortal.url)["horocycle_commits_total"] == before["horocycle_commits_total"]
        wait_until(lambda: not list(mortal.metrics_folder.glob(f"{ended}-*")))
        assert exposed(mortal.url)["horocycle_commits_total"] == before["horocycle_commits_total"]
    finally:
        for name in ("garbage", f"{first}-garbage"):
            (mortal.metrics_folder / name).unlink()


def test_a_method_nobody_knows_has_no_series_of_its_own(http: httpx.Client, running: Running) -> None:
    for method in ("PROPFIND", "MKCOL", "LOCK"):
        assert http.request(method, "/sessions").status_code == 405
    methods = set(re.findall(r'method="(\w+)"', httpx.get(f"{running.url}/metrics").text))
    assert methods <= {*METHODS, "any", "other"}


# ----------------------------------------------------------------------------------- the id of a request


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health/live"),
        ("GET", "/sessions"),
        ("GET", "/sessions/never/predict?x=0,0"),
        ("POST", "/sessions/never/observe"),
        ("POST", "/sessions"),
        ("GET", "/nowhere"),
        ("PUT", "/sessions"),
        ("GET", "/docs"),
    ],
)
def test_every_answer_has_the_id_of_its_request(http: httpx.Client, method: str, path: str) -> None:
    for good in ("a", "A-1_b.c:d", uuid4().hex, "x" * 64):
        assert http.request(method, path, headers={"X-Request-ID": good}).headers.get_list("x-request-id") == [good]
    made = set()
    for bad in (None, "", "x" * 65, "a b", "ä".encode(), b'"; drop', "{}"):
        headers: dict[str, Any] = {} if bad is None else {"X-Request-ID": bad}
        [name] = http.request(method, path, headers=headers).headers.get_list("x-request-id")
        assert re.fullmatch(r"[0-9a-f]{16}", name)
        made.add(name)
    assert len(made) == 7


# ------------------------------------------------------------------------------------------------- logs


def test_logs_are_lines_of_json_with_the_ids_of_requests(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        service(tmp_path / "data", HOROCYCLE_ACCESS_LOG="true") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
        running.client() as store,
    ):
        sid = opened(http, {"dimension": 2, "reference": "origin"})
        store.hset(state_key(sid), "learner", b"damaged")
        for path, name in ((f"/sessions/{sid}/predict?x=0,0", "hot"), (f"/sessions/{sid}", "cold"), ("/no", "none")):
            http.get(path, headers={"X-Request-ID": name})
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert lines
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
        assert line["level"] in ("info", "warning", "error") and line["logger"] and line["message"]
    told = {
        line["request_id"]: (line["method"], line["path"], line["status"])
        for line in lines
        if line["logger"] == "service.access"
    }
    assert told["hot"] == ("GET", f"/sessions/{sid}/predict", 500)
    assert told["cold"] == ("GET", f"/sessions/{sid}", 500)
    assert told["none"] == ("GET", "/no", 404)
    assert all(line["ms"] >= 0 for line in lines if line["logger"] == "service.access")
    errors = [line["request_id"] for line in lines if line["level"] == "error"]
    assert errors == ["hot", "cold"]  # the damage is logged on behalf of the request that met it
