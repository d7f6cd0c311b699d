"""The app's front: every request gets its id, passes the door, is timed and counted; the hot routes are answered here.

The hot routes are plain ASGI endpoints: FastAPI's own routing would cost more than the learning.
"""

from __future__ import annotations

import logging
import os
import re
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from service import telemetry
from service.api.admission import admit
from service.api.context import Context
from service.api.door import HEADERS, POLICY, Door
from service.api.formats import TEXT
from service.api.problems import failure, respond
from service.errors import BodyTooLarge, HorocycleError, MalformedBody
from service.ingest import Waiter
from service.logs import request_id
from service.sessions.requests import Answer
from service.sessions.requests import Request as Observe
from service.settings import Settings

log = logging.getLogger("service.access")
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
#: Those that have a series of their own; a client may send any word.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
#: Bytes of an answer that are handed on at once: the transport copies what the client does not take.
PIECE = 1 << 20
JSON_TYPE = (b"content-type", b"application/json")

#: Headers of ours that a page of an allowed origin may read.
EXPOSED = (
    *("ETag", "Location", "Horocycle-Epoch", "Idempotency-Replayed", "Retry-After", "X-Request-ID"),
    *("RateLimit", "RateLimit-Policy", "Horocycle-From", "Horocycle-To", "Horocycle-Next"),
    "Horocycle-Summary",
)

#: Answers a request: the body, JSON unless a Content-Type is among the headers, and headers
Handler = Callable[[Context, Scope, Receive], Awaitable[tuple[bytes, Mapping[str, str]]]]
Headers = list[tuple[bytes, bytes]]


class Told(NamedTuple):
    """The answer of a hot route; every answer has HEADERS and POLICY besides"""

    status: int
    headers: Headers
    body: bytes


class Plain(Protocol):
    """A request that nothing has to be waited for but its commit"""

    @property
    def request(self) -> Observe: ...
    def told(self, answer: Answer) -> bytes: ...
    async def concluded(self, here: Context, outcome: Answer | Exception) -> tuple[bytes, Mapping[str, str]]: ...


#: Reads a request, if it is plain: session, headers, query, body
Plainly = Callable[[Context, str, Mapping[str, str], bytes, bytes], Plain | None]


class Begun(NamedTuple):
    """A plain observe that waits for its commit"""

    scope: Scope
    began: float
    plain: Plain


#: The head of the usual answer to an observe, but for what every answer has
HEAD = (
    b'etag: "%d"\r\nhorocycle-epoch: %d\r\n%bcontent-type: application/json\r\n'
    b"content-length: %d\r\nx-request-id: %b\r\n"
)


class App(FastAPI):
    """FastAPI behind its front. `hot`: paths, methods and handlers, observe first, which `plainly` reads too. `direct`:
    whether the HTTP protocol may ask for their answers itself (process/direct_http.py)"""

    def __init__(
        self,
        hot: Sequence[tuple[str, Sequence[str], Handler]],
        plainly: Plainly,
        *,
        door: Door,
        keys: bool,
        access_log: bool,
        direct: bool = True,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._door, self._keys, self._access_log, own = door, keys, access_log, os.urandom(4).hex()
        self._plainly = plainly
        self.direct, self.always = direct, b"".join(b"%b: %b\r\n" % pair for pair in (*HEADERS, POLICY))
        self._names = (f"{own}{number:08x}" for number in count(1))
        self._series: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self._hot = [(Route(path, _unreachable, methods=methods), handler) for path, methods, handler in hot]
        self.router.routes.extend(route for route, _ in self._hot)  # there they answer 405
        self._hot_app = ServerErrorMiddleware(self._answered, self._unexpected)
        self._cors = CORSMiddleware(self, **shared(door)) if door.origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._other(scope, receive, send)
        if self._cors is not None and scope.setdefault("cors", self._cors) is not None:
            scope["cors"] = None  # it calls this again
            return await self._cors(scope, receive, send)
        scope["app"], path, method = self, scope["path"], scope["method"]
        for route, _ in self._hot:
            if method in (route.methods or ()) and route.path_regex.match(path):  # HEAD is among them where GET is
                return await self._hot_app(scope, receive, send)
        await self._cold(scope, receive, send)

    # ---------------------------------------------------------------------------------------- hot routes

    async def answer(self, scope: Scope, receive: Receive) -> Told:
        """What a hot route says, whichever way it was asked; an error that nobody foresaw is raised"""
        began, status = time.perf_counter(), 500
        headers = scope["named"] = headers_of(scope)
        given = headers.get("x-request-id")
        scope["name"] = name = given if given and NAME.fullmatch(given) else next(self._names)
        token, rates = request_id.set(name), Headers()
        try:
            if headers.get("host") not in self._door.known or "origin" in headers or "sec-fetch-site" in headers:
                self._door.check(scope["method"], scope["path"], headers)
            if self._keys:
                rates = await self._admitted(scope, headers)
            path = scope["path"]
            found, route, handler = next((f, r, h) for r, h in self._hot if (f := r.path_regex.match(path)))
            scope["path_params"], scope["route"] = found.groupdict(), route
            body, extra = await handler(self.state.context, scope, receive)
            status, told = 200, [(key.lower().encode(), value.encode()) for key, value in extra.items()]
            if "Content-Type" not in extra:
                told.append(JSON_TYPE)
        except HorocycleError as error:
            status, told, body = _problem(respond(error))
        finally:
            self._count(scope, status, time.perf_counter() - began)
            request_id.reset(token)
        told += ((b"content-length", b"%d" % len(body)), *rates, (b"x-request-id", name.encode()))
        return Told(status, told, body)

    def begin(self, scope: Scope, sid: str, body: bytes, waiter: Waiter) -> Begun | None:
        """Have a plain observe committed without a coroutine that waits for it: `waiter` hears what became of it.
        None: it is not plain, or something is wrong with it, and nothing was done: `answer` says what"""
        began, headers = time.perf_counter(), headers_of(scope)
        if self._keys or headers.get("host") not in self._door.known or "sec-fetch-site" in headers:
            return None
        scope["named"], given = headers, headers.get("x-request-id")
        try:
            if (plain := self._plainly(self.state.context, sid, headers, scope["query_string"], body)) is None:
                return None
            self.state.context.ingest.observe(sid, plain.request, waiter)
        except HorocycleError:
            return None
        scope["name"] = given if given and NAME.fullmatch(given) else next(self._names)
        scope["route"] = self._hot[0][0]
        return Begun(scope, began, plain)

    def finished(self, begun: Begun, answer: Answer) -> tuple[bytes, bytes] | None:
        """Lines of the answer's head, and its body. None: `conclude` it"""
        epoch = self.state.context.connection.known_epoch
        if epoch is None:  # another server may have answered meanwhile
            return None
        body, again = begun.plain.told(answer), b"idempotency-replayed: true\r\n" if answer.replayed else b""
        self._count(begun.scope, 200, time.perf_counter() - begun.began)
        return HEAD % (answer.counters.version, epoch, again, len(body), begun.scope["name"].encode()), body

    async def conclude(self, begun: Begun, outcome: Answer | Exception) -> Told:
        """What is said about an observe that was begun; an error that nobody foresaw is raised"""
        (scope, began, plain), status = begun, 500
        token = request_id.set(scope["name"])
        try:
            body, extra = await plain.concluded(self.state.context, outcome)
            status, told = 200, [JSON_TYPE, *((key.lower().encode(), value.encode()) for key, value in extra.items())]
        except HorocycleError as error:
            status, told, body = _problem(respond(error))
        finally:
            self._count(scope, status, time.perf_counter() - began)
            request_id.reset(token)
        return Told(
            status, [*told, (b"content-length", b"%d" % len(body)), (b"x-request-id", scope["name"].encode())], body
        )

    def failed(self, scope: Scope, error: Exception) -> Told:
        """What is said when answering went wrong in a way that nobody foresaw"""
        status, headers, body = _problem(failure(error))
        length = (b"content-length", b"%d" % len(body))
        return Told(status, [*headers, length, (b"x-request-id", scope["name"].encode())], body)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, headers, body = await self.answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": [*headers, *HEADERS, POLICY]})
        last = max(len(body) - 1, 0) // PIECE * PIECE
        for at in range(0, last, PIECE):  # the rest waits until the client has taken it
            await send({"type": "http.response.body", "body": body[at : at + PIECE], "more_body": True})
        await send({"type": "http.response.body", "body": body[last:]})

    async def _unexpected(self, request: Request, error: Exception) -> Response:
        told = self.failed(request.scope, error)
        response = Response(told.body, told.status)
        response.raw_headers = [*told.headers, *HEADERS, POLICY]
        return response

    # ------------------------------------------------------------------------------------- all the others

    async def _cold(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["named"] = headers_of(scope)
        given = headers.get("x-request-id")
        name = given if given and NAME.fullmatch(given) else next(self._names)
        token, rates = request_id.set(name), Headers()
        began, status = time.perf_counter(), 500

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, told = message["status"], message["headers"]
                policy = () if any(key == POLICY[0] for key, _ in told) else (POLICY,)
                message["headers"] = [*told, *HEADERS, *policy, *rates, (b"x-request-id", name.encode())]
            await send(message)

        try:
            try:
                self._door.check(scope["method"], scope["path"], headers)
                if self._keys:
                    rates = await self._admitted(scope, headers)
            except HorocycleError as error:
                return await respond(error)(scope, receive, named)
            if scope["method"] == "HEAD" and not scope["path"].endswith("/events"):
                scope = {**scope, "method": "GET"}  # the server leaves the body out
            await super().__call__(scope, receive, named)
        finally:
            self._count(scope, status, time.perf_counter() - began)
            request_id.reset(token)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket passes the same door, as something that writes; the rest is for FastAPI"""
        if scope["type"] == "websocket":
            try:
                self._door.check("GET", scope["path"], headers_of(scope), writes=True)
                if self._keys:
                    await admit(self.state.context, scope, headers_of(scope))
            except HorocycleError as error:
                await receive()
                log.info("a WebSocket was refused: %s", error.detail)
                return await send({"type": "websocket.close", "code": 1008, "reason": error.detail[:100]})
        await super().__call__(scope, receive, send)

    # ------------------------------------------------------------------------------------- what all share

    async def _admitted(self, scope: Scope, headers: Mapping[str, str]) -> Headers:
        """By its key; headers that say what is left of its rates"""
        left = await admit(self.state.context, scope, headers)
        return [(name.lower().encode(), value.encode()) for name, value in left.items()]

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        key = (method if route != "none" else "any", route, status)
        if (found := self._series.get(key)) is None:
            labels = (telemetry.requests.labels(key[0], route, str(status)), telemetry.request_seconds.labels(route))
            found = self._series[key] = labels
        requests, times = found
        requests.value += 1
        times.buckets[bisect_left(telemetry.TIMES, seconds)] += 1
        times.sum += seconds
        if self._access_log:
            told = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(1000 * seconds, 3)}
            log.info("request", extra=told)


def _problem(response: Response) -> Told:
    headers = [pair for pair in response.raw_headers if pair[0] != b"content-length"]
    return Told(response.status_code, headers, bytes(response.body))


def shared(door: Door) -> dict[str, Any]:
    """What pages of the allowed origins may send and read"""
    return {
        "allow_origins": sorted(door.origins),
        "allow_methods": sorted(METHODS - {"OPTIONS"}),
        "allow_headers": ["authorization", "content-type", "idempotency-key", "if-match", "last-event-id"],
        "expose_headers": EXPOSED,
        "max_age": 600,
    }


async def _unreachable(request: Request) -> Response:
    raise AssertionError("the front answers this route")


def headers_of(scope: Scope) -> dict[str, str]:
    """By their lower-case names; of equal ones the first"""
    if (found := scope.get("named")) is not None:
        named: dict[str, str] = found
        return named
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


async def read_body(headers: Mapping[str, str], receive: Receive, kind: str, settings: Settings) -> bytes:
    """The body, counted while it is read: memory stays flat however much is sent."""
    limit = settings.json_limit if kind in TEXT else settings.body_limit
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(limit)
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedBody("the connection was closed before the body was whole")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLarge(limit)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)
