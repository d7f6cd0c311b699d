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
from functools import partial
from itertools import count
from typing import Any

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
from service.api.problems import respond, unexpected
from service.errors import BodyTooLarge, HorocycleError, MalformedBody
from service.logs import request_id
from service.settings import Settings

log = logging.getLogger("service.access")
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
#: Those that have a series of their own; a client may send any word.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
#: Bytes of an answer that are handed on at once: the transport copies what the client does not take.
PIECE = 1 << 20

#: Headers of ours that a page of an allowed origin may read.
EXPOSED = (
    *("ETag", "Location", "Horocycle-Epoch", "Idempotency-Replayed", "Retry-After", "X-Request-ID"),
    *("RateLimit", "RateLimit-Policy", "Horocycle-From", "Horocycle-To", "Horocycle-Next"),
)

#: Answers a request with JSON and headers
Handler = Callable[[Context, Scope, Receive], Awaitable[tuple[bytes, Mapping[str, str]]]]


class App(FastAPI):
    """FastAPI behind its front. `hot`: paths, methods and handlers"""

    def __init__(
        self,
        hot: Sequence[tuple[str, Sequence[str], Handler]],
        *,
        door: Door,
        keys: bool,
        access_log: bool,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._door, self._keys, self._access_log, own = door, keys, access_log, os.urandom(4).hex()
        self._names = (f"{own}{number:08x}".encode() for number in count(1))
        self._series: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self._hot = [
            (
                Route(path, _unreachable, methods=methods),
                ServerErrorMiddleware(partial(self._answer, handler), unexpected),
            )
            for path, methods, handler in hot
        ]
        self.router.routes.extend(route for route, _ in self._hot)  # there they answer 405
        self._cors = CORSMiddleware(self, **shared(door)) if door.origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._other(scope, receive, send)
        if self._cors is not None and scope.setdefault("cors", self._cors) is not None:
            scope["cors"] = None  # it calls this again
            return await self._cors(scope, receive, send)
        scope["app"] = self
        headers = scope["named"] = headers_of(scope)
        given = headers.get("x-request-id", "")
        name = given.encode("latin-1") if given and NAME.fullmatch(given) else next(self._names)
        token = request_id.set(name.decode())
        began, status, rates = time.perf_counter(), 500, list[tuple[bytes, bytes]]()

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, told = message["status"], message["headers"]
                policy = () if any(key == POLICY[0] for key, _ in told) else (POLICY,)
                message["headers"] = [*told, *HEADERS, *policy, *rates, (b"x-request-id", name)]
            await send(message)

        try:
            if headers.get("host") not in self._door.known or "origin" in headers or "sec-fetch-site" in headers:
                try:
                    self._door.check(scope["method"], scope["path"], headers)
                except HorocycleError as error:
                    return await respond(error)(scope, receive, named)
            if self._keys:
                try:
                    left = await admit(self.state.context, scope, headers)
                    rates += [(name.encode(), value.encode()) for name, value in left.items()]
                except HorocycleError as error:
                    return await respond(error)(scope, receive, named)
            for route, handler in self._hot:
                found = route.path_regex.match(scope["path"])
                if found and scope["method"] in (route.methods or ()):  # HEAD is among them where GET is
                    scope["path_params"], scope["route"] = found.groupdict(), route
                    return await handler(scope, receive, named)
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

    async def _answer(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body, extra = await handler(self.state.context, scope, receive)
        except HorocycleError as error:
            return await respond(error)(scope, receive, send)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.encode(), value.encode()) for name, value in extra.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        last = max(len(body) - 1, 0) // PIECE * PIECE
        for at in range(0, last, PIECE):  # the rest waits until the client has taken it
            await send({"type": "http.response.body", "body": body[at : at + PIECE], "more_body": True})
        await send({"type": "http.response.body", "body": body[last:]})

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
