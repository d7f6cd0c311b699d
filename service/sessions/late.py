"""Late labels: the points of a request are found under their ids, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from service.sessions.records import Waiting
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.sessions.spec import Spec

#: What became of an id, as an answer keeps it.
LETTERS = {"waiting": b"A", "unknown": b"U", "expired": b"E", "learned": b"L"}


def resolved(spec: Spec, requests: Sequence[Request], fates: Mapping[str, Waiting]) -> tuple[list[Request], list[str]]:
    """The requests with the points of their ids, and the ids that are learned now"""
    found: list[Request] = []
    learned: list[str] = []
    taken = dict(fates)
    for request in requests:
        if request.late is not None:
            here = [taken[id] for id in request.ids]
            waiting = np.array([each.status == "waiting" for each in here])
            points = b"".join(each.point for each in here if each.status == "waiting")
            X = np.frombuffer(points, dtype="<f8").reshape(-1, spec.dimension)
            letters = b"".join(LETTERS[each.status] for each in here)
            request = replace(request, batch=Batch(X, request.late[waiting]), fates=letters)
            new = [id for id, each in zip(request.ids, here, strict=True) if each.status == "waiting"]
            learned += new
            taken |= dict.fromkeys(new, Waiting("learned"))
        found.append(request)
    return found, learned


def looked_up(
    spec: Spec, requests: Sequence[Request], ids: Sequence[str], found: Sequence[Waiting]
) -> tuple[list[Request], list[str]]:
    """`resolved`, of what was found for each id"""
    return resolved(spec, requests, dict(zip(ids, found, strict=True)))
