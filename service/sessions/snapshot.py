"""A session as one JSON document, to open elsewhere: versioned, with a checksum, no pickle.

    {"format": "horocycle-snapshot", "version": 1, "session": {…}, "counters": {…}, "status": …, "state": base64,
     "tally": base64, "points": base64, "confusion": [[i, j, n], …], "log": […], "digest": hex}

`state` is the learner as the store keeps it, `points` the retained points as rows of float64. Idempotency keys, events
and points that wait for labels stay behind. The digest finds damage; it is no signature, so all the rest is checked as
if a stranger had written it.
"""

from __future__ import annotations

import json
import math
import reprlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any

import numpy as np

from service.errors import HorocycleError, InvalidSnapshot, StateCorrupt
from service.geometry import RADIUS_LIMIT, require_ball
from service.learners import decode, encode, second_order
from service.sessions import rows
from service.sessions.records import Counters, Kept, Loaded
from service.sessions.spec import Spec, asked
from service.sessions.tally import BLOCK, DELTA, THRESHOLD, Tally, from_cells

FORMAT, VERSION = "horocycle-snapshot", 1
#: Weights of a real stream are sums of at most 2⁶³ lifted points; beyond this their products overflow.
LARGEST_WEIGHT = 1e100
#: A count that is larger is no count of points, and near the end of what Redis adds up.
LARGEST_COUNT = 2**53


def export(kept: Kept) -> dict[str, Any]:
    loaded = kept.loaded
    document = {
        "format": FORMAT,
        "version": VERSION,
        "session": asked(loaded.spec),
        "counters": asdict(loaded.counters),
        "status": loaded.status,
        "state": _text(encode(loaded.state)),
        "tally": _text(loaded.tally.pack()),
        "points": _text(rows.pack(kept.batch)),
        "confusion": [list(cell) for cell in loaded.confusion.cells()],
        "log": loaded.tally.log.tolist(),
    }
    return {**document, "digest": _digest(document)}


def check(document: dict[str, Any]) -> None:
    """That it is a snapshot, and undamaged"""
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise InvalidSnapshot(f"this is no snapshot of format {FORMAT!r}, version {VERSION}")
    try:
        digest = _digest({name: value for name, value in document.items() if name != "digest"})
    except RecursionError:
        raise InvalidSnapshot("the snapshot is nested deeper than any of ours") from None
    if document.get("digest") != digest:
        raise InvalidSnapshot("the digest does not match: the snapshot is damaged")


def read(document: dict[str, Any], spec: Spec) -> Kept:
    """The session of a checked snapshot, under `spec`: what the snapshot's session asked for, as a new session"""
    try:
        state, points = decode(_bytes(document["state"])), _bytes(document["points"])
        counters = Counters(**{f.name: _count(document["counters"][f.name]) for f in fields(Counters)})
        cells = {(_count(i), _count(j)): _count(n) for i, j, n in document["confusion"]}
        log = [_count(n) for n in document["log"]]
        tally = Tally.unpack(_bytes(document["tally"]), np.array(log, dtype="<u2").tobytes())
        status = document["status"]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, StateCorrupt) as error:
        raise InvalidSnapshot(f"the snapshot is malformed: {reprlib.repr(str(error))}") from error
    _check_state(spec, state)
    _check_points(spec, points, counters.observed)
    _check_counts(spec, counters, cells, log)
    _check_tally(tally, counters.observed)
    if status not in ("warming", "live") or (status == "warming" and not spec.warmup):
        raise InvalidSnapshot(f"the status of the snapshot is {reprlib.repr(status)}")
    confusion = from_cells([(i, j, n) for (i, j), n in cells.items()])
    return Kept(Loaded(spec, 0, counters, state, status, tally, confusion), rows.unpack(points, spec.dimension))


def _check_state(spec: Spec, state: Any) -> None:
    """A learner of this session's kind, with numbers that a learner can have"""
    first = spec.first_state()
    if type(state) is not type(first):
        raise InvalidSnapshot("the state of the snapshot is not of its algorithm")
    members, firsts = ((state,), (first,)) if spec.binary else (state.members, first.members)
    if len(members) != len(firsts) or any(type(m) is not type(f) for m, f in zip(members, firsts, strict=True)):
        raise InvalidSnapshot("the state of the snapshot has not one learner a class")
    for member, begin in zip(members, firsts, strict=True):
        _check_member(member, begin)


def _check_member(state: Any, first: Any) -> None:
    for each in fields(state):
        value, begun = getattr(state, each.name), getattr(first, each.name)
        wrong = InvalidSnapshot(f"the {each.name} of the snapshot's state cannot be")
        if each.name in ("c", "a", "estimating") and value != begun:
            raise wrong
        if each.name in ("k", "rank", "older", "newer", "jumps") and not 0 <= value < LARGEST_COUNT:
            raise wrong
        if each.name in ("reach", "alpha", "cap") and not 0 <= value < math.cosh(2 * RADIUS_LIMIT):
            raise wrong
        if isinstance(value, np.ndarray) and each.name != "evidence":
            if each.name != "basis" and value.shape != begun.shape:
                raise wrong
            if not (np.abs(value) <= LARGEST_WEIGHT).all():
                raise wrong
        if each.name == "evidence" and (value.shape != begun.shape or not (value > 0).all()):
            raise wrong
        if each.name == "p":
            try:
                require_ball([value])
            except HorocycleError as error:
                raise wrong from error
    if isinstance(state, second_order.State):
        d = state.p.size
        triangular = np.array_equal(np.triu(state.factor), state.factor) and (np.diag(state.factor) >= 0).all()
        whole = state.rank == d and state.basis.shape == (0, d) and (np.diag(state.factor) > 0).all()
        part = state.rank < d and state.basis.shape == (d, d) and (np.diag(state.factor)[: state.rank] > 0).all()
        if not (triangular and (whole or part)):
            raise InvalidSnapshot("the factor of the snapshot's state cannot be")


def _check_counts(spec: Spec, counters: Counters, confusion: dict[tuple[int, int], int], log: list[int]) -> None:
    """That the confusion and the log count what the counters do"""
    K, wrong = len(spec.labels), sum(n for (i, j), n in confusion.items() if i != j)
    if any(i >= K or j >= K for i, j in confusion):
        raise InvalidSnapshot("the confusion of the snapshot does not fit its session")
    if (sum(confusion.values()), wrong) != (counters.observed, counters.mistakes):
        raise InvalidSnapshot("the confusion of the snapshot does not fit its counters")
    if len(log) != min(counters.observed // BLOCK, 1000) or any(n > BLOCK for n in log):
        raise InvalidSnapshot("the log of the snapshot does not fit its counters")


def _check_tally(tally: Tally, observed: int) -> None:
    counted = tally.block <= tally.seen % BLOCK and tally.errors <= tally.n <= tally.seen == observed
    recent = tally.window_mistakes <= tally.window_size and tally.alarms <= tally.last_alarm <= tally.seen
    drift = 0 <= tally.statistic <= THRESHOLD and -(1 + DELTA) * tally.n <= tally.low <= 0
    if not (counted and recent and drift):
        raise InvalidSnapshot("the tally of the snapshot does not fit its counters")


def _check_points(spec: Spec, points: bytes, observed: int) -> None:
    if len(points) % rows.row_bytes(spec.dimension):
        raise InvalidSnapshot("the points of the snapshot are not whole rows")
    table = rows.table(points, spec.dimension)
    if len(table) > observed:
        raise InvalidSnapshot("the snapshot has more points than were observed")
    if len(table):
        require_ball(np.ascontiguousarray(table[:, :-1]), spec.dimension, c=spec.curvature)
    if not np.isin(table[:, -1], np.arange(len(spec.labels))).all():
        raise InvalidSnapshot("the points of the snapshot have labels that its session has not")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < LARGEST_COUNT:
        raise ValueError(f"{reprlib.repr(value)} is no count")
    return value


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("bytes are written as base64")
    return b64decode(text, validate=True)


def _digest(document: Any) -> str:
    """Over the sorted JSON, with 1.0 as 1: programs that read and write it again may do that"""
    digest = sha256()
    for piece in _pieces(document):
        digest.update(piece.encode())
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[str]:
    """Compact JSON with sorted keys, piece by piece: one call for all of it would keep the interpreter's lock"""
    if isinstance(value, dict):
        yield "{"
        for i, name in enumerate(sorted(value)):
            yield f"{',' if i else ''}{json.dumps(name)}:"
            yield from _pieces(value[name])
        yield "}"
    elif isinstance(value, list):
        yield "["
        for i, each in enumerate(value):
            if i:
                yield ","
            yield from _pieces(each)
        yield "]"
    else:
        yield json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
