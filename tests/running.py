"""A real service: `python -m service serve`, its workers and its private store, as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import redis

from service import telemetry
from service.process.store_format import connect


@dataclass(frozen=True)
class Running:
    url: str
    data: Path
    launcher: subprocess.Popen[str]
    store_url: str | None = None  # of a store that is not its own

    @property
    def redis_url(self) -> str:
        return self.store_url or f"unix://{self.data}/server.sock"

    def client(self) -> redis.Redis:
        """A client of its store"""
        return connect(self.redis_url, 30)

    @property
    def store_pid(self) -> int:
        return int((self.data / "server.pid").read_text())

    @property
    def worker_pids(self) -> list[int]:
        """The workers: not the store, not the fit worker, not multiprocessing's resource tracker"""
        found, main = list[int](), f"/proc/{self.launcher.pid}/task/{self.launcher.pid}"
        for pid in Path(f"{main}/children").read_text().split():
            with suppress(OSError):  # it has just ended
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
        return found

    @property
    def fit_worker_pids(self) -> list[int]:
        return children(self.launcher.pid, "service.fits.worker")

    @property
    def metrics_folder(self) -> Path:
        """Where the workers publish their metrics, if there are several"""
        environment = Path(f"/proc/{self.worker_pids[0]}/environ").read_bytes().split(b"\0")
        [found] = [line.partition(b"=")[2] for line in environment if line.startswith(telemetry.FOLDER.encode() + b"=")]
        return Path(os.fsdecode(found))


def children(pid: int, word: str) -> list[int]:
    """The processes begun by this one, by whichever of its threads, with that word in their command"""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == pid and word.encode() in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
    return found


@contextmanager
def service(
    data: Path,
    *,
    workers: int = 1,
    port: str = "0",
    stderr: Any = None,
    verify: Any = True,
    through: Sequence[str] = (),
    **environment: str,
) -> Iterator[Running]:
    """Run it on a free port until the block ends; it must end by itself when told to. `through`: a command that has it
    as further arguments, and becomes it"""
    command = [
        *through,
        sys.executable,
        "-m",
        "service",
        "serve",
        "--port",
        port,
        "--data",
        str(data),
        "--workers",
        str(workers),
    ]
    unset = {k: v for k, v in os.environ.items() if k != "REDIS_URL" and not k.startswith("HOROCYCLE_")}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": stderr}
    launcher = subprocess.Popen(command, text=True, env={**unset, **environment}, **streams)
    try:
        assert launcher.stdout is not None
        first = launcher.stdout.readline()
        assert first.startswith("Horocycle on http"), first
        running = Running(first.split()[2], data, launcher, environment.get("REDIS_URL"))
        wait_until_ready(running.url, verify=verify)
        yield running
    finally:
        launcher.send_signal(signal.SIGTERM)
        try:
            launcher.wait(60)
        except subprocess.TimeoutExpired:
            launcher.kill()
            raise
        finally:
            launcher.communicate()


def wait_until_ready(url: str, seconds: float = 300.0, verify: Any = True) -> None:
    deadline = time.monotonic() + seconds
    with httpx.Client(timeout=10, verify=verify) as http:
        while True:
            try:
                if http.get(f"{url}/health/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, f"{url} is not ready after {seconds} s"
            time.sleep(0.05)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m service` with these arguments, until it ends"""
    unset = {k: v for k, v in os.environ.items() if k != "REDIS_URL" and not k.startswith("HOROCYCLE_")}
    words = [sys.executable, "-m", "service", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env={**unset, **environment}, check=False)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
