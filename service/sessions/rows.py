"""Labelled points as arrays, and as rows of float64: the coordinates, then the label's index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.geometry import Array


@dataclass(frozen=True)
class Batch:
    """Labelled points, checked: coordinates in the session's ball, labels as class indices."""

    X: Array
    indices: NDArray[np.int64]
    truth: Array | None = None  # where the points were before their agents moved them; to be shown, not learned

    def __getitem__(self, rows: slice) -> Batch:
        return Batch(self.X[rows], self.indices[rows], None if self.truth is None else self.truth[rows])
