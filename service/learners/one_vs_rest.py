"""K classes: one binary learner a class, that class against the rest. Not for strategic: its agents want one label.

Labels are class indices 0 … K−1. Scores are n×K, column j from learner j; the prediction is the class with the
largest score, the first of equals. A point changes the classifier when it changes any of the K learners.

Scores are signed distances δ_k to the boundaries. Begun from a fit, which compares its classes by Platt's log odds
s⟨w,f⟩ + o, they are those log odds: ⟨w,z⟩ = ‖w‖ sinh δ for lifted features, r/(σ_p sinh r) of it for tangent ones, so

    scale_k · sinh δ_k + offset_k,   or  scale_k · (r/sinh r) · sinh δ_k + offset_k,  r = d(p_k, x)

with the ‖w‖ of the fit in the scale: what the learners add to w later turns and moves the boundaries, and leaves alone
what a distance is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import InvalidParameter
from service.geometry import Array, distance, require_ball, sinh_ratio
from service.learners import hyperboloid, perceptron, second_order
from service.learners.contract import Outcome, class_labels, learner_of

Member = perceptron.State | second_order.State | hyperboloid.State
KINDS = {perceptron.State, second_order.State, hyperboloid.State}
#: Up to so many numbers K·d² second-order learners go through their points together; beyond, copies would cost more.
TOGETHER = 4096


@dataclass(frozen=True)
class State:
    members: tuple[Member, ...]  # one a class
    scale: Array = field(default_factory=lambda: np.zeros(0))  # of each class; none: scores are distances
    offset: Array = field(default_factory=lambda: np.zeros(0))
    tangent: bool = False  # whether the scales are those of tangent features

    def __post_init__(self) -> None:
        if len(self.scale) not in (0, len(self.members)):
            raise InvalidParameter("scale", len(self.scale), "one a class, or none")
        kinds = {type(member) for member in self.members}
        if len(self.members) < 2 or len(kinds) != 1 or not kinds <= KINDS:
            found = [type(member).__module__ for member in self.members]
            raise InvalidParameter("members", found, "two or more of one binary learner")


AXES: dict[str, tuple[str, ...]] = {"scale": ("scales",), "offset": ("scales",)}


def init(
    members: Sequence[Member],
    *,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    tangent: bool = False,
) -> State:
    """From the first states of K binary learners, all of one kind; with the scales and offsets of a fit."""
    if scale is None or offset is None:
        return State(tuple(members))
    scales, offsets = (np.array(values, dtype=np.float64) for values in (scale, offset))
    if not (np.isfinite(scales).all() and np.isfinite(offsets).all()) or scales.shape != offsets.shape:
        raise InvalidParameter("scale", scales.tolist(), "finite numbers, as many as offsets")
    return State(tuple(members), scales, offsets, tangent)


def grown(state: State | Member, first: Member, classes: int) -> State:
    """The same with more classes, which begin at `first`. A learner of two classes, whose w is for the last, becomes
    two: its mirror image, with −w, and itself"""
    if not isinstance(state, State):
        return State((_mirrored(state), state, *[first] * (classes - 2)))
    members = (*state.members, *[first] * (classes - len(state.members)))
    if not len(state.scale):
        return State(members)
    more = np.ones(classes - len(state.members))  # a score of 0 is as good as the worst of the old offsets
    offset = np.concatenate([state.offset, more * state.offset.min()])
    return State(members, np.concatenate([state.scale, more]), offset, state.tangent)


def _mirrored(state: Member) -> Member:
    """As if all labels had been the other ones"""
    if isinstance(state, second_order.State):
        return replace(state, w=-state.w, xi=-state.xi, start=-state.start)
    mirrored = replace(state, w=-state.w, start=-state.start)
    if isinstance(mirrored, hyperboloid.State):
        return replace(mirrored, seen_negative=mirrored.seen_positive, seen_positive=mirrored.seen_negative)
    return mirrored


def score(state: State, X: ArrayLike) -> Array:
    return _scaled(state, X, [learner_of(member).score(member, X) for member in state.members])


def predict(state: State, X: ArrayLike) -> NDArray[np.intp]:
    return np.asarray(np.argmax(score(state, X), axis=1))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    first = state.members[0]
    X = require_ball(X, first.w.size - isinstance(first, hyperboloid.State), c=first.c)
    return learn(state, X, class_labels(y, len(X), len(state.members)), until_change)


def learn(state: State, X: Array, y: NDArray[np.int64], until_change: bool) -> Outcome[State]:
    """`observe`, of points and class indices that were checked"""
    if (rows := _together(state)) is not None:
        members, distances, changed = second_order.learn_rows(rows, X, y, until_change)
        scores = _scaled(state, X[: len(changed)], list(distances.T)) if len(state.scale) else distances
        return Outcome(replace(state, members=tuple(members)), scores, changed)
    if until_change:  # all learners go as far as the first of them that changes
        far = min(o.accepted for o in _observe_each(state, X, y, until_change=True))
        X, y = X[:far], y[:far]
    outcomes = _observe_each(state, X, y, until_change=False)
    return Outcome(
        replace(state, members=tuple(o.state for o in outcomes)),
        _scaled(state, X, [o.scores for o in outcomes]),
        np.logical_or.reduce([o.changed for o in outcomes]),
    )


def _together(state: State) -> list[second_order.State] | None:
    """The members, if one compiled loop is to run them all"""
    rows = [member for member in state.members if isinstance(member, second_order.State)]
    return rows if rows and len(rows) * rows[0].p.size ** 2 <= TOGETHER else None


def _observe_each(state: State, X: NDArray[Any], y: NDArray[np.int64], *, until_change: bool) -> list[Outcome[Member]]:
    return [
        learner_of(member).learn(member, X, np.where(y == j, np.int8(1), np.int8(-1)), until_change)
        for j, member in enumerate(state.members)
    ]


def _scaled(state: State, X: ArrayLike, distances: list[Array]) -> Array:
    """n×K scores from the members' signed distances, a list each; X in the session's own ball"""
    if not len(state.scale):
        return np.stack(distances, axis=1)
    X, columns = require_ball(X, c=state.members[0].c), []
    for member, delta, scale, offset in zip(state.members, distances, state.scale, state.offset, strict=True):
        root = math.sqrt(member.c)
        f = np.sinh(root * delta)
        if state.tangent and not isinstance(member, hyperboloid.State):
            f = f / sinh_ratio(np.sinh(root / 2 * distance(member.p / root, X, c=member.c)))
        columns.append(scale * f + offset)
    return np.stack(columns, axis=1)
