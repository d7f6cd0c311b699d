"""For every route, every call that it makes to the store fails once, in every way; then the same request is sent again.

A proxy between the app and a real store understands where commands begin and end. It closes the connection before the
n-th one is sent on, or after it ran and before its reply is passed back, or answers it with a word of its own. That is
503 or 504 with a problem, or does not show at all; never a 500. What is sent again, with its key, is applied once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import hiredis
import httpx
import pytest
from hiredis import pack_command

from service.app import create_app
from service.process.private_store import EmbeddedServer
from service.settings import Settings

WORDS = {
    "LOADING": ("-LOADING the dataset is being loaded\r\n", "store-unavailable"),
    "OOM": ("-OOM command not allowed when used memory > 'maxmemory'.\r\n", "store-full"),
    "READONLY": ("-READONLY You can't write against a read only replica.\r\n", "store-read-only"),
    "MASTERDOWN": ("-MASTERDOWN Link with MASTER is down\r\n", "store-unavailable"),
    "NOPERM": ("-NOPERM this user has no permissions\r\n", "store-unavailable"),
    "MOVED": ("-MOVED 1234 127.0.0.1:1\r\n", "store-unavailable"),
}
FATES = ("before", "after", *WORDS)
PROBLEMS = {503: {"store-unavailable", "store-full", "store-read-only"}, 504: {"outcome-unknown"}}


@dataclass
class StoreProxy:
    """Passes commands on one after another, but for the n-th from now on"""

    path: str  # the store's socket
    count: int = 0
    nth: int = 0  # 0: all pass
    fate: str = ""
    port: int = 0
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def arm(self, nth: int, fate: str) -> None:
        self.count, self.nth, self.fate = 0, nth, fate

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        commands = hiredis.Reader()
        above, to_above = await asyncio.open_unix_connection(self.path)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                dirty = False
                while data := await reader.read(65536):
                    commands.feed(data)
                    while (command := commands.gets()) is not False:
                        self.count += 1
                        fate = self.fate if self.count == self.nth else ""
                        if fate == "before":
                            return
                        if fate in WORDS:
                            dirty = True  # if this is a transaction, it is not run
                            writer.write(WORDS[fate][0].encode())
                            continue
                        if command[0] == b"EXEC" and dirty:
                            await passed([b"DISCARD"], above, to_above)
                            writer.write(b"-EXECABORT Transaction discarded because of previous errors.\r\n")
                        else:
                            reply = await passed(command, above, to_above)
                            if fate == "after":
                                return
                            writer.write(reply)
                        dirty = dirty and command[0] != b"EXEC"
                    await writer.drain()
        finally:
            to_above.close()
            writer.close()
            self.tasks.discard(task)


async def passed(command: list[bytes], above: asyncio.StreamReader, to_above: asyncio.StreamWriter) -> bytes:
    """The reply, whole"""
    to_above.write(pack_command((*command,)))  # type: ignore[arg-type]
    replies, whole = hiredis.Reader(), b""
    while True:
        data = await above.read(65536)
        if not data:
            raise OSError("the store has closed the connection")
        whole += data
        replies.feed(data)
        if replies.gets() is not False:
            return whole


@asynccontextmanager
async def served(server: EmbeddedServer) -> AsyncIterator[tuple[httpx.AsyncClient, StoreProxy]]:
    found = re.fullmatch(r"unix://(.*)", server.url)
    assert found is not None
    proxy = StoreProxy(found[1])
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    app = create_app(Settings(redis_url=f"redis://127.0.0.1:{proxy.port}", deadline=20))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http,
        ):
            yield http, proxy
    finally:
        listening.close()
        ending = [*proxy.tasks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.sleep(0.01)  # their connections are closed by then


@dataclass(frozen=True)
class Route:
    """A request, and what it is answered with if all goes well, or if it is sent again"""

    verb: str
    path: str
    good: int
    body: Callable[[int], Any] | None = None  # of the number of the trial
    again: tuple[int, ...] = ()
    keyed: bool = False
    learns: int = 0  # points


ONE = {"point": [0.1, 0.2], "label": 1}
ROUTES = {
    "list": Route("GET", "/sessions", 200),  # before there are many: it looks at each
    "open": Route("POST", "/sessions", 201, lambda n: {"id": f"new-{n}", "dimension": 2}, again=(409,)),
    "import": Route("POST", "/sessions", 201, lambda n: {"id": f"in-{n}", "snapshot": SNAPSHOT}, again=(409,)),
    "look": Route("GET", "/sessions/s", 200),
    "patch": Route("PATCH", "/sessions/s", 200, lambda n: {"name": f"name {n}"}),
    "end": Route("DELETE", "/sessions/end-{n}", 204, again=(410,)),
    "observe": Route("POST", "/sessions/s/observe", 200, lambda n: ONE, keyed=True, learns=1),
    "predict one": Route("GET", "/sessions/s/predict?x=0.1,0.2", 200),
    "predict": Route("POST", "/sessions/s/predict", 200, lambda n: {"points": [[0.1, 0.2]], "ids": [f"id-{n}"]}),
    "predict, short": Route("GET", "/predict?session=s&x=0.1,0.2", 200),
    "model": Route("GET", "/sessions/s/model", 200),
    "metrics": Route("GET", "/sessions/s/metrics", 200),
    "certificate": Route("GET", "/sessions/s/certificate", 200),
    "log": Route("GET", "/sessions/s/log", 200),
    "at": Route("GET", "/sessions/s/at/1/model", 200),
    "snapshot": Route("GET", "/sessions/s/snapshot", 200),
    "picture": Route("GET", "/sessions/s/disk.svg", 200),
    "fit": Route("POST", "/sessions/s/fits", 202, lambda n: {}, keyed=True, again=(200,)),
    "fits": Route("GET", "/sessions/s/fits", 200),
    "ready": Route("GET", "/health/ready", 200),
    "live": Route("GET", "/health/live", 200),
    "numbers": Route("GET", "/metrics", 200),
}
SNAPSHOT: dict[str, Any] = {}


async def prepared(http: httpx.AsyncClient) -> None:
    session = {"id": "s", "dimension": 2, "algorithm": "perceptron", "reference": "origin"}
    assert (await http.post("/sessions", json=session)).status_code in (201, 409)
    body = {"points": [[0.1, 0.2], [-0.3, 0.1]], "labels": [1, -1]}
    assert (await http.post("/sessions/s/observe", json=body)).status_code == 200
    SNAPSHOT.update((await http.get("/sessions/s/snapshot")).json())


async def sent(http: httpx.AsyncClient, route: Route, n: int) -> httpx.Response:
    headers = {"Idempotency-Key": f"{route.path}-{n}"} if route.keyed else {}
    how = {} if route.body is None else {"json": route.body(n)}
    return await http.request(route.verb, route.path.format(n=n), headers=headers, **how)


async def observed(http: httpx.AsyncClient) -> int:
    return int((await http.get("/sessions/s")).json()["observed"])


async def one_trial(http: httpx.AsyncClient, proxy: StoreProxy, route: Route, nth: int, fate: str, n: int) -> str:
    before, what = await observed(http), f"{route.verb} {route.path}, call {nth}, {fate}"
    if "{n}" in route.path:
        session = {"id": route.path.format(n=n).rpartition("/")[2], "dimension": 2}
        assert (await http.post("/sessions", json=session)).status_code == 201
    proxy.arm(nth, fate)
    first = await sent(http, route, n)
    proxy.arm(0, "")
    if first.status_code != route.good and first.status_code not in route.again:
        assert first.status_code in PROBLEMS, f"{what}: {first.status_code} {first.text}"
        assert first.headers["content-type"] == "application/problem+json", what
        slug = first.json()["type"].rpartition("/")[2]
        assert slug in PROBLEMS[first.status_code], f"{what}: {slug}"
        if fate in WORDS and first.status_code == 503:
            assert slug == WORDS[fate][1], f"{what}: {slug}"
            assert slug != "store-unavailable" or fate in first.text, f"{what}: {first.text}"
        if first.status_code == 503 and route.learns:
            assert await observed(http) == before, f"{what}: a 503 that changed something"
    second = await sent(http, route, n)
    assert second.status_code in (route.good, *route.again), f"{what}, again: {second.status_code} {second.text}"
    assert await observed(http) == before + route.learns, f"{what}: applied {await observed(http) - before} points"
    return str(first.status_code)


@pytest.mark.parametrize("name", ROUTES)
def test_every_call_of_every_route_fails_once(server: EmbeddedServer, name: str) -> None:
    async def sweep() -> None:
        route, place, seen = ROUTES[name], 1000 * [*ROUTES].index(name), set[str]()
        async with served(server) as (http, proxy):
            await prepared(http)
            if "{n}" in route.path:
                session = {"id": route.path.format(n=place).rpartition("/")[2], "dimension": 2}
                assert (await http.post("/sessions", json=session)).status_code == 201
            await sent(http, route, place + 1 if "{n}" not in route.path else place)  # the script is known by now
            proxy.arm(0, "")
            await sent(http, route, place + 2)
            calls = proxy.count
            assert calls or name in ("live", "numbers"), f"{name} asks nothing of the store"
            for nth in range(1, calls + 1):
                for step, fate in enumerate(FATES):
                    seen.add(await one_trial(http, proxy, route, nth, fate, place + 10 * nth + step))
            assert name in ("live", "numbers") or seen & {"503", "504"}, f"{name}: no call that failed showed: {seen}"

    asyncio.run(sweep())
