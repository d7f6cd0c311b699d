"""Producers stream numbered messages while workers and the store are killed and connections are cut at random bytes:
every message is applied once, in its producer's order, and every answer is the one that was first given.

SOAK_SECONDS: as long as that, with random seeds; otherwise once, for a short while.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect

from clients import Client
from clients.answers import Observed
from clients.transport import Retry
from service.learners import encode
from tests.faults.stream import (
    KEPT,
    Pupil,
    assert_tiled,
    kill_a_worker,
    kill_the_store,
    open_session,
    pause_each_worker,
    stored,
    two_workers,
)
from tests.relay import relay
from tests.running import Running, service
from tests.waiting import wait_until

SOAK = float(os.environ.get("SOAK_SECONDS", "0"))
PRODUCERS, LIMIT = 16, 240
#: No number of failures ends a stream, only time does.
STUBBORN = Retry(attempts=10_000, first=0.02, longest=0.5, patience=LIMIT)


class Cutting:
    """Passes bytes on both ways and cuts each connection after some number of them, drawn anew for each"""

    def __init__(self, upstream: str, rng: random.Random, most: int) -> None:
        self._upstream, self._rng, self._most = httpx.URL(upstream), rng, most
        self.cuts, self.calm = 0, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = [1 << 60 if self.calm else self._rng.randrange(200, self._most)]
        try:
            above, to_above = await asyncio.open_connection(self._upstream.host, self._upstream.port)
        except OSError:
            writer.close()
            return
        try:
            ways = [self._pass(reader, to_above, left), self._pass(above, writer, left)]
            tasks = [asyncio.ensure_future(each) for each in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for each in (writer, to_above):
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        with suppress(OSError):
            while some := await reader.read(65536):
                writer.write(some[: max(0, left[0])])
                left[0] -= len(some)
                await writer.drain()
                if left[0] <= 0:
                    self.cuts += 1
                    return


@contextmanager
def cutting(upstream: str, seed: int, most: int) -> Iterator[tuple[str, Cutting]]:
    proxy = Cutting(upstream, random.Random(seed), most)
    with relay(proxy.serve) as url:
        yield url, proxy


def message(producer: int, number: int) -> tuple[Any, Any]:
    """Points that tell who sent them and when: no two are the same"""
    rng = np.random.default_rng([producer, number])
    n = 1 if number % 3 else int(rng.integers(2, 6))
    X = rng.uniform(-0.6, 0.6, (n, 2))
    labels = np.where((X[:, 0] > 0.3 * X[:, 1]) ^ (rng.random(n) < 0.2), 1, -1)
    return X, labels


def produce(url: str, name: str, producer: int, messages: int, done: Callable[[], None]) -> list[Observed]:
    with Client(url, retry=STUBBORN) as client:
        session = client.sessions.get(name)
        answers: list[Observed] = []
        with session.stream(producer=f"p{producer}", window=1 + producer) as stream:
            for number in range(messages):
                stream.send(*message(producer, number))
                done()
                if number % 50 == 49:
                    answers += stream.flush()
            return answers + stream.flush()


def gate(running: Running, seed: int, messages: int, kills: int) -> None:
    rng, sent, session = np.random.default_rng(seed), [0], f"messages-{seed}"

    def count() -> None:
        sent[0] += 1

    two_workers(running)
    with cutting(running.url, seed, 4_000) as (url, proxy):
        open_session(running.url, session=session)
        faults = [partial(kill_a_worker, running, rng), partial(kill_the_store, running)] * kills
        faults += [partial(pause_each_worker, running)]
        with ThreadPoolExecutor(PRODUCERS) as aside:
            producing = [aside.submit(produce, url, session, i, messages, count) for i in range(PRODUCERS)]
            for i, fault in enumerate(faults):
                due = (i + 0.5) / len(faults) * messages * PRODUCERS
                wait_until(lambda due=due: sent[0] >= due or all(p.done() for p in producing), LIMIT)  # type: ignore[misc]
                fault()
            answers = [each.result(LIMIT) for each in producing]
        assert proxy.cuts > PRODUCERS
        proxy.calm = True
        assert_each_message_was_applied_once(running, session, answers)
        assert_the_answers_that_are_kept_are_those_first_given(running, session, answers)


def assert_each_message_was_applied_once(running: Running, session: str, answers: list[list[Observed]]) -> None:
    """What was answered is the log: where each message lies, in what order, and what was predicted there"""
    found = stored(running, session)
    pupil, scores = Pupil(found.loaded.spec), []
    for row in found.rows:
        scores.append(pupil.learn(row))
    assert encode(pupil.state) == encode(found.loaded.state)
    tiles = []
    for producer, own in enumerate(answers):
        ends = [answer.session.observed for answer in own]
        assert ends == sorted(ends), f"producer {producer} is out of order"
        for number, (answer, end) in enumerate(zip(own, ends, strict=True)):
            X, labels = message(producer, number)
            start = end - answer.accepted
            assert answer.accepted == len(X)
            assert np.array_equal(found.rows[start:end, :2], X), f"message {number} of {producer} is not where it says"
            assert np.array_equal(2 * found.rows[start:end, 2] - 1, labels)
            assert answer.scores is not None and answer.scores.tolist() == scores[start:end]
            tiles.append((start, end))
    assert_tiled(sorted(tiles), len(found.rows))


def assert_the_answers_that_are_kept_are_those_first_given(
    running: Running, session: str, answers: list[list[Observed]]
) -> None:
    url, kept = running.url.replace("http", "ws", 1), defaultdict[int, int](int)

    async def ask(producer: int) -> None:
        async with connect(f"{url}/sessions/{session}/stream?producer=p{producer}", compression=None) as socket:
            hello = json.loads(await socket.recv())["hello"]
            assert hello["seq"] == len(answers[producer])
            for seq, answer in list(enumerate(answers[producer], 1))[-40:]:
                await socket.send(json.dumps({"again": seq}))
                again = json.loads(await socket.recv())
                assert (again["seq"], again["session"]["observed"]) == (seq, answer.session.observed)
                assert answer.scores is not None and again["scores"] == answer.scores.tolist()
                kept[producer] += 1

    async def ask_all() -> None:
        for producer in range(PRODUCERS):
            await ask(producer)

    asyncio.run(ask_all())
    assert all(kept[producer] for producer in range(PRODUCERS))


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    """Two workers and a store that may be killed, and their log"""
    folder = tmp_path_factory.mktemp("messages")
    with (folder / "log").open("w") as log:
        with service(folder / "data", workers=2, stderr=log, HOROCYCLE_HEARTBEAT="0.2") as running:
            yield running, folder / "log"


def assert_no_error_is_logged(log: Path) -> None:
    """Cuts and kills are no errors of the service"""
    assert not [line for line in log.read_text().splitlines() if '"level": "error"' in line]


def test_every_message_of_sixteen_producers_is_applied_once_whatever_is_cut_or_killed(
    logged: tuple[Running, Path],
) -> None:
    running, log = logged
    gate(running, 7, messages=40, kills=1)
    assert_no_error_is_logged(log)


@pytest.mark.skipif(not SOAK, reason="make soak")
def test_the_same_for_long(logged: tuple[Running, Path]) -> None:
    running, log = logged
    until, seeds = time.monotonic() + SOAK / 4, np.random.default_rng()
    while time.monotonic() < until:
        seed = int(seeds.integers(1 << 32))
        print("seed", seed)  # noqa: T201
        gate(running, seed, messages=KEPT // PRODUCERS // 3, kills=4)
        assert_no_error_is_logged(log)
