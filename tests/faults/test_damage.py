"""Every byte of a small session is flipped, in every field and entry: that is found, or changes nothing that is read.

What is read in this process is flipped in this process, from bytes that a real store has; what Lua believes is flipped
in the store itself, under a worker that knows the session and under one that does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import redis

from service.errors import HorocycleError, StateCorrupt
from service.process.private_store import EmbeddedServer
from service.sessions.records import Loaded
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.store import codec, fit_codec, fit_queue
from service.store.keys import answers_key, blocks_key, born_key, ids_key, log_key, session_keys, state_key
from service.store.sessions import _unsealed
from tests.storing import Parts, bits, storing

SID = "small"
FLIPS = (0x01, 0x10, 0x80)
#: A digit becomes another, or a blank, which Lua's tonumber() overlooks.
DIGITS = (0x01, 0x10)
#: What the store keeps twice, or what is proven by the log: flipped in the store, not here.
BELIEVED_BY_LUA = ("revision", "entries", "answers", "recent", "learner_at", "checkpoints", "head")


def flipped(data: bytes, flips: tuple[int, ...] = FLIPS) -> Iterator[bytes]:
    for at in range(len(data)):
        for flip in flips:
            yield data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]


@dataclass(frozen=True)
class Small:
    """A session that has all there is, as the store has it"""

    url: str
    state: dict[bytes, bytes]
    log: list[tuple[bytes, dict[bytes, bytes]]]
    blocks: dict[str, bytes]
    answers: dict[bytes, bytes]
    ids: dict[bytes, bytes]


def sent() -> list[Batch]:
    rng, found = np.random.default_rng(0), []
    for number in range(70):
        n = 120 if number in (5, 60) else 1 + number % 3  # 120 points go into a block
        found.append(Batch(rng.uniform(-0.3, 0.3, (n, 6)), rng.integers(0, 2, n)))
    return found


SENT = sent()


async def fill(parts: Parts) -> None:
    await parts.opened(id=SID, dimension=6, algorithm="second_order", keep_points=400)
    for number, batch in enumerate(SENT):
        await parts.observe(SID, batch.X, batch.indices, key=f"key-{number}" if number > 64 else None)
    rng = np.random.default_rng(1)
    spec = (await parts.store.load(SID)).spec
    await parts.late.wait(spec, [('"id"', rng.uniform(-0.1, 0.1, 6).astype("<f8").tobytes())], ttl=1000, limit=10)
    await parts.fits.submit(SID, "fit", b"body", {"asked": {"kind": "svm"}}, bytes(64), ttl=0)


async def filled(url: str) -> Loaded:
    async with storing(url) as parts:
        await fill(parts)
        return await parts.store.load(SID)


@pytest.fixture(scope="module")
def small(server: EmbeddedServer) -> Small:
    loaded = asyncio.run(filled(server.url))
    assert loaded.learner_at.number < loaded.newest.number and len(loaded.checkpoints) >= 2
    with redis.Redis.from_url(server.url) as store:
        found: Any = store
        log = found.xrange(log_key(SID))
        blocks = {name.decode(): data for name, data in found.hgetall(blocks_key(SID)).items()}
        answers = found.hgetall(answers_key(SID, 0))
        small = Small(server.url, found.hgetall(state_key(SID)), log, blocks, answers, found.hgetall(ids_key(SID)))
    assert small.blocks and len(small.answers) == 5 and small.ids
    return small


def found_or_harmless(good: Any, read: Callable[[], Any], what: object) -> None:
    try:
        assert read() == good, f"{what}: read, and another"
    except StateCorrupt:
        pass


def read(fields: dict[bytes, bytes]) -> dict[str, Any]:
    return bits(codec.read_state(fields))


def test_every_byte_of_the_state(small: Small) -> None:
    good = bits(codec.read_state(small.state))
    for name, value in small.state.items():
        for bad in set(flipped(name)) - small.state.keys():
            fields = {bad if each == name else each: data for each, data in small.state.items()}
            found_or_harmless(None, partial(codec.read_state, fields), bad)
        if name.decode() in ("learner_at", "checkpoints", "blocks"):
            continue  # below
        for bad in flipped(value):
            found_or_harmless(good, partial(read, {**small.state, name: bad}), name)


def test_every_byte_of_every_entry_and_its_id(small: Small) -> None:
    spec = codec.read_state(small.state).spec
    kinds = set()
    for id, fields in small.log:
        flat = [part for pair in fields.items() for part in pair]
        record = codec.read_record([id, flat])
        kinds.add(record.kind)
        codec.read_entry(record, spec, small.blocks)
        for place, part in enumerate(flat):
            for bad in flipped(part):
                with pytest.raises(StateCorrupt):
                    codec.read_record([id, [*flat[:place], bad, *flat[place + 1 :]]])
        for bad in flipped(id):
            try:
                read = codec.read_record([bad, flat]).id
            except StateCorrupt:
                continue
            assert read.observed == record.id.observed  # positions are right; a strange number is a gap to who replays
    assert len(kinds) == 2


def test_every_byte_of_every_block(small: Small) -> None:
    spec, seen = codec.read_state(small.state).spec, set()
    for id, fields in small.log:
        record = codec.read_record([id, [part for pair in fields.items() for part in pair]])
        for name in record.blocks():
            seen.add(name)
            step = max(len(small.blocks[name]) // 400, 1)  # a checksum over it all: some places will do
            for bad in list(flipped(small.blocks[name]))[::step]:
                with pytest.raises(StateCorrupt):
                    codec.read_entry(record, spec, {**small.blocks, name: bad})
    assert seen == set(small.blocks)


def test_every_byte_of_stored_answers_and_of_what_is_kept_of_fits(small: Small) -> None:
    for key, stored in small.answers.items():
        answer = stored[stored.index(b"~", stored.index(b"~") + 1) :]
        assert _unsealed(key.decode(), answer)
        for bad in flipped(answer[1:]):
            with pytest.raises(StateCorrupt):
                _unsealed(key.decode(), b"~" + bad)
        for bad in flipped(key):
            with pytest.raises((StateCorrupt, UnicodeDecodeError)):
                _unsealed(bad.decode(), answer)
    report, piece = (
        fit_codec.sealed({"points": 3, "seconds": 0.25}).encode(),
        fit_queue._sealed_piece(bytes(range(48))),
    )
    for bad in flipped(report):
        with pytest.raises(StateCorrupt):
            fit_codec.unsealed(bad)
    for bad in flipped(piece):
        with pytest.raises(StateCorrupt):
            fit_queue._unsealed_piece(bad)


# --------------------------------------------------------------------------------------------- under a real store


Trial = Callable[[Parts], Awaitable[Any]]


async def again(parts: Parts) -> int:
    """Ask again under a key that was answered, then learn a new point"""
    replayed = await parts.ingest.observe(SID, Request(SENT[69], bytes(16), key="key-69"))
    assert replayed.replayed, "learned twice"
    answer = await parts.observe(SID, np.full((1, 6), 0.1), [1], key="new")
    return answer.counters.observed


def copied(store: Any) -> dict[str, bytes]:
    return {key: data for key in (born_key(SID), *session_keys(SID)) if (data := store.dump(key)) is not None}


def put_back(store: Any, copy: dict[str, bytes]) -> None:
    with store.pipeline(transaction=False) as asked:
        asked.delete(born_key(SID), *session_keys(SID))
        for key, data in copy.items():
            asked.restore(key, 0, data)
        asked.execute()


async def tried(small: Small, store: Any, name: str, copy: dict[str, bytes], good: dict[str, Any]) -> None:
    """Each flip of a field under a worker that has the session in memory, and under one that has not"""
    observed, entries = codec.read_state(small.state).counters.observed, store.xlen(log_key(SID))
    for bad in flipped(small.state[name.encode()], DIGITS):
        for knows in (True, False):
            put_back(store, copy)
            async with storing(small.url) as parts:
                if knows:
                    await parts.ingest.current(SID)
                store.hset(state_key(SID), name, bad)
                try:
                    if not knows:
                        assert bits(await parts.store.load(SID)) == good, f"{name}: {bad!r} was read"
                        await past(parts)
                    assert await again(parts) == observed + 1, f"{name}: {bad!r} is counted with"
                except StateCorrupt:
                    assert store.xlen(log_key(SID)) >= entries, f"{name}: {bad!r} took entries of the log"


async def past(parts: Parts) -> None:
    """What was is as it was, or is refused"""
    loaded = await parts.store.load(SID)
    try:
        was = await parts.log.at(loaded, 200)
    except StateCorrupt:
        raise
    except HorocycleError:  # 410: its checkpoint is not found
        return
    assert was.counters.observed == 200


@pytest.mark.parametrize("name", BELIEVED_BY_LUA)
def test_every_byte_that_lua_counts_with(small: Small, name: str) -> None:
    with redis.Redis.from_url(small.url) as client:
        store: Any = client
        copy = copied(store)
        try:
            asyncio.run(tried(small, store, name, copy, asyncio.run(loaded_bits(small.url))))
        finally:
            put_back(store, copy)


async def loaded_bits(url: str) -> dict[str, Any]:
    async with storing(url) as parts:
        return bits(await parts.store.load(SID))


def test_every_byte_of_a_point_that_waits_for_its_label(small: Small) -> None:
    """Its coordinates; when it expires is not checked, and does not change what is learned"""

    async def look(url: str) -> str:
        async with storing(url) as parts:
            [found] = await parts.late.look(SID, ['"id"'])
            return found.status

    entry = small.ids[b'"id"']
    with redis.Redis.from_url(small.url) as store:
        for at in (0, *range(17, len(entry))):
            store.hset(ids_key(SID), '"id"', entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :])
            with pytest.raises(StateCorrupt):
                asyncio.run(look(small.url))
        store.hset(ids_key(SID), '"id"', entry)
    assert asyncio.run(look(small.url)) == "waiting"
