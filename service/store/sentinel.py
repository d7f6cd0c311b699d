"""A master and its replicas, watched by Redis Sentinels: they say who is the master now."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from service.errors import HorocycleError, StoreUnavailable
from service.store.connection import Connection
from service.store.routed import Owners, Routed
from service.store.slots import SLOTS
from service.store_url import Address, StoreUrl


class Sentinel(Routed):
    def __init__(self, url: StoreUrl, *, deadline: float = 5.0, wait_replicas: int = 0) -> None:
        super().__init__(url, deadline=deadline, wait_replicas=wait_replicas)
        self._sentinels = [Connection(url.sentinel(each), deadline=deadline) for each in url.seeds]

    async def close(self) -> None:
        await asyncio.gather(super().close(), *(each.close() for each in self._sentinels))

    async def find(self) -> Owners:
        """Whom a sentinel calls the master, if that one says so too: a sentinel may tell of the past"""
        asked = [asyncio.create_task(self._ask(each)) for each in self._sentinels]
        try:
            for answer in asyncio.as_completed(asked):
                with suppress(HorocycleError):
                    return [await answer] * SLOTS
        finally:
            for each in asked:
                each.cancel()
        raise StoreUnavailable(f"no sentinel knows a master of {self.url.name}")

    async def _ask(self, sentinel: Connection) -> Address:
        told = await sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.url.name)
        if not told:
            raise StoreUnavailable(f"a sentinel does not know {self.url.name}")
        address = told[0].decode(), int(told[1])
        if (await self.node(address).call("ROLE"))[0] != b"master":
            raise StoreUnavailable(f"{address[0]}:{address[1]} is not the master that a sentinel takes it for")
        return address
