"""Labelled points as arrays and as bytes: n×(d+1) little-endian float64, the coordinates, then the label's index.

This is the one place where rows are encoded and decoded: bodies, the log, snapshots and fits all hold them so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.geometry import Array
from service.sessions.frozen import frozen

Indices = NDArray[np.int64]


@frozen
class Batch:
    """Labelled points, checked: coordinates in the session's ball, labels as class indices."""

    X: Array
    indices: Indices
    truth: Array | None = None  # where the points were before their agents moved them; to be shown, not learned
    packed: bytes | None = None  # `pack` of it, where that came in or is made already
    clipped: int = 0  # points that were moved to the radius limit, as their sender allowed
    ambiguous: bool = False  # the labels' indices could as well have been labels

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: slice) -> Batch:
        return Batch(self.X[rows], self.indices[rows], None if self.truth is None else self.truth[rows])


class Rows(Batch):
    """Of rows that were checked, and may be stored as they are: X is made when somebody asks for it"""

    __slots__ = ("_X",)

    def __init__(self, packed: bytes, n: int, ambiguous: bool = False) -> None:
        self._X: Array | None = None
        self.packed, self.truth, self.clipped, self.ambiguous = packed, None, 0, ambiguous  # type: ignore[misc]
        self.indices = np.frombuffer(packed, dtype="<f8").reshape(n, -1)[:, -1].astype(np.int64)  # type: ignore[misc]

    @property
    def X(self) -> Array:
        if self._X is None:
            rows = np.frombuffer(self.packed or b"", dtype="<f8").reshape(len(self.indices), -1)
            self._X = np.ascontiguousarray(rows[:, :-1])
        return self._X


def pack(batch: Batch) -> bytes:
    if batch.packed is not None:
        return batch.packed
    n, d = batch.X.shape
    rows = np.empty((n, d + 1), dtype="<f8")
    rows[:, :d], rows[:, d] = batch.X, batch.indices
    return rows.tobytes()


def table(data: bytes, d: int) -> Array:
    """n×(d+1), a view"""
    return np.frombuffer(data, dtype="<f8").reshape(-1, d + 1)


def unpack(data: bytes, d: int) -> Batch:
    rows = table(data, d)
    return Batch(np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64))


def row_bytes(d: int) -> int:
    return 8 * (d + 1)


def empty(d: int) -> Batch:
    return Batch(np.empty((0, d)), np.empty(0, dtype=np.int64))


def joined(batches: Sequence[Batch]) -> Batch:
    """One after another; where some have true points, those of the others are NaN"""
    if len(batches) == 1:
        return batches[0]
    packed = [batch.packed for batch in batches if batch.packed is not None and batch.truth is None]
    if len(packed) == len(batches):
        return Rows(b"".join(packed), sum([len(batch.indices) for batch in batches]))
    truth = None
    if any(batch.truth is not None for batch in batches):
        truth = np.concatenate([np.full_like(b.X, np.nan) if b.truth is None else b.truth for b in batches])
    return Batch(np.concatenate([b.X for b in batches]), np.concatenate([b.indices for b in batches]), truth)
