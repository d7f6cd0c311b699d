"""GET and POST /demo: a stream to look at, made on the server. Bounded in points, in number and in time to live."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from service.api.admission import tenant_in
from service.api.bodies import JsonRoute
from service.api.context import Context, context, stamp
from service.api.schemas import OpenSession, Session
from service.api.sessions import open_session
from service.errors import OutcomeUnknown, SessionGone, StaleModel, StoreUnavailable, UnknownSession
from service.sessions import requests
from service.sessions.demo import POPULATIONS, Population
from service.sessions.published import published
from service.sessions.tenants import inner

router = APIRouter(tags=["demo"], route_class=JsonRoute)
#: A demo's session ends by itself when nobody has looked at it for so many seconds.
IDLE = 3600


class Demo(BaseModel):
    """Which population, and the seed of its points."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"kind": "agents"}]})
    kind: Literal["agents", "taxonomy", "drift"] = "agents"
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] = 0


class DemoKind(BaseModel):
    kind: str
    title: str
    about: str
    points: int = Field(description="how many come in all")
    margin: float | None = Field(description="that its true points have, for `certificate?margin=`; null: not known")


class DemoList(BaseModel):
    demos: list[DemoKind]


@router.get("/demo", response_model=DemoList, summary="The populations that can be watched")
async def kinds() -> dict[str, Any]:
    told = [
        {"kind": kind, "title": each.title, "about": each.about, "points": each.points, "margin": each.margin}
        for kind, each in POPULATIONS.items()
    ]
    return {"demos": told}


@router.post("/demo", status_code=201, response_model=Session, dependencies=[Depends(stamp)], summary="Watch one")
async def start(body: Demo, request: Request, response: Response) -> dict[str, Any]:
    """Opens a session, and streams a small population into it from within the server. A worker runs a few at a time."""
    here, population = context(request), POPULATIONS[body.kind]
    here.demos.require_room()
    opening = OpenSession(**population.settings, name=population.title, ttl_seconds=IDLE)
    session = await open_session(opening, request, response)
    here.demos.start(_stream(here, inner(tenant_in(request.scope), session["id"]), population, body.seed))
    return session


async def _stream(here: Context, sid: str, population: Population, seed: int) -> None:
    """Until all points have come, the session is ended, or the worker ends"""
    rng, sent = np.random.default_rng(seed), 0
    while sent < population.points and not here.streams.closing.is_set():
        try:
            loaded = await here.ingest.current(sid)
            model = published(loaded.spec, loaded.state)
            batch = population.draw(rng, sent, population.step, model)
            answering = loaded.counters.version if batch.truth is not None else None
            answer = await here.ingest.observe(sid, requests.Request(batch, if_match=answering, columns=False))
            sent += answer.accepted
        except (UnknownSession, SessionGone):
            return
        except StaleModel:
            continue
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(1)
        await asyncio.sleep(population.pause)
