"""Every learner, by name: the one table. A new learner is a module and a line here."""

from __future__ import annotations

from types import ModuleType

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

LEARNERS: dict[str, ModuleType] = {
    "perceptron": perceptron,
    "second_order": second_order,
    "strategic": strategic,
    "hyperboloid": hyperboloid,
    "one_vs_rest": one_vs_rest,
    "hemisphere": hemisphere,
    "softmax": softmax,
    "gaussian": gaussian,
    "auto": auto,
}
