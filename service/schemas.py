"""The shapes of the bodies, for the cold routes to check and for the OpenAPI document to show."""

from __future__ import annotations

import math
import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, field_validator

from service.errors import DimensionMismatch, InvalidParameter
from service.geometry import require_ball
from service.session import Label, Spec

#: A number as JSON has it: neither "1" nor true, which pydantic would take
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Estimate(BaseModel):
    model_config = ConfigDict(extra="forbid")
    initial: Annotated[Finite, Field(gt=0, description="where to start: better too high")] = 4.0


class EstimatedBudget(BaseModel):
    model_config = ConfigDict(extra="forbid")
    estimate: Estimate


class OpenSession(BaseModel):
    """What a session is to be."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"algorithm": "perceptron", "dimension": 2, "id": "demo"}]},
    )
    algorithm: Literal["perceptron", "second_order", "strategic", "hyperboloid"] = "perceptron"
    dimension: Annotated[StrictInt, Field(ge=1, le=4096)]
    curvature: Annotated[Finite, Field(gt=0, description="the ball's curvature is −c")] = 1.0
    reference: Literal["origin"] | list[Finite] = "origin"
    labels: Annotated[list[StrictInt | StrictStr], Field(min_length=2, max_length=1000)] = [-1, 1]
    a: Annotated[Finite, Field(ge=0, description="second_order; 0 = pseudo-inverse")] = 1.0
    budget: Annotated[Finite, Field(gt=0)] | EstimatedBudget = 1.0
    keep_points: Annotated[StrictInt, Field(ge=0, le=10_000_000)] = 10_000
    keep_events: Annotated[StrictInt, Field(ge=0, le=1_000_000)] = 10_000
    ttl_seconds: Annotated[StrictInt, Field(ge=1, le=10 * 366 * 86400)] | None = None
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None

    @field_validator("labels")
    @classmethod
    def distinct(cls, labels: list[Label]) -> list[Label]:
        if len(set(labels)) != len(labels):
            raise ValueError("labels must be distinct")
        if any(isinstance(label, int) and not -(2**63) <= label < 2**63 for label in labels):
            raise ValueError("integer labels must fit into 64 bits")
        return labels

    def spec(self) -> Spec:
        reference = [0.0] * self.dimension if self.reference == "origin" else list(self.reference)
        if len(reference) != self.dimension:
            raise DimensionMismatch(self.dimension, len(reference), what="reference", index=0)
        require_ball([reference], self.dimension, c=self.curvature)
        estimated = isinstance(self.budget, EstimatedBudget)
        budget = self.budget.estimate.initial if isinstance(self.budget, EstimatedBudget) else self.budget
        if not math.isfinite(budget * math.sqrt(self.curvature)):
            raise InvalidParameter("budget", budget, f"a distance that curvature −{self.curvature!r} can measure")
        return Spec(
            id=self.id or secrets.token_urlsafe(12),
            algorithm=self.algorithm,
            dimension=self.dimension,
            curvature=self.curvature,
            reference=tuple(reference),
            labels=tuple(self.labels),
            a=self.a,
            budget=budget,
            estimate=estimated,
            keep_points=self.keep_points,
            keep_events=self.keep_events,
            ttl_seconds=self.ttl_seconds,
            name=self.name,
            created_at=datetime.now(UTC).isoformat(),
        )


class Session(BaseModel):
    """A session as it is now."""

    id: str
    name: str | None
    algorithm: str
    dimension: int
    curvature: float
    reference: list[float]
    labels: list[int | str]
    a: float | None
    budget: float | EstimatedBudget | None
    keep_points: int
    keep_events: int
    ttl_seconds: int | None
    observed: int
    mistakes: int
    updates: int
    version: int
    status: Literal["warming", "live"]
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
    labels: list[int | str] | None = None
    point: Point | None = None
    label: int | str | None = None


class Observed(BaseModel):
    predictions: list[int | str] = Field(description="made before learning each point")
    scores: list[Any] = Field(description="signed distance to the boundary; n×K for K > 2 labels")
    correct: list[bool]
    accepted: int
    mistakes: int
    session: Progress


class Predict(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"points": [[0.1, -0.2]]}]})
    points: list[Point] | None = None
    point: Point | None = None


class Predicted(BaseModel):
    predictions: list[int | str]
    scores: list[Any]
    cold: bool = Field(description="true when the session has not learned anything yet")


class Model(BaseModel):
    """The published classifier: all that an agent needs to respond to it."""

    algorithm: str
    dimension: int
    curvature: float
    labels: list[int | str]
    reference: list[float] | None
    weights: list[Any] = Field(description="in lifted coordinates; K×d for K > 2 labels")
    sigma: float
    budget: float | None
    threshold: float | None
    updates: int
    version: int


class Problem(BaseModel):
    """RFC 9457. Further members help: index, norm, limit."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
