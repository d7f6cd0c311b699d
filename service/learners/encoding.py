"""One encoding for all states: a JSON header that says what the bytes are, then the bytes. No pickle.

    b"HORO" · digest (16 bytes of BLAKE2b over the rest) · header length (u32, little endian) · header · arrays

The header is {"format": 1, "learner": name, "fields": [[name, dtype, shape], …]}; numbers are arrays of no axes.
A one-vs-rest state has "members": a header each, and their arrays one after another.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidParameter, StateCorrupt
from service.learners import hyperboloid, one_vs_rest, perceptron, second_order, strategic

FORMAT = 1
MAGIC = b"HORO"

State = perceptron.State | second_order.State | strategic.State | hyperboloid.State | one_vs_rest.State

_STATES: dict[str, type] = {
    "perceptron": perceptron.State,
    "second_order": second_order.State,
    "strategic": strategic.State,
    "hyperboloid": hyperboloid.State,
    "one_vs_rest": one_vs_rest.State,
}
_NAMES = {state: name for name, state in _STATES.items()}
_SCALARS: dict[Any, str] = {float: "<f8", int: "<i8", bool: "|b1"}
#: name → (the field's type, the dtype it is stored with); a field that is no number is an array of floats
_FIELDS = {
    state: {
        f.name: (hint, _SCALARS.get(hint, "<f8")) for f in fields(state) for hint in [get_type_hints(state)[f.name]]
    }
    for state in _STATES.values()
    if state is not one_vs_rest.State
}
#: The axes of the arrays: the same letter is the same length everywhere in a state.
_AXES = {
    "p": ("d",),
    "w": ("d",),
    "start": ("d",),
    "xi": ("d",),
    "factor": ("d", "d"),
    "basis": ("rows", "d"),
    "evidence": ("m",),
}


def encode(state: State) -> bytes:
    members = state.members if isinstance(state, one_vs_rest.State) else (state,)
    arrays = [_arrays(member) for member in members]
    kinds = tuple((type(m), tuple(a.shape for a in each)) for m, each in zip(members, arrays, strict=True))
    head = _head(isinstance(state, one_vs_rest.State), kinds)
    body = b"".join([len(head).to_bytes(4, "little"), head, *(a.tobytes() for each in arrays for a in each)])
    return MAGIC + _digest(body) + body


def decode(data: bytes) -> State:
    magic, digest, body = data[:4], data[4:20], data[20:]
    if magic != MAGIC:
        raise StateCorrupt("these bytes are no encoded state")
    if digest != _digest(body):
        raise StateCorrupt("the checksum does not match: the stored state is damaged")
    end = 4 + int.from_bytes(body[:4], "little")
    try:
        header = json.loads(body[4:end])
        version = header["format"]
        if version != FORMAT:
            raise StateCorrupt(f"format {version!r} of the stored state is not {FORMAT}")
        state, rest = _restore(header, memoryview(body)[end:])
    except (ValueError, KeyError, TypeError, InvalidParameter) as error:
        raise StateCorrupt(f"the header of the stored state is malformed: {error}") from error
    if len(rest):
        raise StateCorrupt(f"{len(rest)} bytes too many in the stored state")
    return state


def weight(state: State) -> int:
    """About how many bytes `encode` makes of it: its arrays, and some 300 bytes a learner beside them"""
    members = state.members if isinstance(state, one_vs_rest.State) else (state,)
    return sum(300 + sum(v.nbytes for v in vars(m).values() if isinstance(v, np.ndarray)) for m in members)


def _arrays(state: Any) -> list[NDArray[Any]]:
    return [np.asarray(getattr(state, name), dtype=dtype) for name, (_, dtype) in _FIELDS[type(state)].items()]


@lru_cache
def _head(rest: bool, kinds: tuple[tuple[type, tuple[tuple[int, ...], ...]], ...]) -> bytes:
    """The header, which depends on nothing but the learners and the shapes of their fields"""
    heads = []
    for kind, shapes in kinds:
        described = zip(_FIELDS[kind].items(), shapes, strict=True)
        fields = [[name, dtype, shape] for (name, (_, dtype)), shape in described]
        heads.append({"learner": _NAMES[kind], "fields": fields})
    header = {"learner": _NAMES[one_vs_rest.State], "members": heads} if rest else heads[0]
    return json.dumps({"format": FORMAT, **header}, separators=(",", ":")).encode()


def _restore(header: dict[str, Any], data: memoryview) -> tuple[State, memoryview]:
    kind = _STATES.get(header["learner"])
    if kind is None:
        raise StateCorrupt(f"no learner is called {header['learner']!r}")
    if kind is one_vs_rest.State:
        members: list[Any] = []
        for head in header["members"]:
            member, data = _restore(head, data)
            members.append(member)
        return one_vs_rest.init(members), data
    named = _FIELDS[kind]
    if [(name, dtype) for name, dtype, _ in header["fields"]] != [(name, dtype) for name, (_, dtype) in named.items()]:
        raise StateCorrupt(f"the fields of the stored {header['learner']} are not its own")
    values: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, dtype, shape in header["fields"]:
        axes, hint = _AXES.get(name, ()), named[name][0]
        if len(shape) != len(axes) or any(
            n < 0 or sizes.setdefault(a, n) != n for a, n in zip(axes, shape, strict=True)
        ):
            raise StateCorrupt(f"field {name} of the stored state has shape {shape}")
        count = math.prod(shape)
        array = np.frombuffer(data, dtype=dtype, count=count).reshape(shape).copy()
        values[name] = array if axes else hint(array.item())
        data = data[array.nbytes :]
    return cast(State, kind(**values)), data


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
