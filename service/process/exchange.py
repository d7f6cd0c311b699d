"""A request that the HTTP protocol answers itself, and its answer: see direct_http.py."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from service.api.heads import Head
from service.errors import NotPlain

if TYPE_CHECKING:
    from service.process.direct_http import DirectHttp


class Exchange:
    """A request and its answer, in the place of uvicorn's cycle: those of its members that a protocol looks at. Of a
    plain observe it is what waits for the commit, in the place of a future"""

    __slots__ = (
        *("begun", "disconnected", "head", "heard", "keep_alive", "key", "more_body", "parts", "protocol"),
        *("response_complete", "response_started", "scope"),
    )

    def __init__(self, protocol: DirectHttp, head: Head, key: str | None, parts: list[bytes]) -> None:
        self.protocol, self.head, self.key, self.parts, self.more_body = protocol, head, key, parts, True
        self.keep_alive = head.keep_alive and not protocol.draining
        self.disconnected = self.response_started = self.response_complete = self.heard = False
        self.begun: Any = None
        self.scope: dict[str, Any] | None = None  # of one that is not plain

    @property
    def message_event(self) -> Exchange:
        return self

    def set(self) -> None:
        """Nobody waits for a message: the whole body is handed over"""

    @property
    def body(self) -> bytes:
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    async def receive(self) -> dict[str, Any]:
        """All of the body, once"""
        body, self.parts = self.body, []
        return {"type": "http.request", "body": body, "more_body": False}

    # ----------------------------------------------------------------- what ingest calls: see its Waiter

    def done(self) -> bool:
        return self.heard

    def set_result(self, answer: Any) -> None:
        self.heard = True
        unwritten = cast(Any, self.protocol.app).unwritten
        if not unwritten:
            self.protocol.loop.call_soon(write_all, unwritten, self.protocol.loop)
        unwritten.append((self, answer))

    def set_exception(self, error: Exception) -> None:
        self.heard = True
        if isinstance(error, NotPlain):
            self.protocol.ask(self)
        else:
            self.protocol.conclude(self, error)

    def exception(self) -> None:
        """It is told"""

    def cancel(self) -> bool:
        if not self.heard:  # the server ends
            self.heard = True
            self.protocol.transport.close()
        return True


def write_all(unwritten: deque[tuple[Exchange, Any]], loop: asyncio.AbstractEventLoop) -> None:
    """The answers of a commit, in one callback; if one goes wrong, that is nobody else's trouble"""
    try:
        while unwritten:
            exchange, answer = unwritten.popleft()
            exchange.protocol.finish(exchange, answer)
    finally:
        if unwritten:
            loop.call_soon(write_all, unwritten, loop)
