"""A disk without room for the append-only file: the store ends rather than acknowledge what it cannot write, and is
tried again until there is room. No file of the store, nor of one that is started in its place, may grow for a while."""

from __future__ import annotations

import resource
from pathlib import Path

import httpx

from tests.faults.stream import alive
from tests.problem import require_problem
from tests.running import Running, service
from tests.waiting import wait_until


def let_files_grow_to(running: Running, size: int) -> None:
    """Those of the store, and of what the launcher starts from now on"""
    for pid in (running.launcher.pid, running.store_pid):
        if alive(pid):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_what_was_acknowledged_is_there_when_there_is_room_again(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data", HOROCYCLE_FIT_WORKERS="0") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        assert http.post("/sessions", json={"id": "s", "dimension": 2}).status_code == 201
        store, acknowledged, refused = running.store_pid, list[str](), list[httpx.Response]()

        def observe(key: str) -> bool:
            body = {"point": [0.1, 0.2], "label": 1}
            answer = http.post("/sessions/s/observe", json=body, headers={"idempotency-key": key})
            if answer.status_code == 200:
                acknowledged.append(key)
            else:
                refused.append(answer)
            return answer.status_code == 200

        assert all(observe(f"before {i}") for i in range(5))
        files = [*(tmp_path / "data").glob("**/*.incr.aof")]
        let_files_grow_to(running, max(path.stat().st_size for path in files) + 1500)
        keys = iter(f"full {i}" for i in range(10_000))
        wait_until(lambda: not observe(next(keys)))
        wait_until(lambda: not alive(store))
        assert not any(observe(next(keys)) for _ in range(5))
        assert http.get("/health/live").status_code == 200 and http.get("/health/ready").status_code == 503
        let_files_grow_to(running, resource.RLIM_INFINITY)
        wait_until(lambda: http.get("/health/ready").status_code == 200)
        for answer in refused:
            slug = {503: "store-unavailable", 504: "outcome-unknown"}[answer.status_code]
            require_problem(answer, answer.status_code, slug)
        for key in ["after", *acknowledged]:  # each once, also those that nobody can say of whether they were written
            wait_until(lambda key=key: observe(key))  # type: ignore[misc]
        known = {*acknowledged}
        assert len(known) <= http.get("/sessions/s").json()["observed"] <= len(known) + len(refused)
        log = http.get("/sessions/s/log").json()
        assert len(log["points"]) == http.get("/sessions/s").json()["observed"]
