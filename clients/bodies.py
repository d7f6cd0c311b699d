"""Points and labels as request bodies: cut into batches; small ones are JSON, large ones raw float64.

The service validates, so that its error names the index and the value. So only what is plain numbers goes raw; anything
else goes as JSON, unchanged, however large it is.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from clients.answers import Array, Label
from clients.arrays import as_array, one_column, plain, refused, whole
from clients.problems import LengthMismatch, UnknownLabel, WrongArgument, problem

JSON = "application/json"
NDJSON = "application/x-ndjson"
RAW = "application/octet-stream"
#: A batch with at least this many numbers goes raw.
MANY = 1024
#: The most points, and the most numbers, that a batch has unless it is told otherwise.
ROWS, NUMBERS = 10_000, 1 << 18

#: A point is a sequence of numbers, and points a sequence, an array or an iterator of them.
Points = Any


@dataclass(frozen=True)
class Batch:
    points: Any  # a list or an array
    labels: Any = None
    truth: Any = None
    ids: Any = None

    def __len__(self) -> int:
        return len(self.points)


def rows(dimension: int, batch: int | None) -> int:
    if batch is not None and batch < 1:
        raise WrongArgument(f"a batch has at least one point, not {batch}")
    return batch or max(1, min(ROWS, NUMBERS // (dimension + 1)))


def labelled(X: Points, y: Any = None, truth: Any = None, *, n: int) -> Iterator[Batch]:
    """Batches of at most n labelled points; without y, X gives pairs (point, label)"""
    if is_label(y):
        return iter([Batch([X], [y], None if truth is None else [truth])])
    if y is None:
        if truth is not None:
            raise WrongArgument("pairs (point, label) have no place for truth: give X, y and truth")
        return _pairs(X, n)
    X, y, truth = as_array(X), one_column(y), as_array(truth)
    return _cut(n, points=X, labels=y, truth=truth)


async def alabelled(X: Points, y: Any = None, truth: Any = None, *, n: int) -> AsyncIterator[Batch]:
    """The same; X may also be an asynchronous iterator of pairs (point, label)"""
    if not isinstance(X, AsyncIterable):
        for batch in labelled(X, y, truth, n=n):
            yield batch
        return
    if not (y is None and truth is None):
        raise WrongArgument("an asynchronous iterator gives pairs (point, label): leave y and truth out")
    points: list[Any] = []
    labels: list[Any] = []
    first = True
    async for point, label in X:
        points.append(point)
        labels.append(label)
        if len(points) == n:
            yield Batch(points, labels)
            points, labels, first = [], [], False
    if points or first:
        yield Batch(points, labels)


def unlabelled(X: Points, ids: Any = None, *, n: int) -> Iterator[Batch]:
    """Batches of at most n points, and their ids; one point alone is a batch of one"""
    X, ids = as_array(X), as_array(ids, "ids")
    if _is_point(X):
        X, ids = [X], None if ids is None else [ids] if is_label(ids) else ids
    return _cut(n, points=X, ids=ids)


def is_label(value: Any) -> bool:
    return isinstance(value, str | int | float | np.generic)


def _is_point(X: Any) -> bool:
    if isinstance(X, np.ndarray):
        return X.ndim == 1
    return isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], int | float | np.number)


def _pairs(pairs: Iterable[Any], n: int) -> Iterator[Batch]:
    stream, first = iter(pairs), True
    while (some := list(islice(stream, n))) or first:
        points, labels = [point for point, _ in some], [label for _, label in some]
        yield Batch(points, labels)
        first = False


def _cut(n: int, **columns: Any) -> Iterator[Batch]:
    """Columns side by side; those that have a length must have the same"""
    given = {name: column for name, column in columns.items() if column is not None}
    sizes = {name: len(column) for name, column in given.items() if hasattr(column, "__len__")}
    if max(sizes.values(), default=0) > n and len(set(sizes.values())) > 1:
        raise _unequal(sizes)
    if len(sizes) == len(given):
        for start in range(0, max(1, *sizes.values()), n):
            yield Batch(**{name: column[start : start + n] for name, column in given.items()})
        return
    streams = {name: iter(column) for name, column in given.items()}
    first = True
    while True:
        some = {name: list(islice(stream, n)) for name, stream in streams.items()}
        counts = {name: len(column) for name, column in some.items()}
        if not any(counts.values()) and not first:
            return
        if len(set(counts.values())) > 1:
            raise _unequal(counts)
        yield Batch(**some)
        first = False


def _unequal(sizes: Mapping[str, int]) -> Exception:
    one, n = next(iter(sizes.items()))
    other, m = next(item for item in sizes.items() if item[1] != n)
    detail = f"{n} {one} but {m} {other}"
    return problem({"type": f"/problems/{LengthMismatch.slug()}", "detail": detail, "points": n, "labels": m})


# ------------------------------------------------------------------------------------------------------- bodies


def encode(batch: Batch, width: int, index: Mapping[Label, int]) -> tuple[bytes, str]:
    """The body and its type. `width`: how many numbers a point has; `index`: the place of each label in the session"""
    if batch.truth is None and batch.ids is None and len(batch) * width >= MANY:
        X = numbers(batch.points, width)
        if X is not None and batch.labels is None:
            return X.astype("<f8").tobytes(), RAW
        indices = None if X is None else _indices(plain(batch.labels), index)
        if X is not None and indices is not None and len(indices) == len(X):
            return np.column_stack([X, indices]).astype("<f8").tobytes(), RAW
    names = {"points": batch.points, "labels": batch.labels, "truth": batch.truth, "ids": batch.ids}
    return dump({name: plain(value) for name, value in names.items() if value is not None}), JSON


def encode_raw(X: Points, y: Any, index: Mapping[Label, int]) -> bytes:
    """Labelled raw rows, for the fits' own points"""
    try:
        rows = np.asarray(_listed(as_array(X)), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise refused(f"X is not n rows of d numbers each: {error}") from None
    if rows.ndim != 2:
        raise refused(f"X has {rows.ndim} axes, not n rows of d numbers each; one point is [[0.1, 0.2]]")
    labels = plain(one_column(y))
    if not isinstance(labels, list) or len(rows) != len(labels):
        raise _unequal({"points": len(rows), "labels": len(labels) if isinstance(labels, list) else 0})
    indices = _indices(labels, index)
    if indices is None:
        i = next(i for i, label in enumerate(labels) if _indices([label], index) is None)
        fresh = [*dict.fromkeys(whole(labels))]
        hint = f": open a session with labels={fresh!r}" if 2 <= len(fresh) <= 10 else ""
        detail = f"label {i} is {labels[i]!r}, not one of {list(index)}{hint}"
        raise problem(
            {"type": f"/problems/{UnknownLabel.slug()}", "detail": detail, "index": i, "value": repr(labels[i])}
        )
    return np.column_stack([rows, indices]).astype("<f8").tobytes()


def _listed(X: Any) -> Any:
    """An iterator's points in a list"""
    return X if isinstance(X, Sequence | np.ndarray) else list(X)


def numbers(points: Any, dimension: int) -> Array | None:
    """An n×d array if these are plain numbers, else None: NumPy alone would convert strings and booleans, too"""
    try:
        if not isinstance(points, np.ndarray):
            if all(isinstance(point, np.ndarray) for point in points):
                points = np.array(points)
            elif set(map(type, chain.from_iterable(points))) <= {float, int, np.float64}:
                points = np.array(points, dtype=np.float64)
            else:
                return None
    except (ValueError, TypeError, OverflowError):
        return None
    if points.dtype.kind not in "fiu" or points.ndim != 2 or points.shape[1] != dimension:
        return None
    return np.asarray(points, dtype=np.float64)


def _indices(labels: Any, index: Mapping[Label, int]) -> list[int] | None:
    """By value and type: true is not 1; but 1.0 is"""
    if int in set(map(type, index)):
        labels = whole(labels)
    if not set(map(type, labels)) <= set(map(type, index)) or not index.keys() >= set(labels):
        return None
    return [index[label] for label in labels]


def dump(document: Any) -> bytes:
    """JSON; NaN stays in it, so that the service can say at which index it is"""
    return json.dumps(document, default=_native, separators=(",", ":")).encode()


def _native(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be sent as JSON")
