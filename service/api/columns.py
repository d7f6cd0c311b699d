"""Columns of an answer as binary rows, for `Accept: application/octet-stream` or `application/x-npy`.

A row a point, little-endian float64: the index of the predicted label; the score, or K scores; (observe) 1 if it was
correct, else 0; K probabilities where there are some. What JSON says beside its columns is in the header
Horocycle-Summary, with `columns`: how many of each a row has, in order. npy has NumPy's header before the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import orjson
from numpy.lib import format as npy
from numpy.typing import NDArray

from service.api.formats import NPY, RAW


@lru_cache
def binary_form(accept: str) -> str | None:
    """The first binary form that an Accept header names; None: it names none, and the answer is JSON"""
    for part in accept.lower().split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        if kind in (RAW, NPY) and not {"q=0", "q=0.0", "q=0.00", "q=0.000"} & set(parameters):
            return kind
    return None


def binary(form: str, columns: Mapping[str, NDArray[Any]], rest: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The body and its headers"""
    widths = {name: 1 if each.ndim == 1 else each.shape[1] for name, each in columns.items()}
    rows = np.empty((len(next(iter(columns.values()))), sum(widths.values())), dtype="<f8")
    at = 0
    for name, each in columns.items():
        rows[:, at : at + widths[name]] = each if each.ndim == 2 else each[:, None]
        at += widths[name]
    head = BytesIO()
    if form == NPY:
        npy.write_array_header_1_0(head, npy.header_data_from_array_1_0(rows))
    summary = orjson.dumps({**rest, "columns": widths}).decode()
    return head.getvalue() + rows.tobytes(), {"Content-Type": form, "Horocycle-Summary": summary}
