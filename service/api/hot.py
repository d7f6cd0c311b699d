"""What the hot routes share. They are plain ASGI endpoints: FastAPI's own routing would cost more than the learning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.context import Context
from service.api.problems import respond
from service.errors import BodyTooLarge, HorocycleError, MalformedBody

Handler = Callable[[Context, Scope, Receive], Awaitable[tuple[bytes, dict[str, str]]]]


class Hot:
    """An ASGI endpoint: the handler's bytes as JSON, its errors as problems."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        here: Context = scope["app"].state.context
        try:
            body, extra = await self._handler(here, scope, receive)
        except HorocycleError as error:
            await respond(error)(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.encode(), value.encode()) for name, value in extra.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class HotRoutes:
    """The hot routes are met before the rest of the app, which they do without."""

    def __init__(self, app: ASGIApp, routes: Sequence[Route]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for route in self._routes:
                found = route.path_regex.match(scope["path"])
                if found and scope["method"] in (route.methods or ()):
                    scope["path_params"], scope["route"] = found.groupdict(), route
                    return await route.app(scope, receive, send)
        await self._app(scope, receive, send)


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


def dump(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
