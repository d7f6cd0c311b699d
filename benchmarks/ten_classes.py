"""What a point of ten classes in the disk costs: python -m benchmarks.ten_classes

Every learner and `auto` in blocks of 1,000, River's GaussianNB and scaled softmax a point at a time (predict_one, then
learn_one, on dicts made beforehand), interleaved in shuffled rounds of one process; CPU time of the working thread,
medians. The stream: 20,000 points of ten overlapping wrapped normals on a ring, from nothing. The state is what a
session stores of a learner. Whole sessions are the same with counts, drift and the entry of the log, as a commit makes
them, without the store; the default begins its softmax anew from 10 batch fits meanwhile. BLAS runs on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learners import Contender, Task, dicts, rates, river_run
from benchmarks.real_streams import RIVER, ours, ring, wrapped_normals
from service.learners import auto, gaussian, hemisphere, hyperboloid, one_vs_rest, perceptron, second_order, softmax
from service.learners.encoding import encode

N, D, K, BLOCK = 20_000, 2, 10, 1_000
RESULT = Path(__file__).parent / "results" / "ten_classes.txt"
#: points a second, at least
LEAST, LEAST_AUTO = 500_000, 200_000


def contenders() -> list[Contender]:
    X, y = wrapped_normals(np.random.default_rng(0), N, ring(K), 0.4)
    a_class = partial(Contender, X=X, y=y, peer="River")
    origin = np.zeros(D)
    at_origin: dict[str, Any] = {
        "perceptron at 0": perceptron.init(origin),
        "second order at 0, a = 1": second_order.init(origin, a=1.0),
        "second order at 0, a = 0": second_order.init(origin, a=0.0),
        "hyperboloid": hyperboloid.init(D),
    }
    return [
        a_class("auto", auto, auto.default(D, classes=K)),
        a_class("perceptron on φ, averaged", hemisphere, hemisphere.init(D, classes=K, a=np.inf)),
        a_class("second order on φ, averaged", hemisphere, hemisphere.init(D, classes=K, a=1.0)),
        a_class("second order on φ, a = 0", hemisphere, hemisphere.init(D, classes=K, a=0.0)),
        a_class("softmax", softmax, softmax.init(D, classes=K)),
        a_class("gaussian", gaussian, gaussian.init(D, classes=K)),
        *(a_class(name, one_vs_rest, one_vs_rest.init([state] * K)) for name, state in at_origin.items()),
    ]


def _river(make: Callable[[], Any], rows: Sequence[dict[int, float]], classes: Sequence[int]) -> None:
    river_run(make(), rows, classes)


def main() -> None:
    tasks, learners = dict[str, Task](), contenders()
    X, y = learners[0].X, learners[0].y
    rows, classes = dicts(X), y.tolist()
    for each in learners:
        tasks[each.name] = Task(N, partial(each.observe, N, BLOCK))
    tasks["session: the default"] = Task(N, partial(ours(), X, y, K))
    tasks["session: auto without refits"] = Task(N, partial(ours(refit="none"), X, y, K))
    for name in ("GaussianNB", "softmax, scaled"):
        tasks[f"River {name}"] = Task(N, partial(_river, RIVER[name], rows, classes))
    found, sizes = rates(tasks), {each.name: len(encode(each.observe(N, BLOCK))) for each in learners}
    lines = [
        f"K = {K}, d = {D}, {N:,} points in blocks of {BLOCK:,}; points a second of CPU\n",
        f"{'':<32}{'points/s':>12}{'× GaussianNB':>14}{'× softmax':>11}{'state, bytes':>14}   aim",
    ]
    for name, rate in found.items():
        least = LEAST_AUTO if name == "auto" else LEAST if name in sizes else None
        lines.append(
            f"{name:<32}{rate:>12,.0f}{rate / found['River GaussianNB']:>14,.1f}"
            f"{rate / found['River softmax, scaled']:>11,.1f}{sizes.get(name, ''):>14}   "
            + ("" if least is None else f"≥ {least:,}: {'met' if rate >= least else 'NOT MET'}")
        )
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    RESULT.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
