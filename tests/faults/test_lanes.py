"""An exception that nobody foresaw, in the middle of a commit: whoever waits is answered, and the lane goes on. What a
worker keeps of the sessions that it has seen is bounded."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest

from service import ingest, telemetry
from service.process.private_store import EmbeddedServer
from service.sessions.apply import apply as apply_truly
from service.sessions.requests import Request
from service.sessions.rows import Batch
from tests.storing import storing


def request(i: int) -> Request:
    return Request(Batch(np.array([[0.1, i / 100]]), np.array([i % 2])), bytes(16), key=f"key-{i}")


def test_who_waits_behind_a_memory_error_is_served(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit carries one request and runs out of memory; nine more have come by then, and two of its key"""
    calls = 0

    def apply(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise MemoryError("forced")
        return apply_truly(*arguments)

    async def run() -> list[Any]:
        async with storing(server.url) as parts:
            sid = (await parts.opened()).spec.id
            monkeypatch.setattr(ingest, "apply", apply)
            asked = [asyncio.ensure_future(parts.ingest.observe(sid, request(i))) for i in (0, *range(10))]
            answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)
            again = await asyncio.wait_for(parts.ingest.observe(sid, request(0)), 30)
            assert (await parts.store.load(sid)).counters.observed == again.counters.observed
            return answers

    before = telemetry.queue.value
    monkeypatch.setattr(ingest, "GATHER", 1)
    reported: list[dict[str, Any]] = []

    async def watched() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        found = await run()
        gc.collect()
        return found

    first, *others = asyncio.run(watched())
    assert isinstance(first, MemoryError)
    assert [type(each) for each in others if isinstance(each, BaseException)] == []
    assert sorted(each.counters.observed for each in others) == list(range(1, 11))
    assert telemetry.queue.value == before
    assert [type(each["exception"]) for each in reported] == [MemoryError]  # it is in the log


def test_large_learners_are_kept_up_to_a_bound(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has 1.25 MiB, and there is room for three: the ones that were observed last, whoever looks at them"""
    monkeypatch.setattr(ingest, "LEARNERS", 4 << 20)
    point = Request(Batch(np.full((1, 400), 0.01), np.array([1])), bytes(16))

    async def run() -> None:
        async with storing(server.url) as parts:
            opened = [(await parts.opened(algorithm="second_order", dimension=400)).spec.id for _ in range(6)]
            small = (await parts.opened()).spec.id
            for sid in (small, *opened):
                await parts.ingest.current(sid)
            assert [sid for sid in opened if parts.ingest.known(sid)] == opened[-3:]
            for sid in opened[:3]:
                assert (await parts.ingest.observe(sid, point)).counters.observed == 1
            assert [sid for sid in opened if parts.ingest.known(sid)] == opened[:3]
            assert parts.ingest.known(small) is not None

    asyncio.run(run())
