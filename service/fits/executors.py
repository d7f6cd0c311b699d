"""Who reads the partitions of a pass: processes of this machine, or the workers of a Dask cluster.

Both give each task to whoever is free and hand the results back in the order of the partitions, so that sums do not
depend on who was quick. A task keeps nothing; one whose worker died is given to another. When a fit ends before its
time, `stop` is heard by the workers between two chunks.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from service.batch.passes import Chunk, Partition, Seen, Task, done
from service.errors import FitFailed
from service.fits.sources import needed

#: Times that a pass is begun anew after deaths of workers, before it is given up
DEATHS = 8
#: Seconds between two looks of a worker whether it is to stop
LOOK = 0.5


class Stopped(Exception):
    """The fit that asked is over"""


# ---------------------------------------------------------------------------------- processes of this machine

_stop: Any = None  # of a worker process: an Event


@dataclass(frozen=True)
class _Watched:
    """A partition that is left between two chunks when the fit is over"""

    part: Partition

    @property
    def start(self) -> int:
        return self.part.start

    @property
    def stop(self) -> int:
        return self.part.stop

    def chunks(self, rows: int) -> Iterable[Chunk]:
        for chunk in self.part.chunks(rows):
            if _stop.is_set():
                raise Stopped
            yield chunk


def _begin(stop: Any, parent: int) -> None:
    """In a worker process, first: it ends with its parent"""
    global _stop
    _stop = stop
    threading.Thread(target=_follow, args=[parent], daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(0)


def _work(task: Task) -> Seen:
    part, rows, visit, asked = task
    return done((_Watched(part), rows, visit, asked))


class Processes:
    """So many processes; as a context, which ends them"""

    def __init__(self, count: int) -> None:
        self._count, self._context = count, multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._count, self._context, _begin, (self._stop, os.getpid()))

    def __call__(self, tasks: Sequence[Task]) -> Iterator[Seen]:
        results: list[Seen | None] = [None] * len(tasks)
        for _ in range(DEATHS):
            try:
                futures = {i: self._pool.submit(_work, tasks[i]) for i, seen in enumerate(results) if seen is None}
                for i, future in futures.items():
                    results[i] = future.result()
                return iter([seen for seen in results if seen is not None])
            except BrokenProcessPool:  # one was killed, and the pool with it: what is missing is read again
                self._pool.shutdown(cancel_futures=True)
                self._pool = self._started()
        raise FitFailed(f"worker processes died {DEATHS} times in one pass: is there enough memory?")

    def pids(self, *, wait: bool = False) -> set[int]:
        """Of the processes there are; or, once they have begun, of all"""
        if wait:
            list(self._pool.map(abs, range(4 * self._count)))
        return {each.pid for each in self._context.active_children() if each.pid is not None}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


# ---------------------------------------------------------------------------------- a Dask cluster


@dataclass(frozen=True)
class _Remote:
    """The same for a worker of Dask, which asks its scheduler now and then"""

    part: Partition
    event: str

    @property
    def start(self) -> int:
        return self.part.start

    @property
    def stop(self) -> int:
        return self.part.stop

    def chunks(self, rows: int) -> Iterable[Chunk]:
        looked = time.monotonic()
        for chunk in self.part.chunks(rows):
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                if needed("distributed", "clusters").Event(self.event).is_set():
                    raise Stopped
            yield chunk


class Dask:
    """The workers of a scheduler, by its address; or those of a cluster of processes that is started here"""

    def __init__(self, address: str | None = None, *, workers: int = 2, memory: str | int = "2GiB") -> None:
        distributed = needed("distributed", "clusters")
        self._cluster = None
        if address is None:
            options = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": memory}
            own = "127.0.0.1:0"  # else its HTTP server takes a port of its own choice, which may be another's
            self._cluster = distributed.LocalCluster(**options, host="127.0.0.1", dashboard_address=own)
        try:
            self.client = distributed.Client(address or self._cluster, set_as_default=False, timeout=10)
        except OSError as error:
            raise FitFailed(f"the scheduler {address} does not answer: {error}") from None
        self._event = distributed.Event(f"horocycle-{uuid4().hex}", client=self.client)
        self._event_name, self._distributed = self._event.name, distributed
        self._futures: list[Any] = []

    def __call__(self, tasks: Sequence[Task]) -> Iterator[Seen]:
        watched = [(_Remote(part, self._event_name), rows, visit, asked) for part, rows, visit, asked in tasks]
        with warnings.catch_warnings():  # the rows that are asked for by their places may be megabytes of them
            warnings.filterwarnings("ignore", "Sending large graph")
            self._futures = self.client.map(done, watched, pure=False)
        try:
            found = self.client.gather(self._futures)
        except self._distributed.KilledWorker as error:
            raise FitFailed(f"workers died over and over with the same piece: {error}") from None
        self._futures = []
        return iter(found)

    def __enter__(self) -> Dask:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self._event.set()
            self.client.cancel(self._futures, force=True)
        self.client.close()
        if self._cluster is not None:
            with contextlib.suppress(TimeoutError):
                self._cluster.close()
