"""Changes of a session other than by learning: its settings, more labels, one member of a vote alone, the estimate of a
budget, a promoted fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.batch.classifier import Classifier
from service.errors import InvalidParameter
from service.learners import LEARNERS, auto, one_vs_rest, strategic
from service.learners.contract import FULL, full_matrices
from service.sessions.promotion import begun, placed
from service.sessions.published import alone
from service.sessions.records import Change, Entry, Kind, Loaded, Replaced, Status
from service.sessions.spec import MANY_CLASSES, Label, Spec, require_moderate

MOST_LABELS = 1000
Promoting = Callable[[Loaded], Change]


def with_settings(loaded: Loaded, settings: Mapping[str, Any]) -> Change:
    """Another name, time to live or keep_points, refits or none"""
    spec = replace(loaded.spec, **settings)
    if "keep_points" in settings:
        require_moderate(spec)
    if spec.warmup > spec.keep_points and loaded.status == Status.WARMING:
        raise InvalidParameter("keep_points", spec.keep_points, f"at least the warmup of {spec.warmup}")
    if spec.refit and not spec.has_softmax:
        raise InvalidParameter("refit", "doubling", "left out: this session has no softmax")
    after = replace(loaded, spec=spec, opened=loaded.opened or loaded.spec)
    return Change(after, Entry(Kind.SETTINGS, loaded.counters, loaded.status, spec=spec))


def with_member(change: Change, member: str) -> Change:
    """After that change, one member of a vote goes on alone"""
    loaded = change.after
    if member == loaded.spec.algorithm:
        return change
    if not isinstance(loaded.state, auto.State) or member not in loaded.spec.members:
        those = " or ".join(loaded.spec.members) or "left out: only auto has members to choose from"
        raise InvalidParameter("algorithm", member, those)
    state = loaded.state.members[loaded.spec.members.index(member)]
    return _replaced(change, alone(loaded.spec, member), state, "member")


def with_labels(change: Change, labels: Sequence[Label]) -> Change:
    """After that change, there are more classes; those that were there go on as they are"""
    loaded = change.after
    spec = replace(loaded.spec, labels=(*loaded.spec.labels, *labels))
    if {bool, int} <= spec.label_types:
        raise InvalidParameter("add_labels", list(labels), "of the kind the session has: true is not 1")
    if len(set(spec.labels)) < len(spec.labels):
        double = next(label for label in labels if spec.labels.count(label) > 1)
        raise InvalidParameter("add_labels", double, "labels that the session has not")
    if len(spec.labels) > MOST_LABELS:
        raise InvalidParameter("add_labels", len(spec.labels), f"at most {MOST_LABELS} labels in all")
    require_moderate(spec)
    if loaded.status == Status.WARMING:
        raise InvalidParameter("add_labels", list(labels), "sent once the session is live: it learns its reference now")
    if full_matrices(spec.dimension, loaded.spec.classes) and not full_matrices(spec.dimension, spec.classes):
        most = FULL // (spec.dimension + 2) ** 2
        if spec.kind in ("softmax", "gaussian", "auto"):
            what = f"at most {most} labels in all, while full matrices are kept; open a session with all of them"
            raise InvalidParameter("add_labels", len(spec.labels), what)
    if spec.kind in MANY_CLASSES:
        state = LEARNERS[spec.kind].grown(loaded.state, spec.classes)
    else:
        first = LEARNERS[spec.kind].first(spec)
        state = one_vs_rest.grown(loaded.state, first, spec.classes)
    return _replaced(change, spec, state, "labels")


def _replaced(change: Change, spec: Spec, state: Any, reason: str) -> Change:
    """With another learner, which is a new version"""
    loaded, entry = change.after, change.entry
    assert entry is not None
    counters = replace(loaded.counters, version=loaded.counters.version + 1)
    replaced = (Replaced(0, counters.updates, state, reason),)
    after = replace(loaded, spec=spec, state=state, counters=counters)
    return replace(change, after=after, entry=replace(entry, counters=counters, spec=spec, replaced=replaced))


def with_budget(change: Change, initial: float) -> Change:
    """After that change, the estimate of a strategic budget begins anew"""
    loaded = change.after
    if not isinstance(loaded.state, strategic.State) or not loaded.state.estimating:
        raise InvalidParameter("budget", "estimate", "left out: this session estimates none")
    spec = replace(loaded.spec, budget=initial)
    state = replace(loaded.state, **strategic.known_budget(spec.first_state()))
    counters = replace(loaded.counters, version=loaded.counters.version + 1)
    after = replace(loaded, spec=spec, state=state, counters=counters)
    replaced = Replaced(0, counters.updates, state, "budget")
    return Change(after, Entry(Kind.BUDGET, counters, loaded.status, replaced=(replaced,), spec=spec))


def with_promotion(loaded: Loaded, learner: Any, fit: str, member: str | None = None) -> Change:
    """The learner, or a member of its vote, begins anew: as this one, which was begun from a fit"""
    state = placed(loaded.spec, loaded.state, learner, member)
    updates = loaded.counters.updates if member else 0
    counters = replace(loaded.counters, updates=updates, version=loaded.counters.version + 1)
    after = replace(loaded, state=state, counters=counters, status=Status.LIVE)
    replaced = Replaced(0, updates, state, "promotion")
    return Change(after, Entry(Kind.PROMOTION, counters, Status.LIVE, replaced=(replaced,), fit=fit))


def promotion(loaded: Loaded, classifier: Classifier, fit: str, member: str | None) -> tuple[Any, Promoting]:
    """The learner begun from a fit, and the change that puts it in its place; it is begun anew where the settings have
    changed by then"""
    learner = begun(loaded.spec, loaded.state, classifier, member)

    def change(now: Loaded) -> Change:
        fresh = learner if now.spec == loaded.spec else begun(now.spec, now.state, classifier, member)
        return with_promotion(now, fresh, fit, member)

    return learner, change
