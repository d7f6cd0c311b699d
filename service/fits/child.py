"""python -m service.fits.child FD: one fit in a process of its own, so that it can be limited and ended.

Reads the job, a line of JSON, and the points from standard input (not from a file: to write one would make the store
wait for the disk); says how far it is on stdout, a number a line; writes its result to the file descriptor: a line of
JSON, and the model. It ends when its standard input does: a fit does not outlive who asked for it.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np

from service.batch import hemisphere_softmax
from service.batch.classifier import Classifier, Recipe, fit, fit_points
from service.batch.passes import in_turn
from service.errors import DimensionMismatch, FitFailed, HorocycleError, described
from service.fits.executors import Dask
from service.fits.parent_watch import follow_stdin
from service.fits.roots import require_allowed
from service.fits.sources import Files, pieces_of
from service.sessions import rows


def main(result: int) -> None:
    with open(0, "rb", closefd=False) as given:
        job = json.loads(given.readline() or b"null")
        points = b"" if job is None else given.read(job["bytes"])
    if job is None or len(points) < job["bytes"]:
        return  # whoever asked is gone
    threading.Thread(target=follow_stdin, daemon=True).start()
    np.eye(64) @ np.eye(64)  # BLAS takes its buffers now: later it would end the process if it could not
    resource.setrlimit(resource.RLIMIT_AS, (job["memory"], job["memory"]))
    try:
        model, report = _fit(job, points)
    except HorocycleError as error:
        _leave(result, failure=described(error))
    except (MemoryError, ImportError):  # or a library that finds no room to be loaded
        failure = FitFailed(f"the fit needs more than {job['memory']} bytes of memory")
        _leave(result, failure=described(failure))
    else:
        _leave(result, model, report=report)


def _fit(job: dict[str, Any], points: bytes) -> tuple[bytes, dict[str, Any]]:
    began, last = time.perf_counter(), 0.0

    def progress(done: float) -> None:
        nonlocal last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            sys.stdout.write(f"{done:.4f}\n")
            sys.stdout.flush()

    if job.get("data"):
        classifier, report = _fit_files(job, progress)
    elif job.get("refit"):
        classifier, report = _refit(job, rows.unpack(points, job["dimension"]))
    else:
        batch = rows.unpack(points, job["dimension"])
        classifier, report = fit(
            Recipe(**job["recipe"]), batch.X, batch.indices, job["classes"], job["curvature"], progress
        )
    return classifier.pack(), {**report, "seconds": time.perf_counter() - began}


def _fit_files(job: dict[str, Any], progress: Callable[[float], None]) -> tuple[Classifier, dict[str, Any]]:
    """Points in files, read by this process or by the workers of a scheduler"""
    require_allowed(job["data"], job["roots"])
    pieces, d = pieces_of(job["data"])
    if d != job["dimension"]:
        raise DimensionMismatch(expected=job["dimension"], got=d)
    with Dask(job["scheduler"]) if job["scheduler"] else nullcontext(in_turn) as executor:
        files = Files(pieces, d, tuple(job["labels"]), curvature=job["curvature"], executor=executor)
        return fit_points(Recipe(**job["recipe"]), files, job["curvature"], progress)


def _refit(job: dict[str, Any], batch: rows.Batch) -> tuple[Classifier, dict[str, Any]]:
    """What an online softmax begins anew from: classes that have not come yet are no obstacle"""
    W, c = hemisphere_softmax.fit(batch.X, batch.indices, job["classes"], c=job["curvature"]), job["curvature"]
    if W is None:
        raise FitFailed("all of the points are of one class")
    none = np.empty((0, 2))
    weights = W if len(W) > 2 else W[1:] - W[:1]
    classifier = Classifier("softmax", "hemisphere", c, np.empty((0, batch.X.shape[1])), weights, none)
    return classifier, {"points": len(batch)}


def _leave(result: int, model: bytes = b"", **told: dict[str, Any]) -> None:
    """With the length of the model, by which the worker sees whether it has all of it"""
    with open(result, "wb") as file:
        file.write(json.dumps({**told, "bytes": len(model)}, default=str).encode() + b"\n")
        file.write(model)


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # whoever asked is gone
        main(int(sys.argv[1]))
