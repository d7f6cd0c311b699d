"""Every exception of the clients. One `except HorocycleError` gets them all; no exception of httpx comes through.

HorocycleError
├── Problem                      what the service says is wrong (RFC 9457); one of an unknown kind is just this
│   ├── InvalidInput             the caller's fault; nothing was changed
│   │   ├── MalformedBody  BodyTooLarge  UnsupportedMediaType  UnknownField  InvalidRequest  InvalidParameter
│   │   ├── EmptyBatch  PointOutsideBall  NonFinite  NotANumber  DimensionMismatch  LengthMismatch
│   │   ├── UnknownLabel  BinaryOnly  IdReused  InvalidSnapshot
│   │   └── EmptyClass  TooManyPoints  NotSeparable
│   ├── UnknownSession  SessionGone  SessionExists  SessionReplaying
│   ├── LogTrimmed               the log no longer goes back to this position
│   ├── UnknownFit  FitNotReady  FitFailed
│   ├── UnknownRoute  MethodNotAllowed  Unauthenticated
│   ├── StaleModel               the classifier these points answer is not the current one
│   ├── KeyReused                an idempotency key with another body
│   ├── TryLater                 has been tried again, often enough
│   │   ├── RateLimited  SessionQuota
│   │   └── StoreUnavailable  StoreFull  StoreReadOnly  OutcomeUnknown
│   └── StateCorrupt
├── Unreachable                  no answer, however often it was tried
├── UnexpectedAnswer             an answer, but not one of Horocycle: is the address right?
├── WentBackwards                the service is behind what it acknowledged before: a failover lost something
├── FitCancelled                 a fit was waited for, and somebody cancelled it
├── NotYet                       a fit's result was asked for before it was done, or its wait took too long
└── NoProbabilities              this model has none
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any


class HorocycleError(Exception):
    """The root. `accepted`: of a call that took more than one request, the points that were learned all the same.
    `doubtful`: an earlier try, whose reply did not come, may have been served."""

    accepted: int = 0
    doubtful: bool = False


class Problem(HorocycleError):
    """What the service says is wrong. Members that a kind of problem has are its attributes; all are in `members`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(document)
        self.type = str(document.get("type", "about:blank"))
        self.title = str(document.get("title", ""))
        self.status = int(document.get("status", 0))
        self.detail = str(document.get("detail", ""))
        self.members = {name: value for name, value in document.items() if name not in _STANDARD}
        for name in self.named():
            setattr(self, name, self.members.get(name))

    def __str__(self) -> str:
        return self.detail or self.title or f"status {self.status}"

    @classmethod
    def slug(cls) -> str:
        """PointOutsideBall → point-outside-ball"""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def named(cls) -> set[str]:
        """The members that this kind of problem has"""
        return {name for kind in cls.__mro__ if issubclass(kind, Problem) for name in inspect.get_annotations(kind)}


_STANDARD = ("type", "title", "status", "detail", "instance")


class InvalidInput(Problem):
    """Something that was sent cannot be taken; nothing was changed. `index` counts the points of the whole call."""

    index: int | None


class MalformedBody(InvalidInput):
    pass


class BodyTooLarge(InvalidInput):
    limit: int


class UnsupportedMediaType(InvalidInput):
    pass


class UnknownField(InvalidInput):
    field: str


class InvalidRequest(InvalidInput):
    field: str | None
    parameter: str | None
    header: str | None


class InvalidParameter(InvalidInput):
    name: str
    value: str


class EmptyBatch(InvalidInput):
    pass


class PointOutsideBall(InvalidInput):
    norm: float
    limit: float


class NonFinite(InvalidInput):
    value: str


class NotANumber(InvalidInput):
    value: str | None


class DimensionMismatch(InvalidInput):
    expected: int
    got: int


class LengthMismatch(InvalidInput):
    points: int
    labels: int


class UnknownLabel(InvalidInput):
    value: str


class BinaryOnly(InvalidInput):
    labels: int


class IdReused(InvalidInput):
    id: str


class InvalidSnapshot(InvalidInput):
    pass


class EmptyClass(InvalidInput):
    label: str | int


class TooManyPoints(InvalidInput):
    points: int
    limit: int


class NotSeparable(InvalidInput):
    """`witness`: convex weights, by index, of a combination of the signed points that is zero"""

    witness: list[tuple[int, float]] | None


class UnknownSession(Problem):
    session: str


class SessionGone(Problem):
    session: str


class SessionExists(Problem):
    session: str


class SessionReplaying(Problem):
    """A fork does not take points until it has replayed its log: see `Session.wait`."""

    session: str
    progress: float | None


class LogTrimmed(Problem):
    """`first`: the oldest position that can still be asked for."""

    session: str | None
    first: int


class UnknownFit(Problem):
    fit: str


class FitNotReady(Problem):
    fit: str
    fit_status: str


class FitFailed(Problem):
    pass


class UnknownRoute(Problem):
    pass


class MethodNotAllowed(Problem):
    pass


class Unauthenticated(Problem):
    pass


class StaleModel(Problem):
    """`version` is that of the classifier now."""

    version: int


class KeyReused(Problem):
    pass


class TryLater(Problem):
    """The service could not do it now, and could not a few times."""


class RateLimited(TryLater):
    limit: int | None
    waiting: int | None


class SessionQuota(TryLater):
    limit: int | None


class StoreUnavailable(TryLater):
    pass


class StoreFull(TryLater):
    pass


class StoreReadOnly(TryLater):
    pass


class OutcomeUnknown(TryLater):
    """It may have been done, or not."""


class StateCorrupt(Problem):
    pass


class Unreachable(HorocycleError):
    def __init__(self, url: str, attempts: int, why: str) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"{url} does not answer (tried {times}): {why}")
        self.url, self.attempts, self.why = url, attempts, why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.attempts, self.why)


class UnexpectedAnswer(HorocycleError):
    pass


class WentBackwards(HorocycleError):
    """The service is behind what it said before, so something acknowledged was lost. What was asked for has been done
    all the same: `answer` is what it said. The client goes on from there: it says so once for every loss."""

    def __init__(self, session: str, what: str, was: int, now: int) -> None:
        super().__init__(f"session {session!r} went backwards: its {what} was {was} and is {now} now")
        self.session, self.what, self.was, self.now = session, what, was, now
        self.answer: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.session, self.what, self.was, self.now)


class FitCancelled(HorocycleError):
    pass


class NotYet(HorocycleError):
    pass


class NoProbabilities(HorocycleError):
    pass


def leaves(kind: type[Problem] = Problem) -> Iterator[type[Problem]]:
    """The kinds of problem that have none below them"""
    for below in kind.__subclasses__():
        yield from leaves(below) if below.__subclasses__() else (below,)


KINDS = {kind.slug(): kind for kind in leaves()}


def problem(document: Mapping[str, Any]) -> Problem:
    """The exception for a problem document: by the last part of its type"""
    kind = KINDS.get(str(document.get("type", "")).rsplit("/", 1)[-1], Problem)
    return kind(document)
