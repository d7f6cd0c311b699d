"""How well it goes: accuracy, running and windowed, the confusion matrix, mistakes per 1,000 points, drift."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from service.sessions.records import Loaded
from service.sessions.tally import BLOCK, THRESHOLD


def measured(loaded: Loaded) -> dict[str, Any]:
    """As GET /sessions/{id}/metrics answers it"""
    spec, counters, tally = loaded.spec, loaded.counters, loaded.tally
    confusion, log = loaded.confusion.matrix(len(spec.labels)), tally.log.tolist()
    true, predicted, right = confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)
    window = {"points": tally.window_size, "mistakes": tally.window_mistakes}
    return {
        **asdict(counters),
        "accuracy": _share(counters.observed - counters.mistakes, counters.observed),
        "window": {**window, "accuracy": _share(tally.window_size - tally.window_mistakes, tally.window_size)},
        "labels": list(spec.labels),
        "confusion": confusion.tolist(),
        "classes": [
            {
                "label": label,
                "points": int(true[j]),
                "predicted": int(predicted[j]),
                "precision": _share(int(right[j]), int(predicted[j])),
                "recall": _share(int(right[j]), int(true[j])),
            }
            for j, label in enumerate(spec.labels)
        ],
        "log": {"block": BLOCK, "first": (counters.observed // BLOCK - len(log)) * BLOCK, "mistakes": log},
        "drift": {
            "alarms": tally.alarms,
            "last_alarm": tally.last_alarm or None,
            "statistic": tally.statistic,
            "threshold": THRESHOLD,
        },
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
