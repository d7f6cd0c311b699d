"""horocycle consume: feed sessions from Redis Streams, every entry exactly once. docs/consume.md"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Sequence

import redis
from pydantic import ValidationError

from service.errors import HorocycleError
from service.process.store_access import opened_url
from service.sessions.tenants import DEFAULT
from service.settings import Settings

EXAMPLES = """examples:
  horocycle consume --stream points                            a stream on the store's own server
  horocycle consume --stream points --partitions 4 --server redis://10.0.0.7
  horocycle consume --stream points --drain                    until all of it is learned
"""


def main(argv: Sequence[str] | None = None) -> int:
    """0: it was told to end, or has drained; 1: nothing can be done; 2: wrong options; 3: a stream went back"""
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        asked = {name: value for name in ("data", "redis_url") if (value := getattr(given, name)) is not None}
        settings = Settings(**asked)
    except ValidationError as error:
        parser.error(error.errors()[0]["msg"].removeprefix("Value error, "))
    if given.partitions < 0 or given.batch < 1 or given.lease <= 0 or (given.most is not None and given.most < 1):
        parser.error("--partitions, --batch, --lease and --most are greater than 0")
    try:
        with opened_url(settings) as url:
            run = importlib.import_module("service.consume.command").run  # which takes seconds, and --help does not
            return int(asyncio.run(run(url, settings, given, _tell)))
    except HorocycleError as error:  # the store cannot be used, or what it has is damaged
        _tell(error.detail)
    except redis.RedisError as error:
        _tell(f"the store does not answer: {error}")
    except ValueError as error:
        parser.error(str(error))
    return 1


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="horocycle consume",
        description="Feed sessions from Redis Streams: every entry is learned exactly once.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--stream", action="append", required=True, metavar="NAME", help="a stream; may be given several times")
    add("--partitions", type=int, default=0, metavar="N", help="it is NAME:0 to NAME:N-1")
    add("--server", metavar="URL", help="the Redis of the streams, if that is not the store's")
    add("--session", metavar="ID", help="for entries that name no session")
    add("--tenant", default=DEFAULT, help="whose sessions they are (%(default)s)")
    add("--batch", type=int, default=1000, metavar="N", help="entries that are read at once (%(default)s)")
    add("--lease", type=float, default=10.0, metavar="S", help="seconds until another may take over (%(default)s)")
    add("--most", type=int, metavar="N", help="streams that this process owns at the most (all that are free)")
    add("--trim", action="store_true", help="remove entries that were learned, if nobody else reads the stream")
    add("--drain", action="store_true", help="end when there is nothing more")
    add("--behind", metavar="ID", help="begin behind this entry; what was learned already is left out in any case")
    add("--after-failover", action="store_true", help="go on behind the last entry though the stream has lost it")
    add("--as", dest="known_as", default="", metavar="NAME", help="if streams of two servers have one name")
    add("--data", help="data folder of the service's private store")
    add("--redis-url", help="URL of the service's store")
    return found


def _tell(text: str) -> None:
    sys.stderr.write(f"horocycle consume: {text}\n")
    sys.stderr.flush()
