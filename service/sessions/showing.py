"""A session as it is answered, in the words of the API."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from service.errors import outer
from service.sessions.forking import progress
from service.sessions.hints import hints
from service.sessions.records import Listed, Loaded
from service.sessions.spec import asked, references


def shown(session: Loaded | Listed) -> dict[str, Any]:
    """A session as it is answered"""
    spec = session.spec
    body = {**asked(spec), "id": outer(spec.id), **asdict(session.counters), "status": session.status}
    body["created_at"] = spec.created_at
    body["progress"] = progress(session)
    body["failure"] = None if session.fork is None else session.fork.failure
    body["features"] = spec.features
    body["a"] = spec.a if spec.algorithm in ("second_order", "auto") else None
    body["budget"] = body["budget"] if spec.algorithm == "strategic" else None
    if isinstance(session, Loaded):
        body["hints"] = hints(session)
        if session.status == "live" and (points := references(spec, session.state)) is not None:
            body["reference"] = points[0] if len(points) == 1 else points
    return body
