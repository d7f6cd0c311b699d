"""What is counted of a session beside its learner: the newest mistakes, mistakes per 1,000 points, and drift.

Drift is found by Page and Hinkley's test on the errors x_t ∈ {0, 1}, with x̄_t their mean since the last alarm:

    m_t = m_{t−1} + x_t − x̄_t − DELTA,   alarm when m_t − min m > THRESHOLD, and begin anew

An error rate that stays what it was drifts m downwards; one that rises by more than DELTA drives it up. On errors that
are independent, even at a rate of one half, a false alarm came once in 8·10⁵ points (26 in 2·10⁷); a rise from 5 % to
50 % was found after 81 to 153 points.

A tally is a frozen state, and `observe` a fold over points like a learner's: however a stream is cut, the same bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.errors import StateCorrupt
from service.learners import loops

#: How many points the window looks back, and how many one entry of the log stands for.
WINDOW, BLOCK = 1000, 1000
DELTA, THRESHOLD = 0.02, 50.0

_PACKED = struct.Struct("<QQQQddQQ125s")


@dataclass(frozen=True)
class Tally:
    seen: int = 0  # points
    block: int = 0  # mistakes in the block of the log that is not full yet
    n: int = 0  # points since the last alarm
    errors: int = 0  # mistakes since then
    m: float = 0.0
    low: float = 0.0  # min m
    alarms: int = 0
    last_alarm: int = 0  # the position of the newest
    window: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(WINDOW, dtype=np.uint8))  # a ring: 1 = mistake

    @property
    def window_size(self) -> int:
        return min(self.seen, WINDOW)

    @property
    def window_mistakes(self) -> int:
        return int(self.window.sum())

    @property
    def statistic(self) -> float:
        return self.m - self.low

    def pack(self) -> bytes:
        numbers = (self.seen, self.block, self.n, self.errors, self.m, self.low, self.alarms, self.last_alarm)
        return _PACKED.pack(*numbers, np.packbits(self.window).tobytes())

    @classmethod
    def unpack(cls, data: bytes) -> Tally:
        try:
            seen, block, n, errors, m, low, alarms, last, bits = _PACKED.unpack(data)
        except struct.error as error:
            raise StateCorrupt("the stored tally is damaged") from error
        window = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
        return cls(seen, block, n, errors, m, low, alarms, last, window)


@dataclass(frozen=True)
class Counted:
    tally: Tally
    log: NDArray[np.int64]  # mistakes in each block that became full
    alarms: NDArray[np.int64]  # the positions at which drift was found


def observe(tally: Tally, wrong: NDArray[np.bool_]) -> Counted:
    """Count a run of points; `wrong` says which were mistakes."""
    t = tally
    window, block, n, errors, m, low, log, alarms = loops.tally(
        wrong, t.window, t.seen, t.block, t.n, t.errors, t.m, t.low, BLOCK, DELTA, THRESHOLD
    )
    last = int(alarms[-1]) if len(alarms) else t.last_alarm
    counted = Tally(t.seen + len(wrong), block, n, errors, m, low, t.alarms + len(alarms), last, window)
    return Counted(counted, log, alarms)


def confusion(indices: NDArray[np.int64], decided: NDArray[np.int64], K: int) -> dict[tuple[int, int], int]:
    """(true class, predicted class) → how often; only what occurred"""
    codes = indices * K + decided
    if K > 64:  # too many cells to count them all
        found, counts = np.unique(codes, return_counts=True)
        return {divmod(int(code), K): int(count) for code, count in zip(found, counts, strict=True)}
    return {divmod(code, K): count for code, count in enumerate(np.bincount(codes).tolist()) if count}
