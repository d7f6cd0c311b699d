"""The gate: whatever is killed, a 200 means applied exactly once, in one order, and stored.

`SOAK_SECONDS=600 pytest tests/faults/test_exactly_once.py` runs it with new seeds until that time is over.
"""

from __future__ import annotations

import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from service.session import ALGORITHMS
from tests.faults.stream import Stream, assert_exactly_once, kill_a_worker, kill_the_store, open_session, stored
from tests.running import service

LIMIT = 60  # seconds a stream may take
SOAK = float(os.environ.get("SOAK_SECONDS", "0"))


def gate(data: Path, seed: int, algorithm: str) -> None:
    rng = np.random.default_rng(seed)
    stream = Stream(seed, points=10_000, pause=0.04)
    faults = rng.permutation(["worker"] * 4 + ["store"] * 4)
    with service(data, workers=2) as running, ThreadPoolExecutor(1) as aside:
        open_session(running.url, algorithm)
        streaming = aside.submit(stream.run, running.url, LIMIT)
        for fault, when in zip(faults, np.sort(rng.uniform(0.02, 0.95, len(faults))), strict=True):
            while stream.progress < when and not streaming.done():
                time.sleep(0.002)
            kill_a_worker(running, rng) if fault == "worker" else kill_the_store(running)
        streaming.result()
        assert_exactly_once(stream.requests, stored(running))


def test_every_acknowledged_point_is_applied_exactly_once_whatever_is_killed(tmp_path: Path) -> None:
    gate(tmp_path / "0", 20240229, "second_order")
    until = time.monotonic() + SOAK
    while time.monotonic() < until:
        seed = secrets.randbits(32)
        gate(tmp_path / str(seed), seed, ALGORITHMS[seed % len(ALGORITHMS)])
