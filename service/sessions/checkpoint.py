"""Checkpoints: a session at a position, as bytes that an entry of the log carries.

A learner is replayed from the newest checkpoint before the position that is asked for; position 0 needs none. A
checkpoint is due every keep_points/4 points, but not before the points since the last one outweigh it.

    digest (16 bytes of BLAKE2b over the rest) · header length (u32, little endian) · header, JSON · parts
"""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from service.errors import StateCorrupt
from service.learners import decode, encode
from service.sessions import tally
from service.sessions.records import Counters, Loaded
from service.sessions.spec import spec_from_json, spec_to_json
from service.sessions.tally import Confusion, Tally


def pack(loaded: Loaded) -> bytes:
    rows = {i: tally.pack_row(row) for i, row in sorted(loaded.confusion.rows.items())}
    parts = [encode(loaded.state), loaded.tally.pack(), loaded.tally.pack_log(), *rows.values()]
    header = {
        "spec": spec_to_json(loaded.spec),
        "counters": asdict(loaded.counters),
        "status": loaded.status,
        "sizes": [len(part) for part in parts],
        "classes": list(rows),
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join([len(head).to_bytes(4, "little"), head, *parts])
    return blake2b(body, digest_size=16).digest() + body


def unpack(data: bytes) -> Loaded:
    digest, body = data[:16], data[16:]
    if digest != blake2b(body, digest_size=16).digest():
        raise StateCorrupt("the checksum does not match: a checkpoint of the log is damaged")
    at = 4 + int.from_bytes(body[:4], "little")
    header: dict[str, Any] = json.loads(body[4:at])
    parts = []
    for size in header["sizes"]:
        parts.append(body[at : at + size])
        at += size
    rows = {i: tally.unpack_row(part) for i, part in zip(header["classes"], parts[3:], strict=True)}
    return Loaded(
        spec_from_json(header["spec"]),
        0,
        Counters(**header["counters"]),
        decode(parts[0]),
        header["status"],
        Tally.unpack(parts[1], parts[2]),
        Confusion(rows),
    )
