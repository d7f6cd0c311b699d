"""The demos that run in this worker: so many and no more, and all of them end when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from service.errors import RateLimited

MOST = 4


class Demos:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def require_room(self) -> None:
        if len(self._tasks) >= MOST:
            raise RateLimited(f"{MOST} demos run in this worker already: wait until one has ended", limit=MOST)

    def start(self, demo: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(demo)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
