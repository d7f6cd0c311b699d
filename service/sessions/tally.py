"""What is counted of a session beside its learner: the newest mistakes, mistakes per 1,000 points, drift, how good the
probabilities are, and whether the labels come in order.

Drift is found from the mistakes alone: learners/drift.py. Of learners with probabilities the prequential log loss is
Σ −ln p(true class)/n, a probability below LEAST counted as LEAST; the calibration error is
Σ_b (n_b/n)|right_b − sure_b| over BINS equal bins of how sure the answer was.

A tally is a frozen state, and `observe` a fold over points like a learner's: however a stream is cut, the same bits.

The confusion matrix is sparse: a row for each true class that was seen, with the predicted classes that occurred. A row
is stored by itself, as pairs (predicted class: u16, count: u64), so that a commit rewrites only what changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from service.errors import StateCorrupt
from service.geometry import Array
from service.learners import drift, loops
from service.learners.drift import SENSITIVITY

#: How many points the window looks back, how many one entry of the log stands for, how many of its entries are kept.
WINDOW, BLOCK, LOGGED = 1000, 1000, 1000
BINS, LEAST = 10, 1e-15

_HEAD = struct.Struct("<QQQi125sB")
_PROBABLE = struct.Struct(f"<d{3 * BINS}d")


@dataclass(frozen=True)
class Tally:
    seen: int = 0  # points
    block: int = 0  # mistakes in the block of the log that is not full yet
    switches: int = 0  # points whose label was another than that of the point before
    last_label: int = -1  # the class of the newest point
    window: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(WINDOW, dtype=np.uint8))  # a ring: 1 = mistake
    log: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, dtype=np.uint16))  # mistakes a full block
    drift: drift.State = field(default_factory=drift.State)
    loss: float = 0.0  # Σ −ln p(true class)
    bins: Array = field(default_factory=lambda: np.zeros((BINS, 3)))  # points, Σ how sure, how many right

    @property
    def window_size(self) -> int:
        return min(self.seen, WINDOW)

    @property
    def window_mistakes(self) -> int:
        return int(self.window.sum())

    @property
    def alarms(self) -> int:
        return self.drift.alarms

    @property
    def last_alarm(self) -> int:
        """The position of the newest; 0: there was none"""
        return self.drift.last_alarm

    @property
    def probable(self) -> int:
        """Points that were answered with probabilities"""
        return int(self.bins[:, 0].sum())

    @property
    def log_loss(self) -> float | None:
        return self.loss / self.probable if self.probable else None

    @property
    def calibration_error(self) -> float | None:
        return float(np.abs(self.bins[:, 1] - self.bins[:, 2]).sum()) / self.probable if self.probable else None

    def pack(self) -> bytes:
        """All but the log, which changes once in BLOCK points and is stored apart"""
        probable = self.probable > 0
        window = np.packbits(self.window).tobytes()
        head = _HEAD.pack(self.seen, self.block, self.switches, self.last_label, window, probable)
        return head + (_PROBABLE.pack(self.loss, *self.bins.ravel()) if probable else b"") + self.drift.pack()

    @classmethod
    def unpack(cls, data: bytes, log: bytes = b"") -> Tally:
        try:
            seen, block, switches, last, bits, probable = _HEAD.unpack_from(data)
            loss, *bins = _PROBABLE.unpack_from(data, _HEAD.size) if probable else (0.0, *np.zeros(3 * BINS))
        except struct.error as error:
            raise StateCorrupt("the stored tally is damaged") from error
        window = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
        found = drift.State.unpack(data[_HEAD.size + (_PROBABLE.size if probable else 0) :])
        newest = np.frombuffer(log, dtype="<u2")
        return cls(seen, block, switches, last, window, newest, found, loss, np.array(bins).reshape(BINS, 3))

    def pack_log(self) -> bytes:
        return self.log.astype("<u2").tobytes()


_VERSION_1 = struct.Struct("<QQQQddQQ125s")


def from_version_1(data: bytes, log: bytes = b"") -> Tally:
    """As snapshots of 0.1 have it; the detector of drift, another one then, begins anew"""
    try:
        seen, block, *_, alarms, last, bits = _VERSION_1.unpack(data)
    except struct.error as error:
        raise StateCorrupt("the stored tally is damaged") from error
    window, newest = np.unpackbits(np.frombuffer(bits, dtype=np.uint8)), np.frombuffer(log, dtype="<u2")
    return Tally(seen, block, 0, -1, window, newest, drift.State(seen, alarms, last))


def observe(
    tally: Tally, wrong: NDArray[np.bool_], indices: NDArray[np.int64], sensitivity: float = SENSITIVITY
) -> tuple[Tally, tuple[int, ...]]:
    """Count a run of points of these classes, of which `wrong` were mistakes; and the positions at which drift was
    found"""
    t = tally
    window, block, last, switches, full = loops.tally(
        wrong, indices, t.window, t.seen, t.block, t.last_label, t.switches, BLOCK
    )
    found = drift.observe(t.drift, wrong, sensitivity)
    log = np.concatenate([t.log, full.astype(np.uint16)])[-LOGGED:] if len(full) else t.log
    counted = Tally(t.seen + len(wrong), block, switches, last, window, log, found.state, t.loss, t.bins)
    return counted, tuple(found.alarms.tolist())


def judged(tally: Tally, probabilities: Array, indices: NDArray[np.int64], decided: NDArray[np.int64]) -> Tally:
    """With the probabilities counted in that these points were answered with"""
    loss, bins = loops.calibration(probabilities, indices, decided, tally.loss, tally.bins, LEAST)
    return replace(tally, loss=loss, bins=bins)


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
