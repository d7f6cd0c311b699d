"""A command that is interrupted ends once, and has the time for it: the second Ctrl-C changes nothing.

Python's own way raises at the second wherever the program is by then: in the middle of a task, or of tidying up.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupts:
    """with Interrupts(…): the first of these signals is a KeyboardInterrupt, those after it are ignored for good."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers, self._came = numbers, False

    def __enter__(self) -> Interrupts:
        self._before = [signal.signal(number, self._interrupt) for number in self._numbers]
        return self

    def __exit__(self, *_: object) -> None:
        if not self._came:
            for number, handler in zip(self._numbers, self._before, strict=True):
                signal.signal(number, handler)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """asyncio.run; what is under way is cancelled, and the KeyboardInterrupt comes when it has ended"""
        try:
            return asyncio.run(self._watched(main))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    async def _watched(self, main: Coroutine[Any, Any, T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            for number in self._numbers:
                loop.remove_signal_handler(number)
            self._ignore()
            task.cancel()

        for number in self._numbers:
            loop.add_signal_handler(number, stop)
        try:
            return await main
        finally:
            for number in self._numbers:
                if loop.remove_signal_handler(number):
                    signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._ignore()
        raise KeyboardInterrupt

    def _ignore(self) -> None:
        self._came = True
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)
