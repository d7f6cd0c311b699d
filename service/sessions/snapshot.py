"""A session as one JSON document, to open elsewhere: versioned, with a checksum, no pickle.

    {"format": "horocycle-snapshot", "version": 2, "session": {…}, "counters": {…}, "status": …, "state": base64,
     "tally": base64, "points": base64, "confusion": [[i, j, n], …], "log": […], "fits": […], "digest": hex}

`state` is the learner as the store keeps it, `points` the retained points as rows of float64, `fits` those that have
ended, if there are any, each with its classifier. Idempotency keys, events and points that wait for labels stay behind.
snapshot_pieces.py has the form for what is too large for one document.

The digest finds damage; it is no signature, so all the rest is checked as if a stranger had written it.
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
from service.geometry import RADIUS_LIMIT, Array, require_ball
from service.learners import decode, encode, gaussian, hemisphere, second_order, softmax
from service.sessions import rows, saved_fits
from service.sessions.records import Counters, Kept, Loaded
from service.sessions.spec import Spec, asked
from service.sessions.tally import BINS, BLOCK, Tally, from_cells, from_version_1

FORMAT, VERSION = "horocycle-snapshot", 2
#: Weights of a real stream are sums of at most 2⁶³ lifted points; beyond this their products overflow.
LARGEST_WEIGHT = 1e100
#: A count that is larger is no count of points, and near the end of what Redis adds up.
LARGEST_COUNT = 2**53


def export(kept: Kept) -> dict[str, Any]:
    document = {
        **head(kept.loaded),
        "version": VERSION,
        "state": _text(encode(kept.loaded.state)),
        "points": _text(rows.pack(kept.batch)),
    }
    if kept.fits:
        document["fits"] = [{**saved_fits.to_json(each), "model": _text(each.model)} for each in kept.fits]
    return {**document, "digest": _digest(document)}


def head(loaded: Loaded) -> dict[str, Any]:
    """All but the learner, the points and the fits"""
    return {
        "format": FORMAT,
        "session": asked(loaded.spec),
        "counters": asdict(loaded.counters),
        "status": loaded.status,
        "tally": _text(loaded.tally.pack()),
        "confusion": [list(cell) for cell in loaded.confusion.cells()],
        "log": loaded.tally.log.tolist(),
    }


def check(document: dict[str, Any]) -> None:
    """That it is a snapshot, and undamaged"""
    if document.get("format") != FORMAT or document.get("version") not in (1, VERSION):
        raise InvalidSnapshot(f"this is no snapshot of format {FORMAT!r}, version 1 or {VERSION}")
    try:
        digest = _digest({name: value for name, value in document.items() if name != "digest"})
    except RecursionError:
        raise InvalidSnapshot("the snapshot is nested deeper than any of ours") from None
    if document.get("digest") != digest:
        raise InvalidSnapshot("the digest does not match: the snapshot is damaged")


def read(document: dict[str, Any], spec: Spec) -> Kept:
    """The session of a checked snapshot, under `spec`: what the snapshot's session asked for, as a new session"""
    try:
        state, points = _bytes(document["state"]), _bytes(document["points"])
        fits = [(each, _bytes(each["model"])) for each in _list(document.get("fits", []))]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidSnapshot(f"the snapshot is malformed: {reprlib.repr(str(error))}") from error
    loaded = read_session(document, state, spec)
    check_points(spec, points, loaded.counters.observed)
    saved = tuple(saved_fits.from_json(each, spec, model) for each, model in fits)
    return Kept(loaded, rows.unpack(points, spec.dimension), saved)


def read_session(document: dict[str, Any], encoded: bytes, spec: Spec) -> Loaded:
    """The session without its points, from its head and its learner"""
    try:
        state = decode(encoded)
        counters = Counters(**{f.name: _count(document["counters"][f.name]) for f in fields(Counters)})
        cells = {(_count(i), _count(j)): _count(n) for i, j, n in document["confusion"]}
        log = [_count(n) for n in document["log"]]
        unpack = from_version_1 if document["version"] == 1 else Tally.unpack
        tally = unpack(_bytes(document["tally"]), np.array(log, dtype="<u2").tobytes())
        status = document["status"]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, StateCorrupt) as error:
        raise InvalidSnapshot(f"the snapshot is malformed: {reprlib.repr(str(error))}") from error
    _check_state(spec, state)
    _check_counts(spec, counters, cells, log)
    _check_tally(tally, counters.observed)
    if status not in ("warming", "live") or (status == "warming" and not spec.warmup):
        raise InvalidSnapshot(f"the status of the snapshot is {reprlib.repr(status)}")
    confusion = from_cells([(i, j, n) for (i, j), n in cells.items()])
    return Loaded(spec, 0, counters, state, status, tally, confusion)


def _check_state(spec: Spec, state: Any) -> None:
    """A learner of this session's kind, with numbers that a learner can have"""
    first = spec.first_state()
    if type(state) is not type(first):
        raise InvalidSnapshot("the state of the snapshot is not of its algorithm")
    members, firsts = (getattr(each, "members", ()) for each in (state, first))
    if len(members) != len(firsts) or any(type(m) is not type(f) for m, f in zip(members, firsts, strict=True)):
        raise InvalidSnapshot("the learners of the snapshot's state are not those of its session")
    for member, begin in zip((state, *members), (first, *firsts), strict=True):
        _check_member(member, begin)


#: What a number of a state may be; arrays have the shape they begin with and no number beyond LARGEST_WEIGHT.
_SAME = ("c", "a", "estimating", "average", "classes")
_RANGES = {
    **dict.fromkeys(
        ("k", "rank", "n", "t", "last", "mistakes", "errors", "older", "newer", "jumps"), (0, LARGEST_COUNT)
    ),
    **dict.fromkeys(("reach", "alpha", "cap"), (0, math.cosh(2 * RADIUS_LIMIT))),
    **dict.fromkeys(("diagonal", "steepness"), (0, LARGEST_WEIGHT)),
    "log_weights": (-LARGEST_COUNT, 0),
    "log_beta": (-gaussian.FARTHEST, gaussian.FARTHEST),
}


def _check_member(state: Any, first: Any) -> None:
    for each in fields(state):
        value, begun = getattr(state, each.name), getattr(first, each.name)
        wrong = InvalidSnapshot(f"the {each.name} of the snapshot's state cannot be")
        if each.name == "members":
            continue
        if each.name in _SAME and value != begun:
            raise wrong
        if each.name in _RANGES:
            low, high = _RANGES[each.name]
            if not ((np.asarray(value) >= low) & (np.asarray(value) <= high)).all():
                raise wrong
        if isinstance(value, np.ndarray):
            if each.name not in ("basis", "scale", "offset") and value.shape != begun.shape:
                raise wrong
            if each.name == "evidence":
                if not (value > 0).all():
                    raise wrong
            elif not (np.abs(value) <= LARGEST_WEIGHT).all():
                raise wrong
        if each.name == "q" and (np.asarray(value) < 0).any():  # nan: from before it was kept
            raise wrong
        if each.name == "p":
            try:
                require_ball([value])
            except HorocycleError as error:
                raise wrong from error
    _check_matrices(state)


def _check_matrices(state: Any) -> None:
    """Triangular factors have a positive diagonal, or as many as their rank; inverses are symmetric and positive"""
    wrong = InvalidSnapshot("the matrices of the snapshot's state cannot be")
    if isinstance(state, second_order.State):
        d, diagonal = state.p.size, np.diag(state.factor)
        whole = state.rank == d and state.basis.shape == (0, d) and (diagonal > 0).all()
        part = state.rank < d and state.basis.shape == (d, d) and (diagonal[: state.rank] > 0).all()
        if not (_triangular(state.factor) and (whole or part)):
            raise wrong
    if isinstance(state, hemisphere.State):
        rows, D = state.w.shape
        shapes = [(0, D, D), (rows, D, D)] if state.a == 0 else [(0, D, D)]
        if state.basis.shape not in shapes or (state.rank > D).any() or state.last > state.t:
            raise wrong
        for factor, rank in zip(state.factor, state.rank, strict=False):
            if not (_triangular(factor) and (np.diag(factor)[:rank] > 0).all()):
                raise wrong
    if isinstance(state, gaussian.State):
        if not all(_triangular(factor) and (np.diag(factor) > 0).all() for factor in state.factor):
            raise wrong
    if isinstance(state, softmax.State):
        if not np.array_equal(state.inverse, state.inverse.transpose(0, 2, 1)):
            raise wrong
        if any((np.diag(inverse) <= 0).any() for inverse in state.inverse):
            raise wrong


def _triangular(factor: Array) -> bool:
    return np.array_equal(np.triu(factor), factor) and bool((np.diag(factor) >= 0).all())


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
    counted = tally.block <= tally.seen % BLOCK and tally.switches <= tally.seen == observed
    recent = tally.window_mistakes <= tally.window_size and tally.alarms <= tally.last_alarm <= tally.seen
    points, sure, right = tally.bins.T
    probable = (points >= 0).all() and (right >= 0).all() and (right <= points).all() and points.sum() <= observed
    likely = 0 <= tally.loss <= LARGEST_COUNT and (sure >= 0).all() and (sure <= points * (1 + 1e-9) + BINS).all()
    if not (counted and recent and probable and likely and tally.drift_window <= observed):
        raise InvalidSnapshot("the tally of the snapshot does not fit its counters")


def check_points(spec: Spec, points: bytes, observed: int) -> None:
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


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > 1000:
        raise ValueError("the fits are a list")
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
