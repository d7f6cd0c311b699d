"""What a commit comes to, as a pure function of the session before: requests in order, each predicted and learned.

`apply` takes requests to a `Change` (the session after them, and the entry for the log) and an `Answer` each. Requests
without If-Match that stand together are learned in one call. One with If-Match is refused if the version is another by
then, and otherwise is taken up to and including the first point that changes it.

`replay` takes an entry of the log to the session after it. For every entry that `apply` made the two agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.errors import StaleModel, StateCorrupt
from service.geometry import Array
from service.sessions import rows, tally
from service.sessions.records import Change, Counters, Entry, Kind, Loaded, Matched, Replaced, Status
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch, Indices
from service.sessions.spec import Spec
from service.sessions.warmup import go_live, ready_at

Flags = NDArray[np.bool_]
SIGNS = np.array([-1, 1], dtype=np.int8)


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
            batch = together[0].batch if len(together) == 1 else rows.joined([r.batch for r in together])
            if after.status == Status.WARMING:
                run = learn(after, batch, past, until_change=if_match is not None)
            else:
                run = _run(after.spec, after.state, after.counters.updates, batch, if_match is not None)
            after, answers = _answered(after, run, together)
            results += answers
            runs.append(run)
            if if_match is not None:
                first = after.counters.observed - before.counters.observed - answers[0].accepted
                matched.append(Matched(if_match, answers[0].accepted, answers[0].counters.version, first))
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
    first = _replacing(first, Replaced(n, live.updates, live.state))
    return _together([first, _run(spec, live.state, live.updates, batch[n:] if not until_change else batch[:0], False)])


def replay(before: Loaded, entry: Entry, points: int | None = None) -> Loaded:
    """The session after an entry of its log, or after the first so many points of it"""
    spec, n = entry.spec or before.spec, entry.points if points is None else points
    if entry.kind is Kind.IMPORT or (entry.points and entry.batch is None):
        raise StateCorrupt(f"the log before position {entry.counters.observed} cannot be replayed")
    run = replay_learner(spec, before.state, before.counters.updates, entry, n)
    [answer] = _answered(before, run, [Request(run.batch)])[1] if n else [None]
    whole, counters = n == entry.points, entry.counters if answer is None else answer.counters
    if whole and counters != entry.counters:
        raise StateCorrupt(f"the log replayed to position {counters.observed} gives other counts than it holds")
    after = replace(
        before,
        spec=spec,
        opened=before.opened or (before.spec if entry.spec is not None else None),
        counters=counters,
        state=run.state,
        status=entry.status if whole else Status.LIVE if run.replaced is not None else before.status,
    )
    return _counted(after, run) if n else after


def replay_learner(spec: Spec, state: Any, updates: int, entry: Entry, points: int) -> Run:
    """What of `replay` concerns the learner: the points cut where requests with If-Match began and ended, since those
    are evidence of a strategic budget, and where the learner was replaced"""
    batch, replaced, runs = (entry.batch or rows.empty(spec.dimension))[:points], entry.replaced, list[Run]()
    cuts = {0, points, *(at for each in entry.matched for at in (each.first, each.first + each.accepted))}
    cuts |= set() if replaced is None else {replaced.after}
    for start, stop in pairwise([0, *sorted(cut for cut in cuts if cut <= points)]):
        matched = any(each.first <= start < each.first + each.accepted for each in entry.matched)
        run = _run(spec, state, updates, batch[start:stop], matched)
        if replaced is not None and stop == replaced.after:
            run = _replacing(run, replace(replaced, after=stop - start))
        runs.append(run)
        state, updates = run.state, int(run.updates[-1]) if len(run.updates) else updates
    return _together(runs)


def _counted(after: Loaded, run: Run) -> Loaded:
    counted, _ = tally.observe(after.tally, run.wrong)
    return replace(after, tally=counted, confusion=tally.counted(after.confusion, run.batch.indices, run.decided))


def _run(spec: Spec, state: Any, updates: int, batch: Batch, until_change: bool) -> Run:
    """One call of the learner. Of two classes it takes signs, and a score of 0 is positive; of K the largest decides"""
    y = SIGNS[batch.indices] if spec.binary else batch.indices
    outcome = spec.learner.learn(state, batch.X, y, until_change)
    scores, changed = outcome.scores, outcome.changed
    decided = (scores >= 0).astype(np.int64) if spec.binary else scores.argmax(axis=1)
    taken = batch if len(scores) == len(batch.X) else batch[: len(scores)]
    wrong = decided != taken.indices
    return Run(
        taken, outcome.state, scores, decided, wrong, changed, updates + np.cumsum(wrong if spec.binary else changed)
    )


def _replacing(run: Run, replaced: Replaced) -> Run:
    """After its last point the learner is replaced, which is a new version"""
    changed, updates = run.changed.copy(), run.updates.copy()
    if len(updates):
        changed[-1], updates[-1] = True, replaced.updates
    return run._replace(state=replaced.state, changed=changed, updates=updates, replaced=replaced)


def _answered(before: Loaded, run: Run, requests: Sequence[Request]) -> tuple[Loaded, list[Answer]]:
    """The answers of requests that were learned in one run, and the session after them, uncounted"""
    counters, start, answers = before.counters, 0, []
    for request in requests:
        stop = min(start + len(request.batch.X), len(run.scores))
        mistakes = int(np.count_nonzero(run.wrong[start:stop]))
        if stop > start:
            version = counters.version + int(np.count_nonzero(run.changed[start:stop]))
            totals = (counters.observed + stop - start, counters.mistakes + mistakes, int(run.updates[stop - 1]))
            counters = Counters(*totals, version)
        scores, decided = (run.scores[start:stop], run.decided[start:stop]) if request.columns else (None, None)
        answers.append(Answer(scores, stop - start, mistakes, counters, request.fates, decided=decided))
        start = stop
    status = Status.LIVE if run.replaced is not None else before.status
    return replace(before, counters=counters, state=run.state, status=status), answers


def _recorded(before: Loaded, after: Loaded, runs: list[Run], matched: tuple[Matched, ...]) -> Change:
    """The session with its counts, and the entry of the log"""
    run = runs[0] if len(runs) == 1 else _together(runs)
    counted, alarms = tally.observe(before.tally, run.wrong)
    confusion = tally.counted(before.confusion, run.batch.indices, run.decided)
    after = replace(after, tally=counted, confusion=confusion)
    entry = Entry(Kind.POINTS, after.counters, after.status, len(run.scores), matched=matched, alarms=alarms)
    if before.spec.keep_points > 0:
        entry = replace(entry, batch=run.batch, predicted=run.decided, replaced=run.replaced)
    return Change(after, entry)


def _together(runs: list[Run]) -> Run:
    """Runs one after another as one; at most one of them replaced the learner"""
    start, replaced = 0, None
    for run in runs:
        if run.replaced is not None:
            replaced = replace(run.replaced, after=start + run.replaced.after)
        start += len(run.batch)
    return Run(
        rows.joined([run.batch for run in runs]),
        runs[-1].state,
        np.concatenate([run.scores for run in runs]),
        np.concatenate([run.decided for run in runs]),
        np.concatenate([run.wrong for run in runs]),
        np.concatenate([run.changed for run in runs]),
        np.concatenate([run.updates for run in runs]),
        replaced,
    )
