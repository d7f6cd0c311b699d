"""GET /sessions/{id}/events: server-sent events, one an entry of the log, on any worker.

Entries are numbered without gaps. A client that names the last one it saw goes on behind it; if one behind it is no
longer kept, it gets a `reset` with the session as it is now, and goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.admission import key_in
from service.api.context import Context, context, stamp
from service.api.writing import offload
from service.errors import SessionGone, StateCorrupt, StoreUnavailable, UnknownSession
from service.sessions.events import event
from service.sessions.published import published
from service.sessions.records import EntryId, Loaded
from service.sessions.showing import shown
from service.sessions.spec import Spec
from service.store import codec
from service.store.api_keys import ApiKey
from service.store.codec import Record

router = APIRouter(tags=["events"])
START = EntryId()


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
    """`commit`, `model`, `fit`, `session` as they happen; first, or after a gap, `reset` with the session and its
    model; `end` when the session is gone. Comments keep the connection open."""
    here = context(request)
    with ExitStack() as place:
        place.enter_context(here.streams.one(key_in(request.scope)))
        loaded = await here.store.load(id)
        place.enter_context(here.follower.following(id, loaded.newest))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = _stream(here, loaded, _last(last_event_id), key_in(request.scope))
        response = _Placed(stream, headers=headers, media_type="text/event-stream")
        await stamp(request, response)
        response.place = place.pop_all()
    return response


class _Placed(StreamingResponse):
    """Its place is free again when it ends, also if it ends before its first byte"""

    place: ExitStack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.place:
            await super().__call__(scope, receive, send)


def _last(given: str | None) -> EntryId | None:
    try:
        return None if given is None else EntryId.parse(given)
    except ValueError:
        return None


async def _stream(here: Context, loaded: Loaded, last: EntryId | None, key: ApiKey | None) -> AsyncIterator[bytes]:
    sid, spec, seconds = loaded.spec.id, loaded.spec, here.settings.heartbeat
    yield b"retry: 1000\n\n"
    if last is None or last > loaded.newest:
        yield await _reset(loaded)
        last = loaded.newest
    while not here.streams.closing.is_set():
        try:
            found = await _unless_closing(here, sid, last, seconds)
            if key is not None and not await here.keys.is_good(key):
                return
            if not found:
                yield b": still here\n\n"
                now = await here.store.load(sid)  # raises when it is gone
                if now.newest.number > last.number and last == START:
                    kept = await here.log.records(sid, f"({last}", now.newest)  # the feed may be slower than this
                    found = kept or [Record(now.newest, {})]  # nothing is kept of what there was: a gap
            for record in found:
                if record.id.number != last.number + 1:
                    loaded = await here.store.load(sid)
                    yield await _reset(loaded)
                    last = loaded.newest
                    break
                yield _told(spec, record)
                last = record.id
        except (SessionGone, UnknownSession):
            yield _sent("end", last, b"{}")
            return
        except (StoreUnavailable, StateCorrupt):  # the client comes back and goes on where it was, or is told why not
            return


async def _unless_closing(here: Context, sid: str, after: EntryId, seconds: float) -> list[Record]:
    """The next entries; none when the heartbeat is due or the worker ends"""
    reading = asyncio.ensure_future(here.follower.after(sid, after, seconds))
    closing = asyncio.ensure_future(here.streams.closing.wait())
    try:
        await asyncio.wait([reading, closing], return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else []
    except StateCorrupt:  # a damaged entry is a gap
        return [Record(after, {})]
    finally:
        for task in (reading, closing):
            task.cancel()
        await asyncio.wait([reading, closing])


def _told(spec: Spec, record: Record) -> bytes:
    name, data = event(spec, codec.read_entry(record, spec))
    return _sent(name, record.id, orjson.dumps(data))


async def _reset(loaded: Loaded) -> bytes:
    return await offload(loaded.learner_bytes, _written, loaded)


def _written(loaded: Loaded) -> bytes:
    model = {**published(loaded.spec, loaded.state), **asdict(loaded.counters)}
    body: dict[str, Any] = {"session": shown(loaded), "model": model}
    return _sent("reset", loaded.newest, orjson.dumps(body))


def _sent(name: str, id: EntryId, data: bytes) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), str(id).encode(), data)
