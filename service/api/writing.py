"""Answers as JSON. Large ones are written in another thread, piece by piece: one call for all of it would keep the
interpreter's lock, and the event loop waiting, for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np
import orjson

from service.errors import AnswerTooLarge
from service.sessions.spec import Spec

#: Bytes, or numbers, from which on something is done in another thread.
LARGE = 1 << 15
#: Numbers in one piece of an answer.
PIECE = 1 << 15
#: Numbers in all of it. Scores that are made on the way, if they are not answered: as many for each number of the body.
MOST, UNTOLD = 1 << 21, 8

P = ParamSpec("P")
R = TypeVar("R")


async def offload(size: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call it, in another thread if its input or output is large"""
    return await asyncio.to_thread(function, *args, **kwargs) if size > LARGE else function(*args, **kwargs)


def require_bounded(
    spec: Spec, points: int, *, columns: bool = True, instead: str = "send fewer points at once"
) -> None:
    """Raise if an answer would have too many numbers: a score a point, or K of them for K > 2 classes. What is made on
    the way and left out of the answer is in memory, too: a small multiple of the body, or no more than an answer"""
    limit = MOST if columns else max(MOST, UNTOLD * points * (spec.dimension + 1))
    if points * spec.columns > limit:
        what = instead if columns else "send fewer at once"
        raise AnswerTooLarge(f"{points} points with {spec.columns} scores each", limit, what)


def dump(value: Mapping[str, Any]) -> bytes:
    """An object as JSON, its long arrays and lists in pieces"""
    members = (orjson.dumps(name) + b":" + _pieces(each) for name, each in value.items())
    return b"{" + b",".join(members) + b"}"


def _pieces(value: Any) -> bytes:
    if not isinstance(value, np.ndarray | list) or len(value) <= 1:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    step = max(PIECE * len(value) // value.size, 1) if isinstance(value, np.ndarray) else PIECE
    parts = (value[at : at + step] for at in range(0, len(value), step))
    return b"[" + b",".join(orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for part in parts) + b"]"
