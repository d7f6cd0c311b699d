"""A session that comes in pieces. Each is stored under keys that nobody else knows, which expire; when all are there
`Store.open` renames them in one step, together with the state. So a session is imported wholly or not at all."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

from service.sessions.records import Counters, Entry, EntryId, Kind, Loaded
from service.sessions.rows import Batch
from service.sessions.saved_fit import SavedFit
from service.sessions.spec import Spec
from service.store import codec
from service.store.connection import Connection
from service.store.fit_codec import fit_fields
from service.store.keys import staged_keys

#: Seconds after its last piece that a session which never became whole is kept.
EXPIRE = 600
LOG, BLOCKS, BLOCK_ORDER, FITS, FIT_MODELS = range(5)


class Staging:
    def __init__(self, connection: Connection, spec: Spec, name: str) -> None:
        self._connection, self._spec, self._name = connection, spec, name
        self.keys = staged_keys(spec.id, os.urandom(8).hex())
        self.written = set[int]()  # which of the keys
        self.entries = 0
        self._fits = list[str]()

    async def points(self, batch: Batch, behind: int, final: Loaded) -> None:
        """Retained points, oldest first; the last is the one before the position `behind`"""
        counters = reached(final.counters, behind)
        entry = Entry(Kind.IMPORT, counters, final.status, len(batch), batch, batch.indices)
        written = await asyncio.to_thread(codec.write_entry, entry, self._spec, f"{self._name}{self.entries}")
        self.entries += 1
        id = EntryId(counters.observed, self.entries)
        order = [f"{counters.observed} {name}" for name in written.blocks]
        commands = [self.block(name, data) for name, data in written.blocks.items()]
        commands += [self._touched(BLOCK_ORDER, "RPUSH", *order)] if order else []
        await self._write(*commands, self._touched(LOG, "XADD", str(id), *written.fields))

    async def fit(self, saved: SavedFit) -> None:
        self._fits.append(saved.id)
        flat = [part for pair in fit_fields(saved).items() for part in pair]
        commands = [self._touched(FITS, "HSET", *flat, "order", " ".join(self._fits))]
        commands += [self._touched(FIT_MODELS, "HSET", saved.id, saved.model)] if saved.model else []
        await self._write(*commands)

    def block(self, name: str, data: bytes) -> tuple[Any, ...]:
        """The command that stores a block"""
        return self._touched(BLOCKS, "HSET", name, data)

    @property
    def fits(self) -> int:
        """How many are staged"""
        return len(self._fits)

    @property
    def marks(self) -> str:
        """For open.lua: which keys must be there"""
        return "".join(str(int(i in self.written)) for i in range(len(self.keys)))

    async def drop(self) -> None:
        await self._connection.call("UNLINK", *self.keys)

    def _touched(self, key: int, command: str, *arguments: Any) -> tuple[Any, ...]:
        self.written.add(key)
        return (command, self.keys[key], *arguments)

    async def _write(self, *commands: tuple[Any, ...]) -> None:
        await self._connection.calls([*commands, *(("EXPIRE", self.keys[i], EXPIRE) for i in self.written)])


def reached(final: Counters, position: int) -> Counters:
    """Counters at an earlier position, of which only the position is known: none is beyond the last, or goes back"""
    return replace(final, observed=position, mistakes=min(final.mistakes, position))
