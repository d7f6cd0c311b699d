"""create_app(settings): the wiring. Imported by nobody but a worker."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute

from service import __version__
from service.api import (
    certificate,
    demo,
    disk,
    events,
    fits,
    health,
    importing,
    inference,
    log,
    metrics,
    page,
    pages,
    sessions,
    snapshot,
)
from service.api.bodies import BodyLimit
from service.api.context import Context, Streams
from service.api.door import Door, own_hosts
from service.api.front import App
from service.api.labels import labels
from service.api.observe import asked_by, observe
from service.api.openapi import document
from service.api.predict import predict
from service.api.problems import handle, respond, unexpected
from service.api.stream import stream
from service.errors import (
    HorocycleError,
    InvalidRequest,
    MalformedBody,
    MethodNotAllowed,
    NonFinite,
    NotANumber,
    UnknownField,
    UnknownRoute,
)
from service.fits.fork import Forker
from service.ingest import Ingest
from service.settings import Settings
from service.store.api_keys import ApiKeys
from service.store.connect import connect
from service.store.fit_queue import FitQueue
from service.store.follower import Follower
from service.store.late_labels import LateLabels
from service.store.log import Log
from service.store.refits import Refits
from service.store.sessions import Store

HOT = (
    ("/sessions/{id}/observe", ("POST",), observe),
    ("/sessions/{id}/labels", ("POST",), labels),
    ("/sessions/{id}/predict", ("GET", "POST"), predict),
    ("/predict", ("GET",), predict),
)
#: The fields an error speaks of; pydantic names the branches of a union too: not those
FIELD = re.compile(r"(?!(?:body|query|int|str|float|opening|importing|forking|merging)$)[A-Za-z_]+")
NUMBER = ("float_type", "int_type")  # what pydantic says where a number belongs


def create_app(settings: Settings | None = None, ingests: type[Ingest] = Ingest) -> FastAPI:
    settings = settings or Settings()
    if settings.redis_url is None:
        raise RuntimeError("create_app needs a redis_url; `python -m service serve` runs a private store by itself")
    url = settings.redis_url

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        connection = connect(url, deadline=settings.deadline, wait_replicas=settings.wait_replicas)
        store, log, late = Store(connection), Log(connection), LateLabels(connection)
        ingest = ingests(store, log, late, Refits(connection), queue=settings.queue, patience=settings.deadline)
        fits, forker, follower = FitQueue(connection), Forker(connection), Follower(connection)
        streams = Streams(settings.event_streams)
        keys = ApiKeys(connection)
        app.here = app.state.context = Context(
            settings, connection, store, log, late, fits, forker, follower, ingest, streams, keys
        )
        _close_on_signal(streams)
        yield
        await app.state.context.demos.close()
        await follower.close()
        await connection.close()

    app = App(
        HOT,
        asked_by,
        door=Door(own_hosts(settings.host, settings.hosts), settings.origins),
        keys=settings.with_keys,
        access_log=settings.access_log,
        direct=settings.direct,
        title="Horocycle",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        strict_content_type=False,
        docs_url=None,
        redoc_url=None,
    )
    app.router.routes.append(WebSocketRoute("/sessions/{id}/stream", stream))
    app.include_router(importing.router)  # before the route of JSON bodies
    for part in (sessions, metrics, certificate, events, log, fits, snapshot, disk, page, health, inference, pages):
        app.include_router(part.router)
    for extra in (fits.promotion, pages.problems, *([demo.router] if settings.demo else [])):
        app.include_router(extra)
    app.add_middleware(BodyLimit, limit=settings.session_body_limit, large=settings.body_limit)
    app.add_exception_handler(HorocycleError, handle)
    app.add_exception_handler(Exception, unexpected)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app


def _close_on_signal(streams: Streams) -> None:
    """The server waits for every answer to end before it does; a stream has to be told. By SIGUSR1: another worker has
    taken this one's place, so that probes which still come here hear that the service is ready"""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        before = signal.getsignal(number)

        def close(number: int, frame: FrameType | None, before: Any = before) -> None:
            streams.ending |= number != signal.SIGUSR1
            loop.call_soon_threadsafe(streams.closing.set)
            if callable(before):
                before(number, frame)

        signal.signal(number, close)


async def _invalid(request: Request, error: Exception) -> Response:
    """FastAPI's own validation, as one of our problems: of all that is wrong the deepest, in a union's best branch"""
    assert isinstance(error, RequestValidationError)
    return respond(_named(max(error.errors(), key=lambda each: len(each["loc"]))))


def _named(first: dict[str, Any]) -> HorocycleError:
    where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or FIELD.fullmatch(part))
    if first["type"] in ("json_invalid", "string_unicode"):
        return MalformedBody(f"the body is not JSON: {first['msg']}")
    if first["type"] == "extra_forbidden":
        return UnknownField(str(first["loc"][-1])[:100], "those of the documentation at /docs")
    if first["type"] == "finite_number":
        last = first["loc"][-1]
        return NonFinite(last if isinstance(last, int) else 0, first["input"], what=where.split(".")[0])
    if first["type"] in NUMBER and "labels" not in first["loc"] and not isinstance(first["input"], list | dict):
        return NotANumber(f"{where}: {first['msg']}", value=first["input"])
    return InvalidRequest(f"{where or 'the body'}: {first['msg']}", field=where)


async def _refused(request: Request, error: Exception) -> Response:
    """Starlette's own 404, 405 and 400, as one of our problems"""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return respond(UnknownRoute(request.url.path))
    if error.status_code == 405:
        response = respond(MethodNotAllowed(request.method, request.url.path))
        response.headers.update(error.headers or {})
        return response
    return respond(MalformedBody(str(error.detail)))
