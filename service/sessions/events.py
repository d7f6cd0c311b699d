"""Entries of the log as events: what a page or a client is told of each. The writer of the log makes no JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from service.sessions.records import Entry, Kind
from service.sessions.spec import Spec

#: The name of an entry's event.
NAMES = {
    Kind.POINTS: "commit",
    Kind.PROMOTION: "model",
    Kind.BUDGET: "model",
    Kind.FIT: "fit",
    Kind.SETTINGS: "session",
    Kind.IMPORT: "session",
    Kind.REPLAYED: "session",
}
#: How many points of an entry its event shows.
SAMPLE = 16


def event(spec: Spec, entry: Entry) -> tuple[str, dict[str, Any]]:
    """Its name and its data; who wants the classifier asks for it when `version` has changed"""
    name = NAMES[entry.kind]
    if entry.kind is Kind.FIT:
        return name, {"fit": entry.fit, "status": entry.fit_status}
    told: dict[str, Any] = {**asdict(entry.counters), "status": entry.status}
    if entry.kind is not Kind.POINTS:
        told = {"kind": entry.kind.value, **told}
        return name, told if entry.fit is None else {**told, "fit": entry.fit}
    return name, {"from": entry.first, **told, **_shown(spec, entry)}


def _shown(spec: Spec, entry: Entry) -> dict[str, Any]:
    told: dict[str, Any] = {
        "requests": [
            {"if_match": each.if_match, "accepted": each.accepted, "version": each.version} for each in entry.matched
        ],
        "alarms": list(entry.alarms),
        "jumps": entry.jumps,
        "begun": [{"position": entry.first + each.after, "reason": each.reason} for each in entry.replaced],
        "skipped": list(entry.skipped),
        "points": [],
        "labels": [],
        "predictions": [],
    }
    if entry.batch is not None:
        some = entry.batch[:SAMPLE]
        told["points"] = some.X.tolist()
        told["labels"] = spec.names(some.indices)
        told["predictions"] = spec.names(entry.predicted[:SAMPLE])
        if some.truth is not None:
            told["truth"] = [None if np.isnan(row[0]) else row.tolist() for row in some.truth]
    return told
