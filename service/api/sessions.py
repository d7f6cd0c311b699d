"""Open, list, look at and end sessions; the published model."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.api.bodies import JsonRoute
from service.api.context import context, shown
from service.errors import SessionGone, StateCorrupt
from service.schemas import Model, OpenSession, Session, SessionList
from service.session import published
from service.store import Counters, Loaded

router = APIRouter(tags=["sessions"], route_class=JsonRoute)


@router.post("/sessions", status_code=201, response_model=Session, summary="Open a session")
async def open_session(body: OpenSession, request: Request, response: Response) -> dict[str, Any]:
    here, spec = context(request), body.spec()
    state = spec.first_state()
    await here.store.open(spec, state)
    response.headers["Location"] = f"/sessions/{spec.id}"
    response.headers["Horocycle-Epoch"] = str(await here.store.epoch())
    return shown(Loaded(spec, 0, Counters(), state))


@router.get("/sessions", response_model=SessionList, summary="List the sessions, newest first")
async def list_sessions(
    request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100, cursor: str | None = None
) -> dict[str, Any]:
    store, found = context(request).store, []
    ids = await store.ids(limit, cursor)
    for sid in ids:
        try:
            found.append(shown(await store.load(sid)))
        except SessionGone:
            await store.forget(sid)
        except StateCorrupt:
            continue  # its own address says so; the others are shown
    return {"sessions": found, "cursor": ids[-1] if len(ids) == limit else None}


@router.get("/sessions/{id}", response_model=Session, summary="Look at a session")
async def look(id: str, request: Request, response: Response) -> dict[str, Any]:
    here = context(request)
    loaded = await here.ingest.current(id)
    response.headers["Horocycle-Epoch"] = str(await here.store.epoch())
    return shown(loaded)


@router.delete("/sessions/{id}", status_code=204, summary="End a session; its id is not given away again")
async def end(id: str, request: Request, response: Response) -> None:
    here = context(request)
    await here.store.end(id)
    here.ingest.forget(id)
    response.headers["Horocycle-Epoch"] = str(await here.store.epoch())


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
