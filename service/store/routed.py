"""A store that is several servers: every command goes to the one that serves its keys, which may change at any time.

Each server has a Connection of its own. A command is sent again only when a server said that it did not run it: MOVED,
ASK, TRYAGAIN. One whose reply was lost is not, here: a commit is, above (ingest.py), since the script knows its id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from service.errors import OutcomeUnknown, StoreReadOnly, StoreUnavailable
from service.store.connection import Connection, said
from service.store.keys import ready_key, sessions_key, state_key
from service.store.slots import SLOTS, slot_of, slot_of_commands
from service.store_url import Address, StoreUrl

#: Redirections that are followed at once; seconds between those that come after, and between two looks at the map.
AT_ONCE, PAUSE, LOOK = 4, 0.02, 0.1

Owners = list[Address | None]  # by slot


class Routed(Connection):
    """A Connection to all of them. What differs, Cluster and Sentinel say: how to find out who serves what"""

    def __init__(self, url: StoreUrl, *, deadline: float = 5.0, wait_replicas: int = 0) -> None:
        self.deadline, self.wait_replicas, self.url = deadline, wait_replicas, url
        self.known_epoch = None  # each server knows its own
        self.nodes: dict[Address, Connection] = {}
        self.owners: Owners = [None] * SLOTS
        self._looking: asyncio.Task[None] | None = None
        self._looked = -LOOK
        self.generation = 0

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(*(node.close() for node in self.nodes.values()))

    # ------------------------------------------------------------------------------------ who serves what

    async def find(self) -> Owners:
        """Ask who serves which slot"""
        raise NotImplementedError

    def node(self, address: Address) -> Connection:
        if address not in self.nodes:
            how: dict[str, Any] = {"deadline": self.deadline, "wait_replicas": self.wait_replicas}
            self.nodes[address] = Connection(self.url.server(address), **how)
        return self.nodes[address]

    async def look(self) -> None:
        """Ask anew who serves what; those who want that meanwhile wait for the same answer"""
        self._look_soon()
        if self._looking is not None:
            await asyncio.shield(self._looking)

    def _look_soon(self) -> None:
        if self._looking is None and time.monotonic() >= self._looked + LOOK:
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(self._has_looked)

    def _has_looked(self, task: asyncio.Task[None]) -> None:
        self._looking, self._looked = None, time.monotonic()
        if not task.cancelled():
            task.exception()  # the callers may have left: then nobody else would look

    async def _look(self) -> None:
        owners = await self.find()
        self.generation += owners != self.owners
        for node in self.nodes.values():
            node.known_epoch = None  # another may have served meanwhile
        self.owners = owners

    async def owner(self, slot: int | None) -> Connection:
        """Who serves a slot. None: anybody who serves any"""
        for _ in range(2):
            address = next(filter(None, self.owners), None) if slot is None else self.owners[slot]
            if address is not None:
                return self.node(address)
            await self.look()
        raise StoreUnavailable("no server of the store serves these keys now")

    async def masters(self) -> dict[Address, str]:
        """Every server that serves something, and a key that it serves. Raises if there is a slot that none serves"""
        await self.look()
        if lacking := self.owners.count(None):
            raise StoreUnavailable(f"no server of the store serves {lacking} of its {SLOTS} slots now")
        left, found, number = set(self.owners), dict[Address, str](), 0
        while left:
            key = f"{ready_key()}:{number}"
            if (address := self.owners[slot_of(key)]) in left and address is not None:
                found[address] = key
                left.discard(address)
            number += 1
        return found

    # ----------------------------------------------------------------------------------------- commands

    async def calls(
        self, commands: Sequence[tuple[Any, ...]], *, lost: type[Exception] = StoreUnavailable
    ) -> list[Any]:
        """A transaction goes to one server; commands without one, each to its own"""

        async def send(node: Connection, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
            return await node.calls(commands, lost=lost)

        if len(commands) == 1 or commands[0][0] == "MULTI":
            return await self._route(commands, send)
        replies = await asyncio.gather(*(self._route([each], send) for each in commands))
        return [reply for [reply] in replies]

    async def read(self, *command: Any, patience: float | None = None) -> Any:
        async def send(node: Connection, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
            return await node._apart(commands, patience or self.deadline, StoreUnavailable)

        return (await self._route([command], send))[0]

    async def _route(
        self,
        commands: Sequence[tuple[Any, ...]],
        send: Callable[[Connection, Sequence[tuple[Any, ...]]], Awaitable[list[Any]]],
    ) -> list[Any]:
        slot, until, sent, asked = slot_of_commands(commands), time.monotonic() + self.deadline, 0, None
        while True:
            node = asked or await self.owner(slot)
            try:
                if asked is None:
                    return await send(node, commands)
                return (await send(node, [("ASKING",), *commands]))[1:]  # written in one go: nothing comes between
            except (StoreUnavailable, StoreReadOnly) as error:
                sent += 1
                word, _, rest = said(error).partition(" ")
                again, asked = self._redirected(word, rest, node)
                pause = 0.0 if sent <= AT_ONCE and word in ("MOVED", "ASK") else min(PAUSE * sent, 5 * PAUSE)
                if not again or time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)
            except OutcomeUnknown:
                self._look_soon()  # it may be gone
                raise

    def _redirected(self, word: str, rest: str, node: Connection) -> tuple[bool, Connection | None]:
        """Whether it did not run and may be sent again, and if not to the owner of its slot: to whom"""
        if word in ("MOVED", "ASK"):
            slot, _, told = rest.partition(" ")
            host, _, port = told.split(" ")[0].rpartition(":")
            asked_of = next(address for address, each in self.nodes.items() if each is node)
            address = host or asked_of[0], int(port)
            if word == "ASK":
                return True, self.node(address)
            self.owners[int(slot)] = address
        self._look_soon()
        return word in ("MOVED", "TRYAGAIN"), None

    # ---------------------------------------------------------------------------------- health and epoch

    async def epoch(self, sid: str = "") -> int:
        """Of the server that serves this session, or the list of them"""
        node = await self.owner(slot_of(state_key(sid) if sid else sessions_key()))
        try:
            return await node.epoch()
        except StoreUnavailable:
            self._look_soon()  # it may be gone
            raise

    async def ping(self) -> None:
        await asyncio.gather(*(self.node(address).ping() for address in await self.masters()))

    async def require_writable(self) -> None:
        """Every slot is served, and every server that serves one takes a write"""
        found = await self.masters()
        await asyncio.gather(*(self.call("SET", key, int(time.time())) for key in found.values()))
