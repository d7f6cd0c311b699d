"""The online learners, by name. Each is a module: a frozen State, and init, score, predict, observe."""

from __future__ import annotations

from service.learners import hyperboloid, one_vs_rest, perceptron, second_order, strategic
from service.learners.contract import Learner, Outcome
from service.learners.encoding import decode, encode

LEARNERS = {
    "perceptron": perceptron,
    "second_order": second_order,
    "strategic": strategic,
    "hyperboloid": hyperboloid,
    "one_vs_rest": one_vs_rest,
}

__all__ = ["LEARNERS", "Learner", "Outcome", "decode", "encode"]
