"""How many shards and workers: a plan from what benchmarks.shard has measured, and a simulation that repeats it.

`python -m benchmarks.plan [results/shard.json]`. A million sessions are sent ten million points a second, session k a
share p_k ∝ 1/(k + 100) of them (Zipf's law with a flat head). Points of a session wait for at most T seconds and are
then one commit. So a session that is sent λ points a second commits

    r = 1/(1/λ + T) times a second      n = λ/r = 1 + λT points each

and a commit of n points costs a + bn of a core, the line through what was measured at 1 and 1,000 points.

The plan divides: all that commits cost, by half a core a shard; all that sessions hold, by the memory of a shard. The
simulation does not: sessions are placed by the hash slots of their keys, as a cluster does, and the busiest shard is a
queue with one server, whose waiting times follow Lindley's recursion W ← max(0, W + service − gap), the gaps
exponential, the service that of a session drawn by its rate.

What it leaves out: HTTP, networks, disks, replicas that fall behind, and everything that is slower at its thousandth
neighbour than at its first. It tells whether the plan adds up, not what a data centre does.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_files import FOLDER, kept
from service.geometry import Array
from service.store.keys import state_key
from service.store.slots import SLOTS, slot_of

SESSIONS, RATE = 10**6, 10**7  # sessions, points a second
MEMORY, BUSY = 16e9, 0.5  # bytes of sessions in a shard, and the part of its core that it may be busy
WAITS = (0.0, 0.1, 1.0, 10.0)  # seconds that points are gathered
ARRIVALS = 200_000  # at the busiest shard, simulated
TOLD = """
workers: cores, all busy. busiest: the part of its time that the busiest shard works, by the slots of its sessions, and
how long commits wait there (as if it was 0.99, where it would not keep up). hottest session: what its commits, one
after another, take of a second; above 1 it does not keep up."""


@dataclass(frozen=True)
class Line:
    """What a commit of n points takes: a + bn"""

    a: float
    b: float

    def __call__(self, n: Array) -> Array:
        return np.asarray(self.a + self.b * n)

    @classmethod
    def through(cls, one: float, thousand: float) -> Line:
        b = (thousand - one) / 999
        return cls(one - b, b)


def lines(known: dict[str, Any]) -> tuple[Line, Line, Line]:
    """Seconds of the store, seconds of a worker, bytes to a replica"""
    speed, sent = known["speed"], known["replicated"]
    ends = [speed[f"1 shards, 1 workers, {n} points"] for n in (1, 1000)]
    store, worker = (Line.through(*(1e-6 * each[f"{who} µs"] for each in ends)) for who in ("store", "worker"))
    return store, worker, Line.through(sent["1 points a commit"], 1000 * sent["1000 points a commit"])


def waited(rng: np.random.Generator, service: Array, busy: float) -> Array:
    """Seconds that commits wait for a shard that is busy for this part of the time

    W_n = S_n − min(0, S_1 … S_n), S the sums of service − gap: Lindley's recursion, unrolled
    """
    sums = np.cumsum(service - rng.exponential(service.mean() / busy, len(service)))
    return np.asarray(sums - np.minimum(np.minimum.accumulate(sums), 0))


def plan(known: dict[str, Any], slots: Array) -> None:
    rng, (store, worker, sent) = np.random.default_rng(0), lines(known)
    p = 1 / (np.arange(SESSIONS) + 100)
    λ = RATE * p / p.sum()
    print(f"{SESSIONS:,} sessions; {RATE:,} points a second, d = 10; the hottest session is sent {λ[0]:,.0f} of them")
    for what in ("opened", "full, 100 points a request", "full, a point a request with keys"):
        total = SESSIONS * known["bytes"][f"{what}, d = 10"]
        print(
            f"all of them {what}: {total / 1e9:,.0f} GB, {math.ceil(total / MEMORY):,} shards of {MEMORY / 1e9:.0f} GB"
        )
    print("\nPoints are gathered for T seconds; shards are half busy on the average.\n")
    print(
        f"{'T':>5}{'commits/s':>12}{'points each':>13}{'shards':>8}{'workers':>9}{'to replicas':>13}{'a shard':>11}",
        end="",
    )
    print(f"{'busiest':>9}{'p50 wait':>11}{'p99 wait':>11}{'hottest session':>17}")
    for T in WAITS:
        r = 1 / (1 / λ + T)
        n = λ / r
        busy = r * store(n)
        shards = math.ceil(busy.sum() / BUSY)
        placed = slots * shards // SLOTS  # ranges of slots, as a new cluster has them
        load = np.bincount(placed, weights=busy, minlength=shards)
        there = np.flatnonzero(placed == load.argmax())
        drawn = store(n[rng.choice(there, ARRIVALS, p=r[there] / r[there].sum())])
        late = 1e3 * np.percentile(waited(rng, drawn, min(load.max(), 0.99)), [50, 99])
        bits, hot = (r * sent(n)).sum(), r[0] * (store(n[:1]) + worker(n[:1]))[0]
        print(f"{T:>5}{r.sum():>12,.0f}{RATE / r.sum():>13,.1f}{shards:>8,}{(r * worker(n)).sum():>9,.0f}", end="")
        print(f"{f'{bits / 1e9:,.1f} GB/s':>13}{f'{bits / shards / 1e6:,.0f} MB/s':>11}{load.max():>9.2f}", end="")
        print(f"{late[0]:>8.2f} ms{late[1]:>8.2f} ms{hot:>17.2f}")
    print(TOLD)


def main(path: Path = FOLDER / "shard.json") -> None:
    with kept("plan"):
        slots = np.array([slot_of(state_key(f"session-{i}")) for i in range(SESSIONS)])
        plan(json.loads(path.read_text()), slots)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
