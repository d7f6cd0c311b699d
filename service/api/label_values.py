"""Labels as they come, to the class indices of a session. A label is found by value and type: true is not 1, "1" is not
1; but 1.0, which is how many programs write a 1, is."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidRequest, UnknownLabel
from service.sessions.rows import Indices
from service.sessions.spec import Label, Spec

#: How many different labels an error lists.
SHOWN = 10


def indices_of(labels: list[Any], spec: Spec) -> Indices:
    """Class indices of labels out of JSON"""
    index, kinds = spec.index, set(map(type, labels))
    if float in kinds and int in spec.label_types:
        labels = [int(label) if type(label) is float and label.is_integer() else label for label in labels]
        kinds = set(map(type, labels))
    if kinds <= spec.label_types and index.keys() >= set(labels):
        return np.fromiter(map(index.__getitem__, labels), dtype=np.int64, count=len(labels))
    for i, label in enumerate(labels):
        if type(label) not in spec.label_types or label not in index:
            raise UnknownLabel(i, brief(label), _shown(spec.labels), _remedy(labels, spec))
    raise AssertionError("unreachable: some label is unknown")


def indices_of_column(column: NDArray[np.float64], spec: Spec, meaning: str | None) -> Indices:
    """Class indices of the last column of binary rows. `meaning`: index (the default), or value, the label itself"""
    if meaning == "value":
        return _by_value(column, spec)
    good = (column >= 0) & (column < len(spec.labels)) & (column == np.floor(column))
    if not good.all():
        i = int(np.argmin(good))
        remedy = _remedy(column[: 10**6].tolist(), spec)
        if spec.label_types == {int} and np.isin(column, spec.label_array).all():
            remedy = "these are labels, not indices: say so with ?label=value"
        raise UnknownLabel(i, float(column[i]), f"the indices 0 to {len(spec.labels) - 1}", remedy)
    return column.astype(np.int64)


def ambiguous(column: NDArray[np.float64], spec: Spec) -> bool:
    """Whether a column of indices could as well be one of labels, and would mean something else then"""
    return bool(doubtful(spec.labels)) and bool(np.isin(column, spec.label_array).all())


@lru_cache(maxsize=1024)
def doubtful(labels: tuple[Label, ...]) -> tuple[int, ...]:
    """The labels that are also the index of another"""
    return tuple(
        label for label in labels if type(label) is int and 0 <= label < len(labels) and labels[label] != label
    )


def _by_value(column: NDArray[np.float64], spec: Spec) -> Indices:
    if spec.label_types != {int}:
        raise InvalidRequest(
            f"a column of numbers cannot hold the labels {_shown(spec.labels)}: send their indices, or JSON",
            parameter="label",
        )
    found, good = _found(column, spec.label_array.astype(np.float64))
    if not good.all():
        i = int(np.argmin(good))
        raise UnknownLabel(i, float(column[i]), _shown(spec.labels), _remedy(column[: 10**6].tolist(), spec))
    return found


def _found(labels: NDArray[Any], known: NDArray[Any]) -> tuple[Indices, NDArray[np.bool_]]:
    """Where each label is among those that are known, and whether it is"""
    order = np.argsort(known)
    found = order[np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)].astype(np.int64)
    return found, known[found] == labels


def _remedy(labels: Sequence[Any], spec: Spec) -> str:
    """What to do about labels that are not the session's"""
    whole = [int(label) if type(label) is float and label.is_integer() else label for label in labels]
    found = {type(label).__name__ + repr(label): label for label in whole if type(label) in (int, str, bool)}
    seen = list(found.values())
    if len(seen) < len({type(label).__name__ + reprlib.repr(label) for label in whole}):
        return "a label is an integer, a string or a boolean"
    if any(type(label) is str and label.lstrip("-").isdigit() and int in spec.label_types for label in seen):
        return 'the session\'s are integers, and "1" is not 1: send numbers'
    if bool in map(type, seen) and bool not in spec.label_types:
        return "true and false are no 0 and 1: open the session with labels=[false, true], or send numbers"
    every = [*dict.fromkeys([*spec.labels, *seen])] if set(map(type, seen)) == spec.label_types else seen
    fresh = seen if len(seen) > 1 else every
    try:
        fresh = sorted(fresh)
    except TypeError:  # strings and numbers
        pass
    add = ", or add them to this one (PATCH add_labels)" if set(map(type, seen)) <= spec.label_types else ""
    return f"open a session with {f'labels={_shown(fresh)}' if 2 <= len(fresh) <= SHOWN else 'them'}{add}"


def _shown(labels: Sequence[Any]) -> str:
    """As JSON has them, not all of many"""
    words = ["true" if label is True else "false" if label is False else reprlib.repr(label) for label in labels]
    return f"[{', '.join(words[:SHOWN])}{', …' if len(words) > SHOWN else ''}]"


def brief(value: object) -> object:
    """What an error shows of a value: not all of a long one, and not the depths of a deep one"""
    if isinstance(value, list | dict):
        return reprlib.repr(value)
    return value[:100] if isinstance(value, str) else value
