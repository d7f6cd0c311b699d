"""A fault every few seconds, for as long as you like, and a table of what they did: `make soak`, or
`python -m tests.faults.soak SECONDS [SEED]`.

One service with two workers, a private store and a fit worker. Sixteen clients stream to two sessions at a time, hang
up, repeat themselves and retry; one fit follows another; meanwhile something is killed, stopped or cut off, and as soon
as somebody is served again, the next. When a session has all its points, its log is compared with what was
acknowledged, and learned anew in another process, bit for bit.

A point is counted with the fault that came last before it was acknowledged. `recovered` is the time from a fault to the
first point that was sent and acknowledged after it.
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
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

import httpx
import numpy as np
import redis

from service.errors import StoreUnavailable
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
    stored_at,
)
from tests.running import Running, service
from tests.waiting import retry, wait_until

ALGORITHMS = ("perceptron", "second_order", "strategic", "hyperboloid")
#: Points of a session, and of a request at most; sessions at once, and the clients of each.
POINTS, MOST, SESSIONS, CLIENTS = 10_000, 120, 2, 8
#: Means of the seconds between two requests of a client, and from one recovery to the next fault.
PAUSE, CALM_SECONDS = 0.5, 1.2
#: Seconds after which a session that has not all its points hangs, and a fault that nobody recovers from.
LIMIT, RECOVERY = 900.0, 120.0
REFUSALS = (0, 429, 503, 504)  # 0: the connection was closed
CALM = "none yet"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "soak.txt"


@dataclass
class Fault:
    kind: str
    at: float
    recovered: float | None = None  # seconds until a point that was sent after it was acknowledged


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
    """What the clients saw"""

    faults: list[Fault] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    first_after: dict[str, str] = field(default_factory=dict)  # key of a request → the fault before its first 200
    fits: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def happens(self, kind: str) -> None:
        with self.lock:
            self.faults.append(Fault(kind, time.monotonic()))

    def happened(self) -> None:
        """Now, to be exact: what was acknowledged since it was announced was not a recovery"""
        with self.lock:
            self.faults[-1].at, self.faults[-1].recovered = time.monotonic(), None

    def heard(self, request: Request, status: int, sent: float) -> None:
        with self.lock:
            self.statuses[status] += 1
            if status == 200:
                fault = self.faults[-1]
                self.first_after.setdefault(request.key, fault.kind)
                if fault.recovered is None and sent > fault.at:
                    fault.recovered = time.monotonic() - fault.at


@dataclass(frozen=True)
class Verdict:
    """What was found of a session: of each request its key, points, and how many were lost and stored twice"""

    session: str
    requests: list[tuple[str, int, int, int]]
    wrong: str  # "" if its log, learned anew, is the stored state


def judge(url: str, session: str, requests: list[Request]) -> Verdict:
    """In a process of its own, while other sessions go on; the store may be killed meanwhile, too"""
    found = _patiently(url, session)
    kept, counts = Counter(map(tuple, found.rows.tolist())), []
    for request in requests:
        times = [kept[tuple(row)] for row in request.rows.tolist()]
        counts.append((request.key, len(times), times.count(0), sum(max(each - 1, 0) for each in times)))
    try:
        assert_exactly_once(requests, found)
    except AssertionError as error:
        return Verdict(session, counts, str(error)[:500] or "not equal")
    return Verdict(session, counts, "")


def _patiently(url: str, session: str) -> Stored:
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            return stored_at(url, session)
        except (OSError, redis.RedisError, StoreUnavailable):
            assert time.monotonic() < deadline, "the store is not back"
            time.sleep(0.1)


class Soak:
    """The service, what happens to it, and what came of it"""

    def __init__(self, folder: Path, seed: int, log: TextIO) -> None:
        self.folder, self.seed, self.rng = folder, seed, np.random.default_rng(seed)
        self.seen, self.ending = Seen(), threading.Event()
        self.seen.happens(CALM)
        self.rows: dict[str, Row] = defaultdict(Row)
        self.memory: list[dict[str, int]] = []
        self._log, self._stack = log, ExitStack()
        self.running = self._started("0")
        self.began = time.monotonic()
        self._judges = ProcessPoolExecutor(1, get_context("spawn"))
        self._stack.callback(self._judges.shutdown, cancel_futures=True)
        self.kinds: dict[str, tuple[float, Callable[[], None]]] = {
            "worker killed": (28, self._kill_a_worker),
            "store killed": (36, self._kill_the_store),
            "fit worker killed": (17, self._kill_the_fit_worker),
            "launcher killed": (1.5, self._kill_the_launcher),
            "append-only file cannot grow": (2, self._fill_the_disk),
            "worker stopped for a while": (5, lambda: self._stop(self.rng.choice(self.running.worker_pids))),
            "store stopped for a while": (4, lambda: self._stop(self.running.store_pid)),
            "connections to the store cut": (7, self._cut),
        }

    def close(self) -> None:
        self._stack.close()

    def _started(self, port: str) -> Running:
        options = {"HOROCYCLE_DEADLINE": "2", "HOROCYCLE_DEMO": "false"}
        again = service(self.folder / "data", workers=2, port=port, stderr=self._log, **options)
        return self._stack.enter_context(again)

    def run(self, seconds: float) -> None:
        """Faults for so long; then every session comes to its end"""
        until = self.began + seconds
        with ThreadPoolExecutor(SESSIONS + 1) as aside:
            lives = [aside.submit(self._sessions, life) for life in range(SESSIONS)]
            lives.append(aside.submit(self._fits))
            try:
                while time.monotonic() < until and not any(life.done() for life in lives):
                    self._happen()
                    self._wait(lambda: self.seen.faults[-1].recovered is not None, lives)
                    self.ending.wait(self.rng.exponential(CALM_SECONDS))
            finally:
                self.ending.set()
            for life in lives:
                life.result()

    def _wait(self, true: Callable[[], object], lives: list[Future[None]]) -> None:
        wait_until(lambda: true() or any(life.done() for life in lives), RECOVERY)

    # ------------------------------------------------------------------------------------------------ the faults

    def _happen(self) -> None:
        weights = np.array([weight for weight, _ in self.kinds.values()])
        kind = str(self.rng.choice([*self.kinds], p=weights / weights.sum()))
        self.seen.happens(kind)
        with suppress(OSError, ValueError, redis.RedisError):  # it is just being replaced: that was one already
            self.kinds[kind][1]()
        self.memory.append(self._resident())
        if len(self.seen.faults) % 50 == 0:
            say(self.progress)

    def _kill_a_worker(self) -> None:
        kill_a_worker(self.running, self.rng)
        self.seen.happened()

    def _kill_the_store(self) -> None:
        kill_the_store(self.running)
        self.seen.happened()

    def _kill_the_launcher(self) -> None:
        before = self.running
        before.launcher.kill()
        before.launcher.wait()
        self.seen.happened()
        for _ in range(10):
            with suppress(AssertionError):  # workers that were just starting hold the port until they have started
                self.running = self._started(before.url.rpartition(":")[2])
                return
        raise AssertionError("no launcher could be started again")

    def _kill_the_fit_worker(self) -> None:
        wait_until(lambda: self.running.fit_worker_pids, 120)
        os.kill(self.running.fit_worker_pids[0], signal.SIGKILL)
        self.seen.happened()

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
        self.seen.happened()

    def _fill_the_disk(self) -> None:
        """No file of the store may grow beyond what its append-only file has, and a few bytes: a write is cut short"""
        pid, files = self.running.store_pid, [*(self.folder / "data").glob("**/*.incr.aof")]
        most = max(path.stat().st_size for path in files) + int(self.rng.integers(1, 2000))
        resource_limit(pid, most)
        try:
            wait_until(lambda: not alive(pid), 20)
        except AssertionError:  # nobody wrote that much meanwhile
            resource_limit(pid, resource.RLIM_INFINITY)

    # ------------------------------------------------------------------------------------------------ a session

    def _sessions(self, life: int) -> None:
        """One after another"""
        number = life
        while not self.ending.is_set():
            self._session(number)
            number += SESSIONS

    def _session(self, number: int) -> None:
        seed = int(np.random.default_rng([self.seed, number]).integers(2**32))
        name, algorithm = f"soak-{number}", ALGORITHMS[number // SESSIONS % len(ALGORITHMS)]
        stream = Stream(
            seed, points=POINTS, clients=CLIENTS, pause=PAUSE, most=MOST, session=name, heard=self.seen.heard
        )
        retry(lambda: opened(self.running.url, algorithm, name), 201, LIMIT)
        began = len(self.seen.faults) - 1
        with ExitStack() as between:
            url = self.running.url
            if number % 3 == 0:  # every third session through something that loses answers
                url = between.enter_context(proxied(url, seed, refuse=0.01, lose=0.02, half=0.01)).url
            stream.run(url, LIMIT)
        kinds = {fault.kind for fault in self.seen.faults[began:]}
        verdict = self._judges.submit(judge, self.running.redis_url, name, stream.requests).result()
        self._enter(verdict, kinds)
        self._end(name)

    def _enter(self, verdict: Verdict, kinds: set[str]) -> None:
        with self.seen.lock:
            for key, points, lost, duplicated in verdict.requests:
                row = self.rows[self.seen.first_after.pop(key, CALM)]
                row.acknowledged += points
                row.lost, row.duplicated = row.lost + lost, row.duplicated + duplicated
            for kind in kinds:
                self.rows[kind].sessions += 1
                self.rows[kind].equal += not verdict.wrong
        if verdict.wrong:
            say(f"session {verdict.session}: {verdict.wrong}")

    def _fits(self) -> None:
        """One fit after another, twenty a session; each comes to an end, and says how"""
        number = 0
        while not self.ending.is_set():
            name = f"soak-fits-{number}"
            retry(lambda name=name: opened(self.running.url, "perceptron", name), 201, LIMIT)  # type: ignore[misc]
            self._twenty_fits(name)
            self._end(name)
            number += 1

    def _twenty_fits(self, name: str) -> None:
        x = np.random.default_rng(7).uniform(-0.6, 0.6, (2_000, 2))
        raw = {"content-type": "application/octet-stream"}
        with httpx.Client(timeout=15) as http:
            rows = np.column_stack([x, np.arange(2_000) % 2]).tobytes()
            self._asked("POST", f"/sessions/{name}/observe", http, content=rows, headers=raw)
            for _ in range(20):
                if self.ending.wait(0.5):
                    return
                key = {"Idempotency-Key": secrets.token_hex(8)}
                begun = self._asked("POST", f"/sessions/{name}/fits", http, json={}, headers=key)
                fit, until = f"/sessions/{name}/fits/{begun.json()['id']}", time.monotonic() + 300
                while (told := self._asked("GET", fit, http).json())["status"] in ("queued", "running"):
                    assert time.monotonic() < until, f"a fit hangs: {told}"
                    time.sleep(0.2)
                why = f" ({told['failure']['detail']})" if told["failure"] else ""
                self.seen.fits[told["status"] + why] += 1

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

    # ------------------------------------------------------------------------------------------------ the table

    def _resident(self) -> dict[str, int]:
        """MiB of memory: the launcher, the larger worker, the fit worker, the store"""
        with suppress(OSError, ValueError):
            running = self.running
            pids = {"launcher": [running.launcher.pid], "worker": running.worker_pids}
            pids |= {"fit worker": running.fit_worker_pids, "store": [running.store_pid]}
            return {name: max(map(resident, found), default=0) for name, found in pids.items()}
        return {}

    @property
    def kills(self) -> int:
        return sum("killed" in fault.kind for fault in self.seen.faults)

    @property
    def progress(self) -> str:
        points = sum(row.acknowledged for row in self.rows.values())
        seconds = time.monotonic() - self.began
        faults = len(self.seen.faults) - 1
        return f"{seconds:.0f} s: {points:,} points of ended sessions, {faults} faults, {self.kills} kills"

    @property
    def whole(self) -> bool:
        return all(row.lost == row.duplicated == 0 and row.equal == row.sessions for row in self.rows.values())

    def table(self) -> str:
        lines = [
            "| fault | times | points acknowledged | lost | duplicated | sessions whose replay is equal "
            "| recovered, s: median / most |",
            "|---|---|---|---|---|---|---|",
        ]
        total = Row()
        for kind in (CALM, *self.kinds):
            row, faults = self.rows[kind], [fault for fault in self.seen.faults if fault.kind == kind]
            times, recovered = ("", "") if kind == CALM else (len(faults), middle_and_most(faults))
            lines.append(
                f"| {kind} | {times} | {row.acknowledged:,} | {row.lost} | {row.duplicated} "
                f"| {row.equal} of {row.sessions} | {recovered} |"
            )
            total.acknowledged += row.acknowledged
            total.lost, total.duplicated = total.lost + row.lost, total.duplicated + row.duplicated
        lines.append(
            f"| all | {len(self.seen.faults) - 1}, of them kills {self.kills} | {total.acknowledged:,} | {total.lost} "
            f"| {total.duplicated} | | {middle_and_most(self.seen.faults[1:])} |"
        )
        return "\n".join(lines)

    def summary(self) -> str:
        names = {0: "connection closed"}
        answers = ", ".join(f"{count:,} × {names.get(s, s)}" for s, count in sorted(self.seen.statuses.items()))
        fits = ", ".join(f"{count} {status}" for status, count in sorted(self.seen.fits.items())) or "none"
        return f"Answers to observe: {answers}.\nFits: {fits}; none hung.\n\n{self._memory_table()}"

    def _memory_table(self) -> str:
        """Resident memory over the run: the median of each tenth of it"""
        samples = [sample for sample in self.memory if sample]
        names = ("launcher", "worker", "fit worker", "store")
        tenths = [part for part in np.array_split(np.arange(len(samples)), 10) if len(part)]
        lines = [
            "| resident, MiB, by tenths of the run | " + " | ".join(map(str, range(1, len(tenths) + 1))) + " | most |"
        ]
        lines.append("|---" * (len(tenths) + 2) + "|")
        for name in names:
            # 0: it was just not there
            found = [[samples[i][name] for i in part if samples[i][name]] or [0] for part in tenths]
            middles = " | ".join(f"{statistics.median(each):.0f}" for each in found)
            lines.append(f"| {name} | {middles} | {max(map(max, found))} |")
        return "\n".join(lines)


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


def middle_and_most(faults: list[Fault]) -> str:
    seconds = [fault.recovered for fault in faults if fault.recovered is not None] or [0.0]
    return f"{statistics.median(seconds):.2f} / {max(seconds):.2f}"


def machine() -> str:
    found = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    kind = next((value.strip() for name, value in found.items() if name.strip() == "model name"), "unknown")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return f"{os.cpu_count()} cores ({kind}), {pages / 2**30:.0f} GiB of memory, load at the end {load}"


told: list[str] = []


def say(text: str) -> None:
    told.append(text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    seconds = float(arguments[0]) if arguments else float(os.environ.get("SOAK_SECONDS", "600"))
    seed = int(arguments[1]) if len(arguments) > 1 else secrets.randbits(32)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    say(f"seed {seed}, {seconds:.0f} s, in {folder}")
    failed = True
    with (folder / "log").open("w") as log:
        soak = Soak(folder, seed, log)
        try:
            soak.run(seconds)
            failed = False
        finally:
            took = time.monotonic() - soak.began
            soak.close()
            told.clear()
            say(f"{time.strftime('%Y-%m-%d')}, {machine()}, {took:.0f} s, seed {seed}\n")
            say(soak.table() + "\n")
            say(soak.summary() + "\n")
    tracebacks = (folder / "log").read_text().count("Traceback (most recent call last)")
    say(f"Tracebacks in the service's log: {tracebacks}.")
    RESULTS.write_text("\n".join(told) + "\n")
    strange = set(soak.seen.statuses) - {200, *REFUSALS}
    if failed or not soak.whole or strange or tracebacks:
        say(f"FAILED; what was stored and logged is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
