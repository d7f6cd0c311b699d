"""Every exception of the service.

HorocycleError
├── InvalidInput                 the caller's fault; names the offending row and value, nothing was changed
│   ├── MalformedBody            not JSON, not UTF-8, too deep
│   ├── BodyTooLarge             more bytes than are read
│   ├── UnsupportedMediaType     a content type or an encoding we do not read
│   ├── UnknownField             a member that the body does not have
│   ├── InvalidRequest           a member, a parameter or a header of another type or shape
│   ├── EmptyBatch               no points at all
│   ├── PointOutsideBall         on or outside the ball, or beyond the radius limit
│   ├── NonFinite                NaN or an infinity
│   ├── NotANumber               a string, a boolean, a ragged row where numbers belong
│   ├── DimensionMismatch        a point of another dimension
│   ├── LengthMismatch           as many labels as points, please
│   ├── UnknownLabel             a label that is not one of the session's
│   ├── BinaryOnly               a strategic session with more than two labels
│   ├── InvalidParameter         a setting outside its range
│   ├── IdReused                 an id that was given to another point
│   ├── InvalidSnapshot          not a snapshot of ours, or a damaged one
│   ├── EmptyClass               a class without a point, where every class needs one
│   ├── TooManyPoints            more than a fit takes
│   ├── AnswerTooLarge           more numbers asked for than one answer has
│   ├── NotSeparable             a hard margin was asked for, and no classifier has one
│   └── NotConverged             a fit that did not reach its gap: these points and settings are out of float64's reach
├── Unauthenticated              no API key, or not one of ours, or one that has expired or was revoked
├── ScopeMissing                 this API key may not do that
├── UnknownHost                  the Host header names a host that this service is not
├── CrossSite                    a web page of another site wants to write
├── UnknownSession               no session has this id
├── SessionGone                  ended or expired; its id is not given away again
├── SessionExists                the id is taken
├── SessionReplaying             a fork that is still being replayed, or failed: it can be read, not changed
├── LogTrimmed                   a position of the log that is no longer kept
├── UnknownFit                   no such fit in this session
├── FitNotReady                  a fit that is not done, or never will be, was to be used
├── FitFailed                    a fit that ended without a result; told in its status
├── UnknownRoute                 no such path
├── MethodNotAllowed             not this verb on this path
├── StaleModel                   the classifier these points answer is not the current one
├── KeyReused                    an idempotency key with another body
├── EarlierConnection            a producer's connection that came after one with a higher number
├── RateLimited                  too many requests, points or event streams wait already
├── SessionQuota                 this tenant has as many sessions as it may
├── StoreUnavailable             the store does not answer; nothing was changed
├── StoreFull                    the store has no room; nothing was changed
├── StoreReadOnly                the store takes no writes; nothing was changed
├── OutcomeUnknown               the store was cut off in the middle; a retry with the same key settles it
├── StateCorrupt                 stored bytes that are no state of ours
├── InternalError                an error of the service itself; the request's id is in its log
└── LaunchError                  met at the command line, never over HTTP
    ├── ServerNotFound           there is no server program on this machine
    ├── DataFolderInUse          a live service has this data folder
    ├── ServerFailed             the private store could not be started, or an orphaned one not be stopped
    └── OldFormat                the data folder or the store holds data of another format
"""

from __future__ import annotations

import math
import re
from typing import Any


class NotPlain(Exception):
    """No error of anybody: a body that cannot be read together with others. Nothing was done with it"""


class HorocycleError(Exception):
    """The root. `members` are the facts behind the sentence, for machines."""

    def __init__(self, detail: str, **members: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, also from another process: to call the class anew would need what each was made of"""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[HorocycleError], args: tuple[Any, ...], state: dict[str, Any]) -> HorocycleError:
    found = kind.__new__(kind)
    found.args = args
    found.__dict__.update(state)
    return found


class InvalidInput(HorocycleError):
    """Something the caller sent cannot be taken; nothing was changed."""


class MalformedBody(InvalidInput):
    pass


class BodyTooLarge(InvalidInput):
    def __init__(self, limit: int, what: str = "bytes", instead: str = "") -> None:
        super().__init__(f"the body has more than {limit} {what}{instead}", limit=limit)


class UnsupportedMediaType(InvalidInput):
    pass


class UnknownField(InvalidInput):
    def __init__(self, field: str, allowed: str, index: int | None = None) -> None:
        where = "here" if index is None else f"in line {index}"
        super().__init__(f"there is no field {field!r} {where}; known are {allowed}", field=field, index=index)


class InvalidRequest(InvalidInput):
    pass


class EmptyBatch(InvalidInput):
    def __init__(self) -> None:
        super().__init__("there is no point in this batch")


class PointOutsideBall(InvalidInput):
    """`fitting`: the curvature of a ball that would hold the points, if there is one"""

    def __init__(self, index: int, norm: float, limit: float, fitting: float | None = None) -> None:
        wider = "" if fitting is None else f"open with curvature={_rounded_down(fitting)} if the ball is that large; "
        super().__init__(
            f"point {index} has norm {norm!r}; the limit is {limit!r}. Either {wider}name another model with"
            " ?coordinates= or clients.embeddings.to_ball; or move such points to the limit with ?outside=clip",
            index=index,
            norm=norm,
            limit=limit,
        )


class NonFinite(InvalidInput):
    def __init__(self, index: int, value: float, what: str = "point") -> None:
        super().__init__(f"{what} {index} holds {value}, which is not finite", index=index, value=str(value))


class NotANumber(InvalidInput):
    def __init__(self, what: str, index: int | None = None, value: object = None) -> None:
        super().__init__(what, index=index, value=repr(value)[:100])


class DimensionMismatch(InvalidInput):
    def __init__(self, expected: int, got: int, what: str = "point", index: int = 0) -> None:
        super().__init__(
            f"{what} {index} has {got} coordinates, not {expected}", index=index, expected=expected, got=got
        )


class LengthMismatch(InvalidInput):
    def __init__(self, points: int, labels: int, what: str = "labels", of: str = "points") -> None:
        super().__init__(f"{points} {of} but {labels} {what}", points=points, labels=labels)


class UnknownLabel(InvalidInput):
    def __init__(self, index: int, value: object, allowed: str, remedy: str = "") -> None:
        what = f"label {index} is {value!r}, not one of {allowed}" + (remedy and f": {remedy}")
        super().__init__(what, index=index, value=repr(value)[:100])


class BinaryOnly(InvalidInput):
    def __init__(self, labels: int) -> None:
        super().__init__(
            f"a strategic session has two labels, not {labels}: its agents want one of them", labels=labels
        )


class InvalidParameter(InvalidInput):
    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"{name} is {value!r}; it must be {allowed}", name=name, value=repr(value)[:100])


class IdReused(InvalidInput):
    def __init__(self, index: int, id: str) -> None:
        super().__init__(f"id {index}, {id!r}, was given to another point before", index=index, id=id)


class InvalidSnapshot(InvalidInput):
    pass


class EmptyClass(InvalidInput):
    def __init__(self, label: str | int) -> None:
        super().__init__(f"there is no point with the label {label!r}; every class needs one", label=label)


class TooManyPoints(InvalidInput):
    def __init__(self, points: int, limit: int) -> None:
        super().__init__(f"{points} points; a fit takes at most {limit}", points=points, limit=limit)


class AnswerTooLarge(InvalidInput):
    def __init__(self, what: str, limit: int, instead: str) -> None:
        super().__init__(f"{what} are more than the {limit} numbers an answer may have: {instead}", limit=limit)


class NotSeparable(InvalidInput):
    """`witness`: convex weights of a combination of the points y·f(x) that is zero, by index"""

    def __init__(self, detail: str, witness: list[tuple[int, float]] | None = None) -> None:
        super().__init__(detail, witness=witness)
        self.witness = witness


class NotConverged(InvalidInput):
    """`gap`: how far from the optimum the best weights found are proven to be, (P − D)/P"""

    def __init__(self, gap: float, iterations: int) -> None:
        super().__init__(
            f"after {iterations} iterations the relative duality gap is {gap:.1e}, too large",
            gap=gap,
            iterations=iterations,
        )
        self.gap, self.iterations = gap, iterations


def outer(session: str) -> str:
    """A session's id as its tenant knows it: the store's has the tenant before it"""
    return session.rpartition("~")[2]


class Unauthenticated(HorocycleError):
    pass


class ScopeMissing(HorocycleError):
    def __init__(self, scope: str) -> None:
        super().__init__(f"this needs an API key with the scope {scope!r}; `keys add --scopes` gives it", scope=scope)


class UnknownHost(HorocycleError):
    def __init__(self, host: str) -> None:
        super().__init__(
            f"this service is not known as {host[:100]!r}; if it should be, add that to HOROCYCLE_HOSTS",
            host=host[:100],
        )


class CrossSite(HorocycleError):
    def __init__(self, origin: str) -> None:
        super().__init__(
            f"a page of {origin[:100]!r} may not write here; if it should, add that to HOROCYCLE_ORIGINS",
            origin=origin[:100],
        )


class UnknownSession(HorocycleError):
    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {outer(session)!r}", session=outer(session))


class SessionGone(HorocycleError):
    def __init__(self, session: str) -> None:
        super().__init__(f"session {outer(session)!r} has ended or expired", session=outer(session))


class SessionExists(HorocycleError):
    def __init__(self, session: str) -> None:
        super().__init__(f"the id {outer(session)!r} is taken, or was once", session=outer(session))


class UnknownFit(HorocycleError):
    def __init__(self, fit: str) -> None:
        super().__init__(f"there is no fit {fit!r} in this session", fit=fit)


class FitNotReady(HorocycleError):
    def __init__(self, fit: str, status: str) -> None:
        super().__init__(f"fit {fit!r} is {status}; only one that is done can be used", fit=fit, fit_status=status)


class FitFailed(HorocycleError):
    pass


class UnknownRoute(HorocycleError):
    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path}; /docs lists what there is")


class MethodNotAllowed(HorocycleError):
    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} is not done to {path}; /docs lists what is")


class SessionReplaying(HorocycleError):
    def __init__(self, session: str, status: str) -> None:
        why = "is still being replayed: wait until its status is live" if status == "replaying" else "failed: end it"
        super().__init__(f"the fork {outer(session)!r} {why}", session=outer(session))


class LogTrimmed(HorocycleError):
    def __init__(self, position: int, first: int) -> None:
        what = f"position {position} is no longer kept; the first that is: {first}"
        super().__init__(what, position=position, first=first)
        self.first = first


class StaleModel(HorocycleError):
    def __init__(self, version: int) -> None:
        super().__init__(f"the classifier has changed: its version is {version} now", version=version)
        self.version = version


class KeyReused(HorocycleError):
    def __init__(self) -> None:
        super().__init__("this idempotency key came with another body before")


class EarlierConnection(HorocycleError):
    def __init__(self, producer: str, connection: int, newest: int) -> None:
        what = f"connection {connection} of the producer {producer!r} is not newer than its connection {newest}"
        super().__init__(what, connection=connection, newest=newest)


class RateLimited(HorocycleError):
    """`retry_after`: seconds"""

    retry_after = 1.0


class SessionQuota(HorocycleError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} sessions are open, as many as there may be: end one first", limit=limit)


class StoreUnavailable(HorocycleError):
    pass


class StoreFull(HorocycleError):
    pass


class StoreReadOnly(HorocycleError):
    pass


class OutcomeUnknown(HorocycleError):
    def __init__(self, why: str = "the store was cut off in the middle") -> None:
        super().__init__(f"{why}; ask again, an observe with the same Idempotency-Key, to settle it")


class StateCorrupt(HorocycleError):
    """The checksum, the version, a shape or a dtype of stored bytes is not what was written."""


class InternalError(HorocycleError):
    def __init__(self) -> None:
        super().__init__(
            "an error of the service: its log has more under this X-Request-ID. Whether anything was changed is settled"
            " by asking again with the same Idempotency-Key"
        )


class LaunchError(HorocycleError):
    """The service cannot be run here."""


class ServerNotFound(LaunchError):
    pass


class DataFolderInUse(LaunchError):
    pass


class ServerFailed(LaunchError):
    pass


class OldFormat(LaunchError):
    def __init__(self, where: str, found: str, expected: str) -> None:
        version = "version 0.1" if found == "1" else "the version that wrote it"
        super().__init__(
            f"{where} holds data of format {found[:20]!r}, not {expected!r}: export snapshots with {version} and import"
            " them into a new store, or point --data (or REDIS_URL) at a new one",
            found=found,
            expected=expected,
        )


def _rounded_down(value: float) -> str:
    """To three digits, and never up: 0.5926 → 0.592"""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{math.floor(value * 10**digits) / 10**digits:.3g}" if abs(digits) < 300 else f"{value:.1e}"


def slug(kind: type[HorocycleError]) -> str:
    """PointOutsideBall → point-outside-ball; NotANumber → not-a-number"""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def title(kind: type[HorocycleError]) -> str:
    return slug(kind).replace("-", " ").capitalize()


def described(error: HorocycleError) -> dict[str, Any]:
    """An error as a problem says it, but for the status, which only HTTP has"""
    kind = slug(type(error))
    members = {name: value for name, value in error.members.items() if value is not None}
    return {
        "type": f"/problems/{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "detail": error.detail,
        **members,
    }
