"""What one shard holds, what it serves, and what more shards and workers add, as far as two cores show it.

`python -m benchmarks.shard`, some three minutes. Memory is MEMORY USAGE of a session's keys, of every element. Speed is
that of commits: worker processes apply requests to their sessions and commit them, without HTTP, to 1, 2 or 3 masters
of a cluster, without replicas and without a disk; CPU is that of the processes themselves. Every cell is the quicker of
two runs, interleaved. `python -m benchmarks.plan` reads what this writes to results/shard.json.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import redis

from benchmarks.result_files import FOLDER, kept
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.store.keys import born_key, session_keys, sessions_key
from service.store.slots import SLOTS
from tests.cluster import COMMON, Server, cluster_options, free_ports, start, stop
from tests.storing import Parts, storing
from tests.waiting import wait_until

#: Seconds of a measurement, sessions of a worker, coordinates of a point, points a commit.
SECONDS, SESSIONS, D, SIZES = 2.0, 16, 10, (1, 10, 100, 1000)
TICK = os.sysconf("SC_CLK_TCK")


# -------------------------------------------------------------------------------------------------------- memory


def used(client: redis.Redis, *keys: str) -> int:
    return sum(client.memory_usage(key, samples=0) or 0 for key in keys)


async def memory(url: str, client: redis.Redis) -> dict[str, float]:
    found = dict[str, float]()
    async with storing(url) as parts:
        for d in (2, 10, 20):
            for size, keyed in ((100, False), (100, True), *([(1, True)] if d == D else [])):
                opened = await parts.opened(dimension=d, algorithm="second_order")
                keys = [born_key(opened.spec.id), *session_keys(opened.spec.id)]
                found[f"opened, d = {d}"] = used(client, *keys)
                await fill(parts, opened.spec.id, d, size, keyed)
                how = f"{size} points a request" if size > 1 else "a point a request"
                found[f"full, {how}{' with keys' if keyed else ''}, d = {d}"] = used(client, *keys)
        names = {f"{i:032x}": 1.7e9 + i for i in range(10_000)}
        client.zadd(sessions_key("many"), names)
        found["an entry of the list"] = round(used(client, sessions_key("many")) / len(names))
    return found


async def fill(parts: Parts, sid: str, d: int, size: int, keyed: bool) -> None:
    """More points than a session retains by default"""
    rng = np.random.default_rng(0)
    for number in range(12_000 // size):
        X = rng.uniform(-0.7, 0.7, (size, d)) / d**0.5
        batch = Batch(X, (X[:, 0] > 0).astype(np.int64))
        await parts.ingest.observe(sid, Request(batch, bytes(16), f"key-{number}" if keyed else None))


# --------------------------------------------------------------------------------------------------------- speed


@contextmanager
def masters(folder: Path, count: int) -> Iterator[list[Server]]:
    """A cluster without replicas"""
    ports, edges = free_ports(2 * count), [round(i * SLOTS / count) for i in range(count + 1)]
    found: list[Server] = []
    try:
        for port, bus in zip(ports[:count], ports[count:], strict=True):
            found.append(start(folder / str(port), port, *cluster_options(folder, bus)))
        wait_until(lambda: all(each.answers() for each in found))
        for i, each in enumerate(found):
            each.run("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            each.run("CLUSTER", "ADDSLOTSRANGE", edges[i], edges[i + 1] - 1)
            found[0].run("CLUSTER", "MEET", "127.0.0.1", each.port, ports[count + i])
        wait_until(lambda: all(each.info("cluster_state") == "ok" for each in found), 60)
        yield found
    finally:
        stop(found)


def cpu(pid: int) -> float:
    """Seconds that a process has worked"""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def work(url: str, number: int, size: int, ready: Any, told: Any) -> None:
    """A worker: as many requests as it can, one at a time for each of its sessions"""

    async def run() -> None:
        rng = np.random.default_rng(number)
        X = rng.uniform(-0.7, 0.7, (size, D)) / D**0.5
        batch = Batch(X, (X[:, 0] > 0).astype(np.int64))
        async with storing(url) as parts:
            ids = [
                (await parts.opened(id=f"w{number}-{size}-{os.getpid()}-{i}", dimension=D, algorithm="second_order"))
                for i in range(SESSIONS)
            ]
            for each in ids:
                await parts.ingest.observe(each.spec.id, Request(batch, columns=False))
            await asyncio.to_thread(ready.wait)
            until, began, done = time.monotonic() + SECONDS, time.process_time(), 0

            async def feed(sid: str) -> None:
                nonlocal done
                while time.monotonic() < until:
                    await parts.ingest.observe(sid, Request(batch, columns=False))
                    done += 1

            await asyncio.gather(*(feed(each.spec.id) for each in ids))
            told.put((done, time.process_time() - began))

    asyncio.run(run())


def measure(servers: list[Server], workers: int, size: int) -> dict[str, float]:
    """Commits a second, and CPU of the workers and of the servers a commit, in microseconds"""
    spawn = multiprocessing.get_context("spawn")
    ready, told = spawn.Barrier(workers + 1), spawn.Queue()
    url = "redis+cluster://" + ",".join(each.address for each in servers)
    processes = [spawn.Process(target=work, args=(url, i, size, ready, told)) for i in range(workers)]
    for each in processes:
        each.start()
    ready.wait(120)
    before, began = [cpu(each.process.pid) for each in servers], time.monotonic()
    found = [told.get() for _ in processes]
    seconds = time.monotonic() - began
    store = sum(cpu(each.process.pid) for each in servers) - sum(before)
    for each in processes:
        each.join()
    for server in servers:
        server.run("FLUSHALL")
    commits = sum(done for done, _ in found)
    return {
        "commits a second": commits / seconds,
        "points a second": commits * size / seconds,
        "worker µs": 1e6 * sum(burnt for _, burnt in found) / commits,
        "store µs": 1e6 * store / commits,
    }


def better(runs: list[dict[str, float]]) -> dict[str, float]:
    return max(runs, key=lambda each: each["commits a second"])


def speed(folder: Path) -> dict[str, dict[str, float]]:
    cells = [*((1, 1, size) for size in SIZES), (1, 2, 100), (2, 1, 100), (2, 2, 100), (3, 2, 100)]
    found: dict[tuple[int, int, int], list[dict[str, float]]] = {each: [] for each in cells}
    for round in range(2):
        for count in (1, 2, 3):
            with masters(folder / f"{round}-{count}", count) as servers:
                for shards, workers, size in cells:
                    if shards == count:
                        found[shards, workers, size].append(measure(servers, workers, size))
    return {f"{s} shards, {w} workers, {n} points": better(runs) for (s, w, n), runs in found.items()}


# --------------------------------------------------------------------------------------------------- replication


def replication(folder: Path) -> dict[str, float]:
    """Bytes that a replica is sent, a point"""
    [port], found = free_ports(1), dict[str, float]()
    server = start(folder / "one", port, *COMMON)
    replica = start(folder / "two", free_ports(1)[0], *COMMON, "--replicaof", f"127.0.0.1 {port}")
    try:
        wait_until(lambda: server.answers() and replica.answers() and replica.run("ROLE")[3] == b"connected")
        for size in SIZES:
            found[f"{size} points a commit"] = asyncio.run(_sent(server, size))
    finally:
        stop([server, replica])
    return found


async def _sent(server: Server, size: int) -> float:
    rng, commits = np.random.default_rng(size), 60 + 1000 // size
    async with storing(f"redis://{server.address}") as parts:
        sid = (await parts.opened(dimension=D, algorithm="second_order")).spec.id
        before = server.run("ROLE")[1]
        for _ in range(commits):
            X = rng.uniform(-0.7, 0.7, (size, D)) / D**0.5
            await parts.ingest.observe(sid, Request(Batch(X, (X[:, 0] > 0).astype(np.int64)), columns=False))
        return float(server.run("ROLE")[1] - before) / (commits * size)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, kept("shard"):
        folder, found = Path(name), dict[str, Any]()
        server = start(folder / "one", free_ports(1)[0], *COMMON)
        try:
            wait_until(server.answers)
            with redis.Redis(port=server.port) as client:
                found["bytes"] = asyncio.run(memory(f"redis://{server.address}", client))
        finally:
            stop([server])
        for what, size in found["bytes"].items():
            print(f"{what:<44} {size:>12,.0f} bytes")
        found["replicated"] = replication(folder / "replication")
        for what, sent in found["replicated"].items():
            print(f"replicated, {what:<32} {sent:>12,.0f} bytes a point")
        found["speed"] = speed(folder / "speed")
        print(f"\nd = {D}, second_order; CPU in µs a commit; 2 cores, load {os.getloadavg()[0]:.1f} at the end")
        print(f"{'':<34}{'commits/s':>10}{'points/s':>12}{'worker µs':>11}{'store µs':>10}")
        for what, told in found["speed"].items():
            print(f"{what:<34}{told['commits a second']:>10,.0f}{told['points a second']:>12,.0f}", end="")
            print(f"{told['worker µs']:>11,.0f}{told['store µs']:>10,.0f}")
    (FOLDER / "shard.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
