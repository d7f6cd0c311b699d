"""How a session and the entries of its log are written in Redis: records to fields, and back.

The state, a hash:
    revision, entries       counts of commits and of log entries
    head                    "observed mistakes updates version status"
    spec, opened, fork      JSON; `opened` is the spec at first, if it was changed since
    tally, log              what is counted beside the learner; mistakes per 1,000 points
    c<i>                    row i of the confusion matrix
    learner, learner_at     the encoded learner, and the log entry behind which it stands
    checkpoints             ids of the entries that carry one
    producer:<name>         "seq connection used": how far a producer of messages, or a stream, has come
    answers, recent, blocks kept by lua/commit.lua
    check                   "revision entries answers/recent" again: what Lua counts with, written twice

Every other field but the learner, which has its own, ends with a checksum that knows the field's name. A session
without `check` was stored before there were any; its next commit writes all fields anew.

An entry of the log:
    kind, commit, head      what it is, the commit's id, the head after it
    points                  how many points were learned
    rows, predicted, truth  they: all of them, or the first SAMPLE if all are in a block, as columns (sessions/rows.py)
    matched, alarms, jumps, skipped, replaced, spec, fit, status, checkpoint   where there is one
    blocks, sums            which of rows, replaced, checkpoint are in `blocks`, under the name <commit><part>; their
                            checksums
    check                   a checksum of all fields before it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha1
from typing import Any
from zlib import crc32

import numpy as np
from hiredis import pack_command
from xxhash import xxh3_64_digest

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
from service.sessions.rows import Batch, Rows
from service.sessions.spec import Spec, spec_from_json, spec_to_json
from service.sessions.tally import Confusion, Tally, pack_row, unpack_row

Field = str | bytes | int
#: Parts of an entry that are larger go into a block: Lua would copy them. So do points that would stay for long after
#: they are no longer retained, because the newest 64 entries stay in any case.
LARGE, SMALL, ENTRIES = 64 << 10, 4 << 10, 64
LISTED = ("spec", "head", "fork", "check")
#: Names that a state or an entry may have: any other one is a damaged name.
SEALED = {b"head", b"spec", b"opened", b"fork", b"tally", b"log"}
STATE = {b"revision", b"entries", b"learner", b"learner_at", b"checkpoints", b"answers", b"recent", b"blocks", b"check"}
ENTRY = {
    b"kind",
    b"commit",
    b"head",
    b"points",
    b"rows",
    b"predicted",
    b"truth",
    b"matched",
    b"alarms",
    b"replaced",
} | {*(b"learner", b"spec", b"fit", b"status", b"checkpoint", b"blocks", b"sums", b"check")}


# ------------------------------------------------------------------------------------------------------- checksums


def seal(name: str, data: str | bytes) -> bytes:
    """The bytes and 8 of xxh3 over them, whose seed is the name they are kept under"""
    if isinstance(data, str):
        data = data.encode()
    return data + xxh3_64_digest(data, seed=crc32(name.encode()))


def unseal(name: str, sealed: bytes) -> bytes:
    data = sealed[:-8]
    if len(sealed) < 8 or sealed[-8:] != xxh3_64_digest(data, seed=crc32(name.encode())):
        raise StateCorrupt(f"the checksum does not match: {name!r} of the stored session is damaged")
    return data


def checked_counts(revision: Any, entries: Any, answers: str = "", recent: str = "") -> str:
    """As lua/log.lua writes it"""
    return f"{revision} {entries} {answers}/{recent}"


def _unsealed(fields: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """The fields of a state without their checksums, if these match"""
    sealed = {name for name in fields if name in SEALED or _is_row(name) or name[:9] == b"producer:"}
    if strange := fields.keys() - sealed - STATE:
        raise StateCorrupt(f"the stored session has strange fields: {sorted(strange)[0][:50]!r}")
    if b"check" not in fields:
        return fields
    counted = [fields.get(name, b"").decode() for name in (b"revision", b"entries", b"answers", b"recent")]
    if fields[b"check"].decode() != checked_counts(*counted):
        raise StateCorrupt("the counts of the stored session are damaged")
    return {name: unseal(name.decode(), value) if name in sealed else value for name, value in fields.items()}


# ------------------------------------------------------------------------------------------------------- the state


def state_fields(before: Loaded | None, after: Loaded, learner: bytes | None) -> list[Field]:
    """What a commit changes of the state's hash, flat; all of it if there was none before, or none with checksums"""
    if before is not None and not before.sealed:
        before = None
    counted = after.tally
    changed: list[tuple[str, str | bytes]] = [("head", head(after.counters, after.status) + " ")]
    if before is None or counted is not before.tally:
        changed.append(("tally", counted.pack()))
    if len(counted.log) and (before is None or counted.log is not before.tally.log):
        changed.append(("log", counted.pack_log()))
    known = {} if before is None else before.confusion.rows
    changed += [(f"c{i}", pack_row(row)) for i, row in after.confusion.rows.items() if row is not known.get(i)]
    if before is None or after.spec is not before.spec:
        changed.append(("spec", spec_to_json(after.spec)))
    if after.opened is not None and (before is None or before.opened is None):
        changed.append(("opened", spec_to_json(after.opened)))
    if after.fork is not None and (before is None or after.fork is not before.fork):
        changed.append(("fork", json.dumps(asdict(after.fork))))
    if before is None or after.producers is not before.producers:
        since = {} if before is None else before.producers
        changed += [
            (f"producer:{name}", f"{producer.seq} {producer.connection} {producer.used}")
            for name, producer in after.producers.items()
            if producer is not since.get(name)
        ]
    fields: list[Field] = ["learner", learner] if learner is not None else []
    for name, data in changed:
        plain = data if isinstance(data, bytes) else data.encode()
        fields += (name, plain + xxh3_64_digest(plain, seed=crc32(name.encode())))  # as seal()
    return fields


def head(counters: Counters, status: str) -> str:
    return f"{counters.observed} {counters.mistakes} {counters.updates} {counters.version} {status}"


def read_head(data: bytes) -> tuple[Counters, str]:
    observed, mistakes, updates, version, status = data.decode().split()
    return Counters(int(observed), int(mistakes), int(updates), int(version)), Status(status)


def read_state(fields: Mapping[bytes, bytes]) -> Loaded:
    """The session; its learner as it was stored, `learner_at` that entry"""
    try:
        sealed, fields = b"check" in fields, _unsealed(fields)
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
            sealed,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt("the stored session is damaged") from error


def read_listed(values: Sequence[bytes | None]) -> Listed:
    spec, text, fork, check = values
    if spec is None or text is None:
        raise ValueError("a session without a spec")
    if check is not None:
        spec, text, fork = unseal("spec", spec), unseal("head", text), None if fork is None else unseal("fork", fork)
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
        n, predicted = entry.points, entry.predicted
        size = n * (spec.row_bytes if batch.truth is None else spec.row_bytes + 8 * spec.dimension)
        if size >= LARGE or (size >= SMALL and n * ENTRIES > spec.keep_points):
            parts["rows"] = rows.pack_columns(batch, predicted, len(spec.labels))
            batch, predicted = batch[:SAMPLE], predicted[:SAMPLE]
        data = batch.packed or (batch.table.tobytes() if isinstance(batch, Rows) else rows.pack(batch))
        fields += ("rows", data, "predicted", predicted.astype(spec.class_type).tobytes())
        if batch.truth is not None:
            fields += ("truth", batch.truth.astype("<f8").tobytes())
    if entry.matched:
        fields += ("matched", json.dumps([[m.if_match, m.accepted, m.version, m.first] for m in entry.matched]))
    if entry.alarms:
        fields += ("alarms", " ".join(map(str, entry.alarms)))
    if entry.skipped:
        fields += ("skipped", " ".join(map(str, entry.skipped)))
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
        fields += ("blocks", " ".join(parts), "sums", b"".join(map(xxh3_64_digest, parts.values())))
    fields += ("check", xxh3_64_digest(pack_command((*fields,))))  # type: ignore[arg-type]
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

    def block(self, part: str, blocks: Mapping[str, bytes]) -> bytes | None:
        """That one of its blocks; None: it is not kept any more"""
        data, sums = blocks.get(self.blocks(part)[0]), self.fields.get(b"sums", b"")
        place = 8 * self.fields[b"blocks"].decode().split().index(part)
        if data is not None and sums and xxh3_64_digest(data) != sums[place : place + 8]:
            raise StateCorrupt(f"the checksum does not match: a block of entry {self.id} of the log is damaged")
        return data


def read_record(reply: Any) -> Record:
    id, flat = reply
    try:
        record = Record(EntryId.parse(id.decode()), dict(zip(flat[::2], flat[1::2], strict=True)))
    except ValueError as error:
        raise StateCorrupt(f"an entry of the log is damaged: {id[:50]!r} is no id of one") from error
    if b"check" in record.fields:
        observed, check = (
            record.fields.get(b"head", b"").partition(b" ")[0],
            xxh3_64_digest(pack_command((*flat[:-2],))),
        )
        if len(flat[-1]) == 40:  # of a fit's status: SHA-1, which Redis offers to Lua
            check = sha1(b"\0".join(flat[:-2]), usedforsecurity=False).hexdigest().encode()
        if flat[-2:] != [b"check", check] or observed != b"%d" % record.id.observed:
            raise StateCorrupt(f"the checksum does not match: entry {record.id} of the log is damaged")
    elif not record.fields.keys() <= ENTRY:
        raise StateCorrupt(f"entry {record.id} of the log is damaged: it has a strange field")
    return record


def record_rows(record: Record, spec: Spec, blocks: Mapping[str, bytes]) -> bytes | None:
    """The packed rows of an entry; None: it has points, and they are not kept"""
    if record.blocks("rows"):
        try:
            batch, _ = _points(record, spec, blocks)
        except ValueError as error:
            raise StateCorrupt(f"a block of entry {record.id} of the log is damaged") from error
        return None if batch is None else rows.pack(batch)
    size, data = record.points * rows.row_bytes(spec.dimension), record.fields.get(b"rows", b"")
    return data[:size] if len(data) >= size else None


def read_entry(record: Record, spec: Spec, blocks: Mapping[str, bytes] | None = None) -> Entry:
    """The whole entry; without its blocks (None) the first SAMPLE points, and no learner or checkpoint that is large:
    where and why the learner was replaced is still told"""
    fields = record.fields
    try:
        counters, status = read_head(fields[b"head"])
        named = json.loads(fields.get(b"replaced", b"[]"))
        learners = _part(record, "replaced", b"learner", blocks) if named else b""
        replaced = _replaced(named if learners is not None or blocks is None else [], learners)
        with np.errstate(invalid="raise"):  # a class index that is no number
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
            tuple(int(each) for each in fields.get(b"skipped", b"").split()),
        )
    except (ValueError, KeyError, TypeError, FloatingPointError) as error:
        raise StateCorrupt(f"entry {record.id} of the log is damaged") from error


def _replaced(named: list[tuple[int, int, str, int]], learners: bytes | None) -> tuple[Replaced, ...]:
    found, at = list[Replaced](), 0
    for after, updates, reason, size in named:
        state = None if learners is None else decode(learners[at : at + size])
        found.append(Replaced(after, updates, state, reason))
        at += size
    return tuple(found)


def _points(record: Record, spec: Spec, blocks: Mapping[str, bytes] | None) -> tuple[Batch | None, Any]:
    if b"rows" not in record.fields:
        return None, None
    n, d, fields = record.points, spec.dimension, record.fields
    if record.blocks("rows") and blocks is not None:
        data = record.block("rows", blocks)
        return (None, None) if data is None else rows.unpack_columns(data, n, d, b"truth" in fields)
    batch = rows.unpack(fields[b"rows"], d)
    truth = np.frombuffer(fields[b"truth"], dtype="<f8").reshape(-1, d) if b"truth" in fields else None
    return Batch(batch.X, batch.indices, truth), rows.unpack_classes(fields[b"predicted"], len(batch))


def _part(record: Record, part: str, field: bytes, blocks: Mapping[str, bytes] | None) -> bytes | None:
    if record.blocks(part):
        return None if blocks is None else record.block(part, blocks)
    return record.fields.get(field)


def with_checkpoint(entry: Entry, after: Loaded) -> Entry:
    """With the session after it; its status is the entry's, also while a fork is replaying"""
    return replace(entry, checkpoint=checkpoint.pack(replace(after, status=entry.status)))
