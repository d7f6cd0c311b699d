"""Takes a picture of every state of the page: `python -m docs.states FOLDER`, or with some names behind it only those.

A real service, a real Chromium, seeded streams; nothing is compared. Who changes the look of the page looks at these.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from docs.screenshot import opened, play
from service import geometry as g
from service.geometry import Array
from service.sessions.demo import POPULATIONS
from tests.page.browser import PATIENCE, program, wait_for
from tests.running import command, service

WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
Stream = tuple[dict[str, Any], Array, Array]


def about(K: int, n: int = 500, d: int = 2, spread: float = 0.2, radius: float = 2.2, **settings: Any) -> Stream:
    """Settings of a session of K classes, and points about K centres on a spiral"""
    rng = np.random.default_rng(K)
    y = rng.integers(0, K, n)
    angle, far = 2.4 * y, radius * np.sqrt((y + 1) / K)
    centres = np.zeros((n, d))
    centres[:, 0], centres[:, 1] = np.tanh(far / 2) * np.cos(angle), np.tanh(far / 2) * np.sin(angle)
    X = g.exp_map(centres, rng.normal(0, spread, (n, d)) * 2 / g.conformal_factor(centres)[:, None])
    return {"dimension": d, "labels": [f"class {k}" for k in range(K)], **settings}, X, y


def timelike() -> Stream:
    return {"algorithm": "hyperboloid", "dimension": 2, "labels": ["a", "b"]}, np.array([[0.0, 0.01]]), np.array([0])


def drift() -> Stream:
    population, rng = POPULATIONS["drift"], np.random.default_rng(2)
    parts = [population.draw(rng, first, 100, {}) for first in range(0, 2400, 100)]
    return dict(population.settings), np.concatenate([p.X for p in parts]), np.concatenate([p.indices for p in parts])


SESSIONS: dict[str, Callable[[], Stream]] = {
    "nothing": lambda: about(3, 0),
    "warming": lambda: about(2, 50, algorithm="perceptron", reference={"learn": {"warmup": 200}}),
    "geodesic": lambda: about(2, 300, algorithm="perceptron", reference=[0.2, 0.1]),
    "circle": lambda: about(2, 400, algorithm="softmax", spread=0.5),
    "timelike": timelike,
    "drift": drift,
    "three": lambda: about(3, 700, spread=0.3),
    "ten": lambda: about(10, 1500),
    "thirty": lambda: about(30, 3000, spread=0.12, radius=3.4),
    "one dimension": lambda: (
        {"dimension": 1, "labels": ["low", "high"]},
        np.random.default_rng(0).uniform(-0.9, 0.9, (200, 1)),
        np.random.default_rng(0).uniform(-0.9, 0.9, 200).round() >= 0,
    ),
    "five dimensions": lambda: about(4, 600, d=5, spread=0.35),
    "hundred labels": lambda: about(100, 3000, spread=0.08, radius=4.0),
}


def feed(http: httpx.Client) -> None:
    for name, made in SESSIONS.items():
        settings, X, y = made()
        sid = name.replace(" ", "-")
        http.post("/sessions", json={**settings, "id": sid, "name": name.capitalize()}).raise_for_status()
        for i in range(0, len(X), 20):
            rows = np.column_stack([X[i : i + 20], y[i : i + 20]]).astype("<f8").tobytes()
            headers = {"content-type": "application/octet-stream"}
            http.post(f"/sessions/{sid}/observe?reply=summary", content=rows, headers=headers).raise_for_status()
    sid = opened(http, "Strategic agents", id="strategic")
    play(http, sid, np.random.default_rng(7), 300)
    http.post("/sessions/geodesic/fits", json={"kind": "svm", "features": "lift", "C": 10.0}).raise_for_status()


class Album:
    def __init__(self, browser: Browser, folder: Path, names: list[str]) -> None:
        self.browser, self.folder, self.names = browser, folder, names

    def page(self, **options: Any) -> Page:
        page = self.browser.new_page(**{"viewport": WIDE, **options})
        page.set_default_timeout(PATIENCE)
        return page

    def keep(self, page: Page, name: str, whole: bool = False) -> None:
        page.wait_for_timeout(600)
        page.screenshot(path=self.folder / f"{name.replace(' ', '-')}.png", full_page=whole)
        sys.stderr.write(f"{name}\n")

    def wanted(self, name: str) -> bool:
        return not self.names or name in self.names

    def home(self, name: str, url: str, cards: bool = True, **options: Any) -> None:
        if self.wanted(name):
            page = self.page(**options)
            page.goto(url)
            if cards:
                page.locator(".card canvas.marks").first.wait_for(state="attached")
                page.wait_for_timeout(1500)
            else:
                page.get_by_text("No sessions yet").wait_for()
            self.keep(page, name, whole=True)
            page.close()

    def live(
        self, name: str, url: str, sid: str, act: Callable[[Page], object] = lambda page: None, **more: Any
    ) -> None:
        if self.wanted(name):
            page = self.page(**more)
            page.goto(f"{url}/sessions/{sid}/live")
            wait_for(page, "globalThis.horocycle?.state === 'live' && horocycle.quiet")
            act(page)
            self.keep(page, name, whole="viewport" in more)
            page.close()


def draw_fit(page: Page) -> None:
    page.locator("#fits button", has_text="Draw").click()
    page.locator("#disk").focus()
    page.keyboard.press("n")
    page.get_by_text("now called").wait_for()


def unlocked(album: Album, folder: Path, url: str, names: list[str]) -> None:
    album.home("home, empty", url, cards=False)
    with httpx.Client(base_url=url, timeout=60) as http:
        feed(http)
    for name in SESSIONS:
        album.live(name, url, name.replace(" ", "-"))
    album.live("strategic", url, "strategic")
    album.live("strategic, dark", url, "strategic", color_scheme="dark")
    album.live("strategic, phone", url, "strategic", viewport=PHONE, device_scale_factor=2)
    album.live("ten, dark", url, "ten", color_scheme="dark")
    album.live("ten, phone", url, "ten", viewport=PHONE)
    album.live("fit and hover", url, "geodesic", draw_fit)
    album.live("past", url, "three", lambda page: page.locator("#past").fill("60"))
    album.home("home", url)
    album.home("home, dark", url, color_scheme="dark")
    album.home("home, phone", url, viewport=PHONE, color_scheme="dark")
    page = album.page()
    page.goto(f"{url}/sessions/nowhere/live")
    page.get_by_role("heading", name="Unknown session").wait_for()
    album.keep(page, "unknown session")
    page.goto(f"{url}/problems/stale-model")
    album.keep(page, "problem")
    page.goto(url)
    page.get_by_role("button", name="Open a session").click()
    album.keep(page, "home, form")
    page.close()


def main() -> None:
    found = program()
    if found is None or len(sys.argv) < 2:
        sys.exit("python -m docs.states FOLDER, with a chromium on PATH")
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as kept, sync_playwright() as play:
        album = Album(play.chromium.launch(executable_path=found, args=["--no-sandbox"]), folder, names)
        with service(Path(kept) / "open") as running:
            unlocked(album, folder, running.url, names)
            live, home = album.page(), album.page()
            live.goto(f"{running.url}/sessions/ten/live")
            home.goto(running.url)
            wait_for(live, "globalThis.horocycle?.state === 'live' && horocycle.quiet")
        live.locator("#state", has_text="reconnecting").wait_for()
        album.keep(live, "reconnecting")
        home.get_by_text("does not answer").wait_for()
        album.keep(home, "home, reconnecting")
        with service(Path(kept) / "locked", HOROCYCLE_KEYS="on") as running:
            assert command("keys", "add", "--data", str(running.data)).returncode == 0
            page = album.page()
            for name, path in (("home, locked", "/"), ("locked", "/sessions/ten/live")):
                page.goto(running.url + path)
                page.get_by_label("API key").wait_for()
                album.keep(page, name)
            page.get_by_label("API key").fill("hc_not_a_key")
            page.get_by_label("API key").press("Enter")
            page.get_by_text("refused").wait_for()
            album.keep(page, "refused")
        album.browser.close()


if __name__ == "__main__":
    main()
