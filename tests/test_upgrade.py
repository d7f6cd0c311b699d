"""What an earlier version stored is read by this one: tests/stored/ has every key of a store that each wrote, with what
its sessions predicted. `python -m tests.stored` writes the file of a new format.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import redis

from service.api.schemas import Algorithm
from service.learners.registry import LEARNERS
from service.process.private_store import EmbeddedServer
from service.process.store_format import require_format
from service.sessions import snapshot
from service.sessions.spec import spec_from_json
from tests.storing import storing

FILES = [json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "stored").glob("format-*.json"))]
STORED: dict[str, Any] = {
    "sessions": {sid: told for file in FILES for sid, told in file["sessions"].items()},
    "keys": [(key, *value) for file in FILES for key, value in file["keys"].items()],
}


def restore(client: redis.Redis, key: str, kind: str, value: Any) -> None:
    if kind == "hash":
        client.hset(key, mapping={b64decode(name): b64decode(each) for name, each in value.items()})
    elif kind == "stream":
        for id, fields in value:
            client.xadd(key, {b64decode(name): b64decode(each) for name, each in fields}, id=id)
    elif kind == "zset":
        client.zadd(key, {b64decode(member): score for member, score in value})
    else:
        assert kind == "string", kind
        client.set(key, b64decode(value))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with EmbeddedServer(tmp_path_factory.mktemp("upgrade") / "data") as server:
        with redis.Redis.from_url(server.url) as client:
            for key, kind, value in STORED["keys"]:
                restore(client, key, kind, value)
            require_format(client, "here")
        yield server.url


@pytest.mark.parametrize("sid", STORED["sessions"])
def test_a_stored_session_goes_on(url: str, sid: str) -> None:
    was = STORED["sessions"][sid]

    async def run() -> None:
        async with storing(url) as parts:
            loaded = await parts.store.load(sid)
            X = np.array(was["x"])
            assert (loaded.counters.observed, loaded.counters.version) == (was["observed"], was["version"])
            assert np.array_equal(loaded.spec.learner.score(loaded.state, X), np.array(was["scores"]))
            answer = await parts.observe(sid, X, np.arange(len(X)) % len(loaded.spec.labels))
            assert answer.counters.observed == was["observed"] + len(X)
            again = await parts.store.load(sid)
            kept = await parts.store.kept(sid)
            document = json.loads(json.dumps(snapshot.export(kept)))
            snapshot.check(document)
            assert snapshot.read(document, again.spec).loaded.counters == again.counters

    asyncio.run(run())


def test_every_learner_is_among_them() -> None:
    spec = b64encode(b"spec").decode()
    found = [spec_from_json(b64decode(value[spec])) for key, _, value in STORED["keys"] if key.endswith(":state")]
    assert {each.algorithm for each in found} == set(get_args(Algorithm))
    assert {each.learner for each in found} == set(LEARNERS.values())
