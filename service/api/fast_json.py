"""Rows of numbers out of JSON without an object for each: simdjson reads them into one buffer.

Only bodies of exactly this shape: an object of "points", rows of d numbers each, and of "labels" if they are asked for,
and no backslash anywhere. simdjson would flatten whatever is nested, so the brackets, commas, colons and quotes of the
body are compared with those it must have. Any other body is for orjson, slower, which then says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import simdjson
from numpy.typing import NDArray

from service.geometry import Array

#: Below so many bytes orjson is as fast.
WORTH_IT = 2000
_BOM = b"\xef\xbb\xbf"
_BESIDES = bytes(set(range(256)) - set(b'[]{},:"'))


def read(body: bytes, d: int, *, labelled: bool) -> tuple[Array, list[Any] | NDArray[np.int64]] | None:
    """n×d points and their labels (each None, if there are to be none), an array if all are integers; None: the body is
    not of that shape"""
    if len(body) < WORTH_IT or b"\\" in body or body.startswith(_BOM):
        return None
    structure = body.translate(None, _BESIDES)
    names = ["labels", "points"] if labelled else ["points"]
    n = structure.count(b"[") - len(names)
    if n < 1 or structure not in _shapes(n, d, labelled):
        return None
    try:
        message: Any = simdjson.Parser().parse(body)
        if sorted(message.keys()) != names:
            return None
        flat = np.frombuffer(message["points"].as_buffer(of_type="d"), dtype=np.float64)
        labels = _labels(message["labels"]) if labelled else [None] * n
    except (ValueError, TypeError, AttributeError, RuntimeError):  # what orjson has a better word for
        return None
    return (flat.reshape(n, d), labels) if flat.size == n * d and len(labels) == n else None


def _labels(labels: Any) -> list[Any] | NDArray[np.int64]:
    try:
        return np.frombuffer(labels.as_buffer(of_type="i"), dtype=np.int64)
    except (TypeError, ValueError):  # some are no integers, or beyond 64 bits
        found: list[Any] = labels.as_list()
        return found


def _shapes(n: int, d: int, labelled: bool) -> Iterator[bytes]:
    """What may be left of such a body without its numbers and the insides of its strings"""
    points = b'"":[%s]' % ((b"[" + b"," * (d - 1) + b"],") * n)[:-1]
    if not labelled:
        yield b"{%s}" % points
        return
    for label in (b",", b'"",'):
        labels = b'"":[%s]' % (label * n)[:-1]
        yield b"{%s,%s}" % (points, labels)
        yield b"{%s,%s}" % (labels, points)
