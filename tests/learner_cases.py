"""Every learner in every mode: what the contract of test_learners and test_encoding runs over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from service.geometry import Array
from service.learners import (
    auto,
    gaussian,
    hemisphere,
    hyperboloid,
    one_vs_rest,
    perceptron,
    second_order,
    softmax,
    strategic,
)
from tests.strategies import points

P3 = np.array([0.2, -0.3, 0.1])
W3 = np.array([[1.0, 2.0, -1.0], [-3.0, 0.0, 1.0], [0.0, -2.0, 2.0]])


class Case(NamedTuple):
    learner: Any
    first: Callable[[], Any]
    classes: tuple[int, ...] = (-1, 1)


def diagonals(state: Any) -> Any:
    """A learner of few dimensions as it would be of many: without its full matrices"""
    name = "inverse" if isinstance(state, softmax.State) else "factor"
    full = getattr(state, name)
    square = full if name == "inverse" else full**2
    kept = np.ascontiguousarray(np.diagonal(square, axis1=1, axis2=2))
    return replace(state, **{name: full[:0], "diagonal": kept})


CASES = {
    "perceptron": Case(perceptron, lambda: perceptron.init(P3)),
    "perceptron, promoted": Case(perceptron, lambda: perceptron.init(P3, w=[1.0, 2.0, -1.0])),
    "perceptron, c=4": Case(perceptron, lambda: perceptron.init(P3 / 2, c=4.0)),
    "second order, a=1": Case(second_order, lambda: second_order.init(P3)),
    "second order, a=0": Case(second_order, lambda: second_order.init(P3, a=0.0)),
    "second order, promoted": Case(second_order, lambda: second_order.init(P3, a=2.0, w=[1.0, 2.0, -1.0])),
    "strategic": Case(strategic, lambda: strategic.init(P3, budget=0.7)),
    "strategic, estimating": Case(strategic, lambda: strategic.init(P3, budget=2.0, estimate=True)),
    "strategic, promoted": Case(strategic, lambda: strategic.init(P3, budget=0.7, w=[1.0, 2.0, -1.0])),
    "hyperboloid": Case(hyperboloid, lambda: hyperboloid.init(3)),
    "hyperboloid, promoted": Case(hyperboloid, lambda: hyperboloid.init(3, w=[0.5, 1.0, 2.0, -1.0])),
    "one vs rest": Case(one_vs_rest, lambda: one_vs_rest.init([perceptron.init(P3)] * 4), (0, 1, 2, 3)),
    "one vs rest, second order": Case(
        one_vs_rest, lambda: one_vs_rest.init([second_order.init(P3, a=0)] * 3), (0, 1, 2)
    ),
    "one vs rest, promoted": Case(
        one_vs_rest, lambda: one_vs_rest.init([perceptron.init(k * P3, w=W3[k]) for k in range(3)]), (0, 1, 2)
    ),
    "one vs rest, scaled": Case(
        one_vs_rest,
        lambda: one_vs_rest.init(
            [perceptron.init(k * P3, w=W3[k]) for k in range(3)], scale=[1.0, -2.0, 0.5], offset=[0.1, 0, -1]
        ),
        (0, 1, 2),
    ),
    "one vs rest, scaled, tangent": Case(
        one_vs_rest,
        lambda: one_vs_rest.init(
            [second_order.init(k * P3, w=W3[k]) for k in range(3)], scale=[1, 2, 3], offset=[0, 0.5, -1], tangent=True
        ),
        (0, 1, 2),
    ),
    "one vs rest, hyperboloid": Case(one_vs_rest, lambda: one_vs_rest.init([hyperboloid.init(3)] * 3), (0, 1, 2)),
    "hemisphere, first order": Case(hemisphere, lambda: hemisphere.init(3, a=math.inf)),
    "hemisphere, last iterate": Case(hemisphere, lambda: hemisphere.init(3, a=math.inf, average=False)),
    "hemisphere, a=1, c=4": Case(hemisphere, lambda: hemisphere.init(3, c=4.0)),
    "hemisphere, a=0": Case(hemisphere, lambda: hemisphere.init(3, a=0.0)),
    "hemisphere, a=0, last iterate": Case(hemisphere, lambda: hemisphere.init(3, a=0.0, average=False)),
    "hemisphere, promoted": Case(hemisphere, lambda: hemisphere.init(3, W=[1.0, 2.0, 0.0, -1.0, 0.5], points=30)),
    "hemisphere, four classes": Case(hemisphere, lambda: hemisphere.init(3, classes=4), (0, 1, 2, 3)),
    "hemisphere, three classes, a=0, last iterate": Case(
        hemisphere, lambda: hemisphere.init(3, classes=3, a=0.0, average=False), (0, 1, 2)
    ),
    "softmax": Case(softmax, lambda: softmax.init(3)),
    "softmax, four classes, c=4": Case(softmax, lambda: softmax.init(3, classes=4, c=4.0), (0, 1, 2, 3)),
    "softmax, promoted": Case(
        softmax,
        lambda: softmax.init(3, classes=3, W=np.eye(3, 5), points=points(np.random.default_rng(0), 30, 3, 3.0)),
        (0, 1, 2),
    ),
    "softmax, diagonals": Case(softmax, lambda: diagonals(softmax.init(3, classes=3)), (0, 1, 2)),
    "gaussian": Case(gaussian, lambda: gaussian.init(3)),
    "gaussian, four classes, c=4": Case(gaussian, lambda: gaussian.init(3, classes=4, c=4.0), (0, 1, 2, 3)),
    "gaussian, diagonals": Case(gaussian, lambda: diagonals(gaussian.init(3, classes=3)), (0, 1, 2)),
    "auto": Case(auto, lambda: auto.default(3)),
    "auto, four classes, c=4": Case(auto, lambda: auto.default(3, classes=4, c=4.0), (0, 1, 2, 3)),
    "auto, of others": Case(
        auto,
        lambda: auto.init([one_vs_rest.init([perceptron.init(P3)] * 3), gaussian.init(3, classes=3)], classes=3),
        (0, 1, 2),
    ),
}
PERCEPTRONS = (perceptron, second_order, strategic, hyperboloid, one_vs_rest)
#: learners whose answer changes on its own mistakes and on nothing else
LAST_ITERATES = [
    case
    for name, case in CASES.items()
    if (case.learner in PERCEPTRONS and "scaled" not in name) or ("last iterate" in name and len(case.classes) == 2)
]


def stream(case: Case, seed: int, n: int) -> tuple[Array, Any]:
    """Points of the ball, a few at the reference point itself and some twice; labels at random: many mistakes."""
    rng = np.random.default_rng(seed)
    c = getattr(case.first(), "c", 1.0)
    X = points(rng, n, 3, 4.0) / math.sqrt(c)
    X[rng.uniform(size=n) < 0.05] = P3 / math.sqrt(c)
    X[n // 2 : n // 2 + n // 8] = X[: n // 8]
    return X, rng.choice(case.classes, size=n)
