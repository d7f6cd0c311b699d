"""Every error as an RFC 9457 problem: the mapping, once, and proven total by a test."""

from __future__ import annotations

import logging
import math
import re
from typing import Any

import orjson
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from service import errors
from service.errors import HorocycleError, described

log = logging.getLogger(__name__)

STATUS: dict[type[HorocycleError], int] = {
    errors.MalformedBody: 400,
    errors.BodyTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.UnknownField: 422,
    errors.InvalidRequest: 422,
    errors.EmptyBatch: 422,
    errors.PointOutsideBall: 422,
    errors.NonFinite: 422,
    errors.NotANumber: 422,
    errors.DimensionMismatch: 422,
    errors.LengthMismatch: 422,
    errors.UnknownLabel: 422,
    errors.BinaryOnly: 422,
    errors.InvalidParameter: 422,
    errors.IdReused: 422,
    errors.InvalidSnapshot: 422,
    errors.EmptyClass: 422,
    errors.TooManyPoints: 422,
    errors.AnswerTooLarge: 422,
    errors.NotSeparable: 422,
    errors.NotConverged: 422,
    errors.Unauthenticated: 401,
    errors.ScopeMissing: 403,
    errors.UnknownHost: 421,
    errors.CrossSite: 403,
    errors.UnknownSession: 404,
    errors.SessionGone: 410,
    errors.SessionExists: 409,
    errors.SessionReplaying: 409,
    errors.LogTrimmed: 410,
    errors.UnknownFit: 404,
    errors.FitNotReady: 409,
    errors.FitFailed: 409,
    errors.UnknownRoute: 404,
    errors.MethodNotAllowed: 405,
    errors.StaleModel: 412,
    errors.KeyReused: 422,
    errors.EarlierConnection: 409,
    errors.RateLimited: 429,
    errors.SessionQuota: 429,
    errors.StoreUnavailable: 503,
    errors.StoreFull: 503,
    errors.StoreReadOnly: 503,
    errors.OutcomeUnknown: 504,
    errors.StateCorrupt: 500,
    errors.InternalError: 500,
}
RETRY_LATER = (
    *(errors.RateLimited, errors.SessionQuota),
    *(errors.StoreUnavailable, errors.StoreFull, errors.StoreReadOnly),
)


def about(kind: type[HorocycleError]) -> str:
    """What it means, as the tree on top of errors.py says"""
    found = re.search(rf"─ {kind.__name__} +(.+)", errors.__doc__ or "")
    assert found is not None, kind
    return found.group(1)[0].upper() + found.group(1)[1:] + "."


def problem(error: HorocycleError) -> dict[str, Any]:
    return {**described(error), "status": STATUS[type(error)]}


def _written(document: dict[str, Any]) -> bytes:
    """As JSON; an integer beyond 64 bits, which orjson refuses, as text"""
    big = {name: str(value) for name, value in document.items() if isinstance(value, int) and value.bit_length() > 63}
    return orjson.dumps({**document, **big}, default=str)


def respond(error: HorocycleError, /, **members: Any) -> Response:
    """The problem, with these members more"""
    if STATUS[type(error)] == 500:
        log.error("%s %s", error.detail, error.members)
    headers = {}
    if isinstance(error, RETRY_LATER):
        headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "retry_after", 1))))
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.StaleModel):
        headers["ETag"] = f'"{error.version}"'
    return Response(_written({**problem(error), **members}), STATUS[type(error)], headers, "application/problem+json")


async def handle(request: Request, error: Exception) -> Response:
    """The app's one exception handler"""
    assert isinstance(error, HorocycleError)
    return respond(error)


async def unexpected(request: Request, error: Exception) -> Response:
    return failure(error)


def failure(error: Exception) -> Response:
    """Whatever no one foresaw. A script of the store that crashed may have written before it did"""
    return respond(errors.OutcomeUnknown() if isinstance(error, RedisError) else errors.InternalError())
