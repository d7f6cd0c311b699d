"""Points in files larger than a memory: npy or Parquet, by path or by URL (fsspec), in pieces that are read in chunks.

    npy       n×(d+1) numbers, the label last
    parquet   columns of numbers; the label is the column of that name, or called label, class, y …, or the last

A URL may name several files with * in its last part; they follow each other in the order of their names. A label in the
file is a number or a word; `labels` says which class each is.
"""

from __future__ import annotations

import glob
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batch.passes import MOST, Chunk, Executor, Passes, Seen, in_turn, pick
from service.batch.points import Indices, View
from service.errors import FitFailed, InvalidParameter, UnknownLabel
from service.geometry import Array

#: Rows of a piece: whole multiples of MOST, so that chunks are those of all rows together. A piece is what one worker
#: reads at a time, and what is read again if it dies.
PIECE = 2 * MOST
#: What a column of labels is mostly called
NAMES = ("label", "labels", "class", "target", "category", "y")
#: How many labels a file may have, and how many points reference points are learned from
LABELS, SOME = 1_000, 100_000


@dataclass(frozen=True)
class Piece:
    """Rows first … stop−1 of one file; of a Parquet file, whole row groups"""

    url: str
    first: int
    stop: int
    columns: tuple[str, ...] = ()  # of a Parquet file: coordinates, then the label
    groups: tuple[int, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()  # of fsspec

    def __len__(self) -> int:
        return self.stop - self.first

    def read(self, rows: int) -> Iterator[tuple[Array, NDArray[Any]]]:
        """Points and labels, so many rows at a time"""
        try:
            yield from self._parquet(rows) if self.columns else self._npy(rows)
        except (OSError, ValueError) as error:
            raise FitFailed(f"{self.url} cannot be read: {error}") from error

    def _npy(self, rows: int) -> Iterator[tuple[Array, NDArray[Any]]]:
        with opened(self.url, dict(self.options)) as file:
            shape, dtype = npy_header(file, self.url)
            size = dtype.itemsize * shape[1]
            file.seek(file.tell() + self.first * size)
            for at in range(self.first, self.stop, rows):
                count = min(rows, self.stop - at)
                data = file.read(count * size)
                if len(data) < count * size:
                    raise FitFailed(f"{self.url} is shorter than its header says")
                found = np.frombuffer(data, dtype).reshape(count, shape[1]).astype(np.float64, copy=False)
                yield np.ascontiguousarray(found[:, :-1]), found[:, -1]

    def _parquet(self, rows: int) -> Iterator[tuple[Array, NDArray[Any]]]:
        parquet = needed("pyarrow.parquet", "Parquet files")
        with opened(self.url, dict(self.options)) as file:
            batches = parquet.ParquetFile(file).iter_batches(rows, row_groups=self.groups, columns=list(self.columns))
            X, y = np.empty((0, len(self.columns) - 1)), np.empty(0)
            for batch in batches:  # which may be shorter, at the end of a row group
                columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in self.columns]
                more = np.column_stack(columns[:-1]).astype(np.float64)
                X, y = (np.concatenate([X, more]), np.concatenate([y, columns[-1]])) if len(X) else (more, columns[-1])
                while len(X) >= rows:
                    yield np.ascontiguousarray(X[:rows]), y[:rows]
                    X, y = X[rows:], y[rows:]
            if len(X):
                yield X, y


@dataclass(frozen=True)
class Stored:
    """A partition: a piece of a file, as rows"""

    piece: Piece
    view: View
    labels: tuple[Any, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.piece)

    def chunks(self, rows: int) -> Iterable[Chunk]:
        at = self.start
        for X, found in self.piece.read(rows):
            y = indices_of(found, self.labels, at) if self.labels else found
            block = self.view.block(X, y, at)
            yield Chunk(block.F, block.y, block.c, block.lengths, block.index, at)
            at += len(X)


@dataclass
class Files:
    """Points: the pieces of files, read wherever an executor has them read"""

    pieces: Sequence[Piece]
    d: int
    labels: tuple[Any, ...] = ()
    curvature: float = 1.0
    executor: Executor = in_turn
    passed: Callable[[], None] = lambda: None  # hears after every pass; what it raises ends the fit
    n: int = field(init=False)
    K: int = field(init=False)

    def __post_init__(self) -> None:
        self.n = sum(map(len, self.pieces))
        self.labels = self.labels or self._found()
        self.K = len(self.labels)

    def passes(self, view: View, labels: tuple[Any, ...] | None = None) -> Passes:
        ends = accumulate(map(len, self.pieces), initial=0)
        known = self.labels if labels is None else labels
        parts = [Stored(piece, view, known, start) for piece, start in zip(self.pieces, ends, strict=False)]
        return Passes(parts, view.dimension(self.d), view.width(self.d, len(known)), self.executor, self.passed)

    def some(self) -> tuple[Array, Indices]:
        rows = self.passes(View(curvature=self.curvature)).spread(SOME)
        return rows.F, rows.y.astype(np.int64)

    def _found(self) -> tuple[Any, ...]:
        """The labels in the files, sorted: integers where they are numbers"""
        seen = self.passes(View(curvature=self.curvature), ())(_first_of_each, LABELS + 1)
        assert seen.picked is not None
        found = sorted({plain(label) for label in seen.picked.block.y})
        if not 2 <= len(found) <= LABELS:
            raise InvalidParameter("data", f"points of {len(found)} classes", f"points of 2 to {LABELS} classes")
        return tuple(found)


def _first_of_each(chunk: Chunk, limit: int) -> Seen:
    """A row of each label"""
    first = np.zeros(len(chunk), dtype=bool)
    first[np.unique(chunk.y, return_index=True)[1]] = True
    return Seen(picked=pick(chunk, first, limit))


def plain(label: Any) -> Any:
    """1.0 is 1"""
    value = _shown(label)
    if isinstance(value, float):
        if not value.is_integer():
            raise InvalidParameter("label", value, "an integer or a word")
        return int(value)
    return value


def indices_of(found: NDArray[Any], labels: tuple[Any, ...], start: int) -> Indices:
    """The class of each label"""
    words = any(isinstance(label, str) for label in labels)
    if words == (found.dtype.kind in "fiub"):
        raise UnknownLabel(start, _shown(found[0]), ", ".join(map(repr, labels)))
    names = np.array([str(label) for label in labels]) if words else np.array(labels, dtype=np.float64)
    order = np.argsort(names)
    at = order[np.minimum(np.searchsorted(names, found, sorter=order), len(names) - 1)]
    wrong = names[at] != found
    if wrong.any():
        index = int(np.argmax(wrong))
        raise UnknownLabel(start + index, _shown(found[index]), ", ".join(map(repr, labels)))
    return at.astype(np.int64)


def _shown(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


# ---------------------------------------------------------------------------------- which files, and what is in them


def pieces_of(url: str, label: str | None = None, **options: Any) -> tuple[list[Piece], int]:
    """The pieces of all files that a URL names, and the dimension of their points"""
    found = [_file(each, label, options) for each in _expanded(url, options)]
    dimensions = {d for _, d in found}
    if len(dimensions) != 1:
        raise InvalidParameter("data", f"files of {sorted(dimensions)} dimensions", "files of one dimension")
    return [piece for pieces, _ in found for piece in pieces], dimensions.pop()


def _expanded(url: str, options: dict[str, Any]) -> list[str]:
    if "*" not in url:
        return [url]
    if "://" in url:
        files = needed("fsspec", "URLs").open_files(url, **options)
        found = [f"{url.partition('://')[0]}://{each.path}" for each in files]
    else:
        found = glob.glob(url)
    if not found:
        raise InvalidParameter("data", url, "the name of a file, or of several with *: there is none")
    return sorted(found)


def _file(url: str, label: str | None, options: dict[str, Any]) -> tuple[list[Piece], int]:
    named = tuple(sorted(options.items()))
    try:
        with opened(url, options) as file:
            if url.endswith((".parquet", ".pq")):
                return _row_groups(url, file, label, named)
            (n, width), _ = npy_header(file, url)
    except (OSError, ValueError) as error:
        raise FitFailed(f"{url} cannot be read: {error}") from error
    return [Piece(url, at, min(n, at + PIECE), options=named) for at in range(0, n, PIECE)], width - 1


def _row_groups(
    url: str, file: Any, label: str | None, options: tuple[tuple[str, Any], ...]
) -> tuple[list[Piece], int]:
    """Row groups that follow each other, until they have PIECE rows"""
    parquet = needed("pyarrow.parquet", "Parquet files").ParquetFile(file)
    names = list(parquet.schema_arrow.names)
    usual = [name for name in NAMES if name != "y" or "x" not in names]  # beside an x, y is a coordinate
    chosen = label or next((name for name in names if name.lower() in usual), names[-1])
    if chosen not in names or len(names) < 2:
        raise InvalidParameter("label", chosen, f"one of the columns {', '.join(names[:20])}, beside coordinates")
    columns = (*(name for name in names if name != chosen), chosen)
    pieces: list[Piece] = []
    groups: list[int] = []
    first = stop = 0
    for group in range(parquet.num_row_groups):
        groups.append(group)
        stop += parquet.metadata.row_group(group).num_rows
        if stop - first >= PIECE or group == parquet.num_row_groups - 1:
            pieces.append(Piece(url, first, stop, columns, tuple(groups), options))
            first, groups = stop, []
    return [piece for piece in pieces if len(piece)], len(columns) - 1


def npy_header(file: Any, url: str) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Shape and type, with the file behind its header"""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if len(shape) != 2 or shape[1] < 2 or fortran or dtype.kind not in "fiu":
        order = " by columns" if fortran else ""
        raise InvalidParameter("data", f"{url}: {dtype} of shape {shape}{order}", "n×(d+1) numbers, the label last")
    return (int(shape[0]), int(shape[1])), dtype


def opened(url: str, options: dict[str, Any]) -> AbstractContextManager[Any]:
    if "://" not in url:
        return open(url, "rb")
    manager: AbstractContextManager[Any] = needed("fsspec", "URLs").open(url, "rb", **options)
    return manager


def needed(module: str, what: str) -> Any:
    """A package of an extra, imported when it is first needed"""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise FitFailed(f"{what} need {module.partition('.')[0]}: pip install 'horocycle[dask]'")
    return importlib.import_module(module)
