"""What is counted of a session beside its learner: the newest mistakes, mistakes per 1,000 points, drift, how good the
probabilities are, and whether the labels come in order.

Drift is found from the mistakes alone: learners/drift.py. Where labels come sorted, every class that begins looks like
it, so that none is found there: n independent labels with shares p_k switch n(1 − Σp_k²) times, sorted ones less than
a fifth of that. Of learners with probabilities the prequential log loss is
Σ −ln p(true class)/n, a probability below LEAST counted as LEAST; the calibration error is
Σ_b (n_b/n)|right_b − sure_b| over BINS equal bins of how sure the answer was.

A tally is a frozen state, and `observe` a fold over points like a learner's: however a stream is cut, the same bits.

The confusion matrix is sparse: a row for each true class that was seen, with the predicted classes that occurred. A row
is stored by itself, as pairs (predicted class: u16, count: u64), so that a commit rewrites only what changed.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.errors import StateCorrupt
from service.geometry import Array
from service.learners import drift, loops
from service.learners.contract import Counts, Flags
from service.learners.drift import LEVELS, PER_LEVEL, SENSITIVITY
from service.sessions.frozen import frozen

#: How many points the window looks back, how many one entry of the log stands for, how many of its entries are kept.
WINDOW, BLOCK, LOGGED = 1000, 1000, 1000
BINS, LEAST = 10, 1e-15
#: Pairs of classes are counted in a table if it has no more cells than there are points, or than this.
CELLS = 16
#: Labels come sorted if they switch less often than in this part of what chance would have them do.
SORTED = 0.2

NO_FLAGS: Flags = np.zeros(0, dtype=np.bool_)

_HEAD = struct.Struct("<QQQiQQ125sBB")
#: Levels from … to, and the type that holds the errors of a bucket: of level l there are at most 2^l.
_WIDTHS = ((0, 8, "<u1"), (8, 16, "<u2"), (16, 32, "<u4"), (32, LEVELS, "<u8"))
_PROBABLE = struct.Struct(f"<d{3 * BINS}d")


@frozen
class Tally:
    seen: int = 0  # points
    block: int = 0  # mistakes in the block of the log that is not full yet
    switches: int = 0  # points whose label was another than that of the point before
    last_label: int = -1  # the class of the newest point
    window: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(WINDOW, dtype=np.uint8))  # a ring: 1 = mistake
    log: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, dtype=np.uint16))  # mistakes a full block
    alarms: int = 0  # drift that was found
    last_alarm: int = 0  # the position of the newest; 0: there was none
    held: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # buckets of 1, 2, 4 … points
    errors: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, PER_LEVEL), dtype=np.int64))  # in each
    loss: float = 0.0  # Σ −ln p(true class)
    bins: Array = field(default_factory=lambda: np.zeros((BINS, 3)))  # points, Σ how sure, how many right

    @property
    def window_size(self) -> int:
        return min(self.seen, WINDOW)

    @property
    def window_mistakes(self) -> int:
        return int(self.window.sum())

    @property
    def drift_window(self) -> int:
        """How many points are looked back on for drift"""
        return sum(int(count) << level for level, count in enumerate(self.held))

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
        probable, window = bool(np.count_nonzero(self.bins[:, 0])), np.packbits(self.window).tobytes()
        numbers = (self.seen, self.block, self.switches, self.last_label, self.alarms, self.last_alarm)
        parts = [_HEAD.pack(*numbers, window, probable, len(self.held)), bytes(self.held.tolist())]
        parts += [self.errors[low:high].astype(kind).tobytes() for low, high, kind in _WIDTHS if low < len(self.held)]
        if probable:
            parts.append(_PROBABLE.pack(self.loss, *self.bins.ravel()))
        return b"".join(parts)

    @classmethod
    def unpack(cls, data: bytes, log: bytes = b"") -> Tally:
        try:
            seen, block, switches, last, alarms, alarm, bits, probable, levels = _HEAD.unpack_from(data)
            held, at = np.frombuffer(data, "<u1", levels, _HEAD.size).astype(np.int64), _HEAD.size + levels
            errors = np.zeros((levels, PER_LEVEL), dtype=np.int64)
            for low, high, kind in _WIDTHS:
                rows = errors[low:high]
                rows[:] = np.frombuffer(data, kind, rows.size, at).reshape(rows.shape)
                at += rows.size * np.dtype(kind).itemsize
            loss, *bins = _PROBABLE.unpack_from(data, at) if probable else (0.0, *np.zeros(3 * BINS))
        except (struct.error, ValueError) as error:
            raise StateCorrupt("the stored tally is damaged") from error
        most = np.where(np.arange(PER_LEVEL) < held[:, None], np.int64(1) << np.arange(levels)[:, None], 0)
        whole = len(data) == at + (_PROBABLE.size if probable else 0)
        if not whole or levels > LEVELS or (held > PER_LEVEL).any() or (errors > most).any() or (errors < 0).any():
            raise StateCorrupt("the stored tally is damaged")
        window, newest = np.unpackbits(np.frombuffer(bits, dtype=np.uint8)), np.frombuffer(log, dtype="<u2")
        found = (alarms, alarm, held, errors, loss, np.array(bins).reshape(BINS, 3))
        return cls(seen, block, switches, last, window, newest, *found)

    def pack_log(self) -> bytes:
        return self.log.astype("<u2").tobytes()


_VERSION_1 = struct.Struct("<QQQQddQQ125s")


def from_version_1(data: bytes, log: bytes = b"") -> Tally:
    """As snapshots of 0.1 have it; the detector of drift, another one then, begins anew. Switches of labels were not
    counted: every point is taken for one, so that nobody says the labels came sorted"""
    try:
        seen, block, *_, alarms, last, bits = _VERSION_1.unpack(data)
    except struct.error as error:
        raise StateCorrupt("the stored tally is damaged") from error
    window, newest = np.unpackbits(np.frombuffer(bits, dtype=np.uint8)), np.frombuffer(log, dtype="<u2")
    return Tally(seen, block, seen, -1, window, newest, alarms, last)


class Counted(NamedTuple):
    """With points counted in; the positions at which drift was found, and a line a request: where it ends among the
    points, and how many of its own were mistakes, changed the classifier, updated the learner"""

    tally: Tally
    confusion: Confusion
    alarms: tuple[int, ...]
    requests: Sequence[tuple[int, int, int, int]]


def observe(
    tally: Tally,
    confusion: Confusion,
    classes: int,
    indices: Counts,
    decided: Counts,
    sensitivity: float = SENSITIVITY,
    stops: Sequence[int] = (),
    changed: Flags = NO_FLAGS,
    updated: Flags = NO_FLAGS,
) -> Counted:
    """Count points of these classes that were taken for those decided, in requests that end at these stops"""
    t, n, R = tally, len(indices), len(stops)
    K = classes if classes * classes <= max(n, CELLS) else 0
    ends = np.array(stops, dtype=np.int64)
    before = (t.window, t.seen, t.block, t.last_label, t.switches, BLOCK, t.held, t.errors, sensitivity)
    numbers, window, held, errors = drift.count(indices, decided, changed, updated, ends, K, *before)
    told: list[int] = numbers.tolist()
    block, last, switches = told[:3]
    pairs, full = 3 + 3 * R, 3 + 3 * R + K * K
    found = full + (t.seen % BLOCK + n) // BLOCK
    if K:
        cells: Iterable[tuple[tuple[int, int], int]]
        cells = [(divmod(code, K), count) for code, count in enumerate(told[pairs:full]) if count]
    else:
        cells = Counter(zip(indices.tolist(), decided.tolist(), strict=True)).items()
    alarms = tuple(told[found:])
    if alarms:
        alarms = tuple([at for at in alarms if not _sorted(t, confusion, indices[: at - t.seen])])
    log = t.log if full == found else np.append(t.log, numbers[full:found].astype(np.uint16))[-LOGGED:]
    drifted = (t.alarms + len(alarms), alarms[-1] if alarms else t.last_alarm, held, errors)
    counted = Tally(t.seen + n, block, switches, last, window, log, *drifted, t.loss, t.bins)
    lines = list(zip(stops, told[3:pairs:3], told[4:pairs:3], told[5:pairs:3], strict=True))
    return Counted(counted, confusion.plus(cells), alarms, lines)


def expected_switches(counts: Collection[int]) -> float:
    """How often n independent labels switch, of which so many are of each class: n(1 − Σp_k²)"""
    n = sum(counts)
    return n - sum(count * count for count in counts) / n


def _sorted(tally: Tally, before: Confusion, indices: NDArray[np.int64]) -> bool:
    """Whether the labels have come sorted, up to the last of these"""
    counts = Counter(before.counts())
    counts.update(indices.tolist())
    switches = tally.switches + int(np.count_nonzero(np.diff(indices)))
    switches += tally.last_label not in (-1, int(indices[0]))
    return switches < SORTED * expected_switches(counts.values())


def judged(tally: Tally, probabilities: Array, indices: NDArray[np.int64], decided: NDArray[np.int64]) -> Tally:
    """With the probabilities counted in that these points were answered with"""
    loss, bins = loops.calibration(probabilities, indices, decided, tally.loss, tally.bins, LEAST)
    return replace(tally, loss=loss, bins=bins)


# -------------------------------------------------------------------------------------- the confusion matrix

_CELL = np.dtype([("predicted", "<u2"), ("count", "<u8")])
_PAIR = struct.Struct("<HQ")  # the same, and faster for a few


@frozen
class Confusion:
    rows: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    def cells(self) -> Iterator[tuple[int, int, int]]:
        """(true class, predicted class, count), in order"""
        for i in sorted(self.rows):
            for j in sorted(self.rows[i]):
                yield i, j, self.rows[i][j]

    def counts(self) -> dict[int, int]:
        """How many points of each class were seen"""
        return {i: sum(row.values()) for i, row in self.rows.items()}

    def plus(self, cells: Iterable[tuple[tuple[int, int], int]]) -> Confusion:
        """With so many more in these cells; rows that nothing was added to are the very same objects"""
        rows = dict(self.rows)
        for (i, j), count in cells:
            row = rows.get(i, {})
            rows[i] = {**row, j: row.get(j, 0) + count}
        return Confusion(rows)

    def matrix(self, K: int) -> NDArray[np.int64]:
        found = np.zeros((K, K), dtype=np.int64)
        for i, j, count in self.cells():
            found[i, j] = count
        return found


def pack_row(row: Mapping[int, int]) -> bytes:
    return b"".join([_PAIR.pack(j, row[j]) for j in sorted(row)])


def unpack_row(data: bytes) -> dict[int, int]:
    cells = np.frombuffer(data, dtype=_CELL)
    return dict(zip(cells["predicted"].tolist(), cells["count"].tolist(), strict=True))


def from_cells(cells: list[tuple[int, int, int]]) -> Confusion:
    rows: dict[int, dict[int, int]] = {}
    for i, j, count in cells:
        rows.setdefault(i, {})[j] = count
    return Confusion(rows)
