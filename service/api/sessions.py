"""Open, list, look at, change and end sessions; the published model."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from service.api.bodies import IdempotencyKey, JsonRoute, once
from service.api.context import context, shown, stamp
from service.api.schemas import ChangeSession, ImportSession, Model, Opening, OpenSession, Session, SessionList
from service.errors import InvalidParameter, InvalidSnapshot
from service.learners import strategic
from service.sessions import snapshot
from service.sessions.apply import classifier
from service.sessions.records import Change, Counters, Kept, Loaded
from service.sessions.spec import published

router = APIRouter(tags=["sessions"], route_class=JsonRoute)
stamped = [Depends(stamp)]


@router.post("/sessions", status_code=201, response_model=Session, dependencies=stamped, summary="Open a session")
async def open_session(body: Opening, request: Request, response: Response) -> dict[str, Any]:
    """With `snapshot`: a session exported elsewhere goes on here, under a new id."""
    kept = await run_in_threadpool(_imported, body) if isinstance(body, ImportSession) else _new(body)
    await context(request).store.open(kept)
    response.headers["Location"] = f"/sessions/{kept.loaded.spec.id}"
    return shown(kept.loaded)


def _new(body: OpenSession) -> Kept:
    spec = body.spec()
    status = "warming" if spec.warmup else "live"
    return Kept(Loaded(spec, 0, Counters(), spec.first_state(), status), b"", {}, [])


def _imported(body: ImportSession) -> Kept:
    snapshot.check(body.snapshot)
    try:
        session = OpenSession.model_validate(body.snapshot.get("session"))
    except ValidationError as error:
        raise InvalidSnapshot(f"the session of the snapshot: {error.errors()[0]['msg']}") from error
    named = session.model_copy(update={"id": body.id, "name": body.name or session.name})
    return snapshot.read(body.snapshot, named.spec())


@router.get("/sessions", response_model=SessionList, dependencies=stamped, summary="List the sessions, newest first")
async def list_sessions(
    request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100, cursor: str | None = None
) -> dict[str, Any]:
    """A learned reference point is shown by the session itself; the list says how it is learned."""
    found, following = await context(request).store.page(limit, cursor)
    return {"sessions": [shown(each) for each in found], "cursor": following}


@router.get("/sessions/{id}", response_model=Session, dependencies=stamped, summary="Look at a session")
async def look(id: str, request: Request) -> dict[str, Any]:
    return shown(await context(request).ingest.current(id))


@router.patch("/sessions/{id}", response_model=Session, dependencies=stamped, summary="Change a session")
async def change_session(
    id: str, body: ChangeSession, request: Request, idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """The name, the time to live and keep_points; or begin the estimate of a budget anew. What is left out stays."""
    key, mark = once(request, "change", body)
    return shown(await context(request).ingest.change(id, lambda loaded: _changed(loaded, body), key, mark))


def _changed(loaded: Loaded, body: ChangeSession) -> Change:
    given = body.model_dump(include=body.model_fields_set & {"name", "ttl_seconds", "keep_points"})
    spec, state, counters, events = replace(loaded.spec, **given), loaded.state, loaded.counters, []
    if spec.warmup > spec.keep_points and loaded.status == "warming":
        raise InvalidParameter("keep_points", spec.keep_points, f"at least the warmup of {spec.warmup}")
    if body.budget is not None:
        if not isinstance(state, strategic.State) or not state.estimating:
            raise InvalidParameter("budget", "estimate", "left out: this session estimates none")
        spec = replace(spec, budget=body.budget.estimate.initial)
        begun = spec.first_state()
        state = replace(state, alpha=begun.alpha, evidence=begun.evidence)
        counters = replace(counters, version=counters.version + 1)
        told = {"kind": "budget", "version": counters.version, **classifier(spec, state)}
        events.append(("model", orjson.dumps(told)))
    return Change(state, counters, loaded.status, loaded.tally, spec=spec, events=events)


@router.delete(
    "/sessions/{id}",
    status_code=204,
    dependencies=stamped,
    summary="End a session; its id is not given away again",
)
async def end(id: str, request: Request) -> None:
    here = context(request)
    await here.store.end(id)
    here.ingest.forget(id)


@router.get(
    "/sessions/{id}/model",
    response_model=Model,
    responses={304: {"description": "the version named by If-None-Match is still the current one"}},
    summary="The published classifier",
)
async def model(id: str, request: Request, response: Response) -> Any:
    here = context(request)
    loaded = await here.ingest.current(id)
    counters, tag = loaded.counters, f'"{loaded.counters.version}"'
    headers = {"ETag": tag, "Horocycle-Epoch": str(await here.store.epoch())}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return {**published(loaded.spec, loaded.state), "updates": counters.updates, "version": counters.version}
