"""The live page under 3,000 points a second for a minute, in headless Chromium: frames a second, and memory.

`python -m benchmarks.page`. A client streams 30 commits of 100 points a second to a session of two classes, and to one
of ten (`auto`, regions); the page draws what comes. Frames are those the page painted; the heap is V8's after a
collection.
Chromium draws without a GPU here, on the cores that the service and the client use too.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
from playwright.sync_api import CDPSession, sync_playwright

from service import geometry as g
from service.geometry import Array
from tests.page.browser import open_live, program
from tests.running import service

SECONDS, COMMITS, POINTS = 60, 30, 100
SESSIONS = {
    "two classes, perceptron": {"algorithm": "perceptron", "dimension": 2, "reference": [0.2, 0.1], "labels": [0, 1]},
    "ten classes, auto": {"dimension": 2, "labels": list(range(10))},
}


def drawn(rng: np.random.Generator, K: int) -> Array:
    """Rows of points about K centres, and their classes"""
    y = rng.integers(0, K, POINTS)
    angle = 2 * np.pi * y / K
    centres = np.tanh(0.9) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    X = g.exp_map(centres, rng.normal(0, 0.1, (POINTS, 2)))
    return np.column_stack([X, y])


def stream(url: str, sid: str, K: int, sent: list[int]) -> None:
    rng, begun = np.random.default_rng(0), time.monotonic()
    headers = {"content-type": "application/octet-stream"}
    with httpx.Client(base_url=url, timeout=30) as http:
        while (elapsed := time.monotonic() - begun) < SECONDS:
            if sent[0] > elapsed * COMMITS * POINTS:
                time.sleep(0.005)
                continue
            body = drawn(rng, K).astype("<f8").tobytes()
            http.post(f"/sessions/{sid}/observe?reply=summary", content=body, headers=headers).raise_for_status()
            sent[0] += POINTS


def heap(devtools: CDPSession) -> float:
    """Megabytes, after a collection"""
    devtools.send("HeapProfiler.collectGarbage")
    used: float = devtools.send("Runtime.getHeapUsage")["usedSize"]
    return used / 2**20


def main() -> None:
    found = program()
    if found is None:
        sys.exit("there is no chromium on PATH")
    with tempfile.TemporaryDirectory() as folder, service(Path(folder) / "data") as running, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for name, body in SESSIONS.items():
            sid = httpx.post(f"{running.url}/sessions", json=body).json()["id"]
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            open_live(page, running.url, sid)
            devtools, sent = page.context.new_cdp_session(page), [0]
            client = threading.Thread(target=stream, args=(running.url, sid, len(body["labels"]), sent))  # type: ignore[arg-type]
            client.start()
            rates, heaps, frames, at = list[float](), list[float](), 0, time.monotonic()
            while client.is_alive():
                page.wait_for_timeout(5000)
                now, painted = time.monotonic(), page.evaluate("horocycle.disk.frames")
                rates.append((painted - frames) / (now - at))
                heaps.append(heap(devtools))
                frames, at = page.evaluate("horocycle.disk.frames"), time.monotonic()
            client.join()
            behind = sent[0] - page.evaluate("horocycle.newest.observed")
            kept = page.evaluate("horocycle.scene.points.rows.length")
            print(f"{name}: {sent[0] / SECONDS:,.0f} points/s sent, {behind:,} not told at the end, {kept:,} drawn")
            print(f"  frames/s  median {statistics.median(rates):.0f}, least {min(rates):.0f}")
            print(f"  heap, MB  {' '.join(f'{each:.0f}' for each in heaps)}")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
