"""Bodies to arrays: the same points by every way in, and the first that is wrong is named."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from service import errors
from service.api.formats import (
    JSON,
    NDJSON,
    NPY,
    RAW,
    load_json,
    media_type,
    read_labelled,
    read_labels,
    read_points,
    read_query,
)
from service.api.schemas import OpenSession
from service.geometry import RADIUS_LIMIT
from service.sessions.spec import Spec


def spec(dimension: int = 2, **fields: Any) -> Spec:
    return OpenSession(dimension=dimension, reference="origin", **fields).spec()


def body(points: Any, labels: Any) -> bytes:
    return json.dumps({"points": points, "labels": labels}).encode()


def lines(*messages: Any) -> bytes:
    return b"\n".join(json.dumps(message).encode() for message in messages)


def npy(rows: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(rows), version, allow_pickle=False)
    return file.getvalue()


inside = st.floats(-0.49, 0.49)  # four of them are in the ball
batches = st.integers(1, 4).flatmap(
    lambda d: arrays.arrays(np.float64, st.tuples(st.integers(1, 40), st.just(d)), elements=inside)
)


@settings(deadline=None, derandomize=True)
@given(batches, st.randoms(use_true_random=False))
def test_every_way_in_gives_the_same_arrays(X: Any, random: Any) -> None:
    n, d = X.shape
    one = spec(d, labels=["no", 7, "yes"])
    indices = [random.randrange(3) for _ in range(n)]
    labels, rows = [one.labels[i] for i in indices], np.column_stack([X, np.array(indices, dtype="<f8")])
    messages = [{"label": label, "point": x} for x, label in zip(X.tolist(), labels, strict=True)]
    for batch in (
        read_labelled(body(X.tolist(), labels), JSON, one),
        read_labelled(lines(*messages), NDJSON, one),
        read_labelled(npy(rows), NPY, one),
        read_labelled(npy(np.asfortranarray(rows), (2, 0)), NPY, one),
        read_labelled(rows.tobytes(), RAW, one),
    ):
        assert batch.X.tobytes() == X.tobytes() and batch.X.shape == (n, d) and batch.X.flags.c_contiguous
        assert batch.indices.tolist() == indices and batch.indices.dtype == np.int64
    for points in (
        read_points(json.dumps({"points": X.tolist()}).encode(), JSON, one).X,
        read_points(lines(*({"point": x} for x in X.tolist())), NDJSON, one).X,
        read_points(npy(X, (3, 0)), NPY, one).X,
        read_points(npy(np.asfortranarray(X)), NPY, one).X,
        read_points(X.tobytes(), RAW, one).X,
        read_query([",".join(map(repr, row)) for row in X.tolist()], one).X,
    ):
        assert points.tobytes() == X.tobytes()


@pytest.mark.parametrize("d", [1, 2, 7, 300])
def test_the_ball_ends_at_the_same_bit_by_every_way_in(d: int) -> None:
    """Points around the limit, whose squares are added in another order by each way in: all take the same ones"""
    rng, one = np.random.default_rng(d), spec(d)
    directions = rng.normal(size=(200, d))
    steps = 1 + np.arange(-100, 100)[:, None] * 2.0**-54
    X = directions / np.linalg.norm(directions, axis=1)[:, None] * math.sqrt(one.largest_square) * steps
    taken = set()
    for x in X:
        row = np.append(x, 1.0)
        ways = (
            (body([x.tolist()], [1]), JSON),
            (lines({"point": x.tolist(), "label": 1}), NDJSON),
            (npy(row[None]), NPY),
        )
        found = set()
        for sent, kind in (*ways, (row.tobytes(), RAW), (np.stack([row] * 3).tobytes(), RAW)):
            try:
                found.add(read_labelled(sent, kind, one).X[0].tobytes() == x.tobytes())
            except errors.PointOutsideBall:
                found.add(False)
        assert len(found) == 1
        taken |= found
    assert taken == {True, False}


def test_one_is_a_batch_of_one() -> None:
    single = read_labelled(b'{"point": [0.1, -0.2], "label": -1}', JSON, spec())
    assert single.X.tolist() == [[0.1, -0.2]] and single.indices.tolist() == [0]
    assert read_points(b'{"point": [0.1, -0.2]}', JSON, spec()).X.tolist() == [[0.1, -0.2]]


@pytest.mark.parametrize("points", [[[0, 0]], [[0, 0.5], [-0.0, 0]], [[0, 0]] * 100, [[0.5, 0]] * 100])
def test_whole_numbers_are_coordinates(points: list[list[float]]) -> None:
    X = read_labelled(body(points, [1] * len(points)), JSON, spec()).X
    assert X.dtype == np.float64 and X.tolist() == points


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000])
@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_hides_nowhere(n: int, value: bool) -> None:
    points: list[list[Any]] = [[0.0, 0.0] if i % 2 else [0, 0.25] for i in range(n)]
    for index in {0, n // 2, n - 1}:
        for column in (0, 1):
            hidden = [list(row) for row in points]
            hidden[index][column] = value
            with pytest.raises(errors.NotANumber) as caught:
                read_labelled(body(hidden, [1] * n), JSON, spec())
            assert caught.value.members == {"index": index, "value": repr(value)}
    read_labelled(body(points, [1] * n), JSON, spec())


def test_a_boolean_is_no_label() -> None:
    one = spec(labels=[0, 1])
    for n in (1, 1000):
        for value in (True, False, 1.5, 0.5):
            with pytest.raises(errors.UnknownLabel) as caught:
                read_labelled(body([[0, 0]] * n, [1] * (n - 1) + [value]), JSON, one)
            assert caught.value.members["index"] == n - 1
    assert read_labelled(body([[0, 0]] * 2, [1, 0]), JSON, one).indices.tolist() == [1, 0]


def test_a_label_is_found_by_its_type() -> None:
    one = spec(labels=["1", 1, "", 0])
    assert read_labelled(body([[0, 0]] * 4, [1, "1", 0, ""]), JSON, one).indices.tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("NaN", errors.NonFinite),
        ("1e400", errors.NonFinite),
        ("-Infinity", errors.NonFinite),
        ("1" + "0" * 400, errors.NonFinite),
        ("1" + "0" * 308, errors.PointOutsideBall),
        ('"0.1"', errors.NotANumber),
        ("null", errors.NotANumber),
        ("true", errors.NotANumber),
        ("[0.1]", errors.NotANumber),
        ("{}", errors.NotANumber),
        ("1.0", errors.PointOutsideBall),
        ("0, 0.1", errors.DimensionMismatch),
    ],
)
@pytest.mark.parametrize(("n", "index"), [(1, 0), (20, 0), (20, 11), (20, 19), (5000, 4321)])
def test_the_first_bad_point_is_named(value: str, error: type[errors.HorocycleError], n: int, index: int) -> None:
    rows = ["[0.1, 0.2]"] * n
    rows[index] = f"[0, {value}]"
    if index + 1 < n:
        rows[-1] = rows[index]  # a second one, behind
    text = f'{{"points": [{", ".join(rows)}], "labels": {[1] * n}}}'.encode()
    with pytest.raises(error) as caught:
        read_labelled(text, JSON, spec())
    assert caught.value.members["index"] == index
    assert type(caught.value) is error


@pytest.mark.parametrize(("n", "index"), [(1, 0), (20, 11), (5000, 4321)])
def test_the_first_bad_raw_row_is_named(n: int, index: int) -> None:
    for column, value, error in (
        (0, np.nan, errors.NonFinite),
        (1, -np.inf, errors.NonFinite),
        (1, 1.0, errors.PointOutsideBall),
        (2, 2.0, errors.UnknownLabel),
        (2, -1.0, errors.UnknownLabel),
        (2, 0.5, errors.UnknownLabel),
        (2, np.nan, errors.UnknownLabel),
    ):
        rows = np.tile([0.1, 0.2, 1.0], (n, 1))
        rows[[index, n - 1], column] = value
        with pytest.raises(error) as caught:
            read_labelled(rows.tobytes(), RAW, spec())
        assert caught.value.members["index"] == index


def test_ragged_rows_with_the_right_number_of_values() -> None:
    with pytest.raises(errors.DimensionMismatch) as caught:
        read_labelled(body([[0.1, 0.2], [0.1], [0.1, 0.2, 0.3]], [1, 1, 1]), JSON, spec())
    assert caught.value.members == {"index": 1, "expected": 2, "got": 1}


@pytest.mark.parametrize(
    ("row", "error"),
    [('"ab"', errors.NotANumber), ('{"a": 1, "b": 2}', errors.NotANumber), ("[[0.1], [0.2]]", errors.NotANumber)],
)
def test_what_has_the_length_of_a_point_is_not_one(row: str, error: type[errors.HorocycleError]) -> None:
    with pytest.raises(error):
        read_points(f'{{"points": [[0, 0], {row}]}}'.encode(), JSON, spec())


def test_the_ball_is_that_of_the_session() -> None:
    wide = spec(curvature=0.01)
    assert read_points(b'{"point": [9, 3]}', JSON, wide).X.tolist() == [[9.0, 3.0]]
    with pytest.raises(errors.PointOutsideBall) as caught:
        read_points(b'{"point": [10, 0]}', JSON, wide)
    assert caught.value.members["norm"] == 10
    assert caught.value.members["limit"] == pytest.approx(math.tanh(RADIUS_LIMIT / 2) / math.sqrt(wide.curvature))


def test_big_batches() -> None:
    n, one = 200_000, spec(3, labels=["a", "b"])
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (n, 3))
    X[::7] = 0
    indices = np.arange(n) % 2
    text = orjson.dumps({"points": X.tolist(), "labels": np.array(["a", "b"])[indices].tolist()})
    batch = read_labelled(text, JSON, one)
    assert batch.X.tobytes() == X.tobytes() and (batch.indices == indices).all()
    raw = read_labelled(np.column_stack([X, indices]).tobytes(), RAW, one)
    assert raw.X.tobytes() == X.tobytes() and (raw.indices == indices).all()


def test_json_of_python_is_still_json() -> None:
    """What orjson refuses and Python reads: non-finite numbers, for those behind to name; nothing else."""
    assert np.isnan(load_json(b"[NaN]")[0]) and load_json(b'{"a": 1e400}') == {"a": float("inf")}
    assert load_json(b'["\\ud83d\\ude00", NaN]')[0] == "\N{GRINNING FACE}"
    for wrong in (b'["\\ud800", NaN]', b'{"\\udfff": NaN}', b"[NaN", b"\xef\xbb\xbf1", b"", b"[1,]", b"nan", b'"\xff"'):
        with pytest.raises(errors.MalformedBody):
            load_json(wrong)


def test_the_type_of_a_body() -> None:
    assert media_type(JSON, "identity") == media_type("Application/JSON; charset=utf-8", "") == JSON
    assert media_type(RAW, None) == RAW
    refused = [
        ("text/plain", None),
        (JSON, "gzip"),
        ("application/jsonx", None),
        (None, "br"),
        (None, None),
        ("", None),
    ]
    for header, encoding in refused:
        with pytest.raises(errors.UnsupportedMediaType):
            media_type(header, encoding)
    with pytest.raises(errors.UnsupportedMediaType):
        media_type(RAW, None, (JSON,))


@pytest.mark.parametrize(("points", "labels"), [(1, 0), (1, 2), (20, 19), (2, 1000)])
def test_as_many_labels_as_points(points: int, labels: int) -> None:
    with pytest.raises(errors.LengthMismatch) as caught:
        read_labelled(body([[0.1, 0.2]] * points, [1] * labels), JSON, spec())
    assert caught.value.members == {"points": points, "labels": labels}
    with pytest.raises(errors.EmptyBatch):
        read_labelled(body([], [1] * labels), JSON, spec())


# ------------------------------------------------------------------------------------ ndjson


def test_a_line_is_an_object_and_a_blank_line_nothing() -> None:
    text = b'\r\n{"point": [0.1, 0.2], "label": 1}\r\n\n  {"label": -1, "point": [0, 0]}  \n\n'
    batch = read_labelled(text, NDJSON, spec())
    assert batch.X.tolist() == [[0.1, 0.2], [0, 0]] and batch.indices.tolist() == [1, 0] and batch.truth is None
    strange = spec(labels=["}\n{", "\u2028", "},{"])
    odd = lines(*({"point": [0, 0], "label": label} for label in strange.labels))
    assert read_labelled(odd, NDJSON, strange).indices.tolist() == [0, 1, 2]


GOOD = b'{"point": [0, 0], "label": 1}'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", errors.EmptyBatch),
        (b" \n\r\n", errors.EmptyBatch),
        (GOOD + b"\n[]", errors.MalformedBody),
        (GOOD + b" " + GOOD, errors.MalformedBody),
        (GOOD + b"," + GOOD, errors.MalformedBody),
        (b'{"point": [0,\n0], "label": 1}', errors.MalformedBody),
        (b'{"point": [{}\n{}], "label": 1}', errors.MalformedBody),
        (GOOD + b"," + GOOD + b'\n{"point": [{}\n{}], "label": 1}', errors.NotANumber),
        (GOOD + b"\n{}", errors.InvalidRequest),
        (b'{"point": [0, 0]}\n{"label": 1}', errors.InvalidRequest),
        (b'{"point": [0, 0]}\n' + GOOD, errors.InvalidRequest),
        (GOOD + b'\n{"point": [0, 0], "label": 1, "truth": [0, 0]}', errors.InvalidRequest),
        (b'{"point": [0, 0]}', errors.InvalidRequest),
        (b'{"label": 1}', errors.InvalidRequest),
        (b'{"points": [[0, 0]], "labels": [1]}', errors.UnknownField),
        (GOOD + b'\n{"point": [0, NaN], "label": 1}', errors.NonFinite),
        (GOOD + b'\n{"point": [0, true], "label": 1}', errors.NotANumber),
        (GOOD + b'\n{"point": [0, 0], "label": true}', errors.UnknownLabel),
        (GOOD + b"\n\xff", errors.MalformedBody),
        (GOOD + b'\n{"point": [0, 0], "label": "\\ud800"}', errors.MalformedBody),
    ],
)
def test_lines_that_are_refused(text: bytes, error: type[errors.HorocycleError]) -> None:
    with pytest.raises(error) as caught:
        read_labelled(text, NDJSON, spec())
    assert type(caught.value) is error


def test_the_first_bad_line_is_named() -> None:
    for bad, error in (
        ('{"point": [0, 1.5], "label": 1}', errors.PointOutsideBall),
        ('{"point": [0], "label": 1}', errors.DimensionMismatch),
        ('{"point": [0, 0], "label": 7}', errors.UnknownLabel),
        ('{"label": 1}', errors.InvalidRequest),
        ("7", errors.MalformedBody),
    ):
        with pytest.raises(error) as caught:
            read_labelled(b"\n".join([GOOD, b"", GOOD, bad.encode(), GOOD, bad.encode()]), NDJSON, spec())
        assert caught.value.members["index"] == 2


# --------------------------------------------------------------------------------------- npy


def header(text: str, data: bytes = bytes(24), magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    return magic + len(text).to_bytes(2, "little") + text.encode("latin-1") + data


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3)}"


def test_an_npy_file_is_read_by_its_header_alone() -> None:
    assert read_labelled(header(HEADER), NPY, spec()).X.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (b"", errors.MalformedBody),
        (b"\x93NUMPY", errors.MalformedBody),
        (header(HEADER, magic=b"\x93NUMPX\x01\x00"), errors.MalformedBody),
        (header(HEADER)[:-1], errors.MalformedBody),
        (header(HEADER) + b"\0", errors.MalformedBody),
        (header(HEADER, b""), errors.MalformedBody),
        (header(HEADER.replace("(1, 3)", "(10**9, 3)")), errors.MalformedBody),
        (header(HEADER.replace("(1, 3)", "(1000000000000, 3)")), errors.MalformedBody),
        (header(HEADER.replace("(1, 3)", "(-1, 3)")), errors.MalformedBody),
        (header(HEADER.replace("(1, 3)", "(1e999, 3)")), errors.MalformedBody),
        (header(HEADER.replace("(1, 3)", "7")), errors.MalformedBody),
        (header(HEADER.replace("(1, 3)", "('a', 3)")), errors.MalformedBody),
        (header("{}"), errors.MalformedBody),
        (header("["), errors.MalformedBody),
        (header("[" * 2000), errors.MalformedBody),
        (header("__import__('os').abort()"), errors.MalformedBody),
        (header("\0"), errors.MalformedBody),
        (header(HEADER.ljust(5000)), errors.MalformedBody),
        (npy(np.zeros((0, 3))), errors.EmptyBatch),
        (npy(np.zeros((2, 2))), errors.DimensionMismatch),
        (npy(np.zeros(3)), errors.DimensionMismatch),
        (npy(np.zeros((1, 1, 3))), errors.DimensionMismatch),
        (npy(np.float64(1)), errors.DimensionMismatch),
        (npy(np.zeros((1, 3), dtype=">f8")), errors.NotANumber),
        (npy(np.zeros((1, 3), dtype="<f2")), errors.NotANumber),
        (npy(np.zeros((1, 3), dtype="<i8")), errors.NotANumber),
        (npy(np.array([["a", "b", "c"]])), errors.NotANumber),
        (npy(np.zeros(1, dtype=[("a", "<f8"), ("b", "<f8"), ("c", "<f8")])), errors.NotANumber),
        (header(HEADER.replace("<f8", "|O")), errors.NotANumber),
        (npy([[0.1, np.nan, 0]]), errors.NonFinite),
        (npy([[0.1, 1.0, 0]]), errors.PointOutsideBall),
        (npy([[0.1, 0.1, 2.0]]), errors.UnknownLabel),
    ],
)
def test_npy_files_that_are_refused(file: bytes, error: type[errors.HorocycleError]) -> None:
    with pytest.raises(error) as caught:
        read_labelled(file, NPY, spec())
    assert type(caught.value) is error


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.integers(0, 200), st.binary(min_size=1, max_size=6))
def test_a_damaged_npy_file_is_an_error_of_ours(at: int, damage: bytes) -> None:
    whole = npy([[0.1, 0.2, 1.0], [0.3, 0.1, 0.0]])
    try:
        batch = read_labelled(whole[:at] + damage + whole[at + len(damage) :], NPY, spec())
    except errors.InvalidInput:
        return
    assert batch.X.shape == (2, 2)


# ------------------------------------------------------------------------------- truth and ids


def test_the_truth_comes_along() -> None:
    both = read_labelled(
        b'{"points": [[0, 0], [0.1, 0]], "labels": [1, 1], "truth": [[0.2, 0], [0, 0.3]]}', JSON, spec()
    )
    one = read_labelled(b'{"point": [0, 0], "label": 1, "truth": [0.2, 0]}', JSON, spec())
    line = read_labelled(lines({"point": [0, 0], "label": 1, "truth": [0.2, 0]}), NDJSON, spec())
    for batch, truth in ((both, [[0.2, 0], [0, 0.3]]), (one, [[0.2, 0]]), (line, [[0.2, 0]])):
        assert batch.truth is not None and batch.truth.tolist() == truth
    rest = both[1:].truth
    assert rest is not None and rest.tolist() == [[0, 0.3]]


@pytest.mark.parametrize(
    ("truth", "error"),
    [
        ("[[0, 0], [0, 0]]", errors.LengthMismatch),
        ("[]", errors.LengthMismatch),
        ("[0, 0]", errors.LengthMismatch),
        ("[0]", errors.NotANumber),
        ("null", errors.InvalidRequest),
        ("1", errors.InvalidRequest),
        ("[[0]]", errors.DimensionMismatch),
        ("[[0, 1]]", errors.PointOutsideBall),
        ("[[0, NaN]]", errors.NonFinite),
        ('[["a", 0]]', errors.NotANumber),
    ],
)
def test_a_truth_that_is_refused(truth: str, error: type[errors.HorocycleError]) -> None:
    with pytest.raises(error):
        read_labelled(f'{{"points": [[0, 0]], "labels": [1], "truth": {truth}}}'.encode(), JSON, spec())


def test_ids_are_strings_and_integers_and_no_two_are_one() -> None:
    values = [1, "1", "", "a", "ä", '"1"', -1, 0]
    with pytest.raises(errors.InvalidRequest):  # the empty one
        read_points(json.dumps({"points": [[0, 0]] * 8, "ids": values}).encode(), JSON, spec())
    values.remove("")
    many = read_points(json.dumps({"points": [[0, 0]] * 7, "ids": values}).encode(), JSON, spec())
    by_line = read_points(lines(*({"point": [0, 0], "id": value} for value in values)), NDJSON, spec())
    late = read_labels(json.dumps({"ids": values, "labels": [1] * 7}).encode(), JSON, spec())
    assert many.ids == by_line.ids == late.ids and len(set(many.ids)) == 7
    assert [json.loads(id) for id in many.ids] == values
    assert read_points(b'{"point": [0, 0], "id": 7}', JSON, spec()).ids == ("7",)
    assert read_points(b'{"point": [0, 0]}', JSON, spec()).ids == ()


@pytest.mark.parametrize(
    "id", ["true", "null", "1.0", "1e3", "[]", "{}", "NaN", '""', f'"{"a" * 201}"', "1" + "0" * 300]
)
def test_what_is_no_id(id: str) -> None:
    for text in (f'{{"points": [[0, 0]], "ids": [{id}]}}', f'{{"point": [0, 0], "id": {id}}}'):
        with pytest.raises(errors.InvalidRequest):
            read_points(text.encode(), JSON, spec())
    with pytest.raises(errors.InvalidRequest):
        read_labels(f'{{"id": {id}, "label": 1}}'.encode(), JSON, spec())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"ids": [], "labels": []}', errors.EmptyBatch),
        ('{"ids": ["a"], "labels": []}', errors.LengthMismatch),
        ('{"ids": ["a", "a"], "labels": [1, 1]}', errors.InvalidRequest),
        ('{"ids": ["a"]}', errors.InvalidRequest),
        ('{"labels": [1]}', errors.InvalidRequest),
        ('{"ids": "a", "labels": [1]}', errors.InvalidRequest),
        ('{"ids": ["a"], "id": "a", "labels": [1]}', errors.InvalidRequest),
        ('{"ids": ["a"], "labels": [2]}', errors.UnknownLabel),
        ('{"ids": ["a"], "labels": [1], "points": [[0, 0]]}', errors.UnknownField),
        ("[]", errors.InvalidRequest),
    ],
)
def test_late_labels_that_are_refused(text: str, error: type[errors.HorocycleError]) -> None:
    with pytest.raises(error):
        read_labels(text.encode(), JSON, spec())


def test_as_many_ids_as_points() -> None:
    with pytest.raises(errors.LengthMismatch):
        read_points(b'{"points": [[0, 0], [0, 0]], "ids": ["a"]}', JSON, spec())
    with pytest.raises(errors.InvalidRequest):
        read_points(lines({"point": [0, 0], "id": "a"}, {"point": [0, 0]}), NDJSON, spec())
