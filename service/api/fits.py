"""Batch classifiers as jobs: ask for one, look how far it is, cancel it, promote it to the online learner."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from numpy.typing import NDArray
from pydantic import ValidationError

from service.api.bodies import IdempotencyKey, JsonRoute, once
from service.api.bodies import idempotency_key as key_of
from service.api.context import Context, context, shown, stamp
from service.api.formats import JSON, NPY, RAW, load_json, media_type, read_labelled
from service.api.schemas import Fit, FitList, FitRequest, Promote, Session
from service.batch.classifier import Classifier, Recipe, require
from service.errors import InvalidParameter, InvalidRequest, MalformedBody, UnknownField
from service.geometry import require_ball
from service.sessions.apply import classifier as published_classifier
from service.sessions.promotion import promoted
from service.sessions.records import Change, Loaded
from service.sessions.spec import Spec, references
from service.store.fit_queue import name_of

router = APIRouter(tags=["fits"], dependencies=[Depends(stamp)])
#: How many classifiers a worker keeps at hand.
AT_HAND = 64


@router.post(
    "/sessions/{id}/fits",
    status_code=202,
    response_model=Fit,
    openapi_extra={"requestBody": {"content": {JSON: {"schema": {"$ref": "#/components/schemas/FitRequest"}}}}},
    summary="Fit a batch classifier",
)
async def ask(
    id: str,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """On the retained points, or on a body of labelled rows (npy, or raw float64). The fields come as JSON, or, where
    the body is empty or holds points, as query parameters. A job: look at it until it is done, then
    `predict?model={fit}`."""
    here, key = context(request), key_of(request.headers)
    kind = media_type(request.headers.get("content-type"), request.headers.get("content-encoding"), (JSON, NPY, RAW))
    body, loaded = await request.body(), await here.ingest.current(id)
    spec = loaded.spec
    told = kind == JSON and body != b""
    if told and (beside := next(iter(request.query_params), None)):
        raise InvalidRequest("fields come in a JSON body or in the query, not in both", parameter=beside)
    asked = _asked(load_json(body) if told else _query(request))
    fit, mark = name_of(key), await asyncio.to_thread(_fingerprint, asked, kind, body)
    response.headers["Location"] = f"/sessions/{id}/fits/{fit}"
    if key is not None and await here.fits.known(id, fit, mark):
        response.headers["Idempotency-Replayed"] = "true"
        return await here.fits.look(id, fit)
    if kind == JSON:
        points = await here.store.points(id)
        rows = np.frombuffer(points, dtype="<f8").reshape(-1, spec.dimension + 1)[-spec.keep_points or len(points) :]
        indices = rows[:, -1].astype(np.int64)
        points = rows.tobytes()
    else:
        indices, points = await asyncio.to_thread(_uploaded, body, kind, spec)
    recipe = _recipe(asked, loaded)
    require(recipe, spec.labels, indices, here.settings.fit_points)
    job = {
        "recipe": asdict(recipe),
        "asked": asked.model_dump(),
        "dimension": spec.dimension,
        "classes": len(spec.labels),
        "curvature": spec.curvature,
    }
    limits = {"keep_events": spec.keep_events, "ttl": spec.ttl_seconds or 0}
    new = await here.fits.submit(id, fit, mark, job, points, **limits)
    if not new:
        response.headers["Idempotency-Replayed"] = "true"
    return await here.fits.look(id, fit)


@router.get("/sessions/{id}/fits", response_model=FitList, summary="List the fits of a session, newest first")
async def list_fits(id: str, request: Request) -> dict[str, Any]:
    await context(request).ingest.current(id)
    return {"fits": await context(request).fits.all(id)}


@router.get("/sessions/{id}/fits/{fit}", response_model=Fit, summary="How far a fit is, and what it came to")
async def look(id: str, fit: str, request: Request) -> dict[str, Any]:
    await context(request).ingest.current(id)
    return await context(request).fits.look(id, fit)


@router.delete("/sessions/{id}/fits/{fit}", status_code=204, summary="Cancel a fit; forget one that has ended")
async def cancel(id: str, fit: str, request: Request) -> None:
    await context(request).ingest.current(id)
    await context(request).fits.cancel(id, fit)


promotion = APIRouter(tags=["fits"], dependencies=[Depends(stamp)], route_class=JsonRoute)


@promotion.post(
    "/sessions/{id}/promote", response_model=Session, summary="Start the online learner from a fit's weights"
)
async def promote(id: str, body: Promote, request: Request, idempotency_key: IdempotencyKey = None) -> dict[str, Any]:
    """The learner begins anew at the fit's reference point, with its weights: updates restart, the version grows. Its
    certificates keep the weights it began with."""
    here = context(request)
    loaded = await here.ingest.current(id)
    key, mark = once(request, "promote", body)
    if key is not None and await here.store.answer(id, key) == mark:  # even if the fit is forgotten by now
        return shown(loaded)
    classifier = await fitted(here, id, body.fit)
    return shown(await here.ingest.change(id, lambda loaded: _promoted(loaded, classifier, body.fit), key, mark))


def _promoted(loaded: Loaded, classifier: Classifier, fit: str) -> Change:
    spec, counters = loaded.spec, replace(loaded.counters, updates=0, version=loaded.counters.version + 1)
    state = promoted(spec, loaded.state, classifier)
    told = {"kind": "promotion", "fit": fit, "version": counters.version, **published_classifier(spec, state)}
    return Change(state, counters, "live", loaded.tally, events=[("model", orjson.dumps(told))])


async def fitted(here: Context, sid: str, fit: str) -> Classifier:
    """The classifier of a fit that is done. What its owner made never changes, but it may be gone."""
    kept, owner = here.classifiers, await here.fits.owner(sid, fit)
    if (sid, owner) in kept:
        return kept[sid, owner]
    found = kept[sid, owner] = Classifier.unpack(await here.fits.model(sid, fit))
    while len(kept) > AT_HAND:
        del kept[next(iter(kept))]
    return found


def _asked(fields: Any) -> FitRequest:
    try:
        return FitRequest.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from error


def _query(request: Request) -> dict[str, Any]:
    """The fields as query parameters: numbers and booleans as JSON has them, a point as 0.1,0.2"""
    fields: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name not in FitRequest.model_fields:
            raise UnknownField(name[:100], ", ".join(FitRequest.model_fields))
        if name == "reference" and not values[-1].isalpha():
            try:
                rows = [[float(x) for x in value.split(",")] for value in values]
                fields[name] = rows if len(rows) > 1 else rows[0]
            except ValueError:
                what = f"reference is {values[0]!r}, not numbers with commas between"
                raise InvalidRequest(what, parameter=name) from None
        elif name in ("C", "probabilities"):
            try:
                fields[name] = load_json(values[-1].encode())
            except MalformedBody:
                raise InvalidRequest(f"{name} is {values[-1]!r}", parameter=name) from None
        else:
            fields[name] = values[-1]
    return fields


def _recipe(asked: FitRequest, loaded: Loaded) -> Recipe:
    spec = loaded.spec
    given: Any = asked.reference
    if asked.kind == "softmax" and asked.margin == "hard":
        raise InvalidParameter("margin", "hard", "soft: a softmax has no margin")
    if asked.kind == "softmax" or asked.features == "hyperboloid":
        given = "hull"  # not asked for: there is none
    elif given == "session":
        given = references(spec, loaded.state)
        if given is None:
            raise InvalidParameter("reference", "session", "another: a hyperboloid session has no reference point")
    elif isinstance(given, list):
        given = given if given and isinstance(given[0], list) else [given]
        _in_the_ball(given, spec)
    features = "hyperboloid" if asked.kind == "softmax" else asked.features
    fields = asked.model_dump(include={"kind", "margin", "loss", "C", "probabilities"})
    return Recipe(**fields, features=features, reference=given)


def _in_the_ball(points: list[list[float]], spec: Spec) -> None:
    for point in points:
        require_ball([point], spec.dimension, c=spec.curvature)


def _fingerprint(asked: FitRequest, kind: str, body: bytes) -> bytes:
    """What a key belongs to: what was asked for, and the points if it brought them along"""
    return sha256(f"{kind} {asked.model_dump_json()} ".encode() + (b"" if kind == JSON else body)).digest()[:16]


def _uploaded(body: bytes, kind: str, spec: Spec) -> tuple[NDArray[np.int64], bytes]:
    """The labels, and the rows as they are stored"""
    batch = read_labelled(body, kind, spec)
    return batch.indices, np.column_stack([batch.X, batch.indices]).tobytes()
