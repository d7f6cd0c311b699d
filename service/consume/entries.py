"""Entries of a stream: their ids, and the points that they hold.

session                which session they are for
rows                   rows of little-endian float64: the coordinates, then the label's index
point, label           or one point and its label, each as JSON
points, labels         or several
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from service.api.formats import JSON, RAW, read_labelled
from service.errors import HorocycleError, InvalidRequest, UnknownField, UnknownLabel
from service.sessions import rows
from service.sessions.rows import Batch
from service.sessions.spec import Spec

#: The kinds of entries, by their fields beside `session`
KINDS = {
    frozenset({b"rows"}): "rows",
    frozenset({b"point", b"label"}): "one",
    frozenset({b"points", b"labels"}): "many",
}
ID = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?", re.ASCII)


def id_number(id: str | bytes) -> int:
    """ms-n as one number, in the same order: ms·2⁶⁴ + n"""
    found = ID.fullmatch(id if isinstance(id, str) else id.decode())
    if found is None or max(int(found[1]), int(found[2] or 0)) >= 1 << 64:
        raise ValueError(f"{id!r} is no id of an entry, such as 1700000000000-0")
    return int(found[1]) << 64 | int(found[2] or 0)


def id_text(number: int) -> str:
    return f"{number >> 64}-{number & (1 << 64) - 1}"


class Entry(NamedTuple):
    id: int
    fields: tuple[bytes, ...]  # names and values in turn

    @property
    def digest(self) -> str:
        return xxh3_64_hexdigest(b"\0".join(b"%d %s" % (len(each), each) for each in self.fields))

    @property
    def named(self) -> dict[bytes, bytes]:
        return dict(zip(self.fields[::2], self.fields[1::2], strict=True))


class Bad(NamedTuple):
    """An entry that cannot be learned"""

    entry: Entry
    why: HorocycleError


def session_of(entry: Entry, otherwise: str | None) -> str:
    named = entry.named.get(b"session")
    if named is None:
        if otherwise is None:
            raise InvalidRequest("the entry has no field 'session', and no --session was given", field="session")
        return otherwise
    return named.decode(errors="replace")


def read(entries: Sequence[Entry], spec: Spec) -> tuple[Batch, list[Bad]]:
    """The points of entries in their order, and those that hold none. Alike ones that are all good are read at once"""
    batches, bad = list[Batch](), list[Bad]()
    for kind, group in groupby(entries, key=_kind):
        alike = list(group)
        try:
            together = None if kind in (None, "many") else read_labelled(*_body(alike, kind), spec)
        except HorocycleError:
            together = None
        if together is not None and (kind == "rows" or len(together) == len(alike)):
            batches.append(together)
            continue
        for entry in alike:
            try:
                batches.append(read_labelled(*_body([entry], kind), spec))
            except HorocycleError as error:
                bad.append(Bad(entry, error))
    return rows.joined(batches) if batches else rows.empty(spec.dimension), bad


def has_unknown_label(bad: Sequence[Bad]) -> bool:
    """Which may be known by now: labels may be added while a session runs"""
    return any(isinstance(each.why, UnknownLabel) for each in bad)


def _kind(entry: Entry) -> str | None:
    return KINDS.get(frozenset(entry.fields[::2]) - {b"session"})


def _body(alike: Sequence[Entry], kind: str | None) -> tuple[bytes, str]:
    """A body of observe, and its type"""
    named = [entry.named for entry in alike]
    if kind == "rows":
        return b"".join([each[b"rows"] for each in named]), RAW
    if kind == "one":
        points, labels = (b",".join([each[name] for each in named]) for name in (b"point", b"label"))
        if len(alike) == 1:
            return b'{"point":%s,"label":%s}' % (points, labels), JSON
        return b'{"points":[%s],"labels":[%s]}' % (points, labels), JSON
    if kind == "many":
        return b'{"points":%s,"labels":%s}' % (named[0][b"points"], named[0][b"labels"]), JSON
    known = "session, and rows, or point and label, or points and labels, each as JSON"
    strange = named[0].keys() - {b"session", *(name for kind in KINDS for name in kind)}
    if strange:
        raise UnknownField(min(strange).decode(errors="replace")[:100], known)
    raise InvalidRequest(f"an entry has the fields {known}")
