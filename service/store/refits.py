"""Refits of a softmax that are too large for a commit: fitted as jobs meanwhile, under the name refit-<position>.

Asked for once the commit with that position is stored. Who commits the position at which it takes effect looks whether
it is done; if it is not, or if it was never asked for because a worker died, it is left out (sessions/refit.py).
"""

from __future__ import annotations

import logging
from dataclasses import asdict

import numpy as np

from service.batch.classifier import Classifier, Recipe
from service.batch.hemisphere_softmax import C
from service.errors import FitNotReady, HorocycleError, UnknownFit
from service.geometry import Array
from service.sessions.records import Loaded
from service.sessions.refit import asked_for, began, refits
from service.store.connection import Connection
from service.store.fit_queue import FitQueue
from service.store.log import Log

log = logging.getLogger(__name__)
RECIPE = asdict(Recipe(kind="softmax", features="hemisphere", C=C, probabilities=True))


class Refits:
    def __init__(self, connection: Connection) -> None:
        self._fits, self._log = FitQueue(connection), Log(connection)

    async def ask(self, before: Loaded, after: Loaded) -> None:
        """Queue those whose points the commit between the two has brought"""
        spec, since = after.spec, began(after.spec, after.tally)
        for due in asked_for(spec, since, before.counters.observed, after.counters.observed):
            try:
                _, points = await self._log.points(after, max(since, due - spec.keep_points), due)
                job = {
                    "refit": True,
                    "recipe": RECIPE,
                    "asked": RECIPE,
                    "dimension": spec.dimension,
                    "classes": spec.classes,
                    "curvature": spec.curvature,
                }
                await self._fits.submit(spec.id, _name(due), bytes(16), job, points, ttl=spec.ttl_seconds or 0)
            except HorocycleError as error:  # the session goes on without it
                log.warning("session %s: refit at %d is left out: %s", spec.id, due, error.detail)

    async def weights(self, before: Loaded, points: int) -> dict[int, Array]:
        """Of those that are done and take effect within the next points, by the position they were asked for at"""
        spec, observed, found = before.spec, before.counters.observed, dict[int, Array]()
        for each in refits(spec, began(spec, before.tally), observed, observed + points):
            if not each.small:
                try:
                    model = await self._fits.model(spec.id, _name(each.due))
                except (UnknownFit, FitNotReady):
                    continue
                found[each.due] = _rows(Classifier.unpack(model).weights)
        return found


def _rows(weights: Array) -> Array:
    """A row a class: of two classes the one row is their difference, and a softmax of least norm is symmetric"""
    return np.concatenate([-weights / 2, weights / 2]) if len(weights) == 1 else weights


def _name(due: int) -> str:
    return f"refit-{due}"
