"""Observe and predict, answered by the HTTP protocol itself: past ASGI's scope, receive and send.

uvicorn makes a scope, an event, a cycle of messages and a dozen checks for a request; a small one costs more there than
in the learner. Here a request of a hot route whose body is declared and not large goes to the app as soon as it is
whole, and the answer is written in one piece. The app's front does the rest: `App.answer` is what ASGI calls too. A
plain observe does not even need a task: `App.begin` puts it into its lane, which tells the exchange what became of it.

Whatever is not plain goes the usual way: other routes, chunked or large bodies, Expect, Upgrade, Origin (CORS answers
it), HTTP/1.0, escapes in the path, and a request that came before the last one was answered.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Coroutine
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
OK = STATUS_LINE[200]
#: Headers whose requests go the usual way
UNUSUAL = frozenset({b"expect", b"transfer-encoding", b"upgrade", b"origin"})


class Exchange:
    """A request and its answer, in the place of uvicorn's cycle: those of its members that a protocol looks at. Of a
    plain observe it is what waits for the commit, in the place of a future"""

    __slots__ = (
        *("begun", "disconnected", "heard", "keep_alive", "more_body", "parts", "protocol"),
        *("response_complete", "response_started", "scope", "sid"),
    )

    def __init__(self, protocol: DirectHttp, scope: dict[str, Any], sid: str, keep_alive: bool) -> None:
        self.protocol, self.scope, self.sid, self.keep_alive = protocol, scope, sid, keep_alive
        self.disconnected = self.response_started = self.response_complete = self.heard = False
        self.more_body, self.parts = True, list[bytes]()
        self.begun: Any = None

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
        """It is written by a callback of its own: what goes wrong there is nobody else's trouble"""
        self.heard = True
        self.protocol.loop.call_soon(self.protocol.finish, self, answer)

    def set_exception(self, error: Exception) -> None:
        self.heard = True
        self.protocol.conclude(self, error)

    def exception(self) -> None:
        """It is told"""

    def cancel(self) -> bool:
        if not self.heard:  # the server ends
            self.heard = True
            self.protocol.transport.close()
        return True


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
        self.loop.call_soon(self._begin, exchange)  # the parser would take what goes wrong for a malformed request

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
        sid = path[len("/sessions/") : -len("/observe")].decode() if path.endswith(b"/observe") else ""
        return Exchange(self, scope, sid, self.parser.should_keep_alive() and not self.draining)

    def _begin(self, exchange: Exchange) -> None:
        app = cast(Any, self.app)
        try:
            if exchange.sid:
                exchange.begun = app.begin(exchange.scope, exchange.sid, exchange.body, exchange)
        finally:
            if exchange.begun is None:  # also if that went wrong: the task says so
                self._run(exchange, app.answer(exchange.scope, exchange.receive))

    def finish(self, exchange: Exchange, answer: Any) -> None:
        """Answer a plain observe that is committed"""
        app, transport = cast(Any, self.app), self.transport
        try:
            found = app.finished(exchange.begun, answer) if exchange.keep_alive else None
        finally:
            if isinstance(error := sys.exception(), Exception):
                self.conclude(exchange, error)
        if found is None:
            self.conclude(exchange, answer)
        elif not transport.is_closing():  # else the client has hung up
            exchange.response_started = True
            dated = b"".join([b"%b: %b\r\n" % pair for pair in self.server_state.default_headers])
            transport.write(b"".join((OK, dated, found[0], app.always, b"\r\n", found[1])))
            self._complete(exchange)

    def conclude(self, exchange: Exchange, outcome: Any) -> None:
        """Answer an observe of which something is still to be found out, or to be told about"""
        self._run(exchange, cast(Any, self.app).conclude(exchange.begun, outcome))

    def _run(self, exchange: Exchange, answer: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(self._answer(exchange, answer))
        self.tasks.add(task)
        task.add_done_callback(partial(self._ended, exchange))

    async def _answer(self, exchange: Exchange, answer: Coroutine[Any, Any, Any]) -> None:
        told = await answer
        if self.transport.is_closing():  # the client has hung up
            return
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
