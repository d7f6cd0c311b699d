"""Gaussian sessions add up: a hot session may be split over several, and put together again.

The learner of the sum is what one session would have that saw all the points, in any order: counts, means and scatters
of each class add up exactly (learners/gaussian.py, `merge`), to rounding. Counters, the confusion matrix, the log loss
and the calibration add up, too; they count how each point was predicted by the session that it came to, which had seen
fewer. The order of all points together is not known: for the newest 1,000 and for the mistakes per 1,000 the sessions
are taken to be mixed evenly. The detector of drift and the exponent β begin anew, and no points are taken over.

Sessions are added in the order of their ids, so that the same bits come out however they are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidParameter, InvalidRequest
from service.learners import gaussian
from service.sessions.records import Counters, Loaded
from service.sessions.spec import Spec
from service.sessions.tally import BLOCK, LOGGED, WINDOW, Confusion, Tally, from_cells

#: What all of them have in common.
SHARED = ("dimension", "curvature", "labels")
WHY = "gaussian: only its sums are the same for every order of the points. Other learners can be run anew, as a fork"


def require_alike(specs: Sequence[Spec]) -> None:
    """Raise unless sessions with these settings add up"""
    if len({spec.id for spec in specs}) != len(specs):
        raise InvalidRequest("a session comes twice among those to be merged", field="merge.sessions")
    first = specs[0]
    for spec in specs:
        if spec.algorithm != "gaussian":
            raise InvalidParameter("algorithm", spec.algorithm, WHY)
        for name in SHARED:
            if (own := getattr(spec, name)) != (shared := getattr(first, name)):
                raise InvalidParameter(name, own, f"{shared!r}, as in the first session")


def merged(spec: Spec, sessions: Sequence[Loaded]) -> Loaded:
    """The sum of sessions that are alike, as a new one with these settings"""
    found = sorted(sessions, key=lambda each: each.spec.id)
    names = ("observed", "mistakes", "updates", "version")
    counters = Counters(*(sum(getattr(each.counters, name) for each in found) for name in names))
    state = reduce(gaussian.merge, [each.state for each in found])
    cells: dict[tuple[int, int], int] = {}
    for i, j, count in (cell for each in found for cell in each.confusion.cells()):
        cells[i, j] = cells.get((i, j), 0) + count
    confusion: Confusion = from_cells([(i, j, count) for (i, j), count in cells.items()])
    return Loaded(spec, 0, counters, state, tally=_added(found), confusion=confusion)


def _added(sessions: Sequence[Loaded]) -> Tally:
    tallies = [each.tally for each in sessions]
    seen = sum(each.seen for each in tallies)
    newest = _newest(tallies, seen)
    window = np.zeros(WINDOW, dtype=np.uint8)
    window[np.arange(seen - len(newest), seen) % WINDOW] = newest
    blocks = np.minimum(np.diff(_mistakes(sessions, seen)), BLOCK)
    return Tally(
        seen=seen,
        block=int(min(blocks[-1], seen % BLOCK)),
        switches=sum(each.switches for each in tallies),
        window=window,
        log=blocks[:-1][-LOGGED:].astype(np.uint16),
        loss=sum(each.loss for each in tallies),
        bins=sum((each.bins for each in tallies), np.zeros_like(tallies[0].bins)),
    )


def _mistakes(sessions: Sequence[Loaded], seen: int) -> NDArray[np.int64]:
    """Before every block of all the points, and in the end: those of each session at the same part of its points

    A session knows its mistakes at the blocks that it logs; between two of these they are taken to grow evenly.
    """
    parts, total = np.append(np.arange(seen // BLOCK + 1) * BLOCK, seen) / max(seen, 1), np.zeros(seen // BLOCK + 2)
    for each in sessions:
        tally, whole = each.tally, each.counters.mistakes
        known = np.arange(tally.seen // BLOCK - len(tally.log), tally.seen // BLOCK + 1) * BLOCK
        then = whole - tally.block - np.append(np.cumsum(tally.log[::-1].astype(np.int64))[::-1], 0)
        at, mistakes = np.concatenate([[0], known, [tally.seen]]), np.concatenate([[0], then, [whole]])
        total += np.interp(parts * tally.seen, at, mistakes)
    return np.floor(total + 1e-6).astype(np.int64)


def _newest(tallies: Sequence[Tally], seen: int) -> NDArray[np.uint8]:
    """Whether the newest min(seen, WINDOW) points were mistakes: of each session its share, evenly mixed

    Of n points of a session the k-th newest stands at k/n: those that stand nearest are the newest of all.
    """
    marks, places = [], []
    for each in tallies:
        k = np.arange(each.window_size)
        marks.append(each.window[(each.seen - 1 - k) % WINDOW])
        places.append((k + 0.5) / max(each.seen, 1))
    order = np.argsort(np.concatenate(places), kind="stable")[: min(seen, WINDOW)]
    found: NDArray[np.uint8] = np.concatenate(marks)[order][::-1]
    return found
