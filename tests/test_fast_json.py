"""simdjson's way and orjson's: the same arrays, or the same word of what is wrong, whatever the body."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import orjson
import pytest

from service.api import fast_json
from service.api.formats import JSON, read_labelled, read_points
from service.api.schemas import OpenSession
from service.errors import HorocycleError
from service.sessions.spec import Spec

BINARY = OpenSession(dimension=2, reference=[0.1, 0.2]).spec()
LINE = OpenSession(dimension=1, reference=[0.1]).spec()
NAMED = OpenSession(dimension=2, reference=[0.1, 0.2], labels=["a", "b[,]", '"', "é"]).spec()


def outcome(body: bytes, spec: Spec, labelled: bool, least: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is read, to the bit, or what is said; by simdjson if the body has at least so many bytes"""
    monkeypatch.setattr(fast_json, "WORTH_IT", least)
    try:
        if labelled:
            batch = read_labelled(body, JSON, spec)
            truth = None if batch.truth is None else batch.truth.tolist()
            return batch.X.tobytes(), batch.X.shape, batch.indices.tolist(), truth
        asked = read_points(body, JSON, spec)
        return asked.X.tobytes(), asked.X.shape, asked.ids
    except HorocycleError as error:
        return type(error).__name__, error.detail, error.members


def agree(body: bytes, spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    for labelled in (True, False):
        quick = outcome(body, spec, labelled, 0, monkeypatch)
        assert quick == outcome(body, spec, labelled, 1 << 40, monkeypatch), body


GOOD: dict[str, tuple[Spec, bool, bytes]] = {
    "integers for labels": (BINARY, True, b'{"points":[[0.1,0.2],[-3e-1,0]],"labels":[1,-1]}'),
    "strings for labels": (NAMED, True, b'{"points":[[0.1,0.2],[0.3,0]],"labels":["a","\xc3\xa9"]}'),
    "labels first": (BINARY, True, b'{"labels":[1,-1],"points":[[0.1,0.2],[0.3,0]]}'),
    "with spaces": (BINARY, True, b' {"points" :\n[ [0.1 ,\t0.2 ] ] ,"labels": [ 1 ] }\r\n'),
    "points alone": (BINARY, False, b'{"points":[[0.1,0.2],[0.3,-0.0]]}'),
    "one dimension": (LINE, True, b'{"points":[[0.1],[0.3]],"labels":[1,1]}'),
    "the last digits": (
        BINARY,
        False,
        b'{"points":[[0.1234567890123456789,2.2250738585072014e-308],[5e-324,-0]]}',
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_bodies_of_the_shape_are_read_by_simdjson(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, labelled, body = GOOD[name]
    monkeypatch.setattr(fast_json, "WORTH_IT", 0)
    found = fast_json.read(body, spec.dimension, labelled=labelled)
    assert found is not None
    message = orjson.loads(body)
    assert found[0].tobytes() == np.array(message["points"], dtype=np.float64).tobytes()
    assert list(found[1]) == message.get("labels", [None] * len(found[0]))
    agree(body, spec, monkeypatch)


OTHERS = [
    b"",
    b"{}",
    b"[]",
    b'{"points":[],"labels":[]}',
    b'{"points":[[]],"labels":[1]}',
    b'{"points":[[0.1,0.2]],"labels":1}',
    b'{"points":[[0.1,0.2]],"labels":[1,1]}',
    b'{"points":[[0.1,0.2],[0.1]],"labels":[1,1]}',
    b'{"points":[[0.1],[0.2,0.3,0.4]],"labels":[1,1]}',
    b'{"points":[[[0.1,0.2]],[0.3,0.4]],"labels":[1,1]}',
    b'{"points":[[[0.1],0.2]],"labels":[1]}',
    b'{"points":[0.1,0.2],"labels":[1]}',
    b'{"points":[[0.1,true]],"labels":[1]}',
    b'{"points":[[0.1,null]],"labels":[1]}',
    b'{"points":[[0.1,"0.2"]],"labels":[1]}',
    b'{"points":[[0.1,1e400]],"labels":[1]}',
    b'{"points":[[0.1,123456789012345678901234567890]],"labels":[1]}',
    b'{"points":[[0.1,18446744073709551615]],"labels":[1]}',
    b'{"points":[[0.1,NaN]],"labels":[1]}',
    b'{"points":[[0.1,-Infinity]],"labels":[1]}',
    b'{"points":[[0.1,01]],"labels":[1]}',
    b'{"points":[[0.1,1.]],"labels":[1]}',
    b'{"points":[[0.1,2]],"labels":[1]}',
    b'{"points":[[0.1,0.2]],"labels":[true]}',
    b'{"points":[[0.1,0.2]],"labels":[1.0]}',
    b'{"points":[[0.1,0.2]],"labels":[[1]]}',
    b'{"points":[[0.1,0.2]],"labels":[{"":1}]}',
    b'{"points":[[0.1,0.2]],"labels":["b[,]"]}',
    b'{"points":[[0.1,0.2]],"labels":["\\""]}',
    b'{"points":[[0.1,0.2],[0.1,0.2]],"labels":["a\\",\\"a"]}',
    b'{"points":[[0.1,0.2]],"labels":["\\ud800"]}',
    b'{"points":[[0.1,0.2]],"labels":["\xff"]}',
    b'{"points":[[0.1,0.2]],"labels":["a\nb"]}',
    b'{"points":[[0.1,0.2]],"points":[[0.3,0.4]]}',
    b'{"labels":[1],"labels":[[0.3,0.4]]}',
    b'{"po\\u0069nts":[[0.1,0.2]],"labels":[1]}',
    b'{"points":[[0.1,0.2]],"label":[1]}',
    b'{"points":[[0.1,0.2]],"ids":[1]}',
    b'{"points":[[0.1,0.2]],"labels":[1],"truth":[[0.1,0.2]]}',
    b'{"points":[[0.1,0.2]],"labels":[1]}x',
    b'{"points":[[0.1,0.2]],"labels":[1]}}',
    b'{"points":[[0.1,0.2],],"labels":[1]}',
    b'{"points":[[0.1,,]],"labels":[1]}',
    b'{"points":[[,]],"labels":[]}',
    b'\xef\xbb\xbf{"points":[[0.1,0.2]],"labels":[1]}',
    '{"points":[[0.1,0.2]],"labels":[1]}'.encode("utf-16"),
    b'{"points":[[0.1,0.2]],"labels":[1]}\x00',
]


@pytest.mark.parametrize("body", OTHERS)
@pytest.mark.parametrize("spec", [BINARY, LINE, NAMED], ids=["binary", "line", "named"])
def test_of_any_other_body_the_same_is_said(body: bytes, spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    agree(body, spec, monkeypatch)


def test_escapes_are_left_to_orjson(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them are characters, lone surrogates for one, the two need not agree on from version to version"""
    monkeypatch.setattr(fast_json, "WORTH_IT", 0)
    body = b'{"points":[[0.1,0.2]],"labels":["\\u0061"]}'
    assert fast_json.read(body, 2, labelled=True) is None
    agree(body, NAMED, monkeypatch)


def test_bodies_with_any_few_changes_are_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, quick = random.Random(5), 0
    pieces = b'[ ] { } , : " \\ 0 1 7 3 - . e 1e9 true null \xff \xc3\xa9 [0.1,0.2] [0.1]'.split()
    pieces += [b"", b" ", b"\n", b",1", b'"a"', b'"labels":', b'"points":']
    for _ in range(6000):
        spec, labelled, body = rng.choice(list(GOOD.values()))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(body) + 1)
            cut = rng.choice([0, 0, 1, 1, 2, 9])
            body = body[:at] + rng.choice(pieces) + body[at + cut :]
        agree(body, spec, monkeypatch)
        monkeypatch.setattr(fast_json, "WORTH_IT", 0)
        quick += fast_json.read(body, spec.dimension, labelled=labelled) is not None
    assert quick > 100  # it is not that all of them are left to orjson
