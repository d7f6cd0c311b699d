"""Predict by the Open Inference Protocol, version 2, which clients of KServe, MLServer and Triton speak.

A session is a model, its `version` the model's. One input, `points`, n×d of FP64 or FP32; outputs `scores`, `index` and
`label`. Inputs may follow the JSON as bytes (Inference-Header-Content-Length); answers are JSON. An error is a problem
with one member more, `error`, where those clients look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute

from service import __version__
from service.api.context import context, stamp
from service.api.formats import load_json
from service.api.predict import predicted
from service.api.problems import respond
from service.api.schemas import Inferred, ModelMetadata, Ready, ServerMetadata
from service.api.writing import dump, offload, require_bounded
from service.errors import (
    BodyTooLarge,
    DimensionMismatch,
    HorocycleError,
    InvalidRequest,
    MalformedBody,
    NotANumber,
    outer,
)
from service.geometry import Array, require_ball
from service.sessions.spec import Spec

#: The types of an input, as NumPy has them.
TYPES = {"FP64": "<f8", "FP32": "<f4"}


class _Route(APIRoute):
    """Problems that say `error`"""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except HorocycleError as error:
                return respond(error, error=error.detail)

        return answered


router = APIRouter(prefix="/v2", tags=["inference"], route_class=_Route)


@router.get("", response_model=ServerMetadata, summary="What this server is")
async def server() -> dict[str, Any]:
    return {"name": "horocycle", "version": __version__, "extensions": ["binary_tensor_data"]}


@router.get("/health/live", response_model=Ready, summary="The process is up")
async def alive() -> dict[str, bool]:
    return {"live": True}


@router.get("/health/ready", response_model=Ready, summary="The store answers")
async def serving(request: Request) -> dict[str, bool]:
    await context(request).connection.ping()
    return {"ready": True}


stamped = [Depends(stamp)]


@router.get("/models/{id}", response_model=ModelMetadata, dependencies=stamped, summary="A session as a model")
async def metadata(id: str, request: Request) -> dict[str, Any]:
    loaded = await context(request).ingest.current(id)
    spec = loaded.spec
    width = [-1] if len(spec.labels) == 2 else [-1, len(spec.labels)]
    return {
        "name": outer(id),
        "versions": [str(loaded.counters.version)],
        "platform": "horocycle",
        "inputs": [{"name": "points", "datatype": "FP64", "shape": [-1, spec.dimension]}],
        "outputs": [
            {"name": "scores", "datatype": "FP64", "shape": width},
            {"name": "index", "datatype": "INT64", "shape": [-1]},
            {"name": "label", "datatype": _label_type(spec), "shape": [-1]},
        ],
    }


@router.get("/models/{id}/ready", response_model=Ready, dependencies=stamped, summary="The session is there")
async def model_ready(id: str, request: Request) -> dict[str, Any]:
    await context(request).ingest.current(id)
    return {"name": outer(id), "ready": True}


@router.post(
    "/models/{id}/infer",
    response_model=Inferred,
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Inference"}}}}
    },
    summary="Predict, by the Open Inference Protocol",
)
async def infer(id: str, request: Request) -> Response:
    """Changes nothing."""
    body, head = await request.body(), request.headers.get("inference-header-content-length")
    loaded = await context(request).ingest.current(id)
    spec = loaded.spec
    asked, X = await offload(len(body), _understood, body, head, spec, context(request).settings.json_limit)
    require_bounded(spec, len(X))
    work = len(X) * max(loaded.learner_bytes, spec.row_bytes)
    scores = np.asarray((await offload(work, predicted, loaded, X))["scores"])
    told = {"model_name": outer(id), "model_version": str(loaded.counters.version)}
    response = Response(await offload(scores.size, _written, told, asked, spec, scores), media_type="application/json")
    await stamp(request, response)
    return response


def _understood(body: bytes, head: str | None, spec: Spec, limit: int) -> tuple[Any, Array]:
    """What is asked for, and the points; `limit`: bytes that the JSON may have"""
    length = _length(body, head)
    if length > limit:
        raise BodyTooLarge(limit, "bytes of JSON", "; send the numbers behind it, as bytes")
    asked = load_json(body[:length])
    return asked, require_ball(_points(asked, body[length:], spec.dimension), spec.dimension, c=spec.curvature)


def _length(body: bytes, head: str | None) -> int:
    """Of the JSON: `head` says where the numbers behind it begin, None that there are none"""
    if head is None:
        return len(body)
    if not (head.isascii() and head.isdigit() and len(head) < 19 and int(head) <= len(body)):
        raise InvalidRequest(f"{head[:20]!r} is not the length of the JSON", header="Inference-Header-Content-Length")
    return int(head)


def _written(told: dict[str, Any], asked: dict[str, Any], spec: Spec, scores: Array) -> bytes:
    return dump({**told, **_answer(asked, spec, scores)})


def _answer(asked: dict[str, Any], spec: Spec, scores: Array) -> dict[str, Any]:
    """The outputs that were asked for, all if none was named, and the id that was given"""
    indices, shape = spec.decide(scores), [len(scores)]
    names = _named(spec.names(indices), spec)
    outputs: list[dict[str, Any]] = [
        {"name": "scores", "datatype": "FP64", "shape": list(scores.shape), "data": scores.ravel()},
        {"name": "index", "datatype": "INT64", "shape": shape, "data": indices},
        {"name": "label", "datatype": _label_type(spec), "shape": shape, "data": names},
    ]
    wanted = [each.get("name") for each in asked.get("outputs") or [] if isinstance(each, dict)]
    shown = [each for each in outputs if each["name"] in wanted] if wanted else outputs
    return {"outputs": shown, **({"id": asked["id"]} if "id" in asked else {})}


def _points(asked: Any, after: bytes, d: int) -> Array:
    """The rows of the one input"""
    inputs = asked.get("inputs") if isinstance(asked, dict) else None
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise InvalidRequest("the body needs one input, 'points', of shape n×d", field="inputs")
    given = inputs[0]
    kind, shape = given.get("datatype"), given.get("shape")
    if not isinstance(kind, str) or kind not in TYPES:
        raise NotANumber(f"the datatype is {str(kind)[:20]!r}; it may be {' or '.join(TYPES)}", value=str(kind)[:20])
    if not isinstance(shape, list) or len(shape) != 2 or any(type(n) is not int or n < 1 for n in shape):
        raise InvalidRequest(f"the shape is {str(shape)[:50]}; it must be n×{d}", field="shape")
    if shape[1] != d:
        raise DimensionMismatch(d, shape[1])
    if "data" in given:
        try:
            rows = np.array(given["data"], dtype=object).ravel()
        except ValueError:
            raise NotANumber("the data are not rows of equal length", value=None) from None
        if any(type(value) not in (int, float) for value in rows):
            raise NotANumber("the data hold what is not a number", value=None)
        found = rows.astype(np.float64)
    else:
        try:
            found = np.frombuffer(after, dtype=TYPES[kind]).astype(np.float64)
        except ValueError as error:
            raise MalformedBody(f"the bytes behind the JSON are no {kind}") from error
    if found.size != shape[0] * shape[1]:
        raise MalformedBody(f"the data have {found.size} numbers, not {shape[0]}×{shape[1]}")
    return np.asarray(found.reshape(shape))


def _label_type(spec: Spec) -> str:
    return {frozenset({int}): "INT64", frozenset({bool}): "BOOL"}.get(frozenset(spec.label_types), "BYTES")


def _named(names: list[Any], spec: Spec) -> list[Any]:
    return [str(name) for name in names] if _label_type(spec) == "BYTES" else names
