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

Most mistakes need no look. With p₁ = e₁/n₁ and p = E/N, ∂/∂e₁ of the left side is ln(p₁/p) ≤ ln(1/p), and while
p₁ ≥ p it falls with every point that is no mistake. So a mistake raises it by ln(N/E) at the most, at every cut, those
yet to come included, which begin at 0; and the right side never falls. Whatever the best cut lacked when it was looked
for has to be used up, at so much a mistake, before another look can find anything.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from service.learners.contract import Counts, Flags
from service.learners.loops import compiled, types

PER_LEVEL, LEVELS, CLOCK = 5, 48, 32
SENSITIVITY = 0.002
#: A point: what the rounding of h, a sum of n logarithms, may come to, and then some
SURE = 1e-9

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
def _cut(held: Counts, errors: Counts, n: int, e: int, rising: bool, delta: float) -> tuple[int, float]:
    """How many of the newest points lie behind the best cut with such a change, 0: there is none; and what the best
    lacks, at least

    χ² is never below the ratio of the likelihoods and takes no logarithm. With D = e₁n − n₁e it is D²n/(n₀n₁e(n−e)).
    """
    limit, best, found, most = math.log(3 * n * math.sqrt(n) / delta), 0.0, 0, 0.0
    n1, e1 = 0, 0
    whole, scale = _h(e, n), n / (float(e) * float(n - e))
    for level in range(held.size):
        for b in range(held[level] - 1, -1, -1):
            n1 += 1 << level
            e1 += errors[level, b]
            n0, D = n - n1, e1 * n - n1 * e
            if D == 0 or n0 == 0 or (D > 0) != rising:
                continue
            chi2 = float(D) * float(D) * scale / (float(n0) * float(n1))
            if chi2 > limit * (1 - 1e-12):
                chi2 = _h(e - e1, n0) + _h(e1, n1) - whole
                if chi2 > limit and chi2 > best:
                    best, found = chi2, n1
            most = max(most, chi2)
    return found, limit - most


@compiled()
def _scan(
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
    lacking = 0.0  # before a rise can be found
    for i in range(wrong.size):
        x = 1 if wrong[i] else 0
        if x == 1:
            lacking -= math.log(n / e) if e > 0 else math.inf
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
                lacking = 0.0
                break
        if level < LEVELS:
            errors[level, held[level]] = carried
            held[level] += 1
        rising = x == 1
        if e == 0 or e == n or not (rising or (seen + i + 1) % CLOCK == 0):
            continue
        if rising and lacking > SURE * n:
            continue
        kept, lacks = _cut(held, errors, n, e, rising, delta)
        if rising:
            lacking = lacks
        if kept == 0:
            continue
        lacking = 0.0
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


@compiled(
    types.Tuple(
        (
            *(types.uint8[::1], types.int64, types.int64, types.int64, types.int64[::1]),
            *(types.int64[::1], types.int64[:, ::1], types.int64[::1]),
        )
    )(
        *(types.Array(types.boolean, 1, "C", readonly=True), _counts, types.Array(types.uint8, 1, "C", readonly=True)),
        *(types.int64, types.int64, types.int64, types.int64, types.int64),
        *(_counts, _table, types.float64),
    )
)
def count(
    wrong: Flags,
    labels: Counts,
    window: NDArray[np.uint8],
    seen: int,
    block: int,
    last: int,
    switches: int,
    size: int,
    held: Counts,
    errors: Counts,
    delta: float,
) -> tuple[NDArray[np.uint8], int, int, int, Counts, Counts, NDArray[np.int64], Counts]:
    """The newest mistakes as a ring, mistakes in each `size` points, how often the label is another: see tally.py; and
    drift. One call: the way into a compiled function takes longer than a point in it"""
    window = window.copy()
    blocks = np.empty(wrong.size // size + 1, dtype=np.int64)
    full = 0
    for i in range(wrong.size):
        x = 1 if wrong[i] else 0
        window[(seen + i) % window.size] = x
        block += x
        switches += last >= 0 and labels[i] != last
        last = labels[i]
        if (seen + i + 1) % size == 0:
            blocks[full] = block
            full += 1
            block = 0
    buckets, within, alarms = _scan(wrong, held, errors, seen, delta)
    return window, block, last, switches, blocks[:full].copy(), buckets, within, alarms
