"""What every route needs: the store and the ingest, the event streams, and how a session is shown."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service import telemetry
from service.api.demos import Demos
from service.batch.classifier import Classifier
from service.errors import RateLimited
from service.fits.fork import Forker
from service.ingest import Ingest
from service.settings import Settings
from service.store.api_keys import ApiKey, ApiKeys
from service.store.connection import Connection
from service.store.fit_queue import FitQueue
from service.store.follower import Follower
from service.store.late_labels import LateLabels
from service.store.log import Log
from service.store.sessions import Store


@dataclass
class Streams:
    """The open streams of this worker, of events or messages: so many and no more, and all end when it does."""

    limit: int
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    ending: bool = False  # and no other worker takes this one's place
    open: int = 0
    of_keys: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def one(self, key: ApiKey | None = None) -> Iterator[None]:
        """A place among them, if there is one left"""
        if self.open >= self.limit:
            raise RateLimited(f"{self.open} streams are open in this worker already", limit=self.limit)
        whose, most = ("", None) if key is None else (key.id, key.limits.get("streams"))
        if most and self.of_keys[whose] >= most:
            raise RateLimited(f"this key has {most} streams open in this worker already", limit=most)
        self.open += 1
        self.of_keys[whose] += 1
        telemetry.streams.inc()
        try:
            yield
        finally:
            self.open -= 1
            self.of_keys[whose] -= 1
            telemetry.streams.dec()


@dataclass(frozen=True)
class Context:
    settings: Settings
    connection: Connection
    store: Store
    log: Log
    late: LateLabels
    fits: FitQueue
    forker: Forker
    follower: Follower
    ingest: Ingest
    streams: Streams
    keys: ApiKeys
    producers: dict[tuple[str, str | None], Any] = field(default_factory=dict)  # their newest connections here
    classifiers: dict[tuple[str, str], Classifier] = field(default_factory=dict)  # of fits, at hand
    demos: Demos = field(default_factory=Demos)


def context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


async def stamp(request: Request, response: Response) -> None:
    """Every answer about a session says which epoch of the store it comes from"""
    epoch = await context(request).connection.epoch(request.path_params.get("id", ""))
    response.headers["Horocycle-Epoch"] = str(epoch)
