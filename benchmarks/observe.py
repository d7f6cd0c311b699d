"""python -m benchmarks.observe [--quick] [--only WORD …]: what an observe costs, end to end; its peer and its floor

Five servers run at once, on loopback: the service as it ships (`protocol`: one worker, its private store with fsync on
every commit); the same with `direct` off (`ASGI`); River's perceptron behind FastAPI (`river_server.py`: JSON, in
memory), as it is, and again with its weights written to a store like ours before every answer; and a bare ASGI app that
reads the body, drops it and says 200. What is counted is CPU time, user and system, of a server and its store, a
request; not wall time. Every system meets every cell once a round, in shuffled order; the medians over the rounds are
compared.

    summary   ?reply=summary, keep_points 0, no Idempotency-Key
    full      the columns in the answer, an Idempotency-Key a request, the newest 10,000 points retained
    binary    full, with the columns as rows of float64 (Accept: application/octet-stream)
    default   full, of a session with the default settings (auto); the others are perceptrons at the origin

A shape with `stream` sends messages over a WebSocket, 64 of them unanswered at a time; in `full` by a named producer.
Its peers get a request for each. p50 and p99 are wall time from the request to its answer.

The peer reads the same JSON, also in the cells where ours is sent raw rows, and answers summaries to the cells that ask
for them. A session is opened anew for each measurement and brought to its steady state first: points retained up to
the limit, the learner converged where it can. Afterwards what it says it observed must be all that was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx
import numpy as np
import orjson
import redis
import uvloop
from numpy.typing import NDArray

from benchmarks.result_files import kept
from benchmarks.streams import flipped, separable
from service.geometry import Array
from service.process.private_store import EmbeddedServer
from service.store.keys import state_key
from tests.running import Running, service

Receive = Callable[[], "asyncio.Future[dict[str, object]]"]
Send = Callable[[dict[str, object]], "asyncio.Future[None]"]
#: What a worker sets by mallopt, for the floor
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20), "MALLOC_ARENA_MAX": "2"}


async def floor(scope: dict[str, object], receive: Receive, send: Send) -> None:
    """The least a request can cost here: the body is read and dropped."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})


# ------------------------------------------------------------------------------------------ what is measured


@dataclass(frozen=True)
class Shape:
    """n points of dimension d a request, over so many connections"""

    n: int
    d: int
    raw: bool
    connections: int
    stream: bool = False

    def __str__(self) -> str:
        points = "one point" if self.n == 1 else f"{self.n:,}×{self.d}"
        return f"{points} {'stream' if self.stream else 'raw' if self.raw else 'JSON'}, {self.connections} conn"


#: Requests that wait are gathered into one commit: 16 connections show it, 1 shows what it costs to be alone.
SHAPES = (
    Shape(1, 2, raw=False, connections=16),
    Shape(1, 2, raw=False, connections=1),
    Shape(1, 2, raw=False, connections=64),
    Shape(1, 2, raw=False, connections=1, stream=True),
    Shape(1, 2, raw=False, connections=16, stream=True),
    Shape(1_000, 2, raw=False, connections=16),
    Shape(1_000, 2, raw=True, connections=16),
    Shape(10_000, 10, raw=False, connections=2),
    Shape(10_000, 10, raw=True, connections=2),
)
PAIR = Shape(1_000, 2, raw=True, connections=2)
CONTRACTS, STREAMS = ("summary", "full", "binary", "default"), ("separable", "flipped")
RAW_LARGE = SHAPES[-1]
#: times the peer
TARGETS: dict[tuple[str, str], dict[Shape, float]] = {
    ("ASGI", "summary"): dict(zip(SHAPES, (2, 0.6, 3, 7, 9, 30, 55, 25, 95), strict=True)),
    ("ASGI", "full"): dict(zip(SHAPES, (1.7, 0.5, 2.4, 5, 7, 19, 25, 17, 36), strict=True)),
    ("ASGI", "binary"): {RAW_LARGE: 50},
    ("protocol", "summary"): dict(zip(SHAPES, (3.5, 0.8, 5, 7, 9, 42, 80, 25, 115), strict=True)),
    ("protocol", "full"): dict(zip(SHAPES, (2.6, 0.6, 4, 5, 7, 20, 30, 18, 38), strict=True)),
    ("protocol", "binary"): {RAW_LARGE: 55},
}
WINDOW = 64
KEEP = 10_000
EPSILON = 0.1  # no point of the separable stream is nearer to the boundary
BODIES = {1: 4096, 1_000: 64, 10_000: 6}  # different ones, sent round and round


@dataclass(frozen=True)
class Cell:
    shape: Shape
    contract: str
    stream: str

    def __str__(self) -> str:
        return f"{self.shape}, {self.contract}, {self.stream}"


CELLS = [Cell(*each) for each in itertools.product(SHAPES, CONTRACTS[:2], STREAMS)]
CELLS += [Cell(RAW_LARGE, "binary", stream) for stream in STREAMS]
CELLS += [Cell(SHAPES[i], "default", "flipped") for i in (0, 2, 4, 6, 8)]


@cache
def points(d: int, stream: str) -> tuple[Array, NDArray[np.int8]]:
    """Enough for every body, and their labels −1, 1; the boundary passes through the origin, straight for River too"""
    rng = np.random.default_rng(7)
    most = max(n * count for n, count in BODIES.items() if (n == 10_000) == (d == 10))
    drawn = separable(rng, 2 * most, d, p_norm=0.0, epsilon=EPSILON)
    y = drawn.y if stream == "separable" else flipped(rng, drawn.y, 0.3)
    return drawn.X[:most], y[:most]


@cache
def bodies(n: int, d: int, raw: bool, stream: str) -> list[bytes]:
    X, y = points(d, stream)
    cuts = [slice(i * n, (i + 1) * n) for i in range(BODIES[n])]
    if raw:
        rows = np.column_stack([X, y > 0])
        return [rows[cut].tobytes() for cut in cuts]
    return [orjson.dumps({"points": X[cut].tolist(), "labels": y[cut].tolist()}) for cut in cuts]


RAW = "application/octet-stream"


def requests(
    path: str, bodies: Sequence[bytes], *, raw: bool = False, keys: bool = False, binary: bool = False
) -> Iterator[bytes]:
    """Whole HTTP/1.1 requests, for ever; each with an Idempotency-Key of its own if `keys`"""
    accept = f"Accept: {RAW}\r\n" if binary else ""
    kind = RAW if raw else "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{accept}".encode()
    tails = [b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]
    run = os.urandom(8).hex().encode()
    for number, tail in enumerate(itertools.cycle(tails)):
        key = b"Idempotency-Key: %b-%012d\r\n" % (run, number) if keys else b""
        yield b"".join((head, key, tail))


# --------------------------------------------------------------------------------------------------- the load


class Connection(asyncio.Protocol):
    """One request at a time over one connection; of an answer only its status and its length are looked at."""

    transport: asyncio.Transport
    load: Load
    source: Iterator[bytes]
    window = 1  # requests that are unanswered at a time
    left = 0  # bytes of the answer still to come

    def __init__(self) -> None:
        self.asked: deque[float] = deque()  # when those were sent that are not answered yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.left:
            self.left -= len(data)
        else:
            end = data.index(b"\r\n\r\n") + 4
            if not data.startswith(b"HTTP/1.1 200"):
                self.load.fail(data[:600].decode(errors="replace"))
                return
            at = data.index(b"content-length: ") + 16
            self.left = int(data[at : data.index(b"\r", at)]) - (len(data) - end)
        if not self.left:
            self.load.answered(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.fail(f"the connection was closed: {error}")

    def ask(self) -> None:
        self.asked.append(time.perf_counter())
        self.transport.write(next(self.source))


class Socket(Connection):
    """A WebSocket, as far as it is needed here: text frames, masked with zeros, WINDOW of them under way"""

    window = WINDOW

    def __init__(self) -> None:
        super().__init__()
        self._heard, self.opened = b"", asyncio.get_running_loop().create_future()

    async def open(self, path: str) -> None:
        upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        self.transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{upgrade}{key}\r\n".encode())
        async with asyncio.timeout(30):
            await self.opened

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if not self.opened.done():
            end = self._heard.find(b"\r\n\r\n") + 4
            if end < 4 or b'{"hello"' not in self._heard:
                return
            assert self._heard.startswith(b"HTTP/1.1 101"), self._heard
            self._heard = self._heard[end:]
        at, heard = 0, self._heard
        while len(heard) >= at + 4:
            small = heard[at + 1]
            start, length = (at + 2, small) if small < 126 else (at + 4, int.from_bytes(heard[at + 2 : at + 4], "big"))
            if len(heard) < start + length:
                break
            at = start + length
            if not self.opened.done():
                self.opened.set_result(None)
            elif heard[start : start + 7] != b'{"seq":' or b'"problem"' in heard[start:at]:
                return self.load.fail(heard[start:at].decode(errors="replace"))
            else:
                self.load.answered(self)
        self._heard = heard[at:]


def messages(bodies: Sequence[bytes]) -> Iterator[bytes]:
    """Text frames, for ever"""
    return itertools.cycle([b"\x81" + bytes([128 | len(body)]) + bytes(4) + body for body in bodies if len(body) < 126])


@dataclass
class Load:
    """Connections that are kept alive, and asked over in bursts."""

    connections: list[Connection]
    count: int = 0
    times: list[float] = field(default_factory=list)  # seconds from a request to its answer
    _until: float = 0.0
    _least: int = 0
    _open: int = 0
    _done: asyncio.Future[None] | None = field(default=None, repr=False)

    @classmethod
    async def over(cls, address: tuple[str, int], connections: int, kind: type[Connection] = Connection) -> Load:
        loop = asyncio.get_running_loop()
        load = cls([(await loop.create_connection(kind, *address))[1] for _ in range(connections)])
        for connection in load.connections:
            connection.load = load
        return load

    async def run(self, seconds: float, least: int) -> float:
        """Ask over every connection until the time is up and `least` were answered; returns the seconds it took."""
        self.count, self._least, self.times = 0, least, []
        self._open = sum(connection.window for connection in self.connections)
        self._done = asyncio.get_running_loop().create_future()
        start = time.perf_counter()
        self._until = start + seconds
        for connection in self.connections:
            for _ in range(connection.window):
                connection.ask()
        async with asyncio.timeout(seconds + 30):
            await self._done
        return time.perf_counter() - start

    def answered(self, connection: Connection) -> None:
        self.count += 1
        self.times.append(time.perf_counter() - connection.asked.popleft())
        if self.count < self._least or time.perf_counter() < self._until:
            connection.ask()
            return
        self._open -= 1
        if not self._open and self._done and not self._done.done():
            self._done.set_result(None)

    def fail(self, why: str) -> None:
        if self._done and not self._done.done():
            self._done.set_exception(RuntimeError(why))

    def close(self) -> None:
        for connection in self.connections:
            connection.transport.close()


def cpu(pids: Sequence[int]) -> float:
    """Seconds, user and system, of these processes and of the children they have waited for

    A process's own clock, the sum behind utime + stime of /proc/<pid>/stat, but in nanoseconds: a tick is 10 ms. The
    children's times come from there: a store that rewrites its log does so in one.
    """
    ticks = 0
    for pid in pids:
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]))
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids) + ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    requests: int
    cpu: float  # seconds a request, of server and store
    rate: float  # requests a second
    client: float  # share of a core that the load itself took
    p50: float = 0.0  # seconds
    p99: float = 0.0
    gathered: float = 0.0  # requests a commit
    store: float = 0.0  # seconds a request, of the store alone


async def measure(load: Load, system: System, seconds: float, least: int) -> Measured:
    before, own, stored = cpu(system.pids), time.process_time(), cpu(system.store_pids)
    took = await load.run(seconds, least)
    spent, own, stored = cpu(system.pids) - before, time.process_time() - own, cpu(system.store_pids) - stored
    p50, p99 = map(float, np.quantile(load.times, [0.5, 0.99]))
    n = load.count
    return Measured(n, spent / n, n / took, own / took, p50, p99, store=stored / n)


# ------------------------------------------------------------------------------------------------- the systems


@dataclass(frozen=True)
class System:
    name: str
    url: str
    pids: Sequence[int]
    store: str = ""  # the url of its store, if it is ours
    store_pids: Sequence[int] = ()  # those among them that are a store

    def revision(self, sid: str) -> int:
        """How many commits a session of ours has seen"""
        with redis.Redis.from_url(self.store) as store:
            return int(cast(bytes, store.hget(state_key(sid), "revision")))

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname and parts.port
        return parts.hostname, parts.port


@contextmanager
def uvicorn_app(name: str, app: str, **environment: str) -> Iterator[System]:
    """One process with uvloop and httptools, and no log"""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        "--port",
        str(port),
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--no-access-log",
        "--log-level",
        "error",
    ]
    process = subprocess.Popen([sys.executable, "-m", "uvicorn", app, *options], env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                httpx.post(f"http://127.0.0.1:{port}/", content=b"{}", timeout=2)
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < deadline, f"{app} did not start"
                time.sleep(0.05)
        yield System(name, f"http://127.0.0.1:{port}", [process.pid])
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ours(running: Running, name: str = "protocol") -> System:
    pids = [running.launcher.pid, running.store_pid, *running.worker_pids]
    return System(name, running.url, pids, running.redis_url, [running.store_pid])


def open_session(system: System, sid: str, d: int, contract: str) -> None:
    settings: dict[str, object] = {"keep_points": 0} if contract == "summary" else {"keep_points": KEEP}
    if contract != "default":
        settings |= {"algorithm": "perceptron", "reference": "origin"}
    answer = httpx.post(f"{system.url}/sessions", json={"id": sid, "dimension": d, **settings})
    assert answer.status_code == 201, answer.text


def end_session(system: System, sid: str) -> None:
    assert httpx.delete(f"{system.url}/sessions/{sid}").status_code == 204


def session_path(sid: str, contract: str) -> str:
    return f"/sessions/{sid}/observe" + ("?reply=summary" if contract == "summary" else "")


async def settle(load: Load, sid: str, cell: Cell) -> int:
    """Bring a session to its steady state; returns the points that took

    The points retained come in blocks, as in the cell's own commits, not in one.
    """
    shape = cell.shape
    X, y = points(shape.d, cell.stream)
    size = max(1000 if cell.contract == "summary" else 250, shape.n)
    rows = np.column_stack([X, y > 0])[:KEEP]
    blocks = [rows[i : i + size].tobytes() for i in range(0, len(rows), size)]
    first, *_ = load.connections
    source, taken = requests(session_path(sid, cell.contract), blocks, raw=True, keys=False), 0
    alone = Load([first])
    first.load, first.source = alone, source
    await alone.run(0, len(blocks))
    first.load, taken = load, KEEP * alone.count // len(blocks)
    return taken


sessions = itertools.count()


async def measure_cell(system: System, cell: Cell, seconds: float) -> Measured:
    shape, keys = cell.shape, cell.contract != "summary"
    load = await Load.over(system.address, shape.connections, Socket if shape.stream else Connection)
    sid, taken = f"bench-{next(sessions)}", 0
    if system.store:
        open_session(system, sid, shape.d, cell.contract)
        aside = await Load.over(system.address, 1)
        taken = await settle(aside, sid, cell)
        aside.close()
    if shape.stream:
        source = messages(bodies(shape.n, shape.d, False, cell.stream))
        for number, connection in enumerate(load.connections):
            assert isinstance(connection, Socket)
            query = f"producer=p{number}" if keys else "reply=summary"
            await connection.open(f"/sessions/{sid}/stream?{query}")
    elif system.store:
        source = requests(
            session_path(sid, cell.contract),
            bodies(shape.n, shape.d, shape.raw, cell.stream),
            raw=shape.raw,
            keys=keys,
            binary=cell.contract == "binary",
        )
    elif system.name in ("river", "durable"):
        assert httpx.delete(f"{system.url}/model").status_code == 200
        path = "/observe" if keys else "/observe/summary"
        source = requests(path, bodies(shape.n, shape.d, False, cell.stream))
    else:
        source = requests("/", bodies(shape.n, shape.d, shape.raw, cell.stream), raw=shape.raw)
    for connection in load.connections:
        connection.source = source
    await load.run(0.05, shape.connections)
    taken += load.count * shape.n
    commits = system.revision(sid) if system.store else 0
    result = await measure(load, system, seconds, 2 * shape.connections)
    load.close()
    if system.store:
        result = replace(result, gathered=result.requests / (system.revision(sid) - commits))
        observed = httpx.get(f"{system.url}/sessions/{sid}").json()["observed"]
        assert observed == taken + result.requests * shape.n, f"{observed} stored of {taken} and {result}"
        end_session(system, sid)
    return result


# ------------------------------------------------------------------------------------------------- the sections


@dataclass
class Budget:
    """Rounds, their length, and when to begin no further one"""

    rounds: int
    seconds: float
    until: float

    def __iter__(self) -> Iterator[int]:
        longest = 0.0
        for number in range(self.rounds):
            start = time.monotonic()
            if number and start + longest > self.until:
                print(f"  (time is up after {number} rounds)", flush=True)
                return
            yield number
            longest = max(longest, time.monotonic() - start)


Found = dict[tuple[str, Cell], list[Measured]]


async def cells(systems: Sequence[System], only: Sequence[str], budget: Budget, rng: random.Random) -> None:
    chosen = [cell for cell in CELLS if all(word in str(cell) for word in only)]
    plan: dict[tuple[str, Cell], None] = {}  # the peer gets no raw rows, and the floor does not look at its points
    for system, cell in itertools.product(systems, chosen):
        if system.name != "ASGI" or not (cell.shape.stream or cell.contract == "default"):
            plan[system.name, reduced(system.name, cell)] = None
    by_name = {system.name: system for system in systems}
    found: Found = defaultdict(list)
    for _ in budget:
        order = list(plan)
        rng.shuffle(order)
        for name, cell in order:
            found[name, cell].append(await measure_cell(by_name[name], cell, budget.seconds))
    rounds = min(map(len, found.values()))
    print(f"\nCPU of server + store, µs a request; medians of {rounds} interleaved rounds of {budget.seconds:g} s")
    missed = [line for name in ("protocol", "ASGI") for line in table(name, chosen, found)]
    client = [each.client for (name, _), runs in found.items() if name == "protocol" for each in runs]
    print("\nof it store: the store's part. share: the floor's CPU over ours. The load took")
    print(f"{statistics.median(client):.0%} of a core while ours was measured, at most {max(client):.0%}.")
    print("\nMissed, and what stands in the way, µs a request:" if missed else "\nNothing was missed.")
    print("\n".join(missed))


def table(name: str, chosen: Sequence[Cell], found: Found) -> list[str]:
    """Print what one way of serving costs beside its peers; the cells that miss their target, with their parts"""

    def median(name: str, cell: Cell, what: str = "cpu") -> float:
        return 1e6 * float(statistics.median(getattr(each, what) for each in found[name, reduced(name, cell)]))

    print(f"\n{name:46} {'River':>8} {'ours':>7} {'ratio':>7} {'target':>7} {'':6} {'durable':>8} {'ratio':>7}", end="")
    print(f" {'floor':>6} {'share':>5} {'store':>6} {'req/commit':>10} {'p50 ms':>7} {'p99 ms':>7}  ours lo–hi")
    missed = list[str]()
    for cell in sorted(chosen, key=lambda cell: CONTRACTS.index(cell.contract)):
        if not (runs := found[name, cell]):
            continue
        theirs, mine, least, kept = (median(each, cell) for each in ("river", name, "floor", "durable"))
        target, store = TARGETS.get((name, cell.contract), {}).get(cell.shape, 0), median(name, cell, "store")
        p50, p99 = (1e3 * statistics.median(each) for each in zip(*((r.p50, r.p99) for r in runs), strict=True))
        met, gathered = theirs >= target * mine, statistics.median(each.gathered for each in runs)
        costs = sorted(1e6 * each.cpu for each in runs)
        print(
            f"{cell!s:46} {theirs:8.0f} {mine:7.0f} {theirs / mine:6.1f}× {target or '':6}{'×' if target else ' '}"
            f" {'' if not target else 'met' if met else 'MISSED':6} {kept:8.0f} {kept / mine:6.1f}× {least:6.0f}"
            f" {least / mine:5.0%} {store:6.0f} {gathered:10.1f} {p50:7.1f} {p99:7.1f}  {costs[0]:.0f}–{costs[-1]:.0f}"
        )
        if not met:
            rest = mine - store - least
            missed.append(
                f"  {name}, {cell}: {mine:.0f} where {theirs / target:.0f} would do: {least:.0f} a bare server,"
                f" {store:.0f} the store, {rest:.0f} reading, learning, committing and answering"
            )
    return missed


def reduced(name: str, cell: Cell) -> Cell:
    """The cell that this system is measured on in place of this one"""
    shape = cell.shape
    plain = replace(shape, stream=False)
    if name in ("river", "durable"):
        return Cell(replace(plain, raw=False), "summary" if cell.contract == "summary" else "full", cell.stream)
    return Cell(plain, "summary", "separable") if name == "floor" else cell


async def fsync(running: Running, budget: Budget, rng: random.Random) -> None:
    """Requests a second with fsync on every commit, against one a second"""
    cell, rates, waits = Cell(SHAPES[0], "full", "flipped"), defaultdict(list), []
    cycles: dict[str, list[float]] = defaultdict(list)  # seconds a commit
    with redis.Redis.from_url(running.redis_url) as store:
        try:
            for _ in budget:
                for policy in rng.sample(["always", "everysec"], 2):
                    store.config_set("appendfsync", policy)
                    found = await measure_cell(ours(running), cell, budget.seconds)
                    rates[policy].append(found.rate)
                    cycles[policy].append(found.gathered / found.rate)
                waits.append(disk(running.data))
        finally:
            store.config_set("appendfsync", "always")
    always, everysec = (statistics.median(rates[policy]) for policy in ("always", "everysec"))
    met = "met" if always >= 0.85 * everysec else "MISSED"
    print(
        f"\nfsync, {cell}: always {always:.0f}/s, everysec {everysec:.0f}/s, ratio {always / everysec:.2f} ≥ 0.85 {met}"
    )
    slow, fast = (1e3 * statistics.median(cycles[policy]) for policy in ("always", "everysec"))
    wait = 1e3 * statistics.median(waits)
    print(f"  a commit and its answers take {slow:.2f} ms and {fast:.2f} ms, an fdatasync alone {wait:.2f} ms (mean),")
    print(f"  which allows a ratio of {fast / (fast + wait):.2f}")


def disk(folder: Path) -> float:
    """Seconds that a write and an fdatasync take, at the pace of commits; the mean"""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(100):
            time.sleep(0.002)
            start = time.perf_counter()
            os.write(file.fileno(), bytes(3000))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - start)
    return statistics.mean(taken)


async def workers(one: Running, two: Running, budget: Budget, rng: random.Random) -> None:
    """CPU a request: two workers with a session each, against one worker with both"""
    shapes = [SHAPES[0], replace(SHAPES[0], connections=64), PAIR, replace(PAIR, connections=16)]
    chosen = [Cell(shape, "full", "flipped") for shape in shapes]
    found: dict[tuple[int, Cell], list[float]] = defaultdict(list)
    for _ in budget:
        plan = list(itertools.product((one, two), chosen))
        rng.shuffle(plan)
        for running, cell in plan:
            result = await measure_pair(running, cell, budget.seconds)
            found[len(running.worker_pids), cell].append(1e6 * result.cpu)
    print()
    for cell in chosen:
        alone, both = statistics.median(found[0, cell]), statistics.median(found[2, cell])
        met = "met" if both <= 1.15 * alone else "MISSED"
        print(f"workers, {cell}: one {alone:.0f} µs, two {both:.0f} µs, ratio {both / alone:.2f} ≤ 1.15 {met}")


async def measure_pair(running: Running, cell: Cell, seconds: float) -> Measured:
    """Two sessions at once, each over half of the connections; with two workers, each session in its own"""
    system, shape = ours(running), cell.shape
    half = max(1, shape.connections // 2)
    load = await split(system, running.worker_pids, half)
    sids = [f"bench-{next(sessions)}" for _ in range(2)]
    for sid, part in zip(sids, (load.connections[:half], load.connections[half:]), strict=True):
        open_session(system, sid, shape.d, cell.contract)
        await settle(Load(part), sid, cell)
        body = bodies(shape.n, shape.d, shape.raw, cell.stream)
        source = requests(session_path(sid, cell.contract), body, raw=shape.raw, keys=True)
        for connection in part:
            connection.load, connection.source = load, source
    await load.run(0.05, 2 * half)
    result = await measure(load, system, seconds, 4 * half)
    load.close()
    for sid in sids:
        end_session(system, sid)
    return result


async def split(system: System, workers: Sequence[int], half: int) -> Load:
    """2·half connections, the first half to one worker, the rest to the other: the one not meant is held meanwhile"""
    load = Load([])
    for busy in reversed(workers or [0, 0]):
        if busy:
            os.kill(busy, signal.SIGSTOP)
        try:
            part = await Load.over(system.address, half)
            for connection in part.connections:  # once it is answered, the connection is accepted
                connection.source = iter([b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"])
            await part.run(0, 1)
        finally:
            if busy:
                os.kill(busy, signal.SIGCONT)
        load.connections += part.connections
    return load


async def run(quick: bool, only: Sequence[str]) -> None:
    rng, start = random.Random(11), time.monotonic()
    with ExitStack() as running:
        data = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="horocycle-bench-")))
        one = running.enter_context(service(data / "one", HOROCYCLE_FIT_WORKERS="0"))
        asgi = running.enter_context(service(data / "asgi", HOROCYCLE_FIT_WORKERS="0", HOROCYCLE_DIRECT="false"))
        peer = running.enter_context(uvicorn_app("river", "benchmarks.river_server:app"))
        bare = running.enter_context(uvicorn_app("floor", "benchmarks.observe:floor", **MALLOC))
        store = running.enter_context(EmbeddedServer(data / "river"))
        durable = running.enter_context(uvicorn_app("durable", "benchmarks.river_server:app", RIVER_STORE=store.url))
        durable = replace(durable, pids=[*durable.pids, store.pid], store_pids=[store.pid])
        for shape, stream in itertools.product(SHAPES, STREAMS):
            bodies(shape.n, shape.d, shape.raw, stream)
        until = start + (40 if quick else 420)
        systems = [ours(one), ours(asgi, "ASGI"), peer, durable, bare]
        await cells(systems, only, Budget(1 if quick else 5, 0.3 if quick else 0.4, until), rng)
        if only:
            return
        short = Budget(1 if quick else 8, 0.6, until + 30)
        await fsync(one, short, rng)
        two = running.enter_context(service(data / "two", workers=2, HOROCYCLE_FIT_WORKERS="0"))
        short.until += 60
        await workers(one, two, short, rng)
    where = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at its end, Python {sys.version.split()[0]}"
    print(f"\n{time.strftime('%Y-%m-%d')}, {time.monotonic() - start:.0f} s in all, on {where}")


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe")
    parser.add_argument("--quick", action="store_true", help="one round, in two minutes; results/ stays as it is")
    parser.add_argument("--only", nargs="*", default=[], help="just the cells with all of these words in their names")
    arguments = parser.parse_args(argv)
    whole = not (arguments.quick or arguments.only)
    with kept("observe") if whole else nullcontext(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(arguments.quick, arguments.only))


if __name__ == "__main__":
    main(sys.argv[1:])
