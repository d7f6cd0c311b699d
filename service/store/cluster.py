"""A Redis Cluster: slots of keys, each served by a master, which a replica succeeds; slots move from one to another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from service.errors import StoreUnavailable
from service.store.connection import Connection, said
from service.store.keys import sessions_key, state_key
from service.store.routed import Owners, Routed
from service.store.slots import SLOTS
from service.store_url import Address

#: Seconds that servers have to say what they know of the cluster, once one has.
OTHERS = 0.3
#: Seconds between two looks at logs that are followed.
POLL = 0.05


class Cluster(Routed):
    async def epoch(self, sid: str = "") -> int:
        """The configuration epoch of the server that serves a session: whoever takes its slot over has a greater one.

        It also grows when that server takes over any other slot. Of that, only processes hear that use the other slot,
        so it is asked for each time: one that remembered it would tell a smaller one than its neighbour did. With a
        key of the session, so that a server which no longer has its slot refuses; where the key went before its slot,
        the greater one of both servers' counts.
        """
        told: list[int] = []

        async def send(node: Connection, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
            if commands[0][0] != "ASKING":
                told.clear()
            try:
                info, *found = await node.calls([("CLUSTER", "INFO"), *commands])
            except StoreUnavailable as error:
                if said(error).startswith("ASK "):
                    told.append(_epoch(await node.call("CLUSTER", "INFO")))
                raise
            told.append(_epoch(info))
            return found

        await self._route([("EXISTS", state_key(sid) if sid else sessions_key())], send)
        return max(told)

    async def find(self) -> Owners:
        """As the server tells it that knows the newest epoch: one that was cut off may tell of the past"""
        asked = [asyncio.create_task(self._ask(address)) for address in {*self.url.seeds, *self.owners} if address]
        try:
            done, late = await asyncio.wait(asked, timeout=OTHERS)
            while late and not any(each.exception() is None for each in done):
                more, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            answers = [each.result() for each in done if each.exception() is None]
        finally:
            for each in asked:
                each.cancel()
        if not answers:
            raise StoreUnavailable("no server of the cluster answers")
        return max(answers, key=lambda answer: answer[0])[1]

    async def _ask(self, address: Address) -> tuple[int, Owners]:
        info, ranges = await self.node(address).calls([("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")])
        owners: Owners = [None] * SLOTS
        for first, last, master, *_ in ranges:
            host = (master[0] or b"").decode()
            owner = address[0] if host in ("", "?") else host, int(master[1])
            owners[first : last + 1] = [owner] * (last + 1 - first)
        return int(_field(info, b"cluster_current_epoch")), owners

    async def follow(self, positions: Mapping[str, str], count: int, seconds: float) -> list[Any]:
        """A blocking read has one slot, so every log is asked now and then, over the lines"""
        until = time.monotonic() + seconds
        commands = [("XREAD", "COUNT", count, "STREAMS", key, id) for key, id in positions.items()]
        while True:
            found = [stream for reply in await self.calls(commands) for stream in reply or []]
            if found or time.monotonic() > until:
                return found
            await asyncio.sleep(POLL)


def _epoch(info: bytes) -> int:
    """Of a replica: its master's"""
    return int(_field(info, b"cluster_my_epoch"))


def _field(info: bytes, name: bytes) -> bytes:
    """Of an answer in lines, `name:value`"""
    found = [line.partition(b":")[2] for line in info.split(b"\r\n") if line.startswith(name + b":")]
    if not found:
        raise StoreUnavailable("a server of the cluster says nothing of its state")
    return found[0]
