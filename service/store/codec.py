"""How a session and the entries of its log are written in Redis: records to fields, and back.

The state, a hash:
    revision, entries       counts of commits and of log entries
    head                    "observed mistakes updates version status"
    spec, opened, fork      JSON; `opened` is the spec at first, if it was changed since
    tally, log              what is counted beside the learner; mistakes per 1,000 points
    c<i>                    row i of the confusion matrix
    learner, learner_at     the encoded learner, and the log entry behind which it stands
    checkpoints             ids of the entries that carry one
    producer:<name>         "seq connection used": how far a producer of numbered messages has come
    answers, recent, blocks kept by lua/commit.lua

An entry of the log:
    kind, commit, head      what it is, the commit's id, the head after it
    points                  how many points were learned
    rows, predicted, truth  they: all of them, or the first SAMPLE if the rest is in a block
    matched, alarms, jumps, replaced, spec, fit, status, checkpoint   where there is one
    blocks                  which of rows, replaced, checkpoint are in `blocks`, under the name <commit><part>
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import StateCorrupt
from service.learners import decode, encode
from service.sessions import checkpoint, rows
from service.sessions.events import SAMPLE
from service.sessions.records import (
    Counters,
    Entry,
    EntryId,
    Fork,
    Kind,
    Listed,
    Loaded,
    Matched,
    Producer,
    Replaced,
    Status,
)
from service.sessions.rows import Batch
from service.sessions.spec import Spec, spec_from_json, spec_to_json
from service.sessions.tally import Confusion, Tally, pack_row, unpack_row

Field = str | bytes | int
#: Parts of an entry that are larger go into a block: Lua would copy them. So do points that would stay for long after
#: they are no longer retained, because the newest 64 entries stay in any case.
LARGE, SMALL, ENTRIES = 64 << 10, 4 << 10, 64
LISTED = ("spec", "head", "fork")


# ------------------------------------------------------------------------------------------------------- the state


def state_fields(before: Loaded | None, after: Loaded, learner: bytes | None) -> list[Field]:
    """What a commit changes of the state's hash, flat; all of it if there was none before"""
    counted, fields = after.tally, list[Field](("head", head(after.counters, after.status)))
    if before is None or counted is not before.tally:
        fields += ("tally", counted.pack())
    if len(counted.log) and (before is None or counted.log is not before.tally.log):
        fields += ("log", counted.pack_log())
    known = {} if before is None else before.confusion.rows
    for i, row in after.confusion.rows.items():
        if row is not known.get(i):
            fields += (f"c{i}", pack_row(row))
    if before is None or after.spec is not before.spec:
        fields += ("spec", spec_to_json(after.spec))
    if after.opened is not None and (before is None or before.opened is None):
        fields += ("opened", spec_to_json(after.opened))
    if after.fork is not None and (before is None or after.fork is not before.fork):
        fields += ("fork", json.dumps(asdict(after.fork)))
    if learner is not None:
        fields += ("learner", learner)
    if before is None or after.producers is not before.producers:
        since = {} if before is None else before.producers
        for name, producer in after.producers.items():
            if producer is not since.get(name):
                fields += (f"producer:{name}", f"{producer.seq} {producer.connection} {producer.used}")
    return fields


def head(counters: Counters, status: str) -> str:
    return f"{counters.observed} {counters.mistakes} {counters.updates} {counters.version} {status}"


def read_head(data: bytes) -> tuple[Counters, str]:
    observed, mistakes, updates, version, status = data.decode().split()
    return Counters(int(observed), int(mistakes), int(updates), int(version)), Status(status)


def read_state(fields: Mapping[bytes, bytes]) -> Loaded:
    """The session; its learner as it was stored, `learner_at` that entry"""
    try:
        counters, status = read_head(fields[b"head"])
        cells = {int(name[1:]): unpack_row(row) for name, row in fields.items() if _is_row(name)}
        opened, newest = fields.get(b"opened"), EntryId(counters.observed, int(fields[b"entries"]))
        return Loaded(
            spec_from_json(fields[b"spec"]),
            int(fields[b"revision"]),
            counters,
            decode(fields[b"learner"]),
            status,
            Tally.unpack(fields[b"tally"], fields.get(b"log", b"")),
            Confusion(cells),
            None if opened is None else spec_from_json(opened),
            _fork(fields.get(b"fork")),
            newest,
            EntryId.parse(fields.get(b"learner_at", b"0-0").decode()),
            len(fields[b"learner"]),
            tuple(EntryId.parse(id) for id in fields.get(b"checkpoints", b"").decode().split()),
            {
                name[9:].decode(): Producer(*map(int, fields[name].split()))
                for name in fields
                if name[:9] == b"producer:"
            },
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt("the stored session is damaged") from error


def read_listed(values: Sequence[bytes | None]) -> Listed:
    spec, text, fork = values
    if spec is None or text is None:
        raise ValueError("a session without a spec")
    return Listed(spec_from_json(spec), *read_head(text), _fork(fork))


def _fork(data: bytes | None) -> Fork | None:
    return None if data is None else Fork(**json.loads(data))


def _is_row(name: bytes) -> bool:
    return name[:1] == b"c" and name[1:].isdigit()


# ----------------------------------------------------------------------------------------------------- an entry


@dataclass(frozen=True)
class Written:
    """An entry as it is sent: the fields of the stream's entry, and the large parts that are sent before it"""

    fields: list[Field]
    blocks: dict[str, bytes]


def write_entry(entry: Entry, spec: Spec, commit_id: str) -> Written:
    fields: list[Field] = ["kind", entry.kind.value, "commit", commit_id, "head", head(entry.counters, entry.status)]
    fields += ("points", entry.points)
    parts: dict[str, bytes] = {}
    if (batch := entry.batch) is not None:
        data = batch.packed or rows.pack(batch)
        predicted = entry.predicted.astype(spec.class_type).tobytes()
        truth = b"" if batch.truth is None else batch.truth.astype("<f8").tobytes()
        n, size = entry.points, len(data) + len(truth)
        if size >= LARGE or (size >= SMALL and n * ENTRIES > spec.keep_points):
            parts["rows"] = b"".join((data, predicted, truth))
            data, predicted, truth = (part[: len(part) // n * SAMPLE] for part in (data, predicted, truth))
        fields += ("rows", data, "predicted", predicted)
        if truth:
            fields += ("truth", truth)
    if entry.matched:
        fields += ("matched", json.dumps([[m.if_match, m.accepted, m.version, m.first] for m in entry.matched]))
    if entry.alarms:
        fields += ("alarms", " ".join(map(str, entry.alarms)))
    if entry.jumps:
        fields += ("jumps", entry.jumps)
    if entry.spec is not None:
        fields += ("spec", spec_to_json(entry.spec))
    if entry.fit is not None:
        fields += ("fit", entry.fit)
    if entry.replaced:
        encoded = [encode(each.state) for each in entry.replaced]
        named = [[r.after, r.updates, r.reason, len(data)] for r, data in zip(entry.replaced, encoded, strict=True)]
        fields += ("replaced", json.dumps(named))
        _write_part("replaced", "learner", b"".join(encoded), fields, parts)
    if entry.checkpoint:
        _write_part("checkpoint", "checkpoint", entry.checkpoint, fields, parts)
    if parts:
        fields += ("blocks", " ".join(parts))
    return Written(fields, {commit_id + part: data for part, data in parts.items()})


def _write_part(part: str, field: str, data: bytes, fields: list[Field], parts: dict[str, bytes]) -> None:
    if len(data) >= LARGE:
        parts[part] = data
    else:
        fields += (field, data)


@dataclass(frozen=True)
class Record:
    """An entry as the log has it, its blocks not read"""

    id: EntryId
    fields: Mapping[bytes, bytes]

    @property
    def kind(self) -> Kind:
        return Kind(self.fields[b"kind"].decode())

    @property
    def points(self) -> int:
        return int(self.fields.get(b"points", b"0"))

    def blocks(self, *parts: str) -> list[str]:
        """The names of its blocks, of these parts or of all"""
        commit, named = self.fields.get(b"commit", b"").decode(), self.fields.get(b"blocks", b"").decode().split()
        return [commit + part for part in named if not parts or part in parts]


def read_record(reply: Any) -> Record:
    id, flat = reply
    try:
        return Record(EntryId.parse(id.decode()), dict(zip(flat[::2], flat[1::2], strict=True)))
    except ValueError as error:
        raise StateCorrupt(f"an entry of the log is damaged: {id[:50]!r} is no id of one") from error


def record_rows(record: Record, spec: Spec, blocks: Mapping[str, bytes]) -> bytes | None:
    """The packed rows of an entry; None: it has points, and they are not kept"""
    size = record.points * rows.row_bytes(spec.dimension)
    names = record.blocks("rows")
    data = blocks.get(names[0]) if names else record.fields.get(b"rows", b"")
    return data[:size] if data is not None and len(data) >= size else None


def read_entry(record: Record, spec: Spec, blocks: Mapping[str, bytes] | None = None) -> Entry:
    """The whole entry; without its blocks (None) the first SAMPLE points, and no learner or checkpoint that is large"""
    fields = record.fields
    try:
        counters, status = read_head(fields[b"head"])
        learners = _part(record, "replaced", b"learner", blocks) if b"replaced" in fields else None
        replaced = () if learners is None else _replaced(json.loads(fields[b"replaced"]), learners)
        batch, predicted = _points(record, spec, blocks)
        return Entry(
            record.kind,
            counters,
            status,
            record.points,
            batch,
            predicted,
            tuple(Matched(*each) for each in json.loads(fields.get(b"matched", b"[]"))),
            tuple(int(each) for each in fields.get(b"alarms", b"").split()),
            replaced,
            spec_from_json(fields[b"spec"]) if b"spec" in fields else None,
            fields[b"fit"].decode() if b"fit" in fields else None,
            fields[b"status"].decode() if b"status" in fields else None,
            _part(record, "checkpoint", b"checkpoint", blocks) or b"",
            int(fields.get(b"jumps", 0)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt(f"entry {record.id} of the log is damaged") from error


def _replaced(named: list[tuple[int, int, str, int]], learners: bytes) -> tuple[Replaced, ...]:
    found, at = list[Replaced](), 0
    for after, updates, reason, size in named:
        found.append(Replaced(after, updates, decode(learners[at : at + size]), reason))
        at += size
    return tuple(found)


def _points(record: Record, spec: Spec, blocks: Mapping[str, bytes] | None) -> tuple[Batch | None, Any]:
    if b"rows" not in record.fields:
        return None, None
    n, d, fields = record.points, spec.dimension, record.fields
    if names := record.blocks("rows"):
        if blocks is not None:
            if names[0] not in blocks:
                return None, None
            data, middle = blocks[names[0]], n * rows.row_bytes(d)
            end = len(data) - (n * 8 * d if b"truth" in fields else 0)
            truth = np.frombuffer(data[end:], dtype="<f8").reshape(-1, d) if b"truth" in fields else None
            batch = rows.unpack(data[:middle], d)
            return Batch(batch.X, batch.indices, truth), _classes(data[middle:end], n)
    batch = rows.unpack(fields[b"rows"], d)
    truth = np.frombuffer(fields[b"truth"], dtype="<f8").reshape(-1, d) if b"truth" in fields else None
    return Batch(batch.X, batch.indices, truth), _classes(fields[b"predicted"], len(batch))


def _classes(data: bytes, n: int) -> NDArray[np.int64]:
    """Class indices, a byte each or two: labels may have been added since"""
    return np.frombuffer(data, dtype="u1" if len(data) == n else "<u2").astype(np.int64)


def _part(record: Record, part: str, field: bytes, blocks: Mapping[str, bytes] | None) -> bytes | None:
    if names := record.blocks(part):
        return None if blocks is None else blocks.get(names[0])
    return record.fields.get(field)


def with_checkpoint(entry: Entry, after: Loaded) -> Entry:
    """With the session after it; its status is the entry's, also while a fork is replaying"""
    return replace(entry, checkpoint=checkpoint.pack(replace(after, status=entry.status)))
