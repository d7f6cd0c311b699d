"""python -m benchmarks.strategic [--quick]: what exactness costs a settled strategic stream

Two sessions of one service (one worker, its private store with fsync on every commit), over the SDK, on loopback:

    plain       a perceptron; points as they come, without If-Match
    strategic   agents that have answered the classifier; their points with If-Match
    whole       the same with all that an agent does for it: ask for the classifier (304), answer it, post

Both learners have settled: a pass over all points changes nothing, so every batch is accepted whole. The same numbers
of points a request go to each in turn, in shuffled order; the medians over the rounds are compared. All are raw rows,
answered by a summary, with an Idempotency-Key a request. The target is for `strategic`: within ×3 of plain.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np

from clients.agents import Model, Signs, respond
from clients.client import AsyncClient, AsyncSession
from clients.scenarios import separable
from service.geometry import Array
from tests.running import service

D, N, BUDGET, MARGIN = 10, 20_000, 0.5, 0.3
BATCHES = (200, 1_000, 10_000)  # the SDK sends fewer as JSON
CONNECTIONS = 4
TARGET = 3.0
P, W = np.zeros(D), np.arange(1.0, D + 1)

Send = Callable[[slice], Awaitable[int]]


class Stream:
    """A session that has settled, and how a slice of the points is sent to it."""

    def __init__(self, session: AsyncSession, X: Array, y: Signs) -> None:
        self.session, self.X, self.y, self.shown = session, X, y, X

    async def settle(self) -> None:
        """Until a pass changes nothing"""
        while True:
            before = (await self.session.refresh()).version
            await (self._answered() if self.session.info.algorithm == "strategic" else self.send(slice(None)))
            if (await self.session.refresh()).version == before:
                return

    async def _answered(self) -> None:
        at = 0
        while at < len(self.X):
            model = await self.session.model()
            self.shown = self._response(Model.from_json(model.document), slice(None))
            told = await self.session.observe(self.shown[at:], self.y[at:], if_match=model, columns=False)
            at += told.accepted

    def _response(self, model: Model, cut: slice) -> Array:
        X = self.X[cut]
        return respond(X, np.full(len(X), "rational"), model, BUDGET, np.random.default_rng(0)).X

    async def send(self, cut: slice) -> int:
        return (await self.session.observe(self.shown[cut], self.y[cut], columns=False)).accepted

    async def matched(self, cut: slice) -> int:
        version = self.session.info.version
        return (await self.session.observe(self.shown[cut], self.y[cut], if_match=version, columns=False)).accepted

    async def whole(self, cut: slice) -> int:
        model = await self.session.model()
        X = self._response(Model.from_json(model.document), cut)
        return (await self.session.observe(X, self.y[cut], if_match=model, columns=False)).accepted


async def rate(send: Send, batch: int, seconds: float) -> float:
    """Points a second, over all connections; every point must have been accepted"""
    cuts = [slice(i, i + batch) for i in range(0, N, batch)]
    until, taken = time.perf_counter() + seconds, 0

    async def client(offset: int) -> None:
        nonlocal taken
        turn = offset
        while time.perf_counter() < until:
            accepted = await send(cuts[turn % len(cuts)])
            assert accepted == batch, f"{accepted} of {batch} accepted: the stream has not settled"
            taken += accepted
            turn += CONNECTIONS

    start = time.perf_counter()
    await asyncio.gather(*(client(offset) for offset in range(CONNECTIONS)))
    return taken / (time.perf_counter() - start)


async def opened(client: AsyncClient, algorithm: str, X: Array, y: Signs) -> Stream:
    budget = {"budget": BUDGET} if algorithm == "strategic" else {}
    session = await client.sessions.open(dimension=D, reference="origin", algorithm=algorithm, keep_points=0, **budget)  # type: ignore[arg-type]
    stream = Stream(session, X, y)
    await stream.settle()
    return stream


async def run(rounds: int, seconds: float) -> None:
    rng, start = random.Random(5), time.monotonic()
    X, y = separable(np.random.default_rng(5), n=N, p=P, w=W, budget=BUDGET, margin=MARGIN, radius=2.5)
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="horocycle-bench-") as data, service(Path(data) / "store") as running:
        async with AsyncClient(running.url) as client:
            plain, strategic = [await opened(client, name, X, y) for name in ("perceptron", "strategic")]
            ways: dict[str, Send] = {"plain": plain.send, "strategic": strategic.matched, "whole": strategic.whole}
            plan = [(name, batch) for name in ways for batch in BATCHES]
            for _ in range(rounds):
                for name, batch in rng.sample(plan, len(plan)):
                    found[name, batch].append(await rate(ways[name], batch, seconds))
    moved = float((strategic.shown != X).any(axis=1).mean())
    print(f"{N:,} points of dimension {D}, {CONNECTIONS} at a time; {moved:.0%} of the agents have moved")
    print(f"points/s, medians of {rounds} interleaved rounds of {seconds:g} s\n")
    print(f"{'a request':>10} {'plain':>10} {'strategic':>10} {'ratio':>7} {'':6} {'whole':>10} {'ratio':>7}   lo–hi")
    for batch in BATCHES:
        middle = {name: statistics.median(found[name, batch]) for name in ways}
        ratio, far = middle["plain"] / middle["strategic"], middle["plain"] / middle["whole"]
        runs = [a / b for a, b in zip(found["plain", batch], found["strategic", batch], strict=True)]
        print(
            f"{batch:10,} {middle['plain']:10,.0f} {middle['strategic']:10,.0f} {ratio:6.2f}×"
            f" {'met' if ratio <= TARGET else 'MISSED':6} {middle['whole']:10,.0f} {far:6.2f}×"
            f"   {min(runs):.2f}–{max(runs):.2f}"
        )
    print(f"\n{time.monotonic() - start:.0f} s in all, on {os.cpu_count()} cores, Python {sys.version.split()[0]}")


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strategic")
    parser.add_argument("--quick", action="store_true", help="one round, in a quarter of a minute")
    quick = parser.parse_args(argv).quick
    asyncio.run(run(1 if quick else 7, 0.5 if quick else 1.0))


if __name__ == "__main__":
    main(sys.argv[1:])
