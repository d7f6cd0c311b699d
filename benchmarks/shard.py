"""What a session takes of a shard: bytes of the store for one that was opened, and for one that is full of points.

`python -m benchmarks.shard`. MEMORY USAGE of its keys, of every element; the list's entry is that of 10,000 in a list.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np
import redis

from service.api.schemas import OpenSession
from service.process.private_store import EmbeddedServer
from service.sessions.opening import first_session
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.store.keys import born_key, session_keys, sessions_key
from tests.storing import storing

RESULT = Path(__file__).parent / "results" / "shard.txt"


def used(client: redis.Redis, *keys: str) -> int:
    return sum(client.memory_usage(key, samples=0) or 0 for key in keys)


async def lines(url: str, client: redis.Redis) -> list[str]:
    rng, told = np.random.default_rng(0), list[str]()
    async with storing(url) as parts:
        for d in (2, 20):
            opened = first_session(OpenSession(dimension=d, reference="origin").spec())
            sid = (await parts.store.open(opened)).spec.id
            keys = [born_key(sid), *session_keys(sid)]
            told.append(f"d = {d:2}: opened {used(client, *keys):,} bytes")
            for keyed, size in ((False, 100), (True, 100)):
                for number in range(12_000 // size):
                    X = rng.uniform(-0.7, 0.7, (size, d)) / d**0.5
                    key = f"key-{number}" if keyed else None
                    batch = Batch(X, (X[:, 0] > 0).astype(np.int64))
                    await parts.ingest.observe(sid, Request(batch, bytes(16), key))
                name = "with keys" if keyed else "without keys"
                told.append(f"        full of points, {size} a request, {name} {used(client, *keys) / 1e6:.2f} MB")
        names = {f"{i:032x}": 1.7e9 + i for i in range(10_000)}
        client.zadd(sessions_key("many"), names)
        told.append(f"an entry of the list {used(client, sessions_key('many')) / len(names):.0f} bytes")
    return told


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "data") as server:
        with redis.Redis.from_url(server.url) as client:
            text = "\n".join(asyncio.run(lines(server.url, client))) + "\n"
    RESULT.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
