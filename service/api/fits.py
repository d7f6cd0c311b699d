"""Batch classifiers as jobs: ask for one, look how far it is, cancel it, promote it to the online learner."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from service.api.bodies import IdempotencyKey, JsonRoute, once
from service.api.bodies import idempotency_key as key_of
from service.api.context import Context, context, stamp
from service.api.formats import JSON, NPY, RAW, READING, Reading, load_json, media_type, read_labelled, reading
from service.api.schemas import Fit, FitList, FitRequest, Promote, Promoted
from service.api.writing import offload
from service.batch.classifier import Classifier
from service.errors import InvalidParameter, InvalidRequest, MalformedBody, ScopeMissing, UnknownField, outer
from service.fits.roots import require_allowed
from service.sessions import changes, recipes, rows
from service.sessions.promotion import agreement
from service.sessions.records import Loaded
from service.sessions.rows import Batch
from service.sessions.showing import shown
from service.sessions.tenants import DEFAULT
from service.settings import LOOPBACK
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
    """On the retained points, on a body of labelled rows (npy, or raw float64), or on files (`data`). The fields come
    as JSON, or, where the body is empty or holds points, as query parameters. A job: look at it until it is done, then
    `predict?model={fit}`."""
    here, key = context(request), key_of(request.headers)
    loaded, asked = await here.ingest.current(id), await _asked(request)
    fields, files = recipes.resolved(asked.recipe.model_dump(), loaded), asked.recipe.data
    if files is not None:
        _require_files(request, files, asked.kind)
    named = fields if files is None else {**fields, "data": files}
    fit, mark = name_of(key), await asyncio.to_thread(asked.fingerprint, named)
    response.headers["Location"] = f"/sessions/{outer(id)}/fits/{fit}"
    if key is not None and await here.fits.known(id, fit, mark):
        response.headers["Idempotency-Replayed"] = "true"
        return await here.fits.look(id, fit)
    if files is not None:
        job, packed = recipes.job_on_files(fields, loaded, files), b""
    else:
        points = await _points(here, loaded, asked)
        job, packed = recipes.job(fields, loaded, points, here.settings.fit_points), rows.pack(points)
    if not await here.fits.submit(id, fit, mark, job, packed, ttl=loaded.spec.ttl_seconds or 0):
        response.headers["Idempotency-Replayed"] = "true"
    return await here.fits.look(id, fit)


async def _points(here: Context, loaded: Loaded, asked: _Asked) -> Batch:
    """The retained ones, or those that the request brought along"""
    brought = asked.kind != JSON
    return await (asyncio.to_thread(asked.points, loaded) if brought else here.log.retained(loaded))


def _require_files(request: Request, url: str, kind: str) -> None:
    """That whoever asks is an administrator of this service, and the files are where fits may read"""
    settings, key = context(request).settings, request.scope.get("key")
    if kind != JSON:
        raise InvalidRequest("data names files: a body of points beside it has no place", parameter="data")
    if key is not None and key.tenant != DEFAULT:
        raise ScopeMissing(f"admin, of the tenant {DEFAULT}")
    if key is None and settings.host not in LOOPBACK:
        raise InvalidParameter("data", url, "left out: without API keys that is for loopback alone")
    require_allowed(url, settings.fit_data)


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


@promotion.post("/sessions/{id}/promote", response_model=Promoted, summary="Start the online learner from a fit")
async def promote(id: str, body: Promote, request: Request, idempotency_key: IdempotencyKey = None) -> dict[str, Any]:
    """The learner begins anew from the fit, and answers as the fit does: updates restart, the version grows. Of `auto`
    a member does. Its certificates keep the weights it began with. A fit that it cannot go on from is refused."""
    here = context(request)
    loaded = await here.ingest.current(id)
    key, mark = once(request, "promote", body)
    if key is not None and await here.store.answer(id, key) == mark:  # even if the fit is forgotten by now
        return {**shown(loaded), "agreement": None}
    classifier = await fitted(here, id, body.fit)
    points = await here.log.retained(loaded, here.settings.fit_points)
    learner, change = await asyncio.to_thread(changes.promotion, loaded, classifier, body.fit, body.member)
    agreed = await asyncio.to_thread(agreement, loaded.spec, learner, classifier, points)
    return {**shown(await here.ingest.change(id, change, key, mark)), "agreement": agreed}


async def fitted(here: Context, sid: str, fit: str) -> Classifier:
    """The classifier of a fit that is done. What its owner made never changes, but it may be gone."""
    kept, owner = here.classifiers, await here.fits.owner(sid, fit)
    if (sid, owner) in kept:
        return kept[sid, owner]
    found = kept[sid, owner] = Classifier.unpack(await here.fits.model(sid, fit))
    while len(kept) > AT_HAND:
        del kept[next(iter(kept))]
    return found


@dataclass(frozen=True)
class _Asked:
    """A request for a fit"""

    recipe: FitRequest
    kind: str  # JSON: on the retained points
    body: bytes
    how: Reading

    def points(self, loaded: Loaded) -> Batch:
        """Those that it brought along"""
        return read_labelled(self.body, self.kind, loaded.spec, self.how)

    def fingerprint(self, fields: dict[str, Any]) -> bytes:
        """What a key belongs to: what was asked for, and the points if it brought them along"""
        own = b"" if self.kind == JSON else self.body
        return sha256(f"{self.how}{self.kind} {json.dumps(fields, sort_keys=True)} ".encode() + own).digest()[:16]


async def _asked(request: Request) -> _Asked:
    body, given = await request.body(), request.headers.get("content-type")
    kind = media_type(given if given or body else JSON, request.headers.get("content-encoding"), (JSON, NPY, RAW))
    told, query = kind == JSON and body != b"", request.query_params
    how = reading({name: value for name, value in query.items() if name in READING})
    if told and (beside := next(iter(query), None)):
        raise InvalidRequest("fields come in a JSON body or in the query, not in both", parameter=beside)
    try:
        recipe = await offload(len(body), _recipe, body) if told else FitRequest.model_validate(_query(request))
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from error
    return _Asked(recipe, kind, body, how)


def _recipe(body: bytes) -> FitRequest:
    return FitRequest.model_validate(load_json(body))


def _query(request: Request) -> dict[str, Any]:
    """The fields as query parameters: numbers and booleans as JSON has them, a point as 0.1,0.2"""
    fields: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name in READING:
            continue
        if name not in FitRequest.model_fields:
            raise UnknownField(name[:100], ", ".join((*FitRequest.model_fields, *READING)))
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
