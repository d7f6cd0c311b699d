"""GET /sessions/{id}/events: server-sent events from the store's stream, on any worker.

Events are numbered without gaps. A client that names the last one it saw goes on behind it; if that one, or one behind
it, is no longer kept, it gets a `reset` with the session as it is now, and goes on from there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.context import Context, context, shown, stamp
from service.errors import InvalidRequest, SessionGone, StoreUnavailable, UnknownSession
from service.sessions.spec import published
from service.store.sessions import Event, Head

router = APIRouter(tags=["events"])
ID = re.compile(r"\d{1,19}-\d{1,19}")
START = "0-0"


@router.get(
    "/sessions/{id}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    summary="What happens, as it happens",
)
async def events(
    id: str,
    request: Request,
    last_event_id: Annotated[str | None, Header(description="the last event seen; 0-0: all that are kept")] = None,
) -> StreamingResponse:
    """`commit`, `model`, `alarm`, `fit` as they happen; first, or after a gap, `reset` with the session and its model;
    `end` when the session is gone. Comments keep the line open."""
    here = context(request)
    last = last_event_id if last_event_id and ID.fullmatch(last_event_id) else ""
    with ExitStack() as place:
        place.enter_context(here.streams.one())
        head = await here.store.head(id, last)
        if head.loaded.spec.keep_events == 0:
            raise InvalidRequest("this session keeps no events: it was opened with keep_events 0")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        response = _Placed(_stream(here, head, last), headers=headers, media_type="text/event-stream")
        await stamp(request, response)
        response.place = place.pop_all()
    return response


class _Placed(StreamingResponse):
    """Its place is free again when it ends, also if it ends before its first byte"""

    place: ExitStack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.place:
            await super().__call__(scope, receive, send)


async def _stream(here: Context, head: Head, last: str) -> AsyncIterator[bytes]:
    sid, seconds = head.loaded.spec.id, here.settings.heartbeat
    yield b"retry: 1000\n\n"
    if head.seen is not None or last == START:
        after, number = last, head.seen.number if head.seen else 0
    else:
        yield _reset(head)
        after, number = head.newest, head.number
    while not here.streams.closing.is_set():
        try:
            found = await _unless_closing(here, sid, after, seconds)
            if not found:
                yield b": still here\n\n"
                await here.store.head(sid, "")  # raises when it is gone
            for event in found:
                if event.number != number + 1:
                    head = await here.store.head(sid, "")
                    yield _reset(head)
                    after, number = head.newest, head.number
                    break
                yield _sent(event.name, event.id, event.data)
                after, number = event.id, event.number
        except (SessionGone, UnknownSession):
            yield _sent("end", after, b"{}")
            return
        except StoreUnavailable:  # the client comes back and goes on where it was
            return


async def _unless_closing(here: Context, sid: str, after: str, seconds: float) -> list[Event]:
    """The next events; none when the heartbeat is due or the worker ends"""
    reading = asyncio.ensure_future(here.store.events(sid, after, seconds=seconds))
    closing = asyncio.ensure_future(here.streams.closing.wait())
    try:
        await asyncio.wait([reading, closing], return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else []
    finally:
        for task in (reading, closing):
            task.cancel()
        await asyncio.wait([reading, closing])


def _reset(head: Head) -> bytes:
    loaded = head.loaded
    model = {**published(loaded.spec, loaded.state), **asdict(loaded.counters)}
    body: dict[str, Any] = {"session": shown(loaded), "model": model}
    return _sent("reset", head.newest, orjson.dumps(body))


def _sent(name: str, id: str, data: bytes) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), id.encode(), data)
