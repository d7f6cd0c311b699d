"""Answers of n·K numbers: beyond the limit a problem that names the remedy, and memory that stays a small multiple of
the largest body, whichever route is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect

from service.api.stream import TOLD_AT_ONCE
from service.api.writing import MOST
from tests.opening import RAW, opened
from tests.problem import require_problem
from tests.running import Running, service

K = 1000
#: 13,000 points of two numbers and a label: 312 kB, whose scores have 104 MB.
ROWS = np.random.default_rng(3).uniform(-0.5, 0.5, (13_000, 3))
ROWS[:, 2] = np.arange(len(ROWS)) % K
MIB = 1 << 20


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One that nobody else makes large"""
    with service(tmp_path_factory.mktemp("alone") / "data", HOROCYCLE_FIT_WORKERS="0") as found:
        yield found


@pytest.fixture(scope="module")
def client(alone: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=alone.url, timeout=60) as http:
        yield http


def peak(running: Running) -> int:
    """Of the one worker, which is the launcher's own process, in bytes"""
    status = Path(f"/proc/{running.launcher.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_the_numbers_of_an_answer_are_bounded_and_so_is_memory(alone: Running, client: httpx.Client) -> None:
    sid = opened(client, {"dimension": 2, "algorithm": "perceptron", "labels": list(range(K))})
    path, most = f"/sessions/{sid}", MOST // K
    small = client.post(f"{path}/observe", content=ROWS[:most].tobytes(), headers=RAW)
    assert small.json()["accepted"] == most
    before, asked = peak(alone), client.get(path).json()
    points = ROWS[:, :2]
    ids = {"ids": list(range(len(ROWS))), "labels": [0] * len(ROWS)}
    tensor = {"name": "points", "datatype": "FP64", "shape": [len(ROWS), 2], "data": points.ravel().tolist()}
    refused: list[tuple[str, dict[str, Any]]] = [
        (f"{path}/observe", {"content": ROWS.tobytes(), "headers": RAW}),
        (f"{path}/observe", {"json": {"points": points.tolist(), "labels": ROWS[:, 2].astype(int).tolist()}}),
        (f"{path}/observe?reply=summary", {"content": ROWS.tobytes(), "headers": RAW}),
        (f"{path}/observe?probabilities=true", {"content": ROWS.tobytes(), "headers": RAW}),
        (f"{path}/predict", {"content": np.ascontiguousarray(points).tobytes(), "headers": RAW}),
        (f"{path}/labels", {"json": ids}),
        (f"/v2/models/{sid}/infer", {"json": {"inputs": [tensor]}}),
    ]
    for where, how in refused:
        answer = client.post(where, **how)
        require_problem(answer, 422, "answer-too-large")
        told = answer.json()
        assert "reply=summary" in told["detail"] or "fewer" in told["detail"]
        assert told["limit"] == MOST
    assert client.get(path).json() == asked
    assert peak(alone) < before + 40 * MIB


def test_what_is_not_told_is_a_small_multiple_of_the_body(alone: Running, client: httpx.Client) -> None:
    """Of 24 classes a point of two numbers has eight scores a number, of 25 more"""
    for classes, status in ((24, 200), (25, 422)):
        sid = opened(
            client, {"dimension": 2, "algorithm": "perceptron", "labels": list(range(classes)), "keep_points": 0}
        )
        rows = np.tile(ROWS, (8, 1))
        rows[:, 2] %= classes
        told = client.post(f"/sessions/{sid}/observe?reply=summary", content=rows.tobytes(), headers=RAW)
        assert told.status_code == status, told.text


def test_a_message_is_bounded_too(alone: Running, client: httpx.Client) -> None:
    """It has used its number up; in short, or in smaller messages, it is taken"""
    sid = opened(client, {"dimension": 2, "algorithm": "perceptron", "labels": list(range(K))})
    most, before = TOLD_AT_ONCE // K, peak(alone)
    with connect(f"{alone.url.replace('http', 'ws', 1)}/sessions/{sid}/stream?producer=p", max_size=None) as socket:
        assert json.loads(socket.recv(30))["hello"]["seq"] == 0
        points = ROWS[: most + 1, :2].tolist()
        late = {"ids": list(range(most + 1)), "labels": [0] * (most + 1)}
        bad: list[Any] = [ROWS.tobytes(), ROWS[: most + 1].tobytes()]
        bad += [json.dumps({"points": points, "labels": [0] * (most + 1)}), json.dumps(late)]
        for number, message in enumerate(bad, 1):
            socket.send(message)
            told = json.loads(socket.recv(30))
            assert (told["seq"], told["problem"]["type"]) == (number, "/problems/answer-too-large")
            assert "reply=summary" in told["problem"]["detail"]
        socket.send("[" * (9 * MIB))
        assert json.loads(socket.recv(30))["problem"]["type"] == "/problems/body-too-large"
        for rows, told in ((ROWS[:most], {}), (ROWS[: most + 1], {"reply": "summary"})):
            labels = rows[:, 2].astype(int).tolist()
            socket.send(json.dumps({"points": rows[:, :2].tolist(), "labels": labels, **told}))
            assert json.loads(socket.recv(30))["accepted"] == len(rows)
    assert client.get(f"/sessions/{sid}").json()["observed"] == 2 * most + 1
    assert peak(alone) < before + 60 * MIB
