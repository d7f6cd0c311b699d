"""python -m tests.stored: writes the files of the format that the code has now. One that is there stays as it is."""

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

#: Of learners that need no reference point.
FREE: dict[str, dict[str, Any]] = {
    "auto": {"algorithm": "auto", "dimension": 2},
    "auto, three classes": {
        "algorithm": "auto",
        "dimension": 2,
        "labels": ["a", "b", "c"],
        "members": ["gaussian", "second_order"],
    },
    "hemisphere": {"algorithm": "perceptron", "dimension": 2, "curvature": 0.5, "reference": None},
    "hemisphere, second order": {"algorithm": "second_order", "dimension": 2, "labels": [1, 2, 3], "reference": None},
    "softmax": {"algorithm": "softmax", "dimension": 2, "labels": ["a", "b", "c"]},
    "gaussian": {"algorithm": "gaussian", "dimension": 2},
}
FILES = {f"format-{FORMAT}.json": SESSIONS, f"format-{FORMAT}-free.json": FREE}


async def sessions(parts: Parts, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One of every kind that has learned, and what it predicts"""
    found, rng = {}, np.random.default_rng(7)
    for name, how in kinds.items():
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


def stored(kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    async def run(url: str) -> dict[str, Any]:
        async with storing(url) as parts:
            return await sessions(parts, kinds)

    with TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "data") as server:
        made = asyncio.run(run(server.url))
        with redis.Redis.from_url(server.url) as client:
            return {"sessions": made, "keys": everything(client)}


def main() -> None:
    for name, kinds in FILES.items():
        if not (file := Path(__file__).parent / name).exists():
            file.write_text(json.dumps(stored(kinds), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
