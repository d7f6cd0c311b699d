"""One worker, as uvicorn starts it: in the supervisor's own process if it is the only one, else in a spawned one.

The supervisor does not import this module: the app takes seconds to import, and memory in each process that has it.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import logging
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from types import FrameType
from typing import TYPE_CHECKING, Any

from service import telemetry
from service.logs import configure
from service.process.http_protocol import BoundedHttp, Limits, below_file_limit
from service.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Lifespan

#: Objects made since the last collection that have the next one begin, and every how many are thorough. A commit of a
#: thousand messages makes some ten thousand, none of them in a cycle: Python's own 700 would look at all of them often.
COLLECT = (20_000, 20, 10)
PUBLISH = 1.0  # seconds between two publications of a worker's metrics
#: Options of glibc's mallopt, from malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


def app() -> ASGIApp:
    """The app of one worker; its settings come from the environment"""
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_exit_with_parent, args=[parent.sentinel], daemon=True).start()
    keep_freed_memory()
    settings = Settings()
    configure(logging.INFO if settings.access_log else logging.WARNING)
    cap = below_file_limit(settings.connections)
    BoundedHttp.limits = Limits(cap, settings.header_seconds, settings.body_seconds)
    if threading.current_thread() is threading.main_thread():
        _drain_on_signal()
    gc.disable()  # an import makes objects to keep: to look among them for garbage would take a tenth of its time
    make = partial(importlib.import_module("service.app").create_app, settings)
    tracing = importlib.import_module("service.process.tracing") if settings.otel else None  # an optional dependency
    found, served = (made := make(), made) if tracing is None else tracing.traced(make)
    if telemetry.FOLDER in os.environ:
        found.router.lifespan_context = _publishing(found.router.lifespan_context)
    gc.freeze()  # exclude start-up objects from later collections; hardly any is garbage
    gc.set_threshold(*COLLECT)
    gc.enable()
    application: ASGIApp = served
    return application


def _drain_on_signal() -> None:
    """SIGUSR1: another worker has taken this one's place. SIGTERM after that: the service ends, so do not wait for
    clients that are silent. Called when uvicorn's own handler is in place"""
    end = signal.getsignal(signal.SIGTERM)

    def drain(number: int, frame: FrameType | None) -> None:
        BoundedHttp.draining = True
        if callable(end):
            end(number, frame)

    def terminate(number: int, frame: FrameType | None) -> None:
        BoundedHttp.stopping = BoundedHttp.draining
        if callable(end):
            end(number, frame)

    signal.signal(signal.SIGUSR1, drain)
    signal.signal(signal.SIGTERM, terminate)
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal's: the supervisor decides


def keep_freed_memory() -> bool:
    """Have glibc keep freed buffers for the next request instead of returning them to the kernel

    By default a buffer of 128 KiB or more may be mapped anew for each request, and every page of it costs a page fault.
    False where there is no glibc (musl, macOS): nothing is changed there.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    large = any(libc.mallopt(M_MMAP_THRESHOLD, size) for size in (256 << 20, 32 << 20))  # some versions cap it
    return bool(large and libc.mallopt(M_TRIM_THRESHOLD, 512 << 20) and libc.mallopt(M_ARENA_MAX, 2))


def _exit_with_parent(sentinel: int) -> None:
    """Exit when the supervisor dies, even by SIGKILL: the port and the store then belong to the next one"""
    wait([sentinel])
    if folder := os.environ.pop(telemetry.FOLDER, None):
        shutil.rmtree(folder, ignore_errors=True)  # the supervisor would have removed it
    os.kill(os.getpid(), signal.SIGTERM)


def _publishing(inner: Lifespan[Any]) -> Lifespan[Any]:
    """The app's lifespan, with its metrics published every PUBLISH seconds, and once more when it has ended"""

    async def publish() -> None:
        while True:
            await asyncio.sleep(PUBLISH)
            await asyncio.to_thread(telemetry.publish)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with inner(app) as state:
            task = asyncio.create_task(publish())
            try:
                yield state
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        telemetry.publish()

    return lifespan
