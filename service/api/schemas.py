"""The shapes of the bodies, for the cold routes to check and for the OpenAPI document to show."""

from __future__ import annotations

import math
import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, StrictInt, StrictStr, Tag, field_validator

from service.errors import DimensionMismatch, InvalidParameter
from service.geometry import require_ball
from service.learners.auto import MEMBERS
from service.learners.drift import SENSITIVITY
from service.sessions.spec import WITH_OR_WITHOUT, WITHOUT_REFERENCE, Label, Spec, require_moderate, restarts

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


class DriftSettings(BaseModel):
    """When drift is found, and what is done about it."""

    model_config = ConfigDict(extra="forbid")
    sensitivity: Annotated[
        Finite, Field(gt=0, lt=1, description="about the probability of any false alarm; smaller: later, surer")
    ] = SENSITIVITY
    on_drift: Annotated[
        Literal["alarm", "restart"] | None,
        Field(description="restart: the learner begins anew; counts go on. auto restarts, the others raise an alarm"),
    ] = None


Algorithm = Literal["auto", "perceptron", "second_order", "softmax", "gaussian", "strategic", "hyperboloid"]
Member = Literal["perceptron", "second_order", "softmax", "gaussian"]
Members = Annotated[list[Member], Field(min_length=1, max_length=4)]
Refit = Literal["doubling", "none"]
Reference = Literal["origin"] | list[Finite] | LearnedReference
AnyLabel = bool | int | str
Word = Annotated[StrictStr, Field(max_length=200)]
Labelling = Annotated[list[StrictBool | StrictInt | Word], Field(min_length=2, max_length=1000)]


class OpenSession(BaseModel):
    """What a session is to be."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"dimension": 2, "labels": ["cat", "dog", "bird"], "id": "demo"}]},
    )
    algorithm: Annotated[Algorithm | None, Field(description="auto; a perceptron if a reference is given")] = None
    dimension: Annotated[StrictInt, Field(ge=1, le=4096)]
    curvature: Annotated[Finite, Field(gt=0, description="the ball's curvature is −c")] = 1.0
    reference: Annotated[
        Reference | None,
        Field(
            description="none: hemisphere coordinates, which need no point. perceptron and second_order: the paper's"
            " lift at that point. strategic: the origin if left out"
        ),
    ] = None
    features: Annotated[Literal["hemisphere", "lift"] | None, Field(description="follows from reference")] = None
    labels: Labelling = [-1, 1]
    average: Annotated[
        bool | None,
        Field(strict=True, description="the averaged rule answers; true on hemisphere coordinates, false on the lift"),
    ] = None
    members: Annotated[Members | None, Field(description="auto: the learners that vote")] = None
    refit: Annotated[Refit | None, Field(description="softmax: begin anew from a batch softmax at 25·2^j points")] = (
        None
    )
    a: Annotated[Finite, Field(ge=0, description="second_order; 0 = pseudo-inverse")] = 1.0
    budget: Annotated[Finite, Field(gt=0)] | EstimatedBudget = 1.0
    drift: DriftSettings = DriftSettings()
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
        lifted = self.reference is not None or self.features == "lift"
        algorithm = self.algorithm or ("perceptron" if lifted else "auto")
        learn = self.reference.learn if isinstance(self.reference, LearnedReference) else None
        if learn is not None and self.keep_points < learn.warmup:
            raise InvalidParameter("keep_points", self.keep_points, f"at least the warmup of {learn.warmup}")
        reference = self._reference(algorithm)
        on_hemisphere = reference is None and algorithm in WITH_OR_WITHOUT
        estimated = isinstance(self.budget, EstimatedBudget)
        budget = self.budget.estimate.initial if isinstance(self.budget, EstimatedBudget) else self.budget
        if not math.isfinite(budget * math.sqrt(self.curvature)):
            raise InvalidParameter("budget", budget, f"a distance that curvature −{self.curvature!r} can measure")
        asked = Spec(
            id=self.id or secrets.token_hex(8),
            algorithm=algorithm,
            dimension=self.dimension,
            curvature=self.curvature,
            reference=reference,
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
            average=self._average(algorithm, on_hemisphere),
            members=self._members(algorithm),
            refit=self._refits(algorithm),
            sensitivity=self.drift.sensitivity,
            restart=self.drift.on_drift == "restart" if self.drift.on_drift else restarts(algorithm),
        )
        return require_moderate(asked)

    def _reference(self, algorithm: str) -> tuple[float, ...] | None:
        """A point, or none: then perceptrons are on the hemisphere"""
        given, origin = self.reference, (0.0,) * self.dimension
        if algorithm in WITHOUT_REFERENCE:
            if self.features == "lift" and algorithm != "hyperboloid":
                raise InvalidParameter("features", "lift", f"hemisphere for {algorithm}, or left out")
            if algorithm == "hyperboloid" and given in ("origin", list(origin)):  # as snapshots of 0.1 say
                return None
            if given is not None:
                remedy = f"left out: {algorithm} has no reference point; perceptron and second_order may have one"
                raise InvalidParameter("reference", "learn" if isinstance(given, LearnedReference) else given, remedy)
            return None
        if given is None:
            return None if algorithm in WITH_OR_WITHOUT and self.features != "lift" else origin
        if self.features == "hemisphere":
            raise InvalidParameter("features", "hemisphere", "lift, or left out: there is a reference point")
        point = tuple(given) if isinstance(given, list) else origin
        if len(point) != self.dimension:
            raise DimensionMismatch(self.dimension, len(point), what="reference", index=0)
        require_ball([point], self.dimension, c=self.curvature)
        return point

    def _average(self, algorithm: str, on_hemisphere: bool) -> bool:
        possible = on_hemisphere or algorithm == "auto"
        if self.average and not possible:
            raise InvalidParameter("average", True, "left out: perceptrons without a reference point have an average")
        return possible if self.average is None else self.average

    def _members(self, algorithm: str) -> tuple[str, ...]:
        if algorithm != "auto":
            if self.members:
                raise InvalidParameter("members", self.members, f"left out: {algorithm} has none, auto has")
            return ()
        members = tuple(self.members or MEMBERS)
        if len(set(members)) < len(members):
            raise InvalidParameter("members", list(members), "distinct")
        return members

    def _refits(self, algorithm: str) -> bool:
        possible = "softmax" in (algorithm, *self._members(algorithm))
        if self.refit == "doubling" and not possible:
            raise InvalidParameter("refit", "doubling", "left out: this session has no softmax")
        return possible and self.refit != "none"


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
    algorithm: Algorithm = "auto"
    dimension: StrictInt = 0
    curvature: Finite = 1.0
    reference: Reference | None = None
    features: Literal["hemisphere", "lift"] | None = None
    labels: Labelling = [-1, 1]
    average: Annotated[bool, Field(strict=True)] | None = None
    members: Members | None = None
    refit: Refit | None = None
    a: Annotated[Finite, Field(ge=0)] = 1.0
    budget: Annotated[Finite, Field(gt=0)] | EstimatedBudget = 1.0
    drift: DriftSettings = DriftSettings()
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


class MergeOf(BaseModel):
    """Which sessions: of the same dimension, curvature and labels. Other settings are those of the first."""

    model_config = ConfigDict(extra="forbid")
    sessions: Annotated[list[Annotated[str, Field(pattern=ID)]], Field(min_length=2, max_length=100)]


class MergeSessions(BaseModel):
    """A new session that has learned what several gaussian ones have."""

    model_config = ConfigDict(extra="forbid")
    merge: MergeOf
    id: Annotated[str, Field(pattern=ID)] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None


_KINDS = {"snapshot": "importing", "fork": "forking", "merge": "merging"}


def _opening(body: Any) -> str:
    return next((kind for name, kind in _KINDS.items() if isinstance(body, dict) and name in body), "opening")


Opening = Annotated[
    Annotated[ImportSession, Tag("importing")]
    | Annotated[ForkSession, Tag("forking")]
    | Annotated[MergeSessions, Tag("merging")]
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
    refit: Refit | None = Field(None, description="refits of a softmax, on or off")
    algorithm: Member | None = Field(None, description="auto: this member goes on alone")
    add_labels: Annotated[list[Word | StrictInt], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="more classes; those that are there go on as they are"
    )


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
        description="one point; one a class if they were learned; how it is being learned; null: it has none"
    )
    features: str = Field(description="what the learner makes of a point: hemisphere, lift, tangent or hyperboloid")
    labels: list[AnyLabel]
    average: bool | None = Field(description="whether the averaged rule answers; null: there is no average")
    members: list[str] | None = Field(description="auto: the learners that vote")
    refit: str | None = Field(description="softmax: doubling or none")
    a: float | None
    budget: float | EstimatedBudget | None
    drift: DriftSettings
    keep_points: int
    ttl_seconds: int | None
    observed: int
    mistakes: int
    updates: int
    version: int
    status: Literal["warming", "live", "replaying", "failed"]
    progress: float | None = Field(None, description="how far a fork is replayed, from 0 to 1")
    failure: Failure | None = Field(None, description="why a fork failed")
    hints: list[str] = Field([], description="what goes wrong, a sentence each, with its remedy; not in lists")
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
    """With ?reply=summary the columns are left out: predictions, scores, correct, probabilities."""

    predictions: list[AnyLabel] = Field([], description="made before learning each point")
    scores: list[Any] = Field([], description="signed distance to the boundary; n×K for K > 2 labels")
    correct: list[bool] = []
    probabilities: list[list[float]] | None = Field(None, description="n×K, with ?probabilities=true")
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
    """A rise of the error rate that one rate cannot explain"""

    alarms: int
    last_alarm: int | None = Field(description="the position of the newest")
    window: int = Field(description="how many points are looked back on")
    sensitivity: float
    on_drift: str


class BudgetMetrics(BaseModel):
    """What agents have shown of their budget, since its estimate began"""

    estimate: float
    evidence: int = Field(description="agents that stayed where they were: they could not reach the threshold")
    jumps: int = Field(description="those of them that would have had it fall by more than half: liars, or a change")


class MemberMetrics(BaseModel):
    algorithm: str
    mistakes: int
    accuracy: float | None
    weight: float = Field(description="its share of the vote")


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
    budget: BudgetMetrics | None = Field(None, description="strategic, where the budget is estimated")
    members: list[MemberMetrics] | None = Field(None, description="auto: those that vote, side by side")
    log_loss: float | None = Field(None, description="of learners with probabilities: the mean of −ln p(true class)")
    calibration_error: float | None = Field(None, description="how far the probabilities are from how right they were")
    hints: list[str] = Field([], description="what goes wrong, a sentence each, with its remedy")


class HingeBound(BaseModel):
    bound: float = Field(description="no more updates than this")
    loss: float = Field(description="the sum of the hinge losses of u, an SVM of the whole stream")
    norm: float = Field(description="‖u‖")


class Proof(BaseModel):
    updates: int
    radius: float | None = Field(description="the largest distance from the reference point; null without one")
    margin: float | None
    bound: float | None = Field(description="no more updates than this, if the margin is one of the stream")
    largest_margin: float | None = Field(description="no classifier has a larger margin on what was seen")
    disproved: bool | None
    paper_bound: float | None
    hinge: HingeBound | None = Field(None, description="with loss=hinge, where the log holds the whole stream")


class ClassProof(Proof):
    label: AnyLabel = Field(description="this class against the rest")


class ErrorRate(BaseModel):
    """A confidence sequence: with probability `level` the mean error rate stays within, at all times at once"""

    estimate: float | None
    low: float
    high: float
    level: float


class MemberMistakes(BaseModel):
    algorithm: str
    mistakes: int


class Vote(BaseModel):
    """The weighted majority of `auto`: M ≤ (m ln(1/(β(1−s))) + ln N)/ln(2/(1+β)), on any stream"""

    points: int = Field(description="voted on")
    mistakes: int = Field(description="M, of the vote")
    bound: float = Field(description="M is no more than this")
    best: str = Field(description="the member with the fewest mistakes, m")
    members: list[MemberMistakes]


class Certified(Proof):
    mistakes: int
    observed: int
    error_rate: ErrorRate
    vote: Vote | None = Field(None, description="of auto")
    classes: list[ClassProof] | None = Field(description="one a class, for K > 2 labels")
    points: int | None = Field(None, description="margin=best, loss=hinge: how many retained points were used")
    whole_stream: bool | None = Field(None, description="whether those are all that were observed")
    notes: list[str] = Field(description="what the numbers do not say by themselves, a sentence each")


class Normal(BaseModel):
    """Of the vectors v towards x of length d(0,x), in the unit ball"""

    label: AnyLabel
    count: int
    mean: list[float]
    covariance: list[list[float]] | None = None
    variances: list[float] | None = Field(None, description="where full matrices would be too large")


class Scales(BaseModel):
    """scale·sinh δ + offset of each class, δ the signed distance; `tangent`: sinh δ times r/sinh r, r = d(p, x)"""

    scale: list[float]
    offset: list[float]
    tangent: bool


class Model(BaseModel):
    """The published classifier: all that an agent needs to respond to it."""

    algorithm: str
    features: str = Field(description="what the weights are for: lift, tangent, hyperboloid or hemisphere")
    average: bool | None
    dimension: int
    curvature: float
    labels: list[AnyLabel]
    reference: list[float] | list[list[float]] | None
    weights: list[Any] | None = Field(
        description="d of a lift, d+1 of a hyperboloid, d+2 of the hemisphere; K rows for K > 2 labels; null: see"
        " classes or members"
    )
    sigma: float | list[float] | None
    budget: float | None
    threshold: float | None
    scales: Scales | None = Field(
        description="lift, hyperboloid of K > 2 labels, begun from a fit: the largest of these decides, not of δ"
    )
    classes: list[Normal] | None = Field(description="gaussian: a wrapped normal a class")
    temperature: float | None = Field(description="gaussian: its posteriors are flattened by this")
    members: list[dict[str, Any]] | None = Field(description="auto: the models that vote, each with its weight")
    updates: int
    version: int


class FitRequest(BaseModel):
    """A batch classifier for the retained points; with a body of points of its own these are query parameters."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{}, {"loss": "squared_hinge", "C": 5.0, "reference": "lorentz"}]},
    )
    kind: Literal["svm", "softmax"] | None = Field(
        None, description="softmax, unless a word of an svm is among these: margin, loss, reference, tangent, lift"
    )
    margin: Literal["soft", "hard"] | None = Field(None, description="svm: soft")
    loss: Literal["hinge", "squared_hinge"] | None = Field(None, description="svm: hinge")
    C: Annotated[Finite, Field(gt=0, le=1e12)] | None = Field(
        None, description="the weight of the losses: 1000 for a softmax, 1 for an svm"
    )
    features: Literal["hemisphere", "hyperboloid", "tangent", "lift"] | None = Field(
        None, description="hemisphere; for an svm with a reference tangent. tangent and lift are at a reference point"
    )
    reference: (
        Literal["session", "hull", "closest", "lorentz", "cv", "graham", "quickhull"]
        | list[Finite]
        | list[list[Finite]]
        | None
    ) = Field(
        None,
        description="tangent and lift: the session's own (if it has one), a way to learn it (else lorentz), a point, "
        "or one point a class",
    )
    probabilities: Annotated[bool, Field(strict=True)] = True
    data: Annotated[str, Field(max_length=2000)] | None = Field(
        None,
        description="administrators: npy or parquet files to fit, by path or URL, * in its last part; below a place "
        "that the setting fit_data names. Their labels are the session's",
    )


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
    member: Annotated[str, Field(max_length=64)] | None = Field(None, description="auto: which learner of the vote")


class Promoted(Session):
    agreement: float | None = Field(
        description="on which share of the retained points the learner answers as the fit; null if a repeated request"
    )


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class Ready(BaseModel):
    name: str | None = None
    ready: bool | None = None
    live: bool | None = None


class TensorMetadata(BaseModel):
    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """A session as a model of the Open Inference Protocol"""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Tensor(TensorMetadata):
    data: list[Any] | None = Field(None, description="flat or nested; null: as bytes behind the JSON")


class Inference(BaseModel):
    id: str | None = None
    inputs: list[Tensor] = Field(description="one, `points`: n×d of FP64 or FP32")
    outputs: list[dict[str, Any]] | None = Field(None, description="which of scores, index and label; none: all")


class Inferred(BaseModel):
    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[Tensor]


class Problem(BaseModel):
    """RFC 9457. Further members help: index, norm, limit."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
