"""Many at once, on one worker: connections to the store are waited for, nobody gets a 503 for want of one."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import httpx

from tests.running import Running, service

STREAMS, CONNECTIONS, SESSIONS = 256, 512, 300


async def crowd(running: Running) -> Counter[int]:
    context = ssl.create_default_context()  # made once: it takes longer than a client

    def client() -> httpx.AsyncClient:
        """With a connection of its own: a pool of many looks at each of them for every request"""
        return httpx.AsyncClient(base_url=running.url, timeout=120, verify=context, trust_env=False)

    async with client() as http:
        for i in range(SESSIONS):
            settings = {"id": f"s{i}", "dimension": 2, "algorithm": "perceptron"}
            (await http.post("/sessions", json=settings)).raise_for_status()

    heard, enough, over = Counter[int](), asyncio.Event(), asyncio.Event()

    async def listen(i: int) -> int:
        last = {"Last-Event-ID": "0-0"}
        async with client() as http, http.stream("GET", f"/sessions/s{i}/events", headers=last) as response:
            async for line in response.aiter_lines():
                if line == "event: commit":
                    heard[i] += 1
                    break
            if len(heard) == STREAMS:
                enough.set()
            await over.wait()  # all of them are open until all have heard something, and the others are served
            return response.status_code

    async def observe(http: httpx.AsyncClient, i: int) -> int:
        body = {"point": [0.1, 0.2], "label": 1}
        return (await http.post(f"/sessions/s{i % SESSIONS}/observe", json=body)).status_code

    async def look(http: httpx.AsyncClient, i: int) -> int:
        return (await http.get(f"/sessions/s{i % SESSIONS}/log")).status_code

    async with AsyncExitStack() as open:
        listening = [asyncio.ensure_future(listen(i)) for i in range(STREAMS)]
        clients = [await open.enter_async_context(client()) for _ in range(CONNECTIONS)]
        found = Counter(await asyncio.gather(*(observe(each, i) for i, each in enumerate(clients))))
        await asyncio.to_thread(paused, running)  # so that all of them want a connection to the store at once
        found += Counter(await asyncio.gather(*(look(each, i) for i, each in enumerate(clients))))
        async with asyncio.timeout(120):
            await enough.wait()
            over.set()
            return found + Counter(await asyncio.gather(*listening))


def paused(running: Running) -> None:
    """The store answers nobody for a while"""
    with running.client() as client:
        client.execute_command("CLIENT", "PAUSE", 3000, "ALL")


def test_256_event_streams_512_connections_and_300_sessions_are_all_served(tmp_path: Path) -> None:
    long = "120"  # a loaded machine is slow to read
    with service(
        tmp_path / "data",
        HOROCYCLE_FIT_WORKERS="0",
        HOROCYCLE_HEADER_SECONDS=long,
        HOROCYCLE_BODY_SECONDS=long,
        HOROCYCLE_DEADLINE=long,
    ) as running:
        assert asyncio.run(crowd(running)) == {200: STREAMS + 2 * CONNECTIONS}
