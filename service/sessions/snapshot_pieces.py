"""A snapshot in pieces, for sessions of any size: lines of JSON, of which only the first may be long.

    {"format": "horocycle-snapshot", "version": 3, "session": {…}, "counters": {…}, "status": …, "tally": base64,
     "confusion": [[i, j, n], …], "log": […], "sizes": {"state": bytes, "points": rows}}
    {"state": base64}              the learner as the store keeps it
    {"points": base64}             the retained points, oldest first, as rows of float64
    {"fit": {…}, "size": bytes}    a fit that has ended, oldest first; then its classifier:
    {"model": base64}
    {"digest": hex}                SHA-256 of all bytes before this line

The state, the points and each classifier may take several lines, of at most PIECE bytes before base64. Idempotency
keys, events, points that wait for labels and fits under way stay behind.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import orjson

from service.errors import InvalidSnapshot
from service.learners import encode
from service.sessions import saved_fits, snapshot
from service.sessions.records import Loaded
from service.sessions.saved_fit import SavedFit
from service.sessions.spec import Spec

VERSION = 3
#: Bytes of one line before base64.
PIECE = 1 << 20


def head(loaded: Loaded, state: bytes, points: int) -> bytes:
    told = {**snapshot.head(loaded), "version": VERSION, "sizes": {"state": len(state), "points": points}}
    return line(told)


def pieces(name: str, data: bytes, step: int = PIECE) -> Iterator[bytes]:
    for at in range(0, len(data), step):
        yield line({name: b64encode(data[at : at + step]).decode()})


def fit(saved: SavedFit) -> Iterator[bytes]:
    yield line({"fit": saved_fits.to_json(saved), "size": len(saved.model)})
    yield from pieces("model", saved.model)


def line(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document) + b"\n"


# --------------------------------------------------------------------------------------------------- reading


def check(document: dict[str, Any]) -> dict[str, Any]:
    """That it is a head of ours; the session it asks for"""
    if document.get("format") != snapshot.FORMAT or document.get("version") != VERSION:
        raise InvalidSnapshot(f"the first line is no head of a snapshot of version {VERSION}")
    session = document.get("session")
    if not isinstance(session, dict):
        raise InvalidSnapshot("the first line of the snapshot has no session")
    return session


def sizes(document: dict[str, Any], spec: Spec) -> tuple[int, int]:
    """Bytes of the state, and rows of points: no more than a session with these settings can have"""
    found = document.get("sizes")
    state, points = (found.get(name) for name in ("state", "points")) if isinstance(found, dict) else (None, None)
    if type(state) is not int or not 0 < state <= largest_state(spec):
        raise InvalidSnapshot("the size of the snapshot's state is not one of its algorithm")
    if type(points) is not int or not 0 <= points <= spec.keep_points:
        raise InvalidSnapshot(f"a snapshot of this session has at most {spec.keep_points} points, its keep_points")
    return state, points


def largest_state(spec: Spec) -> int:
    """Twice what it begins with: a basis may be kept beside a factor; and a little for what grows with the labels"""
    return 2 * len(encode(spec.first_state())) + 64 * spec.classes + (1 << 16)


def read_piece(document: dict[str, Any], name: str) -> bytes:
    if list(document) != [name] or not isinstance(document[name], str):
        raise InvalidSnapshot(f"a line of the snapshot has {', '.join(document)[:100] or 'nothing'}, not {name}")
    try:
        return b64decode(document[name], validate=True)
    except ValueError as error:
        raise InvalidSnapshot(f"a line of the snapshot's {name} is not base64") from error


def read_fit(document: dict[str, Any]) -> tuple[Any, int]:
    """A fit as it is told, and the bytes of its classifier"""
    told, size = document.get("fit"), document.get("size")
    if len(document) != 2 or type(size) is not int or not 0 <= size <= saved_fits.LARGEST_MODEL:
        raise InvalidSnapshot("a line of the snapshot is neither a fit nor the digest")
    return told, size
