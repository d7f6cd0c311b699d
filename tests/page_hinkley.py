"""The Page-Hinkley test for drift, as the textbook has it: the oracle of the tally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def page_hinkley(errors: Sequence[Any], delta: float = 0.02, threshold: float = 50.0) -> list[int]:
    """The positions of the alarms, as the textbook has it: m_T = Σ (x_t − x̄_t − δ), alarm when m_T − min m_t > λ"""
    alarms: list[int] = []
    start, m, low, total = 0, 0.0, 0.0, 0
    for t, x in enumerate(map(int, errors), 1):
        total += x
        m += x - total / (t - start) - delta
        low = min(low, m)
        if m - low > threshold:
            alarms.append(t)
            start, m, low, total = t, 0.0, 0.0, 0
    return alarms
