"""Observe and predict, answered by the HTTP protocol itself: past ASGI's scope, receive and send.

uvicorn makes a scope, an event, a cycle of messages and a dozen checks for a request; a small one costs more there than
in the learner. Here a request of a hot route whose body is declared and not large goes to the app as soon as it is
whole, and the answer is written in one piece. The app's front does the rest: `App.answer` is what ASGI calls too. A
plain observe does not even need a task: `App.begin` puts it into its lane, which tells the exchange what became of it.

The head of an observe is parsed once: a connection that is kept sends the same bytes again and again, up to the body
and its Idempotency-Key, and what they mean is remembered (api/heads.py).

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
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.api.heads import END, LONGEST, OBSERVE, Head, Heads, template_of
from service.process.exchange import Exchange
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


class DirectHttp(BoundedHttp):
    """One connection. Hot routes are answered here if the app has them so (`App.heads`)"""

    between = True  # the parser has read all of a request, and nothing of the next
    missing = 0  # bytes of a body that the parser does not see
    heads: Heads | None = None
    lines: ClassVar[tuple[list[tuple[bytes, bytes]], bytes]] = ([], b"")

    # ------------------------------------------------------------------------------- what uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.heads = getattr(self.app, "heads", None)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.missing:
            return self._body_came(data)
        heads, end = self.heads, -1
        if heads is not None and self.between and data.startswith(OBSERVE) and self in self.idle:
            end = data.find(END, 0, LONGEST)
        if heads is None or end < 0:
            return super().data_received(data)
        (template, key), start = template_of(data[:end]), end + len(END)
        if (head := heads.get(template)) is not None and len(data) - start <= head.length:
            self.heard = self.loop.time()
            self.headers_came()
            self.cycle = Exchange(self, head, key, [])  # type: ignore[assignment]
            self.missing = head.length
            return self._body_came(data[start:])
        before = self.cycle
        super().data_received(data)
        if head is None and isinstance(now := self.cycle, Exchange) and now is not before:
            if now.body == data[start:] and now.key == key:  # so the parser has read it just so
                heads.remember(template, key, now.head)

    def _body_came(self, data: bytes) -> None:
        """Of a request whose head was remembered"""
        exchange, rest = cast(Exchange, self.cycle), data[self.missing :]
        exchange.parts.append(data[: self.missing] if rest else data)
        self.missing -= len(data) - len(rest)
        self.heard, self.body_bytes = self.loop.time(), self.body_bytes + len(data)
        if not self.missing:
            exchange.more_body = False
            self._begin(exchange)
        if rest:  # of the next request
            super().data_received(rest)

    def on_message_begin(self) -> None:
        self.message_began()
        self.between, self.url, self.headers, self.expect_100_continue = False, b"", [], False

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
        self.between = True
        if not isinstance(exchange := self.cycle, Exchange):
            return super().on_message_complete()
        exchange.more_body = False
        self.loop.call_soon(self._begin, exchange)  # the parser would take what goes wrong for a malformed request

    # ------------------------------------------------------------------------------------------ hot routes

    def _direct(self) -> Exchange | None:
        """The exchange that this request begins, if it is one to be answered here"""
        found = HOT.fullmatch(self.url)
        if found is None or self.heads is None or self.parser.get_http_version() != "1.1":
            return None
        if self.cycle is not None and not self.cycle.response_complete:  # it waits for its turn
            return None
        (path, query), method, length, key = found.groups(), self.parser.get_method(), b"0", None
        for name, value in self.headers:
            if name in UNUSUAL:
                return None
            if name == b"content-length":
                length = value
            elif name == b"idempotency-key" and key is None:
                key = value.decode("latin-1")
        if method == b"GET":
            usual = not path.endswith(b"/predict") or length != b"0"
        else:
            usual = method != b"POST" or path == b"/predict" or not length.isdigit() or int(length) > WHOLE
        if usual:
            return None
        scope = {"type": "http", "method": method.decode(), "path": path.decode(), "headers": self.headers}
        scope["query_string"] = query or b""
        sid = path[len("/sessions/") : -len("/observe")].decode() if path.endswith(b"/observe") else ""
        return Exchange(self, Head(scope, sid, int(length), self.parser.should_keep_alive()), key, [])

    def _begin(self, exchange: Exchange) -> None:
        head = exchange.head
        try:
            if head.sid:
                exchange.begun = cast(Any, self.app).begin(head, exchange.key, exchange.body, exchange)
        finally:
            if exchange.begun is None:  # also if that went wrong: the task says so
                self.ask(exchange)

    def ask(self, exchange: Exchange) -> None:
        """Have the app answer what is not plain"""
        exchange.scope = exchange.head.scope_of(exchange.key)
        self._run(exchange, cast(Any, self.app).answer(exchange.scope, exchange.receive))

    def finish(self, exchange: Exchange, answer: Any) -> None:
        """Answer a plain observe that is committed"""
        told: bytes | None = None
        try:
            if exchange.keep_alive:
                told = cast(Any, self.app).finished(exchange.begun, answer, self._first_lines())
        finally:
            if isinstance(error := sys.exception(), Exception):
                self.conclude(exchange, error)
        if told is None:
            self.conclude(exchange, answer)
        elif not self.transport.is_closing():  # else the client has hung up
            exchange.response_started = True
            self.transport.write(told)
            self._complete(exchange)

    def _first_lines(self) -> bytes:
        """Of every answer that is good: as long as uvicorn's own headers, the date among them, are the same"""
        own, known = self.server_state.default_headers, self.lines
        if known[0] is not own:
            lines = b"".join([b"%b: %b\r\n" % pair for pair in own])
            known = DirectHttp.lines = (own, OK + lines + cast(Any, self.app).always)
        return known[1]

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
            name = exchange.begun.name.decode() if exchange.scope is None else exchange.scope["name"]
            self._write(exchange, cast(Any, self.app).failed(name, error))
            self._complete(exchange)
