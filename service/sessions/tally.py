"""What is counted of a session beside its learner: the newest mistakes, mistakes per 1,000 points, and drift.

Drift is found by Page and Hinkley's test on the errors x_t ∈ {0, 1}, with x̄_t their mean since the last alarm:

    m_t = m_{t−1} + x_t − x̄_t − DELTA,   alarm when m_t − min m > THRESHOLD, and begin anew

An error rate that stays what it was drifts m downwards; one that rises by more than DELTA drives it up. On errors that
are independent, even at a rate of one half, a false alarm came once in 8·10⁵ points (26 in 2·10⁷); a rise from 5 % to
50 % was found after 81 to 153 points.

A tally is a frozen state, and `observe` a fold over points like a learner's: however a stream is cut, the same bits.

The confusion matrix is sparse: a row for each true class that was seen, with the predicted classes that occurred. A row
is stored by itself, as pairs (predicted class: u16, count: u64), so that a commit rewrites only what changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.errors import StateCorrupt
from service.learners import loops

#: How many points the window looks back, how many one entry of the log stands for, how many of its entries are kept.
WINDOW, BLOCK, LOGGED = 1000, 1000, 1000
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
    log: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, dtype=np.uint16))  # mistakes a full block

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
        """All but the log, which changes once in BLOCK points and is stored apart"""
        numbers = (self.seen, self.block, self.n, self.errors, self.m, self.low, self.alarms, self.last_alarm)
        return _PACKED.pack(*numbers, np.packbits(self.window).tobytes())

    @classmethod
    def unpack(cls, data: bytes, log: bytes = b"") -> Tally:
        try:
            seen, block, n, errors, m, low, alarms, last, bits = _PACKED.unpack(data)
        except struct.error as error:
            raise StateCorrupt("the stored tally is damaged") from error
        window = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
        return cls(seen, block, n, errors, m, low, alarms, last, window, np.frombuffer(log, dtype="<u2"))

    def pack_log(self) -> bytes:
        return self.log.astype("<u2").tobytes()


def observe(tally: Tally, wrong: NDArray[np.bool_]) -> tuple[Tally, tuple[int, ...]]:
    """Count a run of points, of which `wrong` were mistakes; and the positions at which drift was found"""
    t = tally
    window, block, n, errors, m, low, full, alarms = loops.tally(
        wrong, t.window, t.seen, t.block, t.n, t.errors, t.m, t.low, BLOCK, DELTA, THRESHOLD
    )
    last = int(alarms[-1]) if len(alarms) else t.last_alarm
    log = np.concatenate([t.log, full.astype(np.uint16)])[-LOGGED:] if len(full) else t.log
    counted = Tally(t.seen + len(wrong), block, n, errors, m, low, t.alarms + len(alarms), last, window, log)
    return counted, tuple(alarms.tolist())


# -------------------------------------------------------------------------------------- the confusion matrix

_CELL = np.dtype([("predicted", "<u2"), ("count", "<u8")])


@dataclass(frozen=True)
class Confusion:
    rows: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    def cells(self) -> Iterator[tuple[int, int, int]]:
        """(true class, predicted class, count), in order"""
        for i in sorted(self.rows):
            for j in sorted(self.rows[i]):
                yield i, j, self.rows[i][j]

    def matrix(self, K: int) -> NDArray[np.int64]:
        found = np.zeros((K, K), dtype=np.int64)
        for i, j, count in self.cells():
            found[i, j] = count
        return found


def counted(before: Confusion, indices: NDArray[np.int64], decided: NDArray[np.int64]) -> Confusion:
    """With these points counted in; rows that nothing was added to are the very same objects"""
    rows = dict(before.rows)
    if len(indices) == 1:
        new = [(int(indices[0]), int(decided[0]), 1)]
    else:
        codes, counts = np.unique(indices * 65536 + decided, return_counts=True)
        new = [(code >> 16, code & 65535, count) for code, count in zip(codes.tolist(), counts.tolist(), strict=True)]
    for i, j, count in new:
        row = rows.get(i, {})
        rows[i] = {**row, j: row.get(j, 0) + count}
    return Confusion(rows)


def pack_row(row: Mapping[int, int]) -> bytes:
    return np.array(sorted(row.items()), dtype=_CELL).tobytes()


def unpack_row(data: bytes) -> dict[int, int]:
    cells = np.frombuffer(data, dtype=_CELL)
    return dict(zip(cells["predicted"].tolist(), cells["count"].tolist(), strict=True))


def from_cells(cells: list[tuple[int, int, int]]) -> Confusion:
    rows: dict[int, dict[int, int]] = {}
    for i, j, count in cells:
        rows.setdefault(i, {})[j] = count
    return Confusion(rows)
