"""Labels as people have them: integral floats, booleans, a column of values; and what is said about others."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import numpy as np
import pytest

import clients
from service import errors
from service.api.formats import NPY, RAW, Reading, read_labelled
from service.api.schemas import OpenSession
from service.sessions.spec import Spec
from tests.opening import opened
from tests.running import Running


def spec(labels: list[Any]) -> Spec:
    return OpenSession(dimension=2, labels=labels).spec()


def body(labels: list[Any], n: int = 1) -> bytes:
    return json.dumps({"points": [[0.1, 0.2]] * len(labels) * n, "labels": labels * n}).encode()


@pytest.mark.parametrize("n", [1, 200])
def test_an_integral_float_is_the_integer_it_equals(n: int) -> None:
    for labels in ([1.0, -1.0], [1, -1.0], [1.0, -1]):
        found = read_labelled(body(labels, n), "application/json", spec([-1, 1]))
        assert found.indices.tolist() == [1, 0] * n
    with pytest.raises(errors.UnknownLabel):
        read_labelled(body([1.0], n), "application/json", spec(["1.0", "1"]))


@pytest.mark.parametrize("n", [1, 200])
def test_booleans_are_labels_and_never_numbers(n: int) -> None:
    found = read_labelled(body([True, False], n), "application/json", spec([False, True]))
    assert found.indices.tolist() == [1, 0] * n
    for labels in ([1, 0], [1.0, 0.0], ["true", "false"]):
        with pytest.raises(errors.UnknownLabel):
            read_labelled(body(labels, n), "application/json", spec([False, True]))
    for other in ([0, 1], [-1, 1], ["no", "yes"]):
        with pytest.raises(errors.UnknownLabel):
            read_labelled(body([True, False], n), "application/json", spec(other))


def test_a_session_of_booleans_answers_with_them(http: httpx.Client, running: Running) -> None:
    sid = opened(http, {"dimension": 2, "labels": [False, True]})
    X = [[0.5, 0.0], [-0.5, 0.0]] * 10
    told = http.post(f"/sessions/{sid}/observe", json={"points": X, "labels": [True, False] * 10}).json()
    assert set(map(type, told["predictions"])) == {bool}
    assert http.get(f"/sessions/{sid}").json()["labels"] == [False, True]
    assert http.get(f"/sessions/{sid}/model").json()["labels"] == [False, True]
    assert http.get(f"/sessions/{sid}/log").json()["labels"][:2] == [True, False]
    assert [each["label"] for each in http.get(f"/sessions/{sid}/metrics").json()["classes"]] == [False, True]
    snapshot = http.get(f"/sessions/{sid}/snapshot").json()
    again = http.post("/sessions", json={"snapshot": snapshot}).json()
    assert again["labels"] == [False, True] and again["observed"] == 20
    with clients.Client(running.url) as client:
        session = client.sessions.get(sid)
        session.observe(np.tile(X, (60, 1)), np.array([True, False] * 600))  # raw, by index
        assert session.predict(X[:2]).predictions.dtype == np.bool_


def test_booleans_and_integers_do_not_mix(http: httpx.Client) -> None:
    for labels in ([True, 0], [0, 1, True], [True, True]):
        assert http.post("/sessions", json={"dimension": 2, "labels": labels}).status_code == 422


@pytest.mark.parametrize(
    ("labels", "given", "says"),
    [
        ([-1, 1], [0, 1], "open a session with labels=[0, 1]"),
        ([-1, 1], [0.0, 1.0, 2.0], "open a session with labels=[0, 1, 2]"),
        ([-1, 1], ["a", "b"], "open a session with labels=['a', 'b']"),
        ([-1, 1], [2], "open a session with labels=[-1, 1, 2]"),
        ([-1, 1], ["1", "-1"], '"1" is not 1'),
        ([0, 1], [True], "open the session with labels=[false, true]"),
        ([0, 1], [0.5], "an integer, a string or a boolean"),
        ([0, 1], [None], "an integer, a string or a boolean"),
        ([0, 1], [list(range(3))], "an integer, a string or a boolean"),
        ([0, 1], list(range(50)), "open a session with them"),
        ([False, True], [0, 1], "open a session with labels=[0, 1]"),
    ],
)
def test_an_unknown_label_names_the_fix(labels: list[Any], given: list[Any], says: str) -> None:
    with pytest.raises(errors.UnknownLabel) as caught:
        read_labelled(body(given), "application/json", spec(labels))
    assert says in caught.value.detail, caught.value.detail


def npy(rows: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


ROWS = np.array([[0.1, 0.2, 3], [0.3, 0.1, 1], [0.0, 0.1, 2]])


@pytest.mark.parametrize("dtype", ["<f8", "<f4"])
def test_a_column_of_values(dtype: str) -> None:
    one, by_value = spec([3, 1, 2]), Reading(label="value")
    batch = read_labelled(npy(ROWS.astype(dtype)), NPY, one, by_value)
    assert batch.indices.tolist() == [0, 1, 2] and not batch.ambiguous and batch.packed is None
    assert batch.X.tolist() == ROWS[:, :2].astype(dtype).astype(float).tolist()
    if dtype == "<f8":
        assert read_labelled(ROWS.tobytes(), RAW, one, by_value).indices.tolist() == [0, 1, 2]
    with pytest.raises(errors.UnknownLabel, match="label=value"):
        read_labelled(npy(ROWS.astype(dtype)), NPY, one)
    with pytest.raises(errors.UnknownLabel, match=r"open a session with labels=\[1, 2, 3\]"):
        read_labelled(npy(ROWS.astype(dtype)), NPY, spec([1, 2]), by_value)
    for labels in (["a", "b"], [False, True]):
        with pytest.raises(errors.InvalidRequest, match="cannot hold the labels"):
            read_labelled(npy(ROWS.astype(dtype)), NPY, spec(labels), by_value)


def test_a_doubtful_column_is_said_in_the_answer(http: httpx.Client) -> None:
    sid, headers = opened(http, {"dimension": 2, "labels": [1, 2, 3]}), {"content-type": NPY}
    for labels, query, doubtful in (
        ([1, 2, 1], "", True),
        ([1, 2, 0], "", False),
        ([1, 2, 1], "?label=index", False),
        ([1, 2, 3], "?label=value", False),
    ):
        rows = npy(np.column_stack([ROWS[:, :2], labels]))
        told = http.post(f"/sessions/{sid}/observe{query}", content=rows, headers=headers).json()
        assert ("notes" in told) == doubtful and told["accepted"] == 3
        if doubtful:
            assert "?label=value" in told["notes"][0]
    plain = opened(http, {"dimension": 2})
    rows = npy(np.column_stack([ROWS[:, :2], [1, 1, 1]]))
    assert "notes" not in http.post(f"/sessions/{plain}/observe", content=rows, headers=headers).json()


def test_other_dtypes_say_how_to_save() -> None:
    for dtype in (">f8", "<i8", "<f2", "?"):
        with pytest.raises(errors.NotANumber, match=r"X\.astype\('<f8'\)"):
            read_labelled(npy(np.zeros((2, 3), dtype)), NPY, spec([0, 1]))


def test_an_unknown_field_of_a_line_names_its_line() -> None:
    lines = b'{"point": [0, 0], "label": 1}\n{"point": [0, 0], "lable": 1}\n'
    with pytest.raises(errors.UnknownField) as caught:
        read_labelled(lines, "application/x-ndjson", spec([0, 1]))
    assert caught.value.members == {"field": "lable", "index": 1} and "line 1" in caught.value.detail


def test_a_fit_reads_its_points_the_same_way(running: Running) -> None:
    with clients.Client(running.url) as client, httpx.Client(base_url=running.url) as http:
        session = client.sessions.open(dimension=2, labels=[7, 9])
        rng = np.random.default_rng(1)
        X = rng.normal(size=(40, 2))
        X[:, 0] += np.sign(X[:, 0])
        y = np.where(X[:, 0] > 0, 9.0, 7.0)
        content = npy(np.column_stack([X, y]))
        asked = http.post(
            f"/sessions/{session.id}/fits?coordinates=euclidean&label=value&kind=softmax",
            content=content,
            headers={"content-type": NPY},
        )
        assert asked.status_code == 202, asked.text
        [fit] = session.fits()
        assert fit.wait(60).training_accuracy == 1.0
        assert session.fit(X / 10, y, kind="softmax").wait(60).training_accuracy == 1.0  # floats through the SDK
