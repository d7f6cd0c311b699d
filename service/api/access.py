"""Around every request: its id, its time, its place in the counts and, if asked for, in the log."""

from __future__ import annotations

import logging
import os
import re
import time
from itertools import count
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import telemetry
from service.logs import request_id

log = logging.getLogger("service.access")
NAME = re.compile(rb"[\w.:-]{1,64}")
#: Those that have a series of their own; a client may send any word.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class Access:
    def __init__(self, app: ASGIApp, log: bool) -> None:
        self._app, self._log = app, log
        own = os.urandom(4).hex()
        self._names = (f"{own}{number:08x}".encode() for number in count(1))
        self._counters: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
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
            await self._app(scope, receive, named)
        finally:
            self._count(scope, status, time.perf_counter() - began)
            request_id.reset(token)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        key = (method if route != "none" else "any", route, status)
        if (found := self._counters.get(key)) is None:
            labels = (telemetry.requests.labels(key[0], route, str(status)), telemetry.request_seconds.labels(route))
            found = self._counters[key] = labels
        found[0].inc()
        found[1].observe(seconds)
        if self._log:
            told = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(1000 * seconds, 3)}
            log.info("request", extra=told)
