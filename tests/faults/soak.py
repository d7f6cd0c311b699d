"""Hours of faults, and a table of what they did: `make soak`, or `python -m tests.faults.soak SECONDS [SEED]`.

One service with two workers, a private store and a fit worker. Sixteen clients stream to one session after another,
hang up, repeat themselves and retry; every few seconds something is killed, stopped or cut off. When a session has all
its points, its log is compared with what was acknowledged, and learned anew in this process, bit for bit.

A point is counted with the fault that came last before it was acknowledged. `silence` is the longest time after a fault
in which nothing was acknowledged; `refused until` how long after it somebody was still refused or cut off.
"""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import httpx
import numpy as np
import redis

from tests.faults.proxy import proxied
from tests.faults.stream import (
    Request,
    Stored,
    Stream,
    alive,
    assert_exactly_once,
    kill_a_worker,
    kill_the_store,
    open_session,
    stored,
)
from tests.running import Running, service, wait_until_ready
from tests.waiting import retry, wait_until

ALGORITHMS = ("perceptron", "second_order", "strategic", "hyperboloid")
#: Points of a session, of a request at most, and the mean of the seconds between two faults.
POINTS, MOST, BETWEEN = 10_000, 200, 2.5
#: A session that has not all its points after so many seconds hangs.
LIMIT = 400.0
REFUSALS = (0, 429, 503, 504)  # 0: the connection was closed
CALM = "none yet"


@dataclass
class Fault:
    """One that happened, and what was seen until the next"""

    kind: str
    at: float
    last: float = 0.0  # when something was last acknowledged
    silence: float = 0.0
    refused_until: float = 0.0


@dataclass
class Row:
    """All faults of one kind"""

    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    sessions: int = 0
    equal: int = 0


@dataclass
class Seen:
    """What the clients saw. Faults come from one thread, answers from another: only whole values are assigned."""

    faults: list[Fault] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    first_after: dict[str, str] = field(default_factory=dict)  # key of a request → the fault before its first 200
    fits: Counter[str] = field(default_factory=Counter)

    def happens(self, kind: str) -> None:
        now = time.monotonic()
        self.faults.append(Fault(kind, now, now))

    def heard(self, request: Request, status: int) -> None:
        self.statuses[status] += 1
        fault, now = self.faults[-1], time.monotonic()
        if status == 200:
            self.first_after.setdefault(request.key, fault.kind)
            fault.silence, fault.last = max(fault.silence, now - fault.last), now
        elif status in REFUSALS:
            fault.refused_until = now - fault.at


class Soak:
    """The service, what happens to it, and what came of it"""

    def __init__(self, folder: Path, seed: int, log: TextIO) -> None:
        self.folder, self.rng, self.seen = folder, np.random.default_rng(seed), Seen()
        self.seen.happens(CALM)
        self.rows: dict[str, Row] = defaultdict(Row)
        self._log, self._stack = log, ExitStack()
        self.running = self._started("0")
        self.memory = [self._resident()]
        self.kinds: dict[str, tuple[float, Callable[[], None]]] = {
            "worker killed": (4, lambda: kill_a_worker(self.running, self.rng)),
            "store killed": (3, lambda: kill_the_store(self.running)),
            "fit worker killed": (2, self._kill_the_fit_worker),
            "launcher killed": (0.2, self._kill_the_launcher),
            "append-only file cannot grow": (0.5, self._fill_the_disk),
            "worker stopped for a while": (1, lambda: self._stop(self.rng.choice(self.running.worker_pids))),
            "store stopped for a while": (1, lambda: self._stop(self.running.store_pid)),
            "connections to the store cut": (1, self._cut),
        }

    def close(self) -> None:
        self._stack.close()

    def _started(self, port: str) -> Running:
        options = {"HOROCYCLE_DEADLINE": "2", "HOROCYCLE_DEMO": "false"}
        again = service(self.folder / "data", workers=2, port=port, stderr=self._log, **options)
        return self._stack.enter_context(again)

    # ------------------------------------------------------------------------------------------------ the faults

    def happen(self) -> None:
        weights = np.array([weight for weight, _ in self.kinds.values()])
        kind = str(self.rng.choice([*self.kinds], p=weights / weights.sum()))
        self.seen.happens(kind)
        with suppress(OSError, ValueError, redis.RedisError):  # it is just being replaced: that was one already
            self.kinds[kind][1]()

    def _kill_the_launcher(self) -> None:
        before = self.running
        before.launcher.kill()
        before.launcher.wait()
        for _ in range(10):
            with suppress(AssertionError):  # workers that were just starting hold the port until they have started
                self.running = self._started(before.url.rpartition(":")[2])
                return
        raise AssertionError("no launcher could be started again")

    def _kill_the_fit_worker(self) -> None:
        wait_until(lambda: self.running.fit_worker_pids)
        os.kill(self.running.fit_worker_pids[0], signal.SIGKILL)

    def _stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self.rng.uniform(0.1, 3))  # beyond the deadline of 2 s, now and then
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _cut(self) -> None:
        with redis.Redis.from_url(self.running.redis_url) as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def _fill_the_disk(self) -> None:
        """No file of the store may grow beyond what its append-only file has, and a few bytes: a write is cut short"""
        pid, files = self.running.store_pid, [*(self.folder / "data").glob("**/*.incr.aof")]
        most = max(path.stat().st_size for path in files) + int(self.rng.integers(1, 2000))
        resource_limit(pid, most)
        wait_until(lambda: not alive(pid), 20)

    # ------------------------------------------------------------------------------------------------ a session

    def session(self, number: int) -> None:
        seed = int(self.rng.integers(2**32))
        name, algorithm = f"soak-{number}", ALGORITHMS[number % len(ALGORITHMS)]
        stream = Stream(seed, points=POINTS, pause=0.3, most=MOST, session=name, heard=self.seen.heard)
        for each in (name, f"{name}-fits"):
            retry(lambda each=each: opened(self.running.url, algorithm, each), 201)  # type: ignore[misc]
        began = len(self.seen.faults) - 1
        with ThreadPoolExecutor(2) as aside, ExitStack() as between:
            url = self.running.url
            if number % 3 == 0:  # every third session through something that loses answers
                url = between.enter_context(proxied(url, seed, refuse=0.01, lose=0.02, half=0.01)).url
            streaming = aside.submit(stream.run, url, LIMIT)
            fitting = aside.submit(self._fit, f"{name}-fits", streaming)
            while not streaming.done():
                self._sleep(self.rng.exponential(BETWEEN), streaming)
                if not streaming.done():
                    self.happen()
            streaming.result()
            fitting.result()
        wait_until_ready(self.running.url)
        self._judge(stream, stored(self.running, name), {fault.kind for fault in self.seen.faults[began:]})
        self._end(name)
        self.memory.append(self._resident())

    def _sleep(self, seconds: float, streaming: Future[None]) -> None:
        with suppress(TimeoutError):
            streaming.exception(timeout=seconds)

    def _fit(self, name: str, streaming: Future[None]) -> None:
        """One fit after another, in a session of their own; each comes to an end, and says how"""
        rows = np.column_stack([self.rng.uniform(-0.6, 0.6, (2_000, 2)), np.arange(2_000) % 2])
        kind = {"content-type": "application/octet-stream"}
        with httpx.Client(timeout=15) as http:
            self._asked("POST", f"/sessions/{name}/observe", http, content=rows.tobytes(), headers=kind)
            while not streaming.done():
                key = {"Idempotency-Key": secrets.token_hex(8)}
                begun = self._asked("POST", f"/sessions/{name}/fits", http, json={}, headers=key)
                fit, until = f"/sessions/{name}/fits/{begun.json()['id']}", time.monotonic() + 300
                while (told := self._asked("GET", fit, http).json())["status"] in ("queued", "running"):
                    assert time.monotonic() < until, f"a fit hangs: {told}"
                    time.sleep(0.1)
                self.seen.fits[told["status"]] += 1
            self._end(name)

    def _end(self, name: str) -> None:
        """410: an earlier try of ours has ended it"""
        with httpx.Client(timeout=15) as http:
            self._asked("DELETE", f"/sessions/{name}", http, good=(204, 410))

    def _asked(
        self, verb: str, path: str, http: httpx.Client, good: tuple[int, ...] = (200, 202), **how: Any
    ) -> httpx.Response:
        """As soon as it is served"""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            time.sleep(0.02)
            with suppress(httpx.TransportError):
                answer = http.request(verb, self.running.url + path, **how)
                if answer.status_code not in REFUSALS:
                    assert answer.status_code in good, answer.text
                    return answer
        raise AssertionError(f"not served for {LIMIT} s")

    def _judge(self, stream: Stream, found: Stored, kinds: set[str]) -> None:
        kept = Counter(map(tuple, found.rows.tolist()))
        for request in stream.requests:
            row, points = self.rows[self.seen.first_after.pop(request.key, CALM)], map(tuple, request.rows.tolist())
            counts = [kept[point] for point in points]
            row.acknowledged += len(counts)
            row.lost += sum(count == 0 for count in counts)
            row.duplicated += sum(max(count - 1, 0) for count in counts)
        try:
            assert_exactly_once(stream.requests, found)
            equal = True
        except AssertionError as error:
            equal = False
            say(f"session {stream.session}: {error}")
        for kind in kinds:
            self.rows[kind].sessions += 1
            self.rows[kind].equal += equal

    # ------------------------------------------------------------------------------------------------ the table

    def _resident(self) -> dict[str, int]:
        """MiB of memory: the launcher, the larger worker, the store"""
        pids = {"launcher": [self.running.launcher.pid], "store": [self.running.store_pid]}
        pids["worker"] = self.running.worker_pids
        return {name: max(map(resident, found), default=0) for name, found in pids.items()}

    @property
    def whole(self) -> bool:
        return all(row.lost == row.duplicated == 0 and row.equal == row.sessions for row in self.rows.values())

    def table(self) -> str:
        lines = [
            "| fault | times | points acknowledged | lost | duplicated | sessions whose replay is equal "
            "| silence p50 / max, s | refused until p50 / max, s |",
            "|---|---|---|---|---|---|---|---|",
        ]
        total = Row()
        for kind in (CALM, *self.kinds):
            row, faults = self.rows[kind], [fault for fault in self.seen.faults if fault.kind == kind]
            silence, refused = ([getattr(f, name) for f in faults] or [0.0] for name in ("silence", "refused_until"))
            lines.append(
                f"| {kind} | {len(faults) if kind != CALM else ''} | {row.acknowledged:,} | {row.lost} "
                f"| {row.duplicated} | {row.equal} of {row.sessions} | {middle_and_most(silence)} "
                f"| {middle_and_most(refused)} |"
            )
            total.acknowledged += row.acknowledged
            total.lost, total.duplicated = total.lost + row.lost, total.duplicated + row.duplicated
        kills = sum("killed" in fault.kind or "grow" in fault.kind for fault in self.seen.faults)
        lines.append(
            f"| all | {len(self.seen.faults) - 1}, of them kills {kills} | {total.acknowledged:,} | {total.lost} "
            f"| {total.duplicated} | | | |"
        )
        return "\n".join(lines)

    def summary(self) -> str:
        first, last = self.memory[0], self.memory[-1]
        names = {0: "connection closed"}
        answers = ", ".join(f"{count:,} × {names.get(s, s)}" for s, count in sorted(self.seen.statuses.items()))
        memory = "; ".join(
            f"{name} {first[name]} at first, {last[name]} at last, {max(each[name] for each in self.memory)} at most"
            for name in first
        )
        fits = ", ".join(f"{count} {status}" for status, count in sorted(self.seen.fits.items())) or "none"
        return f"Answers to observe: {answers}.\nFits: {fits}; none hung.\nResident memory, MiB: {memory}."


def opened(url: str, algorithm: str, name: str) -> httpx.Response:
    """201, also if an earlier try of ours was first"""
    try:
        open_session(url, algorithm, session=name)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != 409:
            return error.response
    return httpx.Response(201)


def resource_limit(pid: int, size: int) -> None:
    """The largest size a file may have that this process writes to"""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def resident(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
    return 0


def middle_and_most(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} / {max(seconds):.2f}"


def machine() -> str:
    found = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    kind = next((value.strip() for name, value in found.items() if name.strip() == "model name"), "unknown")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{os.cpu_count()} cores ({kind}), {pages / 2**30:.0f} GiB of memory"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    seconds = float(arguments[0]) if arguments else float(os.environ.get("SOAK_SECONDS", "600"))
    seed = int(arguments[1]) if len(arguments) > 1 else secrets.randbits(32)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    began, number = time.monotonic(), 0
    say(f"seed {seed}, {seconds:.0f} s, in {folder}")
    with (folder / "log").open("w") as log:
        soak = Soak(folder, seed, log)
        try:
            while time.monotonic() - began < seconds:
                soak.session(number)
                number += 1
                kills = sum("killed" in fault.kind for fault in soak.seen.faults)
                say(f"{time.monotonic() - began:.0f} s: {number * POINTS:,} points, {kills} kills")
        finally:
            soak.close()
            say(f"\n{time.strftime('%Y-%m-%d')}, {machine()}, {time.monotonic() - began:.0f} s, seed {seed}\n")
            say(soak.table() + "\n")
            say(soak.summary())
    tracebacks = (folder / "log").read_text().count("Traceback (most recent call last)")
    say(f"Tracebacks in the service's log: {tracebacks}.")
    strange = set(soak.seen.statuses) - {200, *REFUSALS}
    if not soak.whole or strange or tracebacks:
        say(f"FAILED; what was stored and logged is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
