"""The Open Inference Protocol: predict as other servers' clients ask for it. A real one: hosts/test_protocol.py."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.opening import opened
from tests.strategies import points

X = points(np.random.default_rng(1), 50, 2, 3.0)


def asked(data: Any = None, shape: Any = (50, 2), kind: str = "FP64") -> dict[str, Any]:
    one = {"name": "points", "datatype": kind, "shape": list(shape)}
    return {"id": "a", "inputs": [one if data is None else {**one, "data": data}]}


@pytest.mark.parametrize("labels", [[-1, 1], ["a", "b", "c"], [False, True]])
def test_the_protocol_says_what_predict_says(http: httpx.Client, labels: list[Any]) -> None:
    sid = opened(http, {"dimension": 2, "labels": labels})
    given = [labels[i % len(labels)] for i in range(50)]
    http.post(f"/sessions/{sid}/observe", json={"points": X.tolist(), "labels": given})
    expected = http.post(f"/sessions/{sid}/predict", json={"points": X.tolist()}).json()
    where = f"/v2/models/{sid}/infer"
    head = json.dumps(asked()).encode()
    bodies = [
        http.post(where, json=asked(X.tolist())),
        http.post(where, json=asked(X.ravel().tolist())),
        http.post(where, content=head + X.tobytes(), headers={"Inference-Header-Content-Length": str(len(head))}),
    ]
    for answer in bodies:
        assert answer.status_code == 200, answer.text
        told = {each["name"]: each for each in answer.json()["outputs"]}
        assert np.array_equal(np.reshape(told["scores"]["data"], told["scores"]["shape"]), expected["scores"])
        assert told["label"]["data"] == expected["predictions"]
        assert [labels[i] for i in told["index"]["data"]] == expected["predictions"]
    one = {**asked(X.tolist()), "outputs": [{"name": "label"}]}
    assert [each["name"] for each in http.post(where, json=one).json()["outputs"]] == ["label"]
    metadata = http.get(f"/v2/models/{sid}").json()
    assert metadata["inputs"] == [{"name": "points", "datatype": "FP64", "shape": [-1, 2]}]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "invalid-request"),
        ([], "invalid-request"),
        ({"inputs": []}, "invalid-request"),
        (asked([1.0], (1, 2)), "malformed-body"),
        (asked([[0.1], [0.2, 0.3]], (2, 2)), "not-a-number"),
        (asked([0.1, True], (1, 2)), "not-a-number"),
        (asked([0.1, "a"], (1, 2)), "not-a-number"),
        (asked([0.1, 0.2, 0.3], (1, 3)), "dimension-mismatch"),
        (asked([0.1, 0.2], (1, 2), "INT8"), "not-a-number"),
        (asked([0.1, 0.2], (2,)), "invalid-request"),
        (asked([0.1, 5.0], (1, 2)), "point-outside-ball"),
        (asked([0.1, 0.2], (10**9, 2)), "malformed-body"),
    ],
)
def test_bad_inputs_are_problems_with_the_error_that_clients_look_for(http: httpx.Client, body: Any, kind: str) -> None:
    sid = opened(http, {"dimension": 2})
    answer = http.post(f"/v2/models/{sid}/infer", json=body)
    assert answer.status_code in (400, 422) and answer.json()["type"] == f"/problems/{kind}", answer.text
    assert answer.json()["error"] == answer.json()["detail"]
    wrong = http.post(f"/v2/models/{sid}/infer", content=b"{}", headers={"Inference-Header-Content-Length": "9"})
    assert wrong.status_code == 422


def test_head_is_answered_where_get_is(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    for path in ("/health/live", f"/sessions/{sid}", f"/sessions/{sid}/model", "/metrics", "/docs"):
        answer = http.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path
    assert http.head("/nothing").status_code == 404
    assert http.head(f"/sessions/{sid}/observe").status_code == 405


def test_weak_and_listed_tags_are_compared(http: httpx.Client) -> None:
    where = f"/sessions/{opened(http, {'dimension': 2})}/model"
    for header, status in (('"0"', 304), ('W/"0"', 304), ('"7", W/"0"', 304), ("*", 304), ('"7"', 200), ("0", 200)):
        assert http.get(where, headers={"If-None-Match": header}).status_code == status, header
