"""The page as one uses it: a demo, a point under the pointer, the past, fits, a lost connection."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import axe_playwright_python
import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from tests.opening import opened
from tests.page.browser import PATIENCE, complaints, drawn, open_live, place, wait_for
from tests.running import Running, service

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
POSITIONS = "horocycle.scene.points.rows.map(row => row.position)"


def fed(http: httpx.Client, n: int = 40, **settings: Any) -> str:
    """A session of two classes, parted by the middle"""
    sid = opened(http, {"dimension": 2, "algorithm": "perceptron", "reference": "origin", **settings})
    feed(http, sid, n)
    return sid


def feed(http: httpx.Client, sid: str, n: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.65, 0.65, (n, 2))
    labels = http.get(f"/sessions/{sid}").json()["labels"]
    for start in range(0, n, 10):
        part = X[start : start + 10]
        sent = {"points": part.tolist(), "labels": [labels[int(x[0] > 0.05)] for x in part]}
        assert http.post(f"/sessions/{sid}/observe?reply=summary", json=sent).status_code == 200


def test_a_demo_is_started_and_its_boundary_turns(page: Page, running: Running, http: httpx.Client) -> None:
    page.goto(f"{running.url}/")
    page.locator("#demos button", has_text="Strategic agents").click()
    page.wait_for_url("**/live#margin=*")
    wait_for(page, "globalThis.horocycle?.scene.classifier?.threshold")
    wait_for(page, "horocycle.scene.points.rows.length >= 80")
    wait_for(page, "horocycle.scene.model.version === horocycle.newest.version")
    sid = page.url.split("/")[-2]
    assert page.evaluate("horocycle.scene.model.weights") != http.get(f"/sessions/{sid}/at/0/model").json()["weights"]
    wait_for(page, "document.getElementById('t2').textContent === 'Updates under the bound'")
    page.goto("about:blank")
    assert http.delete(f"/sessions/{sid}").status_code == 204


def test_a_session_that_ends_is_said_to(page: Page, small: Running) -> None:
    with httpx.Client(base_url=small.url, timeout=30) as http:
        sid = fed(http, 10)
        open_live(page, small.url, sid, 10)
        wait_for(page, "horocycle.state === 'live' && horocycle.quiet")
        assert http.delete(f"/sessions/{sid}").status_code == 204
    wait_for(page, "document.getElementById('state').textContent === 'ended'")


def test_a_point_under_the_pointer_is_told(page: Page, running: Running, http: httpx.Client) -> None:
    sid = fed(http, labels=["<b>no</b>", "yes"])
    open_live(page, running.url, sid, 40)
    point = drawn(page)["points"][-1]
    page.mouse.move(*place(page, tuple(point["at"])))
    tip = page.locator("#tip")
    tip.get_by_text("score").wait_for()
    answer = http.get(f"/sessions/{sid}/predict", params={"x": ",".join(map(str, point["x"]))}).json()
    text = tip.inner_text()
    assert f"{answer['scores'][0]:.4f}" in text
    assert ["<b>no</b>", "yes"][point["label"]] in text and f"{point['x'][0]:.4f}" in text
    page.locator("#disk").focus()
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("n")
    assert tip.is_visible()


def test_the_slider_shows_the_classifier_as_it_was(page: Page, running: Running, http: httpx.Client) -> None:
    sid = fed(http, 60)
    open_live(page, running.url, sid, 60)
    wait_for(page, "Number(document.getElementById('past').max) === 60")
    page.locator("#past").fill("20")
    was = http.get(f"/sessions/{sid}/at/20/model").json()
    wait_for(page, "version => horocycle.scene.model.version === version", was["version"])
    assert page.evaluate("horocycle.scene.model.weights") == was["weights"]
    assert [each["position"] for each in drawn(page)["points"]] == list(range(20))
    page.locator("#now").click()
    now = http.get(f"/sessions/{sid}/model").json()
    wait_for(page, "version => horocycle.scene.model.version === version", now["version"])
    assert len(drawn(page)["points"]) == 60


def test_a_fit_is_drawn_with_its_support_vectors_and_promoted(page: Page, running: Running, http: httpx.Client) -> None:
    sid = fed(http, 60)
    made = http.post(f"/sessions/{sid}/fits", json={"kind": "svm", "features": "lift", "C": 100.0}).json()
    open_live(page, running.url, sid, 60)
    page.locator("#fits button", has_text="Draw").click()
    wait_for(page, "horocycle.scene.fit !== null")
    fit = http.get(f"/sessions/{sid}/fits/{made['id']}").json()
    found = page.evaluate("({ form: horocycle.scene.fit.form, support: [...horocycle.scene.fit.support] })")
    A, b1, b2, C = found["form"]
    X = np.random.default_rng(1).uniform(-0.6, 0.6, (50, 2))
    scores = http.post(f"/sessions/{sid}/predict?model={made['id']}", json={"points": X.tolist()}).json()["scores"]
    values = (A * np.vecdot(X, X) + 2 * X @ [b1, b2] + C) / (1 - np.vecdot(X, X))
    assert np.abs(values - np.sinh(scores)).max() < 1e-8
    assert len(found["support"]) == fit["support_vectors"][0]
    version = page.evaluate("horocycle.newest.version")
    page.locator("#fits button", has_text="Promote").click()
    wait_for(page, "version => horocycle.newest.version > version", version)


def test_a_lost_connection_is_found_again_without_a_gap(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(reduced_motion="reduce")
    said = complaints(page)
    with service(tmp_path / "data") as first, httpx.Client(base_url=first.url, timeout=30) as http:
        sid, port = fed(http, 30), first.url.rpartition(":")[2]
        open_live(page, first.url, sid, 30)
        assert page.locator("#state").inner_text() == "live"
        assert said == []
    page.locator("#state", has_text="reconnecting").wait_for(timeout=PATIENCE)
    with service(tmp_path / "data", port=port) as second, httpx.Client(base_url=second.url, timeout=30) as http:
        feed(http, sid, 30, seed=1)
        wait_for(page, "horocycle.scene.points.next === 60")
        assert page.evaluate(POSITIONS) == list(range(60))
        wait_for(page, "document.getElementById('state').textContent === 'live'")
        predicted = page.evaluate("horocycle.scene.points.rows.every(row => row.predicted !== undefined)")
        assert predicted  # they came as events, behind the last one that was seen
        page.close()
    assert all("ERR_CONNECTION" in each or "ERR_INCOMPLETE" in each or "ERR_EMPTY" in each for each in said), said


def test_large_commits_are_drawn_whole_and_what_is_left_out_is_said(
    page: Page, running: Running, http: httpx.Client
) -> None:
    sid = fed(http, 20, keep_points=300)
    open_live(page, running.url, sid, 20)
    rng = np.random.default_rng(5)
    for _ in range(3):
        X = rng.uniform(-0.6, 0.6, (200, 2))
        sent = {"points": X.tolist(), "labels": [int(x[0] > 0) * 2 - 1 for x in X]}
        assert http.post(f"/sessions/{sid}/observe?reply=summary", json=sent).status_code == 200
    wait_for(page, "horocycle.scene.points.next === 620")
    positions = page.evaluate(POSITIONS)
    assert positions[-300:] == list(range(320, 620)) and len(positions) <= 330
    wait_for(page, "/Drawn: the newest [0-9]+ of 620/.test(document.getElementById('told').textContent)")


def test_a_warming_session_says_how_far_it_is(page: Page, running: Running, http: httpx.Client) -> None:
    sid = fed(http, 50, reference={"learn": {"warmup": 200}})
    open_live(page, running.url, sid, 50)
    assert page.locator("#state").inner_text() == "warming: 50 of 200"
    assert "warming, 50 of 200" in http.get(f"/sessions/{sid}/disk.svg").text


def test_a_session_that_is_not_there_is_a_problem(browser: Browser, running: Running) -> None:
    page = browser.new_page(reduced_motion="reduce")
    page.goto(f"{running.url}/sessions/nowhere/live")
    page.get_by_role("heading", name="Unknown session").wait_for()
    page.get_by_role("link", name="What this means").click()
    page.get_by_role("heading", name="What to do").wait_for()
    page.close()


def test_a_mistake_flashes_where_it_was_made(page: Page, running: Running, http: httpx.Client) -> None:
    sid = fed(http, 40)
    open_live(page, running.url, sid, 40)
    spy = """globalThis.flashed = [];
      const painter = horocycle.disk.painter, flash = painter.mistaken.bind(painter);
      painter.mistaken = (rows, now) => (flashed.push(...rows.map(row => row.position)), flash(rows, now));"""
    page.evaluate(f"() => {{ {spy} }}")
    sent = {"points": [[0.5, 0.0], [0.6, 0.1]], "labels": [-1, 1]}
    correct = http.post(f"/sessions/{sid}/observe", json=sent).json()["correct"]
    wait_for(page, "horocycle.scene.points.next === 42")
    assert page.evaluate("flashed") == [40 + i for i, each in enumerate(correct) if not each] != []


def test_a_margin_that_the_reader_states_gives_the_bound(page: Page, running: Running, http: httpx.Client) -> None:
    sid = fed(http, 40)
    open_live(page, running.url, sid, 40)
    for margin in ("0.01", "50"):
        page.get_by_label("Your margin").fill(margin)
        page.get_by_label("Your margin").press("Enter")
        wait_for(page, "margin => horocycle.feed.certificate?.margin === margin", float(margin))
        told = "document.getElementById('certified').textContent"
        wait_for(page, f"{told}.includes('ε') || {told}.includes('No classifier of this kind has a margin of 50')")
        if margin == "0.01":
            bound = http.get(f"/sessions/{sid}/certificate?margin=0.01").json()["bound"]
            shown = page.locator("#bound").inner_text().split(" of ")[1]
            assert "".join(filter(str.isdigit, shown)) == str(int(bound))


def test_a_session_without_points_says_how_to_send_one(page: Page, running: Running, http: httpx.Client) -> None:
    """The line on the page is sent as it stands"""
    sid = opened(http, {"dimension": 2, "labels": ["it's", "b"]})
    open_live(page, running.url, sid)
    line = page.locator("#first code").inner_text()
    subprocess.run(
        [*shlex.split(line), "--silent", "--fail", "--max-time", "30"], check=True, stdout=subprocess.DEVNULL
    )
    wait_for(page, "horocycle.scene.points.next === 1")
    page.locator("#nothing").wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, running: Running, http: httpx.Client, scheme: Any) -> None:
    """All rules in the light; in the dark those about colours, which are all that differs"""
    sid = fed(http, 20, labels=["left", "right", *(f"class {k}" for k in range(40))])
    page = browser.new_page(reduced_motion="reduce", color_scheme=scheme)
    options = {"resultTypes": ["violations"], **({"runOnly": ["color-contrast"]} if scheme == "dark" else {})}
    for path in ("/", f"/sessions/{sid}/live", "/problems/stale-model"):
        page.goto(f"{running.url}{path}")
        if path == "/":
            page.get_by_role("button", name="Open a session").click()
            page.locator(".card").first.wait_for()
        if path.endswith("/live"):
            wait_for(page, "globalThis.horocycle !== undefined")
        page.evaluate(AXE)
        found = page.evaluate("options => axe.run(document, options)", options)["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == [], path
    page.close()


@pytest.mark.parametrize("path", ["/", "/sessions/{}/live"])
def test_a_phone_has_no_need_to_scroll_sideways(
    browser: Browser, running: Running, http: httpx.Client, path: str
) -> None:
    sid = fed(http, name="A name that is too long for a telephone, by far, in one line")
    page = browser.new_page(reduced_motion="reduce", viewport={"width": 360, "height": 740})
    page.goto(running.url + path.format(sid))
    page.get_by_role("heading", name="A name that is too long").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()


def test_a_session_is_opened_with_the_form(page: Page, running: Running) -> None:
    page.goto(f"{running.url}/")
    page.get_by_role("button", name="Open a session").click()
    page.get_by_label("Labels").fill("cat, dog, bird")
    page.get_by_role("button", name="Open", exact=True).click()
    page.wait_for_url("**/live")
    page.get_by_text("3 labels").wait_for()
    wait_for(page, "document.getElementById('told').textContent.includes('Nothing has been learned yet')")
