"""The picture tells the truth: what it draws is read back from the SVG and held against geometry and learners."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service import geometry as g
from service.geometry import Array
from service.learners import hyperboloid, perceptron, strategic
from service.sessions.palette import COLOURS, ON_DARK, SHAPES, shape
from service.sessions.picture import AGES, CENTRE, RADIUS, disk
from tests.strategies import generators, points
from tests.streams import separable

SVG = "{http://www.w3.org/2000/svg}"
#: lines are written with two decimals of a pixel: half of the last one, both ways, in disks
ROUNDING = 0.005 * math.sqrt(2) / RADIUS
NUMBER = r"-?\d*\.?\d+"
EMPTY = {"X": np.zeros((0, 2)), "indices": np.zeros(0, dtype=np.int64)}


def draw(**changes: Any) -> ElementTree.Element:
    return ElementTree.fromstring(drawn(**changes).encode())


def drawn(**changes: Any) -> str:
    """A perceptron's picture, unless changed"""
    X = points(np.random.default_rng(0), 30, 2, 3.0)
    session: dict[str, Any] = {
        "algorithm": "perceptron",
        "curvature": 1.0,
        "labels": [-1, 1],
        "references": [0.2, -0.1],
        "weights": [1.0, 0.5],
        "threshold": None,
        "X": X,
        "indices": np.arange(len(X)) % 2,
        "counts": {"observed": 12345, "mistakes": 7, "updates": 7, "version": 7, "status": "live"},
    }
    return disk(**{**session, **changes})


def path(picture: ElementTree.Element, name: str) -> str | None:
    found = picture.find(f".//{SVG}path[@id='{name}']")
    return None if found is None else found.attrib["d"]


def from_pixels(pixels: Any) -> Array:
    return np.asarray((np.asarray(pixels, dtype=np.float64) - CENTRE) / RADIUS * [1, -1])


def said(picture: ElementTree.Element) -> str:
    return " ".join(picture.itertext())


def arc(d: str) -> tuple[Array, Array | None, float]:
    """Points of the line or arc of a path, and its centre and radius, as the SVG specification (F.6.5) has them"""
    start = re.match(rf"M({NUMBER}) ({NUMBER})(.*)$", d)
    assert start is not None
    a = np.array([float(start[1]), float(start[2])])
    if straight := re.fullmatch(rf"L({NUMBER}) ({NUMBER})", start[3]):
        b = np.array([float(straight[1]), float(straight[2])])
        return from_pixels(a + np.linspace(0, 1, 101)[:, None] * (b - a)), None, math.inf
    curve = re.fullmatch(rf"A({NUMBER}) ({NUMBER}) 0 0 ([01]) ({NUMBER}) ({NUMBER})", start[3])
    assert curve is not None
    r, sweep, b = float(curve[1]), int(curve[3]), np.array([float(curve[4]), float(curve[5])])
    half = (a - b) / 2
    away = math.sqrt(max(r * r - half @ half, 0.0) / (half @ half))
    centre = (a + b) / 2 + (1 if sweep else -1) * away * np.array([half[1], -half[0]])
    first, last = (math.atan2(*(e - centre)[::-1]) for e in (a, b))
    turn = (last - first) % math.tau - (0 if sweep else math.tau)
    assert abs(turn) <= math.pi  # the small arc, as its flag says
    angles = first + np.linspace(0, 1, 101) * turn
    return from_pixels(centre + r * np.stack([np.cos(angles), np.sin(angles)], axis=1)), from_pixels(centre), r / RADIUS


def reach(X: Array, r: float) -> Array:
    """How far in hyperbolic length the rounding of an arc's ends can move its points: the bulge by 1/r as much"""
    return np.asarray(2 * ROUNDING * (1 + 1 / r) * g.conformal_factor(X))


def inside(X: Array) -> Array:
    return np.asarray(X[np.linalg.norm(X, axis=1) < 0.99])


# ------------------------------------------------------------------------------------- boundary


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rng=generators, c=st.sampled_from([0.5, 1.0, 3.0]), scale=st.sampled_from([1e-200, 1.0, 1e200]))
def test_the_boundary_is_the_geodesic_of_the_classifier(rng: np.random.Generator, c: float, scale: float) -> None:
    p, w = points(rng, 1, 2, 3.0)[0] / math.sqrt(c), rng.normal(size=2) * scale
    d = path(
        draw(references=p, weights=w, curvature=c, X=points(rng, 9, 2, 3.0) / math.sqrt(c), indices=np.zeros(9, int)),
        "boundary",
    )
    assert d is not None
    X, centre, r = arc(d)
    assert np.linalg.norm(X[[0, -1]], axis=1) == pytest.approx([1, 1], abs=2 * ROUNDING)  # from rim to rim
    if centre is not None:  # orthogonal to the unit circle
        assert centre @ centre == pytest.approx(1 + r * r, abs=8 * ROUNDING * (1 + r) * (1 + 1 / r))
    X = inside(X)
    distances = g.signed_distance(p, w, X / math.sqrt(c), c=c) * math.sqrt(c)
    assert (np.abs(distances) <= reach(X, r)).all()
    assert len(X) > 20


def test_a_boundary_through_the_middle_is_a_diameter() -> None:
    for w in ([1.0, 0.0], [0.3, -0.8]):
        d = path(draw(references=[0.0, 0.0], weights=w), "boundary")
        assert d is not None
        assert "A" not in d
        assert np.abs(arc(d)[0] @ w).max() <= 2 * ROUNDING


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rng=generators)
def test_the_hyperboloids_boundary_is_where_its_score_is_0(rng: np.random.Generator) -> None:
    w = rng.normal(size=3)
    picture = draw(algorithm="hyperboloid", references=None, weights=w)
    d = path(picture, "boundary")
    if w[1:] @ w[1:] <= w[0] ** 2:
        assert d is None
        assert "timelike" in said(picture)
        called = hyperboloid.predict(state_of(w), points(rng, 20, 2, 5.0))
        assert len(set(called.tolist())) == 1
        assert f"every point is called {called[0]}." in said(picture)
        return
    assert d is not None
    X, _, r = arc(d)
    X = inside(X)
    assert (np.abs(hyperboloid.score(state_of(w), X)) <= reach(X, r)).all()


def state_of(w: Array) -> hyperboloid.State:
    return replace(hyperboloid.init(len(w) - 1), w=w)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rng=generators)
def test_the_tint_of_the_positive_class_is_on_its_side(rng: np.random.Generator) -> None:
    p, w = points(rng, 1, 2, 3.0)[0], rng.normal(size=2)
    tint = draw(references=p, weights=w).find(f".//{SVG}path[@class='c1 tint']")
    assert tint is not None
    line, large, end = re.fullmatch(rf"(M.*)A{RADIUS} {RADIUS} 0 ([01]) 1 (.*)Z", tint.attrib["d"]).groups()  # type: ignore[union-attr]
    assert line.startswith(f"M{end}")
    first, last = (math.atan2(*x[::-1]) for x in arc(line)[0][[-1, 0]])
    turn = (first - last) % math.tau  # clockwise on the screen is against the angles of the disk
    assert (turn > math.pi) == bool(int(large))
    rim = 0.999 * np.array(
        [[math.cos(first - share * turn), math.sin(first - share * turn)] for share in (0.2, 0.5, 0.8)]
    )
    assert (g.signed_distance(p, w, rim) > 0).all()


# -------------------------------------------------------------------------------------- regions


def region_at(picture: ElementTree.Element, x: Array) -> set[int]:
    """The classes whose region has this point: by crossings of a ray, over all polygons of the path"""
    found = set()
    for each in picture.iter(f"{SVG}path"):
        if each.attrib.get("id", "").startswith("region-"):
            inside_ = False
            for part in each.attrib["d"][1:].rstrip("Z").split("ZM"):
                V = polyline("M" + part)
                a, b = V, np.roll(V, -1, axis=0)
                crosses = (a[:, 1] > x[1]) != (b[:, 1] > x[1])
                at = a[:, 0] + (x[1] - a[:, 1]) * (b[:, 0] - a[:, 0]) / np.where(
                    b[:, 1] == a[:, 1], 1, b[:, 1] - a[:, 1]
                )
                inside_ ^= bool((crosses & (at > x[0])).sum() % 2)
            if inside_:
                found.add(int(each.attrib["id"][7:]))
    return found


@pytest.mark.parametrize("kind", ["lift", "lift, a point a class", "hyperboloid", "hemisphere"])
def test_a_region_is_where_its_class_has_the_largest_score(kind: str) -> None:
    rng = np.random.default_rng(5)
    K, P = 7, points(rng, 7, 2, 2.0)
    W = rng.normal(size=(K, {"hyperboloid": 3, "hemisphere": 4}.get(kind, 2)))
    features = kind.split(",")[0]
    reference = P if "point" in kind else P[0] if kind == "lift" else None
    picture = draw(labels=list("abcdefg"), references=reference, weights=W, features=features, **EMPTY)
    X = points(rng, 200, 2, 3.0)
    if features == "hemisphere":
        scores = g.hemisphere(X) @ W.T
    elif features == "hyperboloid":
        scores = np.stack([hyperboloid.score(state_of(w), X) for w in W], axis=1)
    else:
        scores = np.stack(
            [
                g.signed_distance(p, w, X)
                for p, w in zip(np.broadcast_to(P[0] if kind == "lift" else P, (K, 2)), W, strict=True)
            ],
            axis=1,
        )
    best, checked = np.sort(scores, axis=1), 0
    for x, row, (second, first) in zip(X, scores, best[:, -2:], strict=True):
        if first - second > 0.1:  # not within a cell of a border
            assert region_at(picture, x) == {int(row.argmax())}
            checked += 1
    assert checked > 40
    assert path(picture, "boundary") is None


def test_two_classes_on_hemisphere_coordinates_are_parted_by_the_circle_where_the_score_is_0() -> None:
    for w, name in (
        ([0.1, 1.0, 0.4, 0.0], "geodesic"),
        ([0.1, 1.0, 0.4, 0.3], "hypercycle"),
        ([-1.0, 0.6, -0.8, 0.5], "horocycle"),
        ([-1.0, 0.3, 0.1, 1.2], "circle"),
    ):
        picture = draw(algorithm="softmax", references=None, weights=w, features="hemisphere")
        assert f"boundary, a {name}" in said(picture)
        d = path(picture, "boundary")
        assert d is not None
        found = re.match(rf"M({NUMBER}) ({NUMBER})a({NUMBER}) ", d)
        assert found is not None
        left, r = from_pixels([float(found[1]), float(found[2])]), float(found[3]) / RADIUS
        angles = np.linspace(0, math.tau, 20_000)
        X = left + [r, 0] + r * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        X = X[np.linalg.norm(X, axis=1) < 1]
        assert len(X) > 20
        gradient = 2 * np.linalg.norm(w) * (1 + 1 / r)  # of ⟨w,φ⟩, and how far the rounding of the radius moves the rim
        assert np.abs(g.hemisphere(X) @ w).max() <= 4 * ROUNDING * gradient
    nowhere = draw(references=None, weights=[1.0, 0.1, 0.0, 0.2], features="hemisphere")
    assert "every point of it is called 1." in said(nowhere)


def test_the_regions_of_a_gaussian_and_of_a_vote_are_their_decisions() -> None:
    rng = np.random.default_rng(2)
    labels, K = ["a", "b", "c"], 3
    means = np.array([[0.8, 0.1], [-0.5, 0.9], [0.0, -1.1]])
    roots = rng.normal(size=(K, 2, 2)) * 0.3 + 0.5 * np.eye(2)
    classes = [
        {"label": label, "count": n, "mean": m.tolist(), "covariance": (R @ R.T).tolist()}
        for label, n, m, R in zip(labels, (30, 10, 20), means, roots, strict=True)
    ]
    W = rng.normal(size=(K, 4))
    one = {"features": "tangent", "weights": None, "classes": classes, "curvature": 1.0, "labels": labels}
    other = {"features": "hemisphere", "weights": W.tolist(), "curvature": 1.0, "labels": labels, "reference": None}
    X = points(rng, 150, 2, 3.0)
    V = 2 * g.log_map(np.zeros(2), X)
    logs = []
    for each in classes:
        S, away = np.array(each["covariance"]), V - each["mean"]
        logs.append(
            math.log(each["count"]) - np.linalg.slogdet(S)[1] / 2 - np.vecdot(away, away @ np.linalg.inv(S)) / 2
        )
    gaussian, sphere = np.argmax(logs, axis=0), (g.hemisphere(X) @ W.T).argmax(axis=1)
    clear = np.diff(np.sort(np.stack(logs, axis=1), axis=1)[:, -2:])[:, 0] > 0.3
    clear &= np.diff(np.sort(g.hemisphere(X) @ W.T, axis=1)[:, -2:])[:, 0] > 0.1
    assert clear.sum() > 60
    cold = {**one, "classes": [{**each, "count": 0} for each in classes], "weight": 0.0}
    shared: dict[str, Any] = {"labels": labels, "references": None, "weights": None, **EMPTY}
    pictures = {
        "gaussian": (draw(**shared, classes=classes), gaussian),
        "mostly the gaussian": (draw(**shared, members=[{**one, "weight": 0.7}, {**other, "weight": 0.3}]), gaussian),
        "a cold member": (draw(**shared, members=[cold, {**other, "weight": 0.3}]), sphere),
    }
    for name, (picture, expected) in pictures.items():
        for x, k in zip(X[clear], expected[clear], strict=True):
            assert region_at(picture, x) == {int(k)}, name
    assert "Nothing has been learned yet" in said(draw(**shared, members=[cold]))


# ------------------------------------------------------------------------------------ strategic


def polyline(d: str) -> Array:
    return from_pixels([[float(a) for a in at.split()] for at in d[1:].split("L")])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rng=generators, alpha=st.sampled_from([1e-3, 0.5, 1.0, 6.0]), c=st.sampled_from([1.0, 2.0]))
def test_the_threshold_scores_0_and_the_band_lies_between_it_and_the_geodesic(
    rng: np.random.Generator, alpha: float, c: float
) -> None:
    root = math.sqrt(c)
    p, w = points(rng, 1, 2, 2.0)[0] / root, rng.normal(size=2)
    sigma = float(g.conformal_factor(p, c=c))
    picture = draw(algorithm="strategic", references=p, weights=w, threshold=alpha / sigma, curvature=c, **EMPTY)
    line, through, band = (path(picture, name) for name in ("threshold", "geodesic", "band"))
    assert line is not None and through is not None and band is not None
    assert path(picture, "boundary") is None
    assert band.startswith(through) and line in band
    tint = picture.find(f".//{SVG}path[@class='c1 tint']")
    assert tint is not None and tint.attrib["d"].startswith(line)

    X = polyline(line)
    state = replace(strategic.init(p, budget=alpha, c=c), w=w)
    near = inside(X)
    if len(near):  # log_p is 1-Lipschitz, so a score is off by no more than its point
        assert (np.abs(strategic.score(state, near / root)) * root <= ROUNDING * g.conformal_factor(near)).all()
    ends = arc(through)[0]
    assert np.abs(X[[0, -1]] - ends[[0, -1]]).max() <= 2 * ROUNDING  # the two meet at infinity

    n = w / np.linalg.norm(w)  # the true line, much denser: nowhere a tenth of a pixel away
    t = np.concatenate([np.linspace(-15, 15, 2001), np.geomspace(15, 1e6, 300), -np.geomspace(15, 1e6, 300)])
    V = (alpha * n + t[:, None] * [-n[1], n[0]]) / sigma
    dense = g.exp_map(p, V, c=c) * root
    a, chord = X[:-1], np.diff(X, axis=0)
    away = dense[:, None] - a
    along = np.clip((away * chord).sum(-1) / np.maximum((chord * chord).sum(-1), 1e-30), 0, 1)
    miss = np.linalg.norm(away - along[..., None] * chord, axis=-1).min(axis=1)
    assert miss.max() * RADIUS <= 0.1


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 30.0])
def test_a_reference_point_at_the_rim_is_drawn_too(alpha: float) -> None:
    p = np.array([math.tanh(11.9 / 2), 0.0])
    sigma = float(g.conformal_factor(p))
    picture = draw(algorithm="strategic", references=p, weights=[0.3, 1.0], threshold=alpha / sigma, **EMPTY)
    assert path(picture, "threshold") is not None


# --------------------------------------------------------------------------------------- points


def marks(picture: ElementTree.Element) -> list[ElementTree.Element]:
    return [each for each in picture.findall(f"{SVG}path") if each.attrib["class"].endswith(" mark")]


@pytest.mark.parametrize("n", [0, 1, 199, 200, 1000, 10_000])
def test_every_point_has_its_mark_and_the_file_stays_small(n: int) -> None:
    rng = np.random.default_rng(n)
    X, indices = points(rng, n, 2, 12.0), rng.integers(0, 3, n)
    picture = draw(X=X, indices=indices, labels=["a", "b", "c"], weights=rng.normal(size=(3, 2)))
    counted = dict.fromkeys("012", 0)
    for each in marks(picture):
        counted[each.attrib["class"][1]] += each.attrib["d"].count("M")
    assert list(counted.values()) == np.bincount(indices, minlength=3).tolist()
    assert len(ElementTree.tostring(picture)) < 500_000


@pytest.mark.parametrize("c", [1.0, 4.0])
def test_marks_stand_where_the_points_are_the_newest_last(c: float) -> None:
    X = points(np.random.default_rng(3), 500, 2, 4.0)
    found = marks(draw(X=X / math.sqrt(c), indices=np.ones(500, int), references=[0.1, 0.0], curvature=c))
    circles = [re.findall(rf"M({NUMBER}) ({NUMBER})a({NUMBER}) ", each.attrib["d"]) for each in found]
    centres = from_pixels([[float(x), float(y) + float(r)] for each in circles for x, y, r in each])
    assert np.abs(centres - X).max() <= 0.051 / RADIUS
    assert [float(each.attrib["opacity"]) for each in found] == sorted(AGES)[-len(found) :]
    assert len(found) == 3


def test_180_classes_differ_in_colour_or_shape() -> None:
    at = np.zeros((180, 2))
    found = marks(draw(X=at, indices=np.arange(180), labels=list(range(180)), weights=np.zeros((180, 2))))
    assert len({(each.attrib["class"], each.attrib["d"]) for each in found}) == 180
    assert len({each.attrib["class"] for each in found[:20]}) == len(COLOURS) == len(ON_DARK) == 20


#: What is left of red, green and blue light to those without red, green or blue cones (Machado and others, 2009).
EYES: dict[str, Any] = {
    "all": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def oklab(linear: Array) -> Array:
    """Where equal distances look equally far"""
    lms = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    lab = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.asarray(np.cbrt(linear @ np.transpose(lms)) @ np.transpose(lab))


@pytest.mark.parametrize("palette", [COLOURS, ON_DARK], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", EYES)
def test_colours_that_look_alike_have_different_shapes(palette: tuple[str, ...], eyes: str) -> None:
    rgb = np.array([[int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in palette]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab = oklab(np.clip(linear @ np.transpose(EYES[eyes]), 0, 1))
    away = np.linalg.norm(lab[:, None] - lab[None], axis=2)
    alike = [(i, j) for i in range(20) for j in range(i) if away[i, j] < (0.07 if eyes == "all" else 0.05)]
    assert all(shape(i) != shape(j) for i, j in alike), alike
    assert eyes != "all" or not alike


def test_the_page_has_the_same_colours_and_shapes() -> None:
    script = (files("service.page") / "palette.js").read_text()
    for name, expected in (("LIGHT", COLOURS), ("DARK", ON_DARK)):
        listed = re.search(rf"export const {name} = (\[.*?\]);", script, re.DOTALL)
        assert listed is not None and tuple(json.loads(listed[1])) == expected
    corners = re.search(r"export const SHAPES = \[(.*?)\n\];", script, re.DOTALL)
    assert corners is not None
    lines = [line.strip().rstrip(",") for line in corners[1].strip().splitlines()]
    assert len(lines) == len(SHAPES)
    for line, expected_shape in zip(lines, SHAPES, strict=True):
        if line.startswith("["):  # the plus is computed
            assert [tuple(each) for each in json.loads(line)] == [tuple(map(float, each)) for each in expected_shape]


# --------------------------------------------------------------------------- other dimensions


def test_one_dimension_is_the_diameter() -> None:
    p, alpha = 0.3, 0.5
    X = points(np.random.default_rng(0), 60, 1, 3.0)
    indices = (X[:, 0] > p).astype(int)
    sigma = float(g.conformal_factor([p]))
    picture = draw(algorithm="strategic", references=[p], weights=[2.0], threshold=alpha / sigma, X=X, indices=indices)
    for name, crossing in (("geodesic", [p]), ("threshold", g.exp_map([p], [alpha / sigma]))):
        d = path(picture, name)
        assert d is not None
        line = arc(d)[0] if "A" in d else polyline(d)
        middle = line[np.abs(line[:, 1]).argmin()]
        assert middle == pytest.approx([crossing[0], 0], abs=2 * ROUNDING)
    assert sum(each.attrib["d"].count("M") for each in marks(picture)) == 60
    assert "One dimension" in said(picture)


@pytest.mark.parametrize("algorithm", ["perceptron", "strategic", "hyperboloid"])
@pytest.mark.parametrize("d", [3, 50])
def test_many_dimensions_are_projected_on_their_principal_plane(algorithm: str, d: int) -> None:
    rng = np.random.default_rng(d)
    p = np.zeros(d) if algorithm == "hyperboloid" else points(rng, 1, d, 1.0)[0]
    sigma = float(g.conformal_factor(p))
    X = g.exp_map(p, rng.normal(size=(80, d)) * (0.5 ** np.arange(d)))
    w = np.concatenate([[0.1], rng.normal(size=d)]) if algorithm == "hyperboloid" else rng.normal(size=d)
    picture = draw(
        algorithm=algorithm,
        references=None if algorithm == "hyperboloid" else p,
        weights=w,
        threshold=0.2 / sigma if algorithm == "strategic" else None,
        X=X,
        indices=np.ones(80, int),
    )
    _, sizes, E = np.linalg.svd(g.log_map(p, X), full_matrices=False)
    E = E[:2] * np.sign(E[[0, 1], np.abs(E[:2]).argmax(axis=1)])[:, None]
    assert f"{(sizes[:2] ** 2).sum() / (sizes**2).sum():.0%} of the spread" in said(picture)

    (found,) = marks(picture)
    circles = re.findall(rf"M({NUMBER}) ({NUMBER})a({NUMBER}) ", found.attrib["d"])
    centres = from_pixels([[float(x), float(y) + float(r)] for x, y, r in circles])
    flat = g.exp_map([0.0, 0.0], sigma * g.log_map(p, X) @ E.T / 2)
    assert np.abs(centres - flat).max() <= 0.051 / RADIUS

    def back(x: Array) -> Array:
        """from the disk into the ball, within the plane"""
        return g.exp_map(p, 2 / sigma * g.log_map(np.zeros(2), x) @ E)

    if algorithm == "strategic":
        line = path(picture, "threshold")
        assert line is not None
        x = inside(polyline(line))
        state = replace(strategic.init(p, budget=0.2), w=w)
        assert (np.abs(strategic.score(state, back(x))) <= ROUNDING * g.conformal_factor(x)).all()
        return
    line = path(picture, "boundary")
    assert line is not None
    x, _, r = arc(line)
    x = inside(x)
    scores = hyperboloid.score(state_of(w), back(x)) if algorithm == "hyperboloid" else g.signed_distance(p, w, back(x))
    assert (np.abs(scores) <= reach(x, r)).all()


# ----------------------------------------------------------------------------------------- text


def test_what_is_not_there_is_said() -> None:
    cold = draw(weights=[0.0, 0.0])
    assert path(cold, "boundary") is None
    assert "Nothing has been learned yet" in said(cold)
    assert path(draw(**EMPTY), "boundary") is not None
    empty = draw(X=np.zeros((0, 5)), indices=np.zeros(0, int), references=np.zeros(5), weights=np.ones(5))
    assert "no plane to project on" in said(empty)
    plane, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    across = draw(X=plane[:2] / 2, indices=np.arange(2), references=np.zeros(3), weights=plane[2])
    assert "does not meet this plane" in said(across)
    assert path(across, "boundary") is None


def test_it_says_what_it_is() -> None:
    picture = draw(title="Loans", labels=["no", "yes"])
    assert picture.attrib["role"] == "img"
    assert picture.findtext(f"{SVG}title") == "Loans"
    described = picture.findtext(f"{SVG}desc")
    assert described is not None
    assert "30 points of 2 classes" in described
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    for expected in ("Loans", "no", "yes", "15", "observed", "12,345", "mistakes", "version", "live"):
        assert expected in texts


EVIL = [
    "<script>alert(1)</script>",
    "a & b",
    "]]>",
    "\x00\x01\x1f",
    "\ud800",
    "\ufffe",
    "👩‍🚀",
    "שלום",
    "\u202eabc",
    "'\"",
    "\n\t",
    "",
]


@pytest.mark.parametrize("text", EVIL, ids=[f"{text!a}" for text in EVIL])
def test_no_text_breaks_the_document(text: str) -> None:
    picture = draw(labels=[text, 1], title=text, counts={text: text})
    assert {each.tag for each in picture.iter()} == {each.tag for each in draw().iter()}
    cleaned = "".join("�" if each in "\x00\x01\x1f\ud800\ufffe" else each for each in text)
    texts = [each.text or "" for each in picture.iter(f"{SVG}text")]
    assert sum(cleaned[:10] in each for each in texts) >= 4


def test_long_names_are_cut_and_told_in_full_on_hover_and_many_classes_counted_together() -> None:
    labels = ["long " * 100, "長" * 100]
    picture = draw(labels=labels, title="x" * 1000)
    assert max(len(each.text or "") for each in picture.iter(f"{SVG}text")) < 60
    assert {*labels, "x" * 1000} <= {each.text for each in picture.iter(f"{SVG}title")}
    for title in ("W" * 64, "M" * 64, "x" * 64, "0-_" * 21):  # no letter is wider than an em; capitals are 0.95
        [name] = [
            each.text or "" for each in draw(title=title).iter(f"{SVG}text") if each.attrib.get("class") == "name"
        ]
        widths = {"W": 0.95, "M": 0.9, "x": 0.6, "0": 0.64, "-": 0.4, "_": 0.52, "…": 1.0}
        assert sum(18 * widths[letter] for letter in name) <= 976 - 696


def test_it_scales_to_what_it_is_put_into() -> None:
    picture = draw()
    assert "width" not in picture.attrib and "height" not in picture.attrib
    assert picture.attrib["viewBox"].startswith("0 0 976 ")
    many = draw(labels=list(range(100)), weights=np.ones((100, 2)), X=np.zeros((100, 2)), indices=np.arange(100))
    texts = [each.text for each in many.iter(f"{SVG}text")]
    assert "and 89 more" in texts
    assert "89" in texts


def test_the_same_session_gives_the_same_picture_and_is_left_as_it_was() -> None:
    rng = np.random.default_rng(0)
    X, y, _ = separable(rng, 100, np.zeros(20), 0.1)
    state = perceptron.observe(perceptron.init(np.zeros(20)), X, y).state
    for array in (X, state.w):
        array.setflags(write=False)
    session = {"references": np.zeros(20), "weights": state.w, "X": X, "indices": (y > 0).astype(int)}
    assert drawn(**session) == drawn(**session)
