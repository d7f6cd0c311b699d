"""When a softmax begins anew from a batch softmax on φ, and from what: at t = 25·2^j points since the learner began.

A small one, n·K·(d+2) ≤ SMALL for its n points, is computed in the commit itself and takes effect at t. A larger one is
fitted meanwhile and takes effect at 1.5t, where the points since t are replayed to it silently; it is left out if the
fit is not there by then. The log records either, the learner that was begun or the position at which there was none, so
that a replay gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from service.batch import hemisphere_softmax
from service.errors import NotConverged
from service.geometry import Array
from service.learners import auto, softmax
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from service.sessions.tally import Tally

SMALL = 10**6
#: The weights of fits, by the position they were asked for at.
Weights = Mapping[int, Array]


class Refit(NamedTuple):
    due: int  # the position whose points it is fitted to
    effect: int  # the position after which the learner is replaced
    small: bool


def began(spec: Spec, tally: Tally) -> int:
    """The position at which the learner began: that of the newest drift, if it begins anew then"""
    return tally.last_alarm if spec.restart else 0


def refits(spec: Spec, began: int, first: int, last: int) -> Iterator[Refit]:
    """Those that take effect at positions first < effect ≤ last"""
    t = hemisphere_softmax.FIRST  # the first, or the largest whose effect lies behind
    t <<= max((2 * (first - began) // (3 * t)).bit_length() - 1, 0)
    while spec.refit and spec.keep_points and began + t <= last:
        small = min(t, spec.keep_points) * spec.classes * (spec.dimension + 2) <= SMALL
        effect = began + (t if small else -(-3 * t // 2))
        if first < effect <= last:
            yield Refit(began + t, effect, small)
        t *= 2


def asked_for(spec: Spec, began: int, first: int, last: int) -> list[int]:
    """Positions first < t ≤ last at which a fit is to be asked for"""
    return [each.due for each in refits(spec, began, first, 2 * last) if not each.small and first < each.due <= last]


def refitted(spec: Spec, state: Any, refit: Refit, past: Batch, weights: Weights) -> Any | None:
    """The learner begun anew; `past` are the newest points up to the effect, since it began. None: it goes on"""
    since = min(refit.effect - refit.due, len(past))
    old, new = past[: len(past) - since], past[len(past) - since :]
    W = batch_weights(spec, old) if refit.small else weights.get(refit.due)
    if W is None or W.shape != (spec.classes, spec.dimension + 2):
        return None
    fresh = softmax.init(spec.dimension, classes=spec.classes, c=spec.curvature, W=W, points=old.X)
    if len(new):
        fresh = softmax.observe(fresh, new.X, spec.targets(new.indices)).state
    return with_softmax(state, fresh)


def with_softmax(state: Any, fresh: softmax.State) -> Any:
    """The softmax replaced, which is the learner or one of those that vote"""
    if not isinstance(state, auto.State):
        return fresh
    members = tuple(fresh if isinstance(member, softmax.State) else member for member in state.members)
    return replace(state, members=members)


def batch_weights(spec: Spec, past: Batch) -> Array | None:
    """Of a batch softmax on these points; None: there are fewer than two classes, or it does not converge"""
    try:
        X = np.ascontiguousarray(past.X)
        return hemisphere_softmax.fit(X, past.indices, spec.classes, c=spec.curvature)
    except NotConverged:
        return None
