"""Bodies of the cold routes: counted while they are read, and JSON as wire reads it. The hot ones do so themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Header
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.formats import JSON, NDJSON, load_json, media_type
from service.api.front import headers_of
from service.api.problems import respond
from service.api.writing import offload
from service.errors import BodyTooLarge, InvalidRequest

IdempotencyKey = Annotated[str | None, Header(description="the same key and body again changes nothing more")]


def once(request: Request, what: str, body: BaseModel) -> tuple[str | None, bytes]:
    """The key under which a change is made once, and the fingerprint of what it is for"""
    asked = f"{what} {body.model_dump_json(exclude_unset=True)}"
    return idempotency_key(request.headers), sha256(asked.encode()).digest()[:16]


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    key = headers.get("idempotency-key")
    return None if key is None else require_key(key)


def require_key(key: str) -> str:
    if not 1 <= len(key) <= 200:
        raise InvalidRequest("an Idempotency-Key has 1 to 200 characters", header="Idempotency-Key")
    return key


#: How a body begins that brings a snapshot along: what else it may have is short, so this is in its first bytes.
IMPORT = re.compile(rb'\s*\{(?:\s*"(?:id|name)"\s*:\s*(?:"(?:[^"\\]|\\.)*"|null)\s*,)*\s*"snapshot"\s*:\s*\{')
BEGINNING = 4096


def is_in_pieces(scope: Scope) -> bool:
    """A snapshot as NDJSON, which is read as it comes (importing.py)"""
    given = headers_of(scope).get("content-type", "")
    return bool(scope["path"] == "/sessions" and given.partition(";")[0].strip().lower() == NDJSON)


def _brings_points(scope: Scope) -> bool:
    """Points to infer; or to fit, unless the body is JSON, which only says how"""
    kind = headers_of(scope).get("content-type", "").partition(";")[0].strip().lower()
    return bool(scope["path"].endswith("/infer") or (scope["path"].endswith("/fits") and kind != JSON))


class BodyLimit:
    """`limit` is that of any body; only those that bring points along, a snapshot's and a fit's, may have `large`."""

    def __init__(self, app: ASGIApp, limit: int, large: int) -> None:
        self._app, self._limit, self._large = app, limit, large

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "DELETE") or is_in_pieces(scope):
            await self._app(scope, receive, send)
            return
        parts: list[Message] = []
        size, more, begun = 0, True, b""
        limit = max(self._large, self._limit) if _brings_points(scope) else self._limit
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            part = message.get("body", b"")
            size += len(part)
            if scope["path"] == "/sessions" and len(begun) < BEGINNING:
                begun += part[:BEGINNING]
                if IMPORT.match(begun):
                    limit = max(self._large, self._limit)
            if size > limit:
                await respond(BodyTooLarge(limit))(scope, receive, send)
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
                body = await request.body()
                request.value = await offload(len(body), load_json, body)
            return await handle(request)

        return read


class _Read(Request):
    value: Any

    async def json(self) -> Any:
        return self.value
