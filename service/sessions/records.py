"""What is kept of a session, and what one commit writes: plain frozen records, without a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from service.sessions.spec import Spec
from service.sessions.tally import Tally


@dataclass(frozen=True)
class Counters:
    observed: int = 0
    mistakes: int = 0
    updates: int = 0
    version: int = 0


@dataclass(frozen=True)
class Loaded:
    """A session as the store has it at a revision."""

    spec: Spec
    revision: int
    counters: Counters
    state: Any
    status: str = "live"  # or warming
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True)
class Listed:
    """A session without its learner."""

    spec: Spec
    counters: Counters
    status: str


@dataclass(frozen=True)
class Change:
    """All that one commit writes."""

    state: Any
    counters: Counters
    status: str
    tally: Tally
    spec: Spec | None = None  # if it changes
    events: Sequence[tuple[str, bytes]] = ()  # name, JSON
    block: bytes = b""  # of retained points
    rows: int = 0
    confusion: Mapping[tuple[int, int], int] = field(default_factory=dict)
    log: Sequence[int] = ()
    learned_ids: Sequence[str] = ()
    answers: Sequence[tuple[str, bytes]] = ()  # idempotency key, answer


@dataclass(frozen=True)
class Waiting:
    """What became of an id: it waits with a point, was learned, has expired, or was never heard of."""

    status: Literal["waiting", "learned", "expired", "unknown"]
    point: bytes = b""


@dataclass(frozen=True)
class Kept:
    """A whole session, for a snapshot or a picture."""

    loaded: Loaded
    points: bytes
    confusion: dict[tuple[int, int], int]
    log: list[int]
