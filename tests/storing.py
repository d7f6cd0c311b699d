"""The store and what stands on it, in this process, on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.api.schemas import OpenSession
from service.batch.classifier import Classifier
from service.fits.fork import Forker
from service.geometry import Array
from service.ingest import Ingest
from service.learners import encode
from service.sessions.measure import measured
from service.sessions.opening import first_session
from service.sessions.records import Loaded
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch
from service.sessions.spec import WITHOUT_REFERENCE, Spec
from service.store.connect import connect
from service.store.connection import Connection
from service.store.fit_queue import FitQueue
from service.store.late_labels import LateLabels
from service.store.log import Log
from service.store.refits import Refits
from service.store.sessions import Store


@dataclass(frozen=True)
class Parts:
    connection: Connection
    store: Store
    log: Log
    late: LateLabels
    ingest: Ingest
    fits: FitQueue
    forker: Forker

    async def opened(self, **settings: Any) -> Loaded:
        lifted = {} if settings.get("algorithm") in WITHOUT_REFERENCE else {"reference": "origin"}
        spec = OpenSession(**{"dimension": 2, **lifted, **settings}).spec()
        return await self.store.open(first_session(spec))

    async def observe(self, sid: str, X: Array, indices: Any, **how: Any) -> Answer:
        request = Request(Batch(np.asarray(X, dtype=float), np.asarray(indices, dtype=np.int64)), bytes(16), **how)
        return await self.ingest.observe(sid, request)


@asynccontextmanager
async def storing(
    url: str,
    *,
    queue: int = 1024,
    deadline: float = 5.0,
    kind: type[Store] = Store,
    connect: Callable[..., Connection] = connect,
) -> AsyncIterator[Parts]:
    connection = connect(url, deadline=deadline)
    store, log, late = kind(connection), Log(connection), LateLabels(connection)
    ingest = Ingest(store, log, late, Refits(connection), queue=queue, patience=deadline)
    try:
        yield Parts(connection, store, log, late, ingest, FitQueue(connection), Forker(connection))
    finally:
        await connection.close()


@dataclass(frozen=True)
class Stored:
    """What the store has of a session"""

    loaded: Loaded
    state: bytes  # the encoded learner
    rows: Array  # the retained points: coordinates, then the label's index


def stored(url: str, sid: str) -> Stored:
    async def read() -> Stored:
        async with storing(url) as parts:
            loaded = await parts.store.load(sid)
            batch = await parts.log.retained(loaded)
        return Stored(loaded, encode(loaded.state), np.column_stack([batch.X, batch.indices]))

    return asyncio.run(read())


def bits(loaded: Loaded) -> dict[str, Any]:
    """All that is learned and counted of a session, to be compared bit for bit"""
    return {
        "state": encode(loaded.state),
        "counters": loaded.counters,
        "status": str(loaded.status),
        "tally": loaded.tally.pack(),
        "metrics": measured(loaded),
    }


def some_classifier(spec: Spec, rng: np.random.Generator) -> Classifier:
    """What a fit could have come to, that the session can be begun anew from"""
    rows, d = 1 if spec.binary else len(spec.labels), spec.dimension
    if spec.algorithm == "hyperboloid":
        return Classifier("svm", "hyperboloid", 1.0, np.empty((0, d)), rng.normal(size=(rows, d + 1)), np.empty((0, 2)))
    references = rng.uniform(-0.3, 0.3, size=(rows, d)) / np.sqrt(d * spec.curvature)
    return Classifier("svm", "lift", spec.curvature, references, rng.normal(size=(rows, d)), np.empty((0, 2)))
