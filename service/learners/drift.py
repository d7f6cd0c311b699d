"""Drift, from the mistakes alone: two windows whose error rates one rate cannot explain.

As in ADWIN, the errors x ∈ {0, 1} since the last change are kept in buckets of 1, 2, 4 … points, at most PER_LEVEL of a
size, oldest first: a window of any length in O(log) numbers. Every border between buckets is a cut into an old and a
recent part. Where ADWIN compares means, this compares likelihoods, which is sharper for rates near 0 (Besson and
Kaufmann's test): with h(e,n) = e ln(e/n) + (n−e) ln((n−e)/n), E errors among N points,

    h(e₀,n₀) + h(e₁,n₁) − h(E,N) > ln(3 N^{3/2}/δ)

is a change. If the recent rate is higher it is an alarm, and only the recent part is kept: drift goes on being found.
If it is lower, the learner has learned: what is old is forgotten without a word, so that it hides no later rise.

A rise can only be found at a mistake, so only there it is looked for; a fall at every CLOCK-th point. δ, the
sensitivity, is about the probability with which a stream without drift raises any alarm at all.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.errors import StateCorrupt
from service.learners.contract import Counts, Flags
from service.learners.loops import compiled, types

PER_LEVEL, LEVELS, CLOCK = 5, 48, 32
SENSITIVITY = 0.002

_HEAD = struct.Struct("<QQQB")
#: Levels from … to, and the type that holds the errors of their buckets.
_WIDTHS = ((0, 8, "<u1"), (8, 16, "<u2"), (16, 32, "<u4"), (32, LEVELS, "<u8"))


@dataclass(frozen=True)
class State:
    seen: int = 0  # points
    alarms: int = 0
    last_alarm: int = 0  # the position of the newest
    held: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # buckets of 1, 2, 4 … points
    errors: Counts = field(default_factory=lambda: np.zeros((0, PER_LEVEL), dtype=np.int64))  # in each, oldest first

    @property
    def window(self) -> int:
        """How many points are looked back on"""
        return sum(int(count) << level for level, count in enumerate(self.held))

    def pack(self) -> bytes:
        """A bucket of level l has at most 2^l errors, and is stored in as few bytes as that may need"""
        parts = [_HEAD.pack(self.seen, self.alarms, self.last_alarm, len(self.held)), self.held.astype("<u1").tobytes()]
        parts += [self.errors[low:high].astype(kind).tobytes() for low, high, kind in _WIDTHS]
        return b"".join(parts)

    @classmethod
    def unpack(cls, data: bytes) -> State:
        if len(data) < _HEAD.size:
            raise StateCorrupt("the stored drift detector is damaged")
        seen, alarms, last, levels = _HEAD.unpack_from(data)
        kinds = [(kind, max(min(high, levels) - low, 0)) for low, high, kind in _WIDTHS]
        sizes = [np.dtype(kind).itemsize * rows * PER_LEVEL for kind, rows in kinds]
        if levels > LEVELS or len(data) != _HEAD.size + levels + sum(sizes):
            raise StateCorrupt("the stored drift detector is damaged")
        held = np.frombuffer(data, "<u1", levels, _HEAD.size).astype(np.int64)
        errors, at = list[NDArray[np.int64]](), _HEAD.size + levels
        for (kind, rows), size in zip(kinds, sizes, strict=True):
            errors.append(np.frombuffer(data, kind, rows * PER_LEVEL, at).astype(np.int64))
            at += size
        found = np.concatenate(errors).reshape(levels, PER_LEVEL)
        most = np.where(np.arange(PER_LEVEL) < held[:, None], np.int64(1) << np.arange(levels)[:, None], 0)
        if held.max(initial=0) > PER_LEVEL or (found > most).any() or (found < 0).any():
            raise StateCorrupt("the stored drift detector is damaged")
        return cls(seen, alarms, last, held, found)


@dataclass(frozen=True)
class Found:
    state: State
    alarms: Counts  # the positions at which drift was found


def observe(state: State, wrong: Flags, sensitivity: float = SENSITIVITY) -> Found:
    """Look at a run of points; `wrong` says which were mistakes."""
    held, errors, alarms = _observe(wrong, state.held, state.errors, state.seen, sensitivity)
    used = int(np.max(np.flatnonzero(held), initial=-1)) + 1
    last = int(alarms[-1]) if len(alarms) else state.last_alarm
    seen = state.seen + len(wrong)
    return Found(State(seen, state.alarms + len(alarms), last, held[:used], errors[:used]), alarms)


# ---------------------------------------------------------------------------------- compiled: see loops.py

_counts = types.Array(types.int64, 1, "C", readonly=True)
_table = types.Array(types.int64, 2, "C", readonly=True)


@compiled()
def _h(e: float, n: float) -> float:
    """e ln(e/n) + (n−e) ln((n−e)/n)"""
    total = 0.0
    if e > 0:
        total += e * math.log(e / n)
    if n > e:
        total += (n - e) * math.log((n - e) / n)
    return total


@compiled()
def _cut(held: Counts, errors: Counts, n: int, e: int, rising: bool, delta: float) -> int:
    """How many of the newest points lie behind the best cut with such a change; 0: there is none"""
    limit, best, found = math.log(3 * n * math.sqrt(n) / delta), 0.0, 0
    p, n1, e1 = e / n, 0, 0
    whole = _h(e, n)
    for level in range(held.size):
        for b in range(held[level] - 1, -1, -1):
            n1 += 1 << level
            e1 += errors[level, b]
            n0, e0 = n - n1, e - e1
            if n0 == 0 or e1 * n0 == e0 * n1 or (e1 * n0 > e0 * n1) != rising:
                continue
            away0, away1 = e0 - n0 * p, e1 - n1 * p
            if (away0 * away0 / n0 + away1 * away1 / n1) / (p * (1 - p)) <= limit:
                continue  # χ² is never below the likelihoods' ratio, and takes no logarithm
            ratio = _h(e0, n0) + _h(e1, n1) - whole
            if ratio > limit and ratio > best:
                best, found = ratio, n1
    return found


@compiled(
    types.Tuple((types.int64[::1], types.int64[:, ::1], types.int64[::1]))(
        types.Array(types.boolean, 1, "C", readonly=True), _counts, _table, types.int64, types.float64
    )
)
def _observe(
    wrong: Flags, held0: Counts, errors0: Counts, seen: int, delta: float
) -> tuple[Counts, NDArray[np.int64], Counts]:
    held, errors = np.zeros(LEVELS, dtype=np.int64), np.zeros((LEVELS, PER_LEVEL), dtype=np.int64)
    held[: held0.size] = held0
    errors[: held0.size] = errors0
    n, e = 0, 0
    for level in range(LEVELS):
        n += held[level] << level
        for b in range(held[level]):
            e += errors[level, b]
    alarms, raised = np.empty(wrong.size, dtype=np.int64), 0
    for i in range(wrong.size):
        x = 1 if wrong[i] else 0
        n += 1
        e += x
        level, carried = 0, x
        while held[level] == PER_LEVEL:  # full: its two oldest become one of twice the size, and make room
            merged = errors[level, 0] + errors[level, 1]
            for b in range(PER_LEVEL - 2):
                errors[level, b] = errors[level, b + 2]
            errors[level, PER_LEVEL - 2] = carried
            errors[level, PER_LEVEL - 1] = 0
            held[level] = PER_LEVEL - 1
            carried = merged
            level += 1
            if level == LEVELS:
                n -= 1 << level
                e -= carried
                break
        if level < LEVELS:
            errors[level, held[level]] = carried
            held[level] += 1
        rising = x == 1
        if e == 0 or e == n or not (rising or (seen + i + 1) % CLOCK == 0):
            continue
        kept = _cut(held, errors, n, e, rising, delta)
        if kept == 0:
            continue
        if rising:
            alarms[raised] = seen + i + 1
            raised += 1
        left = kept
        n, e = 0, 0
        for level in range(LEVELS):
            some = min(held[level], left >> level)
            left -= some << level
            for b in range(PER_LEVEL):  # the newest `some` move to the front
                errors[level, b] = errors[level, held[level] - some + b] if b < some else 0
                e += errors[level, b]
            held[level] = some
            n += some << level
    return held, errors, alarms[:raised].copy()
