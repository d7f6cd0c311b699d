"""SIGHUP: every worker is replaced, and no client sees a failed request."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

from clients import AsyncClient
from clients.answers import Commit
from clients.transport import Retry
from tests.running import Running, alive, command, service

ONCE = Retry(attempts=1)  # whatever fails is raised
POINT = {"point": [0.1, 0.2], "label": 1}


async def until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def serving(running: Running) -> set[int]:
    return set(running.worker_pids) or {running.launcher.pid}


async def restarted(running: Running, failed: Callable[[], bool]) -> None:
    """Every worker is another one, and those before have ended"""
    before = serving(running)
    told = await asyncio.to_thread(command, "restart", "--data", str(running.data))
    assert told.returncode == 0, told.stderr
    await until(lambda: not before & serving(running) or failed())
    await until(lambda: not any(alive(pid) for pid in before if pid != running.launcher.pid))


async def streamed(running: Running, restarts: int) -> None:
    """Observes on kept connections, busy and lazy, and on new ones; probes; events; a stream of messages"""
    done, sent, events = asyncio.Event(), [0] * 6, list[Commit]()
    async with AsyncClient(running.url, retry=ONCE) as busy, AsyncClient(running.url) as patient:
        session = await busy.sessions.open(id="a", dimension=2, algorithm="perceptron", reference="origin")

        async def observe(place: int, pause: float) -> None:
            while not done.is_set():
                await session.observe([[0.1, 0.2]], [1])
                sent[place] += 1
                await asyncio.sleep(pause)

        async def anew(place: int) -> None:
            while not done.is_set():
                async with httpx.AsyncClient(base_url=running.url, timeout=60) as http:
                    (await http.post("/sessions/a/observe", json=POINT)).raise_for_status()
                    (await http.get("/health/ready")).raise_for_status()
                sent[place] += 1
                await asyncio.sleep(0.3)

        async def messages(place: int) -> None:
            async with (await patient.sessions.get("a")).stream() as stream:
                while not done.is_set():
                    await stream.send([[0.1, 0.2]], [1])
                    await stream.receive()
                    sent[place] += 1
                    await asyncio.sleep(0.1)

        async def listen() -> None:
            async for event in (await patient.sessions.get("a")).events():
                if isinstance(event, Commit):
                    events.append(event)

        listening = asyncio.create_task(listen())
        tasks = [asyncio.create_task(observe(place, pause)) for place, pause in enumerate((0.05, 0.2, 0.5, 1.5))]
        tasks += [asyncio.create_task(anew(4)), asyncio.create_task(messages(5))]

        def failed() -> bool:
            return any(task.done() for task in tasks)

        await until(lambda: min(sent) > 0 or failed())
        for _ in range(restarts):
            await restarted(running, failed)
            await until(partial(lambda was: failed() or all(map(operator.gt, sent, was)), list(sent)))
        done.set()
        await asyncio.gather(*tasks)  # raises what failed
        observed = (await busy.sessions.get("a")).info.observed
        assert observed == sum(sent)
        await until(lambda: bool(events) and events[-1].observed == observed)
        listening.cancel()
        counts = [event.observed for event in events]
        assert counts == sorted(set(counts))
        told = httpx.get(f"{running.url}/metrics").text
        assert f"horocycle_points_total {float(observed)}" in told  # nothing that the old workers counted is lost


@pytest.mark.parametrize(("workers", "restarts"), [(1, 2), (2, 1)])
def test_every_worker_is_replaced_and_no_request_fails(tmp_path: Path, workers: int, restarts: int) -> None:
    with service(tmp_path / "data", workers=workers, HOROCYCLE_FIT_WORKERS="0") as running:
        asyncio.run(streamed(running, restarts))


def test_a_restart_without_a_service_is_said(tmp_path: Path) -> None:
    told = command("restart", "--data", str(tmp_path / "data"))
    assert (told.returncode, told.stdout) == (1, "") and "no service runs with the data folder" in told.stderr
