"""The OpenAPI document: the hot routes, which are plain ASGI endpoints, shown as what they are; an example for every
route, and the problems that each can answer with."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Header, Query, Response
from fastapi.openapi.utils import get_openapi

from service import errors
from service.api.admission import PUBLIC
from service.api.door import PROBES
from service.api.examples import EXAMPLES
from service.api.formats import NDJSON, NPY, RAW
from service.api.problems import STATUS, about
from service.api.schemas import FitRequest, Inference, Labelled, Labels, Observe, Observed, Predict, Predicted, Problem
from service.errors import HorocycleError, InvalidInput, slug

DESCRIPTION = """Online classification in the Poincaré ball: stream labelled points, ask for predictions.

Every acknowledged point is applied exactly once, however a request is retried with its `Idempotency-Key`.
Errors are RFC 9457 problems."""

described = APIRouter(tags=["stream"])
Key = Annotated[str | None, Header(description="the same key and body again gets the stored answer")]
Match = Annotated[str | None, Header(description="the version of the model these points respond to")]
Reply = Annotated[Literal["columns", "summary"], Query(description="columns, or summary: without the columns")]
Sure = Annotated[bool, Query(description="the probabilities among the columns, where the learner has them")]
Coordinates = Annotated[
    Literal["poincare", "hyperboloid", "klein", "halfspace", "euclidean"],
    Query(description="of which model: poincare, hyperboloid (time first), klein, halfspace (height last), euclidean"),
]
Outside = Annotated[
    Literal["refuse", "clip"],
    Query(description="points beyond the radius limit: refuse, or clip, which the answer counts"),
]
Column = Annotated[
    Literal["index", "value"] | None,
    Query(description="npy and raw: the last column is the label's index, or its value, the label itself"),
]
X = Annotated[list[str] | None, Query(description="a point as comma-separated coordinates; repeat for more")]
MODEL = Annotated[str, Query(description="online, or the id of a fit")]


@described.post("/sessions/{id}/observe", response_model=Observed, summary="Predict, then learn, each labelled point")
def observe(
    id: str,
    body: Observe,
    reply: Reply = "columns",
    probabilities: Sure = False,
    label: Column = None,
    coordinates: Coordinates = "poincare",
    outside: Outside = "refuse",
    idempotency_key: Key = None,
    if_match: Match = None,
) -> Response:
    """For each labelled point, in order: predict, then learn. All or nothing, exactly once."""
    raise AssertionError("shown here, served by service.api.observe")


@described.post("/sessions/{id}/labels", response_model=Labelled, summary="Late labels")
def labels(
    id: str, body: Labels, reply: Reply = "columns", probabilities: Sure = False, idempotency_key: Key = None
) -> Response:
    """Late labels for points predicted with ids: each is observed now, once."""
    raise AssertionError("shown here, served by service.api.labels")


@described.get("/sessions/{id}/predict", response_model=Predicted, summary="Predict a point")
def predict(
    id: str, x: X = None, model: MODEL = "online", coordinates: Coordinates = "poincare", outside: Outside = "refuse"
) -> Response:
    """Predict one point, or more. Changes nothing."""
    raise AssertionError("shown here, served by service.api.predict")


@described.post("/sessions/{id}/predict", response_model=Predicted, summary="Predict many points")
def predict_many(
    id: str, body: Predict, model: MODEL = "online", coordinates: Coordinates = "poincare", outside: Outside = "refuse"
) -> Response:
    """Predict many points. With ids they wait for their labels; nothing is learned."""
    raise AssertionError("shown here, served by service.api.predict")


@described.get("/predict", response_model=Predicted, summary="Predict a point, in short")
def predict_short(
    session: str,
    x: X = None,
    model: MODEL = "online",
    coordinates: Coordinates = "poincare",
    outside: Outside = "refuse",
) -> Response:
    """The same, short form."""
    raise AssertionError("shown here, served by service.api.predict")


BINARY = {"schema": {"type": "string", "format": "binary"}}
FORMATS = {
    ("post", "/sessions"): (NDJSON,),
    ("post", "/sessions/{id}/observe"): (NDJSON, NPY, RAW),
    ("post", "/sessions/{id}/predict"): (NDJSON, NPY, RAW),
    ("post", "/sessions/{id}/labels"): (NDJSON,),
    ("post", "/sessions/{id}/fits"): (NPY, RAW),
}


#: Other forms of an answer, by Accept or ?format=.
ANSWERS = {("get", "/sessions/{id}/log"): (NDJSON, NPY), ("get", "/sessions/{id}/snapshot"): (NDJSON,)}
#: Answers that have columns come as rows too, if they are asked for so.
COLUMNS = {
    *(("post", "/sessions/{id}/observe"), ("post", "/sessions/{id}/predict")),
    *(("get", "/sessions/{id}/predict"), ("get", "/predict")),
}
SUMMARY = {
    "description": "with binary rows: what JSON says beside its columns, and `columns`, how many of each a row has",
    "schema": {"type": "string"},
    "example": '{"accepted":2,"mistakes":1,"session":{},"columns":{"predictions":1,"scores":1,"correct":1}}',
}


KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "an API key, where the service asks for keys: on any address but loopback",
}


def document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=[*described.routes, *app.routes]
        )
        for shown in (Problem, FitRequest, Inference):  # which no parameter is of
            own = shown.model_json_schema(ref_template="#/components/schemas/{model}")
            schema["components"]["schemas"] |= {**own.pop("$defs", {}), shown.__name__: own}
        schema["components"]["securitySchemes"] = {"key": KEY}
        schema["security"] = [{}, {"key": []}]
        _short_names(schema)
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                _complete(method, path, operation)
        app.openapi_schema = schema
    return app.openapi_schema


def _short_names(schema: dict[str, Any]) -> None:
    """operationId, which generated clients call their functions: ours' name, after the tag where two have the same"""
    named = [
        (method, path, operation, operation["operationId"].removesuffix(_suffix(method, path)))
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    count = Counter(name for *_, name in named)
    for _, _, operation, name in named:
        operation["operationId"] = name if count[name] == 1 else f"{operation['tags'][0]}_{name}"


def _suffix(method: str, path: str) -> str:
    """What FastAPI puts behind a function's name"""
    return re.sub(r"\W", "_", path) + f"_{method}"


def _complete(method: str, path: str, operation: dict[str, Any]) -> None:
    operation["responses"].pop("422", None)
    for kind in FORMATS.get((method, path), ()):
        operation["requestBody"]["content"][kind] = BINARY
    for kind in ANSWERS.get((method, path), ()):
        operation["responses"]["200"]["content"][kind] = BINARY
    if (method, path) in COLUMNS:
        answer = operation["responses"]["200"]
        answer["content"] |= dict.fromkeys((NPY, RAW), BINARY)
        answer["headers"] = {**answer.get("headers", {}), "Horocycle-Summary": SUMMARY}
    example = EXAMPLES[method, path]
    for parameter in operation.get("parameters", []):
        if (name := parameter["name"].lower()) in example.parameters:
            parameter["example"] = example.parameters[name]
    if example.body is not None:
        operation["requestBody"]["content"]["application/json"]["example"] = example.body
    for status, kinds in _problems(method, path).items():
        names = "; ".join(f"`{slug(kind)}`: {about(kind)}" for kind in kinds)
        content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        operation["responses"][str(status)] = {"description": names, "content": content}


STORE = (errors.StoreUnavailable, errors.StoreFull, errors.StoreReadOnly, errors.OutcomeUnknown)
BODY = (errors.MalformedBody, errors.BodyTooLarge, errors.UnsupportedMediaType, errors.UnknownField)
POINTS = (
    *(errors.EmptyBatch, errors.PointOutsideBall, errors.NonFinite, errors.NotANumber),
    *(errors.DimensionMismatch, errors.LengthMismatch),
)
FITTED = (errors.UnknownFit, errors.FitNotReady)
LEARNING = (errors.UnknownLabel, errors.KeyReused, errors.RateLimited, errors.SessionReplaying)
ONLY: dict[tuple[str, str], tuple[type[HorocycleError], ...]] = {
    ("post", "/sessions"): (
        *(errors.SessionExists, errors.BinaryOnly, errors.InvalidParameter, errors.InvalidSnapshot),
        *(errors.UnknownSession, errors.SessionGone, errors.StateCorrupt, errors.LogTrimmed),
        *(errors.PointOutsideBall, errors.NonFinite, errors.NotANumber, errors.DimensionMismatch),
    ),
    ("patch", "/sessions/{id}"): (
        *(errors.InvalidParameter, errors.NonFinite, errors.NotANumber),
        *(errors.KeyReused, errors.SessionReplaying),
    ),
    ("post", "/sessions/{id}/observe"): (*POINTS, *LEARNING, errors.StaleModel),
    ("post", "/sessions/{id}/labels"): (errors.EmptyBatch, errors.LengthMismatch, *LEARNING),
    ("get", "/sessions/{id}/predict"): (*POINTS, *FITTED, errors.UnknownField),
    ("get", "/predict"): (*POINTS, *FITTED, errors.UnknownField),
    ("post", "/sessions/{id}/predict"): (*POINTS, *FITTED, errors.IdReused, errors.RateLimited),
    ("get", "/sessions/{id}/certificate"): (errors.InvalidParameter, errors.EmptyClass),
    ("get", "/sessions/{id}/events"): (errors.RateLimited,),
    ("post", "/sessions/{id}/fits"): (
        *POINTS,
        *LEARNING,
        *(errors.EmptyClass, errors.TooManyPoints, errors.InvalidParameter, errors.NotSeparable, errors.FitFailed),
    ),
    ("get", "/sessions/{id}/fits/{fit}"): (errors.UnknownFit,),
    ("delete", "/sessions/{id}/fits/{fit}"): (errors.UnknownFit,),
    ("post", "/sessions/{id}/promote"): (
        *(errors.UnknownFit, errors.FitNotReady, errors.InvalidParameter),
        *(errors.KeyReused, errors.SessionReplaying),
    ),
    ("get", "/sessions/{id}/log"): (errors.LogTrimmed,),
    ("get", "/sessions/{id}/at/{position}/model"): (errors.LogTrimmed, errors.InvalidParameter),
    ("post", "/demo"): (errors.RateLimited, errors.InvalidRequest),
    ("post", "/v2/models/{id}/infer"): POINTS,
    ("get", "/problems/{slug}"): (errors.UnknownRoute,),
}


#: They ask nobody.
STATIC = ("/", "/sessions/{id}/live", "/demo", "/problems")


def _problems(method: str, path: str) -> dict[int, list[type[HorocycleError]]]:
    """What this route can answer instead, by status"""
    kinds: list[type[HorocycleError]] = [*ONLY.get((method, path), ())]
    kinds += _at_the_door(method, path)
    if method == "get" and path in STATIC:
        return _by_status(kinds)
    if path not in ("/health/live", "/v2", "/v2/health/live", "/metrics", "/problems/{slug}"):
        kinds += STORE
    if "{id}" in path or path == "/predict":
        kinds += [errors.UnknownSession, errors.SessionGone, errors.StateCorrupt]
    if method in ("post", "patch"):
        kinds += BODY
    if "{id}" in path or path in ("/predict", "/sessions"):
        kinds.append(errors.InvalidRequest)
    return _by_status(kinds)


def _at_the_door(method: str, path: str) -> list[type[HorocycleError]]:
    """Where API keys are asked for; of a request by a name that is not ours; of one that writes, from a foreign page"""
    kinds: list[type[HorocycleError]] = [] if path in PROBES else [errors.UnknownHost]
    if not PUBLIC.fullmatch(path):
        kinds += [errors.Unauthenticated, errors.ScopeMissing, errors.RateLimited]
    if path in ("/sessions", "/demo") and method == "post":
        kinds.append(errors.SessionQuota)
    return kinds if method == "get" else [*kinds, errors.CrossSite]


def _by_status(kinds: list[type[HorocycleError]]) -> dict[int, list[type[HorocycleError]]]:
    found: dict[int, list[type[HorocycleError]]] = {}
    for kind in dict.fromkeys(kinds):
        found.setdefault(STATUS[kind], []).append(kind)
    assert all(issubclass(kind, InvalidInput | HorocycleError) for kind in kinds)
    return dict(sorted(found.items()))
