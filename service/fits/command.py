"""horocycle fit --data URL: a batch classifier for files of any size, by processes here or by a Dask cluster."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from service.batch.classifier import Classifier, Recipe, fit_points
from service.batch.passes import Executor, in_turn
from service.errors import HorocycleError
from service.fits.executors import Dask, Processes
from service.fits.sources import Files, pieces_of
from service.sessions import recipes

EXAMPLES = """examples:
  horocycle fit --data points.npy --workers 2 --out fit.npz
  horocycle fit --data 'cells/*.parquet' --label cell_type --loss squared_hinge --reference '[0.1, 0.2]'
  horocycle fit --data 's3://bucket/points/*.npy' --scheduler tcp://10.0.0.1:8786 --kind softmax

With a session's name first the service fits: horocycle fit demo --data …
"""


def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes that are started
    try:
        with _executor(given) as executor:
            return _fit(given, executor)
    except HorocycleError as error:
        sys.stderr.write(f"\nhorocycle fit: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nhorocycle fit: interrupted\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="horocycle fit",
        description="Fit a batch classifier to files of any size, and print what it came to.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "--data", required=True, help="npy (n×(d+1), the label last) or parquet: a path or URL, * allowed"
    )
    found.add_argument("--label", help="parquet: the column that holds the label")
    where = found.add_mutually_exclusive_group()
    where.add_argument("--scheduler", help="the address of a Dask scheduler, or `local` for a cluster of its own")
    where.add_argument("--workers", type=int, default=1, help="processes of this machine (1: this one alone)")
    found.add_argument("--kind", choices=("svm", "softmax"))
    found.add_argument("--margin", choices=("soft", "hard"))
    found.add_argument("--loss", choices=("hinge", "squared_hinge"))
    found.add_argument("--features", choices=("hemisphere", "hyperboloid", "tangent", "lift"))
    found.add_argument("--reference", type=_reference, help="a point as [0.1,0.2], or hull, closest, lorentz, cv")
    found.add_argument("-C", type=float)
    found.add_argument("--curvature", type=float, default=1.0)
    found.add_argument("--out", help="an npz file for the classifier and the report")
    return found


def _reference(text: str) -> Any:
    return text if text.isalpha() else json.loads(text)


def _executor(given: argparse.Namespace) -> AbstractContextManager[Executor]:
    if given.scheduler is not None:
        return Dask(None if given.scheduler == "local" else given.scheduler, workers=os.cpu_count() or 1)
    return Processes(given.workers) if given.workers > 1 else nullcontext(in_turn)


def _fit(given: argparse.Namespace, executor: Executor) -> int:
    began, passes, done = time.perf_counter(), 0, 0.0

    def passed() -> None:
        nonlocal passes
        passes += 1
        sys.stderr.write(f"\r{time.perf_counter() - began:7.1f} s   pass {passes:>3}   {done:4.0%} ")
        sys.stderr.flush()

    def progress(share: float) -> None:
        nonlocal done
        done = share

    recipe = _recipe(given)
    pieces, d = pieces_of(given.data, given.label)
    files = Files(pieces, d, curvature=given.curvature, executor=executor, passed=passed)
    classifier, report = fit_points(recipe, files, given.curvature, progress)
    sys.stderr.write("\n")
    report |= {"seconds": time.perf_counter() - began, "passes": passes, "labels": list(files.labels)}
    gap, accuracy = report["certificate"]["gap"], report["training_accuracy"]
    sys.stdout.write(f"{files.n} points, {files.K} classes: training accuracy {accuracy:.4f}, duality gap {gap:.1e}")
    sys.stdout.write(f", {passes} passes, {report['seconds']:.1f} s\n")
    if given.out:
        save(given.out, classifier, files.labels, report)
    return 0


def _recipe(given: argparse.Namespace) -> Recipe:
    names = ("kind", "margin", "loss", "features", "reference", "C")
    fields = recipes.resolved({name: getattr(given, name) for name in names}, None)
    reference = fields["reference"]
    if isinstance(reference, list) and not isinstance(reference[0], list):
        fields["reference"] = [reference]
    return Recipe(**{name: value for name, value in fields.items() if value is not None})


def save(path: str, classifier: Classifier, labels: Sequence[Any], report: dict[str, Any]) -> None:
    """Arrays that np.load reads without a word about the service"""
    np.savez(
        path,
        kind=np.array(classifier.kind),
        features=np.array(classifier.features),
        curvature=np.array(classifier.c),
        references=classifier.references,
        weights=classifier.weights,
        platt=classifier.platt,
        labels=np.array(labels),
        report=np.array(json.dumps(report)),
    )
