"""The store: what is kept in Redis, one function per key, and the one atomic commit.

A session's keys share the hash tag {id}. Learned state is written by `commit` alone, as checked bytes. redis-py's own
retries are off: a command whose reply was lost may have run. `commit` may be repeated instead, because the script
knows its own id and the keys of its requests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from service import scripts
from service.errors import (
    OutcomeUnknown,
    SessionExists,
    SessionGone,
    StateCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownSession,
)
from service.learners import decode, encode
from service.session import Spec

#: The newest idempotency keys that are kept, a session.
KEEP_KEYS = 1000

CUT_OFF = (ConnectionError, TimeoutError, asyncio.TimeoutError, OSError)


def _key(sid: str, what: str) -> str:
    return f"hc:1:{{{sid}}}:{what}"


def born_key(sid: str) -> str:
    """Set when the id is first used, and never removed: an id is not given away twice"""
    return _key(sid, "born")


def session_key(sid: str) -> str:
    """Hash: the spec, the revision, the counters"""
    return _key(sid, "session")


def state_key(sid: str) -> str:
    """The encoded learner"""
    return _key(sid, "state")


def answers_key(sid: str) -> str:
    """Hash: idempotency key → fingerprint and answer"""
    return _key(sid, "answers")


def order_key(sid: str) -> str:
    """List of the idempotency keys, oldest first"""
    return _key(sid, "order")


def points_key(sid: str) -> str:
    """List of blocks of retained points, oldest first: rows of float64, the label's index last"""
    return _key(sid, "points")


def events_key(sid: str) -> str:
    """Stream: one event a commit"""
    return _key(sid, "events")


def commits_key(sid: str) -> str:
    """List of the newest commits' ids"""
    return _key(sid, "commits")


def rows_key(sid: str) -> str:
    """List of how many points each block has: the blocks themselves are not to be copied to find out"""
    return _key(sid, "rows")


def sessions_key() -> str:
    """Sorted set of session ids by the time they were opened"""
    return "hc:1:sessions"


def epoch_key() -> str:
    return "hc:1:{epoch}:number"


def server_key() -> str:
    return "hc:1:{epoch}:server"


def session_keys(sid: str) -> list[str]:
    """All that a session has, but the mark that its id was used"""
    keys = (session_key, state_key, answers_key, order_key, points_key, events_key, commits_key, rows_key)
    return [key(sid) for key in keys]


@dataclass(frozen=True)
class Counters:
    observed: int = 0
    mistakes: int = 0
    updates: int = 0
    version: int = 0


@dataclass(frozen=True)
class Loaded:
    """A session as the store has it at a revision."""

    spec: Spec
    revision: int
    counters: Counters
    state: Any


@dataclass(frozen=True)
class Committed:
    pass


@dataclass(frozen=True)
class Replayed:
    """These requests of the commit, by position, were answered before; nothing was written."""

    answers: dict[int, bytes]


@dataclass(frozen=True)
class Conflict:
    """Another commit was first; nothing was written now."""

    distant: bool = False  # so many were first that an earlier try of this one may have been forgotten


class Store:
    def __init__(self, url: str, *, deadline: float = 5.0) -> None:
        self._deadline = deadline
        self._pool = ConnectionPool.from_url(
            url, retry=Retry(NoBackoff(), 0), socket_connect_timeout=deadline, redis_connect_func=self._connected
        )
        self._epoch: int | None = None

    async def close(self) -> None:
        await self._pool.disconnect()

    # ------------------------------------------------------------------------------ sessions

    async def open(self, spec: Spec, state: Any) -> None:
        fields: list[str | bytes | int] = ["spec", json.dumps(asdict(spec)), "revision", 0]
        fields += ["observed", 0, "mistakes", 0, "updates", 0, "version", 0, "kept", 0]
        keys = [born_key(spec.id), session_key(spec.id), state_key(spec.id)]
        ttl, since = spec.ttl_seconds or 0, datetime.fromisoformat(spec.created_at).timestamp()
        if not await self._script(scripts.OPEN, keys, ttl, encode(state), *fields, lost=OutcomeUnknown):
            raise SessionExists(spec.id)
        try:
            await self._call("ZADD", sessions_key(), since, spec.id)
        except (StoreUnavailable, StoreFull, StoreReadOnly) as error:  # they say that nothing was changed
            raise OutcomeUnknown from error

    async def load(self, sid: str, known: Loaded | None = None) -> Loaded:
        """The session as it is now; `known` itself when it still is that."""
        revision = -1 if known is None else known.revision
        keys = [born_key(sid), session_key(sid), state_key(sid)]
        reply = await self._script(scripts.LOAD, keys, revision)
        if isinstance(reply, int):
            raise _absent(sid, reply)
        if known is not None and reply[1] == b"":
            return known
        fields = dict(zip(reply[0][::2], reply[0][1::2], strict=True))
        try:
            return Loaded(_spec(fields[b"spec"]), int(fields[b"revision"]), _counters(fields), decode(reply[1]))
        except (ValueError, KeyError, TypeError) as error:
            raise StateCorrupt("the stored session is damaged") from error

    async def touch(self, spec: Spec) -> None:
        """A session with a time to live was used."""
        if spec.ttl_seconds:
            await self._script(scripts.TOUCH, session_keys(spec.id), spec.ttl_seconds)

    async def end(self, sid: str) -> None:
        ended = await self._script(scripts.END, [born_key(sid), *session_keys(sid)], lost=OutcomeUnknown)
        if ended != 2:
            raise _absent(sid, ended)
        await self.forget(sid)

    async def ids(self, limit: int, after: str | None) -> list[str]:
        """Ids of sessions, newest first, from the one after `after`."""
        rank = None if after is None else await self._call("ZREVRANK", sessions_key(), after)
        start = 0 if rank is None else int(rank) + 1
        found = await self._call("ZREVRANGE", sessions_key(), start, start + limit - 1)
        return [sid.decode() for sid in found]

    async def forget(self, sid: str) -> None:
        """Take a session that is gone off the list."""
        await self._call("ZREM", sessions_key(), sid)

    # -------------------------------------------------------------------------------- commit

    async def commit(
        self,
        loaded: Loaded,
        commit_id: bytes,
        *,
        state: Any,
        counters: Counters,
        event: bytes,
        block: bytes,
        rows: int,
        answers: Sequence[tuple[str, bytes]],
    ) -> Committed | Replayed | Conflict:
        """Write all that these requests did, if nobody was first; may be repeated with the same id."""
        spec = loaded.spec
        reply = await self._script(
            scripts.COMMIT,
            session_keys(spec.id),
            commit_id,
            loaded.revision,
            encode(state),
            counters.observed,
            counters.mistakes,
            counters.updates,
            counters.version,
            event,
            spec.keep_events,
            block,
            rows,
            spec.keep_points,
            KEEP_KEYS,
            spec.ttl_seconds or 0,
            *(part for pair in answers for part in pair),
            lost=OutcomeUnknown,
        )
        if reply[0] == 1:
            return Committed()
        if reply[0] == 2:
            return Replayed(dict(zip(reply[1::2], reply[2::2], strict=True)))
        if reply[0] == 3:
            return Conflict()
        if reply[0] == 5:
            return Conflict(distant=True)
        raise SessionGone(spec.id)

    async def answer(self, sid: str, key: str) -> bytes | None:
        """What was answered to the request with this idempotency key"""
        found: bytes | None = await self._call("HGET", answers_key(sid), key)
        return found

    async def points(self, sid: str) -> bytes:
        """The retained points, in the order they were learned"""
        return b"".join(await self._call("LRANGE", points_key(sid), 0, -1))

    async def events(self, sid: str) -> list[dict[str, Any]]:
        """The retained events, oldest first"""
        found = await self._call("XRANGE", events_key(sid), "-", "+")
        return [json.loads(fields[1]) for _, fields in found]

    # --------------------------------------------------------------------------------- epoch

    async def epoch(self) -> int:
        """Grows whenever another server answers; a client that sees it shrink knows that something was lost."""
        if self._epoch is None:
            info = await self._call("INFO", "server")
            run_id = next(line for line in info.split(b"\r\n") if line.startswith(b"run_id:"))
            try:
                self._epoch = int(await self._script(scripts.EPOCH, [epoch_key(), server_key()], run_id))
            except (StoreFull, StoreReadOnly):  # not written now, so asked for again
                return int(await self._call("GET", epoch_key()) or 0)
        return self._epoch

    async def _connected(self, connection: Any) -> None:
        self._epoch = None  # this may be another server
        await connection.on_connect()

    async def ping(self) -> None:
        await self._call("PING")

    # ------------------------------------------------------------------------------ the wire

    async def _script(self, script: str, keys: list[str], *args: Any, lost: type[Exception] = StoreUnavailable) -> Any:
        try:
            return await self._call("EVALSHA", scripts.DIGESTS[script], len(keys), *keys, *args, lost=lost)
        except NoScriptError:
            return await self._call("EVAL", script, len(keys), *keys, *args, lost=lost)

    async def _call(self, *command: Any, lost: type[Exception] = StoreUnavailable) -> Any:
        """One command. `lost` says what it means when it was sent and no reply came."""
        try:
            async with asyncio.timeout(self._deadline):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except (*CUT_OFF, BusyLoadingError) as error:
            self._epoch = None
            raise StoreUnavailable("the store does not answer") from error
        try:
            async with asyncio.timeout(self._deadline):
                await connection.send_command(*command)
                return await connection.read_response()
        except CUT_OFF as error:
            self._epoch = None
            await connection.disconnect()
            raise (OutcomeUnknown() if lost is OutcomeUnknown else StoreUnavailable("the store was cut off")) from error
        except NoScriptError:
            raise
        except RedisError as error:
            raise _refusal(error) from error
        except asyncio.CancelledError:
            await connection.disconnect()  # its reply must not be read by the next caller
            raise
        finally:
            await self._pool.release(connection)


def _refusal(error: RedisError) -> Exception:
    """Why the store said no; nothing was written"""
    text = str(error)
    if isinstance(error, OutOfMemoryError) or "OOM" in text:
        return StoreFull("the store has no room left")
    if isinstance(error, ReadOnlyError) or "READONLY" in text:
        return StoreReadOnly("the store takes no writes at the moment")
    if isinstance(error, (BusyLoadingError, ResponseError)) and any(
        word in text for word in ("LOADING", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "BUSY", "loading")
    ):
        return StoreUnavailable(f"the store is not ready: {text}")
    return error


def _absent(sid: str, born: int) -> SessionGone | UnknownSession:
    return SessionGone(sid) if born else UnknownSession(sid)


def _spec(data: bytes) -> Spec:
    fields = json.loads(data)
    fields["reference"], fields["labels"] = tuple(fields["reference"]), tuple(fields["labels"])
    return Spec(**fields)


def _counters(fields: dict[bytes, bytes]) -> Counters:
    return Counters(*(int(fields[name]) for name in (b"observed", b"mistakes", b"updates", b"version")))
