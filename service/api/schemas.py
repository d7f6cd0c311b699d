"""The shapes of the bodies, for the cold routes to check and for the OpenAPI document to show."""

from __future__ import annotations

import math
import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, StrictInt, StrictStr, Tag, field_validator

from service.errors import DimensionMismatch, InvalidParameter
from service.geometry import require_ball
from service.sessions.spec import Label, Spec

#: A number as JSON has it: neither "1" nor true, which pydantic would take
ID = r"^[A-Za-z0-9_-]{1,64}$"
#: Of an idle session, in seconds
LONGEST = 10 * 366 * 86400
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Estimate(BaseModel):
    model_config = ConfigDict(extra="forbid")
    initial: Annotated[Finite, Field(gt=0, description="where to start: better too high")] = 4.0


class EstimatedBudget(BaseModel):
    model_config = ConfigDict(extra="forbid")
    estimate: Estimate


class Learn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    warmup: Annotated[StrictInt, Field(ge=2, le=1_000_000, description="points to learn it from")] = 200
    method: Literal["hull", "closest", "lorentz", "cv", "graham", "quickhull"] = "hull"


class LearnedReference(BaseModel):
    """Run at the origin until enough points of every class are there, then learn the reference point from them."""

    model_config = ConfigDict(extra="forbid")
    learn: Learn


Algorithm = Literal["perceptron", "second_order", "strategic", "hyperboloid"]
Reference = Literal["origin"] | list[Finite] | LearnedReference
AnyLabel = bool | int | str
Labelling = Annotated[list[StrictBool | StrictInt | StrictStr], Field(min_length=2, max_length=1000)]


class OpenSession(BaseModel):
    """What a session is to be."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"algorithm": "perceptron", "dimension": 2, "id": "demo"}]},
    )
    algorithm: Algorithm = "perceptron"
    dimension: Annotated[StrictInt, Field(ge=1, le=4096)]
    curvature: Annotated[Finite, Field(gt=0, description="the ball's curvature is −c")] = 1.0
    reference: Reference = "origin"
    labels: Labelling = [-1, 1]
    a: Annotated[Finite, Field(ge=0, description="second_order; 0 = pseudo-inverse")] = 1.0
    budget: Annotated[Finite, Field(gt=0)] | EstimatedBudget = 1.0
    keep_points: Annotated[StrictInt, Field(ge=0, le=10_000_000)] = 10_000
    ttl_seconds: Annotated[StrictInt, Field(ge=1, le=LONGEST)] | None = None
    id: Annotated[str, Field(pattern=ID)] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None

    @field_validator("labels")
    @classmethod
    def distinct(cls, labels: list[Label]) -> list[Label]:
        if len(set(labels)) != len(labels):
            raise ValueError("labels must be distinct")
        if {bool, int} <= set(map(type, labels)):
            raise ValueError("labels must not mix booleans with integers")
        if any(isinstance(label, int) and not -(2**63) <= label < 2**63 for label in labels):
            raise ValueError("integer labels must fit into 64 bits")
        return labels

    def spec(self) -> Spec:
        learn = self.reference.learn if isinstance(self.reference, LearnedReference) else None
        if learn is not None and self.algorithm == "hyperboloid":
            raise InvalidParameter("reference", "learn", "left out: a hyperboloid perceptron has none")
        if learn is not None and self.keep_points < learn.warmup:
            raise InvalidParameter("keep_points", self.keep_points, f"at least the warmup of {learn.warmup}")
        reference = list(self.reference) if isinstance(self.reference, list) else [0.0] * self.dimension
        if len(reference) != self.dimension:
            raise DimensionMismatch(self.dimension, len(reference), what="reference", index=0)
        require_ball([reference], self.dimension, c=self.curvature)
        estimated = isinstance(self.budget, EstimatedBudget)
        budget = self.budget.estimate.initial if isinstance(self.budget, EstimatedBudget) else self.budget
        if not math.isfinite(budget * math.sqrt(self.curvature)):
            raise InvalidParameter("budget", budget, f"a distance that curvature −{self.curvature!r} can measure")
        return Spec(
            id=self.id or secrets.token_hex(8),
            algorithm=self.algorithm,
            dimension=self.dimension,
            curvature=self.curvature,
            reference=tuple(reference),
            labels=tuple(self.labels),
            a=self.a,
            budget=budget,
            estimate=estimated,
            keep_points=self.keep_points,
            ttl_seconds=self.ttl_seconds,
            name=self.name,
            created_at=datetime.now(UTC).isoformat(),
            warmup=learn.warmup if learn else 0,
            method=learn.method if learn else "hull",
        )


class ImportSession(BaseModel):
    """A session as GET /sessions/{id}/snapshot gave it, to be opened under a new id."""

    model_config = ConfigDict(extra="forbid")
    snapshot: dict[str, Any]
    id: Annotated[str, Field(pattern=ID)] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None


class ForkOf(BaseModel):
    """Which session, up to which position, and what is to be different. What is left out is as in the source."""

    model_config = ConfigDict(extra="forbid")
    session: Annotated[str, Field(pattern=ID)]
    at: Annotated[StrictInt, Field(ge=0, le=10**15)] | None = Field(
        None, description="all that was observed, if left out"
    )
    algorithm: Algorithm = "perceptron"
    dimension: StrictInt = 0
    curvature: Finite = 1.0
    reference: Reference = "origin"
    labels: Labelling = [-1, 1]
    a: Annotated[Finite, Field(ge=0)] = 1.0
    budget: Annotated[Finite, Field(gt=0)] | EstimatedBudget = 1.0
    keep_points: Annotated[StrictInt, Field(ge=0, le=10_000_000)] = 10_000
    ttl_seconds: Annotated[StrictInt, Field(ge=1, le=LONGEST)] | None = None
    id: Annotated[str, Field(pattern=ID)] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None


class ForkSession(BaseModel):
    """A new session from another's log, replayed on the server."""

    model_config = ConfigDict(extra="forbid")
    fork: ForkOf
    id: Annotated[str, Field(pattern=ID)] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None


def _opening(body: Any) -> str:
    found = [name for name in ("snapshot", "fork") if isinstance(body, dict) and name in body]
    return {"snapshot": "importing", "fork": "forking"}[found[0]] if found else "opening"


Opening = Annotated[
    Annotated[ImportSession, Tag("importing")]
    | Annotated[ForkSession, Tag("forking")]
    | Annotated[OpenSession, Tag("opening")],
    Discriminator(_opening),
]


class ChangeSession(BaseModel):
    """What of a session can be changed; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "a stream of agents", "keep_points": 5000}]}
    )
    name: Annotated[str, Field(max_length=200)] | None = None
    ttl_seconds: Annotated[StrictInt, Field(ge=1, le=LONGEST)] | None = None
    keep_points: Annotated[StrictInt, Field(ge=0, le=10_000_000)] = 10_000
    budget: EstimatedBudget | None = Field(None, description="begin the estimate of a strategic budget anew")


class Failure(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: str
    detail: str


class Session(BaseModel):
    """A session as it is now."""

    id: str
    name: str | None
    algorithm: str
    dimension: int
    curvature: float
    reference: list[float] | list[list[float]] | LearnedReference | None = Field(
        description="one point; one a class if they were learned; how it is being learned; none for a hyperboloid"
    )
    labels: list[AnyLabel]
    a: float | None
    budget: float | EstimatedBudget | None
    keep_points: int
    ttl_seconds: int | None
    observed: int
    mistakes: int
    updates: int
    version: int
    status: Literal["warming", "live", "replaying", "failed"]
    progress: float | None = Field(None, description="how far a fork is replayed, from 0 to 1")
    failure: Failure | None = Field(None, description="why a fork failed")
    created_at: str


class SessionList(BaseModel):
    sessions: list[Session]
    cursor: str | None = Field(None, description="ask for the next ones with ?cursor=")


class Progress(BaseModel):
    observed: int
    mistakes: int
    updates: int
    version: int


Point = list[float]


class Observe(BaseModel):
    """Either points and labels, or a point and a label."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"points": [[0.1, -0.2], [-0.3, 0.4]], "labels": [1, -1]}]},
    )
    points: list[Point] | None = None
    labels: list[AnyLabel] | None = None
    point: Point | None = None
    label: AnyLabel | None = None
    truth: list[Point] | Point | None = Field(None, description="where the points were before they moved; for display")


class Observed(BaseModel):
    predictions: list[AnyLabel] = Field(description="made before learning each point")
    scores: list[Any] = Field(description="signed distance to the boundary; n×K for K > 2 labels")
    correct: list[bool]
    accepted: int
    mistakes: int
    session: Progress
    clipped: int | None = Field(None, description="with outside=clip: the points that were moved to the radius limit")
    notes: list[str] | None = Field(None, description="what was noticed while the body was read")


class Predict(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"points": [[0.1, -0.2]]}]})
    points: list[Point] | None = None
    point: Point | None = None
    ids: list[int | str] | None = Field(None, description="the points wait under these for POST /labels")
    id: int | str | None = None


class Predicted(BaseModel):
    predictions: list[AnyLabel]
    scores: list[Any]
    cold: bool = Field(description="true when the session has not learned anything yet")
    probabilities: list[list[float]] | None = Field(None, description="n×K, where the model has them")
    clipped: int | None = Field(None, description="with outside=clip: the points that were moved to the radius limit")
    expires_in: float | None = Field(None, description="with ids: the seconds that the points wait for their labels")


class Labels(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"ids": ["a", "b"], "labels": [1, -1]}]})
    ids: list[int | str] | None = None
    labels: list[AnyLabel] | None = None
    id: int | str | None = None
    label: AnyLabel | None = None


class Labelled(Observed):
    ids: list[int | str] = Field(description="those that were learned now, in this order")
    unknown: list[int | str]
    expired: list[int | str]
    already_learned: list[int | str]


class ClassMetrics(BaseModel):
    label: AnyLabel
    points: int
    predicted: int
    precision: float | None
    recall: float | None


class LogPage(BaseModel):
    """Retained points by position"""

    model_config = ConfigDict(populate_by_name=True)
    start: int = Field(alias="from", description="the position of the first point")
    to: int = Field(description="the position behind the last")
    points: list[Point]
    labels: list[AnyLabel]
    next: int | None = Field(description="where to go on; null at the end")


class Window(BaseModel):
    points: int
    mistakes: int
    accuracy: float | None


class Drift(BaseModel):
    """Page and Hinkley's test on the error rate"""

    alarms: int
    last_alarm: int | None = Field(description="the position of the newest")
    statistic: float
    threshold: float


class MistakeLog(BaseModel):
    block: int = Field(description="points an entry stands for")
    first: int = Field(description="the position at which the first entry begins")
    mistakes: list[int]


class Metrics(BaseModel):
    observed: int
    mistakes: int
    updates: int
    version: int
    accuracy: float | None
    window: Window
    labels: list[AnyLabel]
    confusion: list[list[int]] = Field(description="row: the true class; column: the predicted one")
    classes: list[ClassMetrics]
    log: MistakeLog
    drift: Drift


class Proof(BaseModel):
    label: AnyLabel | None = Field(None, description="the class against the rest, for K > 2 labels")
    updates: int
    radius: float
    margin: float | None
    bound: float | None
    largest_margin: float | None
    disproved: bool | None
    paper_bound: float | None


class Certified(Proof):
    mistakes: int
    observed: int
    classes: list[Proof] | None = Field(description="one a class, for K > 2 labels")
    points: int | None = Field(None, description="margin=best: how many retained points it is the margin of")
    whole_stream: bool | None = Field(None, description="margin=best: whether those are all that were observed")


class Model(BaseModel):
    """The published classifier: all that an agent needs to respond to it."""

    algorithm: str
    dimension: int
    curvature: float
    labels: list[AnyLabel]
    reference: list[float] | list[list[float]] | None
    weights: list[Any] = Field(description="in lifted coordinates; K×d for K > 2 labels")
    sigma: float | list[float]
    budget: float | None
    threshold: float | None
    updates: int
    version: int


class FitRequest(BaseModel):
    """A batch classifier for the retained points; with a body of points of its own these are query parameters."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"kind": "svm", "loss": "squared_hinge", "C": 5.0, "reference": "hull"}]},
    )
    kind: Literal["svm", "softmax"] = "svm"
    margin: Literal["soft", "hard"] = "soft"
    loss: Literal["hinge", "squared_hinge"] = "hinge"
    C: Annotated[Finite, Field(gt=0, le=1e12, description="the weight of the losses against the margin")] = 1.0
    features: Literal["tangent", "lift", "hyperboloid"] = "tangent"
    reference: (
        Literal["session", "hull", "closest", "lorentz", "cv", "graham", "quickhull"]
        | list[Finite]
        | list[list[Finite]]
    ) = Field("session", description="the session's own, a way to learn it, a point, or one point a class")
    probabilities: Annotated[bool, Field(strict=True)] = True


class Gap(BaseModel):
    primal: float
    dual: float
    gap: float = Field(description="(primal − dual)/primal: the fit is this near to the optimum, proven")


class FitCertificate(Gap):
    classes: list[Gap] | None = Field(description="one a class, for K > 2 labels")


class Fit(FitRequest):
    model_config = ConfigDict(extra="ignore")
    id: str
    status: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: float
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    attempts: int
    failure: Failure | None = Field(description="why it failed")
    points: int | None
    certificate: FitCertificate | None
    support_vectors: list[int] | None = Field(description="how many, a class")
    training_accuracy: float | None
    references: list[list[float]] | None
    reference_methods: list[dict[str, Any]] | None = Field(description="how each was found, and what was seen")
    iterations: int | None
    stopped: list[str] | None
    seconds: float | None


class FitList(BaseModel):
    fits: list[Fit]


class Promote(BaseModel):
    model_config = ConfigDict(extra="forbid")
    fit: Annotated[str, Field(pattern=ID)]


class Problem(BaseModel):
    """RFC 9457. Further members help: index, norm, limit."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
