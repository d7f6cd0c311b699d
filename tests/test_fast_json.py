"""The compiled reader and orjson: the same rows to the bit, or none; whatever the body, and whatever is beside it."""

from __future__ import annotations

import json
import math
import random
import struct
from array import array
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest

from service.api import formats
from service.api.formats import JSON, read_json, read_labelled, read_points
from service.api.schemas import OpenSession
from service.errors import HorocycleError
from service.geometry import Array
from service.sessions import fast_json
from service.sessions.spec import Spec

BINARY = OpenSession(dimension=2, reference=[0.1, 0.2]).spec()
LINE = OpenSession(dimension=1, reference=[0.1]).spec()
NAMED = OpenSession(dimension=2, reference=[0.1, 0.2], labels=["a", "b[,]", '"', "é"]).spec()
TRUTH = OpenSession(dimension=2, reference=[0.1, 0.2], labels=[False, True]).spec()
LONG = "a word of more than eight bytes"
WORDS = OpenSession(dimension=2, reference=[0.1, 0.2], labels=["1", "true", LONG, "日本"]).spec()


def read_alone(body: bytes, d: int) -> Array | None:
    """The points of a body without labels; None: it is not good"""
    rows, (n,) = read_json([body], fast_json.without_labels(d))
    return rows if n > 0 else None


# ----------------------------------------------------------------------------------------------------- numbers


def read_number(token: str) -> float | None:
    found = read_alone(b'{"point":[%s]}' % token.encode(), 1)
    return None if found is None else float(found[0, 0])


def by_orjson(token: str) -> float:
    return float(array("d", [orjson.loads(token)])[0])


def same(token: str) -> bool:
    """Whether it was read; that what was read is what orjson reads, to the bit"""
    x = read_number(token)
    if x is not None:
        assert struct.pack("d", x) == struct.pack("d", by_orjson(token)), (token, x)
    return x is not None


def spellings(x: float) -> Iterator[str]:
    yield from (repr(x), f"{x:.17g}", f"{x:.18e}", f"{x:.16e}", f"{x:.3g}", f"{x:.10e}".replace("e", "E"))


def test_every_spelling_of_a_normal_number_is_read_to_the_bit() -> None:
    rng = random.Random(1)
    for _ in range(2500):
        exponent = rng.choice([rng.randrange(1, 2047), rng.randrange(960, 1030)])
        x = struct.unpack("d", struct.pack("Q", rng.getrandbits(52) | exponent << 52 | rng.getrandbits(1) << 63))[0]
        if not 1e-306 < abs(x) < 1e307:
            continue
        for token in spellings(x):
            assert same(token), token
    for _ in range(2000):
        assert same(repr(rng.random()))
        assert same(str(rng.randrange(-(10 ** rng.randrange(1, 19)), 10 ** rng.randrange(1, 19))))
        assert same(f"{rng.randrange(10**19)}e{rng.randrange(-320, 280)}")


def test_numbers_halfway_between_two_are_read_to_the_bit() -> None:
    """Exactly halfway, and with a digit more or less at the end, where 19 digits are enough to say so"""
    rng, read = random.Random(2), 0
    for _ in range(600):
        m = rng.getrandbits(53) | 1 << 53 | 1  # 54 bits, the last a half of the unit
        for power in range(-8, 8):
            exact = Decimal(m) * Decimal(2) ** power
            digits = f"{exact:f}".rstrip("0") if "." in f"{exact:f}" else str(exact)
            read += same(digits) + same(digits[:-1] + str((int(digits[-1]) + 1) % 10))
    assert read > 600


EXTREMES = """0 -0 0.0 -0.0 0e5 -0e5 -0.0e0 0E-5 0e400 -0e-400 1 -1 1e22 1e23 -1e-22 1E+2 1e0 1e00 1e-00005
    9007199254740991 9007199254740992 9007199254740993 9007199254740995 9223372036854775807 -9223372036854775808
    9999999999999999999 0.1 0.3 2.2250738585072014e-308 2.2250738585072011e-308 4.4501477170144023e-308
    1.7976931348623157e308 1.7976931348623158e308 0.000000000000000000001 0.0000000000001234567890123456789 12345678
    123456789 1234567890123456 0.12345678 0.123456789 0.1234567890123456 1.0000000000000000 7.2057594037927933e16
    6.9294956446009195e15 8.98846567431158e307 1e-307 5e-1""".split()


@pytest.mark.parametrize("token", EXTREMES)
def test_extremes_are_read_as_orjson_reads_them(token: str) -> None:
    assert same(token) or token in ("2.2250738585072011e-308",), token


LEFT = """5e-324 2e-310 1e-400 -1e-400 1e309 1.7976931348623159e308 1e400 18446744073709551615
    123456789012345678901 1e999999999 0.10000000000000000000000001 0.000000000000000000000000000000""".split()


@pytest.mark.parametrize("token", LEFT)
def test_few_numbers_are_left_to_orjson(token: str) -> None:
    """Those next to 0, beyond the largest, and of more than 19 digits"""
    assert read_number(token) is None


NONE = """01 -01 00 1. .5 -.5 +1 1e 1e+ 1e- 1e+- - -- 1-1 1_0 0x1 NaN nan Infinity -Infinity 1.e5 1.5.5 1e5.5 1e5e5 ١ １
    1: 1; 1/ null '1' []""".split()
NONE += ["", "1 1", "- 1", "1 .5", "1. 5", "1e 5", '"1"', "1\x00", "\xa01", "1\x0b"]


@pytest.mark.parametrize("token", NONE)
def test_what_is_no_number_is_none(token: str) -> None:
    assert read_number(token) is None
    with pytest.raises((orjson.JSONDecodeError, TypeError)):
        by_orjson(token)


# ------------------------------------------------------------------------------------------------------ bodies


def outcome(body: bytes, spec: Spec, labelled: bool) -> Any:
    """What is read, to the bit, or what is said"""
    try:
        if labelled:
            batch = read_labelled(body, JSON, spec)
            truth = None if batch.truth is None else batch.truth.tolist()
            return batch.X.tobytes(), batch.X.shape, batch.indices.tolist(), truth
        asked = read_points(body, JSON, spec)
        return asked.X.tobytes(), asked.X.shape, asked.ids
    except HorocycleError as error:
        return type(error).__name__, error.detail, error.members


def none(*_: Any) -> tuple[Array, list[int]]:
    return np.empty((0, 0)), [-1]


def agree(body: bytes, spec: Spec) -> None:
    for labelled in (True, False):
        quick = outcome(body, spec, labelled)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(formats, "read_json", none)  # then orjson reads it
            assert quick == outcome(body, spec, labelled), body


def is_read(body: bytes, spec: Spec, labelled: bool = True) -> bool:
    if labelled:
        return read_json([body], spec.json_table)[1] != [-1]
    return read_alone(body, spec.dimension) is not None


GOOD: dict[str, tuple[Spec, bool, bytes]] = {
    "integers for labels": (BINARY, True, b'{"points":[[0.1,0.2],[-3e-1,0]],"labels":[1,-1]}'),
    "floats for labels": (BINARY, True, b'{"points":[[0.1,0.2],[-3e-1,0]],"labels":[1.0,-1.0]}'),
    "strings for labels": (NAMED, True, b'{"points":[[0.1,0.2],[0.3,0]],"labels":["a","\xc3\xa9"]}'),
    "brackets in a label": (NAMED, True, b'{"points":[[0.1,0.2]],"labels":["b[,]"]}'),
    "booleans for labels": (TRUTH, True, b'{"points":[[0.1,0.2],[0.3,0]],"labels":[true , false]}'),
    "strings like others": (WORDS, True, b'{"points":[[0.1,0.2],[0.3,0]],"labels":["true","1"]}'),
    "long strings": (
        WORDS,
        True,
        '{"points":[[0.1,0.2],[0.3,0]],"labels":["a word of more than eight bytes","日本"]}'.encode(),
    ),
    "labels first": (BINARY, True, b'{"labels":[1,-1],"points":[[0.1,0.2],[0.3,0]]}'),
    "with spaces": (BINARY, True, b' {"points" :\n[ [0.1 ,\t0.2 ] ] ,"labels": [ 1 ] }\r\n'),
    "one": (BINARY, True, b'{"point":[0.1,0.2],"label":-1}'),
    "one, its label first": (TRUTH, True, b'{"label":true,"point":[0.1,0.2]}'),
    "one of one dimension": (LINE, True, b'{"point":[0],"label":1}'),
    "points alone": (BINARY, False, b'{"points":[[0.1,0.2],[0.3,-0.0]]}'),
    "a point alone": (BINARY, False, b'{ "point" : [0.1,0.2] }'),
    "one dimension": (LINE, True, b'{"points":[[0.1],[0.3]],"labels":[1,1]}'),
}


@pytest.mark.parametrize("name", GOOD)
def test_bodies_of_the_shape_are_read_here(name: str) -> None:
    spec, labelled, body = GOOD[name]
    assert is_read(body, spec, labelled)
    agree(body, spec)
    message = orjson.loads(body)
    points = message.get("points") or [message["point"]]
    if labelled:
        labels = message["labels"] if "labels" in message else [message["label"]]
        rows, counts = read_json([body], spec.json_table)
        assert counts == [len(points)]
        assert rows.tolist() == [[*x, spec.index[y]] for x, y in zip(points, labels, strict=True)]


@pytest.mark.parametrize("name", GOOD)
def test_a_body_that_is_cut_is_not_read_on(name: str) -> None:
    """At every byte, alone and before the rest of it; and the bytes behind it are no part of it"""
    spec, labelled, body = GOOD[name]
    table = spec.json_table if labelled else fast_json.without_labels(spec.dimension)
    body = body.strip()
    for at in range(1, len(body)):
        assert read_json([body[:at]], table)[1] == [-1]
        assert read_json([body[:at], body[at:]], table)[1] == [-1, -1]


def test_nothing_is_read_behind_the_end() -> None:
    """Eight bytes are loaded at once: those behind the end are zeros, whatever is there"""
    text = np.arange(1, 33, dtype=np.uint8)
    for end in range(8, 25):
        for i in range(end + 9):
            word = fast_json._word(text.ctypes.data, i, end)
            assert int(word) == int.from_bytes(text[i:end][:8].tobytes(), "little")
            assert fast_json._byte(text.ctypes.data, i, end) == (text[i] if i < end else 0)


OTHERS = [
    b"",
    b"{}",
    b"[]",
    b"{",
    b'{"points":[],"labels":[]}',
    b'{"points":[[]],"labels":[1]}',
    b'{"points":[[0.1,0.2]],"labels":1}',
    b'{"points":[[0.1,0.2]],"labels":[]}',
    b'{"points":[[0.1,0.2]],"labels":[1,1]}',
    b'{"points":[[0.1,0.2],[0.1,0.2]],"labels":[1]}',
    b'{"labels":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"points":[[0.1,0.2]]}',
    b'{"points":[[0.1,0.2],[0.1]],"labels":[1,1]}',
    b'{"points":[[0.1],[0.2,0.3,0.4]],"labels":[1,1]}',
    b'{"points":[[[0.1,0.2]],[0.3,0.4]],"labels":[1,1]}',
    b'{"points":[[[0.1],0.2]],"labels":[1]}',
    b'{"points":[0.1,0.2],"labels":[1]}',
    b'{"point":[[0.1,0.2]],"label":1}',
    b'{"point":[0.1,0.2],"label":[1]}',
    b'{"point":[0.1,0.2],"labels":[1]}',
    b'{"point":[0.1,0.2]}',
    b'{"label":1}',
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
    b'{"points":[[0.1,1e-320]],"labels":[1]}',
    b'{"points":[[0.8,0.6]],"labels":[1]}',
    b'{"points":[[1e200,0.6]],"labels":[1]}',
    b'{"points":[[0.1,0.2]],"labels":[true]}',
    b'{"points":[[0.1,0.2]],"labels":["1"]}',
    b'{"points":[[0.1,0.2]],"labels":[01]}',
    b'{"points":[[0.1,0.2]],"labels":[1e0]}',
    b'{"points":[[0.1,0.2]],"labels":[1.00]}',
    b'{"points":[[0.1,0.2]],"labels":[2]}',
    b'{"points":[[0.1,0.2]],"labels":[+1]}',
    b'{"points":[[0.1,0.2]],"labels":[]1]}',
    b'{"points":[[0.1,0.2]],"labels":[,1]}',
    b'{"points":[[0.1,0.2]],"labels":[1,]}',
    b'{"points":[[0.1,0.2]],"labels":[[1]]}',
    b'{"points":[[0.1,0.2]],"labels":[{"":1}]}',
    b'{"points":[[0.1,0.2]],"labels":["b[,]"]}',
    b'{"points":[[0.1,0.2]],"labels":["\\""]}',
    b'{"points":[[0.1,0.2],[0.1,0.2]],"labels":["a\\",\\"a"]}',
    b'{"points":[[0.1,0.2]],"labels":["\\u0061"]}',
    b'{"points":[[0.1,0.2]],"labels":["\\ud800"]}',
    b'{"points":[[0.1,0.2]],"labels":["\xff"]}',
    b'{"points":[[0.1,0.2]],"labels":["a\nb"]}',
    b'{"points":[[0.1,0.2]],"labels":["a]}',
    b'{"points":[[0.1,0.2]],"points":[[0.3,0.4]]}',
    b'{"points":[[0.1,0.2]],"points":[[0.3,0.4]],"labels":[1]}',
    b'{"points":[[0.1,0.2]],"labels":[1],"labels":[1]}',
    b'{"labels":[1],"labels":[[0.3,0.4]]}',
    b'{"po\\u0069nts":[[0.1,0.2]],"labels":[1]}',
    b'{"points":[[0.1,0.2]],"label":[1]}',
    b'{"points":[[0.1,0.2]],"label":1}',
    b'{"points":[[0.1,0.2]],"point":[0.1,0.2],"labels":[1],"label":1}',
    b'{"points":[[0.1,0.2]],"ids":[1]}',
    b'{"points":[[0.1,0.2]],"labels":[1],"truth":[[0.1,0.2]]}',
    b'{"points":[[0.1,0.2]],"labels":[1],}',
    b'{"points":[[0.1,0.2]],"labels":[1]}x',
    b'{"points":[[0.1,0.2]],"labels":[1]}}',
    b'{"points":[[0.1,0.2]] "labels":[1]}',
    b'{"points":[[0.1,0.2]],"labels" [1]}',
    b'{"points":[[0.1,0.2]],"labels":[1]',
    b'{"points":[[0.1,0.2],],"labels":[1]}',
    b'{"points":[[0.1,,]],"labels":[1]}',
    b'{"points":[[,]],"labels":[]}',
    b'\xef\xbb\xbf{"points":[[0.1,0.2]],"labels":[1]}',
    '{"points":[[0.1,0.2]],"labels":[1]}'.encode("utf-16"),
    b'{"points":[[0.1,0.2]],"labels":[1]}\x00',
    b'{"points":[[0.1,0.2]],"labels":[1]}\x0c',
]


@pytest.mark.parametrize("body", OTHERS)
@pytest.mark.parametrize("spec", [BINARY, LINE, NAMED, TRUTH], ids=["binary", "line", "named", "truth"])
def test_of_any_other_body_the_same_is_said(body: bytes, spec: Spec) -> None:
    agree(body, spec)
    if body != b'{"points":[[0.1,0.2]],"labels":[true]}' and b"b[,]" not in body:
        assert not is_read(body, spec)


def test_bodies_with_any_few_changes_are_read_alike() -> None:
    rng, quick = random.Random(5), 0
    pieces = b'[ ] { } , : " \\ 0 1 7 3 - . e 1e9 true null \xff \xc3\xa9 [0.1,0.2] [0.1] 00000000000000000000'.split()
    pieces += [b"", b"\x00", b",1", b'"a"', b'"labels":', b'"points":', b'"label":']
    pieces += 4 * [b" ", b"\n", b"1", b"2", b"45678901", b"e-1"]
    for _ in range(5000):
        spec, labelled, body = rng.choice(list(GOOD.values()))
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(body) + 1)
            cut = rng.choice([0, 0, 0, 1, 1, 2, 9])
            body = body[:at] + rng.choice([*pieces, bytes([rng.randrange(256)])]) + body[at + cut :]
        agree(body, spec)
        quick += is_read(body, spec, labelled)
    assert quick > 150  # it is not that all of them are left to orjson


def test_a_bad_body_leaves_those_beside_it_alone() -> None:
    rng = random.Random(6)
    good = [body for spec, labelled, body in GOOD.values() if spec is BINARY and labelled]
    alone = {body: read_json([body], BINARY.json_table) for body in [*good, *OTHERS]}
    for _ in range(300):
        bodies = rng.choices(good, k=rng.randrange(8)) + rng.choices(OTHERS, k=rng.randrange(8))
        rng.shuffle(bodies)
        rows, counts = read_json(bodies, BINARY.json_table)
        assert counts == [alone[body][1][0] for body in bodies]
        assert rows.tobytes() == b"".join(alone[body][0].tobytes() for body in bodies)


def test_points_are_taken_up_to_the_largest_square() -> None:
    for x, y in ((0.6, 0.8), (0.1, 0.7)):
        square = x * x + y * y
        body = b'{"point":[%r,%r],"label":0}' % (x, y)
        assert read_json([body], fast_json.table(2, square, [0]))[1] == [1]
        assert read_json([body], fast_json.table(2, math.nextafter(square, 0), [0]))[1] == [-1]


def spaced(value: Any) -> bytes:
    return json.dumps(value).encode()


def indented(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


@pytest.mark.parametrize("d", [1, 2, 3, 10, 1000])
def test_many_points_of_any_dimension_are_read(d: int) -> None:
    rng = np.random.default_rng(d)
    X, y = rng.normal(size=(20000 // d + 1, d)) / d, rng.integers(0, 3, 20000 // d + 1)
    labels: list[str | int] = ["a", 7, "ccc"]
    for written in (orjson.dumps, spaced, indented):
        body = written({"points": X.tolist(), "labels": [labels[i] for i in y]})
        rows, counts = read_json([body, body], fast_json.table(d, math.inf, labels))
        assert counts == [len(X)] * 2
        assert rows.tobytes() == np.tile(np.column_stack([X, y]), (2, 1)).tobytes()
        found = read_alone(written({"points": X.tolist()}), d)
        assert found is not None and found.tobytes() == X.tobytes()


def test_every_label_of_many_is_found() -> None:
    rng = random.Random(7)
    labels: list[str | int] = [i - 30_000 for i in range(60_000)]
    labels += ["x" * i for i in range(70)] + [f"{rng.getrandbits(128):x}"[: rng.randrange(12, 32)] for _ in range(5000)]
    labels = list(dict.fromkeys(labels))
    rng.shuffle(labels)
    body = orjson.dumps({"points": [[0]] * len(labels), "labels": labels})
    table = fast_json.table(1, 1.0, labels)
    assert read_json([body], table)[0][:, 1].tolist() == list(range(len(labels)))
    for token in (b"30000", b'"' + b"x" * 70 + b'"', b'"0"', b"-0", b"-0.0", b"true", b'""x', b'"'):
        assert read_json([b'{"point":[0],"label":%s}' % token], table)[1] == [-1]


@pytest.mark.parametrize("labels", [["\\", '"'], ["\ud800", "\n"], []])
def test_labels_that_need_an_escape_are_left_to_orjson(labels: list[str]) -> None:
    body = b'{"point":[0],"label":%s}' % json.dumps(labels[:1] or 0).encode().strip(b"[]")
    assert read_json([body], fast_json.table(1, 1.0, labels))[1] == [-1]


def test_room_is_in_proportion_to_the_bodies() -> None:
    rows, counts = read_json([b"[" * 10_000, b"," * 10_000], fast_json.table(5000, 1.0, [0, 1]))
    assert counts == [-1, -1]
    assert rows.base is None or rows.base.nbytes <= 6 * 20_000
    assert read_json([], fast_json.table(2, 1.0, [0, 1]))[1] == []
