"""python -m clients.demo: a service, and agents that cheat the plain perceptron for ever and the strategic one no more.

The paper's A, B and C, one at a time; then 200 agents at once. On a terminal the service stays until Ctrl-C, so that
the pictures can be looked at; with --once, or elsewhere, it ends. `make demo` runs it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
from rich.console import Console

from clients.interrupts import Interrupts
from clients.problems import HorocycleError
from clients.scenarios import load
from clients.simulate import Plan, carried_out

COMPARED = ("perceptron", "strategic")
#: On these the demo stops its service before it exits.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds that the service may take to start, and to end.
PATIENCE = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m clients.demo", description="A service, and agents to play with it."
    )
    parser.add_argument("--once", action="store_true", help="end when all is played")
    once = parser.parse_args(argv).once
    out, err = Console(), Console(stderr=True)
    with Interrupts(*SIGNALS) as interrupts:
        try:
            with service() as (url, process):
                for plan in plans(url):
                    carried_out(plan, [], out, err, interrupts)
                if not once and out.is_terminal:
                    stay(url, process, out)
        except HorocycleError as error:
            err.print(f"demo: {error}", markup=False, highlight=False, soft_wrap=True)
            return 1
        except KeyboardInterrupt:
            err.print("demo: interrupted", highlight=False)
            return 130
    return 0


def plans(url: str) -> Iterator[Plan]:
    def ids(name: str) -> tuple[str, ...]:
        return tuple(f"{name}-{algorithm}" for algorithm in COMPARED)

    one, many = load("abc"), load("loans", agents=200)
    yield Plan(url, one, one.rounds, COMPARED, batch=1, concurrency=1, ids=ids("abc"))
    yield Plan(url, many, 5, COMPARED, batch=4, concurrency=50, ids=ids("agents"))


def stay(url: str, process: subprocess.Popen[str], out: Console) -> None:
    out.print(f"\nThe service is up: {url}/docs. Ctrl-C ends it.", highlight=False)
    try:
        process.wait()
    except KeyboardInterrupt:
        pass


@contextmanager
def service() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """On a free port, with a temporary store; in a session of its own, so that Ctrl-C reaches only the demo"""
    with tempfile.TemporaryDirectory(prefix="horocycle-demo-") as folder:
        command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data", f"{folder}/store"]
        env = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "HOROCYCLE_REDIS_URL")}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=env) as process:
            try:
                banner = next(iter(process.stdout or ()), "").split()
                if len(banner) < 3:
                    raise HorocycleError("the service did not start")  # it has said why
                wait_until_ready(banner[2], process)
                yield banner[2], process
            finally:
                end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Stop the service; signals are ignored meanwhile, so that it is not left running"""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        process.terminate()
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health/ready", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise HorocycleError(f"the service at {url} is not ready after {PATIENCE:g} s")


if __name__ == "__main__":
    sys.exit(main())
