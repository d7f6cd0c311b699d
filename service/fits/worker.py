"""python -m service.fits.worker: claims fits and forks, one at a time, each under a lease.

A fit runs in a child process, so that it can be limited and ended; its lease is renewed while that lives.

`python -m service serve` runs one along (fit_workers); more of them, elsewhere, need only REDIS_URL.
With --follow it ends when its standard input does: it does not outlive who started it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from redis.exceptions import RedisError

from service.errors import FitFailed, HorocycleError, StoreUnavailable, described
from service.fits.parent_watch import follow_stdin
from service.fits.priority import stand_back
from service.logs import configure
from service.settings import Settings
from service.store.connect import connect
from service.store.connection import Connection
from service.store.fit_queue import LEASE, FitQueue, Job
from service.store.fork_queue import ForkQueue

if TYPE_CHECKING:
    from service.fits.fork import Forker

log = logging.getLogger(__name__)
#: Seconds between two looks into an empty queue, and between two signs of life.
PAUSE, BEAT = 0.25, LEASE / 1000 / 5
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Limits:
    """What a fit may take, which files it may read, and the scheduler that reads them"""

    seconds: float
    memory: int
    roots: tuple[str, ...] = ()
    scheduler: str | None = None


async def work(url: str, limits: Limits, deadline: float = 5.0) -> None:
    """Work on what there is, one fit at a time, until cancelled."""
    connection = connect(url, deadline=deadline)
    fits, forks, forker = FitQueue(connection), ForkQueue(connection), None
    told = ""
    try:
        while True:
            try:
                job = await fits.claim()
                told = ""
                if job is not None:
                    await _work_on(fits, job, limits)
                    continue
                if (fork := await forks.claim()) is not None:
                    forker = forker or _forker(connection)
                    await forker.work(fork)
                    continue
            except (HorocycleError, RedisError) as error:  # the store is away, or full: what was claimed is retried
                if str(error) != told:  # once, not at every attempt
                    log.warning("fits and forks wait: %s", error)
                told = str(error)
            await asyncio.sleep(PAUSE)
    finally:
        await connection.close()


def _forker(connection: Connection) -> Forker:
    """Imported with the first fork, not before: the learners take seconds to load and 150 MB, which fits do not need"""
    forker: Forker = importlib.import_module("service.fits.fork").Forker(connection)
    return forker


async def _work_on(fits: FitQueue, job: Job, limits: Limits) -> None:
    """Told when nothing is left of the process; its result is in a file without a name, which ends with its readers"""
    with TemporaryFile() as result:
        settle = await _run(fits, job, limits, result)
    if settle is not None:
        await settle()


async def _run(
    fits: FitQueue, job: Job, limits: Limits, result: IO[bytes]
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Fit in a process of its own. Returns what is to be told of it; None: it is cancelled, or another's"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.fits.child", str(result.fileno())),
        pass_fds=[result.fileno()],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **ONE_THREAD},
    )
    given = {"memory": limits.memory, "roots": limits.roots, "scheduler": limits.scheduler, "bytes": len(job.points)}
    asked = json.dumps({**job.recipe, **given}).encode()
    try:
        assert process.stdin is not None
        with suppress(ConnectionError):  # it ended before it had read them
            process.stdin.write(asked + b"\n" + job.points)
        over = await _watch(fits, job, process, time.monotonic() + limits.seconds)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if over is None:
        return None
    if over:
        return partial(fits.failed, job, described(FitFailed(f"the fit took longer than {limits.seconds:g} s")))
    told, model = _read(result)
    if told is not None and "failure" in told:
        return partial(fits.failed, job, told["failure"])
    if told is not None:
        return partial(fits.done, job, told["report"], model)
    if process.returncode is not None and process.returncode < 0:
        return partial(fits.again, job)  # killed from outside: it may go well another time
    return partial(fits.failed, job, described(FitFailed(f"its process ended with exit code {process.returncode}")))


def _read(result: IO[bytes]) -> tuple[dict[str, Any] | None, bytes]:
    """What the process left, a line of JSON and the model; None unless it left all of it"""
    result.seek(0)
    line, end, model = result.read().partition(b"\n")
    told: dict[str, Any] = json.loads(line) if end else {}
    return (told, model) if told.get("bytes") == len(model) else (None, b"")


async def _watch(fits: FitQueue, job: Job, process: asyncio.subprocess.Process, until: float) -> bool | None:
    """Keep the lease while the process lives. True: it took too long; None: it is to stop"""
    progress = 0.0

    async def listen() -> None:
        nonlocal progress
        assert process.stdout is not None
        async for line in process.stdout:
            progress = float(line)

    listening = asyncio.create_task(listen())
    try:
        while True:
            done, _ = await asyncio.wait([listening], timeout=min(BEAT, max(until - time.monotonic(), 0.01)))
            if done:
                await process.wait()
                return False
            if time.monotonic() >= until:
                return True
            try:
                if not await fits.beat(job, progress):
                    return None
            except StoreUnavailable as error:  # it may come back before the lease is over
                log.warning("no sign of life given: %s", error.detail)
    finally:
        listening.cancel()


def main(arguments: list[str]) -> int:
    settings = Settings()
    configure(logging.WARNING)
    if settings.redis_url is None:
        log.error("REDIS_URL is not set: there is nowhere to look for fits")
        return 2
    stand_back()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a lease is given up by silence, like any death
    if "--follow" in arguments:
        threading.Thread(target=follow_stdin, daemon=True).start()
    with suppress(KeyboardInterrupt):
        asyncio.run(
            work(
                settings.redis_url,
                Limits(settings.fit_seconds, settings.fit_memory, settings.fit_data, settings.fit_scheduler),
                settings.deadline,
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
