"""Labelled points as arrays and as bytes: n×(d+1) little-endian float64, the coordinates, then the label's index.

This is the one place where rows are encoded and decoded: bodies, the log, snapshots and fits all hold them so. Many at
once are kept as columns, which are smaller: coordinates as n×d float64; then the labels' indices and those of the
predicted labels, each a bit if there are two classes, else a byte or two; then the true points, n×d, if there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray

from service.geometry import Array
from service.sessions.frozen import frozen

Indices = NDArray[np.int64]
NUMBER = np.dtype("<f8")  # looked up once: by its name it takes as long as the array


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
    """Rows that were checked, as they are stored: a table of d + 1 columns. Points by themselves are made when somebody
    asks for them. What was read together is cut into parts, of which `whole` and `start` are kept"""

    __slots__ = ("_X", "start", "table", "whole")

    def __init__(
        self, table: Array, indices: Indices, whole: Rows | None = None, start: int = 0, packed: bytes | None = None
    ) -> None:
        self.table, self.whole, self.start = table, whole, start
        self._X: Array | None = None
        self.indices, self.packed, self.truth, self.clipped, self.ambiguous = indices, packed, None, 0, False  # type: ignore[misc]

    @property
    def X(self) -> Array:
        if self._X is None:
            self._X = np.ascontiguousarray(self.table[:, :-1])
        return self._X

    def parts(self, counts: Sequence[int]) -> list[Rows]:
        """So many rows each"""
        if len(counts) == 1:
            return [self]
        stops, indices = [*accumulate(counts)], self.indices
        return [
            Rows(self.table[stop - n : stop], indices[stop - n : stop], self, stop - n)
            for n, stop in zip(counts, stops, strict=True)
        ]


def rows_of(table: Array, packed: bytes | None = None) -> Rows:
    """Of a table that was checked"""
    return Rows(table, table[:, -1].astype(np.int64), packed=packed)


def pack(batch: Batch) -> bytes:
    if batch.packed is not None:
        return batch.packed
    if isinstance(batch, Rows):
        return batch.table.tobytes()
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
    if all([type(batch) is Rows for batch in batches]):
        return _joined_rows(cast(Sequence[Rows], batches))
    truth = None
    if any(batch.truth is not None for batch in batches):
        truth = np.concatenate([np.full_like(b.X, np.nan) if b.truth is None else b.truth for b in batches])
    return Batch(np.concatenate([b.X for b in batches]), np.concatenate([b.indices for b in batches]), truth)


def _joined_rows(parts: Sequence[Rows]) -> Rows:
    """Those that were read together are one table already"""
    whole, at = parts[0].whole, 0
    for part in parts:
        if part.whole is not whole or part.start != at:
            break
        at += len(part.indices)
    else:
        if whole is not None and at == len(whole.indices):
            return whole
    return rows_of(np.concatenate([part.table for part in parts]))


# ------------------------------------------------------------------------------------------------------- columns


def pack_columns(batch: Batch, predicted: Indices, K: int) -> bytes:
    X = np.ascontiguousarray(batch.X, dtype="<f8").data  # joined, it is copied once
    truth = b"" if batch.truth is None else batch.truth.astype("<f8").tobytes()
    return b"".join((X, pack_classes(batch.indices, K), pack_classes(predicted, K), truth))


def unpack_columns(data: bytes, n: int, d: int, has_truth: bool) -> tuple[Batch, Indices]:
    """The points, and the predicted classes. Rows, which earlier versions kept here, are longer than any columns"""
    end = len(data) - (8 * n * d if has_truth else 0)
    truth = np.frombuffer(data[end:], dtype="<f8").reshape(n, d) if has_truth else None
    if end >= n * row_bytes(d):
        middle = n * row_bytes(d)
        batch, predicted = unpack(data[:middle], d), data[middle:end]
    else:
        middle = (8 * n * d + end) // 2
        X = (
            np.frombuffer(data[: 8 * n * d], dtype="<f8").reshape(n, d).copy()
        )  # the compiled loops know no read-only ones
        batch, predicted = Batch(X, unpack_classes(data[8 * n * d : middle], n)), data[middle:end]
    return Batch(batch.X, batch.indices, truth), unpack_classes(predicted, n)


def pack_classes(indices: Indices, K: int) -> bytes:
    if K == 2 and len(indices) > 1:
        return np.packbits(indices).tobytes()
    return indices.astype(class_type(K)).tobytes()


def class_type(K: int) -> str:
    """The type that holds a class index"""
    return "u1" if K <= 256 else "<u2"


def unpack_classes(data: bytes, n: int) -> Indices:
    """By their length, not by K: labels may have been added since"""
    if len(data) == (n + 7) // 8 < n:
        return np.unpackbits(np.frombuffer(data, dtype="u1"), count=n).astype(np.int64)
    found = np.frombuffer(data, dtype="u1" if len(data) == n else "<u2").astype(np.int64)
    if len(found) != n:
        raise ValueError(f"{len(data)} bytes are not the classes of {n} points")
    return found
