"""The confusion matrix, sparse: a row for each true class that was seen, with the predicted classes that occurred.

A row is stored by itself, as pairs (predicted class: u16, count: u64), so that a commit rewrites only what changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
