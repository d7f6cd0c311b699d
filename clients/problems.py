"""Every exception of the clients. One `except HorocycleError` gets them all; no exception of httpx comes through.

HorocycleError
├── Problem                      what the service says is wrong (RFC 9457); one of an unknown kind is just this
│   ├── InvalidInput             the caller's fault; nothing was changed
│   │   ├── MalformedBody  BodyTooLarge  UnsupportedMediaType  UnknownField  InvalidRequest  InvalidParameter
│   │   ├── EmptyBatch  PointOutsideBall  NonFinite  NotANumber  DimensionMismatch  LengthMismatch
│   │   ├── UnknownLabel  BinaryOnly  IdReused  InvalidSnapshot
│   │   └── EmptyClass  TooManyPoints  AnswerTooLarge  NotSeparable  NotConverged
│   ├── UnknownSession  SessionGone  SessionExists  SessionReplaying
│   ├── LogTrimmed               the log no longer goes back to this position
│   ├── UnknownFit  FitNotReady  FitFailed
│   ├── UnknownRoute  MethodNotAllowed
│   ├── Unauthenticated  ScopeMissing  UnknownHost  CrossSite
│   ├── StaleModel               the model that these points respond to is no longer the current one
│   ├── KeyReused                an idempotency key with another body
│   ├── EarlierConnection        a producer's connection that came after one with a higher number
│   ├── TryLater                 retried, without success
│   │   ├── RateLimited  SessionQuota
│   │   └── StoreUnavailable  StoreFull  StoreReadOnly  OutcomeUnknown
│   └── StateCorrupt  InternalError
├── Unreachable                  no response to any attempt
├── WrongArgument                what was passed to the SDK cannot be meant; a ValueError and a TypeError too
├── FileProblem                  a file that cannot be read as points and labels
├── UnexpectedAnswer             an answer, but not one of Horocycle: is the address right?
├── WentBackwards                the service is behind what it acknowledged before: a failover lost something
├── TakenOver                    another connection of this producer streams now
├── FitCancelled                 the fit that was waited for was cancelled
├── NotYet                       a fit's result was asked for before it was done, or a wait timed out
└── NoProbabilities              this model has none
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any


class HorocycleError(Exception):
    """The base class. `accepted`: of a call in several requests, the points that were learned before this error.
    `doubtful`: the response to an earlier attempt was lost, so that attempt may have been applied. `seq`: of a stream,
    the number of the message that was refused."""

    accepted: int = 0
    seq: int | None = None
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
    """The service refused what was sent, and changed nothing. `index` counts the points of the whole call."""

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


class AnswerTooLarge(InvalidInput):
    limit: int


class NotSeparable(InvalidInput):
    """`witness`: convex weights, by index, of a combination of the signed points that is zero"""

    witness: list[tuple[int, float]] | None


class NotConverged(InvalidInput):
    """A fit that did not reach its duality gap"""

    gap: float
    iterations: int


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
    position: int
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


class ScopeMissing(Problem):
    scope: str


class UnknownHost(Problem):
    host: str


class CrossSite(Problem):
    origin: str


class StaleModel(Problem):
    """`version` is that of the classifier now."""

    version: int


class KeyReused(Problem):
    pass


class EarlierConnection(Problem):
    """`newest` is the number of the connection that came first. `session.stream()` handles it."""

    connection: int
    newest: int


class TryLater(Problem):
    """The service could not do it now, nor at the retries."""


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
    """The request may have been applied, or not."""


class StateCorrupt(Problem):
    pass


class InternalError(Problem):
    pass


class Unreachable(HorocycleError):
    def __init__(self, url: str, attempts: int, why: str) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"{url} does not answer (tried {times}): {why}")
        self.url, self.attempts, self.why = url, attempts, why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.attempts, self.why)


class WrongArgument(HorocycleError, ValueError, TypeError):
    """What was passed cannot be meant. Nothing was sent."""


class FileProblem(HorocycleError):
    """A file that cannot be read as points and labels; says what to do."""


class UnexpectedAnswer(HorocycleError):
    pass


class WentBackwards(HorocycleError):
    """The service is behind what it acknowledged before, so something was lost. The request itself succeeded: `answer`
    is its result. Raised once for every loss; the client goes on from the new position."""

    def __init__(self, session: str, what: str, was: int, now: int) -> None:
        super().__init__(f"session {session!r} went backwards: its {what} was {was} and is {now} now")
        self.session, self.what, self.was, self.now = session, what, was, now
        self.answer: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.session, self.what, self.was, self.now)


class TakenOver(HorocycleError):
    """Another connection of this producer streams now, and this one was closed. What it sent and has no answer to may
    have been learned: the other one goes on from there."""

    def __init__(self, producer: str) -> None:
        super().__init__(f"another connection of the producer {producer!r} has taken over")
        self.producer = producer

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.producer,)


class FitCancelled(HorocycleError):
    pass


class NotYet(HorocycleError):
    pass


class NoProbabilities(HorocycleError):
    pass


def leaves(kind: type[Problem] = Problem) -> Iterator[type[Problem]]:
    """The kinds of problem that have no subclasses"""
    for below in kind.__subclasses__():
        yield from leaves(below) if below.__subclasses__() else (below,)


BY_SLUG = {kind.slug(): kind for kind in leaves()}


def problem(document: Mapping[str, Any]) -> Problem:
    """The exception for a problem document: by the last part of its type"""
    kind = BY_SLUG.get(str(document.get("type", "")).rsplit("/", 1)[-1], Problem)
    return kind(document)
