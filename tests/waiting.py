"""Until something is true, or a request succeeds; never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Asks ever less often: who asks takes the CPU from what is waited for"""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not true():
        assert time.monotonic() < deadline, f"not after {seconds} s"
        time.sleep(pause)
        pause = min(1.3 * pause, 0.03)


def retry(ask: Callable[[], httpx.Response], good: int, seconds: float = 60.0) -> httpx.Response:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            answer = ask()
        except httpx.TransportError:
            continue
        if answer.status_code == good:
            return answer
        assert answer.status_code in (503, 504), answer.text
        time.sleep(0.02)
    raise AssertionError(f"no {good} within {seconds} s")
