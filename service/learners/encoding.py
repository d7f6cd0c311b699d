"""One encoding for all states: a JSON header that says what the bytes are, then the bytes. No pickle.

    b"HORO" · digest (16 bytes of BLAKE2b over the rest) · header length (u32, little endian) · header · arrays

The header is {"format": 1, "learner": name, "fields": [[name, dtype, shape], …]}; numbers are arrays of no axes.
A state of several learners has "members": a header each, and their arrays one after another before its own. Which
fields there are, and which of their axes have the same length, is said by the learners: see registry.py. A field that
has a default may be missing: it came later than the state was stored.
"""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, fields
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Any, get_type_hints

import numpy as np

from service.errors import InvalidParameter, StateCorrupt
from service.learners.contract import Counts
from service.learners.registry import LEARNERS

FORMAT = 1
MAGIC = b"HORO"

#: A field of any other type is an array of floats.
_DTYPES: dict[Any, str] = {float: "<f8", int: "<i8", bool: "|b1", Counts: "<i8"}
_STATES: dict[str, type] = {name: learner.State for name, learner in LEARNERS.items()}
_NAMES = {state: name for name, state in _STATES.items()}
#: state → its fields beside its members: name → (the field's type, the dtype it is stored with, its axes)
_FIELDS: dict[type, dict[str, tuple[Any, str, tuple[str, ...]]]] = {
    learner.State: {
        name: (hint, _DTYPES.get(hint, "<f8"), learner.AXES.get(name, ()))
        for name, hint in get_type_hints(learner.State).items()
        if name != "members"
    }
    for learner in LEARNERS.values()
}
#: state → the same, to be written fast: name, the dtype, and of a number what packs it
_NUMBERS = {"<f8": Struct("<d").pack, "<i8": Struct("<q").pack, "|b1": Struct("<?").pack}
_WRITTEN = {
    state: [(name, np.dtype(kind), None if axes else _NUMBERS[kind]) for name, (_, kind, axes) in named.items()]
    for state, named in _FIELDS.items()
}
#: state → its fields that states stored by an older version may lack
_DEFAULTED = {
    state: {f.name for f in fields(state) if f.default is not MISSING or f.default_factory is not MISSING}
    for state in _STATES.values()
}
_HAS_MEMBERS = {state for state in _STATES.values() if "members" in {f.name for f in fields(state)}}

Kind = tuple[type, tuple[tuple[int, ...], ...], tuple[Any, ...]]  # a state's type, its shapes, the kinds of its members


def encode(state: Any) -> bytes:
    values: list[bytes] = []
    head = _head(_collect(state, values))
    body = b"".join([len(head).to_bytes(4, "little"), head, *values])
    return MAGIC + _digest(body) + body


def decode(data: bytes) -> Any:
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


def weight(state: Any) -> int:
    """About how many bytes `encode` makes of it: its arrays, and some 300 bytes a learner beside them"""
    own = sum(value.nbytes for value in vars(state).values() if isinstance(value, np.ndarray))
    return 300 + own + sum(weight(member) for member in getattr(state, "members", ()))


def _collect(state: Any, values: list[bytes]) -> Kind:
    """The state's kind; the bytes of its fields are appended, those of its members first"""
    kind, shapes = type(state), list[tuple[int, ...]]()
    members = tuple([_collect(member, values) for member in state.members]) if kind in _HAS_MEMBERS else ()
    for name, dtype, number in _WRITTEN[kind]:
        value = getattr(state, name)
        if number is not None:
            shapes.append(())
            values.append(number(value))
        else:
            array = np.asarray(value, dtype)
            shapes.append(array.shape)
            values.append(array.tobytes())
    return kind, tuple(shapes), members


@lru_cache
def _head(kind: Kind) -> bytes:
    """The header, which depends on nothing but the learners and the shapes of their fields"""
    return json.dumps({"format": FORMAT, **_described(kind)}, separators=(",", ":")).encode()


def _described(kind: Kind) -> dict[str, Any]:
    state, shapes, members = kind
    head: dict[str, Any] = {"learner": _NAMES[state]}
    if state in _HAS_MEMBERS:
        head["members"] = [_described(member) for member in members]
    if shapes:
        named = zip(_FIELDS[state].items(), shapes, strict=True)
        head["fields"] = [[name, dtype, shape] for (name, (_, dtype, _)), shape in named]
    return head


def _restore(header: dict[str, Any], data: memoryview) -> tuple[Any, memoryview]:
    kind = _STATES.get(header["learner"])
    if kind is None:
        raise StateCorrupt(f"no learner is called {header['learner']!r}")
    values: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    if kind in _HAS_MEMBERS:
        members: list[Any] = []
        for head in header["members"]:
            member, data = _restore(head, data)
            members.append(member)
        values["members"], sizes["members"] = tuple(members), len(members)
    named = _FIELDS[kind]
    stored = header.get("fields", [])
    left_out = _DEFAULTED[kind] - {name for name, _, _ in stored}
    if [(name, dtype) for name, dtype, _ in stored] != [
        (name, dtype) for name, (_, dtype, _) in named.items() if name not in left_out
    ]:
        raise StateCorrupt(f"the fields of the stored {header['learner']} are not its own")
    for name, dtype, shape in stored:
        hint, _, axes = named[name]
        if len(shape) != len(axes) or any(
            n < 0 or sizes.setdefault(a, n) != n for a, n in zip(axes, shape, strict=True)
        ):
            raise StateCorrupt(f"field {name} of the stored state has shape {shape}")
        array = np.frombuffer(data, dtype=dtype, count=math.prod(shape)).reshape(shape).copy()
        values[name] = array if axes else hint(array.item())
        data = data[array.nbytes :]
    return kind(**values), data


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
