"""Open, list, look at, change and end sessions; the published model."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.admission import require_room, tenant_in
from service.api.bodies import IdempotencyKey, JsonRoute, once
from service.api.context import Context, context, stamp
from service.api.formats import JSON
from service.api.log import model_body
from service.api.opening import forked, imported, merging
from service.api.schemas import (
    ChangeSession,
    ForkSession,
    ImportSession,
    MergeSessions,
    Model,
    Opening,
    Session,
    SessionList,
)
from service.api.writing import offload
from service.errors import InvalidParameter, OutcomeUnknown, SessionReplaying, StoreUnavailable
from service.ingest import WRITABLE
from service.sessions.changes import with_budget, with_labels, with_member, with_settings
from service.sessions.merging import merged, require_alike
from service.sessions.opening import first_session
from service.sessions.records import Change, Loaded
from service.sessions.showing import shown
from service.sessions.spec import Spec
from service.sessions.tenants import inner, outer

router = APIRouter(tags=["sessions"], route_class=JsonRoute)
#: Bytes of the learners that may be merged at once.
MERGED = 64 << 20
stamped = [Depends(stamp)]


@router.post("/sessions", status_code=201, response_model=Session, dependencies=stamped, summary="Open a session")
async def open_session(body: Opening, request: Request, response: Response) -> dict[str, Any]:
    """With `snapshot`: a session exported elsewhere goes on here, under a new id; a snapshot in pieces is the body, as
    NDJSON, with `id` and `name` in the query. With `fork`: a new session from another's log, replayed on the server.
    With `merge`: what several gaussian sessions have learned, added up."""
    here, tenant = context(request), tenant_in(request.scope)
    await require_room(here, request.scope)
    loaded = await _opened(here, tenant, body)
    response.headers["Location"] = f"/sessions/{outer(loaded.spec.id)}"
    try:
        response.headers["Horocycle-Epoch"] = str(await here.connection.epoch(loaded.spec.id))
    except StoreUnavailable as error:  # which says that nothing was changed, and it was
        raise OutcomeUnknown from error
    return shown(loaded)


@router.get("/sessions", response_model=SessionList, dependencies=stamped, summary="List the sessions, newest first")
async def list_sessions(
    request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100, cursor: str | None = None
) -> dict[str, Any]:
    """A learned reference point is shown by the session itself; the list says how it is learned."""
    found, following = await context(request).store.page(limit, cursor, tenant_in(request.scope))
    return {"sessions": [shown(each) for each in found], "cursor": following}


async def _opened(here: Context, tenant: str, body: Opening) -> Loaded:
    if isinstance(body, ForkSession):
        source = await here.ingest.current(inner(tenant, body.fork.session))
        return await here.forker.open(source, owned(tenant, forked(body, source.spec)), body.fork.at)
    if isinstance(body, MergeSessions):
        parts, size = list[Loaded](), 0
        for id in body.merge.sessions:
            parts.append(await here.ingest.current(inner(tenant, id)))
            size += parts[-1].learner_bytes
            if size > MERGED:
                raise InvalidParameter("merge", f"{size} bytes of learners", f"at most {MERGED}: merge fewer at once")
        require_alike([each.spec for each in parts])
        for each in parts:
            if each.status not in WRITABLE:
                raise SessionReplaying(each.spec.id, each.status)
        spec = owned(tenant, merging(body, parts[0].spec))
        return await here.store.open(await run_in_threadpool(merged, spec, parts))
    if isinstance(body, ImportSession):
        kept = await run_in_threadpool(imported, body)
        spec = owned(tenant, kept.loaded.spec)
        return await here.store.restore(replace(kept, loaded=replace(kept.loaded, spec=spec)))
    return await here.store.open(first_session(owned(tenant, body.spec())))


def owned(tenant: str, spec: Spec) -> Spec:
    return replace(spec, id=inner(tenant, spec.id))


@router.get("/sessions/{id}", response_model=Session, dependencies=stamped, summary="Look at a session")
async def look(id: str, request: Request) -> dict[str, Any]:
    return shown(await context(request).ingest.current(id))


@router.patch("/sessions/{id}", response_model=Session, dependencies=stamped, summary="Change a session")
async def change_session(
    id: str, body: ChangeSession, request: Request, idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """The name, the time to live, keep_points and refits; add labels; keep one member of `auto` alone; begin the
    estimate of a budget anew. What is left out stays."""
    settings = body.model_dump(include=body.model_fields_set & {"name", "ttl_seconds", "keep_points"})
    settings |= {} if body.refit is None else {"refit": body.refit == "doubling"}

    def changed(loaded: Loaded) -> Change:
        change = with_settings(loaded, settings)
        change = change if body.algorithm is None else with_member(change, body.algorithm)
        change = change if body.add_labels is None else with_labels(change, body.add_labels)
        return change if body.budget is None else with_budget(change, body.budget.estimate.initial)

    key, mark = once(request, "change", body)
    return shown(await context(request).ingest.change(id, changed, key, mark))


@router.delete(
    "/sessions/{id}",
    status_code=204,
    dependencies=stamped,
    summary="End a session; its id is not given away again",
)
async def end(id: str, request: Request) -> None:
    """A fork that is replaying is cancelled by this."""
    here = context(request)
    await here.store.end(id)
    here.ingest.forget(id)


@router.get(
    "/sessions/{id}/model",
    response_model=Model,
    responses={304: {"description": "the version named by If-None-Match is still the current one"}},
    summary="The published classifier",
)
async def model(id: str, request: Request) -> Response:
    here = context(request)
    loaded = await here.ingest.current(id)
    tag = f'"{loaded.counters.version}"'
    headers = {"ETag": tag, "Horocycle-Epoch": str(await here.connection.epoch(id))}
    if unchanged(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    body = await offload(loaded.learner_bytes, model_body, loaded)
    return Response(body, headers=headers, media_type=JSON)


def unchanged(header: str | None, tag: str) -> bool:
    """If-None-Match: one tag, several with commas between, weak ones too (RFC 9110, 13.1.2), or *"""
    tags = [each.strip().removeprefix("W/") for each in (header or "").split(",")]
    return tag in tags or tags == ["*"]
