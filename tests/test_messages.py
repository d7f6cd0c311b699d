"""Frames that are taken apart here are what uvicorn's own protocol makes of them, however the bytes are cut."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Close, Frame, Opcode

from service.process.messages import Messages, frame_head

LARGEST = 100_000
ASK = (
    b"GET /sessions/s/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


class Transport:
    """What a protocol writes, and whether it reads"""

    def __init__(self) -> None:
        self.written, self.closing, self.reading = b"", False, True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes) -> None:
        self.written += b"" if self.closing else data

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def heard(kind: type[WebSocketsSansIOProtocol], parts: list[bytes], more: bytes = b"") -> tuple[list[Any], bytes]:
    """The messages that the app gets of these parts, and what is written behind the handshake"""
    found: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return found.append(message.get("code"))
            text = message.get("text")
            one = (message.get("bytes"), True) if text is None else (text.encode(), False)
            found.extend(message.get("messages", [one]))

    options: dict[str, Any] = {"ws_ping_interval": None, "ws_max_size": LARGEST, "log_config": None}
    config = uvicorn.Config(app, **options)
    config.load()
    protocol, transport = kind(config, ServerState(), {}), Transport()
    protocol.connection_made(transport)  # type: ignore[arg-type]
    protocol.data_received(ASK + more + b"\r\n")
    while not transport.written.endswith(b"\r\n\r\n"):
        await asyncio.sleep(0)
    start = len(transport.written)
    for part in parts:
        for _ in range(20):  # the app takes what has come, and reading goes on
            if transport.reading:
                break
            await asyncio.sleep(0)
        protocol.data_received(part)
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    await asyncio.gather(*protocol.tasks)
    return found, transport.written[start:]


def masked(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


def good(rng: random.Random) -> list[bytes]:
    """Frames of a client that keeps to the rules"""
    frames: list[bytes] = []
    for _ in range(rng.randint(1, 12)):
        size = rng.choice([0, 1, 40, 125, 126, 127, 300, 65_535, 65_536, 70_000])
        text = rng.choice(["{}", "é", "日本", '{"point":[0.1,0.2],"label":1}']).encode() * (size // 29 + 1)
        kind = rng.randrange(6)
        if kind < 3:
            frames.append(masked(Opcode.TEXT, text[:LARGEST] if text.isascii() else text[: LARGEST // 6 * 6]))
        elif kind == 3:
            frames.append(masked(Opcode.BINARY, rng.randbytes(size)))
        elif kind == 4:
            frames.append(masked(rng.choice([Opcode.PING, Opcode.PONG]), rng.randbytes(min(size, 125))))
        else:
            frames += [masked(Opcode.BINARY, b"a", fin=False), masked(Opcode.PING, b"between")]
            frames += [masked(Opcode.CONT, b"b", fin=False), masked(Opcode.CONT, b"c")]
    return frames


#: What ends a connection
BAD = {
    "closed": [masked(Opcode.CLOSE, Close(1000, "bye").serialize())],
    "not masked": [Frame(Opcode.TEXT, b"{}").serialize(mask=False)],
    "too large": [masked(Opcode.BINARY, bytes(LARGEST + 1))],
    "said to be huge": [b"\x82\xff" + (1 << 62).to_bytes(8, "big") + bytes(4)],
    "no text": [masked(Opcode.TEXT, b'{"point": "\xff"}')],
    "half a character": [masked(Opcode.TEXT, "é".encode()[:1])],
    "an unknown kind": [b"\x83\x80" + bytes(4)],
    "a bit that means nothing": [b"\xa1\x80" + bytes(4)],
    "a fragment of nothing": [masked(Opcode.CONT, b"b")],
    "a message in another": [masked(Opcode.TEXT, b"a", fin=False), masked(Opcode.TEXT, b"b")],
    "a long ping": [b"\x89\xfe\x00\x80" + bytes(4) + bytes(128)],
}


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """Into parts, few or many"""
    places = sorted(rng.sample(range(len(data) + 1), min(len(data), rng.choice([0, 1, 3, 20]))))
    return [part for start, stop in zip([0, *places], [*places, len(data)], strict=True) if (part := data[start:stop])]


@pytest.mark.parametrize("seed", range(60))
def test_messages_are_those_that_uvicorn_finds_frame_by_frame(seed: int) -> None:
    """Of what comes with a frame that ends the connection uvicorn forgets the messages; here they are handed on"""
    rng = random.Random(seed)
    frames = [*good(rng), *rng.choice([[], [], *BAD.values()]), masked(Opcode.TEXT, b"behind")]
    parts = cut(b"".join(frames), rng)
    assert asyncio.run(heard(Messages, parts)) == asyncio.run(heard(WebSocketsSansIOProtocol, frames))


@pytest.mark.parametrize("name", BAD)
def test_what_is_against_the_rules_ends_it(name: str) -> None:
    frames = [masked(Opcode.TEXT, b"{}"), *BAD[name], masked(Opcode.TEXT, b"behind")]
    found, written = asyncio.run(heard(WebSocketsSansIOProtocol, frames))
    assert found[0] == (b"{}", False) and (b"behind", False) not in found and written
    whole = b"".join(frames)
    for parts in ([whole], frames, [bytes([byte]) for byte in whole] if len(whole) < 999 else [whole[:9], whole[9:]]):
        assert asyncio.run(heard(Messages, parts)) == (found, written)


def test_compressed_messages_are_read() -> None:
    squeezed = zlib.compressobj(wbits=-12)
    data = squeezed.compress(b'{"point": [0.1]}') + squeezed.flush(zlib.Z_SYNC_FLUSH)
    frame = masked(Opcode.TEXT, data[:-4])
    parts = [bytes([frame[0] | 0x40]) + frame[1:] + masked(Opcode.TEXT, b"plain")]
    more = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
    found, _ = asyncio.run(heard(Messages, parts, more))
    assert found[:2] == [(b'{"point": [0.1]}', False), (b"plain", False)]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 100_000])
def test_a_text_has_the_head_that_the_library_gives_it(size: int) -> None:
    text = b"x" * size
    assert frame_head(text) + text == Frame(Opcode.TEXT, text).serialize(mask=False)
