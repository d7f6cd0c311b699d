"""What a commit comes to, as a pure function of the session before: requests in order, each predicted and learned.

`apply` takes requests to a `Change` (the session after them, and the entry for the log) and an `Answer` each. Requests
without If-Match that stand together are learned in one call. One with If-Match is refused if the version is another by
then, and otherwise is taken up to and including the first point that changes it.

`replay` takes an entry of the log to the session after it. For every entry that `apply` made the two agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.errors import StaleModel, StateCorrupt
from service.geometry import Array
from service.sessions import confusion, rows, tally
from service.sessions.records import Change, Counters, Entry, Kind, Loaded, Matched, Replaced, Status
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch, Indices
from service.sessions.spec import Spec
from service.sessions.warmup import go_live, ready_at

Flags = NDArray[np.bool_]


class Run(NamedTuple):
    """Points that were learned in one go, and where the learner was after each of them"""

    batch: Batch
    state: Any
    scores: Array
    decided: Indices
    wrong: Flags
    changed: Flags
    updates: Indices  # k after each point
    replaced: Replaced | None = None

    def counters(self, before: Counters, start: int, stop: int) -> Counters:
        """After the points start … stop−1, of which `before` counts those before start"""
        if stop == start:
            return before
        return Counters(
            before.observed + stop - start,
            before.mistakes + int(np.count_nonzero(self.wrong[start:stop])),
            int(self.updates[stop - 1]),
            before.version + int(np.count_nonzero(self.changed[start:stop])),
        )


class Applied(NamedTuple):
    results: list[Answer | StaleModel]  # one a request
    change: Change


def apply(before: Loaded, requests: Sequence[Request], past: Batch | None = None) -> Applied:
    """`past`: the retained points, which a session that is warming up learns its reference point from"""
    after, results = before, list[Answer | StaleModel]()
    runs, matched = list[Run](), list[Matched]()
    for if_match, group in groupby(requests, key=lambda request: request.if_match):
        for together in [list(group)] if if_match is None else [[request] for request in group]:
            if if_match is not None and if_match != after.counters.version:
                results.append(StaleModel(after.counters.version))
                continue
            run = learn(after, rows.joined([r.batch for r in together]), past, until_change=if_match is not None)
            after, answers = _answered(after, run, together)
            results += answers
            runs.append(run)
            if if_match is not None:
                matched.append(Matched(if_match, answers[0].accepted, answers[0].counters.version))
            if past is not None:
                past = rows.joined([past, run.batch])
    if after.counters.observed == before.counters.observed:
        return Applied(results, Change(before))
    return Applied(results, _recorded(before, after, runs, tuple(matched)))


def learn(before: Loaded, batch: Batch, past: Batch | None = None, *, until_change: bool = False) -> Run:
    """Predict and learn each point; a session that is warming up goes live where there are enough of them"""
    spec, observed = before.spec, before.counters.observed
    n = None
    if before.status == Status.WARMING:
        past = rows.empty(spec.dimension) if past is None else past
        n = ready_at(spec, past.indices, batch.indices, observed)
    first = _run(spec, before.state, before.counters.updates, batch if n is None else batch[:n], until_change)
    if n is None or len(first.batch) < n:
        return first
    assert past is not None
    live = go_live(spec, rows.joined([past, first.batch]))
    return _spliced(spec, first, Replaced(n, live.updates, live.state), batch[n:] if not until_change else batch[:0])


def replay(before: Loaded, entry: Entry, points: int | None = None) -> Loaded:
    """The session after an entry of its log, or after the first so many points of it"""
    spec, n = entry.spec or before.spec, entry.points if points is None else points
    if entry.kind is Kind.IMPORT or (entry.points and entry.batch is None):
        raise StateCorrupt(f"the log before position {entry.counters.observed} cannot be replayed")
    run = replay_learner(spec, before.state, before.counters.updates, entry, n)
    whole, counters = n == entry.points, run.counters(before.counters, 0, n) if n else entry.counters
    if whole and counters != entry.counters:
        raise StateCorrupt(f"the log replayed to position {counters.observed} gives other counts than it holds")
    after = replace(
        before,
        spec=spec,
        counters=counters,
        state=run.state,
        status=entry.status if whole else Status.LIVE if run.replaced is not None else before.status,
    )
    return _counted(after, run) if n else after


def replay_learner(spec: Spec, state: Any, updates: int, entry: Entry, points: int) -> Run:
    """What of `replay` concerns the learner"""
    batch, replaced = (entry.batch or rows.empty(spec.dimension))[:points], entry.replaced
    if replaced is None or replaced.after > points:
        return _run(spec, state, updates, batch, False)
    return _spliced(spec, _run(spec, state, updates, batch[: replaced.after], False), replaced, batch[replaced.after :])


def _counted(after: Loaded, run: Run) -> Loaded:
    counted, _ = tally.observe(after.tally, run.wrong)
    return replace(after, tally=counted, confusion=confusion.counted(after.confusion, run.batch.indices, run.decided))


def _run(spec: Spec, state: Any, updates: int, batch: Batch, until_change: bool) -> Run:
    outcome = spec.learner.observe(state, batch.X, spec.targets(batch.indices), until_change=until_change)
    decided, taken = spec.decide(outcome.scores), batch[: outcome.accepted]
    wrong = decided != taken.indices
    k = updates + np.cumsum(wrong if spec.binary else outcome.changed)
    return Run(taken, outcome.state, outcome.scores, decided, wrong, outcome.changed, k)


def _spliced(spec: Spec, first: Run, replaced: Replaced, rest: Batch) -> Run:
    """`first`, then the learner is replaced, which is a new version, then the rest"""
    changed, updates = first.changed.copy(), first.updates.copy()
    if len(first.batch):
        changed[-1], updates[-1] = True, replaced.updates
    second = _run(spec, replaced.state, replaced.updates, rest, False)
    return Run(
        rows.joined([first.batch, second.batch]),
        second.state,
        np.concatenate([first.scores, second.scores]),
        np.concatenate([first.decided, second.decided]),
        np.concatenate([first.wrong, second.wrong]),
        np.concatenate([changed, second.changed]),
        np.concatenate([updates, second.updates]),
        replaced,
    )


def _answered(before: Loaded, run: Run, requests: Sequence[Request]) -> tuple[Loaded, list[Answer]]:
    """The answers of requests that were learned in one run, and the session after them, uncounted"""
    counters, start, answers = before.counters, 0, []
    for request in requests:
        stop = min(start + len(request.batch), len(run.batch))
        counters = run.counters(counters, start, stop)
        mistakes = int(np.count_nonzero(run.wrong[start:stop]))
        scores = run.scores[start:stop] if request.columns else None
        answers.append(Answer(scores, stop - start, mistakes, counters, request.fates))
        start = stop
    status = Status.LIVE if run.replaced is not None else before.status
    return replace(before, counters=counters, state=run.state, status=status), answers


def _recorded(before: Loaded, after: Loaded, runs: list[Run], matched: tuple[Matched, ...]) -> Change:
    """The session with its counts, and the entry of the log"""
    batch, start, replaced = rows.joined([run.batch for run in runs]), 0, None
    for run in runs:
        if run.replaced is not None:
            replaced = replace(run.replaced, after=start + run.replaced.after)
        start += len(run.batch)
    decided, wrong = _stacked(runs, lambda run: run.decided), _stacked(runs, lambda run: run.wrong)
    counted, alarms = tally.observe(before.tally, wrong)
    after = replace(after, tally=counted, confusion=confusion.counted(before.confusion, batch.indices, decided))
    kept = before.spec.keep_points > 0
    entry = Entry(
        Kind.POINTS,
        after.counters,
        after.status,
        len(batch),
        batch if kept else None,
        decided if kept else None,
        matched,
        alarms,
        replaced if kept else None,
    )
    return Change(after, entry)


def _stacked(runs: list[Run], column: Callable[[Run], NDArray[Any]]) -> NDArray[Any]:
    return column(runs[0]) if len(runs) == 1 else np.concatenate([column(run) for run in runs])
