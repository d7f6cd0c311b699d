"""Learning the reference point from the first points of a stream.

While a session warms, its learner runs at the origin. It goes live at the first position with at least `warmup` points
behind it, of which the newest `keep` hold `quota` of every class: p is learned from those (one p a class, against the
rest, when there are more than two), the learner begins anew at p, and they are replayed to it silently.
The position does not depend on how the stream was cut into requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batch import reference_point as reference
from service.sessions.rows import Batch
from service.sessions.spec import Spec


@dataclass(frozen=True)
class Live:
    state: Any
    updates: int  # of the replay: k restarts from it


def quota(spec: Spec) -> int:
    """How many points of each class are enough"""
    return max(1, spec.warmup // (10 * len(spec.labels)))


def ready_at(spec: Spec, before: NDArray[np.int64], new: NDArray[np.int64], observed: int) -> int | None:
    """How many of the points `new` are learned when the session goes live; None: not with these.

    `before` are the classes of the retained points, of `observed` in all.
    """
    before = before[len(before) - min(len(before), spec.keep_points) :]
    indices = np.concatenate([before, new])
    ends = np.arange(len(before) + 1, len(indices) + 1)
    starts = np.maximum(ends - spec.keep_points, 0)
    good = observed + np.arange(1, len(new) + 1) >= spec.warmup
    for j in range(len(spec.labels)):
        seen = np.concatenate([[0], np.cumsum(indices == j)])
        good &= seen[ends] - seen[starts] >= quota(spec)
    return int(np.argmax(good)) + 1 if good.any() else None


def go_live(spec: Spec, past: Batch) -> Live:
    """The learner at its learned reference point, after the replay of the newest points"""
    X, indices = past.X[-spec.keep_points :], past.indices[-spec.keep_points :]
    if spec.binary:
        each = [reference.learn(X, np.where(indices == 1, 1, -1), spec.method, c=spec.curvature)]
    else:
        each = reference.learn_each(X, indices, len(spec.labels), spec.method, c=spec.curvature)
    first = spec.first_states_at([list(one.p) for one in each])
    outcome = spec.learner.observe(first, X, spec.targets(indices))
    return Live(outcome.state, outcome.state.k if spec.binary else int(np.count_nonzero(outcome.changed)))
