"""Forks: a new session from another's log, up to a position.

With the settings of its source a fork is exact: it begins at the newest checkpoint before the position, and promotions
and learned reference points are taken over as the log has them, so it ends with the source's state, bit for bit. With
other settings it is what the same points would have come to in a fresh session: the whole stream is needed, and
promotions are left out.

A fork is replayed in steps, each a commit of its own log. `Fork.reached` is the entry of the source's log that it has
come to, so that whoever goes on with it knows where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from service.errors import InvalidParameter
from service.learners.encoding import weight
from service.sessions import rows
from service.sessions.apply import apply, replay
from service.sessions.beginnings import Past
from service.sessions.records import Change, Entry, EntryId, Fork, Kind, Listed, Loaded, Matched, Replaced, Status
from service.sessions.requests import Request
from service.sessions.rows import Batch, Indices
from service.sessions.spec import WITHOUT_REFERENCE, Spec, asked, restarts

#: Points that one commit of a fork carries at the most.
STEP = 20_000
#: Settings that say what is learned. Two sessions that agree in these are the same learner.
LEARNING = (
    *("algorithm", "reference", "a", "budget", "estimate", "warmup", "method"),
    *("average", "members", "refit", "sensitivity", "restart"),
)
#: Those that a session may change while it goes on.
CHANGING = ("algorithm", "labels", "budget", "members", "refit")
#: What a fork has from its source: the log holds points of that ball, with those labels.
FIXED = ("dimension", "curvature", "labels")


def settings(source: Spec, given: Mapping[str, Any]) -> dict[str, Any]:
    """A fork's settings, in the words of POST /sessions: those that are given, and else the source's"""
    known = {**asked(source), "name": None}
    for name in FIXED:
        if name in given and given[name] != known[name]:
            raise InvalidParameter(name, given[name], f"{known[name]!r}, as in the session that is forked")
    if given.get("algorithm", source.algorithm) != source.algorithm:  # settings that another learner may not have
        known = {name: value for name, value in known.items() if name not in ("average", "members", "refit")}
        if source.restart == restarts(source.algorithm):  # nobody chose it: each learner has its own default
            known["drift"] = {"sensitivity": source.sensitivity}
        if given["algorithm"] in WITHOUT_REFERENCE:
            del known["reference"]
    elif "reference" in given:
        del known["average"]
    return {**known, **given}


def is_exact(source: Spec, fork: Spec) -> bool:
    return all(getattr(source, name) == getattr(fork, name) for name in LEARNING)


def begun(start: Loaded, spec: Spec, fork: Fork) -> Loaded:
    """The fork before its first step: `start` is the source at a checkpoint, or a fresh session"""
    kept = replace(start.spec, **{name: getattr(spec, name) for name in _OWN})
    return replace(
        start, spec=kept, revision=0, status=Status.REPLAYING, fork=replace(fork, status=start.status), opened=None
    )


_OWN = ("id", "name", "created_at", "keep_points", "ttl_seconds")


def progress(loaded: Loaded | Listed) -> float | None:
    """How far a fork is, from 0 to 1; None if it is not replaying"""
    fork = loaded.fork
    if fork is None or loaded.status != Status.REPLAYING:
        return None
    return (loaded.counters.observed - fork.first) / max(fork.at - fork.first, 1)


def replayed_exactly(before: Loaded, entries: Sequence[tuple[EntryId, Entry]]) -> Change:
    """One step: the entries that follow in the source's log, replayed; `before` as `inner` gives it"""
    after, batches, predicted, matched = before, list[Batch](), list[Indices](), list[Matched]()
    replaced, alarms, skipped = list[Replaced](), list[int](), list[int]()
    last, points = EntryId(), 0
    for id, entry in entries:
        here = min(entry.points, _fork(before).at - entry.first)
        if entry.spec is not None:
            entry = replace(entry, spec=replace(after.spec, **{name: getattr(entry.spec, name) for name in CHANGING}))
        after = replay(after, entry, here)
        replaced += [replace(each, after=points + each.after) for each in entry.replaced if each.after <= here]
        alarms += [position for position in entry.alarms if position <= entry.first + here]
        skipped += [position for position in entry.skipped if position <= entry.first + here]
        if entry.batch is not None:
            batches.append(entry.batch[:here])
            predicted.append(entry.predicted[:here])
        for each in entry.matched:
            if each.first < here:
                accepted = min(each.accepted, here - each.first)
                matched.append(replace(each, first=points + each.first, accepted=accepted))
        last, points = id, points + here
    changed = after.spec if after.spec is not before.spec else None
    kind, fit = (entry.kind, entry.fit) if not points else (Kind.POINTS, None)
    entry = Entry(kind, after.counters, after.status, points, replaced=tuple(replaced), spec=changed, fit=fit)
    entry = replace(entry, matched=tuple(matched), alarms=tuple(alarms), skipped=tuple(skipped))
    if batches and before.spec.keep_points:
        entry = replace(entry, batch=rows.joined(batches), predicted=np.concatenate(predicted))
    return _outer(before, Change(after, entry), last)


def step_size(before: Loaded) -> int:
    """Points of one step: fewer where a point costs more, so that a lease is renewed in time"""
    return max(64, min(STEP, (1 << 32) // weight(before.state)))


def is_enough(before: Loaded, entries: list[tuple[EntryId, Entry]]) -> bool:
    """Whether these are one step"""
    _, last = entries[-1]
    points = sum(entry.points for _, entry in entries)
    return points >= step_size(before) or not last.points


def learned_anew(before: Loaded, batch: Batch, past: Past | None) -> Change:
    """One step with other settings: the points as if they were observed"""
    change = apply(before, [Request(batch)], past).change
    return _outer(before, change, EntryId(change.after.counters.observed, 0))


def finished(before: Loaded) -> Change:
    """The last step: the fork is a session like any other"""
    return Change(before, Entry(Kind.REPLAYED, before.counters, before.status))


def failed(before: Loaded, failure: dict[str, object]) -> Change:
    after = replace(before, status=Status.FAILED, fork=replace(_fork(before), failure=failure))
    return Change(after, Entry(Kind.REPLAYED, before.counters, Status.FAILED))


def inner(loaded: Loaded) -> Loaded:
    """The session that is being replayed, as if it were not a fork"""
    return replace(loaded, status=_fork(loaded).status)


def _outer(before: Loaded, change: Change, reached: EntryId) -> Change:
    fork = replace(_fork(before), status=change.after.status, reached=str(reached))
    return replace(change, after=replace(change.after, status=Status.REPLAYING, fork=fork))


def _fork(loaded: Loaded) -> Fork:
    assert loaded.fork is not None
    return loaded.fork
