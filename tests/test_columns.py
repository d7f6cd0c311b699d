"""Columns as binary rows say what JSON says, over HTTP and in the client."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from service.api.columns import binary_form
from service.app import create_app
from service.process.private_store import EmbeddedServer
from service.settings import Settings

RAW, NPY = "application/octet-stream", "application/x-npy"
CASES: dict[str, dict[str, Any]] = {
    "two": {"algorithm": "perceptron", "reference": "origin"},
    "words": {"algorithm": "gaussian", "labels": ["a", "b", "c"]},
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedServer(Path(tmp_path_factory.mktemp("columns")) / "data") as server:
        yield server.url


async def asked(url: str, sid: str, settings: dict[str, Any], accept: str) -> list[httpx.Response]:
    """Observe twice with one key, observe a summary, and predict"""
    app, rng = create_app(Settings(redis_url=url)), np.random.default_rng(8)
    X, indices = rng.uniform(-0.5, 0.5, (60, 2)), rng.integers(0, len(settings.get("labels", "ab")), 60)
    rows, send = np.column_stack([X, indices]).tobytes(), {"Content-Type": RAW, "Accept": accept}
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        await http.post("/sessions", json={"id": sid, "dimension": 2, **settings})
        path = f"/sessions/{sid}/observe"
        query = "?probabilities=true" if settings["algorithm"] == "gaussian" else ""
        keyed = {**send, "Idempotency-Key": "k"}
        found = [await http.post(path + query, content=rows, headers=keyed) for _ in range(2)]
        found.append(await http.post(f"{path}?reply=summary", content=rows, headers=send))
        found.append(await http.post(f"/sessions/{sid}/predict", content=X.tobytes(), headers=send))
        found.append(await http.post(path, content=b"123", headers=send))
    return found


def read(response: httpx.Response, labels: list[Any]) -> dict[str, Any]:
    """A binary answer as its JSON would have been"""
    document = orjson.loads(response.headers["horocycle-summary"])
    widths, content = document.pop("columns"), response.content
    if response.headers["content-type"] == NPY:
        rows = np.load(io.BytesIO(content), allow_pickle=False)
    else:
        rows = np.frombuffer(content, dtype="<f8").reshape(-1, sum(widths.values()))
    ends = np.cumsum(list(widths.values()))
    parts = dict(zip(widths, np.split(rows, ends[:-1], axis=1), strict=True))
    columns = {name: part[:, 0].tolist() if widths[name] == 1 else part.tolist() for name, part in parts.items()}
    columns["predictions"] = [labels[int(i)] for i in columns["predictions"]]
    if "correct" in columns:
        columns["correct"] = [bool(each) for each in columns["correct"]]
    return {**document, **columns}


@pytest.mark.parametrize("form", [RAW, NPY])
@pytest.mark.parametrize("case", CASES)
def test_binary_columns_say_what_json_says(url: str, case: str, form: str) -> None:
    settings, sid = CASES[case], f"{case}-{form[-3:]}"
    plain = asyncio.run(asked(url, f"{sid}-json", settings, "*/*"))
    rows = asyncio.run(asked(url, f"{sid}-rows", settings, f"{form}, application/json"))
    labels = settings.get("labels", [-1, 1])
    for one, other in zip(plain[:2] + plain[3:4], rows[:2] + rows[3:4], strict=True):
        assert other.headers["content-type"] == form
        assert read(other, labels) == one.json()
    assert rows[0].content == rows[1].content and rows[1].headers["idempotency-replayed"] == "true"
    assert rows[2].headers["content-type"] == "application/json" and rows[2].json() == plain[2].json()
    assert rows[4].status_code == 422 and rows[4].headers["content-type"] == "application/problem+json"


def test_only_an_accept_header_that_names_it_asks_for_it() -> None:
    assert binary_form("") is None and binary_form("*/*") is None and binary_form("application/json") is None
    assert binary_form("application/json, Application/X-NPY;q=0.5") == NPY
    assert binary_form("application/octet-stream;q=0, application/x-npy") == NPY
