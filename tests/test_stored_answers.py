"""What is kept under an idempotency key: the columns of the answer, or the learner that they can be made again with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.api.observe import answered
from service.errors import KeyReused
from service.process.private_store import EmbeddedServer
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch
from tests.storing import storing

N = 400
CASES: dict[str, dict[str, Any]] = {
    "perceptron": {},
    "curved": {"curvature": 2.5},
    "second order": {"algorithm": "second_order"},
    "hemisphere": {"algorithm": "perceptron", "reference": None},
    "three labels": {"labels": ["a", "b", "c"]},
    "gaussian": {"algorithm": "gaussian", "reference": None},
    "nothing kept": {"keep_points": 0},
    "refits": {"algorithm": "softmax", "reference": None},  # may replace its learner: the columns are kept
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedServer(Path(tmp_path_factory.mktemp("stored")) / "data") as server:
        yield server.url


def batch(seed: int, classes: int, n: int = N) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(rng.uniform(-0.4, 0.4, (n, 2)), rng.integers(0, classes, n))


async def twice(url: str, sid: str, settings: dict[str, Any], match: bool) -> tuple[Answer, Answer, bytes, Any]:
    """The first answer, the one that another worker gives after more was learned, and what was kept"""
    probabilities = settings.get("algorithm") == "gaussian"
    async with storing(url) as one, storing(url) as other:
        spec = (await one.opened(id=sid, **settings)).spec
        first = await one.ingest.observe(sid, Request(batch(1, spec.classes, 30)))
        version = first.counters.version if match else None
        asked = Request(batch(2, spec.classes), b"f" * 16, "key", version, probabilities=probabilities)
        answer = await one.ingest.observe(sid, asked)
        await one.ingest.observe(sid, Request(batch(3, spec.classes)))
        again = await other.ingest.observe(sid, asked)
        kept = await one.store.answer(sid, "key")
        with pytest.raises(KeyReused):
            await other.ingest.observe(sid, Request(batch(4, spec.classes), b"g" * 16, "key"))
        assert kept is not None
        return answer, again, kept, spec


@pytest.mark.parametrize("match", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_replayed_answer_is_the_first_one_byte_for_byte(url: str, case: str, match: bool) -> None:
    sid = f"{case}-{match}".replace(" ", "-")
    first, again, kept, spec = asyncio.run(twice(url, sid, CASES[case], match))
    assert not first.replayed and again.replayed
    assert answered(spec, again) == answered(spec, first)
    if not match:
        assert (len(kept) < first.column_bytes / 2) == (case != "refits")


def test_a_small_answer_is_kept_as_it_is(url: str) -> None:
    async def kept() -> bytes | None:
        async with storing(url) as parts:
            await parts.opened(id="small")
            await parts.ingest.observe("small", Request(batch(1, 2, 2), b"f" * 16, "key"))
            return await parts.store.answer("small", "key")

    assert len(asyncio.run(kept()) or b"") < 16 + 9 * 8 + 2 * 8 + 1
