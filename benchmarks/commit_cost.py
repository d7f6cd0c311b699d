"""python -m benchmarks.commit_cost [--rounds N]: what a commit costs the store by itself, without waking it up

benchmarks.commit measures the store while a worker has the processor between any two commits: a PING costs 60 µs there,
most of it for waking up with cold caches. Here the commits of a worker are recorded, byte for byte, then sent again to
the same empty store over one socket, DEPTH at a time: what is left is parsing, the script, its commands and the reply.
A PING sent in the same way stands beside them; it is not subtracted.

CPU time, user and system, of the store's process; medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hiredis
import numpy as np
import redis

from benchmarks.commit import CELLS, KEEP, PING, POLICIES, Cell, points
from service.process.private_store import EmbeddedServer
from service.sessions import rows
from service.sessions.requests import Request
from service.store.connection import Connection, packed
from tests.storing import storing

ROUNDS, DEPTH = 5, 16
Commits = list[tuple[bytes, int]]  # the commands of each, and how many there are


async def open_session(url: str, cell: Cell) -> None:
    async with storing(url) as parts:
        settings = {"id": "one", "dimension": cell.d, "keep_points": KEEP, "algorithm": cell.algorithm}
        await parts.opened(**settings, reference="origin")


async def record(url: str, cell: Cell, count: int) -> Commits:
    """The commits of so many requests, one after another, as they were sent"""
    sent: Commits = []

    class Recording(Connection):
        async def calls(self, commands: Sequence[tuple[Any, ...]], **how: Any) -> list[Any]:
            sent.append((b"".join(part for command in commands for part in packed(command)), len(commands)))
            return await super().calls(commands, **how)

    table = points(cell.n * count, cell.d)
    batches = [rows.unpack(table[i * cell.n : (i + 1) * cell.n].tobytes(), cell.d) for i in range(count)]
    async with storing(url, connect=Recording) as parts:
        await parts.store.load("one")
        await parts.ingest.current("one")
        sent.clear()
        for i, batch in enumerate(batches):
            key = f"key-{i}" if cell.keyed else None
            await parts.ingest.observe("one", Request(batch, bytes(16), key, columns=False))
    return sent


def send(to: socket.socket, commits: Commits) -> None:
    reader = hiredis.Reader()
    for at in range(0, len(commits), DEPTH):
        some = commits[at : at + DEPTH]
        to.sendall(b"".join(commands for commands, _ in some))
        left = sum(count for _, count in some)
        while left:
            reader.feed(to.recv(1 << 16))
            while (reply := reader.gets()) is not False:
                assert not isinstance(reply, hiredis.HiredisError), reply
                left -= 1


def cost(server: EmbeddedServer, store: redis.Redis, cell: Cell, commits: Commits) -> tuple[float, float]:
    """µs of CPU a commit, and of those the script's"""
    if cell is not PING:
        store.flushall()
        asyncio.run(open_session(server.url, cell))
    warm = len(commits) // 3
    with socket.socket(socket.AF_UNIX) as to:
        to.connect(str(server.data / "server.sock"))
        send(to, commits[:warm])
        store.config_resetstat()
        before = time.clock_gettime((~server.pid << 3) | 2)
        send(to, commits[warm:])
        spent = time.clock_gettime((~server.pid << 3) | 2) - before
    script = store.info("commandstats").get("cmdstat_evalsha", {"usec": 0})["usec"]
    return 1e6 * spent / (len(commits) - warm), script / (len(commits) - warm)


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commit_cost")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args(argv).rounds
    with tempfile.TemporaryDirectory(prefix="horocycle-bench-") as data, EmbeddedServer(Path(data)) as server:
        with redis.Redis.from_url(server.url) as store:
            measure(server, store, rounds)


def measure(server: EmbeddedServer, store: redis.Redis, rounds: int) -> None:
    print(
        f"CPU of the store, µs a commit sent again, {DEPTH} at a time; the script's share of it; medians of {rounds}\n"
    )
    print(f"{'':34}" + "".join(f"{policy:>12}{'script':>10}" for policy in POLICIES))
    for cell in [each for each in CELLS if each.connections == 1]:
        store.config_set("appendonly", "no")
        store.flushall()
        commits: Commits = [(b"*1\r\n$4\r\nPING\r\n", 1)] * 6000
        if cell is not PING:
            asyncio.run(open_session(server.url, cell))
            commits = asyncio.run(record(server.url, cell, max(60, min(3000, 600_000 // cell.n // cell.d))))
        line = f"{cell.name:34}"
        for appendonly in POLICIES.values():
            store.config_set("appendonly", appendonly)
            while store.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.02)
            found = np.array([cost(server, store, cell, commits) for _ in range(rounds)])
            line += f"{statistics.median(found[:, 0]):12.1f}{statistics.median(found[:, 1]):10.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
