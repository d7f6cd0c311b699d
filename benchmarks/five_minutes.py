"""python -m benchmarks.five_minutes [FOLDER]: the newcomer's path, from a fresh clone to served classifiers, timed.

    clone · make serve until it answers (set-up and compiling included) · then `horocycle stream` of
    the paper's files, if FOLDER has them · a taxonomy (npz) · a csv, by pandas where it is installed · 3 million
    rows of npy

What is printed for each is the command's last lines: accuracy of every point before it was learned, and of those held
out. All of it goes to results/five_minutes.txt too. `--rows` makes the npy smaller.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "five_minutes.txt"
#: Seconds that the service may take to answer, set-up included.
PATIENCE = 1800


def main(argv: Sequence[str] | None = None) -> None:
    found = argparse.ArgumentParser(prog="python -m benchmarks.five_minutes", description=__doc__)
    found.add_argument("folder", nargs="?", type=Path, help="of the paper's *_poincare_embedding.npz")
    found.add_argument("--rows", type=int, default=3_000_000, help="of the npy")
    given = found.parse_args(argv)
    lines, began = list[str](), time.monotonic()

    def tell(text: str) -> None:
        lines.append(text)
        print(text, flush=True)

    load = os.getloadavg()[0]
    tell(f"From a fresh clone, Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load:.1f} at the start")
    with tempfile.TemporaryDirectory() as temporary:
        clone, files = Path(temporary) / "horocycle", Path(temporary) / "files"
        files.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        tell(f"clone                      {time.monotonic() - began:7.1f} s")
        port = free_port()
        service = subprocess.Popen(
            ["make", "serve", f"PORT={port}"], cwd=clone, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            since = time.monotonic()
            wait(f"http://127.0.0.1:{port}/health/ready", service)
            tell(f"make serve, until it answers {time.monotonic() - since:5.1f} s")
            for name, path, options in inputs(files, given.folder, given.rows):
                since = time.monotonic()
                said = stream(clone, port, path, *options)
                tell(f"{name:26} {time.monotonic() - since:7.1f} s   {said}")
        finally:
            service.terminate()
            service.wait(60)
    tell(f"all of it                  {time.monotonic() - began:7.1f} s")
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait(url: str, service: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if service.poll() is not None:
            raise SystemExit(f"make serve ended with {service.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("make serve does not answer")


def inputs(files: Path, folder: Path | None, rows: int) -> list[tuple[str, Path, tuple[str, ...]]]:
    paper = [] if folder is None else sorted(folder.glob("*_poincare_embedding.npz"))
    found: list[tuple[str, Path, tuple[str, ...]]] = [
        (path.name.partition("_")[0], path, ("--shuffle",)) for path in paper
    ]
    found.append(("taxonomy, npz", taxonomy(files / "taxonomy.npz"), ("--shuffle", "--holdout", "0.2")))
    name, path = table(files / "cells.csv")
    found.append((name, path, ("--label", "cell_type", "--columns", "x,y", "--holdout", "0.2")))
    found.append((f"{rows:,} rows of npy", large(files / "large.npy", rows), ("--algorithm", "perceptron")))
    return found


def taxonomy(path: Path) -> Path:
    """Twelve families of a tree, laid into the disk: a family has a direction, its kinds fan out around it"""
    rng, n, families = np.random.default_rng(0), 6000, 12
    family = rng.integers(0, families, n)
    angle = 2 * np.pi * family / families + rng.normal(0, 0.1, n)
    radius = np.tanh(rng.uniform(1.5, 5.0, n) / 2)
    np.savez(path, X=radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), y=family)
    return path


def table(path: Path) -> tuple[str, Path]:
    rng, n = np.random.default_rng(1), 5000
    X = rng.uniform(-0.65, 0.65, (n, 2))
    kind = np.where(X[:, 0] > 0.4 * X[:, 1], "stem", "mature")
    columns = {"cell": [f"c{i}" for i in range(n)], "x": X[:, 0], "y": X[:, 1], "cell_type": kind}
    if importlib.util.find_spec("pandas") is None:
        lines = ["cell,x,y,cell_type", *(f"c{i},{X[i, 0]!r},{X[i, 1]!r},{kind[i]}" for i in range(n))]
        path.write_text("\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n", encoding="utf-8")
        return "csv", path
    importlib.import_module("pandas").DataFrame(columns).to_csv(path, index=False)
    return "csv from pandas", path


def large(path: Path, rows: int) -> Path:
    """n×3, the label last, written in pieces"""
    rng, out = np.random.default_rng(2), np.lib.format.open_memmap(path, "w+", np.float64, (rows, 3))
    for at in range(0, rows, 1 << 18):
        part = out[at : at + (1 << 18)]
        part[:, :2] = rng.uniform(-0.65, 0.65, (len(part), 2))
        part[:, 2] = part[:, 0] > 0.3 * part[:, 1]
    out.flush()
    return path


def stream(clone: Path, port: int, path: Path, *options: str) -> str:
    """The command as a newcomer types it; what it says at the end"""
    command = [str(clone / ".venv/bin/horocycle"), "stream", str(path), "--quiet", *options]
    done = subprocess.run(
        [*command, "--url", f"http://127.0.0.1:{port}"], cwd=path.parent, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"horocycle stream {path.name}: {done.stderr.strip()}")
    return "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip())


if __name__ == "__main__":
    main()
