"""How a fit is written in the hash of fits: records to fields, and back. JSON has a checksum behind it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_64_hexdigest

from service.errors import StateCorrupt
from service.sessions.saved_fit import SavedFit


def sealed(document: dict[str, Any]) -> str:
    """As JSON, with its checksum behind it"""
    text = json.dumps(document, default=str)
    return f"{text} {xxh3_64_hexdigest(text.encode())}"


def unsealed(stored: bytes) -> dict[str, Any]:
    """What ends with a brace has no checksum: it was written by Lua, or by an older version"""
    text, _, check = stored.rpartition(b" ")
    if stored.endswith(b"}"):
        text, check = stored, b""
    try:
        if check and check.decode() != xxh3_64_hexdigest(text):
            raise ValueError("the checksum does not match")
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise StateCorrupt("what is stored of a fit is damaged") from error
    return found


def fit_fields(saved: SavedFit) -> dict[bytes, bytes]:
    """As the hash of fits has it. No owner comes twice: what is cached of a fit goes by its owner"""
    numbers = {name: json.dumps(value).encode() for name, value in saved.numbers.items() if value is not None}
    told = {name: sealed(value).encode() for name, value in saved.told.items() if value is not None}
    named = {
        "status": saved.status.encode(),
        "recipe": sealed({"asked": saved.asked}).encode(),
        "fingerprint": saved.fingerprint,
        "owner": os.urandom(8).hex().encode(),
    }
    return {f"{saved.id}:{name}".encode(): value for name, value in {**named, **numbers, **told}.items()}


def read_fits(fields: Mapping[bytes, bytes]) -> list[SavedFit]:
    """The fits of a session that have ended, oldest first, without their models"""
    found = list[SavedFit]()
    for id in fields.get(b"order", b"").decode().split():
        own = {
            name: fields.get(f"{id}:{name}".encode())
            for name in ("status", "fingerprint", "recipe", *SavedFit.NUMBERS, *SavedFit.TOLD)
        }
        status = (own["status"] or b"").decode()
        if status in SavedFit.ENDED:
            try:
                numbers = {name: None if (text := own[name]) is None else json.loads(text) for name in SavedFit.NUMBERS}
            except ValueError as error:
                raise StateCorrupt("what is stored of a fit is damaged") from error
            told = {name: None if (text := own[name]) is None else unsealed(text) for name in SavedFit.TOLD}
            asked = unsealed(own["recipe"] or b"{}").get("asked", {})
            found.append(SavedFit(id, status, asked, own["fingerprint"] or b"", numbers, told))
    return found
