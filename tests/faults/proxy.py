"""Something between a client and the service that loses what passes through it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpx

LOST = (OSError, asyncio.IncompleteReadError)


@dataclass
class Proxy:
    """Draws a fate for every request:

    pass     it is served
    refuse   the connection is closed before anything is sent on
    lose     the service answers, and nobody hears it
    half     half of the answer is heard
    delay    the answer is late by `late` seconds

    A stream of events is cut after some bytes, fewer than `cut`, unless it is to pass.
    """

    upstream: str
    fates: Mapping[str, float]
    rng: random.Random
    late: float = 0.5
    port: int = 0
    cut: int = 4000
    drawn: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request after another on one connection of a client"""
        try:
            with suppress(*LOST):
                while await self._pass_on(reader, writer):
                    pass
        finally:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _message(reader)
        fate = self.rng.choices([*self.fates], [*self.fates.values()])[0]
        self.drawn[fate] += 1
        if fate == "refuse":
            return False
        url = httpx.URL(self.upstream)
        above, to_above = await asyncio.open_connection(url.host, url.port)
        try:
            to_above.write(request)
            head = await above.readuntil(b"\r\n\r\n")
            if b"text/event-stream" in head.lower():
                await self._stream(head, above, writer, None if fate == "pass" else self.rng.randrange(self.cut))
                return False
            reply = head + await above.readexactly(_length(head))
        finally:
            to_above.close()
        if fate == "delay":
            await asyncio.sleep(self.late)
        if fate in ("lose", "half"):
            writer.write(reply[: len(reply) // 2] if fate == "half" else b"")
            await writer.drain()
            return False
        writer.write(reply)
        await writer.drain()
        return True

    async def _stream(
        self, head: bytes, above: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None
    ) -> None:
        writer.write(head)
        while most is None or most > 0:
            some = await above.read(65536 if most is None else min(most, 200))
            if not some:
                return
            most = None if most is None else most - len(some)
            writer.write(some)
            await writer.drain()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(_length(head))


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


@contextmanager
def proxied(upstream: str, seed: int, *, port: int = 0, late: float = 0.5, **fates: float) -> Iterator[Proxy]:
    """In a thread of its own; the fates and their shares, of which the rest passes"""
    shares = {"pass": 1 - sum(fates.values()), **fates}
    proxy = Proxy(upstream, shares, random.Random(seed), late, port)
    loop, tasks = asyncio.new_event_loop(), set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(proxy.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", port))
    proxy.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in tasks:
            task.cancel()
        loop.run_until_complete(_all_of(tasks))
        loop.close()


async def _all_of(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.01)  # their connections are closed by then
