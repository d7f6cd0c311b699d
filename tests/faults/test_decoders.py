"""Every decoder, fed with rubbish and with good bytes that were damaged: it raises one of our errors, or reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.api.formats import JSON, NDJSON, NPY, RAW, load_json, read_labelled, read_labels, read_points
from service.api.opening import imported
from service.api.schemas import ImportSession, OpenSession
from service.batch.classifier import Classifier
from service.errors import HorocycleError
from service.learners import decode, encode
from service.sessions import snapshot
from service.sessions.opening import first_session
from service.sessions.records import Kept
from service.sessions.rows import empty
from service.store import codec
from service.store.codec import Record, read_record

ROUNDS = settings(max_examples=150, deadline=None, derandomize=True)
SPEC = OpenSession(dimension=2, labels=["a", 1]).spec()
GOOD: dict[str, list[bytes]] = {
    JSON: [
        b'{"points": [[0.1, 0.2], [0.3, -0.4]], "labels": ["a", 1]}',
        b'{"point": [0.1, 0.2], "label": 1, "truth": [0.1, 0.2]}',
        b'{"points": [[0, 1e-3]], "ids": ["x"]}',
        b'{"ids": ["x", 2], "labels": ["a", 1]}',
    ],
    NDJSON: [b'{"point": [0.1, 0.2], "label": "a"}\n{"point": [0.3, 0.2], "label": 1}\n', b'{"id": 1, "label": "a"}'],
    RAW: [np.array([[0.1, 0.2, 1.0], [0.3, 0.1, 0.0]]).tobytes()],
    NPY: [],
}
HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"
GOOD[NPY].append(b"\x93NUMPY\x01\x00" + len(HEADER).to_bytes(2, "little") + HEADER + GOOD[RAW][0])
#: Pieces that parsers have stumbled over.
PIECES = [
    *(
        b"NaN",
        b"-Infinity",
        b"1e400",
        b"-1e999",
        b'"\\ud800"',
        b"\xff\xfe",
        b"\x00",
        b"[" * 2000,
        b"{" * 50,
        b"9" * 400,
    ),
    *(b"null", b"true", b'""', b"[]", b"{}", b"1_0", b"0x10", b"\xef\xbb\xbf", b"10" * 30, b"(1, " + b"9" * 20 + b")"),
]


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    """Good bytes with some overwritten, cut out, or put in; or bytes of any kind"""
    body = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=8)))
        body[at : at + draw(st.sampled_from([0, 1, len(piece), 20]))] = piece
    return bytes(body) if draw(st.booleans()) or body else draw(st.binary(max_size=200))


def survives(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except HorocycleError as error:
        assert len(error.detail) < 2000
        return None


@pytest.mark.parametrize("kind", [JSON, NDJSON, RAW, NPY])
def test_bodies_of_points(kind: str) -> None:
    @ROUNDS
    @given(damaged(GOOD[kind]))
    @example(b"")
    @example(b"\x93NUMPY\x01\x00\x40\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1, %d)}" % 10**20)
    def check(body: bytes) -> None:
        batch = survives(lambda: read_labelled(body, kind, SPEC))
        if batch is not None:
            assert batch.X.shape == (len(batch.indices), 2) and np.isfinite(batch.X).all()
            assert ((batch.indices >= 0) & (batch.indices < 2)).all()
        asked = survives(lambda: read_points(body, kind, SPEC))
        if asked is not None:
            assert np.isfinite(asked.X).all() and len(asked.ids) in (0, len(asked.X))
        if kind in (JSON, NDJSON):
            survives(lambda: read_labels(body, kind, SPEC))
            survives(lambda: load_json(body))

    check()


STATES = {
    name: encode(OpenSession(dimension=2, algorithm=name).spec().first_state())
    for name in ("auto", "perceptron", "second_order", "softmax", "gaussian", "strategic", "hyperboloid")
}


@pytest.mark.parametrize("name", STATES)
def test_every_flipped_byte_of_a_stored_learner_is_found(name: str) -> None:
    good = STATES[name]
    decode(good)
    for at in range(len(good)):
        for flip in (0x01, 0x80):
            bad = good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]
            with pytest.raises(HorocycleError):
                decode(bad)
        with pytest.raises(HorocycleError):
            decode(good[:at])


@ROUNDS
@given(damaged(list(STATES.values())))
def test_stored_learners(data: bytes) -> None:
    survives(lambda: decode(data))


def session_fields() -> dict[bytes, bytes]:
    loaded = first_session(SPEC)
    flat = codec.state_fields(None, loaded, encode(loaded.state))
    found = {
        str(name).encode(): value if isinstance(value, bytes) else str(value).encode()
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }
    return {**found, b"revision": b"0", b"entries": b"0", b"learner_at": b"0-0", b"check": b"0 0 /"}


@ROUNDS
@given(st.data())
def test_stored_sessions(data: st.DataObject) -> None:
    fields = session_fields()
    codec.read_state(fields)
    name = data.draw(st.sampled_from(sorted(fields)))
    changed = data.draw(st.one_of(st.none(), damaged([fields[name]])))
    bad = {key: value for key, value in fields.items() if key != name} | ({} if changed is None else {name: changed})
    survives(lambda: codec.read_state(bad))


@ROUNDS
@given(damaged([b"5-1"]), damaged([b"points"]), damaged([b"10 2 3 4 live"]), damaged([np.zeros((5, 3)).tobytes()]))
def test_entries_of_the_log(id: bytes, kind: bytes, head: bytes, rows: bytes) -> None:
    def read() -> None:
        record: Record = read_record(
            [id, [b"kind", kind, b"commit", b"1-a", b"head", head, b"points", b"5", b"rows", rows]]
        )
        codec.read_entry(record, SPEC)

    survives(read)


SNAPSHOT = json.dumps({"snapshot": snapshot.export(Kept(first_session(SPEC), empty(2)))}).encode()


@ROUNDS
@given(damaged([SNAPSHOT]))
def test_snapshots(body: bytes) -> None:
    def read() -> None:
        document = load_json(body)
        if isinstance(document, dict) and isinstance(document.get("snapshot"), dict):
            imported(ImportSession(snapshot=document["snapshot"]))

    survives(read)


@ROUNDS
@given(st.binary(max_size=300))
def test_stored_classifiers(data: bytes) -> None:
    survives(lambda: Classifier.unpack(data))
