"""What callers have, as NumPy arrays: lists, frames of pandas and polars, Arrow tables, tensors.

None of these libraries is imported: a value is known by the module of its type. What cannot be points is refused here
with a remedy; numbers are left to the service, which names the index and the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.problems import InvalidInput, NotANumber, problem


def as_array(values: Any, what: str = "points") -> Any:
    """Frames, tables and tensors as arrays; lists, arrays and iterators as they are"""
    if values is None or isinstance(values, np.ndarray | list | tuple | str | int | float):
        return values
    library = type(values).__module__.partition(".")[0]
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise refused(f"{what} are a sparse {type(values).__name__}: pass {_letter(what)}.toarray()")
    if library == "torch" or (hasattr(values, "detach") and hasattr(values, "numpy")):
        return _tensor(values)
    if library == "pyarrow":
        return _arrow(values, what)
    if library in ("pandas", "polars") and hasattr(values, "columns"):
        return _frame({str(name): values[name].to_numpy() for name in values.columns}, what)
    return np.asarray(values) if hasattr(values, "__array__") else values


def one_column(y: Any) -> Any:
    """Labels: n×1, as a frame of one column gives them, are n"""
    y = as_array(y, "labels")
    return y[:, 0] if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1 else y


def refused(detail: str) -> InvalidInput:
    """What was given cannot be sent, and what to do about it"""
    found = problem({"type": f"/problems/{NotANumber.slug()}", "title": "Not a number", "detail": detail})
    assert isinstance(found, InvalidInput)
    return found


def _tensor(tensor: Any) -> NDArray[Any]:
    """Also one that needs a gradient, is on another device, or has a type that NumPy has not (bfloat16)"""
    here = tensor.detach().cpu()
    return np.asarray((here.float() if "bfloat16" in str(here.dtype) else here).numpy())


def _arrow(values: Any, what: str) -> NDArray[Any]:
    if hasattr(values, "column_names"):  # a table or a record batch
        columns = zip(values.column_names, values.columns, strict=True)
        return _frame({name: _arrow(column, what) for name, column in columns}, what)
    if hasattr(values, "to_numpy"):
        flat = values.combine_chunks() if hasattr(values, "combine_chunks") else values
        return np.asarray(flat.to_numpy(zero_copy_only=False))
    raise refused(f"{what} are a {type(values).__name__}: pass a table, or a column")


def _frame(columns: dict[str, NDArray[Any]], what: str) -> NDArray[Any]:
    """The columns side by side; of points all must be numbers"""
    if what == "points":
        for name, column in columns.items():
            if column.dtype.kind not in "fiu":
                choose = f"choose the coordinates, as in frame[{[*columns][:2]!r}], and give the labels as y"
                raise refused(f"column {name!r} holds {column.dtype} values, not numbers: {choose}")
    if not columns:
        raise refused(f"the frame has no columns: {what} need some")
    return np.column_stack([*columns.values()])


def _letter(what: str) -> str:
    return "X" if what == "points" else "y"


def plain(values: Any) -> Any:
    """Arrays and NumPy's scalars as Python's own"""
    if (isinstance(values, np.ndarray) and values.dtype != object) or isinstance(values, np.generic):
        return values.tolist()
    if isinstance(values, Iterable) and not isinstance(values, str | dict):
        return [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    return values


def whole(labels: Sequence[Any]) -> Sequence[Any]:
    """1.0 as the 1 that it is: programs write integers so when a column has, or had, a gap"""
    if float not in set(map(type, labels)):
        return labels
    return [int(label) if type(label) is float and label.is_integer() else label for label in labels]
