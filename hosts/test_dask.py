"""A cluster of real processes: the fit of memory, also when a worker is killed; what is cancelled ends there too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from service.batch.classifier import Recipe, fit, fit_points
from service.batch.passes import Passes
from service.errors import FitFailed
from service.fits import sources
from service.fits.executors import Dask
from service.fits.sources import Files, pieces_of
from tests.fit_cases import RECIPES, Slow, count, data
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Dask]:
    with Dask(workers=2, memory="1GiB") as found:
        yield found


@pytest.mark.parametrize("name", RECIPES)
def test_every_kind_is_the_fit_of_memory(
    name: str, cluster: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PIECE", 1500)
    X, indices = data(name, 4000)
    np.save(tmp_path / "a.npy", np.c_[X, indices])
    one, _ = fit(RECIPES[name], X, indices, 2, 1.0, lambda _: None)
    files = Files(*pieces_of(str(tmp_path / "a.npy")), executor=cluster)
    other, report = fit_points(RECIPES[name], files, 1.0, lambda _: None)
    assert np.abs(one.weights - other.weights).max() <= 1e-9 * np.abs(one.weights).max()
    assert 0 <= report["certificate"]["gap"] <= 1e-6


def at_work(dask_worker: Any) -> tuple[int, int]:
    """Of a worker: its process, and how many tasks it is at"""
    return os.getpid(), len(dask_worker.active_threads)


def test_a_dead_worker_is_survived(cluster: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PIECE", 1 << 16)
    X, indices = data("hinge", 3 << 16)
    np.save(tmp_path / "a.npy", np.c_[X, indices])
    passes, killed, over = 0, list[int](), threading.Event()

    def kill_one() -> None:
        """In the middle of a pass"""
        while not killed and not over.is_set():
            for pid, tasks in cluster.client.run(at_work).values():
                if tasks and not killed:
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)

    def passed() -> None:
        nonlocal passes
        passes += 1
        if passes == 3:
            killing.start()

    killing = threading.Thread(target=kill_one)
    files = Files(*pieces_of(str(tmp_path / "a.npy")), (0, 1), executor=cluster, passed=passed)
    other, _ = fit_points(Recipe(reference=[[0.0] * 3]), files, 1.0, lambda _: None)
    over.set()
    killing.join()
    one, _ = fit(Recipe(reference=[[0.0] * 3]), X, indices, 2, 1.0, lambda _: None)
    assert np.abs(one.weights - other.weights).max() <= 1e-9 * np.abs(one.weights).max()
    assert killed[0] not in cluster.client.run(os.getpid).values()


def test_parquet_by_url(cluster: Dask, tmp_path: Path) -> None:
    X, indices = data("hinge", 3000)
    words = np.array(["no", "yes"])[indices]
    table = pyarrow.table({"a": X[:, 0], "b": X[:, 1], "label": words, "c": X[:, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    files = Files(*pieces_of(f"file://{tmp_path}/*.parquet"), executor=cluster)
    assert files.labels == ("no", "yes")
    other, _ = fit_points(RECIPES["hinge"], files, 1.0, lambda _: None)
    one, _ = fit(RECIPES["hinge"], X, indices, 2, 1.0, lambda _: None)
    assert np.abs(one.weights - other.weights).max() <= 1e-9 * np.abs(one.weights).max()


def test_files_of_any_filesystem() -> None:
    X, indices = data("softmax", 2000)
    with fsspec.open("memory://points/a.npy", "wb") as file:
        np.save(file, np.c_[X, indices])
    files = Files(*pieces_of("memory://points/a.npy"))
    other, _ = fit_points(RECIPES["softmax"], files, 1.0, lambda _: None)
    one, _ = fit(RECIPES["softmax"], X, indices, 2, 1.0, lambda _: None)
    assert one.pack() == other.pack()


class Cancelled(Exception):
    pass


def test_what_is_cancelled_in_mid_pass_ends_in_the_workers(cluster: Dask, tmp_path: Path) -> None:
    parts = [Slow(tmp_path / "a"), Slow(tmp_path / "b")]
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(Cancelled), Dask(cluster.client.scheduler.address) as inner:
            passing = thread.submit(Passes(parts, 1, executor=inner), count, None)
            wait_until(lambda: all(each.read() for each in parts))
            raise Cancelled
        assert passing.exception() is not None
    wait_until(lambda: not any(tasks for _, tasks in cluster.client.run(at_work).values()))
    assert max(each.read() for each in parts) < 1000


def test_a_scheduler_that_does_not_answer() -> None:
    with pytest.raises(FitFailed, match="does not answer"):
        Dask("tcp://127.0.0.1:1")
