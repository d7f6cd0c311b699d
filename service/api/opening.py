"""What a body of POST /sessions asks for: a snapshot to import, a fork of another session, or the sum of several."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from service.api.schemas import Fit, ForkSession, ImportSession, MergeSessions, OpenSession
from service.errors import InvalidRequest, InvalidSnapshot
from service.sessions import forking, snapshot
from service.sessions.records import Kept
from service.sessions.saved_fit import SavedFit
from service.sessions.spec import Spec, asked
from service.store.fit_queue import KEEP_FITS, shown

#: Settings of version 0.1 that are no more.
DROPPED = ("keep_events",)


def imported(body: ImportSession) -> Kept:
    snapshot.check(body.snapshot)
    kept = snapshot.read(body.snapshot, session_of(body.snapshot.get("session"), body.id, body.name).spec())
    if len({possible(fit).id for fit in kept.fits}) != len(kept.fits) or len(kept.fits) > KEEP_FITS:
        raise InvalidSnapshot(f"the snapshot has a fit twice, or more than {KEEP_FITS}")
    return kept


def session_of(given: Any, id: str | None, name: str | None) -> OpenSession:
    """What the session of a snapshot asks for, under another id"""
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if name not in DROPPED}
    try:
        session = OpenSession.model_validate(given)
    except ValidationError as error:
        raise InvalidSnapshot(f"the session of the snapshot: {error.errors()[0]['msg']}") from error
    return session.model_copy(update={"id": id, "name": name or session.name})


def possible(saved: SavedFit) -> SavedFit:
    """A fit that can be answered"""
    try:
        Fit.model_validate(shown(saved))
    except ValidationError as error:
        raise InvalidSnapshot(f"a fit of the snapshot: {error.errors()[0]['msg']}") from error
    return saved


def forked(body: ForkSession, source: Spec) -> Spec:
    """The fork's settings: those that are given, and the source's"""
    given = {name: getattr(body.fork, name) for name in body.fork.model_fields_set - {"session", "at"}}
    for name in ("id", "name"):
        if (beside := getattr(body, name)) is not None:
            if given.setdefault(name, beside) != beside:
                raise InvalidRequest(f"{name} is given twice, beside fork and in it", field=name)
    return OpenSession.model_validate(forking.settings(source, given)).spec()


def merging(body: MergeSessions, first: Spec) -> Spec:
    """The settings of the sum: those of the first session"""
    known = {**asked(first), "id": body.id, "name": body.name}
    return OpenSession.model_validate(known).spec()
