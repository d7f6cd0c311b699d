"""How many shards and workers: a plan from what benchmarks.shard has measured, and a simulation that repeats it.

`python -m benchmarks.plan [results/shard.json]`. The plan divides: memory by the memory of a shard, commits by what one
core serves. The simulation does not: a million sessions with Zipf's popularity, p_k ∝ 1/(k + 100), are placed by the
hash slots of their keys, as a cluster does; each shard is a queue with one server, whose waiting times follow Lindley's
recursion W ← max(0, W + service − gap) with exponential gaps.

What it leaves out: networks, disks, replicas that fall behind, and everything that is slower at its thousandth
neighbour than at its first. It tells whether the plan adds up, not what a data centre does.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.result_files import FOLDER, kept
from service.store.keys import state_key
from service.store.slots import SLOTS, slot_of

SESSIONS, RATE = 10**6, 10**7  # sessions, points a second
MEMORY, BUSY = 16e9, 0.5  # bytes of sessions in a shard, and the part of its core that it may be busy
SIZES = (1, 100, 1000)  # points a commit
ARRIVALS = 100_000  # at the busiest shard, simulated


def constants(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def popularity(n: int) -> NDArray[np.float64]:
    p = 1 / (np.arange(n) + 100)
    return np.asarray(p / p.sum())


def shards_of(slots: NDArray[np.int64], shards: int) -> NDArray[np.int64]:
    """Ranges of slots, as a new cluster has them"""
    return slots * shards // SLOTS


def waits(rng: np.random.Generator, busy: float, service: float) -> NDArray[np.float64]:
    """Seconds that commits wait for a shard that is busy for this part of the time

    W_n = S_n − min(0, S_1 … S_n), S the sums of service − gap: Lindley's recursion, unrolled
    """
    steps = service - rng.exponential(service / busy, ARRIVALS)
    sums = np.cumsum(steps)
    return np.asarray(sums - np.minimum(np.minimum.accumulate(sums), 0))


def plan(known: dict[str, Any], slots: NDArray[np.int64]) -> None:
    rng, p = np.random.default_rng(0), popularity(SESSIONS)
    print(f"{SESSIONS:,} sessions; {RATE:,} points a second; d = 10; shards of {MEMORY / 1e9:.0f} GB, half busy\n")
    for what in ("opened, d = 20", "full, 100 points a request, d = 20"):
        total, kind = SESSIONS * known["bytes"][what], what.split(",")[0]
        print(f"memory if every session is {kind}: {total / 1e9:,.0f} GB, {math.ceil(total / MEMORY)} shards")
    print(f"\n{'points a commit':>16}{'shards':>8}{'cores of workers':>18}{'replicated MB/s a shard':>25}", end="")
    print(f"{'busiest shard':>15}{'its p99 wait':>14}{'hottest session':>17}{'it can':>9}")
    for size in SIZES:
        told, commits = known["speed"][f"1 shards, 1 workers, {size} points"], RATE / size
        service, worker = 1e-6 * told["store µs"], 1e-6 * told["worker µs"]
        shards = math.ceil(commits * service / BUSY)
        sent = RATE / shards * known["replicated"][f"{size} points a commit"] / 1e6
        load = np.bincount(shards_of(slots, shards), weights=p, minlength=shards) * commits * service
        late = np.percentile(waits(rng, min(float(load.max()), 0.999), service), 99)
        hottest, can = p[0] * commits, 1 / (service + worker)
        busiest = f"{load.max():.2f}" if load.max() < 1 else f"{load.max():.2f} (!)"
        print(f"{size:>16}{shards:>8,}{commits * worker:>18,.0f}{sent:>25,.0f}", end="")
        print(f"{busiest:>15}{f'{1e3 * late:,.1f} ms':>14}{f'{hottest:,.0f}/s':>17}{f'{can:,.0f}/s':>9}")


def main(path: Path = FOLDER / "shard.json") -> None:
    with kept("plan"):
        slots = np.array([slot_of(state_key(f"session-{i}")) for i in range(SESSIONS)])
        plan(constants(path), slots)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
