"""Where in a stream the learner begins anew, and from what: a learned reference point, a refitted softmax, drift.

The positions depend on the stream alone, not on how it was cut into requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from service.geometry import Array
from service.sessions import rows
from service.sessions.records import Loaded, Replaced, Status
from service.sessions.refit import Refit, began, refits, refitted
from service.sessions.rows import Batch
from service.sessions.spec import Spec, references
from service.sessions.warmup import go_live, ready_at


@dataclass(frozen=True)
class Past:
    """What a learner may begin anew from: the newest points, and the weights of refits by position"""

    points: Batch | None = None
    weights: Mapping[int, Array] = field(default_factory=dict)

    def followed_by(self, batch: Batch) -> Past:
        return Past(batch if self.points is None else rows.joined([self.points, batch]), self.weights)

    def newest(self, spec: Spec, most: int | None = None) -> Batch:
        """The newest keep_points, or fewer"""
        if self.points is None:
            return rows.empty(spec.dimension)
        n = min(len(self.points), spec.keep_points if most is None else min(most, spec.keep_points))
        return self.points[len(self.points) - n :]


class Due(NamedTuple):
    """After how many points the learner may begin anew; how, from its state and updates then and the points so far"""

    points: int
    begins: Callable[[Any, int, Past], Replaced | None] | None = None


def needs_past(before: Loaded, points: int) -> bool:
    """Whether a learner may begin anew from points before these"""
    spec, observed = before.spec, before.counters.observed
    if before.status == Status.WARMING:
        return observed + points >= spec.warmup
    return spec.refit and any(refits(spec, began(spec, before.tally), observed, observed + points))


def next_beginning(now: Loaded, batch: Batch, past: Past) -> Due:
    """The first among these points"""
    spec, observed = now.spec, now.counters.observed
    if now.status == Status.WARMING:
        ready = ready_at(spec, past.newest(spec).indices, batch.indices, observed)
        return Due(len(batch)) if ready is None else Due(ready, partial(_live, spec, ready))
    since = began(spec, now.tally)
    refit = next(refits(spec, since, observed, observed + len(batch)), None)
    if refit is None:
        return Due(len(batch))
    return Due(refit.effect - observed, partial(_refitted, spec, refit, since, refit.effect - observed))


def _live(spec: Spec, n: int, state: Any, updates: int, past: Past) -> Replaced:
    found = go_live(spec, past.newest(spec))
    return Replaced(n, found.updates, found.state, "warmup")


def _refitted(spec: Spec, refit: Refit, since: int, n: int, state: Any, updates: int, past: Past) -> Replaced | None:
    found = refitted(spec, state, refit, past.newest(spec, refit.effect - since), past.weights)
    return None if found is None else Replaced(n, updates, found, "refit")


def restarted(spec: Spec, state: Any) -> Any:
    """The learner before its first point, at the reference points it has by now"""
    points = references(spec, state)
    return spec.first_state() if points is None or not spec.warmup else spec.first_states_at(points)
