"""What a commit comes to, as a pure function of the session before: requests in order, each predicted and learned.

`apply` takes requests to a `Change` (the session after them, and the entry for the log) and an `Answer` each. Requests
without If-Match that stand together are learned in one call. One with If-Match is refused if the version is another by
then, and otherwise is taken up to and including the first point that changes it.

`replay` takes an entry of the log to the session after it. For every entry that `apply` made the two agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
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
from service.sessions.rows import Batch, Indices, Rows
from service.sessions.spec import Spec
from service.sessions.tally import Counted

Flags = NDArray[np.bool_]
SIGNS = np.array([-1, 1], dtype=np.int8)


class Run(NamedTuple):
    """Points that were learned in one go, and where the learner was after each of them"""

    batch: Batch
    state: Any
    raw: Array  # of the scores: see Outcome
    decided: Indices
    changed: Flags
    updated: Flags
    updates: int  # k before the first point
    probabilities: Array | None = None
    replaced: tuple[Replaced, ...] = ()
    scored: Callable[[Array], Array] | None = None
    skipped: tuple[int, ...] = ()  # positions at which a refit was due and left out

    def updates_after(self, points: int) -> int:
        """k after so many; where the learner was replaced, it goes on from there"""
        k, first = self.updates, 0
        for each in self.replaced:
            if each.after <= points:
                k, first = each.updates, each.after
        return k + int(np.count_nonzero(self.updated[first:points]))


class Applied(NamedTuple):
    results: list[Answer | StaleModel]  # one a request
    change: Change


def apply(before: Loaded, requests: Sequence[Request], past: Past | None = None) -> Applied:
    """`past`: what a learner may begin anew from in these requests; `beginnings.needs_past` says when it is needed"""
    after = before
    results: list[Answer | StaleModel] = []
    runs: list[Run] = []
    matched: list[Matched] = []
    alarms: list[int] = []
    for if_match, group in groupby(requests, key=attrgetter("if_match")):
        for together in [list(group)] if if_match is None else [[request] for request in group]:
            if if_match is not None and if_match != after.counters.version:
                results.append(StaleModel(after.counters.version))
                continue
            points = together[0].batch if len(together) == 1 else rows.joined([r.batch for r in together])
            if after.status == Status.LIVE and past is None:
                run = _run(after.spec, after.state, after.counters.updates, points, if_match is not None)
            else:
                run = _learned(after, points, past or Past(), if_match is not None)
            counted = _counted(after, run, together)
            if counted.alarms and after.spec.restart and not run.replaced:  # the points after it are for a new learner
                run = _learned(after, points, past or Past(), if_match is not None)
                counted = _counted(after, run, together)
            after, answers = _answered(after, run, counted, together)
            results += answers
            runs.append(run)
            alarms += counted.alarms
            if if_match is not None:
                first = after.counters.observed - before.counters.observed - answers[0].accepted
                matched.append(Matched(if_match, answers[0].accepted, answers[0].counters.version, first))
            if past is not None:
                past = past.followed_by(run.batch)
    if after.counters.observed == before.counters.observed:
        return Applied(results, Change(before))
    run = runs[0] if len(runs) == 1 else _together(runs)
    batch, decided, replaced = (run.batch, run.decided, run.replaced) if before.spec.keep_points else (None, None, ())
    told = (len(run.decided), batch, decided, tuple(matched), tuple(alarms), replaced)
    entry = Entry(Kind.POINTS, after.counters, after.status, *told, skipped=run.skipped)
    if (jumps := getattr(after.state, "jumps", 0) - getattr(before.state, "jumps", 0)) > 0:  # of strategic alone
        entry = replace(entry, jumps=jumps)
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

    return Answer.unpack(data, request, again)


def _learned(before: Loaded, batch: Batch, past: Past, until_change: bool) -> Run:
    """Predict and learn each point; where the learner begins anew, the rest is learned by the new one"""
    now, runs, at = before, list[Run](), 0
    while at < len(batch):
        due = next_beginning(now, batch[at:], past)
        run = _run(now.spec, now.state, now.counters.updates, batch[at : at + due.points], until_change)
        counted = _counted(now, run, alone := [Request(run.batch, columns=False)])
        if now.spec.restart and counted.alarms:
            n = counted.alarms[0] - now.counters.observed
            run = _run(now.spec, now.state, now.counters.updates, run.batch[:n], until_change)
            counted = _counted(now, run, alone)
            run = _replacing(run, Replaced(n, run.updates_after(n), restarted(now.spec, now.state), "restart"))
        elif due.begins is not None and len(run.batch) == due.points:
            begun = due.begins(run.state, run.updates_after(due.points), past.followed_by(run.batch))
            position = now.counters.observed + due.points
            run = run._replace(skipped=(position,)) if begun is None else _replacing(run, begun)
        runs.append(run)
        at, past = at + len(run.batch), past.followed_by(run.batch)
        now, _ = _answered(now, run, counted, alone)
        if until_change and run.changed.any():
            break
    return _together(runs)


def replay(before: Loaded, entry: Entry, points: int | None = None) -> Loaded:
    """The session after an entry of its log, or after the first so many points of it"""
    spec, n = entry.spec or before.spec, entry.points if points is None else points
    if entry.kind is Kind.IMPORT or (entry.points and entry.batch is None):
        raise StateCorrupt(f"the log before position {entry.counters.observed} cannot be replayed")
    run = replay_learner(spec, before.state, before.counters.updates, entry, n)
    opened = before.opened or (before.spec if entry.spec is not None else None)
    after = replace(before, spec=spec, opened=opened, state=run.state)
    if n:
        alone = [Request(run.batch, columns=False)]
        after, _ = _answered(after, run, _counted(after, run, alone), alone)
    else:
        after = replace(after, counters=entry.counters)
    if n < entry.points:
        return after
    if after.counters != entry.counters:
        raise StateCorrupt(f"the log replayed to position {after.counters.observed} gives other counts than it holds")
    return replace(after, status=entry.status)


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
        state, updates = run.state, run.updates_after(stop - start)
    return _together(runs) if runs else _nothing(spec, state, updates)


def _run(spec: Spec, state: Any, updates: int, batch: Batch, until_change: bool) -> Run:
    """One call of the learner. Of two classes it takes signs, and a score of 0 is positive; of K the largest decides"""
    y = SIGNS[batch.indices] if spec.binary else batch.indices
    X = batch.table if spec.takes_rows and isinstance(batch, Rows) else batch.X
    outcome = spec.learner.learn(state, X, y, until_change)
    raw = outcome.raw
    decided = (raw >= 0.0).astype(np.int64) if spec.binary else raw.argmax(axis=1)
    taken = batch if len(raw) == len(y) else batch[: len(raw)]
    changed, updated = outcome.changed, outcome.changed if outcome.updates is None else outcome.updates
    found = (taken, outcome.state, raw, decided, changed, updated, updates, outcome.probabilities)
    return Run(*found, (), outcome.scored)


def _nothing(spec: Spec, state: Any, updates: int) -> Run:
    """No points"""
    none, flags = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
    return Run(rows.empty(spec.dimension), state, np.empty(0), none, flags, flags, updates)


def _replacing(run: Run, replaced: Replaced) -> Run:
    """After its last point the learner is replaced, which is a new version"""
    changed = run.changed.copy()
    changed[-1] = True
    return run._replace(state=replaced.state, changed=changed, replaced=(replaced,))


def _answered(before: Loaded, run: Run, counted: Counted, requests: Sequence[Request]) -> tuple[Loaded, list[Answer]]:
    """The answers of requests that were learned in one run, and the session after them"""
    counters, start, k, answers = before.counters, 0, run.updates, []
    told = run.scored(run.raw) if run.scored and any([request.columns for request in requests]) else run.raw
    for request, (stop, mistakes, changes, updates) in zip(requests, counted.requests, strict=True):
        k += updates
        if run.replaced:  # since they were counted
            k, changes = run.updates_after(stop), int(np.count_nonzero(run.changed[start:stop]))
        if stop > start:
            c = counters
            counters = Counters(c.observed + stop - start, c.mistakes + mistakes, k, c.version + changes)
        if not request.columns:
            answers.append(Answer(None, stop - start, mistakes, counters, request.fates))
        else:
            of = slice(start, stop)
            sure = run.probabilities[of] if request.probabilities and run.probabilities is not None else None
            columns = (run.decided[of], sure, run.batch.indices[of])
            answers.append(Answer(told[of], stop - start, mistakes, counters, request.fates, False, *columns))
        start = stop
    status = before.status if not run.replaced else _status(before, run)
    b = before  # field by field: `replace` takes four times as long
    after = (b.spec, b.revision, counters, run.state, status, counted.tally, counted.confusion, b.opened, b.fork)
    kept = (b.newest, b.learner_at, b.learner_bytes, b.checkpoints, b.producers, b.sealed)
    return Loaded(*after, *kept), answers


def _status(before: Loaded, run: Run) -> str:
    """A session that warms up is live once its reference point was learned"""
    return Status.LIVE if any(each.reason == "warmup" for each in run.replaced) else before.status


def _counted(before: Loaded, run: Run, requests: Sequence[Request]) -> Counted:
    """With these points counted in. One request may have been taken in part, up to a change"""
    n, indices, decided, spec = len(run.decided), run.batch.indices, run.decided, before.spec
    stops = [n] if len(requests) == 1 else list(accumulate([len(request.batch.indices) for request in requests]))
    points = (spec.classes, indices, decided, spec.sensitivity, stops, run.changed, run.updated)
    counted = tally.observe(before.tally, before.confusion, *points)
    if run.probabilities is None:
        return counted
    return counted._replace(tally=tally.judged(counted.tally, run.probabilities, indices, decided))


def _together(runs: list[Run]) -> Run:
    """Runs one after another as one"""
    if len(runs) == 1:
        return runs[0]
    start = 0
    replaced: list[Replaced] = []
    for run in runs:
        replaced += [replace(each, after=start + each.after) for each in run.replaced]
        start += len(run.batch)
    sure = [run.probabilities for run in runs if run.probabilities is not None]
    return Run(
        rows.joined([run.batch for run in runs]),
        runs[-1].state,
        np.concatenate([run.raw for run in runs]),
        np.concatenate([run.decided for run in runs]),
        np.concatenate([run.changed for run in runs]),
        np.concatenate([run.updated for run in runs]),
        runs[0].updates,
        np.concatenate(sure) if sure else None,
        tuple(replaced),
        runs[-1].scored,
        tuple(position for run in runs for position in run.skipped),
    )
