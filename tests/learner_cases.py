"""Every learner in every mode: what the contract of test_learners and test_encoding runs over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from service.geometry import Array
from service.learners import hyperboloid, one_vs_rest, perceptron, second_order, strategic
from tests.strategies import points

P3 = np.array([0.2, -0.3, 0.1])
W3 = np.array([[1.0, 2.0, -1.0], [-3.0, 0.0, 1.0], [0.0, -2.0, 2.0]])


class Case(NamedTuple):
    learner: Any
    first: Callable[[], Any]
    classes: tuple[int, ...] = (-1, 1)


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
    "one vs rest, hyperboloid": Case(one_vs_rest, lambda: one_vs_rest.init([hyperboloid.init(3)] * 3), (0, 1, 2)),
}


def stream(case: Case, seed: int, n: int) -> tuple[Array, Any]:
    """Points of the ball, a few at the reference point itself and some twice; labels at random: many mistakes."""
    rng = np.random.default_rng(seed)
    c = 1.0 if case.learner is one_vs_rest else case.first().c
    X = points(rng, n, 3, 4.0) / math.sqrt(c)
    X[rng.uniform(size=n) < 0.05] = P3 / math.sqrt(c)
    X[n // 2 : n // 2 + n // 8] = X[: n // 8]
    return X, rng.choice(case.classes, size=n)
