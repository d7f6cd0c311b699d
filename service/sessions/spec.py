"""What a session is: what was asked for when it was opened, and how that becomes a learner.

Of a `Spec` only the name, the time to live, keep_points, the refits and the start of an estimated budget ever change;
labels are added, and one member of `auto` may be kept alone. Labels are the caller's own; inside, a label is its index,
and a learner sees signs (two classes) or indices (more).
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from service.errors import BinaryOnly, InvalidParameter
from service.geometry import Array, norm_limit
from service.learners import LEARNERS, Learner, one_vs_rest
from service.learners.drift import SENSITIVITY
from service.sessions import fast_json
from service.sessions.rows import class_type, row_bytes

Label = str | int
#: Numbers that all learners of a session keep together, 16 MiB of them: so much is stored, loaded and sent as a
#: snapshot within the deadlines. A second-order learner keeps the square of its dimension.
LARGEST = 1 << 21
#: Bytes of retained points of one session.
RETAINED = 1 << 30
#: Learners that take any number of classes by themselves; of the others there is one a class.
MANY_CLASSES = ("hemisphere", "softmax", "gaussian", "auto")
#: Algorithms that have no reference point, and those whose features are the hemisphere's if none is given.
WITHOUT_REFERENCE = ("auto", "softmax", "gaussian", "hyperboloid")
WITH_OR_WITHOUT = ("perceptron", "second_order")
FEATURES = {
    "hemisphere": "hemisphere",
    "softmax": "hemisphere",
    "auto": "hemisphere",
    "gaussian": "tangent",
    "strategic": "tangent",
    "hyperboloid": "hyperboloid",
}


@dataclass(frozen=True)
class Spec:
    id: str
    algorithm: str
    dimension: int
    curvature: float
    reference: tuple[float, ...] | None  # where the learner begins, the origin being a point like any other; or none
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
    average: bool = False  # on the hemisphere: the average of the iterates answers
    members: tuple[str, ...] = ()  # of auto: the learners that vote
    refit: bool = False  # a softmax begins anew from a batch softmax at 25·2^j points
    sensitivity: float = SENSITIVITY  # of the drift detector
    restart: bool = False  # the learner begins anew when drift is found

    def __post_init__(self) -> None:
        if self.algorithm == "strategic" and len(self.labels) != 2:
            raise BinaryOnly(len(self.labels))

    @cached_property
    def binary(self) -> bool:
        return len(self.labels) == 2

    @cached_property
    def columns(self) -> int:
        """Scores that a point has"""
        return 1 if self.binary else len(self.labels)

    @cached_property
    def classes(self) -> int:
        return len(self.labels)

    @cached_property
    def kind(self) -> str:
        """Which of the learners it is: perceptrons without a reference point are those on the hemisphere"""
        return "hemisphere" if self.algorithm in WITH_OR_WITHOUT and self.reference is None else self.algorithm

    @cached_property
    def features(self) -> str:
        """What the learner makes of a point; a lift needs a reference point"""
        return FEATURES.get(self.kind, "lift")

    @cached_property
    def row_bytes(self) -> int:
        """Of a point and its label, as they are kept"""
        return row_bytes(self.dimension)

    @cached_property
    def class_type(self) -> str:
        """The type that holds a class index"""
        return class_type(len(self.labels))

    @cached_property
    def largest_square(self) -> float:
        """A point is taken if its squared norm is at most this"""
        return norm_limit(self.curvature) ** 2

    @cached_property
    def surely_inside(self) -> float:
        """A sum of squares, added in whatever order, that is at most this is that of a point which is taken: two such
        sums differ by 2·d·ε at the most"""
        return self.largest_square * (1 - 2 * self.dimension * sys.float_info.epsilon)

    @cached_property
    def json_table(self) -> fast_json.Table:
        """What JSON is to hold that is read in one pass: points that are surely inside, and these labels"""
        return fast_json.table(self.dimension, self.surely_inside, self.labels)

    @cached_property
    def takes_rows(self) -> bool:
        """Whether the learner reads rows as they are stored"""
        return self.binary and getattr(self.learner, "TAKES_ROWS", False)

    @cached_property
    def learner(self) -> Learner[Any]:
        alone = self.binary or self.kind in MANY_CLASSES
        return cast(Learner[Any], LEARNERS[self.kind] if alone else one_vs_rest)

    @cached_property
    def has_softmax(self) -> bool:
        """Whether there is a softmax, alone or among those that vote"""
        return "softmax" in (self.algorithm, *self.members)

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

    @cached_property
    def tokens(self) -> list[bytes]:
        """The labels as JSON has them"""
        return [json.dumps(label, ensure_ascii=False).encode() for label in self.labels]

    def first_state(self) -> Any:
        """The state before the first point"""
        first = LEARNERS[self.kind].first(self)
        return first if self.binary or self.kind in MANY_CLASSES else one_vs_rest.init([first] * len(self.labels))

    def first_states_at(self, references: list[list[float]]) -> Any:
        """The same at reference points that were learned: one, or one a class"""
        if self.binary:
            return replace(self, reference=tuple(references[0])).first_state()
        each = references if len(references) > 1 else references * len(self.labels)
        first = LEARNERS[self.kind].first
        return one_vs_rest.init([first(replace(self, reference=tuple(p))) for p in each])

    def targets(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Class indices as the learner wants them: signs for two classes"""
        return (2 * indices - 1).astype(np.int8) if self.binary else indices

    def decide(self, scores: Array) -> NDArray[np.int64]:
        """The class index each score decides for; a score of 0 is positive"""
        return (scores >= 0).astype(np.int64) if scores.ndim == 1 else np.argmax(scores, axis=1).astype(np.int64)

    def named(self, indices: NDArray[np.int64]) -> Any:
        """Class indices as the caller's labels, ready for JSON: an array of integers, or a list"""
        labels = self.label_array[indices]
        return labels if labels.dtype == np.int64 else labels.tolist()

    def names(self, indices: NDArray[np.int64]) -> list[Label]:
        """Class indices as the caller's labels, in a list"""
        found: list[Label] = self.label_array[indices].tolist()
        return found


def require_moderate(spec: Spec) -> Spec:
    """Raise if it asks for more than is served; checked when a session is opened or changed, not when it is loaded"""
    d, learners, more = spec.dimension, spec.columns, 2 * (spec.reference is None)
    if spec.algorithm == "second_order" and learners * (d + more) ** 2 > LARGEST:
        allowed = f"at most {math.isqrt(LARGEST // learners) - more} for {learners} second-order learners"
        raise InvalidParameter("dimension", d, allowed)
    if learners * d > LARGEST:
        raise InvalidParameter("dimension", d, f"at most {LARGEST // learners} for {learners} labels")
    if spec.keep_points * spec.row_bytes > RETAINED:
        allowed = f"at most {RETAINED // spec.row_bytes} points of {spec.row_bytes} bytes each"
        raise InvalidParameter("keep_points", spec.keep_points, allowed)
    return spec


def references(spec: Spec, state: Any) -> list[list[float]] | None:
    """The reference points in the session's ball: one, or one a class where they differ; None if it has none"""
    if spec.reference is None or spec.algorithm == "hyperboloid":
        return None
    members = (state,) if spec.binary else state.members
    if all(np.array_equal(member.p, members[0].p) for member in members):
        members = members[:1]
    return [(member.p / math.sqrt(spec.curvature)).tolist() for member in members]


def spec_to_json(spec: Spec) -> str:
    return json.dumps({f.name: getattr(spec, f.name) for f in fields(spec)}, separators=(",", ":"))


def spec_from_json(text: str | bytes) -> Spec:
    found: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text).items()
    }
    return Spec(**found)


def restarts(algorithm: str) -> bool:
    """Whether a learner begins anew where drift is found, unless a session says otherwise"""
    return algorithm == "auto"


def asked(spec: Spec) -> dict[str, Any]:
    """What was asked for when the session was opened, in the words of POST /sessions; None: it has no such setting"""
    reference: Any = None if spec.reference is None else list(spec.reference)
    return {
        "algorithm": spec.algorithm,
        "dimension": spec.dimension,
        "curvature": spec.curvature,
        "reference": {"learn": {"warmup": spec.warmup, "method": spec.method}} if spec.warmup else reference,
        "labels": list(spec.labels),
        "average": spec.average if spec.kind in ("hemisphere", "auto") else None,
        "members": list(spec.members) or None,
        "refit": ("doubling" if spec.refit else "none") if spec.has_softmax else None,
        "a": spec.a,
        "budget": {"estimate": {"initial": spec.budget}} if spec.estimate else spec.budget,
        "drift": {"sensitivity": spec.sensitivity, "on_drift": "restart" if spec.restart else "alarm"},
        "keep_points": spec.keep_points,
        "ttl_seconds": spec.ttl_seconds,
        "name": spec.name,
    }
