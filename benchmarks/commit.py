"""python -m benchmarks.commit [--before FOLDER] [--rounds N]: what the store spends on a commit, and on a session

CPU time, user and system, of the store's process alone, with fsync on every commit and without an append-only file. Two
ways to ask for it, and a PING in both, which nothing is subtracted for:

    woken         the service as it ships, one worker and its private store, on loopback; with --before a second one
                  from another checkout of this project, with the same interpreter. The store sleeps until a commit
                  comes, so each pays for waking up with cold caches: several times what a PING costs otherwise.
    back to back  the commits of a worker, recorded byte for byte and sent again to an empty store over one socket,
                  DEPTH at a time: parsing, the script, its commands and the reply, as for a store that is busy.

Woken, both services meet every cell once a round, in shuffled order; commits are those that /metrics counts. Medians
over the rounds are compared. The target of 50 µs is for commits back to back: woken, a PING alone exceeds it.

A session of each cell is opened once and filled with the points it retains. `keyed`: every request has an
Idempotency-Key of its own, so that its answer is stored too. Requests over 16 connections are gathered, and a commit
carries several. PING, woken, is what GET /health/ready asks of the store.

Bytes a session: the difference of the store's used_memory.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hiredis
import httpx
import numpy as np
import orjson
import redis
import uvloop

from benchmarks.observe import Load, requests
from benchmarks.result_files import kept
from benchmarks.streams import ball, direction
from service.process.private_store import EmbeddedServer
from service.sessions import rows
from service.sessions.requests import Request
from service.store.connection import Connection as StoreConnection
from service.store.connection import packed
from tests.running import Running, wait_until_ready
from tests.storing import storing

ROUNDS, SECONDS = 5, 0.6
KEEP = 10_000  # points that a session retains
#: How a commit gets to the disk, and the server's settings for it.
POLICIES = {"fsync": "yes", "memory": "no"}
NOW, BEFORE = "now", "before"
READY = b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"


# ------------------------------------------------------------------------------------------ what is measured


@dataclass(frozen=True)
class Cell:
    name: str
    n: int  # points a request
    d: int
    keyed: bool
    connections: int = 1
    algorithm: str = "perceptron"

    @property
    def sid(self) -> str:
        return f"cell-{CELLS.index(self)}"


PING, ONE, UNKEYED, GATHERED, THOUSAND, TEN_THOUSAND, WIDE, SECOND_ORDER = CELLS = (
    Cell("PING", 0, 0, keyed=False),
    Cell("one point, keyed", 1, 2, keyed=True),
    Cell("one point", 1, 2, keyed=False),
    Cell("one point, keyed, 16 connections", 1, 2, keyed=True, connections=16),
    Cell("1,000×2, keyed", 1_000, 2, keyed=True),
    Cell("10,000×10, keyed", 10_000, 10, keyed=True),
    Cell("one point, d = 100", 1, 100, keyed=False),
    Cell("one point, d = 100, second order", 1, 100, keyed=False, algorithm="second_order"),
)


@cache
def points(n: int, d: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Rows of coordinates and the label's index; a tenth of the labels is wrong, so there is always more to learn"""
    rng = np.random.default_rng(7)
    X = ball(rng, n, d)
    side = X @ direction(rng, d) > 0
    return np.column_stack([X, side ^ (rng.random(n) < 0.1)])


def blocks(n: int, d: int, count: int) -> list[bytes]:
    """So many different bodies of raw rows"""
    rows = points(n * count, d)
    return [rows[i * n : (i + 1) * n].tobytes() for i in range(count)]


@cache
def bodies(cell: Cell) -> list[bytes]:
    """Raw rows, but single points as JSON"""
    if cell.n > 1:
        return blocks(cell.n, cell.d, 8)
    rows = points(512, cell.d)
    return [orjson.dumps({"points": [row[:-1].tolist()], "labels": [2 * int(row[-1]) - 1]}) for row in rows]


# ------------------------------------------------------------------------------------------------- the services


@dataclass(frozen=True)
class System:
    name: str
    running: Running

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.running.url)
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    def commits(self) -> int:
        text = httpx.get(f"{self.running.url}/metrics", timeout=30).text
        found = re.search(r"^horocycle_commits_total ([\d.e+]+)$", text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def cpu(self) -> float:
        """Seconds of the store's own process: utime + stime of /proc/<pid>/stat, in nanoseconds instead of ticks"""
        return time.clock_gettime((~self.running.store_pid << 3) | 2)

    def used_memory(self) -> int:
        with redis.Redis.from_url(self.running.redis_url) as store:
            return int(store.info("memory")["used_memory"])

    def set_policy(self, policy: str) -> None:
        """With or without the append-only file; returns when the rewrite that this may begin has ended"""
        with redis.Redis.from_url(self.running.redis_url) as store:
            store.config_set("appendonly", POLICIES[policy])
            while store.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.02)

    def open(self, sid: str, d: int, algorithm: str = "perceptron") -> None:
        settings = {"id": sid, "dimension": d, "reference": "origin", "algorithm": algorithm, "keep_points": KEEP}
        answer = httpx.post(f"{self.running.url}/sessions", json=settings, timeout=30)
        assert answer.status_code == 201, answer.text

    async def send(self, sid: str, sent: Sequence[bytes], *, raw: bool, keys: bool = False) -> None:
        """These bodies once, one after another"""
        load = await Load.over(self.address, 1)
        load.connections[0].source = requests(path(sid), sent, raw=raw, keys=keys)
        for at in range(0, len(sent), 500):
            await load.run(0, min(500, len(sent) - at))
        load.close()


def path(sid: str) -> str:
    return f"/sessions/{sid}/observe?reply=summary"


@contextmanager
def checkout(name: str, folder: Path, data: Path) -> Iterator[System]:
    """The service of a folder that has this project in it"""
    command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data", str(data)]
    unset = {k: v for k, v in os.environ.items() if k != "REDIS_URL" and not k.startswith("HOROCYCLE_")}
    env = {**unset, "HOROCYCLE_FIT_WORKERS": "0"}
    launcher = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert launcher.stdout is not None
        first = launcher.stdout.readline()
        assert first.startswith("Horocycle on http"), f"{folder}: {first}"
        running = Running(first.split()[2], data, launcher)
        wait_until_ready(running.url, 60)
        yield System(name, running)
    finally:
        launcher.send_signal(signal.SIGTERM)
        try:
            launcher.wait(30)
        finally:
            launcher.kill()
            launcher.communicate()


# ----------------------------------------------------------------------------------------------------- commits


@dataclass(frozen=True)
class Measured:
    cpu: float  # µs a commit
    gathered: float  # requests a commit


async def fill(system: System, cell: Cell) -> None:
    """The cell's session with all the points it retains, in commits whose rows are no blocks of their own"""
    system.open(cell.sid, cell.d, cell.algorithm)
    size = max(cell.n, min(150, 32_000 // (8 * (cell.d + 1))))
    await system.send(cell.sid, blocks(size, cell.d, -(-KEEP // size)), raw=True)


async def measure(system: System, cell: Cell, seconds: float) -> Measured:
    load = await Load.over(system.address, cell.connections)
    source: Iterator[bytes] = itertools.repeat(READY)
    if cell is not PING:
        source = requests(path(cell.sid), bodies(cell), raw=cell.n > 1, keys=cell.keyed)
    for connection in load.connections:
        connection.source = source
    await load.run(0.05, cell.connections)
    commits, before = system.commits(), system.cpu()
    await load.run(seconds, 4 * cell.connections)
    spent, commits = system.cpu() - before, load.count if cell is PING else system.commits() - commits
    load.close()
    return Measured(1e6 * spent / commits, load.count / commits)


Found = dict[tuple[str, str, Cell], list[Measured]]


async def cells(systems: Sequence[System], rounds: int, rng: random.Random) -> Found:
    for system, cell in itertools.product(systems, CELLS):
        if cell is not PING:
            await fill(system, cell)
    found: Found = defaultdict(list)
    for _ in range(rounds):
        for policy in rng.sample(list(POLICIES), 2):
            for system in systems:
                system.set_policy(policy)
            plan = list(itertools.product(systems, CELLS))
            rng.shuffle(plan)
            for system, cell in plan:
                result = await measure(system, cell, SECONDS)
                found[system.name, policy, cell].append(result)
    return found


async def idle(system: System, seconds: float = 1.0) -> float:
    """Seconds of CPU a second that the store takes while nobody asks for anything"""
    before = system.cpu()
    await asyncio.sleep(seconds)
    return (system.cpu() - before) / seconds


def show_cells(found: Found, names: Sequence[str]) -> None:
    def median(name: str, policy: str, cell: Cell) -> float:
        return statistics.median(each.cpu for each in found[name, policy, cell])

    rounds = min(map(len, found.values()))
    what = f"Woken: CPU of the store, µs a commit; medians of {rounds} interleaved rounds of {SECONDS:g} s"
    print(f"{what}; lowest–highest now\n")
    columns = "".join(f"{policy:>8}: {'  '.join(f'{name:>6}' for name in names)}{'':21}" for policy in POLICIES)
    print(f"{'':34}{columns}  requests a commit")
    for cell in CELLS:
        line = f"{cell.name:34}"
        for policy in POLICIES:
            medians = [median(name, policy, cell) for name in names]
            runs = [each.cpu for each in found[NOW, policy, cell]]
            ratio = f"{medians[-1] / medians[0]:5.2f}" if len(names) > 1 else ""
            line += f"{'':10}{'  '.join(f'{each:6.0f}' for each in medians)} {ratio:>6}"
            line += f" {f'{min(runs):.0f}–{max(runs):.0f}':>11}  "
        print(line + f" {statistics.median(each.gathered for each in found[NOW, 'memory', cell]):8.1f}")
    print()
    times = statistics.median(
        second.cpu / first.cpu
        for second, first in zip(found[NOW, "memory", SECOND_ORDER], found[NOW, "memory", WIDE], strict=True)
    )
    show("second order at d = 100 over a perceptron at d = 100, without fsync", times, 2)
    if BEFORE in names:
        for policy in POLICIES:
            share = median(NOW, policy, TEN_THOUSAND) / median(BEFORE, policy, TEN_THOUSAND)
            show(f"10,000×10 kept, now over before, {policy}", share, 0.5)


def show(what: str, value: float, most: float) -> None:
    print(f"{what:70} {value:7.2f} ≤ {most:g}  {'met' if value <= most else 'MISSED'}")


# ------------------------------------------------------------------------------------------------ back to back

DEPTH = 16
Commits = list[tuple[bytes, int]]  # the commands of each, and how many there are


async def open_session(url: str, cell: Cell) -> None:
    async with storing(url) as parts:
        settings = {"id": "one", "dimension": cell.d, "keep_points": KEEP, "algorithm": cell.algorithm}
        await parts.opened(**settings, reference="origin")


async def record(url: str, cell: Cell, count: int) -> Commits:
    """The commits of so many requests, one after another, as they were sent"""
    sent: Commits = []

    class Recording(StoreConnection):
        async def calls(self, commands: Sequence[tuple[Any, ...]], **how: Any) -> list[Any]:
            sent.append((b"".join(part for command in commands for part in packed(command)), len(commands)))
            return await super().calls(commands, **how)

    table = points(cell.n * count, cell.d)
    batches = [rows.unpack(table[i * cell.n : (i + 1) * cell.n].tobytes(), cell.d) for i in range(count)]
    async with storing(url, connect=Recording) as parts:
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
    """µs of CPU a commit, and what the store itself says its script took"""
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


def back_to_back(rounds: int) -> None:
    print(f"\nBack to back: CPU of the store, µs a commit, {DEPTH} sent at a time; its script; medians of {rounds}\n")
    print(f"{'':34}" + "".join(f"{policy:>12}{'script':>10}" for policy in POLICIES))
    found: dict[tuple[Cell, str], float] = {}
    with tempfile.TemporaryDirectory(prefix="horocycle-bench-") as data, EmbeddedServer(Path(data)) as server:
        with redis.Redis.from_url(server.url) as store:
            for cell in [each for each in CELLS if each.connections == 1]:
                store.config_set("appendonly", "no")
                store.flushall()
                commits: Commits = [(b"*1\r\n$4\r\nPING\r\n", 1)] * 6000
                if cell is not PING:
                    asyncio.run(open_session(server.url, cell))
                    commits = asyncio.run(record(server.url, cell, max(60, min(3000, 600_000 // cell.n // cell.d))))
                line = f"{cell.name:34}"
                for policy, appendonly in POLICIES.items():
                    store.config_set("appendonly", appendonly)
                    while store.info("persistence")["aof_rewrite_in_progress"]:
                        time.sleep(0.02)
                    costs = np.array([cost(server, store, cell, commits) for _ in range(rounds)])
                    found[cell, policy] = float(np.median(costs[:, 0]))
                    line += f"{found[cell, policy]:12.1f}{np.median(costs[:, 1]):10.1f}"
                print(line, flush=True)
    print()
    show("one point of a perceptron, keyed, without fsync: µs", found[ONE, "memory"], 50)
    show("one point of a perceptron, no key, without fsync: µs", found[UNKEYED, "memory"], 50)
    show("second order at d = 100 over a perceptron", found[SECOND_ORDER, "memory"] / found[WIDE, "memory"], 2)


# -------------------------------------------------------------------------------------------- bytes a session


@dataclass(frozen=True)
class Filling:
    """Sessions at d = 2, and what each is sent"""

    name: str
    sessions: int
    bodies: tuple[bytes, ...] = ()
    raw: bool = False
    keys: bool = False


def fillings(single: int) -> list[Filling]:
    ten = points(10, 2)
    body = orjson.dumps({"points": ten[:, :-1].tolist(), "labels": (2 * ten[:, -1] - 1).astype(int).tolist()})
    one = tuple(itertools.islice(itertools.cycle(bodies(UNKEYED)), single))
    thousand = tuple(blocks(1_000, 2, 20))
    return [
        Filling("idle", 500),
        Filling("ten points in one commit", 500, (body,)),
        Filling("20 commits of 1,000×2", 10, thousand, raw=True),
        Filling("20 commits of 1,000×2, keyed", 10, thousand, raw=True, keys=True),
        Filling(f"{single:,} single points", 1, one),
        Filling(f"{single:,} single points, keyed", 1, one, keys=True),
    ]


async def bytes_a_session(system: System, filling: Filling) -> float:
    name = f"memory-{os.urandom(4).hex()}"
    before = system.used_memory()
    for i in range(filling.sessions):
        system.open(f"{name}-{i}", 2)
        if filling.bodies:
            await system.send(f"{name}-{i}", filling.bodies, raw=filling.raw, keys=filling.keys)
    return (system.used_memory() - before) / filling.sessions


async def memory(systems: Sequence[System], single: int) -> None:
    for system in systems:
        system.set_policy("memory")  # no buffers of the append-only file
    names = [system.name for system in systems]
    print(f"\nBytes of the store a session, d = 2, keep_points {KEEP:,}\n")
    print(f"{'':34}{''.join(f'{name:>12}' for name in names)}")
    for filling in fillings(single):
        sizes = [await bytes_a_session(system, filling) for system in systems]
        share = f"{sizes[-1] / sizes[0]:8.2f} ≤ 1  {'met' if sizes[-1] <= sizes[0] else 'MISSED'}"
        print(f"{filling.name:34}{''.join(f'{each:12,.0f}' for each in sizes)}{share if len(sizes) > 1 else ''}")


# ---------------------------------------------------------------------------------------------------------- run


async def run(before: Path | None, rounds: int, single: int) -> None:
    rng, start = random.Random(11), time.monotonic()
    with ExitStack() as running:
        data = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="horocycle-bench-")))
        folders = {} if before is None else {BEFORE: before}
        folders[NOW] = Path.cwd()
        systems = [running.enter_context(checkout(name, folder, data / name)) for name, folder in folders.items()]
        with redis.Redis.from_url(systems[0].running.redis_url) as store:
            info = store.info("server")
        server = f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"
        print(f"{time.strftime('%Y-%m-%d')}, {server}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print("".join(f"{name}: {version(folder)}\n" for name, folder in folders.items()), flush=True)
        found = await cells(systems, rounds, rng)
        show_cells(found, list(folders))
        if single:
            await memory(systems, single)
        resting = ", ".join([f"{system.name} {1e6 * await idle(system):.0f}" for system in systems])
        print(f"\nA store that nobody asks takes, µs a second: {resting}; it is in the numbers above.")
    print(f"{time.monotonic() - start:.0f} s in all")


def version(folder: Path) -> str:
    """The version in its pyproject.toml, and its commit"""
    found = re.search(r'^version = "(.*)"', (folder / "pyproject.toml").read_text(), re.MULTILINE)
    asked = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return f"version {found[1] if found else '?'}, commit {commit or '?'}"


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commit")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout, to be measured too")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--single", type=int, default=10_000, help="single points of a session; 0: measure no bytes")
    arguments = parser.parse_args(argv)
    before = None if arguments.before is None else arguments.before.resolve()
    with kept("commit"):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(before, arguments.rounds, arguments.single))
        back_to_back(arguments.rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
