"""How long an idempotency key is good: ten minutes, and longer while it is among the newest 1,000 of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from service.api.schemas import OpenSession
from service.ingest import Ingest, Request
from service.process.private_store import EmbeddedServer
from service.sessions.records import Counters, Kept, Loaded
from service.sessions.rows import Batch
from service.store import scripts
from service.store.keys import answers_key, order_key, session_key
from service.store.sessions import KEEP_KEYS, Store
from tests.opening import opened

POINT = Batch(np.array([[0.1, 0.2]]), np.array([1]))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path) as running:
        yield running


async def observed(url: str, keys: int) -> tuple[str, bool]:
    """The session, and whether its first key is still known behind so many others"""
    store = Store(url)
    ingest, spec = Ingest(store, queue=keys), OpenSession(dimension=2).spec()
    try:
        await store.open(Kept(Loaded(spec, 0, Counters(), spec.first_state()), b"", {}, []))
        first = Request(POINT, bytes(16), "first")
        await ingest.observe(spec.id, first)
        others = (Request(POINT, bytes(16), f"other {i}") for i in range(keys))
        await asyncio.gather(*(ingest.observe(spec.id, each) for each in others))
        return spec.id, (await ingest.observe(spec.id, first)).replayed
    finally:
        await store.close()


def kept(url: str, sid: str) -> tuple[int, int, int, int]:
    with redis.Redis.from_url(url) as client:
        answers: dict[bytes, bytes] = client.hgetall(answers_key(sid))
        counted = int(client.hget(session_key(sid), "answer_bytes") or 0)
        order: int = client.llen(order_key(sid))
        return len(answers), order, counted, sum(map(len, answers.values()))


def test_a_young_key_is_known_behind_any_number_of_others(server: EmbeddedServer) -> None:
    sid, replayed = asyncio.run(observed(server.url, 3 * KEEP_KEYS))
    assert replayed
    answers, order, counted, size = kept(server.url, sid)
    assert answers == order == 3 * KEEP_KEYS + 1
    assert counted == size


@pytest.mark.parametrize(("constant", "value"), [("KEY_SECONDS", 600), ("KEY_BYTES", 64 << 20)])
def test_beyond_its_time_or_the_bytes_only_the_newest_are_kept(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, constant: str, value: int
) -> None:
    assert getattr(scripts, constant) == value
    where = {"KEY_SECONDS": f"now - since < {value}", "KEY_BYTES": f"bytes <= {value}"}[constant]
    assert scripts.COMMIT.count(where) == 1
    script = scripts.COMMIT.replace(where, where.replace(str(value), "0"))
    monkeypatch.setattr(scripts, "COMMIT", script)
    monkeypatch.setitem(scripts.DIGESTS, script, scripts.digest(script))
    sid, replayed = asyncio.run(observed(server.url, KEEP_KEYS + 5))
    assert not replayed
    answers, order, counted, size = kept(server.url, sid)
    assert answers == order == KEEP_KEYS
    assert counted == size


def test_a_change_is_made_once(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "algorithm": "strategic", "budget": {"estimate": {"initial": 2.0}}})
    body, headers = {"budget": {"estimate": {"initial": 3.0}}}, {"Idempotency-Key": "change"}
    versions = [http.patch(f"/sessions/{sid}", json=body, headers=headers).json()["version"] for _ in range(3)]
    assert versions == [1, 1, 1]
    other = http.patch(f"/sessions/{sid}", json={"name": "x"}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
    observe = http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": 1}, headers=headers)
    assert (observe.status_code, observe.json()["type"]) == (422, "/problems/key-reused")
    assert http.patch(f"/sessions/{sid}", json=body).json()["version"] == 2  # without a key: again
