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

import numpy as np
from numpy.typing import NDArray

from service.learners.contract import Counts, Flags
from service.learners.loops import compiled, types

PER_LEVEL, LEVELS, CLOCK = 5, 48, 32
SENSITIVITY = 0.002

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
def scan(
    wrong: Flags, held0: Counts, errors0: Counts, seen: int, delta: float
) -> tuple[Counts, NDArray[np.int64], Counts]:
    """The points behind the first `seen`; of each level how many buckets are held, and the errors in each, oldest
    first. Returns both after the last, up to the highest level in use, and the positions of alarms."""
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
    used = LEVELS
    while used > 0 and held[used - 1] == 0:
        used -= 1
    return held[:used].copy(), errors[:used].copy(), alarms[:raised].copy()
