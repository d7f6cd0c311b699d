"""Several learners on one stream, and a weighted majority of their answers (Littlestone and Warmuth).

The class with the largest share of the weights is the answer; of equals, that of the heaviest member. A member that
errs is multiplied by BETA, and a share SHARE of what erring members keep is spread over all, so that a late winner
comes back after drift. Every member learns from every point, whatever the vote.

When the vote errs, the right class has at most half of the weight, so that W falls to (1+β)/2 of itself or less; the
best of N members, with m mistakes, keeps at least (β(1−s))^m/N of it. So for any number of classes, on any stream:

    M ≤ (m ln(1/(β(1−s))) + ln N) / ln(2/(1+β))

Scores are shares of the vote; for two classes their difference. Weights are kept as logarithms, the heaviest at 0.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import InvalidParameter
from service.geometry import Array, require_ball
from service.learners import gaussian, hemisphere, softmax
from service.learners.contract import (
    Counts,
    Outcome,
    Settings,
    class_labels,
    full_matrices,
    learner_of,
    sign_labels,
    signs,
)
from service.learners.loops import compiled, types

BETA, SHARE = 0.5, 1e-3
#: Those that vote unless others are named, and all that may.
MEMBERS = ("second_order", "softmax", "gaussian")
VOTERS = ("perceptron", *MEMBERS)
#: Weights and shares this near are equal: rounding is no reason to prefer one.
TIE = 1e-12


@dataclass(frozen=True)
class State:
    c: float  # curvature −c
    classes: int  # K
    members: tuple[Any, ...]  # the states of the learners that vote
    log_weights: Array
    mistakes: Counts  # of each member
    errors: int  # of the vote: M
    t: int  # points voted on

    def __post_init__(self) -> None:
        if not self.members or self.classes < 2:
            raise InvalidParameter("members", (len(self.members), self.classes), "one or more, of two classes or more")


AXES = {"log_weights": ("members",), "mistakes": ("members",)}


def init(members: Sequence[Any], *, classes: int = 2, c: float = 1.0) -> State:
    """From the first states of the learners that are to vote, all of these classes and this curvature."""
    N = len(members)
    return State(float(c), classes, tuple(members), np.zeros(N), np.zeros(N, dtype=np.int64), errors=0, t=0)


def default(
    d: int,
    *,
    classes: int = 2,
    c: float = 1.0,
    members: Sequence[str] = MEMBERS,
    a: float = 1.0,
    average: bool = True,
) -> State:
    """Perceptrons vote on the hemisphere. Beyond full matrices the second order is of first order."""
    second = a if full_matrices(d, classes) else math.inf
    begin: dict[str, Callable[[], Any]] = {
        "perceptron": lambda: hemisphere.init(d, classes=classes, c=c, a=math.inf, average=average),
        "second_order": lambda: hemisphere.init(d, classes=classes, c=c, a=second, average=average),
        "softmax": lambda: softmax.init(d, classes=classes, c=c),
        "gaussian": lambda: gaussian.init(d, classes=classes, c=c),
    }
    return init([begin[name]() for name in members], classes=classes, c=c)


def first(settings: Settings) -> State:
    """The state that a session begins with"""
    return default(
        settings.dimension,
        classes=settings.classes,
        c=settings.curvature,
        members=settings.members,
        a=settings.a,
        average=settings.average,
    )


def bound(mistakes: int, members: int) -> float:
    """No more mistakes of the vote than this, if the best member made so many; rounded upwards"""
    exact = (mistakes * math.log(1 / (BETA * (1 - SHARE))) + math.log(members)) / math.log(2 / (1 + BETA))
    return exact * (1 + 8 * 2.0**-52)


def best(state: State) -> int:
    """The member with the fewest mistakes, the first of equals"""
    return int(np.argmin(state.mistakes))


def grown(state: State, classes: int) -> State:
    """The same with more classes: all members grow"""
    members = tuple(sys.modules[type(member).__module__].grown(member, classes) for member in state.members)
    return replace(state, classes=classes, members=members)


def score(state: State, X: ArrayLike) -> Array:
    X = require_ball(X, c=state.c)
    decided = [_decided(learner_of(member).score(member, X)) for member in state.members]
    scores, _, _, _ = vote(np.stack(decided, axis=1), None, state.log_weights, state.classes)
    return scores


def predict(state: State, X: ArrayLike) -> NDArray[Any]:
    scores = score(state, X)
    return signs(scores) if scores.ndim == 1 else np.asarray(np.argmax(scores, axis=1))


def observe(state: State, X: ArrayLike, y: ArrayLike, *, until_change: bool = False) -> Outcome[State]:
    """Every point changes some member."""
    X = require_ball(X, c=state.c)
    y = sign_labels(y, len(X)) if state.classes == 2 else class_labels(y, len(X), state.classes)
    if until_change:
        X, y = X[:1], y[:1]
    outcomes = [learner_of(member).observe(member, X, y) for member in state.members]
    decided = np.stack([_decided(outcome.scores) for outcome in outcomes], axis=1)
    indices = (y > 0).astype(np.int64) if state.classes == 2 else y.astype(np.int64)
    scores, log_weights, mistakes, errors = vote(decided, indices, state.log_weights, state.classes)
    learned = replace(
        state,
        members=tuple(outcome.state for outcome in outcomes),
        log_weights=log_weights,
        mistakes=state.mistakes + mistakes,
        errors=state.errors + errors,
        t=state.t + len(X),
    )
    return Outcome(learned, scores, np.ones(len(X), dtype=np.bool_))


def learn(state: State, X: Array, y: NDArray[Any], until_change: bool) -> Outcome[State]:
    """`observe`, of points and labels that were checked; to check them again costs little beside the step"""
    return observe(state, X, y, until_change=until_change)


def vote(
    decided: NDArray[np.int64], y: NDArray[np.int64] | None, log_weights: Array, classes: int
) -> tuple[Array, Array, Counts, int]:
    """The shares of each class for the members' decisions, n×N, and with the right classes y what the members learn:
    (scores, log weights after the last, mistakes of each member, mistakes of the vote)"""
    learning = y is not None
    labels = np.zeros(len(decided), dtype=np.int64) if y is None else y
    shares, after, mistakes, errors = _vote(decided, labels, log_weights, classes, learning)
    return shares[:, 1] - shares[:, 0] if classes == 2 else shares, after, mistakes, errors


def _decided(scores: Array) -> NDArray[np.int64]:
    return (scores >= 0).astype(np.int64) if scores.ndim == 1 else np.argmax(scores, axis=1)


# ---------------------------------------------------------------------------------- compiled: see loops.py

_counts = types.Array(types.int64, 1, "C", readonly=True)


@compiled(
    types.Tuple((types.float64[:, ::1], types.float64[::1], types.int64[::1], types.int64))(
        types.Array(types.int64, 2, "C", readonly=True),
        _counts,
        types.Array(types.float64, 1, "C", readonly=True),
        types.int64,
        types.boolean,
    )
)
def _vote(
    decided: NDArray[np.int64], y: Counts, log_weights0: Array, classes: int, learning: bool
) -> tuple[Array, Array, Counts, int]:
    n, N = decided.shape
    log_weights, w = log_weights0.copy(), np.exp(log_weights0)
    shares, mistakes, errors = np.zeros((n, classes)), np.zeros(N, dtype=np.int64), 0
    for i in range(n):
        total, wrong = 0.0, 0
        for m in range(N):
            total += w[m]
            shares[i, decided[i, m]] += w[m]
        largest = 0.0
        for k in range(classes):
            shares[i, k] /= total
            largest = max(largest, shares[i, k])
        answer, heaviest, tied = -1, -math.inf, False
        for m in range(N):
            if shares[i, decided[i, m]] >= largest - TIE:
                tied = tied or (answer >= 0 and decided[i, m] != answer)
                if log_weights[m] > heaviest + TIE:
                    answer, heaviest = decided[i, m], log_weights[m]
        if tied:  # the least that lets the heaviest decide
            shares[i, answer] = largest + 2.0**-52
        if not learning:
            continue
        errors += answer != y[i]
        for m in range(N):
            if decided[i, m] != y[i]:
                mistakes[m] += 1
                wrong += 1
        if wrong == 0:
            continue
        heaviest, given = -math.inf, 0.0  # what erring members give away, relative to the heaviest of them
        for m in range(N):
            if decided[i, m] != y[i]:
                heaviest = max(heaviest, log_weights[m])
        for m in range(N):
            if decided[i, m] != y[i]:
                given += math.exp(log_weights[m] - heaviest)
                log_weights[m] += math.log(BETA * (1 - SHARE))
        gift, top = heaviest + math.log(SHARE * BETA * given / N), -math.inf
        for m in range(N):
            high, low = max(log_weights[m], gift), min(log_weights[m], gift)
            log_weights[m] = high + math.log1p(math.exp(low - high))
            top = max(top, log_weights[m])
        for m in range(N):
            log_weights[m] -= top
            w[m] = math.exp(log_weights[m])
    return shares, log_weights, mistakes, errors
