"""How long an idempotency key is good: ten minutes at least, unless the answers of a session are too many bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from service.process.private_store import EmbeddedServer
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.store import scripts
from service.store.keys import answers_key
from tests.opening import opened
from tests.storing import storing

POINT = Batch(np.array([[0.1, 0.2]]), np.array([1]))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path) as running:
        yield running


async def observed(url: str, keys: int) -> tuple[str, bool]:
    """The session, and whether its first key is still known behind so many others"""
    async with storing(url, queue=keys) as parts:
        sid, first = (await parts.opened()).spec.id, Request(POINT, bytes(16), "first")
        await parts.ingest.observe(sid, first)
        for i in range(0, keys, 100):
            others = (Request(POINT, bytes(16), f"other {i} {j}") for j in range(min(100, keys - i)))
            await asyncio.gather(*(parts.ingest.observe(sid, each) for each in others))
        return sid, (await parts.ingest.observe(sid, first)).replayed


def kept(url: str, sid: str) -> int:
    """How many answers are kept"""
    with redis.Redis.from_url(url) as client:
        return sum(int(client.hlen(answers_key(sid, generation))) for generation in (0, 1))


def test_a_young_key_is_known_behind_any_number_of_others(server: EmbeddedServer) -> None:
    sid, replayed = asyncio.run(observed(server.url, 3000))
    assert replayed
    assert kept(server.url, sid) == 3001


@pytest.mark.parametrize("constants", [{"KEY_SECONDS": 0}, {"KEY_BYTES": 4 * 1000 * 110}])
def test_beyond_its_time_or_the_bytes_a_generation_of_keys_goes(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, constants: dict[str, int]
) -> None:
    """An answer to one point has some 110 bytes with its key"""
    names = ("KEY_SECONDS", "KEY_BYTES", "STRAY_BLOCKS", "STRAY_SECONDS", "TOGETHER")
    values = {**{name: getattr(scripts, name) for name in names}, "KEY_OVERHEAD": 0, **constants}
    monkeypatch.setattr(scripts, "COMMIT", scripts.load("log", "commit", replies=scripts.CommitReply, **values))
    sid, replayed = asyncio.run(observed(server.url, 5000))
    assert not replayed
    assert kept(server.url, sid) <= 4200


def test_a_key_of_the_older_generation_is_known(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"KEY_SECONDS": 600, "KEY_BYTES": 2 * 1000 * 110, "STRAY_BLOCKS": 8, "STRAY_SECONDS": 600}
    values |= {"KEY_OVERHEAD": 0, "TOGETHER": scripts.TOGETHER}
    monkeypatch.setattr(scripts, "COMMIT", scripts.load("log", "commit", replies=scripts.CommitReply, **values))
    sid, replayed = asyncio.run(observed(server.url, 1500))
    assert replayed
    with redis.Redis.from_url(server.url) as client:
        assert all(client.hlen(answers_key(sid, generation)) for generation in (0, 1))


def test_the_bytes_of_answers_are_bounded_at_any_number_of_keys(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the store counts them: a field costs it 27 to 60 bytes beside key and answer, and is counted with 100"""
    bound = 400_000
    names = ("KEY_SECONDS", "STRAY_BLOCKS", "STRAY_SECONDS", "KEY_OVERHEAD", "TOGETHER")
    values = {name: getattr(scripts, name) for name in names}
    values["KEY_BYTES"] = bound
    monkeypatch.setattr(scripts, "COMMIT", scripts.load("log", "commit", replies=scripts.CommitReply, **values))
    sid, _ = asyncio.run(observed(server.url, 5000))
    with redis.Redis.from_url(server.url) as client:
        used = [client.memory_usage(answers_key(sid, generation), samples=0) or 0 for generation in (0, 1)]
    assert bound / 4 < sum(used) < bound


def test_a_change_is_made_once(http: httpx.Client) -> None:
    sid = opened(
        http,
        {"dimension": 2, "reference": "origin", "algorithm": "strategic", "budget": {"estimate": {"initial": 2.0}}},
    )
    body, headers = {"budget": {"estimate": {"initial": 3.0}}}, {"Idempotency-Key": "change"}
    versions = [http.patch(f"/sessions/{sid}", json=body, headers=headers).json()["version"] for _ in range(3)]
    assert versions == [1, 1, 1]
    other = http.patch(f"/sessions/{sid}", json={"name": "x"}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
    observe = http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": 1}, headers=headers)
    assert (observe.status_code, observe.json()["type"]) == (422, "/problems/key-reused")
    assert http.patch(f"/sessions/{sid}", json=body).json()["version"] == 2  # without a key: again
