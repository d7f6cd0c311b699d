"""Which slot of a cluster a command belongs to."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

SLOTS = 16384
#: Commands without a key: any server will do.
KEYLESS = {"PING", "INFO", "ECHO", "CLUSTER"}


@lru_cache(65536)
def slot_of(key: str) -> int:
    """CRC16 (XMODEM) mod 16384 of what stands between the key's first braces; of the whole key, if nothing does"""
    begin = key.find("{")
    end = key.find("}", begin + 1)
    return crc_hqx((key[begin + 1 : end] if -1 < begin < end - 1 else key).encode(), 0) % SLOTS


def slot_of_commands(commands: Sequence[tuple[Any, ...]]) -> int | None:
    """Of one command, or of one transaction; None: of none"""
    command = commands[0] if commands[0][0] != "MULTI" else commands[1]
    if command[0] in KEYLESS:
        return None
    if command[0] in ("EVALSHA", "EVAL"):
        return slot_of(command[3])
    if command[0] == "XINFO":  # STREAM key
        return slot_of(command[2])
    return slot_of(command[command.index("STREAMS") + 1 if command[0] == "XREAD" else 1])
