"""The OpenAPI document. The hot routes are plain ASGI endpoints; here they are shown as what they are."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Query, Response
from fastapi.openapi.utils import get_openapi

from service.problems import STATUS, slug
from service.schemas import Observe, Observed, Predict, Predicted, Problem

DESCRIPTION = """Online classification in the Poincaré ball: stream labelled points, ask for predictions.

Every acknowledged point is applied exactly once, however a request is retried with its `Idempotency-Key`.
Errors are RFC 9457 problems."""

RAW = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
described = APIRouter(tags=["stream"])
Key = Annotated[str | None, Header(description="the same key and body again gets the stored answer")]
Match = Annotated[str | None, Header(description="the version of the model these points respond to")]
X = Annotated[list[str] | None, Query(description="a point as comma-separated coordinates; repeat for more")]


@described.post("/sessions/{id}/observe", response_model=Observed, openapi_extra={"requestBody": {"content": RAW}})
def observe(
    id: str, body: Observe, reply: str = "columns", idempotency_key: Key = None, if_match: Match = None
) -> Response:
    """For each labelled point, in order: predict, then learn. All or nothing, exactly once."""
    raise AssertionError("shown here, served by service.api.observe")


@described.get("/sessions/{id}/predict", response_model=Predicted)
def predict(id: str, x: X = None) -> Response:
    """Predict one point, or more. Changes nothing."""
    raise AssertionError("shown here, served by service.api.predict")


@described.post("/sessions/{id}/predict", response_model=Predicted, openapi_extra={"requestBody": {"content": RAW}})
def predict_many(id: str, body: Predict) -> Response:
    """Predict many points. Changes nothing."""
    raise AssertionError("shown here, served by service.api.predict")


@described.get("/predict", response_model=Predicted)
def predict_short(session: str, x: X = None) -> Response:
    """The same, short form."""
    raise AssertionError("shown here, served by service.api.predict")


def document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=[*described.routes, *app.routes]
        )
        problems = ", ".join(sorted(f"{status} {slug(kind)}" for kind, status in STATUS.items()))
        schema["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": f"A problem: {problems}", "content": content}
        app.openapi_schema = schema
    return app.openapi_schema
