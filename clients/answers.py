"""The service's answers as frozen dataclasses: points, scores and weights are NumPy arrays.

Members that this client does not know are ignored. Dataclasses with arrays compare by identity.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from clients.problems import FitCancelled, NotYet, Problem, problem

Array = NDArray[np.float64]
Labels = NDArray[Any]
Label = int | str
Document = Mapping[str, Any]
T = TypeVar("T")


def build(kind: type[T], document: Document, /, **own: Any) -> T:
    """A dataclass from the members of a document that it knows; `own`: members that were converted"""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in {**document}.items() if name in known} | own)


def floats(values: Any) -> Array:
    """A read-only array: answers may be shared"""
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


def label_array(values: Sequence[Label] | Labels) -> Labels:
    """Integers, strings or booleans; objects where several of these are among them"""
    if isinstance(values, np.ndarray):
        return values
    kinds = set(map(type, values))
    dtype = {frozenset({str}): np.str_, frozenset({bool}): np.bool_}.get(frozenset(kinds), object)
    return np.array(values, dtype=np.int64 if kinds <= {int} else dtype)


# ---------------------------------------------------------------------------------------------------- sessions


@dataclass(frozen=True)
class SessionInfo:
    """A session as it was when it was asked about."""

    id: str
    name: str | None
    algorithm: str
    dimension: int
    curvature: float
    reference: Any  # a point, one a class, how it is being learned, or none
    labels: tuple[Label, ...]
    a: float | None
    budget: float | dict[str, Any] | None
    keep_points: int
    ttl_seconds: int | None
    observed: int
    mistakes: int
    updates: int
    version: int
    status: str  # warming, replaying, live, failed
    created_at: str
    progress: float | None = None  # of a fork that is replaying: 0 to 1
    failure: dict[str, Any] | None = None  # of one that failed: the problem
    features: str | None = None  # hemisphere, lift, tangent or hyperboloid
    average: bool | None = None  # whether the averaged rule answers
    members: list[str] | None = None  # auto: those that vote
    refit: str | None = None  # softmax: doubling or none
    drift: dict[str, Any] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)  # what goes wrong, with its remedy; not in lists
    agreement: float | None = None  # in the answer to `promote`: on which share of the points it answers as the fit

    @classmethod
    def read(cls, document: Document) -> SessionInfo:
        return build(cls, document, labels=tuple(document["labels"]))

    @property
    def pending(self) -> bool:
        """Whether it is a fork that does not take points yet"""
        return self.status == "replaying"


@dataclass(frozen=True)
class Page:
    sessions: list[SessionInfo]
    cursor: str | None

    @classmethod
    def read(cls, document: Document) -> Page:
        return cls([SessionInfo.read(each) for each in document["sessions"]], document["cursor"])


@dataclass(frozen=True)
class Counters:
    observed: int
    mistakes: int
    updates: int
    version: int


# ------------------------------------------------------------------------------------------------------ stream


#: Of an answer to points that were observed.
COLUMNS = ("predictions", "scores", "correct", "probabilities")


@dataclass(frozen=True, eq=False)
class Observed:
    """What was learned. The columns, made before learning each point, are None if only a summary was asked for."""

    accepted: int
    mistakes: int
    session: Counters  # after the last point
    predictions: Labels | None = None
    scores: Array | None = None  # signed distance to the boundary; n×K for K > 2 labels
    correct: NDArray[np.bool_] | None = None
    probabilities: Array | None = None  # n×K, if they were asked for
    replayed: bool = False  # the stored answer to an earlier request with the same key
    clipped: int = 0  # with outside="clip": the points that were moved to the radius limit
    notes: tuple[str, ...] = ()  # what the service noticed while it read the body

    @classmethod
    def read(cls, document: Document, replayed: bool) -> Observed:
        return build(cls, document, **_columns(document), replayed=replayed)

    @classmethod
    def joined(cls, parts: Sequence[Observed]) -> Observed:
        """Batches, one after another, as one"""
        if len(parts) == 1:
            return parts[0]
        return replace(
            parts[-1],
            accepted=sum(part.accepted for part in parts),
            mistakes=sum(part.mistakes for part in parts),
            replayed=all(part.replayed for part in parts),
            clipped=sum(part.clipped for part in parts),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            **{name: _joined([getattr(part, name) for part in parts]) for name in COLUMNS},
        )


@dataclass(frozen=True, eq=False)
class Labelled(Observed):
    """The answer to late labels."""

    ids: tuple[Label, ...] = ()  # learned now, in this order
    unknown: tuple[Label, ...] = ()
    expired: tuple[Label, ...] = ()
    already_learned: tuple[Label, ...] = ()

    @classmethod
    def read(cls, document: Document, replayed: bool) -> Labelled:
        fates = {name: tuple(document[name]) for name in ("ids", "unknown", "expired", "already_learned")}
        return build(cls, document, **_columns(document), **fates, replayed=replayed)


def _columns(document: Document) -> dict[str, Any]:
    own: dict[str, Any] = {"session": build(Counters, document["session"]), "notes": tuple(document.get("notes", ()))}
    if "predictions" in document:
        own["predictions"] = label_array(document["predictions"])
        own["scores"] = floats(document["scores"])
        own["correct"] = np.array(document["correct"], dtype=np.bool_)
        if "probabilities" in document:
            own["probabilities"] = floats(document["probabilities"])
    return own


def binary_document(content: bytes, summary: str) -> dict[str, Any]:
    """An answer with its columns as rows of float64: as if it had come as JSON, but with indices for predictions"""
    document: dict[str, Any] = orjson.loads(summary)
    widths: dict[str, int] = document.pop("columns")
    rows = np.frombuffer(content, dtype="<f8").reshape(-1, sum(widths.values()))
    at = 0
    for name, width in widths.items():
        document[name] = rows[:, at] if width == 1 and name != "probabilities" else rows[:, at : at + width]
        at += width
    document["predictions"] = document["predictions"].astype(np.intp)
    return document


def _joined(columns: Sequence[Any]) -> Any:
    if any(column is None for column in columns):
        return None
    if len({column.dtype.kind for column in columns}) > 1:  # labels of two types
        columns = [column.astype(object) for column in columns]
    return np.concatenate(columns)


@dataclass(frozen=True, eq=False)
class Predicted:
    predictions: Labels
    scores: Array
    probabilities: Array | None = None  # a column a label
    cold: bool = False  # the session has not learned anything yet
    expires_in: float | None = None  # with ids: the seconds that the points wait for their labels
    version: int | None = None  # of the online model that predicted
    clipped: int = 0  # with outside="clip": the points that were moved to the radius limit

    @classmethod
    def read(cls, document: Document, version: int | None) -> Predicted:
        probabilities = document.get("probabilities")
        return build(
            cls,
            document,
            predictions=label_array(document["predictions"]),
            scores=floats(document["scores"]),
            probabilities=None if probabilities is None else floats(probabilities),
            version=version,
        )

    @classmethod
    def joined(cls, parts: Sequence[Predicted]) -> Predicted:
        """Batches as one; the model may have changed between them, and the version is that of the last"""
        if len(parts) == 1:
            return parts[0]
        names = ("predictions", "scores", "probabilities")
        columns = {name: _joined([getattr(part, name) for part in parts]) for name in names}
        clipped = sum(part.clipped for part in parts)
        return replace(parts[-1], cold=all(part.cold for part in parts), clipped=clipped, **columns)


# --------------------------------------------------------------------------------------------------------- the log


@dataclass(frozen=True, eq=False)
class LogPage:
    """Retained points in the order in which they were learned: positions `start` up to, not including, `end`."""

    start: int
    end: int
    X: Array
    labels: Labels
    next: int | None  # where the next page starts; None: this is the last

    @classmethod
    def read(cls, content: bytes, headers: Mapping[str, str]) -> LogPage:
        """From rows of n×(d+1) numbers in NumPy's format; `labels` are still the indices that the last column has"""
        rows = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        if rows.ndim != 2:
            raise ValueError(f"rows of shape {rows.shape}")
        following = headers.get("horocycle-next")
        return cls(
            start=int(headers["horocycle-from"]),
            end=int(headers["horocycle-to"]),
            X=floats(rows[:, :-1]),
            labels=rows[:, -1].astype(np.intp),
            next=None if following is None else int(following),
        )


# ------------------------------------------------------------------------------------------------- the classifier


@dataclass(frozen=True, eq=False)
class Model:
    """The published classifier: all that an agent needs to respond to it."""

    algorithm: str
    dimension: int
    curvature: float
    labels: tuple[Label, ...]
    reference: Array | None
    weights: Any  # an array, K rows for K > 2 labels; None: see classes (gaussian) or members (auto)
    sigma: float | Array | None
    budget: float | None
    threshold: float | None
    updates: int
    version: int
    features: str | None = None  # what the weights are for: lift, tangent, hyperboloid or hemisphere
    classes: list[dict[str, Any]] | None = None  # gaussian: a wrapped normal a class
    members: list[dict[str, Any]] | None = None  # auto: the models that vote, each with its weight
    document: Document = field(repr=False, default_factory=dict)  # as it came

    @classmethod
    def read(cls, document: Document) -> Model:
        reference, sigma = document["reference"], document["sigma"]
        return build(
            cls,
            document,
            labels=tuple(document["labels"]),
            reference=None if reference is None else floats(reference),
            weights=None if document["weights"] is None else floats(document["weights"]),
            sigma=floats(sigma) if isinstance(sigma, list) else sigma,
            document=document,
        )


@dataclass(frozen=True)
class ErrorRate:
    """The mean error rate is between low and high, with probability `level` at all times at once"""

    estimate: float | None
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Certificate:
    """Mistakes so far beside the proven bounds. For K > 2 labels every class has a proof of its own."""

    updates: int
    radius: float | None  # of lifted points; without a reference point there is none
    margin: float | None
    bound: float | None
    largest_margin: float | None
    disproved: bool | None
    paper_bound: float | None = None
    label: Label | None = None
    mistakes: int | None = None
    observed: int | None = None
    classes: tuple[Certificate, ...] | None = None
    error_rate: ErrorRate | None = None
    vote: dict[str, Any] | None = None  # of auto: mistakes of the vote, their bound, the members' mistakes
    hinge: dict[str, float] | None = None  # with loss="hinge": a bound without a margin
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: Document) -> Certificate:
        classes = document.get("classes")
        return build(
            cls,
            document,
            classes=None if classes is None else tuple(build(cls, each) for each in classes),
            error_rate=build(ErrorRate, document["error_rate"]),
            notes=tuple(document["notes"]),
        )


@dataclass(frozen=True)
class Window:
    points: int
    mistakes: int
    accuracy: float | None


@dataclass(frozen=True)
class ClassMetrics:
    label: Label
    points: int
    predicted: int
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class MistakeLog:
    block: int  # points an entry stands for
    first: int  # where the first entry begins
    mistakes: list[int]


@dataclass(frozen=True)
class Drift:
    alarms: int
    last_alarm: int | None
    window: int = 0  # points that are looked back on
    sensitivity: float | None = None
    on_drift: str | None = None  # alarm or restart


@dataclass(frozen=True, eq=False)
class Metrics:
    observed: int
    mistakes: int
    updates: int
    version: int
    accuracy: float | None
    window: Window
    labels: tuple[Label, ...]
    confusion: NDArray[np.int64]  # row: the true class; column: the predicted one
    classes: tuple[ClassMetrics, ...]
    log: MistakeLog
    drift: Drift
    budget: dict[str, Any] | None = None  # strategic, estimated: estimate, evidence, jumps
    members: list[dict[str, Any]] | None = None  # auto: those that vote, side by side
    log_loss: float | None = None  # of learners with probabilities
    calibration_error: float | None = None
    hints: list[str] = field(default_factory=list)  # what goes wrong, with its remedy

    @classmethod
    def read(cls, document: Document) -> Metrics:
        return build(
            cls,
            document,
            window=build(Window, document["window"]),
            labels=tuple(document["labels"]),
            confusion=np.array(document["confusion"], dtype=np.int64),
            classes=tuple(build(ClassMetrics, each) for each in document["classes"]),
            log=build(MistakeLog, document["log"]),
            drift=build(Drift, document["drift"]),
        )


# -------------------------------------------------------------------------------------------------------- fits


@dataclass(frozen=True)
class Gap:
    """The proof that a fit is the optimum: no classifier has a primal below `dual`."""

    primal: float
    dual: float
    gap: float  # (primal − dual)/primal
    classes: tuple[Gap, ...] | None = None

    @classmethod
    def read(cls, document: Document) -> Gap:
        classes = document.get("classes")
        return build(cls, document, classes=None if classes is None else tuple(build(cls, each) for each in classes))


@dataclass(frozen=True, eq=False)
class FitResult:
    """A fit that is done."""

    certificate: Gap
    support_vectors: list[int] | None  # how many, a class
    training_accuracy: float
    references: Array | None
    seconds: float
    document: Document = field(repr=False, default_factory=dict)  # as it came

    @classmethod
    def read(cls, document: Document) -> FitResult:
        references = document.get("references")
        return build(
            cls,
            document,
            certificate=Gap.read(document["certificate"]),
            references=floats(references) if references else None,
            document=document,
        )


@dataclass(frozen=True)
class FitInfo:
    """A fit as it was when it was asked about."""

    id: str
    status: str  # queued, running, done, failed, cancelled
    progress: float = 0.0
    failure: Problem | None = field(default=None, compare=False)
    document: Document = field(repr=False, compare=False, default_factory=dict)  # as it came

    @classmethod
    def read(cls, document: Document) -> FitInfo:
        failure = document.get("failure")
        return build(cls, document, failure=None if failure is None else problem(failure), document=document)

    @property
    def ended(self) -> bool:
        return self.status in ("done", "failed", "cancelled")

    @property
    def pending(self) -> bool:
        return not self.ended

    @property
    def result(self) -> FitResult:
        if self.status == "done":
            return FitResult.read(self.document)
        if self.status == "failed":
            raise self.failure or problem({"type": "/problems/fit-failed", "detail": f"fit {self.id!r} failed"})
        if self.status == "cancelled":
            raise FitCancelled(f"fit {self.id!r} was cancelled")
        raise NotYet(f"fit {self.id!r} is {self.status}, {self.progress:.0%} done")


# ------------------------------------------------------------------------------------------------------ events


@dataclass(frozen=True, eq=False)
class Event:
    """An entry of the session's log. One whose name this client does not know is just an `Event`."""

    id: str  # "<observed>-<n>": grows strictly
    name: str
    data: Document = field(repr=False)


@dataclass(frozen=True, eq=False)
class Commit(Event):
    """Points were learned: positions `first` up to `observed`, of which `points` are a sample.

    It does not carry the classifier: if `version` has changed, ask `Session.model`.
    """

    first: int
    observed: int
    mistakes: int
    updates: int
    version: int
    status: str
    points: Array
    labels: Labels
    predictions: Labels
    truth: list[list[float] | None] | None = None
    alarms: tuple[int, ...] = ()  # the positions at which drift was detected
    jumps: int = 0  # points that would have had an estimated budget fall by more than half


@dataclass(frozen=True, eq=False)
class ModelChanged(Event):
    """The classifier changed without a point: a fit was promoted, the estimate of a budget was reset."""

    kind: str
    version: int
    observed: int | None = None
    fit: str | None = None


@dataclass(frozen=True, eq=False)
class FitChanged(Event):
    fit: str
    status: str


@dataclass(frozen=True, eq=False)
class SessionChanged(Event):
    """Settings were changed, or the session was imported or forked."""

    kind: str


@dataclass(frozen=True, eq=False)
class Reset(Event):
    """The session as it is now, in place of earlier events: at the start, or when those are no longer kept."""

    session: SessionInfo
    model: Model


@dataclass(frozen=True, eq=False)
class Ended(Event):
    """The session has ended or expired; nothing comes after this."""


def read_event(id: str, name: str, data: Document) -> Event:
    kind = _EVENTS.get(name)
    if kind is None:
        return Event(id, name, data)
    own: dict[str, Any] = {"id": id, "name": name, "data": data}
    if kind is Commit:
        own |= {"first": data["from"], "alarms": tuple(data.get("alarms", ()))}
        own |= {"points": floats(data.get("points", ()))}  # without retained points there is no sample
        own |= {column: label_array(data.get(column, ())) for column in ("labels", "predictions")}
    if kind is Reset:
        own |= {"session": SessionInfo.read(data["session"]), "model": Model.read(data["model"])}
    return build(kind, data, **own)


_EVENTS: dict[str, type[Event]] = {
    "commit": Commit,
    "model": ModelChanged,
    "fit": FitChanged,
    "session": SessionChanged,
    "reset": Reset,
    "end": Ended,
}
