"""Embeddings in files: csv, parquet, jsonl, npy and npz, as points and labels.

    csv       a header, or columns by number; the label's column by name
    parquet   columns by name (needs pyarrow)
    jsonl     {"point": […], "label": …} a line, or {"x": …, "y": …, "class": …}
    npy       n×(d+1), the label last
    npz       X and y; or the paper's x_train, y_train, x_test, y_test, of which the last two are held out

`-` is stdin, csv or jsonl, read as it comes. What is wrong with a file is said with the column, the line and a remedy.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import orjson
from numpy.typing import NDArray

from clients.problems import FileProblem

#: What a column of labels is mostly called.
NAMES = ("label", "labels", "y", "class", "target", "category")
#: Lines of stdin that go together.
BLOCK = 1000
#: The arrays of an npz, by what they are called: points, labels, and those that are held out.
ARRAYS = (("x_train", "y_train", "x_test", "y_test"), ("X", "y", "X_test", "y_test"), ("embeddings", "labels", "", ""))


@dataclass(frozen=True)
class Choice:
    """Which columns"""

    label: str | None = None  # of the label, by name or number; None: one of NAMES, or the last
    columns: tuple[str, ...] = ()  # of the coordinates; none: all others
    kind: str | None = None  # csv, jsonl, …; None: as the file is called


@dataclass(frozen=True)
class Table:
    """n×d points and n labels; those that the file itself holds out"""

    X: NDArray[Any]
    y: NDArray[Any]
    held_out: tuple[NDArray[Any], NDArray[Any]] | None = None

    def __len__(self) -> int:
        return len(self.X)


def read(path: str, choice: Choice = Choice()) -> Table:  # noqa: B008 (frozen)
    """A whole file. npy files are mapped into memory, not read: they may be large"""
    kind = choice.kind or (Path(path).suffix.lstrip(".").lower() if path != "-" else "csv")
    if kind not in READERS:
        raise FileProblem(f"{path}: {kind or 'a file without an ending'} is not read; known are {', '.join(READERS)}")
    try:
        table = READERS[kind](path, choice)
    except OSError as error:
        raise FileProblem(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FileProblem(f"{path} is not UTF-8 text: name its format with --format") from None
    if len(table) == 0:
        raise FileProblem(f"{path} is empty: there is no row of points in it")
    if table.X.ndim != 2 or len(table.X) != len(table.y):
        shapes = f"{table.X.shape} and {table.y.shape}"
        raise FileProblem(f"{path}: points and labels have the shapes {shapes}, not (n, d) and (n,)")
    return table


def blocks(stream: TextIO, choice: Choice) -> Iterator[Table]:
    """stdin as it comes: blocks of at most BLOCK lines"""
    lines = iter(stream)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise FileProblem("stdin is empty: there is no row of points in it")
    as_json = choice.kind == "jsonl" or (choice.kind is None and first.lstrip().startswith("{"))
    head = None if as_json else next(csv.reader([first]))
    header = head is not None and not _numbers(head)
    waiting = [] if header else [first]
    number = 1
    while waiting or (waiting := list(islice(lines, BLOCK))):
        text = "".join([*([first] if header else []), *waiting])
        yield _jsonl_text(text, choice, number) if as_json else _csv_text(text, choice, "stdin")
        number += len(waiting)
        waiting = []


def typed(words: Sequence[str]) -> list[Any]:
    """Labels as a text file has them: integers (1.0 too) or booleans where all of them are, else as they are"""
    if all(word.lower() in ("true", "false") for word in words):
        return [word.lower() == "true" for word in words]
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return list(words)
    return [int(number) for number in numbers] if all(number.is_integer() for number in numbers) else list(words)


# ------------------------------------------------------------------------------------------------------- text


def _csv(path: str, choice: Choice) -> Table:
    return _csv_text(_text(path), choice, path)


def _csv_text(text: str, choice: Choice, path: str) -> Table:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if not rows:
        raise FileProblem(f"{path} is empty: there is no row of points in it")
    header = not _numbers(rows[0]) and (len(rows) == 1 or rows[0][:-1] == [] or not _numbers(rows[0][:-1]))
    names = [name.strip() for name in rows[0]] if header else [str(i) for i in range(len(rows[0]))]
    body = rows[1:] if header else rows
    for number, row in enumerate(body, 2 if header else 1):
        if len(row) != len(names):
            raise FileProblem(f"{path}, line {number}: {len(row)} columns, where the first line has {len(names)}")
    label, columns = _chosen(names, choice, path, 0)
    points = np.empty((len(body), len(columns)))
    for j, column in enumerate(columns):
        points[:, j] = _floats([row[column] for row in body], names[column], path, 2 if header else 1)
    return Table(points, labels_of(typed([row[label].strip() for row in body])))


def _numbers(row: Sequence[str]) -> bool:
    try:
        [float(cell) for cell in row]
    except ValueError:
        return False
    return True


def _floats(cells: list[str], name: str, path: str, first: int) -> NDArray[np.float64]:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        index = next(i for i, cell in enumerate(cells) if not _numbers([cell]))
        choose = "choose the coordinates with --columns, the label with --label"
        raise FileProblem(
            f"{path}, line {first + index}: column {name!r} holds {cells[index]!r}, not a number; {choose}"
        ) from None


def _jsonl(path: str, choice: Choice) -> Table:
    return _jsonl_text(_text(path), choice, 1, path)


def _jsonl_text(text: str, choice: Choice, first: int, path: str = "stdin") -> Table:
    points, labels = [], []
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), first):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise FileProblem(f"{path}, line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise FileProblem(f'{path}, line {number} is not an object: {{"point": […], "label": …}} a line, please')
        try:
            if isinstance(row.get("point"), list):
                points.append(row["point"])
                labels.append(row[choice.label or "label"])
            else:
                names = names or list(row)
                label, columns = _chosen(names, choice, path, number)
                points.append([row[names[i]] for i in columns])
                labels.append(row[names[label]])
        except KeyError as missing:
            raise FileProblem(f"{path}, line {number} has no {missing}") from None
    try:
        X = np.array(points, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FileProblem(f"{path}: points are not rows of numbers of one length: {error}") from None
    return Table(X.reshape(len(points), -1), labels_of(labels))


def _text(path: str) -> str:
    return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")


def _chosen(names: list[str], choice: Choice, path: str, line: int) -> tuple[int, list[int]]:
    """The places of the label's column and of the coordinates'"""

    def place(name: str) -> int:
        if name in names:
            return names.index(name)
        if name.lstrip("-").isdigit() and -len(names) <= int(name) < len(names):
            return int(name) % len(names)
        raise FileProblem(f"{path} has no column {name!r}; it has {', '.join(names[:20])}")

    if choice.label is not None:
        label = place(choice.label)
    else:
        usual = [name for name in NAMES if name != "y" or "x" not in names]  # beside an x, y is a coordinate
        label = next((i for i, name in enumerate(names) if name.lower() in usual), len(names) - 1)
    columns = [place(name) for name in choice.columns] or [i for i in range(len(names)) if i != label]
    if not columns:
        raise FileProblem(f"{path} has one column, {names[0]!r}: points need coordinates beside the label")
    return label, columns


# ----------------------------------------------------------------------------------------------------- binary


def _parquet(path: str, choice: Choice) -> Table:
    if importlib.util.find_spec("pyarrow") is None:
        raise FileProblem(f"{path}: parquet needs pyarrow: pip install 'horocycle[files]'")
    try:
        table = importlib.import_module("pyarrow.parquet").read_table(path)
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        raise FileProblem(f"{path} is not a parquet file: {error}") from None
    names = list(table.column_names)
    label, columns = _chosen(names, choice, path, 0)
    found = [table.column(i).combine_chunks().to_numpy(zero_copy_only=False) for i in columns]
    for i, column in zip(columns, found, strict=True):
        if column.dtype.kind not in "fiu":
            choose = "choose the coordinates with --columns, the label with --label"
            raise FileProblem(f"{path}: column {names[i]!r} holds {column.dtype} values, not numbers; {choose}")
    return Table(np.column_stack(found), labels_of(table.column(label).to_pylist()))


def _npy(path: str, choice: Choice) -> Table:
    rows = _loaded(path)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] < 2 or rows.dtype.kind not in "fiu":
        shape = getattr(rows, "shape", None)
        raise FileProblem(f"{path} has the shape {shape}, not (n, d+1) numbers with the label last; an npz has X and y")
    label, columns = _chosen([str(i) for i in range(rows.shape[1])], choice, path, 0)
    beside = columns == list(range(rows.shape[1] - 1))
    return Table(rows[:, :-1] if beside else rows[:, columns], labels_of(rows[:, label]))


def _npz(path: str, choice: Choice) -> Table:
    with _loaded(path) as arrays:
        names = list(arrays)
        for X, y, X_test, y_test in ((choice.columns[0], choice.label or "y", "", ""),) if choice.columns else ARRAYS:
            if X in names and y in names:
                held = (arrays[X_test], labels_of(arrays[y_test])) if {X_test, y_test} <= set(names) else None
                return Table(arrays[X], labels_of(arrays[y]), held)
    raise FileProblem(
        f"{path} has the arrays {', '.join(names)}: name the points with --columns, the labels with --label"
    )


def _loaded(path: str) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FileProblem(f"{path} is not a file of NumPy's: {error}") from None


def labels_of(labels: Any) -> NDArray[Any]:
    """One type of label: 1.0 is 1 where all are so; a gap is named"""
    found = np.asarray(labels)
    if found.dtype.kind == "f":
        if not np.isfinite(found).all():
            index = int(np.argmin(np.isfinite(found)))
            raise FileProblem(f"label {index} is {found[index]}: every point needs one; leave such rows out")
        if (found == np.floor(found)).all() and (np.abs(found) < 2**53).all():
            return found.astype(np.int64)
        index = int(np.argmax(found != np.floor(found)))
        raise FileProblem(f"label {index} is {found[index]}: a label is an integer, a word or a boolean; see --label")
    if found.dtype.kind == "O":
        if any(label is None for label in labels):
            index = next(i for i, label in enumerate(labels) if label is None)
            raise FileProblem(f"label {index} is missing: every point needs one; leave such rows out")
        return np.array([str(label) for label in labels]) if len({*map(type, labels)}) > 1 else found
    return found


READERS = {"csv": _csv, "parquet": _parquet, "jsonl": _jsonl, "ndjson": _jsonl, "npy": _npy, "npz": _npz}
