"""The gate of late labels: points predicted with ids and labelled later, through kill -9 of workers and store.

Each id is learned exactly once; what holds for observe (see test_exactly_once) holds for labels.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from uuid import uuid4

import httpx
import numpy as np

from tests.faults.stream import (
    LATER,
    SESSION,
    Request,
    Stream,
    assert_exactly_once,
    kill_a_worker,
    kill_the_store,
    open_session,
    pause_each_worker,
    stored,
    stream_through,
    two_workers,
)
from tests.running import Running


def ids(request: Request) -> list[str]:
    return [f"{request.key}-{i}" for i in range(len(request.rows))]


class LateStream(Stream):
    """Every request in two steps: predict with ids, then label; each may be cut off, repeated, said thrice."""

    async def _ask(self, http: httpx.AsyncClient, request: Request) -> bool:
        session, repeated = f"{self.url}/sessions/{SESSION}", bool(request.replies)
        asked = {"points": request.rows[:, :-1].tolist(), "ids": ids(request)}
        late = {"ids": ids(request), "labels": (2 * request.rows[:, -1] - 1).astype(int).tolist()}
        try:
            predicted = await http.post(f"{session}/predict", json=asked)
            if predicted.status_code in LATER:
                return False
            assert predicted.status_code == 200, predicted.text
            labelled = await http.post(f"{session}/labels", json=late, headers={"idempotency-key": request.key})
        except httpx.TransportError:
            return False
        return request.heard(labelled, repeated)


def test_every_late_label_is_learned_exactly_once_whatever_is_killed(mortal: Running) -> None:
    rng = np.random.default_rng(20240301)
    stream = LateStream(20240301, points=1_000, clients=8, pause=0.02)
    faults = [partial(kill_a_worker, mortal, rng), partial(kill_the_store, mortal)] * 2
    faults += [partial(pause_each_worker, mortal)]
    two_workers(mortal)
    open_session(mortal.url, "second_order")
    stream_through(stream, mortal, faults)
    assert_exactly_once(stream.requests, stored(mortal))
    learned = Counter(id for request in stream.requests for id in request.answer["ids"])
    assert learned == Counter(id for request in stream.requests for id in ids(request))
    for request in stream.requests:
        assert all(request.answer[fate] == [] for fate in ("unknown", "expired", "already_learned"))
    with httpx.Client(base_url=mortal.url, timeout=30) as http:
        for request in stream.requests[::10]:  # under another key they are known
            body = {"ids": ids(request), "labels": [1] * len(request.rows)}
            told = http.post(f"/sessions/{SESSION}/labels", json=body, headers={"idempotency-key": uuid4().hex})
            assert told.json()["already_learned"] == ids(request) and told.json()["accepted"] == 0
        assert http.get(f"/sessions/{SESSION}").json()["observed"] == 1_000
