"""Labelled points as arrays and as bytes: n×(d+1) little-endian float64, the coordinates, then the label's index.

This is the one place where rows are encoded and decoded: bodies, the log, snapshots and fits all hold them so. Many at
once are kept as columns, which are smaller: coordinates as n×d float64; then the labels' indices and those of the
predicted labels, each a bit if there are two classes, else a byte or two; then the true points, n×d, if there are any.
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
