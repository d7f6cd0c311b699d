"""A real Chromium, and what a test wants of a page in it."""

from __future__ import annotations

import shutil
import time
from typing import Any

from playwright.sync_api import ConsoleMessage, Page

from service.geometry import Array

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: Milliseconds after which something that should happen has not; a loaded machine is slow.
PATIENCE = 60_000


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def complaints(page: Page) -> list[str]:
    """What the browser says against the page from now on: errors, and violations of its own policy"""
    found: list[str] = []

    def said(message: ConsoleMessage) -> None:
        trimmed = "410" in message.text and "/log?" in message.location.get("url", "")  # then it asks from `first` on
        if message.type in ("error", "warning") and not trimmed:
            found.append(f"{message.text} {message.location.get('url', '')}")

    page.on("console", said)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def wait_for(page: Page, condition: str, argument: Any = None) -> None:
    """Until it holds. Playwright's own way evaluates strings within the page, which our policy forbids"""
    deadline = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def open_live(page: Page, url: str, sid: str, points: int = 0) -> None:
    """The page of a session, once so many of its points and their classifier are drawn"""
    page.goto(f"{url}/sessions/{sid}/live", timeout=PATIENCE)
    wait_for(page, "globalThis.horocycle !== undefined")
    wait_for(page, "n => horocycle.newest.observed >= n && horocycle.scene.points.next >= n", points)
    wait_for(page, "horocycle.scene.model?.version === horocycle.newest.version")


#: The scene as plain values
DRAWN = """() => {
  const drawn = horocycle.scene.drawn();
  return {
    view: drawn.view, kind: drawn.kind, boundary: drawn.boundary, threshold: drawn.threshold, form: drawn.form,
    references: drawn.references, bands: drawn.bands,
    points: drawn.points.map(({ x, y, row }) => ({ at: [x, y], x: row.x, position: row.position, label: row.label })),
    arrows: drawn.points.filter((each) => each.from).map(({ x, y, from }) => ({ from, to: [x, y] })),
  };
}"""


def drawn(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(DRAWN)
    return found


def classes_at(page: Page, screen: Array) -> list[int]:
    """The class of each of these points of the screen, as its region is drawn"""
    found: list[int] = page.evaluate("X => X.map(x => horocycle.scene.drawn().classAt(...x))", screen.tolist())
    return found


def place(page: Page, at: tuple[float, float]) -> tuple[float, float]:
    """Where a point of the screen's disk is in the window"""
    script = """at => {
      const box = document.getElementById("disk").getBoundingClientRect(), [x, y] = horocycle.disk.painter.at(at);
      return [box.left + x, box.top + y];
    }"""
    x, y = page.evaluate(script, list(at))
    return float(x), float(y)


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*place(page, start))
    page.mouse.down()
    page.mouse.move(*place(page, end), steps=3)
    page.mouse.up()
