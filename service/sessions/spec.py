"""What a session is: what was asked for when it was opened, and how that becomes a learner.

Of a `Spec` only the name, the time to live, keep_points and the start of an estimated budget ever change. Labels are
the caller's own; inside, a label is its index, and a learner sees signs (two classes) or indices (more).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from service.errors import BinaryOnly, InvalidParameter
from service.geometry import Array, norm_limit
from service.learners import LEARNERS, Learner, one_vs_rest
from service.sessions.rows import row_bytes

Label = str | int
#: The largest dimension. A second-order learner keeps its square in numbers, and all K of them together no more.
LARGEST = 4096


@dataclass(frozen=True)
class Spec:
    id: str
    algorithm: str
    dimension: int
    curvature: float
    reference: tuple[float, ...]  # where the learner begins; the origin is a point like any other
    labels: tuple[Label, ...]
    a: float
    budget: float  # α, or where its estimate starts
    estimate: bool
    keep_points: int
    ttl_seconds: int | None
    name: str | None
    created_at: str
    warmup: int = 0  # points to learn the reference point from; 0: it is given
    method: str = "hull"  # how

    def __post_init__(self) -> None:
        if self.algorithm == "strategic" and len(self.labels) != 2:
            raise BinaryOnly(len(self.labels))
        learners = 1 if self.binary else len(self.labels)
        if self.algorithm == "second_order" and learners * self.dimension**2 > LARGEST**2:
            allowed = f"at most {math.isqrt(LARGEST**2 // learners)} for {learners} second-order learners"
            raise InvalidParameter("dimension", self.dimension, allowed)

    @cached_property
    def binary(self) -> bool:
        return len(self.labels) == 2

    @cached_property
    def row_bytes(self) -> int:
        """Of a point and its label, as they are kept"""
        return row_bytes(self.dimension)

    @cached_property
    def class_type(self) -> str:
        """The type that holds a class index"""
        return "u1" if len(self.labels) <= 256 else "<u2"

    @cached_property
    def largest_square(self) -> float:
        """A point is taken if its squared norm is at most this"""
        return norm_limit(self.curvature) ** 2

    @cached_property
    def learner(self) -> Learner[Any]:
        return cast(Learner[Any], LEARNERS[self.algorithm] if self.binary else one_vs_rest)

    @cached_property
    def index(self) -> dict[Label, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def label_types(self) -> set[type]:
        """bool, int, str: whichever the labels are of. Booleans and integers are never mixed: True == 1"""
        return set(map(type, self.labels))

    @cached_property
    def label_array(self) -> NDArray[Any]:
        """The labels as an array to pick from: integers where all are, else objects"""
        whole = self.label_types == {int}
        return np.array(self.labels, dtype=np.int64 if whole else object)

    def first_state(self) -> Any:
        """The state before the first point"""
        first = LEARNERS[self.algorithm].first(self)
        return first if self.binary else one_vs_rest.init([first] * len(self.labels))

    def targets(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Class indices as the learner wants them: signs for two classes"""
        return (2 * indices - 1).astype(np.int8) if self.binary else indices

    def decide(self, scores: Array) -> NDArray[np.int64]:
        """The class index each score decides for; a score of 0 is positive"""
        return (scores >= 0).astype(np.int64) if self.binary else np.argmax(scores, axis=1).astype(np.int64)

    def named(self, indices: NDArray[np.int64]) -> Any:
        """Class indices as the caller's labels, ready for JSON: an array of integers, or a list"""
        labels = self.label_array[indices]
        return labels if labels.dtype == np.int64 else labels.tolist()

    def names(self, indices: NDArray[np.int64]) -> list[Label]:
        """Class indices as the caller's labels, in a list"""
        found: list[Label] = self.label_array[indices].tolist()
        return found


def references(spec: Spec, state: Any) -> list[list[float]] | None:
    """The reference points in the session's ball: one, or one a class where they differ; a hyperboloid has none"""
    if spec.algorithm == "hyperboloid":
        return None
    members = (state,) if spec.binary else state.members
    points = [(member.p / math.sqrt(spec.curvature)).tolist() for member in members]
    return points[:1] if all(p == points[0] for p in points) else points


def published(spec: Spec, state: Any) -> dict[str, Any]:
    """The classifier, all that an agent needs to respond to it"""
    members = (state,) if spec.binary else state.members
    points = references(spec, state)
    sigmas = [2.0] if points is None else [2 / (1 - float(m.p @ m.p)) for m in members[: len(points)]]
    budget = state.alpha / math.sqrt(spec.curvature) if spec.algorithm == "strategic" else None
    return {
        "algorithm": spec.algorithm,
        "dimension": spec.dimension,
        "curvature": spec.curvature,
        "labels": list(spec.labels),
        "reference": points[0] if points and len(points) == 1 else points,
        "weights": members[0].w.tolist() if spec.binary else [member.w.tolist() for member in members],
        "sigma": sigmas[0] if len(sigmas) == 1 else sigmas,
        "budget": budget,
        "threshold": None if budget is None else budget / sigmas[0],
    }


def spec_to_json(spec: Spec) -> str:
    return json.dumps({f.name: getattr(spec, f.name) for f in fields(spec)})


def spec_from_json(text: str | bytes) -> Spec:
    found = json.loads(text)
    return Spec(**{**found, "reference": tuple(found["reference"]), "labels": tuple(found["labels"])})


def asked(spec: Spec) -> dict[str, Any]:
    """What was asked for when the session was opened, in the words of POST /sessions"""
    learned = {"learn": {"warmup": spec.warmup, "method": spec.method}}
    return {
        "algorithm": spec.algorithm,
        "dimension": spec.dimension,
        "curvature": spec.curvature,
        "reference": learned if spec.warmup else list(spec.reference),
        "labels": list(spec.labels),
        "a": spec.a,
        "budget": {"estimate": {"initial": spec.budget}} if spec.estimate else spec.budget,
        "keep_points": spec.keep_points,
        "ttl_seconds": spec.ttl_seconds,
        "name": spec.name,
    }
