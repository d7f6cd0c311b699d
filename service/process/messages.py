"""uvicorn's WebSocket protocol, with many messages at once to the app and from it:

    {"type": "websocket.receive", "messages": [(bytes, is binary), …]}        {"type": "websocket.send", "texts": […]}

The extension `horocycle.messages` of the scope says so. Whole frames of text or bytes are taken apart here, as many as
have come. Any other frame is handed, whole, to the `websockets` library behind uvicorn's protocol: control frames,
fragments, compressed ones, and what is against the rules, for which it ends the connection. So the library always
stands between two frames.
"""

from __future__ import annotations

from typing import Any, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined]
from websockets.protocol import State

from service.process.http_protocol import BoundedHttp

#: The first byte of a frame (RFC 6455, 5.2): whole text, whole bytes; the bits of its kind, and whether it is the last.
TEXT, BYTES, KIND, LAST = 0x81, 0x82, 0x0F, 0x80


class Messages(WebSocketsSansIOProtocol):
    """One connection. When the worker drains, or a handshake is under way, the app ends it"""

    by_library = False  # everything, from now on
    fragmented = False  # the library has the beginning of a message
    missing = 0  # bytes that have to come before there is more to take apart

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parts: list[bytes] = []  # of a frame that is not whole

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast(Any, self.scope)["extensions"]["horocycle.messages"] = {}

    # ---------------------------------------------------------------------------------------------- messages in

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            return super().data_received(data)
        if self.by_library or not self.handshake_complete or self.conn.state is not State.OPEN:
            self.by_library = True  # it may have the beginning of a frame by now
            return super().data_received(b"".join((*self._taken_parts(), data)))
        if self.missing > len(data):
            self._parts.append(data)
            self.missing -= len(data)
            return
        if self._parts:
            data = b"".join((*self._taken_parts(), data))
        rest = self._take_apart(data)
        if rest and not self.by_library:
            self._parts.append(rest)

    def _taken_parts(self) -> list[bytes]:
        parts, self._parts = self._parts, []
        return parts

    def _take_apart(self, data: bytes) -> bytes:
        """Hand on all frames that are whole; returns what is left"""
        at, end, messages = 0, len(data), list[tuple[bytes, bool]]()
        while at < end:
            start, stop = frame_extent(data, at)
            if stop - start > (self.config.ws_max_size or stop) or (end - at > 1 and not data[at + 1] & 0x80):
                self.by_library = True  # which says that it is too large, or not masked
                stop = end
            elif stop > end:
                break
            elif data[at] in (TEXT, BYTES) and not self.fragmented:
                payload = apply_mask(data[start:stop], data[start - 4 : start])
                if data[at] == BYTES or payload.isascii() or _is_text(payload):
                    messages.append((payload, data[at] == BYTES))
                    at = stop
                    continue
            elif data[at] & KIND < 8:
                self.fragmented = not data[at] & LAST
            self._hand_on(messages)
            super().data_received(data[at:stop])
            at, messages = stop, []
            if self.conn.state is not State.OPEN and at < end:  # it has ended the connection, or heard of its end
                self.by_library = True
                super().data_received(data[at:])
                at = end
        self._hand_on(messages)
        self.missing = stop - end if at < end else 0
        return data[at:]

    def _hand_on(self, messages: list[tuple[bytes, bool]]) -> None:
        if messages and not self.close_sent:
            self.queue.put_nowait(cast(Any, {"type": "websocket.receive", "messages": messages}))
            if not self.read_paused:  # until the app has taken them: backpressure
                self.read_paused = True
                self.transport.pause_reading()

    # --------------------------------------------------------------------------------------------- messages out

    async def send(self, message: Any) -> None:
        if "texts" not in message or not self.handshake_complete:
            return await super().send(message)
        if not self.writable.is_set():
            await self.writable.wait()
        if self.disconnected:
            raise ClientDisconnected
        if self.conn.state is State.OPEN and not self.transport.is_closing():
            self.transport.write(b"".join([part for text in message["texts"] for part in (frame_head(text), text)]))

    def shutdown(self) -> None:
        if self.handshake_complete and not BoundedHttp.draining:
            super().shutdown()


def frame_extent(data: bytes, at: int) -> tuple[int, int]:
    """Where the payload of a masked frame begins and ends; as far as it can be told, beyond the end of the data if the
    frame is not whole"""
    if len(data) - at < 2:
        return at + 6, at + 6
    n = data[at + 1] & 0x7F
    if n < 126:
        return at + 6, at + 6 + n
    size = 2 if n == 126 else 8
    start = at + 6 + size
    if len(data) < start:
        return start, start
    return start, start + int.from_bytes(data[at + 2 : at + 2 + size], "big")


def frame_head(text: bytes) -> bytes:
    """Of a frame: a text, whole, not masked (RFC 6455, 5.2)"""
    n = len(text)
    if n < 126:
        return bytes((TEXT, n))
    return b"\x81\x7e" + n.to_bytes(2, "big") if n < 1 << 16 else b"\x81\x7f" + n.to_bytes(8, "big")


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
