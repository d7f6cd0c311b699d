"""What every route needs: the store and the ingest, the event streams, and how a session is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service import telemetry
from service.batch.classifier import Classifier
from service.errors import RateLimited
from service.ingest import Ingest
from service.sessions.records import Listed, Loaded
from service.sessions.spec import asked, references
from service.settings import Settings
from service.store.fit_queue import Fits
from service.store.sessions import Store


@dataclass
class Streams:
    """The open event streams of this worker: so many and no more, and all of them end when it does."""

    limit: int
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    open: int = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A place among them, if there is one left"""
        if self.open >= self.limit:
            raise RateLimited(f"{self.open} event streams are open in this worker already", limit=self.limit)
        self.open += 1
        telemetry.streams.inc()
        try:
            yield
        finally:
            self.open -= 1
            telemetry.streams.dec()


@dataclass(frozen=True)
class Context:
    settings: Settings
    store: Store
    ingest: Ingest
    fits: Fits
    streams: Streams
    classifiers: dict[tuple[str, str], Classifier] = field(default_factory=dict)  # of fits, at hand


def context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


async def stamp(request: Request, response: Response) -> None:
    """Every answer about a session says which epoch of the store it comes from"""
    response.headers["Horocycle-Epoch"] = str(await context(request).store.epoch())


def shown(session: Loaded | Listed) -> dict[str, Any]:
    """A session as it is answered"""
    spec = session.spec
    body = {**asked(spec), "id": spec.id, **asdict(session.counters), "status": session.status}
    body["created_at"] = spec.created_at
    body["a"] = spec.a if spec.algorithm == "second_order" else None
    body["budget"] = body["budget"] if spec.algorithm == "strategic" else None
    if spec.algorithm == "hyperboloid":
        body["reference"] = None
    if isinstance(session, Loaded) and session.status == "live" and spec.algorithm != "hyperboloid":
        points = references(spec, session.state) or []
        body["reference"] = points[0] if len(points) == 1 else points
    return body
