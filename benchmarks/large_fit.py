"""python -m benchmarks.large_fit FOLDER: more points than a worker's memory, from disk, with a worker killed meanwhile.

2·10⁷ points of 10 dimensions in one npy file (1.76 GB), a tenth of the labels flipped, are fitted (svm, hinge, tangent
features at a given point, C = 1, a relative gap of 1e-6) by a Dask cluster of two processes with 2 GiB each. The file
is dropped from the page cache first (posix_fadvise, DONTNEED), so that the first pass reads the disk; later ones find
in the cache what the kernel has kept. In pass KILLED + 1 one of the two is killed (SIGKILL); Dask starts another.

Peak RSS is the kernel's VmHWM, the killed worker's included, read four times a second. With --in-memory the same fit is
made in this process too, with all points in memory, and the weights are compared.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_files import kept
from service.batch.classifier import Recipe, fit, fit_points
from service.fits.executors import Dask
from service.fits.sources import Files, pieces_of
from service.geometry import Array, log_map

N, D, NOISE, BLOCK, KILLED = 20_000_000, 10, 0.1, 500_000, 6
P = np.full(D, 0.1)


def points(number: int, n: int) -> Array:
    """A block of points, the label last: directions at random, radii up to 3, sides of a hyperplane through P"""
    rng = np.random.default_rng([7, number])
    X = rng.normal(size=(n, D))
    X *= (np.tanh(1.5 * rng.random(n)) / np.linalg.norm(X, axis=1))[:, None]
    side = log_map(P, X) @ np.arange(1.0, D + 1) > 0
    return np.asarray(np.c_[X, side ^ (rng.random(n) < NOISE)])


def write(path: Path, n: int) -> None:
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, D + 1))
    for number, at in enumerate(range(0, n, BLOCK)):
        rows[at : at + BLOCK] = points(number, min(BLOCK, n - at))
    rows.flush()


def forget(path: Path) -> None:
    """Drop a file from the page cache"""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Watch(threading.Thread):
    """The peak RSS of every worker there was"""

    def __init__(self, client: Any) -> None:
        super().__init__(daemon=True)
        self.client, self.peaks, self.over = client, dict[int, float](), threading.Event()
        self.start()

    def pids(self) -> list[int]:
        return [each["pid"] for each in self.client.run(_self).values()]

    def run(self) -> None:
        known = set(self.pids())
        while not self.over.wait(0.25):
            known |= set(_children(os.getpid()))
            for pid in known:
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                peak = [line for line in status.splitlines() if line.startswith("VmHWM")]
                if peak:
                    self.peaks[pid] = max(self.peaks.get(pid, 0.0), int(peak[0].split()[1]) / 2**20)


def _self() -> dict[str, int]:
    return {"pid": os.getpid()}


def _children(pid: int) -> list[int]:
    """Processes below this one"""
    found = [
        int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    ]
    return found + [below for child in found for below in _children_or_none(child)]


def _children_or_none(pid: int) -> list[int]:
    try:
        return _children(pid)
    except OSError:
        return []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=N)
    parser.add_argument("--in-memory", action="store_true")
    given = parser.parse_args()
    path = given.folder / f"large_fit_{given.points}.npy"
    if not path.exists():
        write(path, given.points)
    forget(path)
    with kept("large_fit"):
        measure(path, given.points, given.in_memory)


def measure(path: Path, n: int, in_memory: bool) -> None:
    recipe = Recipe(reference=[P.tolist()])
    passes, began, killed = 0, time.perf_counter(), 0
    with Dask(workers=2, memory="2GiB") as executor:
        watch = Watch(executor.client)

        def passed() -> None:
            nonlocal passes, killed
            passes += 1
            print(f"{time.perf_counter() - began:7.1f} s  pass {passes}", flush=True)
            if passes == KILLED:
                killed = watch.pids()[0]
                threading.Timer(0.5, os.kill, (killed, signal.SIGKILL)).start()

        pieces, d = pieces_of(str(path))
        files = Files(pieces, d, (0, 1), executor=executor, passed=passed)
        began = time.perf_counter()
        classifier, report = fit_points(recipe, files, 1.0, lambda _: None)
        seconds = time.perf_counter() - began
        watch.over.set()
    certificate = report["certificate"]
    print(f"\n{n:,} × {D} points, {path.stat().st_size / 1e9:.2f} GB, {len(pieces)} pieces, 2 workers of 2 GiB")
    print(
        f"{seconds:.0f} s, {passes} passes, {seconds / passes:.1f} s a pass; load {os.getloadavg()[0]:.1f} on 2 cores"
    )
    print(f"primal {certificate['primal']:.6f}, dual {certificate['dual']:.6f}, relative gap {certificate['gap']:.2e}")
    print(f"training accuracy {report['training_accuracy']:.6f} ({NOISE:.0%} of the labels are flipped)")
    for pid, peak in watch.peaks.items():
        print(f"peak RSS {peak:.2f} GiB{'  killed in pass ' + str(KILLED + 1) if pid == killed else ''}")
    if in_memory:
        rows = np.load(path)
        began = time.perf_counter()
        other, _ = fit(recipe, np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64), 2, 1.0, lambda _: None)
        off = np.abs(other.weights - classifier.weights).max() / np.abs(other.weights).max()
        equal = np.array_equal(other.weights, classifier.weights)
        print(
            f"in memory: {time.perf_counter() - began:.0f} s; weights differ by {off:.1e}, bit for bit equal: {equal}"
        )


if __name__ == "__main__":
    main()
