"""That no hard margin exists, with a witness (Gordan): convex weights s of rows with Σs_i b_i = 0."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from service.batch.duality import Problem
from service.errors import NotSeparable
from service.geometry import Array

#: ‖Σs_i b_i‖ ≤ ZERO·Σs_i‖b_i‖ is a sum that is zero, but for rounding
ZERO = 1e-12


def refute_zero_row(index: int) -> NoReturn:
    """A row of zeros is on no side of any w"""
    raise NotSeparable(f"no classifier has a margin: the features of point {index} are 0", witness=[(index, 1.0)])


def refute(problem: Problem, lam: Array, zero: float = ZERO) -> None:
    """Raise NotSeparable if rows sum to zero: s = λ/Σλ, made exact by least squares, with ‖Σs_i b_i‖ ≤ zero·Σs_i‖b_i‖

    It proves that no w has a margin larger than ‖Σs_i b_i‖: min⟨w,b_i⟩ ≤ Σs_i⟨w,b_i⟩ ≤ ‖w‖‖Σs_i b_i‖.
    """
    rows = np.flatnonzero(lam)
    lengths = problem.lengths[rows]
    s = lam[rows] / lam.max(initial=math.ulp(0)) * lengths
    if not len(rows) or (zero < 1 and np.linalg.norm(problem.combine(lam / lam.max())) > 1e-3 * s.sum()):
        return
    B = problem.F[rows] * (problem.y[rows] / lengths)[:, None]
    tries = [s]
    for _ in range(3):
        s = np.maximum(s - B @ np.linalg.lstsq(B.T @ B, s @ B)[0], 0)
        tries.append(s)
    s = min((s / s.sum() for s in tries if s.any()), key=lambda s: float(np.linalg.norm(s @ B)))
    if np.linalg.norm(s @ B) > zero:
        return
    weights = s / lengths
    weights /= weights.sum()
    margin = float(np.linalg.norm((weights * lengths) @ B))
    kept = weights > 0
    raise NotSeparable(
        f"no classifier has a margin larger than {margin:.1e}: {np.count_nonzero(kept)} points prove it",
        witness=list(zip(problem.index[rows[kept]].tolist(), weights[kept].tolist(), strict=True)),
    )
