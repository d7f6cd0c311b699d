"""Something between a client and the service that loses what passes through it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpx

from tests.relay import relay

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
    url: str = ""
    cut: int = 4000
    drawn: Counter[str] = field(default_factory=Counter)

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
    """The fates and their shares, of which the rest passes"""
    shares = {"pass": 1 - sum(fates.values()), **fates}
    proxy = Proxy(upstream, shares, random.Random(seed), late)
    with relay(proxy.serve, port) as proxy.url:
        yield proxy
