"""How a session begins."""

from __future__ import annotations

from service.sessions.records import Counters, Loaded, Status
from service.sessions.spec import Spec


def first_session(spec: Spec) -> Loaded:
    """Before its first point"""
    return Loaded(spec, 0, Counters(), spec.first_state(), Status.WARMING if spec.warmup else Status.LIVE)
