"""Sessions over HTTP: one of every kind, how to open them, and rows as raw bytes."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np

from service.geometry import Array

RAW = {"content-type": "application/octet-stream"}
P = [0.2, -0.1]
SESSIONS: dict[str, dict[str, Any]] = {
    "perceptron": {"algorithm": "perceptron", "dimension": 2, "reference": "origin"},
    "perceptron, elsewhere": {"algorithm": "perceptron", "dimension": 2, "reference": P, "curvature": 0.5},
    "perceptron, named labels": {
        "algorithm": "perceptron",
        "dimension": 2,
        "reference": "origin",
        "labels": ["no", "yes"],
    },
    "second order": {"algorithm": "second_order", "dimension": 2, "reference": P},
    "second order, a=0": {"algorithm": "second_order", "dimension": 2, "reference": "origin", "a": 0},
    "strategic": {"algorithm": "strategic", "dimension": 2, "reference": P, "budget": 0.5},
    "strategic, estimating": {
        "algorithm": "strategic",
        "dimension": 2,
        "reference": "origin",
        "budget": {"estimate": {"initial": 2.0}},
    },
    "hyperboloid": {"algorithm": "hyperboloid", "dimension": 2},
    "four classes": {"algorithm": "perceptron", "dimension": 2, "reference": "origin", "labels": [10, 20, 30, "other"]},
    "three classes, second order": {
        "algorithm": "second_order",
        "dimension": 2,
        "reference": "origin",
        "labels": ["a", "b", "c"],
    },
    "three classes, hyperboloid": {"algorithm": "hyperboloid", "dimension": 2, "labels": [1, 2, 3], "curvature": 2.0},
}


def opened(http: httpx.Client, body: dict[str, Any]) -> str:
    answer = http.post("/sessions", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/sessions/{answer.json()['id']}"
    return str(answer.json()["id"])


def raw(X: Array, indices: Any) -> bytes:
    return np.column_stack([X, indices]).astype("<f8").tobytes()
