"""Many at once, on one worker: connections to the store are waited for, context gets a 503 for want of one."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from pathlib import Path

import httpx

from tests.running import service

STREAMS, CONNECTIONS, SESSIONS = 256, 512, 300


async def crowd(url: str) -> Counter[int]:
    context = ssl.create_default_context()  # made once: it takes longer than a client

    def client() -> httpx.AsyncClient:
        """With a connection of its own: a pool of many looks at each of them for every request"""
        return httpx.AsyncClient(base_url=url, timeout=120, verify=context, trust_env=False)

    async with client() as http:
        for i in range(SESSIONS):
            settings = {"id": f"s{i}", "dimension": 2, "algorithm": "perceptron"}
            (await http.post("/sessions", json=settings)).raise_for_status()

    heard, enough = Counter[int](), asyncio.Event()

    async def listen(i: int) -> int:
        last = {"Last-Event-ID": "0-0"}
        async with client() as http, http.stream("GET", f"/sessions/s{i}/events", headers=last) as response:
            async for line in response.aiter_lines():
                if line == "event: commit":
                    heard[i] += 1
                    break
            if len(heard) == STREAMS:
                enough.set()
            await enough.wait()  # all of them are open until all have heard something
            return response.status_code

    async def observe(i: int) -> int:
        sid = f"s{i % SESSIONS}"
        async with client() as http:
            answer = await http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": 1})
            look = await http.get(f"/sessions/{sid}/log")
            return max(answer.status_code, look.status_code)

    listening = [asyncio.ensure_future(listen(i)) for i in range(STREAMS)]
    found = Counter(await asyncio.gather(*(observe(i) for i in range(CONNECTIONS))))
    async with asyncio.timeout(120):
        return found + Counter(await asyncio.gather(*listening))


def test_256_event_streams_512_connections_and_300_sessions_are_all_served(tmp_path: Path) -> None:
    long = "120"  # a loaded machine is slow to read
    patience = {"HOROCYCLE_HEADER_SECONDS": long, "HOROCYCLE_BODY_SECONDS": long}
    with service(tmp_path / "data", HOROCYCLE_FIT_WORKERS="0", **patience) as running:
        assert asyncio.run(crowd(running.url)) == {200: STREAMS + CONNECTIONS}
