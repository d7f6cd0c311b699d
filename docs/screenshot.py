"""Takes docs/live.png, the README's screenshot, and docs/live.webp, ten seconds of it: `python -m docs.screenshot`.

A real service, a real Chromium, and the agents of the demo with a fixed seed. Needs a chromium on PATH.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from service.sessions.demo import POPULATIONS
from tests.page.browser import open_live, program, wait_for
from tests.running import service

STILL, MOVING = Path(__file__).with_name("live.png"), Path(__file__).with_name("live.webp")
SEED, POINTS = 7, 420
FRAMES, AGENTS, SIDE, MILLISECONDS = 80, 3, 420, 125  # of the animation


def play(http: httpx.Client, sid: str, rng: np.random.Generator, points: int) -> None:
    """Agents that answer the published classifier, one at a time"""
    agents = POPULATIONS["agents"]
    for _ in range(points):
        model = http.get(f"/sessions/{sid}/model").json()
        batch = agents.draw(rng, 0, 1, model)
        label = agents.settings["labels"][int(batch.indices[0])]
        assert batch.truth is not None
        body = {"point": batch.X[0].tolist(), "label": label, "truth": batch.truth[0].tolist()}
        match = {"If-Match": f'"{model["version"]}"'}
        http.post(f"/sessions/{sid}/observe?reply=summary", json=body, headers=match).raise_for_status()


def opened(http: httpx.Client, name: str, **settings: Any) -> str:
    settings = {**POPULATIONS["agents"].settings, "name": name, **settings}
    return str(http.post("/sessions", json=settings).raise_for_status().json()["id"])


def still(page: Page, http: httpx.Client, url: str) -> None:
    sid = opened(http, "Strategic agents")
    play(http, sid, np.random.default_rng(SEED), POINTS)
    open_live(page, url, sid, POINTS)
    page.get_by_label("Your margin").fill(str(POPULATIONS["agents"].margin))
    page.get_by_label("Your margin").press("Enter")
    page.locator("#t2", has_text="under the bound").wait_for()
    page.locator("#margin").blur()
    wait_for(page, "horocycle.quiet && horocycle.state === 'live'")
    page.wait_for_timeout(1500)  # a flash fades
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(STILL, optimize=True)


def moving(page: Page, http: httpx.Client, url: str) -> None:
    sid, rng, frames = opened(http, "agents"), np.random.default_rng(SEED), []
    page.set_viewport_size({"width": SIDE, "height": 900})
    open_live(page, url, sid)
    box = page.locator("#disk").bounding_box()
    assert box is not None
    for i in range(1, FRAMES + 1):
        play(http, sid, rng, AGENTS)
        wait_for(page, "n => horocycle.scene.points.next >= n", AGENTS * i)
        page.wait_for_timeout(MILLISECONDS)
        shot = page.screenshot(clip={"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"]})
        frames.append(Image.open(io.BytesIO(shot)).convert("RGB"))
    first, *rest = frames
    first.save(MOVING, save_all=True, append_images=rest, duration=MILLISECONDS, loop=0, quality=55, method=6)


def main() -> None:
    found = program()
    if found is None:
        sys.exit("there is no chromium on PATH")
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder) / "data") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 800})
        still(page, http, running.url)
        moving(page, http, running.url)
        browser.close()


if __name__ == "__main__":
    main()
