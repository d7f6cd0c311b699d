"""Changes of a session other than by learning: its settings, the estimate of a budget, a promoted fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.batch.classifier import Classifier
from service.errors import InvalidParameter
from service.learners import strategic
from service.sessions.promotion import promoted
from service.sessions.records import Change, Entry, Kind, Loaded, Replaced, Status


def with_settings(loaded: Loaded, settings: Mapping[str, Any]) -> Change:
    """Another name, time to live or keep_points"""
    spec = replace(loaded.spec, **settings)
    if spec.warmup > spec.keep_points and loaded.status == Status.WARMING:
        raise InvalidParameter("keep_points", spec.keep_points, f"at least the warmup of {spec.warmup}")
    after = replace(loaded, spec=spec, opened=loaded.opened or loaded.spec)
    return Change(after, Entry(Kind.SETTINGS, loaded.counters, loaded.status, spec=spec))


def with_budget(change: Change, initial: float) -> Change:
    """After that change, the estimate of a strategic budget begins anew"""
    loaded = change.after
    if not isinstance(loaded.state, strategic.State) or not loaded.state.estimating:
        raise InvalidParameter("budget", "estimate", "left out: this session estimates none")
    spec = replace(loaded.spec, budget=initial)
    first = spec.first_state()
    state = replace(loaded.state, alpha=first.alpha, evidence=first.evidence)
    counters = replace(loaded.counters, version=loaded.counters.version + 1)
    after = replace(loaded, spec=spec, state=state, counters=counters)
    replaced = Replaced(0, counters.updates, state)
    return Change(after, Entry(Kind.BUDGET, counters, loaded.status, replaced=replaced, spec=spec))


def with_promotion(loaded: Loaded, classifier: Classifier, fit: str, member: str | None = None) -> Change:
    """The learner, or a member of its vote, begins anew from a fit"""
    state = promoted(loaded.spec, loaded.state, classifier, member)
    updates = loaded.counters.updates if member else 0
    counters = replace(loaded.counters, updates=updates, version=loaded.counters.version + 1)
    after = replace(loaded, state=state, counters=counters, status=Status.LIVE)
    replaced = Replaced(0, updates, state)
    return Change(after, Entry(Kind.PROMOTION, counters, Status.LIVE, replaced=replaced, fit=fit))
