"""The connection to Redis: commands by a deadline, and what it means when no reply came.

redis-py's own retries are off: a command whose reply was lost may have run. Nobody is refused for want of a connection:
when all of them are in use, the next caller waits.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

from hiredis import pack_command
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TimeoutError,
    TryAgainError,
)

from service.errors import OutcomeUnknown, StoreFull, StoreReadOnly, StoreUnavailable
from service.store import scripts
from service.store.keys import epoch_key, ready_key, server_key
from service.store.scripts import Script

CUT_OFF = (ConnectionError, TimeoutError, asyncio.TimeoutError, OSError)
#: The first word of a refusal, which redis-py makes a class of and takes out of the text.
WORDS: dict[type[RedisError], str] = {
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    NoPermissionError: "NOPERM",
    AuthenticationError: "NOAUTH",
    BusyLoadingError: "LOADING",
}
#: Of a script that ran into an error of its own: what it wrote until then is written.
CRASHED = re.compile(r"(?:ERR )?(?:user_script|Error (?:compiling|running) script)")


#: Connections of one process.
CONNECTIONS = 32


class Connection:
    """What the store, the fit queue and the followers of logs share"""

    def __init__(self, url: str, *, deadline: float = 5.0) -> None:
        self.deadline = deadline
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=deadline,
            protocol=2,  # replies have the same shapes whatever the client's default
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,  # redis-py's own would end a blocking read; deadlines are set a call
            socket_connect_timeout=deadline,
            redis_connect_func=self._connected,
        )
        self.known_epoch: int | None = None  # None: another server may have answered since

    async def close(self) -> None:
        await self._pool.disconnect()

    # --------------------------------------------------------------------------------- epoch

    async def epoch(self) -> int:
        """Grows whenever another server answers; a client that sees it shrink knows that something was lost."""
        if self.known_epoch is None:
            info = await self.call("INFO", "server")
            run_id = next(line for line in info.split(b"\r\n") if line.startswith(b"run_id:"))
            try:
                self.known_epoch = int(await self.script(scripts.EPOCH, [epoch_key(), server_key()], run_id))
            except (StoreFull, StoreReadOnly):  # not written now, so asked for again
                return int(await self.call("GET", epoch_key()) or 0)
        return self.known_epoch

    async def _connected(self, connection: Any) -> None:
        self.known_epoch = None  # this may be another server
        await connection.on_connect()

    async def ping(self) -> None:
        await self.call("PING")

    async def require_writable(self) -> None:
        """Raise if the store does not take a write now: it is away, full, a replica, or this user may not"""
        await self.call("SET", ready_key(), int(time.time()))

    # -------------------------------------------------------------------------------- commands

    async def script(
        self,
        script: Script,
        keys: Sequence[str],
        *args: Any,
        lost: type[Exception] = StoreUnavailable,
        first: Sequence[tuple[Any, ...]] = (),
    ) -> Any:
        """Run a script; `first`: commands to be sent before it in the same round trip"""
        try:
            replies = await self.calls([*first, ("EVALSHA", script.digest, len(keys), *keys, *args)], lost=lost)
        except NoScriptError:
            replies = await self.calls([*first, ("EVAL", script.text, len(keys), *keys, *args)], lost=lost)
        return replies[-1]

    async def call(self, *command: Any, lost: type[Exception] = StoreUnavailable, patience: float | None = None) -> Any:
        """One command. `lost` says what it means when it was sent and no reply came."""
        return (await self.calls([command], lost=lost, patience=patience))[0]

    async def calls(
        self,
        commands: Sequence[tuple[Any, ...]],
        *,
        lost: type[Exception] = StoreUnavailable,
        patience: float | None = None,
    ) -> list[Any]:
        """Commands in one round trip; the first that is refused is raised, and no later reply is read"""
        try:
            async with asyncio.timeout(self.deadline):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except (*CUT_OFF, RedisError) as error:
            self.known_epoch = None
            said = f": {_said(error)}" if type(error) in WORDS else ""
            raise StoreUnavailable(f"the store does not answer{said}") from error
        try:
            async with asyncio.timeout(patience or self.deadline):
                await connection.send_packed_command([b"".join(map(pack_command, commands))])
                return [await connection.read_response() for _ in commands]
        except CUT_OFF as error:
            self.known_epoch = None
            await connection.disconnect()
            raise (OutcomeUnknown() if lost is OutcomeUnknown else StoreUnavailable("the store was cut off")) from error
        except RedisError as error:
            if len(commands) > 1:
                await connection.disconnect()  # there may be more replies
            if isinstance(error, NoScriptError):
                raise
            raise _refusal(error) from error
        except asyncio.CancelledError:
            await connection.disconnect()  # its reply must not be read by the next caller
            raise
        finally:
            await self._pool.release(connection)


def _refusal(error: RedisError) -> Exception:
    """Why the store said no; nothing was written"""
    text = _said(error)
    if isinstance(error, OutOfMemoryError) or "OOM" in text:
        return StoreFull("the store has no room left")
    if isinstance(error, ReadOnlyError) or "READONLY" in text:
        return StoreReadOnly("the store takes no writes at the moment")
    return error if CRASHED.match(text) else StoreUnavailable(f"the store is not ready: {text}")


def _said(error: BaseException) -> str:
    word = next((word for kind, word in WORDS.items() if type(error) is kind), "")
    return f"{word} {error}".strip()[:200]
