"""What is kept of a session and of one commit: plain frozen records that know no store and no web.

A session is one state and one log. `Loaded` is the state at a revision. `Entry` is what one commit adds to the log: the
points as they came, or how the session was changed otherwise. Replaying the entries behind a checkpoint gives the
state, bit for bit (apply.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from service.sessions.frozen import frozen
from service.sessions.rows import Batch
from service.sessions.saved_fit import SavedFit
from service.sessions.spec import Spec
from service.sessions.tally import Confusion, Tally


class Status(StrEnum):
    WARMING = "warming"  # the learner runs at the origin until there are enough points to learn a reference point
    LIVE = "live"
    REPLAYING = "replaying"  # a fork that another session's log is being replayed into
    FAILED = "failed"  # a fork whose replay could not be finished


class Kind(StrEnum):
    """What an entry of the log is about"""

    POINTS = "points"
    PROMOTION = "promotion"  # the learner was begun anew from a fit
    BUDGET = "budget"  # the estimate of a strategic budget was begun anew
    SETTINGS = "settings"  # the name, the time to live, keep_points, refits, labels, one member of auto
    IMPORT = "import"  # where the log of an imported or forked session begins
    REPLAYED = "replayed"  # a fork has come to its position, or failed
    FIT = "fit"  # a fit's new status; written by the fit queue


class EntryId(NamedTuple):
    """`<observed>-<number>`: the points learned when it was written, and the count of entries, which never repeats"""

    observed: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.observed}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> EntryId:
        found = re.fullmatch(r"(\d{1,18})-(\d{1,18})", text)
        if found is None:
            raise ValueError(f"{text[:50]!r} is no id of a log entry")
        return cls(int(found[1]), int(found[2]))


NO_ENTRY = EntryId()


@frozen
class Counters:
    observed: int = 0
    mistakes: int = 0
    updates: int = 0
    version: int = 0


@dataclass(frozen=True)
class Fork:
    """Where a fork's points come from"""

    session: str
    at: int  # the position it is replayed to
    first: int  # the position its replay began at
    exact: bool  # the same settings: promotions and learned reference points are taken over as the log has them
    reached: str = "0-0"  # the entry of the source's log that it has come to
    status: str = Status.LIVE  # what it would be if it were not replaying: live or warming
    failure: dict[str, Any] | None = None


class Producer(NamedTuple):
    """Who streams numbered messages (api/stream.py) or is consumed (consume/), and how far that has come"""

    seq: int  # the last message that was applied or refused; of a consumed stream the last entry's id as one number
    connection: int  # the number of its newest connection: what an earlier one still sends is not applied
    used: int  # when it last sent anything, in seconds


@frozen
class Loaded:
    """A session at a revision."""

    spec: Spec
    revision: int
    counters: Counters
    state: Any
    status: str = Status.LIVE
    tally: Tally = field(default_factory=Tally)
    confusion: Confusion = field(default_factory=Confusion)
    opened: Spec | None = None  # as it was opened, if that has changed since
    fork: Fork | None = None
    newest: EntryId = NO_ENTRY  # of its log
    learner_at: EntryId = NO_ENTRY  # the entry behind which the stored learner stands: those since are replayed
    learner_bytes: int = 0  # of it
    checkpoints: tuple[EntryId, ...] = ()  # entries that carry a checkpoint, oldest first
    producers: Mapping[str, Producer] = field(default_factory=dict)
    sealed: bool = True  # whether its stored fields have checksums: those of an older version have not


@dataclass(frozen=True)
class Listed:
    """A session without its learner."""

    spec: Spec
    counters: Counters
    status: str
    fork: Fork | None = None


@dataclass(frozen=True)
class Replaced:
    """The learner was replaced after so many points of an entry"""

    after: int
    updates: int
    state: Any  # None: it is large, and was not read
    reason: str  # warmup, refit, restart; promotion, budget, labels, member


@dataclass(frozen=True)
class Matched:
    """A request with If-Match, and how far it was taken"""

    if_match: int
    accepted: int
    version: int
    first: int = 0  # the place of its first point in the entry


@frozen
class Entry:
    """What one commit adds to the log."""

    kind: Kind
    counters: Counters  # after it
    status: str
    points: int = 0  # how many were learned
    batch: Batch | None = None  # they, if the session keeps any
    predicted: Any = None  # the class index decided for each, before it was learned
    matched: tuple[Matched, ...] = ()
    alarms: tuple[int, ...] = ()  # positions at which drift was found
    replaced: tuple[Replaced, ...] = ()
    spec: Spec | None = None  # if it changed
    fit: str | None = None  # which was promoted, or whose status changed
    fit_status: str | None = None
    checkpoint: bytes = b""  # the session after it (checkpoint.py)
    jumps: int = 0  # points that would have had an estimated budget fall by more than half
    skipped: tuple[int, ...] = ()  # positions at which a refit was due and left out

    @property
    def first(self) -> int:
        """The position of its first point"""
        return self.counters.observed - self.points


@frozen
class Change:
    """All that one commit writes: the session after it, the entry, and what belongs to its requests."""

    after: Loaded
    entry: Entry | None = None  # None: nothing but answers
    answers: Sequence[tuple[str, bytes]] = ()  # idempotency key, answer
    learned_ids: Sequence[str] = ()  # late labels


@dataclass(frozen=True)
class Waiting:
    """What became of an id: its point waits for a label, was learned, has expired, or no point had it."""

    status: Literal["waiting", "learned", "expired", "unknown"]
    point: bytes = b""


@dataclass(frozen=True)
class Kept:
    """A whole session, for a snapshot"""

    loaded: Loaded
    batch: Batch  # the retained points
    fits: tuple[SavedFit, ...] = ()
