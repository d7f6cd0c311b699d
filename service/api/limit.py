"""Bodies of the cold routes are counted while they are read; the hot ones count for themselves."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BodyTooLarge
from service.problems import respond

HOT = ("/observe", "/predict")


class BodyLimit:
    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].endswith(HOT) or scope["method"] in ("GET", "HEAD", "DELETE"):
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
