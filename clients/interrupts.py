"""Ctrl-C ends a command once: the first signal cancels what is running, and later ones do not disturb the cleanup.

asyncio.run alone raises KeyboardInterrupt at the second Ctrl-C wherever the program is, also in a finally block.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupts:
    """with Interrupts(…): the first of these signals raises KeyboardInterrupt, later ones are ignored."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers, self._came = numbers, False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def __enter__(self) -> Interrupts:
        self._before = [signal.signal(number, self._interrupt) for number in self._numbers]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(self._numbers, self._before, strict=True):
            signal.signal(number, signal.SIG_IGN if self._came else handler)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """asyncio.run; a signal cancels `main`, and KeyboardInterrupt is raised when its cleanup is over"""
        try:
            return asyncio.run(self._watched(main))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    async def _watched(self, main: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(main)
        self._running = asyncio.get_running_loop(), task
        try:
            return await task
        finally:
            self._running = None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            return
        self._came = True
        if self._running is None:
            raise KeyboardInterrupt
        loop, task = self._running
        loop.call_soon_threadsafe(task.cancel)
