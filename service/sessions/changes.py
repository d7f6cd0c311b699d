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
from service.sessions.spec import require_moderate


def with_settings(loaded: Loaded, settings: Mapping[str, Any]) -> Change:
    """Another name, time to live or keep_points"""
    spec = replace(loaded.spec, **settings)
    if "keep_points" in settings:
        require_moderate(spec)
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
    state = replace(loaded.state, **strategic.known_budget(spec.first_state()))
    counters = replace(loaded.counters, version=loaded.counters.version + 1)
    after = replace(loaded, spec=spec, state=state, counters=counters)
    replaced = Replaced(0, counters.updates, state)
    return Change(after, Entry(Kind.BUDGET, counters, loaded.status, replaced=replaced, spec=spec))


def with_promotion(loaded: Loaded, classifier: Classifier, fit: str) -> Change:
    """The learner begins anew from a fit"""
    counters = replace(loaded.counters, updates=0, version=loaded.counters.version + 1)
    state = promoted(loaded.spec, loaded.state, classifier)
    after = replace(loaded, state=state, counters=counters, status=Status.LIVE)
    replaced = Replaced(0, 0, state)
    return Change(after, Entry(Kind.PROMOTION, counters, Status.LIVE, replaced=replaced, fit=fit))
