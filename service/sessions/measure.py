"""How well it goes: accuracy, running and windowed, the confusion matrix, mistakes per 1,000 points, drift."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from service.learners import auto, strategic
from service.sessions.hints import hints
from service.sessions.published import voting
from service.sessions.records import Loaded
from service.sessions.tally import BLOCK


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
            "window": tally.drift_window,
            "sensitivity": spec.sensitivity,
            "on_drift": "restart" if spec.restart else "alarm",
        },
        "budget": _budget(loaded),
        "members": _members(loaded),
        "log_loss": tally.log_loss,
        "calibration_error": tally.calibration_error,
        "hints": hints(loaded),
    }


def _budget(loaded: Loaded) -> dict[str, Any] | None:
    """What agents have shown of their budget, where it is estimated"""
    state, spec = loaded.state, loaded.spec
    if not isinstance(state, strategic.State) or not spec.estimate:
        return None
    return {"estimate": state.alpha / math.sqrt(state.c), "evidence": state.older + state.newer, "jumps": state.jumps}


def _members(loaded: Loaded) -> list[dict[str, Any]] | None:
    """Those that vote, since the learner began"""
    state = loaded.state
    if not isinstance(state, auto.State):
        return None
    return [
        {"algorithm": name, "mistakes": mistakes, "accuracy": _share(state.t - mistakes, state.t), "weight": weight}
        for (name, _, weight), mistakes in zip(voting(loaded.spec, state), state.mistakes.tolist(), strict=True)
    ]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
