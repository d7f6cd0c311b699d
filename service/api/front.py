"""The app's front: every request gets its id, is timed and counted; the hot routes are answered here.

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
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from service import telemetry
from service.api.context import Context
from service.api.problems import respond
from service.errors import BodyTooLarge, HorocycleError, MalformedBody
from service.logs import request_id

log = logging.getLogger("service.access")
NAME = re.compile(rb"[\w.:-]{1,64}")
#: Those that have a series of their own; a client may send any word.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

#: Answers a request with JSON and headers
Handler = Callable[[Context, Scope, Receive], Awaitable[tuple[bytes, Mapping[str, str]]]]


class App(FastAPI):
    """FastAPI behind its front. `hot`: paths, methods and handlers"""

    def __init__(self, hot: Sequence[tuple[str, Sequence[str], Handler]], *, access_log: bool, **fields: Any) -> None:
        super().__init__(**fields)
        self._access_log, own = access_log, os.urandom(4).hex()
        self._names = (f"{own}{number:08x}".encode() for number in count(1))
        self._series: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self._hot = [(Route(path, _unreachable, methods=methods), handler) for path, methods, handler in hot]
        self.router.routes.extend(route for route, _ in self._hot)  # there they answer 405

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        scope["app"] = self
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        name = given if given and NAME.fullmatch(given) else next(self._names)
        token = request_id.set(name.decode())
        began, status = time.perf_counter(), 500

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", name)]
            await send(message)

        try:
            for route, handler in self._hot:
                found = route.path_regex.match(scope["path"])
                if found and scope["method"] in (route.methods or ()):  # HEAD is among them where GET is
                    scope["path_params"], scope["route"] = found.groupdict(), route
                    return await self._answer(handler, scope, receive, named)
            if scope["method"] == "HEAD" and not scope["path"].endswith("/events"):
                scope = {**scope, "method": "GET"}  # the server leaves the body out
            await super().__call__(scope, receive, named)
        finally:
            self._count(scope, status, time.perf_counter() - began)
            request_id.reset(token)

    async def _answer(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body, extra = await handler(self.state.context, scope, receive)
        except HorocycleError as error:
            return await respond(error)(scope, receive, send)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.encode(), value.encode()) for name, value in extra.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

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


def dump(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


async def _unreachable(request: Request) -> Response:
    raise AssertionError("the front answers this route")


def headers_of(scope: Scope) -> dict[str, str]:
    """By their lower-case names; of equal ones the first"""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """The body, counted while it is read: memory stays flat however much is sent."""
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
