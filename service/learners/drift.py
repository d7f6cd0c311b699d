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

Most points need no look. With p₁ = e₁/n₁ and p = E/N, ∂/∂e₁ of the left side is ln(p₁/p) ≤ ln(1/p), and while
p₁ ≥ p it falls with every point that is no mistake. So a mistake raises it by ln(N/E) at the most, at every cut where
the rate rises, those yet to come included, which begin at 0; and the right side never falls. Whatever the best cut
lacked when it was looked for has to be used up, at so much a mistake, before another look can find anything. The test
does not change if mistakes are called hits and hits mistakes, so the same holds of falls: a point that is no mistake
raises them by ln(N/(N−E)) at the most. Over a stretch of points N is nowhere above its last value, and E and N−E
nowhere below their first: two logarithms say how many of either kind may come before the next look.

Between two looks nobody asks for the buckets. So a whole stretch is put into them at once: `_append`.
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
#: The most points of a stretch
STRETCH = 1024

# ---------------------------------------------------------------------------------- compiled: see loops.py

_counts = types.Array(types.int64, 1, "C", readonly=True)
_table = types.Array(types.int64, 2, "C", readonly=True)
_flags = types.Array(types.boolean, 1, "C", readonly=True)


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
def _chi2(held: Counts, errors: Counts, n: int, e: int) -> tuple[float, float]:
    """The largest χ² of all cuts where the rate rises, and of all where it falls. It is never below the ratio of the
    likelihoods and takes no logarithm: with D = e₁n − n₁e it is D²n/(n₀n₁e(n−e))"""
    rise, fall, n1, e1 = 0.0, 0.0, 0, 0
    scale = n / (float(e) * float(n - e))
    for level in range(held.size):
        for b in range(held[level] - 1, -1, -1):
            n1 += 1 << level
            e1 += errors[level, b]
            D = e1 * n - n1 * e
            chi2 = float(D) * float(D) * scale / (float(n - n1) * float(n1))
            rise = max(rise, chi2 if D > 0 else 0.0)
            fall = max(fall, chi2 if D < 0 else 0.0)
        if n1 == n:
            break
    return rise, fall


@compiled()
def _cut(held: Counts, errors: Counts, n: int, e: int, rising: bool, delta: float) -> tuple[int, float, float]:
    """How many of the newest points lie behind the best cut with such a change, 0: there is none; and what the best
    cut lacks, at least, for a rise and for a fall"""
    limit = math.log(3 * n * math.sqrt(n) / delta)
    if e == 0 or e == n:
        return 0, limit, limit
    rise, fall = _chi2(held, errors, n, e)
    sure = limit * (1 - 1e-12)
    if (rise if rising else fall) <= sure:
        return 0, limit - rise, limit - fall
    best, found, most, n1, e1 = 0.0, 0, 0.0, 0, 0
    whole, scale = _h(e, n), n / (float(e) * float(n - e))
    for level in range(held.size):
        for b in range(held[level] - 1, -1, -1):
            n1 += 1 << level
            e1 += errors[level, b]
            n0, D = n - n1, e1 * n - n1 * e
            if D == 0 or n0 == 0 or (D > 0) != rising:
                continue
            ratio = float(D) * float(D) * scale / (float(n0) * float(n1))
            if ratio > sure:
                ratio = _h(e - e1, n0) + _h(e1, n1) - whole
                if ratio > limit and ratio > best:
                    best, found = ratio, n1
            most = max(most, ratio)
    return (found, limit - most, limit - fall) if rising else (found, limit - rise, limit - most)


@compiled()
def _append(held: Counts, errors: Counts, wrong: Flags, queue: Counts, merged: Counts) -> tuple[int, int]:
    """Behind the other buckets, one for each of these points; returns the points that are forgotten, and their errors

    If one comes to a level that has PER_LEVEL, the two oldest become one of twice the size, and go to the next level.
    So of c buckets and r that come the oldest 2m are merged, m = ⌈(c + r − PER_LEVEL)/2⌉ or 0, and the others stay: a
    level is done with all that come to it at once. `queue` and `merged` have room for PER_LEVEL more than the points.
    """
    r = wrong.size
    for i in range(r):
        queue[PER_LEVEL + i] = wrong[i]
    for level in range(LEVELS):
        c = held[level]
        first, m = PER_LEVEL - c, max(0, (c + r - PER_LEVEL + 1) // 2)
        for b in range(c):
            queue[first + b] = errors[level, b]
        for i in range(m):
            merged[PER_LEVEL + i] = queue[first + 2 * i] + queue[first + 2 * i + 1]
        held[level] = c + r - 2 * m
        for b in range(PER_LEVEL):
            errors[level, b] = queue[first + 2 * m + b] if b < held[level] else 0
        if m == 0:
            return 0, 0
        r = m
        queue, merged = merged, queue
    return r << LEVELS, queue[PER_LEVEL : PER_LEVEL + r].sum()


@compiled()
def _keep(held: Counts, errors: Counts, newest: int) -> tuple[int, int]:
    """Only the buckets of so many of the newest points; returns their points and their errors"""
    n, e = 0, 0
    for level in range(LEVELS):
        some = min(held[level], (newest - n) >> level)
        for b in range(PER_LEVEL):  # the newest `some` move to the front
            errors[level, b] = errors[level, held[level] - some + b] if b < some else 0
            e += errors[level, b]
        held[level] = some
        n += some << level
    return n, e


@compiled()
def _scan(
    wrong: Flags, held0: Counts, errors0: Counts, seen: int, delta: float
) -> tuple[Counts, NDArray[np.int64], Counts]:
    """The points behind the first `seen`; of each level how many buckets are held, and the errors in each, oldest
    first. Returns both after the last, up to the highest level in use, and the positions of alarms."""
    held, errors = np.zeros(LEVELS, dtype=np.int64), np.zeros((LEVELS, PER_LEVEL), dtype=np.int64)
    held[: held0.size], errors[: held0.size] = held0, errors0
    alarms, raised = np.empty(wrong.size, dtype=np.int64), 0
    room = PER_LEVEL + min(wrong.size, STRETCH)
    queue, merged = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    n, e = _keep(held, errors, np.iinfo(np.int64).max)
    rise, fall = 0.0, 0.0  # what the best cut lacks
    start = 0
    while start < wrong.size:
        most = min(wrong.size - start, STRETCH, CLOCK + n // 16)
        a_mistake, a_hit = math.log((n + most) / e), math.log((n + most) / (n - e))  # raises a rise, a fall
        unsure = SURE * (n + most)
        mistakes, hits = int(max(0.0, rise - unsure) / a_mistake), int(max(0.0, fall - unsure) / a_hit)
        i, errs, x, look = 0, 0, False, False
        while i < most and not look:
            tick = min(most, i + CLOCK - (seen + start + i) % CLOCK)
            while i < tick and errs <= mistakes:
                x = wrong[start + i]
                i += 1
                errs += x
            look = errs > mistakes or (not x and (seen + start + i) % CLOCK == 0 and i - errs > hits)
        lost, errors_lost = _append(held, errors, wrong[start : start + i], queue, merged)
        start, n, e = start + i, n + i - lost, e + errs - errors_lost
        if lost > 0:  # no bound holds of what is left
            rise, fall = 0.0, 0.0
        if not look:
            rise -= errs * a_mistake if errs > 0 else 0.0  # which is infinite before the first
            fall -= (i - errs) * a_hit if i > errs else 0.0
            continue
        kept, rise, fall = _cut(held, errors, n, e, x, delta)
        if kept > 0:
            rise, fall = 0.0, 0.0
            n, e = _keep(held, errors, kept)
            if x:
                alarms[raised] = seen + start
                raised += 1
    used = LEVELS
    while used > 0 and held[used - 1] == 0:
        used -= 1
    return held[:used].copy(), errors[:used].copy(), alarms[:raised]


@compiled()
def _newest(window: NDArray[np.uint8], wrong: Flags, seen: int) -> NDArray[np.uint8]:
    """The ring of the newest mistakes, with these behind the first `seen`"""
    window, start = window.copy(), max(0, wrong.size - window.size)
    at = (seen + start) % window.size
    for i in range(start, wrong.size):
        window[at] = wrong[i]
        at = at + 1 if at + 1 < window.size else 0
    return window


@compiled(
    types.Tuple((types.int64[::1], types.uint8[::1], types.int64[::1], types.int64[:, ::1]))(
        *(_counts, _counts, _flags, _flags, _counts, types.int64),
        *(types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64, types.int64, types.int64),
        *(types.int64, _counts, _table, types.float64),
    )
)
def count(
    labels: Counts,
    decided: Counts,
    changed: Flags,
    updated: Flags,
    stops: Counts,
    classes: int,
    window: NDArray[np.uint8],
    seen: int,
    block: int,
    last: int,
    switches: int,
    size: int,
    held: Counts,
    errors: Counts,
    delta: float,
) -> tuple[Counts, NDArray[np.uint8], Counts, Counts]:
    """All that is counted beside a learner (tally.py), in one call: the way into a compiled function takes longer than
    a point in it, and so does every array that comes out. Returns numbers, and the window and the buckets after it

    The numbers: mistakes in the block of `size` points that is not full, the last label, switches; of the points up to
    each stop how many were mistakes, changed the classifier, updated the learner; classes² counts of (label, decided);
    mistakes in each block that became full; positions of alarms.
    """
    n, pairs = labels.size, 3 + 3 * stops.size
    full = pairs + classes * classes
    found = full + (seen % size + n) // size
    numbers = np.zeros(found, dtype=np.int64)
    wrong = np.empty(n, dtype=np.bool_)
    for i in range(n):
        wrong[i] = decided[i] != labels[i]
    for i in range(n - 1):
        switches += labels[i + 1] != labels[i]
    if n > 0:
        switches += last >= 0 and labels[0] != last
        last = labels[n - 1]
    if classes > 0:
        for i in range(n):
            numbers[pairs + classes * labels[i] + decided[i]] += 1
    start = 0
    for r in range(stops.size):
        of, stop = 3 + 3 * r, stops[r]
        numbers[of], numbers[of + 1] = wrong[start:stop].sum(), changed[start:stop].sum()
        numbers[of + 2], start = updated[start:stop].sum(), stop
    start = 0
    while full < found:
        stop = start + size - (seen + start) % size
        numbers[full] = block + wrong[start:stop].sum()
        start, block, full = stop, 0, full + 1
    numbers[:3] = block + wrong[start:].sum(), last, switches
    buckets, within, alarms = _scan(wrong, held, errors, seen, delta)
    return np.append(numbers, alarms), _newest(window, wrong, seen), buckets, within
