"""What is on the screen is right: boundary, regions, points and arrows against Python, before and after a pan."""

from __future__ import annotations

import math
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page

from service import geometry as g
from service.geometry import Array
from service.learners.confidence import interval
from tests.opening import opened
from tests.page.browser import classes_at, drag, drawn, open_live, place, wait_for
from tests.running import Running
from tests.strategies import points

#: JavaScript has the same float64; a pan and its inverse lose a few eps·λ².
EXACT = 1e-9
LABELS = ["a", "b", "c", "d"]


def clusters(rng: np.random.Generator, n: int, K: int, d: int = 2) -> tuple[Array, list[int]]:
    centres = points(rng, K, d, 2.0)
    y = rng.integers(0, K, n)
    spread = rng.normal(0, 0.25, (n, d)) * 2 / g.conformal_factor(centres[y])[:, None]
    return g.exp_map(centres[y], spread), y.tolist()


def stream(http: httpx.Client, body: dict[str, Any], X: Array, y: list[int], **more: Any) -> str:
    sid, labels = opened(http, body), body.get("labels", [-1, 1])
    sent = {"points": X.tolist(), "labels": [labels[k] for k in y], **more}
    answer = http.post(f"/sessions/{sid}/observe?reply=summary", json=sent)
    assert answer.status_code == 200, answer.text
    return sid


def seen(view: Array, X: Array) -> Array:
    return g.mobius_add(-view, X)


def decided(http: httpx.Client, sid: str, X: Array, labels: list[Any]) -> list[int]:
    answer = http.post(f"/sessions/{sid}/predict", json={"points": X.tolist()}).json()
    return [labels.index(each) for each in answer["predictions"]]


def agree(
    page: Page, http: httpx.Client, sid: str, body: dict[str, Any], X: Array, root: float = 1.0
) -> dict[str, Any]:
    """Points and regions as they are drawn, against the geometry and the service; returns the scene"""
    scene = drawn(page)
    view = np.array(scene["view"])
    at = np.array([each["at"] for each in scene["points"]])
    assert np.abs(at - seen(view, X * root)).max() <= EXACT
    screen = points(np.random.default_rng(1), 120, 2, 2.5)
    inside = g.mobius_add(view, screen)
    expected = decided(http, sid, inside / root, body.get("labels", [-1, 1]))
    found = classes_at(page, screen) if scene["kind"] != "one" else _sides(scene, screen)
    assert sum(a != b for a, b in zip(found, expected, strict=True)) <= 1  # one may lie on a border, to a rounding
    return scene


def _sides(scene: dict[str, Any], screen: Array) -> list[int]:
    A, b1, b2, C = scene["form"]
    values = A * np.vecdot(screen, screen) + 2 * screen @ [b1, b2] + C
    found: list[int] = (values >= 0).astype(int).tolist()
    return found


def on_boundary(scene: dict[str, Any]) -> Array:
    """Points of the drawn boundary within the disk, by its centre and radius"""
    found = scene["boundary"]
    if found["shape"] == "line":
        n = np.array(found["normal"]) / np.linalg.norm(found["normal"])
        foot = -found["offset"] / np.linalg.norm(found["normal"]) * n
        X = foot + np.linspace(-1, 1, 401)[:, None] * [-n[1], n[0]]
    else:
        angles = np.linspace(0, math.tau, 40_001)
        X = np.array(found["centre"]) + found["radius"] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    X = X[np.linalg.norm(X, axis=1) < 0.95]
    assert len(X) > 5
    return np.asarray(X)


BINARY: dict[str, dict[str, Any]] = {
    "geodesic through p": {"algorithm": "perceptron", "dimension": 2, "reference": [0.2, -0.1], "curvature": 0.5},
    "hyperboloid": {"algorithm": "hyperboloid", "dimension": 2},
    "hemisphere": {"algorithm": "softmax", "dimension": 2},
    "one member has the vote": {"dimension": 2, "members": ["softmax"]},
}


@pytest.mark.parametrize("kind", BINARY)
def test_the_boundary_of_two_classes(page: Page, running: Running, http: httpx.Client, kind: str) -> None:
    body, rng = BINARY[kind], np.random.default_rng(3)
    root = math.sqrt(body.get("curvature", 1.0))
    X, y = clusters(rng, 60, 2)
    sid = stream(http, body, X / root, y)
    open_live(page, running.url, sid, 60)
    model = http.get(f"/sessions/{sid}/model").json()
    if kind == "one member has the vote":
        [model] = model["members"]

    def holds() -> None:
        scene = agree(page, http, sid, body, X / root, root)
        inside = g.mobius_add(np.array(scene["view"]), on_boundary(scene))
        w = np.array(model["weights"])
        if kind in ("hemisphere", "one member has the vote"):
            scores = g.hemisphere(inside) @ w / np.linalg.norm(w)
        elif kind == "hyperboloid":
            N = w * [-1, 1, 1]
            scores = g.to_hyperboloid(inside) @ N / np.linalg.norm(w)
            assert scene["boundary"]["name"] == "geodesic"
        else:
            scores = g.signed_distance(model["reference"], w, inside / root, c=0.5)
            p = seen(np.array(scene["view"]), np.array(model["reference"]) * root)
            assert np.abs(np.array(scene["references"]) - p).max() <= EXACT
        reach = EXACT * g.conformal_factor(inside).max() * (1 + scene["boundary"].get("radius", 1))
        assert np.abs(scores).max() <= reach

    holds()
    drag(page, (0.1, 0.2), (-0.35, 0.4))
    assert np.linalg.norm(drawn(page)["view"]) > 0.2
    holds()


KINDS: dict[str, dict[str, Any]] = {
    "auto": {"dimension": 2, "labels": LABELS},
    "gaussian": {"algorithm": "gaussian", "dimension": 2, "labels": LABELS, "curvature": 2.0},
    "one-vs-rest through p": {"algorithm": "perceptron", "dimension": 2, "labels": LABELS, "reference": [0.1, 0.1]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_regions_of_many_classes(page: Page, running: Running, http: httpx.Client, kind: str) -> None:
    body, root = KINDS[kind], math.sqrt(KINDS[kind].get("curvature", 1.0))
    X, y = clusters(np.random.default_rng(8), 80, 4)
    sid = stream(http, body, X / root, y)
    open_live(page, running.url, sid, 80)
    agree(page, http, sid, body, X / root, root)
    drag(page, (0.3, 0.0), (0.0, 0.3))
    scene = agree(page, http, sid, body, X / root, root)
    assert scene["kind"] == "many" and np.linalg.norm(scene["view"]) > 0.1


def test_the_strategic_threshold_and_the_arrows(page: Page, running: Running, http: httpx.Client) -> None:
    body = {"algorithm": "strategic", "dimension": 2, "reference": [0.2, -0.1], "budget": 0.5, "labels": ["no", "yes"]}
    X, y = clusters(np.random.default_rng(4), 16, 2)
    truth = g.mobius_add(X, np.array([0.05, -0.1]))
    sid = stream(http, body, X, y, truth=truth.tolist())
    open_live(page, running.url, sid, 16)
    for _ in range(2):
        scene = agree(page, http, sid, body, X)
        view, model = np.array(scene["view"]), http.get(f"/sessions/{sid}/model").json()
        line = g.mobius_add(view, np.array(scene["threshold"])[1:-1])
        line = line[np.linalg.norm(line, axis=1) < 0.99]
        w, p = np.array(model["weights"]), np.array(model["reference"])
        score = g.log_map(p, line) @ w / np.linalg.norm(w) - model["threshold"]
        assert np.abs(score).max() <= EXACT * g.conformal_factor(line).max()
        assert np.abs(np.array([each["from"] for each in scene["arrows"]]) - seen(view, truth)).max() <= EXACT
        assert np.abs(np.array([each["to"] for each in scene["arrows"]]) - seen(view, X)).max() <= EXACT
        drag(page, (0.0, 0.0), (0.3, -0.3))


def test_many_dimensions_are_projected_and_said_to_be(page: Page, running: Running, http: httpx.Client) -> None:
    rng = np.random.default_rng(9)
    p = np.array([0.1, 0.2, 0.0, -0.1, 0.0])
    X = g.exp_map(p, rng.normal(size=(60, 5)) * [0.5, 0.3, 0.1, 0.05, 0.02])
    body = {"algorithm": "perceptron", "dimension": 5, "reference": p.tolist()}
    sid = stream(http, body, X, (X[:, 0] > 0.1).astype(int).tolist())
    open_live(page, running.url, sid, 60)
    V = g.log_map(p, X) * g.conformal_factor(p)
    E = np.linalg.svd(V, full_matrices=False)[2][:2]
    flat = g.exp_map(np.zeros(2), V @ E.T / 2)
    at = np.array([each["at"] for each in drawn(page)["points"]])
    turn = np.linalg.lstsq(flat, at, rcond=None)[0]  # principal directions are known up to their signs
    assert np.abs(np.abs(turn) - np.eye(2)).max() < 1e-5
    assert np.abs(at - flat @ turn).max() < 1e-5
    assert "projection of 5 dimensions" in page.locator("#told").inner_text()


def test_a_timelike_classifier_says_no_boundary(page: Page, running: Running, http: httpx.Client) -> None:
    X = np.array([[0.0, 0.01], [0.01, 0.0]])
    sid = stream(http, {"algorithm": "hyperboloid", "dimension": 2}, X, [0, 0])
    open_live(page, running.url, sid, 2)
    wait_for(page, "document.getElementById('told').textContent.includes('no boundary; every point is called -1')")
    assert drawn(page)["boundary"] is None


def test_a_drag_keeps_the_point_under_the_pointer_and_the_wheel_goes_nearer(
    page: Page, running: Running, http: httpx.Client
) -> None:
    X, y = clusters(np.random.default_rng(6), 30, 2)
    sid = stream(http, {"dimension": 2}, X, y)
    open_live(page, running.url, sid, 30)
    before = np.array(drawn(page)["view"])
    drag(page, (0.3, 0.2), (-0.2, 0.5))
    view = np.array(drawn(page)["view"])
    held = g.mobius_add(before, np.array([0.3, 0.2]))
    assert np.linalg.norm(seen(view, held) - [-0.2, 0.5]) < 0.01  # pixels are whole
    page.mouse.move(*place(page, (0.5, 0.0)))
    page.mouse.wheel(0, -120)
    wait_for(
        page,
        "view => Math.hypot(horocycle.scene.view[0] - view[0], horocycle.scene.view[1] - view[1]) > 0.01",
        view.tolist(),
    )
    nearer = seen(np.array(drawn(page)["view"]), g.mobius_add(view, np.array([0.5, 0.0])))
    assert np.linalg.norm(nearer) < 0.48
    page.locator("#disk").focus()
    page.keyboard.press("0")
    assert drawn(page)["view"] == [0, 0]
    page.keyboard.press("ArrowLeft")
    assert drawn(page)["view"][0] < 0


def test_the_band_is_the_confidence_sequence_of_the_service(page: Page, running: Running) -> None:
    page.goto(f"{running.url}/problems")
    script = """async counts => {
      const { errorRate } = await import("/page/confidence.js");
      return counts.map(each => errorRate(...each));
    }"""
    counts = [[1, 0], [3, 3], [100, 7], [5000, 2400], [10**6, 12]]
    for (observed, mistakes), found in zip(counts, page.evaluate(script, counts), strict=True):
        expected = interval(observed, mistakes)
        assert found["low"] == pytest.approx(expected.low, abs=1e-5)  # its bisection stops there
        assert found["high"] == pytest.approx(expected.high, abs=1e-5)
