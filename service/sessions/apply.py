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
from service.learners import decode, encode
from service.learners.contract import learner_of
from service.sessions import rows, tally
from service.sessions.beginnings import Past, next_beginning, restarted
from service.sessions.records import Change, Counters, Entry, Kind, Loaded, Matched, Replaced, Status
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch, Indices
from service.sessions.spec import Spec

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
    probabilities: Array | None = None
    replaced: tuple[Replaced, ...] = ()


class Applied(NamedTuple):
    results: list[Answer | StaleModel]  # one a request
    change: Change


def apply(before: Loaded, requests: Sequence[Request], past: Past | None = None) -> Applied:
    """`past`: what a learner may begin anew from in these requests; `beginnings.needs_past` says when it is needed"""
    after, results = before, list[Answer | StaleModel]()
    runs, matched, alarms = list[Run](), list[Matched](), list[int]()
    for if_match, group in groupby(requests, key=lambda request: request.if_match):
        for together in [list(group)] if if_match is None else [[request] for request in group]:
            if if_match is not None and if_match != after.counters.version:
                results.append(StaleModel(after.counters.version))
                continue
            batch = together[0].batch if len(together) == 1 else rows.joined([r.batch for r in together])
            if after.status == Status.LIVE and past is None:
                run = _run(after.spec, after.state, after.counters.updates, batch, if_match is not None)
            else:
                run = _learned(after, batch, past or Past(), if_match is not None)
            counted, found = _counted(after, run)
            if found and after.spec.restart and not run.replaced:  # the points after the drift are for a new learner
                run = _learned(after, batch, past or Past(), if_match is not None)
                counted, found = _counted(after, run)
            after, answers = _answered(counted, run, together)
            results += answers
            runs.append(run)
            alarms += found
            if if_match is not None:
                first = after.counters.observed - before.counters.observed - answers[0].accepted
                matched.append(Matched(if_match, answers[0].accepted, answers[0].counters.version, first))
            if past is not None:
                past = past.followed_by(run.batch)
    if after.counters.observed == before.counters.observed:
        return Applied(results, Change(before))
    run, told = runs[0] if len(runs) == 1 else _together(runs), (tuple(matched), tuple(alarms))
    entry = Entry(Kind.POINTS, after.counters, after.status, len(run.scores), None, None, *told)
    if (jumps := getattr(after.state, "jumps", 0) - getattr(before.state, "jumps", 0)) > 0:  # of strategic alone
        entry = replace(entry, jumps=jumps)
    if before.spec.keep_points > 0:
        entry = replace(entry, batch=run.batch, predicted=run.decided, replaced=run.replaced)
    return Applied(results, Change(after, entry))


def stored(before: Loaded, place: int, request: Request, answer: Answer) -> bytes:
    """An answer as it is kept under its key: its columns, or, if that is smaller, the learner before the request

    A request that is sent again brings its points: with the learner the columns can be made again. That learner
    is at hand only for the first request of a commit, and is all there is only where nothing else replaces learners.
    """
    spec, learner = before.spec, b""
    alone = not (place or request.ids or spec.warmup or spec.refit or spec.restart)
    if alone and before.learner_bytes < answer.column_bytes:
        learner = encode(before.state)
    return answer.pack(request.fingerprint, learner if len(learner) < answer.column_bytes else b"")


def stored_answer(request: Request, data: bytes) -> Answer:
    """What was kept for this request, as it was first answered. KeyReused: it was another request"""

    def again(learner: bytes, binary: bool) -> tuple[Array, Array | None]:
        state, batch = decode(learner), request.batch
        y = SIGNS[batch.indices] if binary else batch.indices
        outcome = learner_of(state).learn(state, batch.X, y, request.if_match is not None)
        return outcome.scores, outcome.probabilities if request.probabilities else None

    return Answer.unpack(data, request.fingerprint, again)


def _learned(before: Loaded, batch: Batch, past: Past, until_change: bool) -> Run:
    """Predict and learn each point; where the learner begins anew, the rest is learned by the new one"""
    now, runs, at = before, list[Run](), 0
    while at < len(batch):
        due = next_beginning(now, batch[at:], past)
        run = _run(now.spec, now.state, now.counters.updates, batch[at : at + due.points], until_change)
        after, alarms = _counted(now, run)
        if now.spec.restart and alarms:
            n = alarms[0] - now.counters.observed
            run = _run(now.spec, now.state, now.counters.updates, run.batch[:n], until_change)
            after, _ = _counted(now, run)
            run = _replacing(run, Replaced(n, int(run.updates[-1]), restarted(now.spec, now.state), "restart"))
        elif due.begins is not None and len(run.batch) == due.points:
            begun = due.begins(run.state, int(run.updates[-1]), past.followed_by(run.batch))
            run = run if begun is None else _replacing(run, begun)
        runs.append(run)
        at, past = at + len(run.batch), past.followed_by(run.batch)
        now, _ = _answered(after, run, [Request(run.batch)])
        if until_change and run.changed.any():
            break
    return _together(runs)


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
        status=entry.status if whole else _status(before, run),
    )
    return _counted(after, run)[0] if n else after


def replay_learner(spec: Spec, state: Any, updates: int, entry: Entry, points: int) -> Run:
    """What of `replay` concerns the learner: the points cut where requests with If-Match began and ended, since those
    are evidence of a strategic budget, and where the learner was replaced"""
    batch, runs = (entry.batch or rows.empty(spec.dimension))[:points], list[Run]()
    replaced = {each.after: each for each in entry.replaced if each.after <= points}
    if 0 in replaced:
        state, updates = replaced[0].state, replaced[0].updates
    cuts = {0, points, *replaced, *(at for each in entry.matched for at in (each.first, each.first + each.accepted))}
    for start, stop in pairwise(sorted(cut for cut in cuts if cut <= points)):
        matched = any(each.first <= start < each.first + each.accepted for each in entry.matched)
        run = _run(spec, state, updates, batch[start:stop], matched)
        if stop in replaced:
            run = _replacing(run, replace(replaced[stop], after=stop - start))
        runs.append(run)
        state, updates = run.state, int(run.updates[-1])
    return _together(runs) if runs else _nothing(spec, state)


def _run(spec: Spec, state: Any, updates: int, batch: Batch, until_change: bool) -> Run:
    """One call of the learner. Of two classes it takes signs, and a score of 0 is positive; of K the largest decides"""
    y = SIGNS[batch.indices] if spec.binary else batch.indices
    outcome = spec.learner.learn(state, batch.X, y, until_change)
    scores = outcome.scores
    decided = (scores >= 0).astype(np.int64) if spec.binary else scores.argmax(axis=1)
    taken = batch if len(scores) == len(batch.X) else batch[: len(scores)]
    k = updates + np.cumsum(outcome.changed if outcome.updates is None else outcome.updates)
    wrong = decided != taken.indices
    return Run(taken, outcome.state, scores, decided, wrong, outcome.changed, k, outcome.probabilities)


def _nothing(spec: Spec, state: Any) -> Run:
    """No points"""
    none, flags = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
    return Run(rows.empty(spec.dimension), state, np.empty(0), none, flags, flags, none)


def _replacing(run: Run, replaced: Replaced) -> Run:
    """After its last point the learner is replaced, which is a new version"""
    changed, updates = run.changed.copy(), run.updates.copy()
    changed[-1], updates[-1] = True, replaced.updates
    return run._replace(state=replaced.state, changed=changed, updates=updates, replaced=(replaced,))


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
        sure = run.probabilities if request.columns and request.probabilities else None
        sure = None if sure is None else sure[start:stop]
        answer = Answer(scores, stop - start, mistakes, counters, request.fates, decided=decided, probabilities=sure)
        answers.append(answer)
        start = stop
    status = before.status if not run.replaced else _status(before, run)
    return replace(before, counters=counters, state=run.state, status=status), answers


def _status(before: Loaded, run: Run) -> str:
    """A session that warms up is live once its reference point was learned"""
    return Status.LIVE if any(each.reason == "warmup" for each in run.replaced) else before.status


def _counted(before: Loaded, run: Run) -> tuple[Loaded, tuple[int, ...]]:
    """With these points counted in; and the positions at which drift was found"""
    indices, decided = run.batch.indices, run.decided
    counted, alarms = tally.observe(before.tally, run.wrong, indices, before.confusion, before.spec.sensitivity)
    if run.probabilities is not None:
        counted = tally.judged(counted, run.probabilities, indices, decided)
    return replace(before, tally=counted, confusion=tally.counted(before.confusion, indices, decided)), alarms


def _together(runs: list[Run]) -> Run:
    """Runs one after another as one"""
    if len(runs) == 1:
        return runs[0]
    start, replaced = 0, list[Replaced]()
    for run in runs:
        replaced += [replace(each, after=start + each.after) for each in run.replaced]
        start += len(run.batch)
    sure = [run.probabilities for run in runs if run.probabilities is not None]
    return Run(
        rows.joined([run.batch for run in runs]),
        runs[-1].state,
        np.concatenate([run.scores for run in runs]),
        np.concatenate([run.decided for run in runs]),
        np.concatenate([run.wrong for run in runs]),
        np.concatenate([run.changed for run in runs]),
        np.concatenate([run.updates for run in runs]),
        np.concatenate(sure) if sure else None,
        tuple(replaced),
    )
