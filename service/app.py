"""create_app(settings): the wiring. Imported by nobody but the launcher."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.api import health, sessions
from service.api.bodies import BodyLimit
from service.api.context import Context
from service.api.hot import Hot, HotRoutes
from service.api.observe import observe
from service.api.openapi import document
from service.api.predict import predict
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
from service.ingest import Ingest
from service.problems import handle, respond
from service.settings import Settings
from service.store import Store

VERSION = "0.1.0"
HOT = [
    Route("/sessions/{id}/observe", Hot(observe), methods=["POST"]),
    Route("/sessions/{id}/predict", Hot(predict), methods=["GET", "POST"]),
    Route("/predict", Hot(predict), methods=["GET"]),
]
FIELD = re.compile(r"(?!(?:body|int|str|float)$)[a-z_]+")  # pydantic names the branches of a union too: not those
NUMBER = ("float_type", "int_type")  # what pydantic says where a number belongs


def create_app(settings: Settings | None = None) -> FastAPI:
    settings = settings or Settings()
    if settings.redis_url is None:
        raise RuntimeError("create_app needs a redis_url; `python -m service serve` runs a private store by itself")
    url = settings.redis_url

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = Store(url, deadline=settings.deadline)
        ingest = Ingest(store, queue=settings.queue, patience=settings.deadline)
        app.state.context = Context(settings, store, ingest)
        yield
        await store.close()

    app = FastAPI(
        title="Horocycle", version=VERSION, lifespan=lifespan, redirect_slashes=False, strict_content_type=False
    )
    app.router.routes.extend(HOT)  # there they answer 405
    app.include_router(sessions.router)
    app.include_router(health.router)
    app.add_middleware(BodyLimit, limit=settings.session_body_limit)
    app.add_middleware(HotRoutes, routes=HOT)
    app.add_exception_handler(HorocycleError, handle)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app


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
        field, last = first["loc"][1], first["loc"][-1]
        return NonFinite(last if isinstance(last, int) else 0, first["input"], what=str(field))
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
