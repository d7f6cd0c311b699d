"""Bodies to arrays, all or nothing: the whole body is checked before anything is learned.

    application/json           {"points": [[…], …], "labels": […]} or {"point": […], "label": …}
    application/x-ndjson       {"point": […], "label": …} a line
    application/x-npy          NumPy's own file: rows of float64 or float32, the coordinates, then (observe) the label's
                               index, or with ?label=value the label itself
    application/octet-stream   the same rows, little-endian float64, without a header

Coordinates may be those of another model (?coordinates=), and points beyond the limit may be clipped (?outside=clip).

JSON that is rows of numbers and labels of the session alone is read in one compiled pass (fast_json). orjson reads any
other; it refuses NaN, 1e400 and lone surrogates, and then Python's slower reader finds out which it was.
"""

from __future__ import annotations

import ast
import json
import math
import re
import reprlib
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.api.label_values import ambiguous, brief, doubtful, indices_of, indices_of_column
from service.coordinates import AS_THEY_ARE, Placing, place, placing
from service.errors import (
    BodyTooLarge,
    DimensionMismatch,
    EmptyBatch,
    InvalidRequest,
    LengthMismatch,
    MalformedBody,
    NonFinite,
    NotANumber,
    UnknownField,
    UnsupportedMediaType,
)
from service.geometry import Array, require_ball
from service.learners import loops
from service.sessions import fast_json
from service.sessions.requests import Request, Unread
from service.sessions.rows import NUMBER, Batch, Rows, rows_of
from service.sessions.spec import Spec

JSON = "application/json"
NDJSON = "application/x-ndjson"
NPY = "application/x-npy"
RAW = "application/octet-stream"
FORMATS = (JSON, NDJSON, NPY, RAW)
TEXT = (JSON, NDJSON)
#: Of a JSON body for orjson: values; and lists and objects, each of which is an object to Python. Counted before it is
#: parsed: a parser makes them all in one call, during which nobody else is served.
VALUES, LISTS = 1 << 20, 250_000
#: Bytes of a body that is read a second time, by Python's slower reader, to say what is wrong.
EXPLAINED = 1 << 20
#: Bytes of JSON whose rows are cut to their length.
LARGE = 1 << 16
#: Bytes of NDJSON that are parsed in one call.
LINES = 1 << 18


@dataclass(frozen=True)
class Question:
    """Points to predict, and the ids under which they then wait for their labels."""

    X: Array
    ids: tuple[str, ...] = ()
    clipped: int = 0  # points that were moved to the radius limit, as was allowed


@dataclass(frozen=True)
class Reading:
    """How a body is to be read, where it can be read in several ways"""

    placing: Placing = AS_THEY_ARE
    label: str | None = None  # the last column of binary rows: index (the default) or value

    def __str__(self) -> str:
        return "" if self == PLAIN else f"{self.placing.coordinates} {self.placing.outside} {self.label} "


PLAIN = Reading()
#: The parameters that say it
READING = ("coordinates", "outside", "label")


@dataclass(frozen=True)
class LateLabels:
    ids: tuple[str, ...]
    indices: NDArray[np.int64]


@lru_cache
def media_type(header: str | None, encoding: str | None, known: tuple[str, ...] = FORMATS) -> str:
    """The type of a body. It has to be said: a web page may send text, or a form, to wherever it likes."""
    if encoding not in (None, "", "identity"):
        raise UnsupportedMediaType(f"bodies come as they are, not encoded with {encoding!r}", encoding=encoding)
    if not header:
        raise UnsupportedMediaType(f"a body needs its Content-Type; known are {', '.join(known)}")
    kind = header.split(";", 1)[0].strip().lower()
    if kind not in known:
        raise UnsupportedMediaType(f"{kind!r} is not read here; known are {', '.join(known)}", got=kind)
    return kind


def reading(query: dict[str, str]) -> Reading:
    """What the parameters of a request say about its body"""
    label = query.get("label")
    if label not in (None, "index", "value"):
        raise InvalidRequest(f"label is {label!r}; it may be index or value", parameter="label")
    return Reading(placing(query), label)


def read_labelled(body: bytes, kind: str, spec: Spec, how: Reading = PLAIN) -> Batch:
    """The points and labels of an observe"""
    if kind == JSON:
        if how.placing == AS_THEY_ARE:
            rows, (n,) = read_json([body], spec.json_table)
            if n > 0:
                return rows_of(rows)
        if (found := _to_be_placed(body, spec, how.placing)) is not None:
            return found
    if kind in (RAW, NPY):
        rows = _rows(body, kind, how.placing.width(spec.dimension) + 1)
        as_stored = kind == RAW and how.placing == AS_THEY_ARE and how.label != "value"
        if as_stored and loops.good_rows(rows, spec.surely_inside, len(spec.labels)):
            if not (how.label is None and ambiguous(rows[:, -1], spec)):
                return rows_of(rows, body)
        X, clipped = _placed(np.ascontiguousarray(rows[:, :-1]), spec, how.placing)
        indices = indices_of_column(rows[:, -1], spec, how.label)
        unclear = how.label is None and ambiguous(rows[:, -1], spec)
        return Batch(X, indices, packed=body if as_stored else None, clipped=clipped, ambiguous=unclear)
    columns = _columns(body, kind, {"point": "points", "label": "labels", "truth": "truth"})
    X, clipped = _points(_given(columns, "points", "point"), spec, how.placing)
    labels, truth = _given(columns, "labels", "label"), columns.get("truth")
    if len(labels) != len(X):
        raise LengthMismatch(points=len(X), labels=len(labels))
    if truth is not None and len(truth) != len(X):
        raise LengthMismatch(points=len(X), labels=len(truth), what="true points")
    true = None if truth is None else _points(truth, spec, how.placing)[0]
    return Batch(X, indices_of(labels, spec), true, clipped=clipped)


def read_bodies(spec: Spec, unread: Sequence[Unread]) -> list[Request | None]:
    """Bodies that are plain, read in one go; None: one that its sender has to read with more care"""
    texts, good, raw = [each.body for each in unread if not each.raw], list[Rows | None](), list[Rows | None]()
    if texts:
        table, counts = read_json(texts, spec.json_table)
        whole = Rows(table, table[:, -1].astype(np.int64))
        parts = iter([whole] if counts == [len(table)] else whole.parts([n for n in counts if n > 0]))
        good = [next(parts) if n > 0 else None for n in counts]
    if len(texts) < len(unread):
        raw = _read_rows([each.body for each in unread if each.raw], spec)
    texts_read, rows_read = iter(good), iter(raw)
    found: list[Request | None] = []
    for u in unread:
        if (batch := next(rows_read if u.raw else texts_read)) is not None:
            told = (u.if_match, u.columns, u.probabilities)
            found.append(Request(batch, u.fingerprint, u.key, *told, numbered=u.numbered))
        else:
            found.append(None if u.alone is None else u.alone(spec))
    return found


def read_json(bodies: Sequence[bytes], table: fast_json.Table) -> tuple[Array, list[int]]:
    """The rows of all good bodies, one behind the other: coordinates, then the index of the label's class; and how many
    rows each body has, -1: it is not good

    A row of d numbers has 2d + 1 bytes at least, so the rows have room of at most 5⅓ times the bytes of the bodies.
    """
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    text = b"".join(bodies)
    rows = np.empty((len(text) // (2 * table.d + 1), table.width))
    n = fast_json.read(text, sizes, table.words, table.most, rows, table.d)
    if len(text) > LARGE:  # give back what is not needed
        rows.resize((n, table.width), refcheck=False)
    return rows[:n], sizes.tolist()


def _read_rows(bodies: list[bytes], spec: Spec) -> list[Rows | None]:
    """Raw rows, checked together; one by one, if something is wrong with some"""
    counts = [0 if len(body) % spec.row_bytes else len(body) // spec.row_bytes for body in bodies]
    if all(counts) and not doubtful(spec.labels):
        packed = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        table = np.frombuffer(packed, dtype=NUMBER).reshape(-1, spec.dimension + 1)
        if loops.good_rows(table, spec.surely_inside, len(spec.labels)):
            return [*rows_of(table, packed).parts(counts)]
    return [None] if len(bodies) == 1 else [each for body in bodies for each in _read_rows([body], spec)]


def _to_be_placed(body: bytes, spec: Spec, how: Placing) -> Batch | None:
    """The points and labels of JSON in which at most the place of a point is amiss; None: any other body"""
    rows, (n,) = read_json([body], spec.json_table.anywhere(how.width(spec.dimension)))
    if n < 0:
        return None
    X, clipped = _placed(np.ascontiguousarray(rows[:, :-1]), spec, how)
    return Batch(X, rows[:, -1].astype(np.int64), clipped=clipped)


def read_points(body: bytes, kind: str, spec: Spec, how: Placing = AS_THEY_ARE) -> Question:
    """The points of a predict"""
    width = how.width(spec.dimension)
    if kind in (RAW, NPY):
        X, clipped = _placed(np.ascontiguousarray(_rows(body, kind, width)), spec, how)
        return Question(X, clipped=clipped)
    if kind == JSON:
        rows, (n,) = read_json([body], fast_json.without_labels(width))
        if n > 0:
            X, clipped = _placed(rows, spec, how)
            return Question(X, clipped=clipped)
    columns = _columns(body, kind, {"point": "points", "id": "ids"})
    X, clipped = _points(_given(columns, "points", "point"), spec, how)
    ids = _ids(columns.get("ids"))
    if ids and len(ids) != len(X):
        raise LengthMismatch(points=len(X), labels=len(ids), what="ids")
    return Question(X, ids, clipped)


def read_labels(body: bytes, kind: str, spec: Spec) -> LateLabels:
    """Labels for points that were predicted with ids"""
    columns = _columns(body, kind, {"id": "ids", "label": "labels"})
    ids, labels = _ids(_given(columns, "ids", "id")), _given(columns, "labels", "label")
    if not ids:
        raise EmptyBatch
    if len(labels) != len(ids):
        raise LengthMismatch(points=len(ids), labels=len(labels), of="ids")
    return LateLabels(ids, indices_of(labels, spec))


def read_query(values: list[str], spec: Spec, how: Placing = AS_THEY_ARE) -> Question:
    """?x=0.1,-0.2, once or more"""
    if not values:
        raise InvalidRequest("a point is asked for as ?x=0.1,-0.2; there is no x", parameter="x")
    rows = []
    for index, value in enumerate(values):
        try:
            rows.append([_float(part) for part in value.split(",")])
        except ValueError:
            raise NotANumber(f"x {index} is {value!r}, not numbers with commas between", index, value) from None
    X, clipped = _points(rows, spec, how)
    return Question(X, clipped=clipped)


def _float(text: str) -> float:
    """As JSON would have it: Python also reads 1_0 and the digits of every script."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def load_json(body: bytes) -> Any:
    """JSON, with non-finite numbers let through for those behind to name"""
    require_modest(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        first = error
    if len(body) > EXPLAINED:
        _name_non_finite(body, first.pos)
        raise MalformedBody(f"the body is not JSON: {first}") from first
    try:
        value = json.loads(body.decode("utf-8"))
        if SURROGATE.search(body):
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone one is no character
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"the body is not JSON: {first}") from error
    return value


def require_modest(body: bytes) -> None:
    """Raise if a parser would make more of this body than it should"""
    if len(body) <= LISTS:  # it cannot have more
        return
    if body.count(b",") >= VALUES:
        raise BodyTooLarge(VALUES, "values", "; send fewer at once, or as application/octet-stream")
    if body.count(b"[") + body.count(b"{") > LISTS:
        why = ", and is not rows of numbers and labels alone; send fewer points at once to hear what is wrong"
        raise BodyTooLarge(LISTS, "lists", why)


SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
NON_FINITE = re.compile(rb"-?(NaN|Infinity|\d[\d.]*[eE]\+?\d{3})")


def _name_non_finite(body: bytes, at: int) -> None:
    """What stopped the parser may be a number that is none; then the row is counted by its brackets"""
    at -= body[at - 1 : at] == b"-"
    if found := NON_FINITE.match(body, at):
        row = body.count(b"[", max(body.find(b'"points"'), 0), at) - 2
        raise NonFinite(
            max(row, 0), math.nan if found[1] == b"NaN" else -math.inf if found[0][:1] == b"-" else math.inf
        )


def _columns(body: bytes, kind: str, names: dict[str, str]) -> dict[str, list[Any]]:
    """The lists of a body by name. `names`: what one entry is called → what the list is called"""
    if kind == NDJSON:
        return _lines(body, names)
    message = _object(load_json(body), {*names.keys(), *names.values()})
    columns: dict[str, list[Any]] = {}
    one, many = next(iter(names.items()))
    alone = one in message and many not in message
    for one, many in names.items():
        if one == many:
            if one in message:
                columns[many] = [message[one]] if alone else _list(message[one], many)
        elif one in message and many in message:
            raise InvalidRequest(f"the body needs either {many!r} or {one!r}", field=many)
        elif one in message:
            columns[many] = [message[one]]
        elif many in message:
            columns[many] = _list(message[many], many)
    return columns


def _lines(body: bytes, names: dict[str, str]) -> dict[str, list[Any]]:
    """NDJSON, read in one go: a line that is not one object would change the count, or hold what no field may"""
    lines = [stripped for line in body.split(b"\n") if (stripped := line.strip())]
    if not lines:
        raise EmptyBatch
    if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
        index = next(i for i, line in enumerate(lines) if line[:1] != b"{" or line[-1:] != b"}")
        raise MalformedBody(f"line {index} is not a JSON object", index=index)
    messages, some, size = list[Any](), list[bytes](), 0
    for line in lines:  # in pieces, for the sake of those who wait
        some.append(line)
        size += len(line)
        if size > LINES:
            messages += load_json(b"[" + b",".join(some) + b"]")
            some, size = [], 0
    if some:
        messages += load_json(b"[" + b",".join(some) + b"]")
    if len(messages) != len(lines):
        raise MalformedBody(f"{len(lines)} lines hold {len(messages)} objects; one a line, please")
    columns: dict[str, list[Any]] = {many: [] for many in names.values()}
    for index, message in enumerate(messages):
        _object(message, set(names), index)
        for one, many in names.items():
            if one in message:
                columns[many].append(message[one])
    for one, many in names.items():
        if 0 < len(columns[many]) < len(messages):
            index = next(i for i, message in enumerate(messages) if one not in message)
            raise InvalidRequest(f"line {index} has no {one!r}, and others have one", field=one, index=index)
    return {many: values for many, values in columns.items() if values}


def _object(message: Any, allowed: set[str], line: int | None = None) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidRequest(f"the body is a JSON {type(message).__name__}, not an object")
    for field in message:
        if field not in allowed:
            raise UnknownField(field[:100], ", ".join(sorted(allowed)), line)
    return message


def _list(values: Any, name: str) -> list[Any]:
    if not isinstance(values, list):
        raise InvalidRequest(f"{name!r} is not a list", field=name)
    return values


def _given(columns: dict[str, list[Any]], many: str, one: str) -> list[Any]:
    if many not in columns:
        raise InvalidRequest(f"the body needs either {many!r} or {one!r}", field=many)
    return columns[many]


def _ids(values: list[Any] | None) -> tuple[str, ...]:
    """Ids as JSON, so that 1 and "1" are two"""
    for index, value in enumerate(values or []):
        if type(value) not in (str, int) or not 1 <= len(str(value)) <= 200:
            what = f"id {index} is {reprlib.repr(value)}, not an integer or a string of 1 to 200 characters"
            raise InvalidRequest(what, index=index)
    ids = tuple(orjson.dumps(value).decode() if type(value) is str else str(value) for value in values or [])
    if len(set(ids)) != len(ids):
        raise InvalidRequest("an id comes twice in this body", field="ids")
    return ids


def _placed(X: Array, spec: Spec, how: Placing) -> tuple[Array, int]:
    """Points of the session's ball, and how many were clipped"""
    if how == AS_THEY_ARE:
        return require_ball(X, spec.dimension, c=spec.curvature), 0
    return place(X, spec.dimension, spec.curvature, how)


def _points(points: list[Any], spec: Spec, how: Placing = AS_THEY_ARE) -> tuple[Array, int]:
    if not points:
        raise EmptyBatch
    width = how.width(spec.dimension)
    X = _quickly(points, width)
    return _placed(_slowly(points, width) if X is None else X, spec, how)


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


def _slowly(points: list[Any], d: int) -> Array:
    """Row by row, to name what is wrong"""
    for index, row in enumerate(points):
        if not isinstance(row, list):
            raise NotANumber(f"point {index} is {reprlib.repr(row)}, not a list of numbers", index, brief(row))
        for value in row:
            if isinstance(value, bool) or not isinstance(value, int | float):
                what = f"point {index} holds {reprlib.repr(value)}, which is not a number"
                raise NotANumber(what, index, brief(value))
            if not abs(value) <= sys.float_info.max:
                raise NonFinite(index, math.inf if value > 0 else -math.inf if value < 0 else math.nan)
        if len(row) != d:
            raise DimensionMismatch(d, len(row), index=index)
    return np.array(points, dtype=np.float64)


def _rows(body: bytes, kind: str, columns: int) -> NDArray[np.float64]:
    if kind == NPY:
        return _npy(body, columns)
    if not body:
        raise EmptyBatch
    if len(body) % (8 * columns):
        raise DimensionMismatch(columns, len(body) // 8 % columns, what=f"{len(body)} bytes: the last row", index=-1)
    return np.frombuffer(body, dtype="<f8").reshape(-1, columns)


def _npy(body: bytes, columns: int) -> NDArray[np.float64]:
    """NumPy's format, its header read as the literal it is: nothing is allocated on the word of a header."""
    wide = 4 if body[6:7] in (b"\x02", b"\x03") else 2
    start = 8 + wide + int.from_bytes(body[8 : 8 + wide], "little")
    if body[:6] != b"\x93NUMPY" or not 8 + wide < start <= min(len(body), 4096):
        raise MalformedBody("the body is not an npy file")
    try:
        header = ast.literal_eval(body[8 + wide : start].decode("latin-1").strip())
        kind, shape, fortran = header["descr"], header["shape"], bool(header["fortran_order"])
        axes = [int(n) for n in shape]
    except (ValueError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError) as error:
        raise MalformedBody("the header of the npy file is malformed") from error
    if kind not in ("<f8", "<f4"):
        what = f"the npy file holds {reprlib.repr(kind)}, not little-endian float64 or float32: save X.astype('<f8')"
        raise NotANumber(what, value=kind)
    if max(axes, default=0) > len(body):
        raise MalformedBody(f"the npy file has {len(body) - start} bytes of data, less than its header says")
    if len(axes) != 2 or axes[1] != columns:
        raise DimensionMismatch(columns, axes[-1] if axes else 0, what=f"an npy file of shape {tuple(axes)[:3]}: row")
    if axes[0] == 0:
        raise EmptyBatch
    if axes[0] < 0 or len(body) - start != int(kind[2]) * axes[0] * columns:
        raise MalformedBody(f"the npy file has {len(body) - start} bytes of data, not {axes[0]}×{columns} numbers")
    rows = np.frombuffer(body, dtype=kind, offset=start).reshape(axes, order="F" if fortran else "C")
    return rows.astype(np.float64, copy=False)
