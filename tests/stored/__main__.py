"""python -m tests.stored: writes the file of the format that the code has now. One that was released stays as it is."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import redis

from service.process.private_store import EmbeddedServer
from service.store.keys import FORMAT
from tests.opening import SESSIONS
from tests.storing import Parts, storing


async def sessions(parts: Parts) -> dict[str, Any]:
    """One of every kind that has learned, and what it predicts"""
    found, rng = {}, np.random.default_rng(7)
    for name, how in SESSIONS.items():
        sid = re.sub(r"\W+", "-", name)
        spec = (await parts.opened(**{**how, "id": sid, "keep_points": 30})).spec
        for i in range(5):
            X, indices = rng.uniform(-0.4, 0.4, (10, 2)) / spec.curvature**0.5, rng.integers(0, len(spec.labels), 10)
            version = (await parts.store.load(sid)).counters.version if "strategic" in name else None
            await parts.observe(sid, X, indices, key=f"key-{i}", if_match=version)
        loaded, X = await parts.store.load(sid), rng.uniform(-0.4, 0.4, (8, 2)) / spec.curvature**0.5
        counters, scores = loaded.counters, loaded.spec.learner.score(loaded.state, X)
        told = {"observed": counters.observed, "version": counters.version, "x": X.tolist(), "scores": scores.tolist()}
        found[sid] = told
    return found


def everything(client: redis.Redis) -> dict[str, Any]:
    """Every key: its type and its value, bytes as base64"""

    def text(value: bytes) -> str:
        return b64encode(value).decode()

    def read(key: bytes, kind: str) -> Any:
        found: Any
        if kind == "hash":
            found = client.hgetall(key)
            return {text(name): text(value) for name, value in found.items()}
        if kind == "stream":
            found = client.xrange(key)
            return [[id.decode(), [[text(n), text(v)] for n, v in fields.items()]] for id, fields in found]
        if kind == "zset":
            found = client.zrange(key, 0, -1, withscores=True)
            return [[text(member), score] for member, score in found]
        found = client.get(key)
        return text(found)

    keys: Any = client.keys("*")
    kinds: dict[bytes, Any] = {key: client.type(key) for key in sorted(keys)}
    return {key.decode(): [kind.decode(), read(key, kind.decode())] for key, kind in kinds.items()}


def main() -> None:
    async def run(url: str) -> dict[str, Any]:
        async with storing(url) as parts:
            return await sessions(parts)

    with TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "data") as server:
        made = asyncio.run(run(server.url))
        with redis.Redis.from_url(server.url) as client:
            stored = {"sessions": made, "keys": everything(client)}
    (Path(__file__).parent / f"format-{FORMAT}.json").write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
