"""What could go wrong between a session's one state and its one log: each hazard, made to happen on a real store.

Lua does not roll back, so a script that stops in the middle leaves what it wrote so far. Here it is stopped: a prelude
puts functions of its own in the place of redis.call and redis.pcall, which count the writes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis
from redis.exceptions import ResponseError

from service.errors import SessionExists, SessionGone, StoreUnavailable, UnknownSession
from service.geometry import Array
from service.process.private_store import EmbeddedServer
from service.sessions.apply import apply
from service.sessions.events import SAMPLE
from service.sessions.late import resolved
from service.sessions.opening import first_session
from service.sessions.records import Change, Entry, Kind, Loaded
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from service.store import scripts
from service.store.api_keys import ApiKey, ApiKeys
from service.store.codec import LARGE, Record
from service.store.fit_queue import Job
from service.store.fork_queue import ForkQueue
from service.store.keys import answers_key, block_order_key, blocks_key, ids_key, log_key
from service.store.scripts import Script, script
from service.store.sessions import Committed, Conflict, commit_name
from tests.running import Running, service
from tests.sse import listening, spoken
from tests.storing import Parts, bits, storing

D = 2
ROW = 8 * (D + 1)
#: Commands that change nothing. All others count as writes.
READS = (
    "EXISTS GET HEXISTS HGET HGETALL HKEYS HLEN HMGET LINDEX LLEN LRANGE PTTL TIME XRANGE XREVRANGE ZCARD ZRANGE"
    " ZRANGEBYSCORE"
)


# ------------------------------------------------------------------------------------------------------ preludes

STOP = """
local real, reads, left = redis, {}, %d
for word in string.gmatch('%s', '%%S+') do reads[word] = true end
local function counted(how)
  return function(command, ...)
    if not reads[command] then
      if left == 0 then error('stopped') end
      left = left - 1
    end
    return how(command, ...)
  end
end
local redis = {call = counted(real.call), pcall = counted(real.pcall), sha1hex = real.sha1hex}
"""
#: The same store, if the state were written before the log: XADD waits for the HSET of the state.
STATE_FIRST = """
local stopping, put_off = redis, {}
local function swapped(how)
  return function(command, ...)
    if command == 'XADD' then
      put_off[#put_off + 1] = {command, ...}
      return 'put off'
    end
    local reply = how(command, ...)
    if command == 'HSET' and (...) == KEYS[1] then
      for _, each in ipairs(put_off) do how(unpack(each)) end
    end
    return reply
  end
end
local redis = {call = swapped(stopping.call), pcall = swapped(stopping.pcall), sha1hex = stopping.sha1hex}
"""
DECLARED = """
local real, declared, keys_of = redis, {}, {}
for _, key in ipairs(KEYS) do declared[key] = true end
for word in string.gmatch('%s', '%%S+') do keys_of[word] = 1 end
for word in string.gmatch('DEL EXISTS UNLINK RENAME', '%%S+') do keys_of[word] = 99 end
keys_of.TIME = 0
local function checked(how)
  return function(command, ...)
    local given = {...}
    for i = 1, math.min(#given, keys_of[command] or error('which of its arguments are keys? ' .. command)) do
      if not declared[given[i]] then error('undeclared: ' .. command .. ' ' .. given[i]) end
    end
    return how(command, ...)
  end
end
local redis = {call = checked(real.call), pcall = checked(real.pcall), sha1hex = real.sha1hex}
"""
ONE_KEY = (
    "EXPIRE GET HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSET INCR LINDEX LLEN LPOP LRANGE PERSIST PEXPIRE"
    " PTTL RPUSH SET XADD XRANGE XREVRANGE ZADD ZCARD ZPOPMIN ZRANGE ZRANGEBYSCORE ZREM"
)


def stopping(real: Script, writes: int, more: str = "") -> Script:
    """A store that stops after so many writes of this script"""
    return script(STOP % (writes, READS) + more + real.text)


def declaring(real: Script) -> Script:
    return script(DECLARED % ONE_KEY + real.text)


def setting(real: Script, **constants: int) -> Script:
    """The script with other values for the constants of its first line"""
    first, _, rest = real.text.partition("\n")
    assert all(f" {name}" in first for name in constants)
    return script("\n".join([first, *(f"{name} = {value}" for name, value in constants.items()), rest]))


# ------------------------------------------------------------------------------------------------------ the store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("hazards") / "data") as running:
        yield running


@pytest.fixture
def store(server: EmbeddedServer) -> Iterator[redis.Redis]:
    """Empty, and without an append-only file: nothing here asks what comes back after a restart"""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("appendonly", "no")
        client.flushall()
        yield client


def points(seed: int, n: int) -> Batch:
    """Labelled by the side of a line, but for a tenth of them: the learner goes on making mistakes"""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.6, 0.6, (n, D))
    return Batch(X, ((X[:, 0] > 0.1 * X[:, 1]) ^ (rng.random(n) < 0.1)).astype(np.int64))


def rows_of(*batches: Batch) -> Array:
    return np.concatenate([np.column_stack([each.X, each.indices]) for each in batches])


async def learned(parts: Parts, before: Loaded, *batches: Batch) -> Loaded:
    """The session after commits of these"""
    for each in batches:
        result = await parts.store.commit(before, apply(before, [Request(each)]).change, commit_name())
        assert isinstance(result, Committed)
        before = result.after
    return before


def fields(store: Any, key: str) -> set[str]:
    """The names in a hash"""
    return {name.decode() for name in store.hkeys(key)}


# ---------------------------------------------------------------------------------- a store that stops in the middle

SID, KEEP = "stopped", 4_000
LARGE_POINTS = LARGE // ROW + 1
OLD_KEYS, NEW_KEY = ("old 1", "old 2", "old 3", "old 4"), "new"
LATE = ('"first"', '"second"')
OLD, NEW, LATE_POINTS = points(0, 20), points(1, LARGE_POINTS), points(2, 2)
#: Another commit that comes after the stopped one: with fewer points, as many, and more.
OTHERS = (7, LARGE_POINTS + 2, 2 * LARGE_POINTS)


#: Fields of an entry that are other when the same commit is made under another id.
OF_THE_COMMIT = {b"commit": b"", b"check": b"", b"sums": b""}


@dataclass(frozen=True)
class Seen:
    """What somebody who knows nothing of a session yet sees of it"""

    loaded: Loaded
    bits: dict[str, Any]
    rows: Array  # the retained points
    entries: list[Record]  # those that a reader of events is shown
    answer: bytes | None  # to the new key
    late: list[str]

    def unlike(self, other: Seen) -> list[str]:
        """What is not the same. Its entries may be fewer: what is no longer needed may have been let go"""
        mine, theirs = ([(r.id, {**r.fields, **OF_THE_COMMIT}) for r in each.entries] for each in (self, other))
        same = {
            **{name: self.bits[name] == other.bits[name] for name in self.bits},
            "revision": self.loaded.revision == other.loaded.revision,
            "newest": self.loaded.newest == other.loaded.newest,
            "checkpoints": self.loaded.checkpoints == other.loaded.checkpoints,
            "rows": np.array_equal(self.rows, other.rows),
            "entries": 64 <= len(mine) <= len(theirs) and mine == theirs[-len(mine) :],
            "answer": self.answer == other.answer,
            "late labels": self.late == other.late,
        }
        return [name for name, is_same in same.items() if not is_same]


async def seen(parts: Parts) -> Seen:
    loaded = await parts.store.load(SID)
    batch = await parts.log.retained(loaded)
    entries = await parts.log.records(SID, "-", loaded.newest, 10_000)
    late = [each.status for each in await parts.late.look(SID, LATE)]
    rows = np.column_stack([batch.X, batch.indices])
    return Seen(loaded, bits(loaded), rows, entries, await parts.store.answer(SID, NEW_KEY), list(late))


async def whole(parts: Parts) -> Seen:
    """What is seen, if the log is whole: entries and points follow each other, and replayed they give the state"""
    found = await seen(parts)
    ids = [record.id for record in found.entries]
    assert [id.number for id in ids] == list(range(ids[0].number, found.loaded.newest.number + 1))
    assert [r.id.observed - r.points for r in found.entries[1:]] == [id.observed for id in ids[:-1]]
    assert bits(await parts.log.at(found.loaded, ids[-1].observed)) == found.bits
    return found


def contents(store: redis.Redis) -> dict[Any, Any]:
    """All that the store has, whatever the order of a hash's fields"""
    read: dict[Any, Callable[[Any], Any]] = {
        b"hash": store.hgetall,
        b"stream": store.xrange,
        b"list": lambda key: store.lrange(key, 0, -1),
        b"zset": lambda key: store.zrange(key, 0, -1, withscores=True),
        b"string": store.get,
    }
    return {key: read[store.type(key)](key) for key in store.keys()}


@dataclass(frozen=True)
class Backup:
    """All keys as they were, to be begun from again and again"""

    store: redis.Redis
    keys: dict[bytes, bytes]

    @classmethod
    def of(cls, store: redis.Redis) -> Backup:
        return cls(store, {key: store.dump(key) for key in store.keys()})  # type: ignore[misc]

    def restore(self) -> None:
        self.store.flushall()
        for key, value in self.keys.items():
            self.store.restore(key, 3_600_000, value)


async def prepare(parts: Parts) -> list[Batch]:
    """A session of which a commit lets go: entries, a block, a generation of answers, a settled id. Its points."""
    loaded = await parts.opened(id=SID, keep_points=KEEP, ttl_seconds=3600)
    history = [points(10, 1000), *(points(100 + i, 40) for i in range(50)), points(11, 1000)]
    history += [points(300 + i, 40) for i in range(71)]  # 128 entries with those below: the next one lets go of many
    await learned(parts, loaded, *history)
    for key in OLD_KEYS:
        await parts.observe(SID, OLD.X, OLD.indices, key=key)
    point = LATE_POINTS.X.astype("<f8")
    await parts.late.wait(loaded.spec, [('"aged"', points(3, 1).X.tobytes())], ttl=60, limit=10)
    await parts.ingest.observe(SID, late_labels(('"aged"',), np.array([1])))
    await parts.late.wait(loaded.spec, [(id, point[i].tobytes()) for i, id in enumerate(LATE)], ttl=60, limit=10)
    await parts.connection.call("HSET", blocks_key(SID), f"{int(time.time()) - 10_000}-never came", b"stray")
    return [*history, *[OLD] * len(OLD_KEYS), Batch(points(3, 1).X, np.array([1]))]


def late_labels(ids: tuple[str, ...], labels: Any) -> Request:
    return Request(Batch(np.empty((0, D)), np.empty(0, dtype=np.int64)), bytes(16), ids=ids, late=labels)


REQUESTS = (Request(NEW, bytes(16), NEW_KEY), late_labels(LATE, LATE_POINTS.indices))


async def changed(parts: Parts, before: Loaded) -> Change:
    """What the commit of both requests comes to"""
    fates = dict(zip(LATE, await parts.late.look(SID, LATE), strict=True))
    requests, ids = resolved(before.spec, REQUESTS, fates)
    applied = apply(before, requests)
    assert isinstance(applied.results[0], Answer) and len(ids) == len(LATE)
    return replace(applied.change, answers=[(NEW_KEY, applied.results[0].pack(bytes(16)))], learned_ids=ids)


@dataclass(frozen=True)
class Case:
    """The commit that is stopped, and what the session is before and after it"""

    backup: Backup
    history: list[Batch]
    before: Seen
    change: Change
    after: Seen

    async def stop(self, parts: Parts, writes: int, more: str = "") -> str | None:
        """Make the commit on a store that stops after so many writes; its id, None: it came to its end"""
        self.backup.restore()
        commit_id = commit_name()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scripts, "COMMIT", stopping(scripts.COMMIT, writes, more))
            try:
                await parts.store.commit(self.before.loaded, self.change, commit_id)
            except ResponseError as error:
                assert "stopped" in str(error)
                return commit_id
        return None

    def retained(self, *others: Batch) -> Array:
        return rows_of(*self.history, *others)[-KEEP:]


async def prepared(parts: Parts, store: redis.Redis) -> Case:
    history = await prepare(parts)
    backup, before = Backup.of(store), await whole(parts)
    change = await changed(parts, before.loaded)
    assert isinstance(await parts.store.commit(before.loaded, change, commit_name()), Committed)
    case = Case(backup, history, before, change, await whole(parts))
    assert np.array_equal(case.before.rows, case.retained())
    assert np.array_equal(case.after.rows, case.retained(NEW, LATE_POINTS))
    return case


async def once(parts: Parts) -> Answer:
    """Ask for both requests as a client does that does not know whether they were made"""
    first, _ = await asyncio.gather(*(parts.ingest.observe(SID, request) for request in REQUESTS))
    return first


async def stopped_and_seen(case: Case, parts: Parts, writes: int, more: str = "") -> bool | None:
    """Whether the stopped commit was made; None: it was not stopped"""
    if await case.stop(parts, writes, more) is None:
        return None
    found = await whole(parts)
    made = found.loaded.revision != case.before.loaded.revision
    assert found.unlike(case.after if made else case.before) == [], writes
    return made


@asynccontextmanager
async def stopping_commits(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Case, Parts]]:
    """With limits that this commit is beyond"""
    monkeypatch.setattr("service.store.sessions.KEEP_IDS", 2)
    monkeypatch.setattr(scripts, "COMMIT", setting(scripts.COMMIT, KEY_BYTES=1200, KEY_OVERHEAD=0, STRAY_BLOCKS=0))
    async with storing(server.url) as parts:
        yield await prepared(parts, store), parts


def test_a_commit_does_all_that_is_to_be_stopped(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one below would show nothing of a write that its commit does not come to"""

    async def run() -> None:
        async with stopping_commits(server, store, monkeypatch) as (case, _):
            before, after = case.before.loaded, case.after.loaded
            record = case.after.entries[-1]
            assert record.blocks("rows") and (b"checkpoint" in record.fields or record.blocks("checkpoint"))
            assert after.checkpoints[-1] == after.newest and after.checkpoints[0] > before.checkpoints[0]
            assert after.learner_at == after.newest
            assert case.after.entries[0].id > case.before.entries[0].id
            assert case.before.late == ["waiting"] * 2 and case.after.late == ["learned"] * 2
            assert case.before.answer is None and case.after.answer is not None
            generations = [fields(store, answers_key(SID, generation)) for generation in (0, 1)]
            assert generations == [{NEW_KEY}, set(OLD_KEYS[2:])]  # the first had the older keys
            names = fields(store, blocks_key(SID))
            assert set() < names <= {name for r in case.after.entries for name in r.blocks()}  # they go a commit sooner
            case.backup.restore()
            assert not names >= fields(store, blocks_key(SID))
            assert store.hget(ids_key(SID), '"aged"') is not None

    asyncio.run(run())


def test_a_commit_is_made_or_not_wherever_it_stops(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[bool]:
        async with stopping_commits(server, store, monkeypatch) as (case, parts):
            made = list[bool]()
            while (found := await stopped_and_seen(case, parts, len(made))) is not None:
                made.append(found)
            assert (await whole(parts)).unlike(case.after) == []
            return made

    made = asyncio.run(run())
    assert made == sorted(made) and {False, True} == set(made), made  # one of its writes makes it, and those after tidy
    assert made.index(True) >= 6 and len(made) >= 20, made


def test_a_state_written_before_its_log_would_be_found_out(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above, of a script in the wrong order"""

    async def run() -> None:
        async with stopping_commits(server, store, monkeypatch) as (case, parts):
            for n in itertools.count():
                if await stopped_and_seen(case, parts, n, STATE_FIRST) is None:
                    return

    with pytest.raises(AssertionError):
        asyncio.run(run())


def test_a_stopped_commit_that_is_sent_again_is_made_once(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> int:
        async with stopping_commits(server, store, monkeypatch) as (case, parts):
            for n in itertools.count():
                commit_id = await case.stop(parts, n)
                if commit_id is None:
                    return n
                for _ in range(2):
                    result = await parts.store.commit(case.before.loaded, case.change, commit_id, again=True)
                    assert isinstance(result, Committed) and result.after.newest == case.after.loaded.newest
                    assert (await whole(parts)).unlike(case.after) == [], n
        raise AssertionError

    assert asyncio.run(run()) >= 20


def test_a_stopped_commit_that_is_asked_for_anew_is_made_once(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> int:
        async with stopping_commits(server, store, monkeypatch) as (case, _):
            for n in itertools.count():
                async with storing(server.url) as parts:  # which knows nothing of the session
                    if await case.stop(parts, n) is None:
                        return n
                    made = await parts.store.answer(SID, NEW_KEY) is not None
                    answer = await once(parts)
                    assert answer.replayed == made, n
                    assert answer.counters.observed == case.before.loaded.counters.observed + len(NEW)
                    found = await whole(parts)
                    assert found.bits == case.after.bits, n
                    assert np.array_equal(found.rows, case.after.rows), n
                    assert found.late == ["learned"] * 2
                    assert (await once(parts)).replayed
                    assert (await whole(parts)).bits == case.after.bits
        raise AssertionError

    assert asyncio.run(run()) >= 20


@pytest.mark.parametrize("count", OTHERS)
def test_another_commit_after_a_stopped_one(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """It takes the number that the stopped one was to have. What that left behind is not believed for it."""
    other = points(4, count)

    async def run() -> int:
        async with stopping_commits(server, store, monkeypatch) as (case, _):
            for n in itertools.count():
                async with storing(server.url) as parts:
                    if await case.stop(parts, n) is None:
                        return n
                    found = await whole(parts)
                    made = found.loaded.revision != case.before.loaded.revision
                    await learned(parts, found.loaded, other)
                    found = await whole(parts)
                    points_so_far = (NEW, LATE_POINTS, other) if made else (other,)
                    assert np.array_equal(found.rows, case.retained(*points_so_far)), n
                    assert found.late == ["learned" if made else "waiting"] * 2, n
                    assert (found.answer is not None) == made, n
                    assert (await once(parts)).replayed == made, n
                    found = await whole(parts)
                    points_so_far = (NEW, LATE_POINTS, other) if made else (other, NEW, LATE_POINTS)
                    assert np.array_equal(found.rows, case.retained(*points_so_far)), n
                    total = sum(map(len, case.history)) + len(NEW) + len(LATE_POINTS) + count
                    assert found.loaded.counters.observed == total
        raise AssertionError

    assert asyncio.run(run()) >= 20


def test_a_repair_that_is_stopped_is_begun_again(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a stopped commit left behind is undone before the next one, by a script that may be stopped as well"""
    other = points(4, 7)

    async def run() -> int:
        async with stopping_commits(server, store, monkeypatch) as (case, parts):
            made = [await stopped_and_seen(case, parts, n) for n in range(10)]
            last = made.index(True) - 1  # all is written but the state
            for n in itertools.chain(range(7), itertools.count(7, 13)):  # the log is copied entry by entry
                assert await case.stop(parts, last) is not None
                with monkeypatch.context() as patch:
                    patch.setattr(scripts, "REPAIR", stopping(scripts.REPAIR, n))
                    try:
                        await learned(parts, case.before.loaded, other)
                        return n
                    except ResponseError as error:
                        assert "stopped" in str(error)
                assert (await whole(parts)).unlike(case.before) == [], n
                await learned(parts, case.before.loaded, other)
                found = await whole(parts)
                assert np.array_equal(found.rows, case.retained(other)), n
                assert found.late == ["waiting"] * 2 and found.answer is None, n
        raise AssertionError

    assert asyncio.run(run()) >= 70  # an answer, two late labels, a log of 64 entries and more


@pytest.mark.parametrize("count", [0, 3_000])
def test_a_session_is_opened_or_not_wherever_it_stops(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Also one that is imported, with a block. An id whose opening was stopped is used: its sender cannot know."""
    batch = points(5, count)

    async def run() -> list[bool]:
        opened = list[bool]()
        async with storing(server.url) as parts:
            spec = (await parts.opened(id="source", ttl_seconds=3600)).spec
            loaded = apply(await parts.store.load("source"), [Request(batch)]).change.after if count else None
            for n in itertools.count():
                new = replace(loaded or first_session(spec), spec=replace(spec, id=f"opened-{n}"))
                with monkeypatch.context() as patch:
                    patch.setattr(scripts, "OPEN", stopping(scripts.OPEN, n))
                    try:
                        await parts.store.open(new, batch if count else None)
                        return opened
                    except ResponseError as error:
                        assert "stopped" in str(error)
                try:
                    found = await parts.store.load(new.spec.id)
                except (SessionGone, UnknownSession):
                    opened.append(False)
                    if n == 0:
                        await parts.store.open(new, batch if count else None)
                    else:
                        with pytest.raises(SessionExists):
                            await parts.store.open(new, batch if count else None)
                    continue
                opened.append(True)
                assert bits(found) == bits(new)
                assert np.array_equal(rows_of(await parts.log.retained(found)), rows_of(batch))
                await learned(parts, found, batch if count else points(6, 5))
        raise AssertionError

    opened = asyncio.run(run())
    assert opened == sorted(opened) and set(opened) == {False, True}
    assert opened.index(True) == (4 if count else 2)  # SET, (XADD, RPUSH,) HSET


async def asked(parts: Parts) -> None:
    await parts.fits.submit(SID, "fit", b"fingerprint", {"asked": {}}, b"points", ttl=3600)


async def claimed(parts: Parts) -> Job:
    await asked(parts)
    job = await parts.fits.claim()
    assert job is not None
    return job


async def opening(parts: Parts) -> Callable[[], Awaitable[object]]:
    return lambda: asked(parts)


async def claiming(parts: Parts) -> Callable[[], Awaitable[object]]:
    await asked(parts)
    return parts.fits.claim


async def settling(parts: Parts) -> Callable[[], Awaitable[object]]:
    job = await claimed(parts)
    return lambda: parts.fits.done(job, {}, b"model")


async def cancelling(parts: Parts) -> Callable[[], Awaitable[object]]:
    await claimed(parts)
    return lambda: parts.fits.cancel(SID, "fit")


@pytest.mark.parametrize(
    "name, begin",
    [("FIT_OPEN", opening), ("FIT_CLAIM", claiming), ("FIT_SETTLE", settling), ("FIT_CANCEL", cancelling)],
)
def test_what_a_stopped_status_of_a_fit_leaves_is_no_event(
    server: EmbeddedServer,
    store: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    begin: Callable[[Parts], Awaitable[Callable[[], Awaitable[object]]]],
) -> None:
    """The session is the same, and its log goes on without a gap: with points, or with the status, sent again"""

    async def run() -> int:
        for n in itertools.count():
            for points_first in (True, False):
                store.flushall()
                async with storing(server.url) as parts:
                    loaded = await learned(parts, await parts.opened(id=SID, keep_points=KEEP), points(7, 20))
                    act = await begin(parts)
                    with monkeypatch.context() as patch:
                        patch.setattr(scripts, name, stopping(getattr(scripts, name), n))
                        try:
                            await act()
                            return n
                        except ResponseError as error:
                            assert "stopped" in str(error)
                    found = await whole(parts)
                    assert found.bits == bits(loaded) and found.loaded.revision == loaded.revision, n
                    entries = list(found.entries)
                    if points_first:
                        await learned(parts, found.loaded, points(8, 5))
                    else:
                        await act()
                    found = await whole(parts)
                    assert found.entries[: len(entries)] == entries, n
                    await learned(parts, found.loaded, points(9, 3))
                    found = await whole(parts)
                    assert len(found.rows) == (28 if points_first else 23), n
        raise AssertionError

    assert asyncio.run(run()) >= 4


# ------------------------------------------------------------------------------------------- every key is declared


def test_no_script_touches_a_key_that_it_did_not_declare(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = {name: each for name, each in vars(scripts).items() if isinstance(each, Script)}
    for name, each in real.items():
        monkeypatch.setattr(scripts, name, declaring(each))
    monkeypatch.setattr(
        scripts, "COMMIT", declaring(setting(real["COMMIT"], KEY_BYTES=1200, KEY_OVERHEAD=0, STRAY_BLOCKS=0))
    )
    monkeypatch.setattr("service.store.sessions.KEEP_IDS", 2)
    store.script_flush()

    async def run() -> None:
        async with storing(server.url) as parts:
            await prepare(parts)
            await once(parts)
            loaded = await parts.store.load(SID)
            await parts.store.touch(loaded.spec)
            ends = replace(loaded.spec, ttl_seconds=None)
            await parts.ingest.change(SID, lambda before: settings(before, ends))
            await parts.connection.epoch()
            copy = replace(loaded, spec=replace(loaded.spec, id="imported", keep_points=LARGE_POINTS))
            await parts.store.open(copy, NEW)
            # A log whose newest entry was left behind by a script that stopped
            loaded = await parts.store.load(SID)
            stray = f"{loaded.newest.observed + 1000}-{loaded.newest.number + 1}"
            await parts.connection.call("XADD", log_key(SID), stray, "kind", "points", "commit", "stopped")
            await learned(parts, loaded, points(8, 5))
            await whole(parts)
            job = await claimed(parts)
            assert await parts.fits.beat(job, 0.5)
            await parts.fits.again(job)
            again = await parts.fits.claim()
            assert again is not None
            await parts.fits.done(again, {}, b"model")
            await parts.fits.cancel(SID, "fit")
            await claimed(parts)
            await parts.fits.cancel(SID, "fit")
            await ForkQueue(parts.connection).submit(loaded.spec)
            assert await ForkQueue(parts.connection).claim() is not None
            await ApiKeys(parts.connection).charge(ApiKey("key", "", limits={"points": 10}), {"points": 1})
            await parts.store.end(SID)

    asyncio.run(run())
    names = list(real)
    ran = store.script_exists(*(getattr(scripts, name).digest for name in names))
    assert [name for name, has_run in zip(names, ran, strict=True) if not has_run] == []


@pytest.mark.parametrize("text", ["redis.call('GET', 'other')", "redis.pcall('DEL', KEYS[1], 'other')"])
def test_a_key_that_is_not_declared_is_found(store: redis.Redis, text: str) -> None:
    with pytest.raises(ResponseError, match=r"undeclared: \w+ other"):
        store.eval(declaring(script(text)).text, 1, "declared")


def settings(before: Loaded, spec: Spec) -> Change:
    return Change(replace(before, spec=spec), Entry(Kind.SETTINGS, before.counters, before.status, spec=spec))


# ----------------------------------------------------------------------------------- a revision that went backwards


@pytest.mark.parametrize("again", [False, True])
def test_a_revision_that_went_backwards_is_a_conflict(server: EmbeddedServer, store: redis.Redis, again: bool) -> None:
    """A failover can lose commits that were acknowledged: what was learned from them is not written over the rest"""

    async def run() -> None:
        async with storing(server.url) as parts:
            await parts.opened(id=SID)
            loaded = await learned(parts, await parts.store.load(SID), points(0, 5))
            backup = Backup.of(store)
            ahead = await learned(parts, loaded, points(1, 5), points(2, 5))
            backup.restore()
            kept = contents(store)
            assert (await whole(parts)).loaded.revision < ahead.revision
            change = apply(ahead, [Request(points(3, 5))]).change
            result = await parts.store.commit(ahead, change, commit_name(), again=again)
            assert isinstance(result, Conflict)
            after = await whole(parts)
            assert contents(store) == kept
            # the lane that knew more finds its way back
            await learned(parts, after.loaded, points(4, 5))

    asyncio.run(run())


# ---------------------------------------------------------------------------------------------------------- blocks


def test_a_commit_whose_block_is_missing_is_refused(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the store had come back without it between the two commands"""

    async def run() -> None:
        async with storing(server.url) as parts:
            loaded = await learned(parts, await parts.opened(id=SID), points(0, 5))
            kept, calls = contents(store), parts.connection.calls
            change = apply(loaded, [Request(NEW, bytes(16), "key")]).change

            async def without_blocks(commands: Any, **how: Any) -> Any:
                others = [each for each in commands if each[:2] != ("HSET", blocks_key(SID))]
                assert len(others) < len(commands)
                return await calls(others, **how)

            with monkeypatch.context() as patch:
                patch.setattr(parts.connection, "calls", without_blocks)
                with pytest.raises(StoreUnavailable, match="block"):
                    await parts.store.commit(loaded, change, commit_name())
            assert contents(store) == kept
            await learned(parts, loaded, NEW)
            await whole(parts)

    asyncio.run(run())


def test_a_session_whose_block_is_missing_is_not_opened(
    server: EmbeddedServer, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with storing(server.url) as parts:
            source = await parts.opened(id="source")
            after = apply(source, [Request(NEW)]).change.after
            new, calls = replace(after, spec=replace(after.spec, id="new")), parts.connection.calls

            async def without_blocks(commands: Any, **how: Any) -> Any:
                return await calls([each for each in commands if each[0] != "HSET"], **how)

            with monkeypatch.context() as patch:
                patch.setattr(parts.connection, "calls", without_blocks)
                with pytest.raises(StoreUnavailable, match="block"):
                    await parts.store.open(new, NEW)
            assert not [key for key in store.keys() if b"{new}" in key]
            await parts.store.open(new, NEW)

    asyncio.run(run())


def test_blocks_that_no_entry_refers_to_go_when_they_are_old_and_many(
    server: EmbeddedServer, store: redis.Redis
) -> None:
    limit, seconds = scripts.STRAY_BLOCKS, scripts.STRAY_SECONDS
    now = int(time.time())
    old = [f"{now - seconds - 60}-{i:016x}rows" for i in range(limit)]
    young = [f"{now - seconds + 60}-{i:016x}rows" for i in range(limit)]

    async def run() -> None:
        async with storing(server.url) as parts:
            loaded = await learned(parts, await parts.opened(id=SID, keep_points=10_000), NEW)
            referred = fields(store, blocks_key(SID))
            assert len(referred) == 1
            store.hset(blocks_key(SID), mapping=dict.fromkeys(old, b"x"))
            loaded = await learned(parts, loaded, points(1, LARGE_POINTS))
            assert len(referred := fields(store, blocks_key(SID)) - {*old}) == 2
            assert fields(store, blocks_key(SID)) == {*referred, *old}  # they are few
            store.hset(blocks_key(SID), mapping=dict.fromkeys(young, b"x"))
            loaded = await learned(parts, loaded, points(2, LARGE_POINTS))
            assert len(referred := fields(store, blocks_key(SID)) - {*young}) == 3
            assert fields(store, blocks_key(SID)) == {*referred, *young}
            await whole(parts)

    asyncio.run(run())


def test_the_blocks_of_entries_that_go_are_removed(server: EmbeddedServer, store: redis.Redis) -> None:
    keep, commits = 4 * LARGE_POINTS, 200
    most = list[int]()

    async def run() -> None:
        async with storing(server.url) as parts:
            loaded = await parts.opened(id=SID, keep_points=keep)
            batches = [points(i, LARGE_POINTS) for i in range(3)]
            for batch in itertools.islice(itertools.cycle(batches), commits):
                loaded = await learned(parts, loaded, batch)
                most.append(len(fields(store, blocks_key(SID))))
                assert most[-1] == store.llen(block_order_key(SID))
            found = await parts.log.retained(await parts.store.load(SID))
            assert np.array_equal(rows_of(found), rows_of(*itertools.islice(itertools.cycle(batches), commits))[-keep:])

    asyncio.run(run())
    assert most[:3] == [1, 2, 3]
    assert max(most) <= 8, max(most)  # four hold retained points; those since the checkpoint before them are needed too


def test_the_block_of_an_import_is_removed(server: EmbeddedServer, store: redis.Redis) -> None:
    async def run() -> None:
        async with storing(server.url) as parts:
            source = await parts.opened(id="source", keep_points=LARGE_POINTS)
            after = apply(source, [Request(NEW)]).change.after
            loaded = await parts.store.open(replace(after, spec=replace(after.spec, id=SID)), NEW)
            assert store.hlen(blocks_key(SID)) == 1
            loaded = await learned(parts, loaded, *[points(i, 40) for i in range(2 * LARGE_POINTS // 40)])
            await whole(parts)
            assert store.hlen(blocks_key(SID)) == 0

    asyncio.run(run())


def test_events_do_not_read_blocks(http: httpx.Client, running: Running) -> None:
    sid = http.post("/sessions", json={"dimension": D, "reference": "origin"}).json()["id"]
    raw = {"Content-Type": "application/octet-stream"}
    assert http.post(f"/sessions/{sid}/observe", content=rows_of(NEW).tobytes(), headers=raw).status_code == 200
    with running.client() as store:
        assert store.hlen(blocks_key(sid)) == 1
        store.delete(blocks_key(sid))
    with listening(http, sid, "0-0") as events:
        [event] = spoken(events, 1)
    assert event.name == "commit" and event.data["observed"] == len(NEW)
    assert event.data["points"] == NEW.X[:SAMPLE].tolist()
    assert event.data["labels"] == (2 * NEW.indices[:SAMPLE] - 1).tolist()


# -------------------------------------------------------------------------------------------- one blocking reader

STREAMS = 40


def test_one_worker_reads_for_all_its_event_streams(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data", HOROCYCLE_HEARTBEAT="1", HOROCYCLE_FIT_WORKERS="0") as running,
        ExitStack() as open_streams,
    ):
        store = open_streams.enter_context(running.client())
        limits = httpx.Limits(max_connections=STREAMS + 1)
        http = open_streams.enter_context(httpx.Client(base_url=running.url, timeout=30, limits=limits))
        sids = [
            http.post("/sessions", json={"dimension": D, "reference": "origin"}).json()["id"] for _ in range(STREAMS)
        ]
        streams = [open_streams.enter_context(listening(http, sid)) for sid in sids]
        assert {spoken(events, 1)[0].name for events in streams} == {"reset"}
        deadline = time.monotonic() + 10
        while (clients := store.info("clients"))["blocked_clients"] != 1:
            assert time.monotonic() < deadline, clients
            time.sleep(0.02)
        assert clients["connected_clients"] < STREAMS, clients
        body = {"points": [[0.1, 0.2]], "labels": [1]}
        for sid in sids:
            assert http.post(f"/sessions/{sid}/observe", json=body).status_code == 200
        assert [spoken(events, 1)[0].data["observed"] for events in streams] == [1] * STREAMS
        assert store.info("clients")["blocked_clients"] <= 1


# --------------------------------------------------------------------------------------------------- keep_points 0


def test_entries_of_a_session_that_keeps_no_points_have_none(server: EmbeddedServer, store: redis.Redis) -> None:
    async def run() -> None:
        async with storing(server.url) as parts:
            loaded = await parts.opened(id=SID, keep_points=0)
            loaded = await learned(parts, loaded, NEW, *[points(i, 3) for i in range(299)])
            records = await parts.log.records(SID, "-", loaded.newest, 1000)
            assert [each.id.number for each in records][-64:] == list(range(237, 301))
            assert len(records) < 300 - 64  # the others go
            assert not [each for each in records if {b"rows", b"predicted", b"checkpoint"} & each.fields.keys()]
            assert records[-1].points == 3 and records[-1].id.observed == loaded.counters.observed
            assert not store.exists(blocks_key(SID)) and not len(await parts.log.retained(loaded))
            assert bits(await parts.store.load(SID)) == bits(loaded)

    asyncio.run(run())


@pytest.mark.parametrize("others", [0, 1, 62, 63])
def test_a_commit_whose_reply_was_lost_is_recognised_among_the_newest_64(
    server: EmbeddedServer, store: redis.Redis, others: int
) -> None:
    """Also where no points are kept: of 64 entries, this one and those that other workers made since"""

    async def run() -> None:
        async with storing(server.url) as parts:
            loaded = await parts.opened(id=SID, keep_points=0)
            loaded = await learned(parts, loaded, *[points(i, 3) for i in range(130)])
            commit_id, change = commit_name(), apply(loaded, [Request(points(500, 3))]).change
            first = await parts.store.commit(loaded, change, commit_id)
            assert isinstance(first, Committed)
            await learned(parts, first.after, *[points(600 + i, 3) for i in range(others)])
            before = contents(store)
            again = await parts.store.commit(loaded, change, commit_id, again=True)
            assert isinstance(again, Committed) and again.after.newest == first.after.newest
            other = await parts.store.commit(loaded, change, commit_name(), again=True)
            assert other == Conflict(ambiguous=False)
            assert contents(store) == before

    asyncio.run(run())


def test_a_commit_whose_reply_was_lost_long_ago_is_ambiguous(server: EmbeddedServer, store: redis.Redis) -> None:
    async def run() -> None:
        async with storing(server.url) as parts:
            loaded = await parts.opened(id=SID, keep_points=0)
            commit_id, change = commit_name(), apply(loaded, [Request(points(500, 3))]).change
            first = await parts.store.commit(loaded, change, commit_id)
            assert isinstance(first, Committed)
            await learned(parts, first.after, *[points(600 + i, 3) for i in range(400)])
            assert await parts.store.commit(loaded, change, commit_id, again=True) == Conflict(ambiguous=True)

    asyncio.run(run())
