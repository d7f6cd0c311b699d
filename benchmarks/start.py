"""python -m benchmarks.start [--rounds N]: how long a service takes to start and to stop, and the memory it idles at

One worker, a private store, an empty data folder; loops and bytecode are compiled before. Ready is the first 200 of
/health/ready, CPU that of the worker's process until then. Medians over the rounds; results/start.txt keeps them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.running import Running, service

ROUNDS, IDLE = 7, 3.0  # seconds of rest before memory is looked at
RESULTS = Path(__file__).parent / "results" / "start.txt"


def resident(pid: int) -> float:
    """MB"""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def processor(pid: int) -> float:
    """Seconds, user and system"""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fit_worker(running: Running) -> int:
    """A child of one of the launcher's threads"""
    for children in Path(f"/proc/{running.launcher.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            if b"service.fits.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise RuntimeError("no fit worker runs")


def start(data: Path) -> dict[str, float]:
    began = time.perf_counter()
    with service(data) as running:
        pid, ready = running.launcher.pid, time.perf_counter() - began
        used = processor(pid)
        time.sleep(IDLE)
        memory = [resident(each) for each in (pid, fit_worker(running), running.store_pid)]
        ending = time.perf_counter()
    stopped = time.perf_counter() - ending
    found = dict(zip(("worker, MB", "fit worker, MB", "store, MB"), memory, strict=True))
    return {"ready, s": ready, "CPU until then, s": used, "stopped, s": stopped, **found}


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds, found = parser.parse_args(argv).rounds, list[dict[str, float]]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            found.append(start(Path(folder) / str(number)))
    lines = [f"{rounds} starts, load {os.getloadavg()[0]:.1f}; least, median, most"]
    for name in found[0]:
        values = [each[name] for each in found]
        lines.append(f"{name:<20}{min(values):8.2f}{statistics.median(values):8.2f}{max(values):8.2f}")
    print("\n".join(lines))
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
