"""K classes: one binary learner a class, that class against the rest. Not for strategic: its agents want one label.

Labels are class indices 0 … K−1. Scores are n×K, column j from learner j; the prediction is the class with the
largest score, the first of equals. A point changes the classifier when it changes any of the K learners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import InvalidParameter
from service.geometry import Array, require_ball
from service.learners import hyperboloid, perceptron, second_order
from service.learners.contract import Outcome, class_labels, learner_of

Member = perceptron.State | second_order.State | hyperboloid.State
KINDS = {perceptron.State, second_order.State, hyperboloid.State}


@dataclass(frozen=True)
class State:
    members: tuple[Member, ...]  # one a class

    def __post_init__(self) -> None:
        kinds = {type(member) for member in self.members}
        if len(self.members) < 2 or len(kinds) != 1 or not kinds <= KINDS:
            found = [type(member).__module__ for member in self.members]
            raise InvalidParameter("members", found, "two or more of one binary learner")


AXES: dict[str, tuple[str, ...]] = {}


def init(members: Sequence[Member]) -> State:
    """From the first states of K binary learners, all of one kind."""
    return State(tuple(members))


def grown(state: State | Member, first: Member, classes: int) -> State:
    """The same with more classes, which begin at `first`. A learner of two classes, whose w is for the last, becomes
    two: its mirror image, with −w, and itself"""
    members = state.members if isinstance(state, State) else (_mirrored(state), state)
    return State((*members, *[first] * (classes - len(members))))


def _mirrored(state: Member) -> Member:
    """As if all labels had been the other ones"""
    if isinstance(state, second_order.State):
        return replace(state, w=-state.w, xi=-state.xi, start=-state.start)
    mirrored = replace(state, w=-state.w, start=-state.start)
    if isinstance(mirrored, hyperboloid.State):
        return replace(mirrored, seen_negative=mirrored.seen_positive, seen_positive=mirrored.seen_negative)
    return mirrored


def score(state: State, X: ArrayLike) -> Array:
    return np.stack([learner_of(member).score(member, X) for member in state.members], axis=1)


def predict(state: State, X: ArrayLike) -> NDArray[np.intp]:
    return np.asarray(np.argmax(score(state, X), axis=1))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    first = state.members[0]
    X = require_ball(X, first.w.size - isinstance(first, hyperboloid.State), c=first.c)
    return learn(state, X, class_labels(y, len(X), len(state.members)), until_change)


def learn(state: State, X: Array, y: NDArray[np.int64], until_change: bool) -> Outcome[State]:
    """`observe`, of points and class indices that were checked"""
    if until_change:  # all learners go as far as the first of them that changes
        far = min(o.accepted for o in _observe_each(state, X, y, until_change=True))
        X, y = X[:far], y[:far]
    outcomes = _observe_each(state, X, y, until_change=False)
    return Outcome(
        State(tuple(o.state for o in outcomes)),
        np.stack([o.scores for o in outcomes], axis=1),
        np.logical_or.reduce([o.changed for o in outcomes]),
    )


def _observe_each(state: State, X: NDArray[Any], y: NDArray[np.int64], *, until_change: bool) -> list[Outcome[Member]]:
    return [
        learner_of(member).learn(member, X, np.where(y == j, np.int8(1), np.int8(-1)), until_change)
        for j, member in enumerate(state.members)
    ]
