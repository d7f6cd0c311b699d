"""The live page under 3,000 points a second for a minute, in headless Chromium: frames a second, memory, and CPU.

`python -m benchmarks.page [seconds]`. A client streams 30 commits of 100 points a second to a session of two classes,
and to one of ten (`auto`, regions); the page draws what comes. Frames are those the browser made; the page paints on
one when something new has come. CPU is that of Chromium's processes: the renderer with all its threads, and the one
that would be the GPU's; both draw in software here, on the cores that the service and the client use too. So frames a
second say as much of the machine as of the page; the milliseconds of CPU a frame do not. The heap is V8's after a
collection, the resident set the renderer's.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from service import geometry as g
from service.geometry import Array
from tests.page.browser import open_live, program
from tests.running import service

RESULTS = Path(__file__).parent / "results/page.txt"
SECONDS, COMMITS, POINTS = 60, 30, 100
SESSIONS: dict[str, dict[str, Any]] = {
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


def stream(url: str, sid: str, K: int, seconds: float, sent: list[int]) -> None:
    rng, begun = np.random.default_rng(0), time.monotonic()
    headers = {"content-type": "application/octet-stream"}
    with httpx.Client(base_url=url, timeout=30) as http:
        while (elapsed := time.monotonic() - begun) < seconds:
            if sent[0] > elapsed * COMMITS * POINTS:
                time.sleep(0.005)
                continue
            body = drawn(rng, K).astype("<f8").tobytes()
            http.post(f"/sessions/{sid}/observe?reply=summary", content=body, headers=headers).raise_for_status()
            sent[0] += POINTS


class Meter:
    """What a page and the browser's processes have used"""

    def __init__(self, browser: Browser, page: Page) -> None:
        self.page, self.devtools = page, page.context.new_cdp_session(page)
        self.browser: CDPSession = browser.new_browser_cdp_session()
        self.devtools.send("Performance.enable")
        page.evaluate("globalThis.made = 0; (function next() { made++; requestAnimationFrame(next); })()")

    def frames(self) -> int:
        found: int = self.page.evaluate("made")
        return found

    def script(self) -> float:
        """Seconds that the page's scripts have run"""
        values = self.devtools.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in values if each["name"] == "ScriptDuration"))

    def processes(self) -> Iterator[tuple[str, int, float]]:
        for each in self.browser.send("SystemInfo.getProcessInfo")["processInfo"]:
            yield each["type"], int(each["id"]), float(each["cpuTime"])

    def cpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for kind, _, seconds in self.processes():
            found[kind] = found.get(kind, 0) + seconds
        return found

    def resident(self) -> float:
        """Megabytes of the largest renderer"""
        pids = [pid for kind, pid, _ in self.processes() if kind == "renderer"]
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
        return max(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def heap(self) -> float:
        """Megabytes, after a collection"""
        self.devtools.send("HeapProfiler.collectGarbage")
        used: float = self.devtools.send("Runtime.getHeapUsage")["usedSize"]
        return used / 2**20


def measured(browser: Browser, url: str, name: str, body: dict[str, Any], seconds: float) -> Iterator[str]:
    sid = httpx.post(f"{url}/sessions", json=body).json()["id"]
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    open_live(page, url, sid)
    meter, sent = Meter(browser, page), [0]
    client = threading.Thread(target=stream, args=(url, sid, len(body["labels"]), seconds, sent))
    first, busy, cpu = meter.frames(), meter.script(), meter.cpu()
    client.start()
    rates, heaps, resident, made, at = list[float](), list[float](), list[float](), first, time.monotonic()
    while client.is_alive():
        page.wait_for_timeout(min(5000, 1000 * seconds / 3))
        now, frames = time.monotonic(), meter.frames()
        rates.append((frames - made) / (now - at))
        made, at = frames, now
        heaps.append(meter.heap())
        resident.append(meter.resident())
    client.join()
    total, painted = meter.frames() - first, page.evaluate("horocycle.disk.frames")
    script = 1000 * (meter.script() - busy) / total
    used = {kind: 1000 * (after - cpu.get(kind, 0)) / total for kind, after in meter.cpu().items()}
    behind = sent[0] - page.evaluate("horocycle.newest.observed")
    kept = page.evaluate("horocycle.scene.points.rows.length")
    yield f"{name}: {sent[0] / seconds:,.0f} points/s sent, {behind:,} not told at the end, {kept:,} points kept"
    median, least = statistics.median(rates), min(rates)
    yield f"  frames/s      median {median:.0f}, least {least:.0f}; painted {painted / seconds:.0f}"
    renderer, gpu = used["renderer"], used["GPU"]
    yield f"  ms a frame    scripts {script:.1f} of the clock; CPU: renderer {renderer:.1f}, GPU's {gpu:.1f}"
    yield f"  heap, MB      {' '.join(f'{each:.0f}' for each in heaps)}"
    yield f"  resident, MB  {' '.join(f'{each:.0f}' for each in resident)}"
    page.close()


def main() -> None:
    found, seconds = program(), float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    if found is None:
        sys.exit("there is no chromium on PATH")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    lines = [f"python -m benchmarks.page {seconds:g}: {version}, {os.cpu_count()} cores, {platform.machine()}"]
    lines.append(f"load at the start {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder, service(Path(folder) / "data") as running, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for name, body in SESSIONS.items():
            lines.extend(measured(browser, running.url, name, body, seconds))
        browser.close()
    lines.append(f"load at the end {os.getloadavg()[0]:.1f}")
    sys.stdout.write("\n".join(lines) + "\n")
    if seconds >= SECONDS:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
