"""All streams of one process: a consumer each, over one connection to the store and one to the streams' server."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable, Sequence

from service.consume.consumer import Choices, Consumer, Slots
from service.consume.entries import id_number
from service.consume.source import Source, WentBack
from service.ingest import Ingest
from service.settings import Settings
from service.store.connect import connect
from service.store.late_labels import LateLabels
from service.store.log import Log
from service.store.refits import Refits
from service.store.sessions import Store

#: What a consumer that cannot go on leaves to its user.
REMEDY = "see what was lost, then go on with --after-failover, which leaves out whatever came with an id before that"


def names(streams: Sequence[str], partitions: int) -> list[str]:
    return (
        [f"{name}:{i}" for name in streams for i in range(partitions)] if partitions else list(dict.fromkeys(streams))
    )


def choices(given: argparse.Namespace) -> Choices:
    own = ("session", "tenant", "batch", "trim", "drain", "after_failover", "known_as")
    behind = None if given.behind is None else id_number(given.behind)
    return Choices(behind=behind, **{name: getattr(given, name) for name in own})


async def run(url: str, settings: Settings, given: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """The exit code"""
    chosen, streams = choices(given), names(given.stream, given.partitions)
    connection = connect(url, deadline=settings.deadline, wait_replicas=settings.wait_replicas)
    server = connect(given.server or url, deadline=settings.deadline)
    ingest = Ingest(
        Store(connection), Log(connection), LateLabels(connection), Refits(connection), patience=settings.deadline
    )
    slots = Slots(min(given.most or len(streams), len(streams)))
    consumers = [Consumer(Source(server, n, given.lease), connection, ingest, chosen, tell, slots) for n in streams]
    tasks = [asyncio.create_task(each.run()) for each in consumers]

    def end() -> None:
        for each in consumers:
            each.ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    back = None
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        end()  # also if one cannot go on: then somebody has to look
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, WentBack):
                back = ended
                tell(f"{ended}; {REMEDY}")
            elif isinstance(ended, BaseException):
                raise ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(connection.close(), server.close())
    totals = [sum(getattr(each.counted, name) for each in consumers) for name in ("entries", "dead", "trimmed")]
    tell("{} entries consumed, {} of them dead letters; {} were removed unread".format(*totals))
    return 3 if back else 0
