"""Forks that are to be replayed, by when to look at each next: now if it waits, when its lease ends if one works on it.

A fork is safe without the lease: its steps are commits, and of two workers only one is first. The lease saves the work.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from service.errors import OutcomeUnknown
from service.store import scripts
from service.store.connection import Connection
from service.store.keys import fork_queue_key

if TYPE_CHECKING:  # the fit worker waits for forks without the learners, which a spec knows
    from service.sessions.spec import Spec

#: Seconds that a worker may be silent before its fork is another's.
LEASE = 10.0
#: A fork is queued before it is opened. One that is not there by now never will be.
FORGOTTEN = 60.0


def fork_entry(spec: Spec) -> str:
    """The same whoever queues it"""
    return f"{spec.id} {int(datetime.fromisoformat(spec.created_at).timestamp())}"


@dataclass(frozen=True)
class Waiting:
    session: str
    entry: str  # of the queue: the session and the second it was made in

    @property
    def is_forgotten(self) -> bool:
        return time.time() - int(self.entry.split()[1]) > FORGOTTEN


class ForkQueue:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def submit(self, spec: Spec) -> None:
        await self._connection.call("ZADD", fork_queue_key(), time.time(), fork_entry(spec), lost=OutcomeUnknown)

    async def claim(self) -> Waiting | None:
        """A fork that waits, or whose worker is silent for too long"""
        now = time.time()
        found = await self._connection.script(scripts.FORK_CLAIM, [fork_queue_key()], now, now + LEASE)
        return None if found is None else Waiting(found.decode().split()[0], found.decode())

    async def look_again(self, fork: Waiting, seconds: float = LEASE) -> None:
        await self._connection.call("ZADD", fork_queue_key(), "XX", time.time() + seconds, fork.entry)

    async def done(self, fork: Waiting) -> None:
        await self._connection.call("ZREM", fork_queue_key(), fork.entry)
