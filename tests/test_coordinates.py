"""Points in the coordinates of other models: the service's way, the client's way, and the textbook's at 50 digits."""

from __future__ import annotations

import io
import math
from typing import Any

import httpx
import numpy as np
import pytest

import clients
from clients.embeddings import to_ball
from service import errors
from service.coordinates import MODELS, Placing, place
from service.geometry import RADIUS_LIMIT, conformal_factor, distance, norm_limit, to_hyperboloid, to_klein
from tests.opening import RAW, opened, raw
from tests.oracle import mp
from tests.running import Running
from tests.strategies import Array, points

EPS = float(np.finfo(float).eps)
each_curvature = pytest.mark.parametrize("c", [0.25, 1.0, 4.0])


def halfspace(x: Array, c: float) -> Array:
    """The inverse of what is tested, at 50 digits: (u, t) = (2x', 1−‖x‖²)/(‖x'‖² + (1−x_d)²), x = (x', x_d)"""
    found = []
    for row in x:
        v = np.array([mp.mpf(float(each)) * mp.sqrt(mp.mpf(c)) for each in row])
        below = v[:-1] @ v[:-1] + (1 - v[-1]) ** 2
        found.append([float(2 * each / below) for each in v[:-1]] + [float((1 - v @ v) / below)])
    return np.array(found)


def written(model: str, x: Array, c: float) -> Array:
    """Points of the ball in the coordinates of a model"""
    h = to_hyperboloid(x, c=c)
    return {"poincare": x, "hyperboloid": h, "klein": to_klein(x, c=c), "euclidean": h[:, 1:]}.get(model, x)


@each_curvature
@pytest.mark.parametrize("model", MODELS)
def test_both_read_every_model_as_it_is_written(model: str, c: float) -> None:
    """A coordinate rounded to eps is, in the ball, known to a small multiple of eps; Klein's of a point with factor λ
    to eps·λ: dx/dk = λ/2 in the radial direction."""
    x = points(np.random.default_rng(1), 200, 3, 8.0) / math.sqrt(c)
    given = halfspace(x, c) if model == "halfspace" else written(model, x, c)
    found, clipped = place(given, 3, c, Placing(model))
    lam = conformal_factor(x, c=c)
    scale = {"klein": lam, "halfspace": lam}.get(model, np.ones(len(x)))
    assert clipped == 0
    assert (np.linalg.norm(found - x, axis=1) * math.sqrt(c) <= 8 * EPS * scale).all()
    assert (np.linalg.norm(to_ball(given, model, curvature=c) - x, axis=1) * math.sqrt(c) <= 8 * EPS * scale).all()


def test_a_half_space_keeps_its_distances() -> None:
    """cosh d = 1 + ‖h−h'‖²/(2tt')"""
    rng = np.random.default_rng(2)
    h = np.column_stack([rng.normal(size=(50, 2)), rng.uniform(0.1, 3, 50)])
    x, _ = place(h, 3, 1.0, Placing("halfspace"))
    ratio = np.sum((h[:-1] - h[1:]) ** 2, axis=1) / (2 * h[:-1, -1] * h[1:, -1])
    assert np.allclose(distance(x[:-1], x[1:]), np.arccosh(1 + ratio), rtol=1e-9, atol=0)


@pytest.mark.parametrize("norm", [0.99999, 1 - 1e-5])
def test_what_libraries_clip_to_is_inside(norm: float) -> None:
    direction = np.array([[0.6, 0.8]])
    assert len(to_ball(norm * direction)) == 1
    assert len(to_ball(np.float32(norm) * direction.astype(np.float32))) == 1
    place(norm * direction, 2, 1.0, Placing())
    assert 2 * math.atanh(norm) < RADIUS_LIMIT


BEYOND = {
    "poincare": [[0.1, 0.2], [3.0, 4.0], [1e200, 1e200]],
    "klein": [[0.1, 0.2], [3.0, 4.0], [1e200, 1e200]],
    "halfspace": [[0.1, 0.2], [1e9, 1.0], [1e300, 1e300]],
    "euclidean": [[0.1, 0.2], [1e9, 0.0], [1e300, 1e300]],
    "hyperboloid": [[1.0, 0.0, 0.0], [1e9, 1e9, 0.0], [1e200, 1e200, 0.0]],
}


@pytest.mark.parametrize("model", MODELS)
def test_only_who_asks_for_it_is_clipped_and_is_told(model: str) -> None:
    X = np.array(BEYOND[model])
    with pytest.raises(errors.PointOutsideBall) as caught:
        place(X, 2, 1.0, Placing(model))
    assert caught.value.members["index"] == 1
    with pytest.raises(clients.PointOutsideBall) as refused:
        to_ball(X, model)
    assert refused.value.index == 1
    for found, clipped in (place(X, 2, 1.0, Placing(model, "clip")), (to_ball(X, model, outside="clip"), 2)):
        norms = np.linalg.norm(found, axis=1)
        assert clipped == 2
        assert (norms[1:] <= norm_limit()).all() and (norms[1:] >= norm_limit() * (1 - 16 * EPS)).all()
        assert norms[0] < 0.9


@pytest.mark.parametrize(
    ("model", "X", "says"),
    [
        ("hyperboloid", [[1.0, 5.0, 0.0]], "not on the hyperboloid"),
        ("hyperboloid", [[-1.0, 0.0, 0.0]], "not on the hyperboloid"),
        ("halfspace", [[1.0, 0.0]], "above 0"),
    ],
)
def test_what_is_no_point_of_the_model_is_refused_even_if_clipping(model: str, X: Any, says: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=says):
        place(np.array(X), 2, 1.0, Placing(model, "clip"))
    with pytest.raises(clients.InvalidInput, match=says):
        to_ball(X, model, outside="clip")
    with pytest.raises(errors.NonFinite):
        place(np.array([[math.nan, 1.0]]), 2, 1.0, Placing("klein", "clip"))


def test_a_point_outside_says_what_to_do() -> None:
    with pytest.raises(errors.PointOutsideBall) as caught:
        place(np.array([[0.1, 0.0], [1.3, 0.0], [0.0, 2.0]]), 2, 1.0, Placing())
    assert "curvature=0.249" in caught.value.detail and "outside=clip" in caught.value.detail
    place(np.array([[1.3, 0.0], [0.0, 2.0]]), 2, 0.249, Placing())


def npy(rows: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


def test_every_way_in_takes_coordinates(http: httpx.Client) -> None:
    rng = np.random.default_rng(3)
    X, indices = points(rng, 120, 2, 4.0), rng.integers(0, 2, 120)
    h, labels = to_hyperboloid(X), [[-1, 1][i] for i in indices]
    plain, other = ({"algorithm": "perceptron", "dimension": 2, "reference": "origin"} for _ in range(2))
    truth, told = opened(http, plain), opened(http, other)
    http.post(f"/sessions/{truth}/observe", json={"points": X.tolist(), "labels": labels})
    where = f"/sessions/{told}/observe?coordinates=hyperboloid"
    first = http.post(where, json={"points": h[:3].tolist(), "labels": labels[:3]})  # few: orjson
    second = http.post(where, json={"points": h[3:80].tolist(), "labels": labels[3:80]})
    third = http.post(where, content=raw(h[80:100], indices[80:100]), headers=RAW)
    fourth = http.post(
        where, content=npy(np.column_stack([h, indices])[100:]), headers={"content-type": "application/x-npy"}
    )
    assert [each.status_code for each in (first, second, third, fourth)] == [200] * 4, second.text
    a, b = (http.get(f"/sessions/{each}/model").json() for each in (truth, told))
    assert np.allclose(a["weights"], b["weights"], rtol=1e-9) and a["updates"] == b["updates"]
    asked = http.get(f"/sessions/{told}/predict", params={"x": "1.0,0.0,0.0", "coordinates": "hyperboloid"})
    assert asked.status_code == 200 and len(asked.json()["predictions"]) == 1


def test_clipped_points_are_counted_in_the_answer_and_in_the_metrics(http: httpx.Client) -> None:
    def counted() -> float:
        lines = http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("horocycle_points_clipped_total "))

    before, sid = counted(), opened(http, {"dimension": 2})
    body = {"points": [[0.1, 0.0], [1.0, 0.0], [0.0, 7.0]], "labels": [1, 1, -1]}
    assert http.post(f"/sessions/{sid}/observe", json=body).json()["type"] == "/problems/point-outside-ball"
    answer = http.post(f"/sessions/{sid}/observe?outside=clip", json=body).json()
    assert (answer["accepted"], answer["clipped"]) == (3, 2)
    asked = http.post(f"/sessions/{sid}/predict?outside=clip", json={"points": body["points"]}).json()
    assert asked["clipped"] == 2
    assert "clipped" not in http.post(f"/sessions/{sid}/predict?outside=clip", json={"point": [0, 0]}).json()
    assert counted() >= before + 2  # another worker's count may be a second old


@pytest.mark.parametrize("query", ["coordinates=polar", "outside=ignore", "label=name", "coordinate=klein"])
def test_a_misspelt_reading_is_named(http: httpx.Client, query: str) -> None:
    sid = opened(http, {"dimension": 2})
    answer = http.post(f"/sessions/{sid}/observe?{query}", json={"point": [0.1, 0.2], "label": 1})
    assert answer.status_code == 422 and query.split("=")[0] in answer.text


def test_one_key_reads_a_body_in_one_way(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    body, headers = {"point": [0.1, 0.2], "label": 1}, {"Idempotency-Key": "k"}
    assert http.post(f"/sessions/{sid}/observe", json=body, headers=headers).status_code == 200
    again = http.post(f"/sessions/{sid}/observe?coordinates=klein", json=body, headers=headers)
    assert again.json()["type"] == "/problems/key-reused"


def test_the_client_sends_coordinates(running: Running) -> None:
    with clients.Client(running.url) as client:
        X = points(np.random.default_rng(4), 600, 2, 3.0)
        one, two = (client.sessions.open(dimension=2, algorithm="perceptron") for _ in range(2))
        y = np.where(X[:, 0] > 0, 1.0, -1.0)
        one.observe(X, y)
        done = two.observe(to_hyperboloid(X), y, coordinates="hyperboloid")
        assert np.allclose(one.model().weights, two.model().weights, rtol=1e-9)
        assert done.clipped == 0 and two.observe([[2.0, 0.0]], [1], outside="clip").clipped == 1
        assert np.array_equal(one.predict(X).predictions, one.predict(to_klein(X), coordinates="klein").predictions)
        assert f"{two!r}" == f"<Session {two.id}: perceptron, 601 observed>", two
