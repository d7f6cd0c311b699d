"""Bodies to arrays: the same points by every way in, and the first that is wrong is named."""

from __future__ import annotations

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
from service.geometry import RADIUS_LIMIT
from service.schemas import OpenSession
from service.session import Spec
from service.wire import JSON, RAW, load_json, media_type, read_labelled, read_points, read_query


def spec(dimension: int = 2, **fields: Any) -> Spec:
    return OpenSession(dimension=dimension, **fields).spec()


def body(points: Any, labels: Any) -> bytes:
    return json.dumps({"points": points, "labels": labels}).encode()


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
    raw = np.column_stack([X, np.array(indices, dtype=float)]).astype("<f8").tobytes()
    by_json = read_labelled(body(X.tolist(), [one.labels[i] for i in indices]), JSON, one)
    by_raw = read_labelled(raw, RAW, one)
    for batch in (by_json, by_raw):
        assert batch.X.tobytes() == X.tobytes() and batch.X.shape == (n, d) and batch.X.flags.c_contiguous
        assert batch.indices.tolist() == indices and batch.indices.dtype == np.int64
    for points in (
        read_points(json.dumps({"points": X.tolist()}).encode(), JSON, one),
        read_points(X.tobytes(), RAW, one),
        read_query([",".join(map(repr, row)) for row in X.tolist()], one),
    ):
        assert points.tobytes() == X.tobytes()


def test_one_is_a_batch_of_one() -> None:
    single = read_labelled(b'{"point": [0.1, -0.2], "label": -1}', JSON, spec())
    assert single.X.tolist() == [[0.1, -0.2]] and single.indices.tolist() == [0]
    assert read_points(b'{"point": [0.1, -0.2]}', JSON, spec()).tolist() == [[0.1, -0.2]]


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
        for value in (True, False, 1.0, 0.0):
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
    assert read_points(b'{"point": [9, 3]}', JSON, wide).tolist() == [[9.0, 3.0]]
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
    assert (
        media_type(None, None)
        == media_type("", "identity")
        == media_type("Application/JSON; charset=utf-8", "")
        == JSON
    )
    assert media_type(RAW, None) == RAW
    for header, encoding in (("text/plain", None), (JSON, "gzip"), ("application/jsonx", None), (None, "br")):
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
