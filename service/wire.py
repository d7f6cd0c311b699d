"""Bodies to arrays, all or nothing: the whole body is checked before anything is learned.

    application/json           {"points": [[…], …], "labels": […]} or {"point": […], "label": …}
    application/octet-stream   rows of little-endian float64: the coordinates, then (observe) the label's index

orjson reads JSON. It refuses NaN, 1e400 and lone surrogates; then Python's slower reader finds out which it was.
"""

from __future__ import annotations

import json
import math
import reprlib
import sys
from array import array
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.errors import (
    DimensionMismatch,
    EmptyBatch,
    InvalidRequest,
    LengthMismatch,
    MalformedBody,
    NonFinite,
    NotANumber,
    UnknownField,
    UnknownLabel,
    UnsupportedMediaType,
)
from service.geometry import Array, require_ball
from service.session import Spec

JSON = "application/json"
RAW = "application/octet-stream"


@dataclass(frozen=True)
class Batch:
    """Labelled points, checked: coordinates in the session's ball, labels as class indices."""

    X: Array
    indices: NDArray[np.int64]


def media_type(header: str | None, encoding: str | None, known: tuple[str, ...] = (JSON, RAW)) -> str:
    """The type of a body; no header means JSON."""
    if encoding not in (None, "", "identity"):
        raise UnsupportedMediaType(f"bodies come as they are, not encoded with {encoding!r}", encoding=encoding)
    kind = JSON if not header else header.split(";", 1)[0].strip().lower()
    if kind not in known:
        raise UnsupportedMediaType(f"{kind!r} is not read here; known are {', '.join(known)}", got=kind)
    return kind


def read_labelled(body: bytes, kind: str, spec: Spec) -> Batch:
    """The points and labels of an observe"""
    if kind == RAW:
        rows = _raw_rows(body, spec.dimension + 1)
        X = require_ball(np.ascontiguousarray(rows[:, :-1]), spec.dimension, c=spec.curvature)
        return Batch(X, _raw_labels(rows[:, -1], spec))
    message = _object(body, {"points", "labels", "point", "label"})
    points, labels = _either(message, "points", "point"), _either(message, "labels", "label")
    X = _points(points, spec)
    if len(labels) != len(X):
        raise LengthMismatch(points=len(X), labels=len(labels))
    return Batch(X, _labels(labels, spec))


def read_points(body: bytes, kind: str, spec: Spec) -> Array:
    """The points of a predict"""
    if kind == RAW:
        return require_ball(_raw_rows(body, spec.dimension), spec.dimension, c=spec.curvature)
    return _points(_either(_object(body, {"points", "point"}), "points", "point"), spec)


def read_query(values: list[str], spec: Spec) -> Array:
    """?x=0.1,-0.2, once or more"""
    if not values:
        raise InvalidRequest("a point is asked for as ?x=0.1,-0.2; there is no x", parameter="x")
    rows = []
    for index, value in enumerate(values):
        try:
            rows.append([_float(part) for part in value.split(",")])
        except ValueError:
            raise NotANumber(f"x {index} is {value!r}, not numbers with commas between", index, value) from None
    return _points(rows, spec)


def _float(text: str) -> float:
    """As JSON would have it: Python also reads 1_0 and the digits of every script."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def load_json(body: bytes) -> Any:
    """JSON, with non-finite numbers let through for those behind to name"""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        first = error
    try:
        value = json.loads(body.decode("utf-8"))
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate is no character
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"the body is not JSON: {first}") from error
    return value


def _object(body: bytes, allowed: set[str]) -> dict[str, Any]:
    message = load_json(body)
    if not isinstance(message, dict):
        raise InvalidRequest(f"the body is a JSON {type(message).__name__}, not an object")
    for field in message:
        if field not in allowed:
            raise UnknownField(field[:100], ", ".join(sorted(allowed)))
    return message


def _either(message: dict[str, Any], many: str, one: str) -> list[Any]:
    """The list under `many`, or the single value under `one`"""
    if (many in message) == (one in message):
        raise InvalidRequest(f"the body needs either {many!r} or {one!r}", field=many)
    if one in message:
        return [message[one]]
    values = message[many]
    if not isinstance(values, list):
        raise InvalidRequest(f"{many!r} is not a list", field=many)
    return values


def _points(points: list[Any], spec: Spec) -> Array:
    if not points:
        raise EmptyBatch
    X = _quickly(points, spec.dimension)
    return require_ball(_slowly(points, spec) if X is None else X, spec.dimension, c=spec.curvature)


def _quickly(points: list[Any], d: int) -> Array | None:
    """All at once, or None if some value is no number; array takes no strings, where NumPy would widen every cell."""
    try:
        if set(map(len, points)) != {d}:
            return None
        X = np.frombuffer(array("d", chain.from_iterable(points))).reshape(-1, d)
    except (TypeError, OverflowError):
        return None
    return X if _no_booleans(points, X) else None


def _no_booleans(points: list[Any], X: Array) -> bool:
    """An array reads true among numbers as 1. Only a 1 or a 0 can have been one, and those are rare."""
    if len(X) < 16:
        return not any(bool in map(type, row) for row in points)
    suspects = np.flatnonzero(((X == 1) | (X == 0)).any(axis=1))
    return not any(bool in map(type, points[i]) for i in suspects)


def _slowly(points: list[Any], spec: Spec) -> Array:
    """Row by row, to name what is wrong"""
    for index, row in enumerate(points):
        if not isinstance(row, list):
            raise NotANumber(f"point {index} is {reprlib.repr(row)}, not a list of numbers", index, _brief(row))
        for value in row:
            if isinstance(value, bool) or not isinstance(value, int | float):
                what = f"point {index} holds {reprlib.repr(value)}, which is not a number"
                raise NotANumber(what, index, _brief(value))
            if not abs(value) <= sys.float_info.max:
                raise NonFinite(index, math.inf if value > 0 else -math.inf if value < 0 else math.nan)
        if len(row) != spec.dimension:
            raise DimensionMismatch(spec.dimension, len(row), index=index)
    return np.array(points, dtype=np.float64)


def _labels(labels: list[Any], spec: Spec) -> NDArray[np.int64]:
    """Class indices. A label is found by value and type: true is not 1."""
    index = spec.index
    if set(map(type, labels)) <= {int, str} and index.keys() >= set(labels):
        return np.fromiter(map(index.__getitem__, labels), dtype=np.int64, count=len(labels))
    for i, label in enumerate(labels):
        if type(label) not in (int, str) or label not in index:
            raise UnknownLabel(i, _brief(label), str(list(spec.labels))[:200])
    raise AssertionError("unreachable: some label is unknown")


def _brief(value: object) -> object:
    """What an error shows of a value: not all of a long one, and not the depths of a deep one"""
    if isinstance(value, list | dict):
        return reprlib.repr(value)
    return value[:100] if isinstance(value, str) else value


def _raw_rows(body: bytes, columns: int) -> NDArray[np.float64]:
    if not body:
        raise EmptyBatch
    if len(body) % (8 * columns):
        raise DimensionMismatch(columns, len(body) // 8 % columns, what=f"{len(body)} bytes: the last row", index=-1)
    return np.frombuffer(body, dtype="<f8").reshape(-1, columns)


def _raw_labels(column: NDArray[np.float64], spec: Spec) -> NDArray[np.int64]:
    good = (column >= 0) & (column < len(spec.labels)) & (column == np.floor(column))
    if not good.all():
        index = int(np.argmin(good))
        raise UnknownLabel(index, float(column[index]), f"the indices 0 to {len(spec.labels) - 1}")
    return column.astype(np.int64)
