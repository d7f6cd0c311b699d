"""python -m benchmarks.sessions [--sessions N]: what it costs to have many sessions open

One worker and its private store with fsync on every write, on loopback; sessions are opened over HTTP, some by one
client alone, then all by 8 at once, each on a connection that is kept alive. Memory is what the store says it uses and
what the kernel says the worker has, before and after, over the number of sessions: first while nobody has used them,
then after every one has learned ten points. At last they are all listed, page by page.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import redis

from tests.running import Running, service

SESSIONS, CLIENTS, POINTS, PAGE = 10_000, 8, 10, 1000
WARM = 500  # opened by one client
#: What is opened: the default, and a larger one of each kind of memory.
KINDS: dict[str, dict[str, object]] = {
    "perceptron, d = 2": {"dimension": 2, "reference": "origin"},
    "perceptron, d = 100": {"dimension": 100, "reference": "origin"},
    "second order, d = 20": {"dimension": 20, "reference": "origin", "algorithm": "second_order"},
}


@dataclass(frozen=True)
class Memory:
    store: int
    worker: int

    @classmethod
    def of(cls, running: Running) -> Memory:
        with redis.Redis.from_url(running.redis_url) as store:
            used = int(store.info("memory")["used_memory"])
        return cls(used, sum(map(resident, running.worker_pids or [running.launcher.pid])))


def resident(pid: int) -> int:
    """Bytes of a process that are in memory"""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def asked(running: Running, requests: list[tuple[str, str, bytes]], clients: int = CLIENTS) -> list[float]:
    """The seconds that each took, asked by all clients at once; each waits for its answer before it asks again"""
    address = urlsplit(running.url).netloc

    def client(share: list[tuple[str, str, bytes]]) -> list[float]:
        connection, took = http.client.HTTPConnection(address, timeout=60), []
        for method, path, body in share:
            began = time.perf_counter()
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            took.append(time.perf_counter() - began)
            assert answer.status in (200, 201), text
        connection.close()
        return took

    with ThreadPoolExecutor(clients) as aside:
        return [each for took in aside.map(client, [requests[i::clients] for i in range(clients)]) for each in took]


def pages(running: Running) -> Iterator[tuple[int, float]]:
    """How many sessions a page has, and the seconds it took"""
    connection, cursor = http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=60), ""
    while True:
        began = time.perf_counter()
        connection.request("GET", f"/sessions?limit={PAGE}{cursor}")
        page = json.loads(connection.getresponse().read())
        yield len(page["sessions"]), time.perf_counter() - began
        if page["cursor"] is None:
            return
        cursor = f"&cursor={quote(page['cursor'])}"


@dataclass(frozen=True)
class Measured:
    alone: list[float]  # seconds
    opened: list[float]
    wall: float
    idle: Memory  # bytes a session
    used: Memory
    listed: float  # seconds a thousand

    def __str__(self) -> str:
        opened = "".join(f"{1000 * percentile(t, share):8.1f}" for t in (self.alone, self.opened) for share in (50, 99))
        rate = f"{len(self.opened) / self.wall:7,.0f}"
        idle, used = (f"{each.store:8,} {each.worker:8,}" for each in (self.idle, self.used))
        return f"{opened} {rate}   {idle}   {used}   {1000 * self.listed:7.0f}"


def percentile(values: list[float], share: float) -> float:
    return float(np.percentile(values, share))


def measure(kind: dict[str, object], count: int) -> Measured:
    rng = np.random.default_rng(0)
    d = int(str(kind["dimension"]))
    X = rng.uniform(-0.5, 0.5, (POINTS, d)) / np.sqrt(d)
    body = json.dumps({"points": X.tolist(), "labels": [1, -1] * (POINTS // 2)}).encode()
    with tempfile.TemporaryDirectory() as folder, service(Path(folder) / "data") as running:
        first = [("POST", "/sessions", json.dumps({**kind, "id": f"warm{i}"}).encode()) for i in range(WARM)]
        alone = asked(running, first, clients=1)
        asked(running, [("POST", f"/sessions/warm{i}/observe", body) for i in range(WARM)])
        before, began = Memory.of(running), time.perf_counter()
        opening = [("POST", "/sessions", json.dumps({**kind, "id": f"s{i}"}).encode()) for i in range(count)]
        opened, wall = asked(running, opening), time.perf_counter() - began
        idle = Memory.of(running)
        asked(running, [("POST", f"/sessions/s{i}/observe?reply=summary", body) for i in range(count)])
        used = Memory.of(running)
        found = list(pages(running))
        assert sum(size for size, _ in found) == count + WARM
        listed = 1000 * sum(took for _, took in found) / (count + WARM)
    return Measured(alone, opened, wall, each(before, idle, count), each(before, used, count), listed)


def each(before: Memory, after: Memory, count: int) -> Memory:
    """What one session has of the difference"""
    return Memory((after.store - before.store) // count, (after.worker - before.worker) // count)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    count = parser.parse_args(argv or []).sessions
    print(f"{count:,} sessions, opened over HTTP by {CLIENTS} clients; one worker; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':24} alone, ms       {CLIENTS} clients, ms   opened    idle, bytes each    used, bytes each   list, ms")
    print(f"{'':24}  median     p99  median     p99 a second      store   worker      store   worker     a 1000")
    for name, kind in KINDS.items():
        print(f"{name:24}{measure(kind, count)}", flush=True)
    print(
        "\nidle: opened and never used. used: after ten points each, which are retained, with one event;"
        f"\na worker keeps the newest 1,024 decoded. store: used_memory of {store_name()}."
    )


def store_name() -> str:
    with tempfile.TemporaryDirectory() as folder, service(Path(folder) / "data") as running:
        with redis.Redis.from_url(running.redis_url) as store:
            info = store.info("server")
    return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"


if __name__ == "__main__":
    main(sys.argv[1:])
