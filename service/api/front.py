"""The app's front: every request gets its id, passes the door, is timed and counted; the hot routes are answered here.

The hot routes are plain ASGI endpoints: FastAPI's own routing would cost more than the learning.
"""

from __future__ import annotations

import logging
import os
import re
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

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
from service.api.heads import Asked, Head, Heads
from service.api.problems import failure, respond
from service.errors import BodyTooLarge, HorocycleError, MalformedBody
from service.ingest import Waiter
from service.logs import request_id
from service.sessions.requests import Answer
from service.sessions.spec import Spec
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


#: What a head asks for, by its headers and its query
Asking = Callable[[Mapping[str, str], bytes], Asked]


class Begun(NamedTuple):
    """A plain observe that waits for its commit"""

    head: Head
    asked: Asked
    spec: Spec
    name: bytes  # its request id
    began: float


#: The head of the usual answer to an observe, but for what every answer has
HEAD = (
    b'%betag: "%d"\r\nhorocycle-epoch: %d\r\n%bcontent-type: application/json\r\n'
    b"content-length: %d\r\nx-request-id: %b\r\n\r\n%b"
)


class App(FastAPI):
    """FastAPI behind its front. `hot`: paths, methods and handlers, observe first, whose heads `asking` reads.
    `direct`: whether the HTTP protocol may ask for their answers itself, and remember heads (process/direct_http.py)"""

    here: Context  # from its start on

    def __init__(
        self,
        hot: Sequence[tuple[str, Sequence[str], Handler]],
        asking: Asking,
        *,
        door: Door,
        keys: bool,
        access_log: bool,
        direct: bool = True,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._door, self._keys, self._access_log, own = door, keys, access_log, os.urandom(4).hex()
        self._asking, self.heads = asking, Heads() if direct else None
        self.always = b"".join(b"%b: %b\r\n" % pair for pair in (*HEADERS, POLICY))
        self._names = map(f"{own}%08x".encode().__mod__, count(1))
        self._series: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self.unwritten: deque[tuple[Any, Answer]] = deque()  # exchanges of the HTTP protocol whose answers are known
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
        scope["name"] = name = given if given and NAME.fullmatch(given) else next(self._names).decode()
        token, rates = request_id.set(name), Headers()
        try:
            if headers.get("host") not in self._door.known or "origin" in headers or "sec-fetch-site" in headers:
                self._door.check(scope["method"], scope["path"], headers)
            if self._keys:
                rates = await self._admitted(scope, headers)
            path = scope["path"]
            found, route, handler = next((f, r, h) for r, h in self._hot if (f := r.path_regex.match(path)))
            scope["path_params"], scope["route"] = found.groupdict(), route
            body, extra = await handler(self.here, scope, receive)
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

    def begin(self, head: Head, key: str | None, body: bytes, waiter: Waiter) -> Begun | None:
        """Have a plain observe committed without a coroutine that waits for it: `waiter` hears what became of it.
        None: it is not plain, or something is wrong with it, and nothing was done: `answer` says what"""
        began, here = time.perf_counter(), self.here
        spec = here.ingest.spec(head.sid)
        try:
            if spec is None or (asked := head.asked or self._asked(head)) is None:
                return None
            if (unread := asked.plainly(here, spec, key, body)) is None:
                return None
            here.ingest.observe(head.sid, unread, waiter)
        except HorocycleError:
            return None
        return Begun(head, asked, spec, head.name or next(self._names), began)

    def _asked(self, head: Head) -> Asked | None:
        """What it asks for, if its host is known to be ours and no page caused it"""
        headers = headers_of(head.scope)
        if self._keys or headers.get("host") not in self._door.known or "sec-fetch-site" in headers:
            return None
        head.asked = self._asking(headers, head.scope["query_string"])
        if (given := headers.get("x-request-id")) and NAME.fullmatch(given):
            head.name = given.encode()
        head.scope["route"] = self._hot[0][0]
        return head.asked

    def finished(self, begun: Begun, answer: Answer, first: bytes) -> bytes | None:
        """The whole answer; it begins with these lines. None: `conclude` it"""
        here = self.here
        if (epoch := here.connection.known_epoch) is None:  # another server may have answered meanwhile
            return None
        head, asked, spec, name, began = begun
        body = asked.told(here.ingest.spec(head.sid) or spec, answer)
        again = b"idempotency-replayed: true\r\n" if answer.replayed else b""
        self._count(head.scope, 200, time.perf_counter() - began)
        return HEAD % (first, answer.counters.version, epoch, again, len(body), name, body)

    async def conclude(self, begun: Begun, outcome: Answer | Exception) -> Told:
        """What is said about an observe that was begun; an error that nobody foresaw is raised"""
        (head, asked, spec, name, began), status, here = begun, 500, self.here
        token = request_id.set(name.decode())
        try:
            if isinstance(outcome, Exception):
                raise outcome
            body, extra = await asked.acknowledged(here, here.ingest.spec(head.sid) or spec, outcome)
            status, told = 200, [JSON_TYPE, *((key.lower().encode(), value.encode()) for key, value in extra.items())]
        except HorocycleError as error:
            status, told, body = _problem(respond(error))
        finally:
            self._count(head.scope, status, time.perf_counter() - began)
            request_id.reset(token)
        return Told(status, [*told, (b"content-length", b"%d" % len(body)), (b"x-request-id", name)], body)

    def failed(self, name: str, error: Exception) -> Told:
        """What is said when answering the request of this id went wrong in a way that nobody foresaw"""
        status, headers, body = _problem(failure(error))
        length = (b"content-length", b"%d" % len(body))
        return Told(status, [*headers, length, (b"x-request-id", name.encode())], body)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, headers, body = await self.answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": [*headers, *HEADERS, POLICY]})
        last = max(len(body) - 1, 0) // PIECE * PIECE
        for at in range(0, last, PIECE):  # the rest waits until the client has taken it
            await send({"type": "http.response.body", "body": body[at : at + PIECE], "more_body": True})
        await send({"type": "http.response.body", "body": body[last:]})

    async def _unexpected(self, request: Request, error: Exception) -> Response:
        told = self.failed(request.scope["name"], error)
        response = Response(told.body, told.status)
        response.raw_headers = [*told.headers, *HEADERS, POLICY]
        return response

    # ------------------------------------------------------------------------------------- all the others

    async def _cold(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["named"] = headers_of(scope)
        given = headers.get("x-request-id")
        name = given if given and NAME.fullmatch(given) else next(self._names).decode()
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
                    await admit(self.here, scope, headers_of(scope))
            except HorocycleError as error:
                await receive()
                log.info("a WebSocket was refused: %s", error.detail)
                return await send({"type": "websocket.close", "code": 1008, "reason": error.detail[:100]})
        await super().__call__(scope, receive, send)

    # ------------------------------------------------------------------------------------- what all share

    async def _admitted(self, scope: Scope, headers: Mapping[str, str]) -> Headers:
        """By its key; headers that say what is left of its rates"""
        left = await admit(self.here, scope, headers)
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
