"""A client that is cut off at random, while two workers commit and are killed, sees every event once and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import numpy as np
import redis

from service.sessions.records import EntryId
from service.store.keys import state_key
from tests.faults.stream import kill_a_worker, kill_the_store, two_workers
from tests.running import Running
from tests.sse import Sent, listening
from tests.waiting import retry

WRITERS = 4
Pause = Callable[["Listener"], None]


def write(running: Running, sid: str, writer: int, count: int) -> None:
    """Commits of one to five points, each until it is acknowledged, on connections to whichever worker"""
    rng = np.random.default_rng([writer, count])
    with httpx.Client(base_url=running.url, timeout=15, limits=httpx.Limits(max_keepalive_connections=0)) as http:
        for number in range(count):
            n = int(rng.integers(1, 6))
            body = {"points": rng.uniform(-0.6, 0.6, (n, 2)).tolist(), "labels": rng.choice([-1, 1], n).tolist()}
            headers = {"Idempotency-Key": f"{writer}-{number}"}
            retry(lambda: http.post(f"/sessions/{sid}/observe", json=body, headers=headers), 200)  # noqa: B023


class Listener:
    """Reads a few events, is cut off in the middle of whatever it reads, and comes back with the last id it saw"""

    def __init__(self, running: Running, sid: str, seed: int, pause: Pause) -> None:
        self.heard: list[Sent] = []
        self.running, self.sid, self._pause = running, sid, pause
        self.rng, self.stop, self.visits = np.random.default_rng(seed), threading.Event(), 0

    def listen(self) -> None:
        last = "0-0"
        while not (self.stop.is_set() and self._caught_up()):
            self.visits += 1
            with httpx.Client(base_url=self.running.url, timeout=5) as http:
                try:
                    with listening(http, self.sid, last) as events:
                        for event in self._some(events):
                            self.heard.append(event)
                            last = event.id
                except (httpx.TransportError, AssertionError):  # a worker or the store is just not there
                    time.sleep(0.02)
            self._pause(self)

    def _some(self, events: Iterator[Sent]) -> Iterator[Sent]:
        for _ in range(int(self.rng.integers(1, 40))):
            event = next(events, None)
            if event is None:
                return
            if event.name:
                yield event
            if self._caught_up():
                return

    def _caught_up(self) -> bool:
        return bool(self.heard) and self.stop.is_set() and position(self.heard[-1]) == self.end

    end = -1  # the last position, once it is known


def position(event: Sent) -> int:
    return int(event.data["session"]["observed"] if event.name == "reset" else event.data["observed"])


def short(listener: Listener) -> None:
    time.sleep(listener.rng.exponential(0.01))


def until_trimmed(listener: Listener) -> None:
    """So many entries later the next one is gone: at least 64 stay, and what is trimmed is trimmed by the hundred"""
    last = EntryId.parse(listener.heard[-1].id).number if listener.heard else 0
    with redis.Redis.from_url(listener.running.redis_url) as store:
        while not listener.stop.is_set() and newest(store, listener.sid) < last + 250:
            time.sleep(0.01)


def newest(store: redis.Redis, sid: str) -> int:
    return int(store.hget(state_key(sid), "entries") or 0)


def run(
    running: Running, keep_points: int, commits: int, faults: list[Callable[[], None]], pause: Pause
) -> tuple[Listener, int]:
    """Two listeners at once would only repeat each other: one, with a temper"""
    sid = f"events-{uuid4().hex}"
    with httpx.Client(base_url=running.url, timeout=15) as http:
        retry(
            lambda: http.post(
                "/sessions", json={"id": sid, "dimension": 2, "reference": "origin", "keep_points": keep_points}
            ),
            201,
        )
        listener = Listener(running, sid, 7, pause)
        with ThreadPoolExecutor(WRITERS + 1) as aside:
            listening_ = aside.submit(listener.listen)
            writing = [aside.submit(write, running, sid, writer, commits) for writer in range(WRITERS)]
            for fault in faults:
                time.sleep(0.3)
                fault()
            for each in writing:
                each.result()
            look = retry(lambda: http.get(f"/sessions/{sid}"), 200).json()
            listener.end = look["observed"]
            listener.stop.set()
            listening_.result(60)
    return listener, look["observed"]


def ids(events: list[Sent]) -> list[EntryId]:
    return [EntryId.parse(event.id) for event in events]


def test_every_event_is_seen_once_and_in_order(mortal: Running) -> None:
    rng = np.random.default_rng(1)
    faults = [lambda: kill_a_worker(mortal, rng), lambda: kill_the_store(mortal)]
    listener, N = run(mortal, 100_000, 80, faults, short)
    assert listener.visits > 5
    assert {event.name for event in listener.heard} == {"commit"}
    starts, ends = zip(*((event.data["from"], event.data["observed"]) for event in listener.heard), strict=True)
    assert (0, *ends) == (*starts, N)  # no gap, no repeat
    assert ids(listener.heard) == [EntryId(end, number) for number, end in enumerate(ends, 1)]
    two_workers(mortal)  # those that were killed are back


def test_what_a_slow_client_missed_is_a_reset(mortal: Running) -> None:
    """No points are kept, and hardly any event: whoever is away for long goes on from a reset, and misses nothing
    behind it"""
    two_workers(mortal)
    listener, N = run(mortal, 0, 300, [], until_trimmed)
    names = [event.name for event in listener.heard]
    assert names.count("reset") >= 1 and names.count("commit") >= 1
    assert "commit" in names[names.index("reset") :]
    at, last = 0, EntryId()
    for event, id in zip(listener.heard, ids(listener.heard), strict=True):
        if event.name == "commit":
            assert event.data["from"] == at
            assert id.number == last.number + 1
        else:
            assert id.number > last.number + 64  # what it missed was not among the newest
        assert id.observed == position(event) > at
        at, last = position(event), id
    assert at == N
