"""Observe and predict, answered by the HTTP protocol itself: past ASGI's scope, receive and send.

uvicorn makes a scope, an event, a cycle of messages and a dozen checks for a request; a small one costs more there than
in the learner. Here a request of a hot route whose body is declared and not large goes to the app as soon as it is
whole, and the answer is written in one piece. The app's front does the rest: `App.answer` is what ASGI calls too.

Whatever is not plain goes the usual way: other routes, chunked or large bodies, Expect, Upgrade, Origin (CORS answers
it), HTTP/1.0, escapes in the path, and a request that came before the last one was answered.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.process.http_protocol import BoundedHttp

log = logging.getLogger(__name__)
HOT = re.compile(rb"(/sessions/[A-Za-z0-9_.~:-]+/(?:observe|labels|predict)|/predict)(?:\?([!\"$-~]*))?")
#: Bytes of a body that is not handed on while it comes.
WHOLE = 4 << 20
#: Bytes of an answer that are handed on at once: the transport copies what the client does not take.
PIECE = 1 << 20
#: Headers whose requests go the usual way
UNUSUAL = frozenset({b"expect", b"transfer-encoding", b"upgrade", b"origin"})


class Exchange:
    """A request and its answer, in the place of uvicorn's cycle: those of its members that a protocol looks at"""

    __slots__ = ("disconnected", "keep_alive", "more_body", "parts", "response_complete", "response_started", "scope")

    def __init__(self, scope: dict[str, Any], keep_alive: bool) -> None:
        self.scope, self.keep_alive, self.parts = scope, keep_alive, list[bytes]()
        self.disconnected = self.response_started = self.response_complete = False
        self.more_body = True

    @property
    def message_event(self) -> Exchange:
        return self

    def set(self) -> None:
        """Nobody waits for a message: the whole body is handed over"""

    async def receive(self) -> dict[str, Any]:
        """All of the body, once"""
        body, self.parts = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts), []
        return {"type": "http.request", "body": body, "more_body": False}


class DirectHttp(BoundedHttp):
    """One connection. Hot routes are answered here if the app has them so (`App.direct`)"""

    # ------------------------------------------------------------------------------- what uvicorn calls

    def on_message_begin(self) -> None:
        self.message_began()
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        if (exchange := self._direct()) is not None:
            self.headers_came()
            self.cycle = exchange  # type: ignore[assignment]
            return
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        HttpToolsProtocol.on_message_begin(self)  # its scope is made now that it is needed
        self.url, self.expect_100_continue = url, expect
        self.headers = self.scope["headers"] = headers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if isinstance(exchange := self.cycle, Exchange):
            exchange.parts.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not isinstance(exchange := self.cycle, Exchange):
            return super().on_message_complete()
        exchange.more_body = False
        task = self.loop.create_task(self._answer(exchange))
        self.tasks.add(task)
        task.add_done_callback(partial(self._ended, exchange))

    # ------------------------------------------------------------------------------------------ hot routes

    def _direct(self) -> Exchange | None:
        """The exchange that this request begins, if it is one to be answered here"""
        found = HOT.fullmatch(self.url)
        if found is None or not getattr(self.app, "direct", False) or self.parser.get_http_version() != "1.1":
            return None
        if self.cycle is not None and not self.cycle.response_complete:  # it waits for its turn
            return None
        (path, query), method, length = found.groups(), self.parser.get_method(), b"0"
        for name, value in self.headers:
            if name in UNUSUAL:
                return None
            if name == b"content-length":
                length = value
        if method == b"GET":
            usual = not path.endswith(b"/predict") or length != b"0"
        else:
            usual = method != b"POST" or path == b"/predict" or not length.isdigit() or int(length) > WHOLE
        if usual:
            return None
        scope = {"type": "http", "method": method.decode(), "path": path.decode(), "headers": self.headers}
        scope["query_string"] = query or b""
        return Exchange(scope, self.parser.should_keep_alive() and not self.draining)

    async def _answer(self, exchange: Exchange) -> None:
        app: Any = self.app
        told = await app.answer(exchange.scope, exchange.receive)
        self._write(exchange, told)
        for at in range(PIECE, len(told.body), PIECE):
            await self.flow.drain()
            if self.transport.is_closing():
                return
            self.transport.write(told.body[at : at + PIECE])
        self._complete(exchange)

    def _write(self, exchange: Exchange, told: Any) -> None:
        """The head, and the first piece of the body"""
        exchange.response_started, app = True, cast(Any, self.app)
        pairs = [*self.server_state.default_headers, *told.headers]
        if not exchange.keep_alive:
            pairs.append((b"connection", b"close"))
        lines = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
        self.transport.write(b"%b%b%b\r\n%b" % (STATUS_LINE[told.status], lines, app.always, told.body[:PIECE]))

    def _complete(self, exchange: Exchange) -> None:
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _ended(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        """Its answer is written; if not, it went wrong in a way that nobody foresaw, or the server ends"""
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a request could not be answered", exc_info=error)
        if exchange.response_complete:
            return
        if exchange.response_started or not isinstance(error, Exception):
            self.transport.close()
        else:
            self._write(exchange, cast(Any, self.app).failed(exchange.scope, error))
            self._complete(exchange)
