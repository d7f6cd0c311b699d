"""Four body formats, one result: the same answers, byte for byte, and the same bytes in the store."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from service.api.schemas import OpenSession
from service.geometry import Array
from service.sessions.spec import Label
from tests.opening import SESSIONS, opened
from tests.running import Running
from tests.storing import stored
from tests.strategies import points

Labels = list[Label]
Rows = NDArray[np.float64]


def as_json(X: Array, labels: Labels | None, rows: Rows) -> bytes:
    return json.dumps({"points": X.tolist(), **({} if labels is None else {"labels": labels})}).encode()


def as_ndjson(X: Array, labels: Labels | None, rows: Rows) -> bytes:
    lines = [{"point": x} for x in X.tolist()]
    if labels is not None:
        lines = [{**line, "label": label} for line, label in zip(lines, labels, strict=True)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def as_npy(X: Array, labels: Labels | None, rows: Rows) -> bytes:
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


def as_raw(X: Array, labels: Labels | None, rows: Rows) -> bytes:
    return rows.astype("<f8").tobytes()


FORMATS: dict[str, Callable[[Array, Labels | None, Rows], bytes]] = {
    "application/json": as_json,
    "application/x-ndjson": as_ndjson,
    "application/x-npy": as_npy,
    "application/octet-stream": as_raw,
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())
def test_every_format_has_the_same_results(http: httpx.Client, running: Running, session: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    spec = OpenSession(**session).spec()
    X = points(rng, 130, 2, 4.0) / np.sqrt(spec.curvature)
    indices = rng.integers(0, len(spec.labels), size=len(X))
    labels, rows = [spec.labels[i] for i in indices], np.column_stack([X, indices])
    told: list[list[bytes]] = []
    kept = []
    for kind, written in FORMATS.items():
        sid, headers = opened(http, session), {"content-type": kind}
        answers = []
        for part in (slice(0, 1), slice(1, 100), slice(100, 130)):
            body = written(X[part], labels[part], rows[part])
            answers.append(http.post(f"/sessions/{sid}/observe?label=index", content=body, headers=headers))
        asked = written(X, None, X)
        answers.append(http.post(f"/sessions/{sid}/predict", content=asked, headers=headers))
        assert [answer.status_code for answer in answers] == [200] * 4, answers[-1].text
        told.append([answer.content for answer in answers])
        found = stored(running.redis_url, sid)
        kept.append((found.state, found.rows.tobytes(), found.loaded.confusion))
    assert json.loads(told[0][2])["session"]["observed"] == 130
    assert all(each == told[0] for each in told)
    assert all(each == kept[0] for each in kept)
    assert kept[0][1] == rows.tobytes()
