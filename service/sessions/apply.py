"""What a commit comes to: requests in order, each predicted and learned, as one pure function of the session before.

Requests without If-Match that stand together are learned in one call. One with If-Match is refused if the version is
another by then, and else is taken up to and including the first point that changes it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.errors import KeyReused, StaleModel
from service.geometry import Array
from service.sessions import tally
from service.sessions.records import Change, Counters, Loaded
from service.sessions.rows import Batch
from service.sessions.spec import Spec, published
from service.sessions.warmup import go_live, ready_at

#: How many points of a commit its event shows.
SAMPLE = 16

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Job:
    """The points of one request."""

    batch: Batch
    if_match: int | None = None
    columns: bool = True  # whether its answer has them
    fates: bytes = b""  # late labels: a letter an id, A accepted, U unknown, E expired, L learned before


@dataclass(frozen=True)
class Answer:
    """What one request did: the scores before learning each point, and the session after the last."""

    scores: Array | None
    accepted: int
    mistakes: int
    counters: Counters
    fates: bytes = b""
    replayed: bool = False

    _HEADER = struct.Struct("<16sQQQQQQQQ")

    def pack(self, fingerprint: bytes) -> bytes:
        """As it is stored under the idempotency key"""
        c, scores = self.counters, b"" if self.scores is None else self.scores.tobytes()
        columns = 0 if self.scores is None else self.scores.shape[1] if self.scores.ndim == 2 else 1
        head = (self.accepted, self.mistakes, c.observed, c.mistakes, c.updates, c.version, columns, len(self.fates))
        return self._HEADER.pack(fingerprint, *head) + self.fates + scores

    @classmethod
    def unpack(cls, stored: bytes, fingerprint: bytes) -> Answer:
        """The stored answer, if it was given to the same body"""
        if stored[:16] != fingerprint:
            raise KeyReused
        _, accepted, mistakes, observed, total, updates, version, columns, ids = cls._HEADER.unpack_from(stored)
        fates, stored = stored[cls._HEADER.size :][:ids], stored[cls._HEADER.size + ids :]
        scores = np.frombuffer(stored, dtype="<f8") if columns else None
        if scores is not None and columns > 1:
            scores = scores.reshape(-1, columns)
        return cls(scores, accepted, mistakes, Counters(observed, total, updates, version), fates, replayed=True)


@dataclass(frozen=True)
class Learned:
    """What a run of requests came to: the session behind the last, an answer or a refusal for each."""

    results: list[Answer | StaleModel]
    change: Change


@dataclass(frozen=True)
class _Run:
    """Points that were learned, and where the learner is after each of them"""

    state: Any
    status: str
    scores: Array
    decided: Indices
    wrong: Flags
    changed: Flags
    updates: Indices  # k after each point


@dataclass
class _Past:
    """The retained points, as far as a warming session needs them"""

    X: Array
    indices: Indices

    def add(self, X: Array, indices: Indices) -> None:
        self.X, self.indices = np.concatenate([self.X, X]), np.concatenate([self.indices, indices])


@dataclass
class _Taken:
    batches: list[Batch] = field(default_factory=list)
    runs: list[_Run] = field(default_factory=list)


def learn(loaded: Loaded, jobs: Sequence[Job], kept: bytes = b"") -> Learned:
    """`kept`: the retained points, which a session that warms goes live with"""
    spec, state, status, counters = loaded.spec, loaded.state, loaded.status, loaded.counters
    results: list[Answer | StaleModel] = []
    answered: list[tuple[Job, Answer]] = []
    past, taken = _past(spec, kept if status == "warming" else b""), _Taken()
    for matched, group in groupby(jobs, key=lambda job: job.if_match):
        for run in [list(group)] if matched is None else [[job] for job in group]:
            if matched is not None and matched != counters.version:
                results.append(StaleModel(counters.version))
                continue
            batch = _joined([job.batch for job in run])
            done = _observe(spec, state, status, counters, batch, matched is not None, past)
            batch = batch[: len(done.scores)]
            start = 0
            for job in run:
                stop = min(start + len(job.batch.X), len(done.scores))
                mistakes = int(np.count_nonzero(done.wrong[start:stop]))
                if stop > start:
                    counters = Counters(
                        counters.observed + stop - start,
                        counters.mistakes + mistakes,
                        int(done.updates[stop - 1]),
                        counters.version + int(np.count_nonzero(done.changed[start:stop])),
                    )
                scores = done.scores[start:stop] if job.columns else None
                answer = Answer(scores, stop - start, mistakes, counters, job.fates)
                results.append(answer)
                answered.append((job, answer))
                start = stop
            if status == "warming":
                past.add(batch.X, batch.indices)
            taken.batches.append(batch)
            taken.runs.append(done)
            state, status = done.state, done.status
    after = Loaded(spec, loaded.revision, counters, state, status)
    return Learned(results, _change(loaded, after, answered, taken))


def _observe(
    spec: Spec, state: Any, status: str, counters: Counters, batch: Batch, until_change: bool, past: _Past
) -> _Run:
    n = ready_at(spec, past.indices, batch.indices, counters.observed) if status == "warming" else None
    first = _straight(spec, state, status, counters.updates, batch if n is None else batch[:n], until_change)
    if n is None or len(first.scores) < n:
        return first
    head = batch[:n]
    live = go_live(spec, np.concatenate([past.X, head.X]), np.concatenate([past.indices, head.indices]))
    first.changed[-1], first.updates[-1] = True, live.updates
    rest = batch[n:] if not until_change else batch[:0]
    second = _straight(spec, live.state, "live", live.updates, rest, until_change)
    return _Run(
        second.state,
        "live",
        *(
            np.concatenate([getattr(first, name), getattr(second, name)])
            for name in ("scores", "decided", "wrong", "changed", "updates")
        ),
    )


def _straight(spec: Spec, state: Any, status: str, k: int, batch: Batch, until_change: bool) -> _Run:
    outcome = spec.learner.observe(state, batch.X, spec.targets(batch.indices), until_change=until_change)
    decided = spec.decide(outcome.scores)
    wrong = decided != batch.indices[: outcome.accepted]
    updates = k + np.cumsum(wrong if spec.binary else outcome.changed)
    return _Run(outcome.state, status, outcome.scores, decided, wrong, outcome.changed, updates)


def _past(spec: Spec, kept: bytes) -> _Past:
    rows = np.frombuffer(kept, dtype="<f8").reshape(-1, spec.dimension + 1)
    return _Past(np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64))


def _joined(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    truth = None
    if any(batch.truth is not None for batch in batches):
        truth = np.concatenate([_truth(batch) for batch in batches])
    X, indices = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("X", "indices"))
    return Batch(X, indices, truth)


def _stacked(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _truth(batch: Batch) -> Array:
    return np.full_like(batch.X, np.nan) if batch.truth is None else batch.truth


# ------------------------------------------------------------------------------ what is written


def _change(before: Loaded, after: Loaded, answered: list[tuple[Job, Answer]], taken: _Taken) -> Change:
    spec = before.spec
    if after.counters.observed == before.counters.observed:
        return Change(after.state, after.counters, after.status, before.tally)
    batch = _joined(taken.batches)
    decided, wrong = (_stacked([getattr(run, name) for run in taken.runs]) for name in ("decided", "wrong"))
    counted = tally.observe(before.tally, wrong)
    rows = min(len(batch.X), spec.keep_points)
    newest = slice(len(batch.X) - rows, None)
    block = np.column_stack([batch.X[newest], batch.indices[newest]]).tobytes() if rows else b""
    events = [("commit", _event(before, after, answered, batch, decided))] if spec.keep_events else []
    events += [("alarm", orjson.dumps({"kind": "drift", "observed": int(at)})) for at in counted.alarms]
    return Change(
        after.state,
        after.counters,
        after.status,
        counted.tally,
        events=events,
        block=block,
        rows=rows,
        confusion=tally.confusion(batch.indices, decided, len(spec.labels)),
        log=counted.log.tolist(),
    )


def _event(before: Loaded, after: Loaded, answered: list[tuple[Job, Answer]], batch: Batch, decided: Indices) -> bytes:
    """Where the stream is now, the new classifier if it changed, and a sample of the points"""
    spec, counters, some = before.spec, after.counters, slice(None, SAMPLE)
    event: dict[str, Any] = {
        "from": before.counters.observed,
        "observed": counters.observed,
        "mistakes": counters.mistakes,
        "updates": counters.updates,
        "version": counters.version,
        "status": after.status,
        "requests": [
            {"if_match": job.if_match, "accepted": a.accepted, "version": a.counters.version}
            for job, a in answered
            if job.if_match is not None
        ],
        "points": batch.X[some].tolist(),
        "labels": list(spec.named(batch.indices[some])),
        "predictions": list(spec.named(decided[some])),
    }
    if batch.truth is not None:
        event["truth"] = [None if np.isnan(row[0]) else row.tolist() for row in batch.truth[some]]
    if counters.version != before.counters.version:
        event |= classifier(spec, after.state)
    return orjson.dumps(event, option=orjson.OPT_SERIALIZE_NUMPY)


def classifier(spec: Spec, state: Any) -> dict[str, Any]:
    """What of the published model can change"""
    model = published(spec, state)
    return {name: model[name] for name in ("reference", "weights", "sigma", "budget", "threshold")}
