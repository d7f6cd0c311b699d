"""The line before a session is bounded: who comes too late is told so at once, and nobody else suffers."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.running import service

POINT = {"point": [0.1, 0.2], "label": -1}


def test_beyond_the_queue_it_is_429_and_the_others_are_served(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data", HOROCYCLE_QUEUE="2", HOROCYCLE_DEADLINE="120", HOROCYCLE_FIT_WORKERS="0") as running,
        httpx.Client(base_url=running.url, timeout=60) as http,
    ):
        for sid in ("busy", "idle"):
            http.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin"}).raise_for_status()
            http.post(f"/sessions/{sid}/observe", json=POINT).raise_for_status()
        with ThreadPoolExecutor(8) as clients:

            def observe(number: int) -> httpx.Response:
                headers = {"Idempotency-Key": f"k{number}"}
                return httpx.post(f"{running.url}/sessions/busy/observe", json=POINT, headers=headers, timeout=150)

            os.kill(running.store_pid, signal.SIGSTOP)
            try:
                asked = []
                for number in range(3):  # one commit under way, two waiting
                    asked.append(clients.submit(observe, number))
                    while f"horocycle_queue_length {number + 1}.0\n" not in http.get("/metrics").text:
                        time.sleep(0.01)
                late = [observe(number) for number in range(3, 6)]
                assert [answer.status_code for answer in late] == [429] * 3
                assert {answer.json()["type"] for answer in late} == {"/problems/rate-limited"}
                assert {answer.headers["retry-after"] for answer in late} == {"1"}
            finally:
                os.kill(running.store_pid, signal.SIGCONT)
            assert [each.result().status_code for each in asked[:3]] == [200] * 3
        assert http.get("/sessions/busy").json()["observed"] == 4
        assert http.post("/sessions/idle/observe", json=POINT).status_code == 200
