"""Bodies of the cold routes: counted while they are read, and JSON as wire reads it. The hot ones do so themselves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BodyTooLarge
from service.problems import respond
from service.wire import JSON, load_json, media_type


class BodyLimit:
    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "DELETE"):
            await self._app(scope, receive, send)
            return
        parts: list[Message] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            if size > self._limit:
                await respond(BodyTooLarge(self._limit))(scope, receive, send)
                return
            parts.append(message)
            more = message.get("more_body", False)
        waiting = iter(parts)

        async def again() -> Message:
            return next(waiting, None) or await receive()

        await self._app(scope, again, send)


class JsonRoute(APIRoute):
    """A route of FastAPI whose body `wire` reads: Starlette would take UTF-16, lone surrogates and any encoding."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            if self.body_field is not None:
                media_type(request.headers.get("content-type"), request.headers.get("content-encoding"), (JSON,))
                request = _Read(request.scope, request.receive)
                request.value = load_json(await request.body())
            return await handle(request)

        return read


class _Read(Request):
    value: Any

    async def json(self) -> Any:
        return self.value
