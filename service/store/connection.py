"""The connections to Redis: commands by a deadline, and what it means when no reply came.

Commands go over one connection, the line: written as they come, answered in their order, with one timer for all that
wait. Blocking and bulk reads have connections of their own, from a pool, so that nothing waits behind them.

Nobody is refused for want of a connection: on the line everybody has a place, and when all connections of the pool are
in use, the next caller waits. Nothing is sent twice: a command whose reply was lost may have run.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import hiredis
from hiredis import pack_command
from redis.asyncio.connection import BlockingConnectionPool, SSLConnection, UnixDomainSocketConnection, parse_url
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
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from service.errors import OutcomeUnknown, StoreFull, StoreReadOnly, StoreUnavailable
from service.store import scripts
from service.store.keys import epoch_key, mark_key, ready_key, server_key
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


#: Seconds beyond the deadline that the store has to say that the replicas did not meet it.
PATIENCE = 1.0
#: Connections of one process beside the line.
CONNECTIONS = 32
#: Arguments from this size on are not copied into the command, but written beside it.
LARGE = 32 << 10
#: Words of an URL that the line knows; with others (certificates, say) every command goes over the pool.
PLAIN = {"host", "port", "path", "db", "username", "password", "connection_class"}


@dataclass(slots=True)
class _Place:
    """A caller's place in line. Who leaves it early keeps the replies of others in order: theirs are dropped."""

    left: int  # replies to come
    until: float  # the deadline, in the loop's time
    caller: asyncio.Future[list[Any]]
    replies: list[Any] = field(default_factory=list)


class Line(asyncio.Protocol):
    """One connection for many callers at once, served in order"""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._reader = loop, hiredis.Reader(replyError=_refused)
        self._places: deque[_Place] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: Any = None
        self.open = False  # to new callers

    def send(self, commands: Sequence[tuple[Any, ...]], seconds: float) -> asyncio.Future[list[Any]]:
        """The replies to come. TimeoutError: not by the deadline; ConnectionError: they never will"""
        place = _Place(len(commands), self._loop.time() + seconds, self._loop.create_future())
        self._places.append(place)
        if self._timer is None:
            self._timer = self._loop.call_at(place.until, self._overdue)
        if place.left == 1:
            self._transport.write(pack_command(commands[0]))
        else:
            parts = [part for command in commands for part in packed(command)]
            if max(map(len, parts)) < LARGE:
                self._transport.writelines(parts)
            else:  # which would be copied once more to be joined
                for part in parts:
                    self._transport.write(part)
        return place.caller

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                place = self._places[0]
                place.replies.append(reply)
                place.left -= 1
                if isinstance(reply, RedisError) and not place.caller.done():
                    place.caller.set_exception(reply if isinstance(reply, NoScriptError) else _refusal(reply))
                if not place.left:
                    self._places.popleft()
                    if not place.caller.done():
                        place.caller.set_result(place.replies)
        except (hiredis.ProtocolError, IndexError):  # not what was asked for: nothing behind it can be told apart
            self._transport.abort()

    def _overdue(self) -> None:
        """Fail whoever waited for too long. A store that is silent is asked no more: the next caller connects anew."""
        now, self._timer = self._loop.time(), None
        for place in self._places:
            if place.until > now:
                self._timer = self._loop.call_at(place.until, self._overdue)
                return
            self.open = False
            if not place.caller.done():
                place.caller.set_exception(TimeoutError("no reply"))
        if not self.open:  # nobody waits for anything any more
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport, self.open = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        for place in self._places:
            if not place.caller.done():
                place.caller.set_exception(ConnectionError("the connection was closed"))
        self._places.clear()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Connection:
    """What the store, the fit queue and the followers of logs share"""

    def __init__(self, url: str, *, deadline: float = 5.0, wait_replicas: int = 0) -> None:
        self.deadline, self.wait_replicas = deadline, wait_replicas
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
        self._address: dict[str, Any] = dict(parse_url(url))
        self._has_line = self._address.keys() <= PLAIN and self._address.get("connection_class") is not SSLConnection
        self._line: Line | None = None
        self._connecting: asyncio.Task[Line] | None = None
        self.generation = 0  # grows with every new line: another server may answer
        self.known_epoch: int | None = None  # None: another server may have answered since

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._line is not None:
            self._line.close()
        await self._pool.disconnect()

    # --------------------------------------------------------------------------------- epoch

    async def epoch(self, sid: str = "") -> int:
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
        """Run a script; `first`: commands to be run before it in one transaction, so that one fsync is for all"""
        for evaluate in (("EVALSHA", script.digest), ("EVAL", script.text)):
            command = (*evaluate, len(keys), *keys, *args)
            try:
                if not first:
                    return (await self.calls([command], lost=lost))[0]
                replies = (await self.calls([("MULTI",), *first, command, ("EXEC",)], lost=lost))[-1]
                for refused in [each for each in replies if isinstance(each, RedisError)]:
                    raise refused if isinstance(refused, NoScriptError) else _refusal(refused)
                return replies[-1]
            except NoScriptError:
                continue
        raise StoreUnavailable("the store does not take scripts")

    async def call(self, *command: Any, lost: type[Exception] = StoreUnavailable) -> Any:
        """One command. `lost` says what it means when it was sent and no reply came."""
        return (await self.calls([command], lost=lost))[0]

    async def calls(
        self, commands: Sequence[tuple[Any, ...]], *, lost: type[Exception] = StoreUnavailable
    ) -> list[Any]:
        """Commands in one round trip; the first that is refused is raised"""
        if self.wait_replicas and lost is OutcomeUnknown:
            return await self._replicated(commands)
        if not self._has_line:
            return await self._apart(commands, self.deadline, lost)
        line = self._line
        if line is None or not line.open:
            line = await self._connect()
        try:
            return await line.send(commands, self.deadline)
        except CUT_OFF as error:
            raise self._cut_off(lost) from error

    async def _replicated(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Acknowledged once so many replicas have it. Not over the line: whoever is behind it would wait along.

        WAIT asks for what this connection wrote last. A commit that is sent again may write nothing, so something is
        written in any case: beside the same session, for a millisecond.
        """
        mark = [("SET", key, 1, "PX", 1)] if (key := mark_key(commands)) else []
        wait = ("WAIT", self.wait_replicas, round(1000 * self.deadline))
        asked = [*commands, *mark, wait]
        replies = await self._apart(asked, self.deadline + PATIENCE, OutcomeUnknown)
        if replies[-1] < self.wait_replicas:
            raise OutcomeUnknown(f"{replies[-1]} of {self.wait_replicas} replicas have it by now")
        return replies[: len(commands)]

    async def read(self, *command: Any, patience: float | None = None) -> Any:
        """A read that blocks or brings much, on a connection of its own"""
        return (await self._apart([command], patience or self.deadline, StoreUnavailable))[0]

    async def follow(self, positions: Mapping[str, str], count: int, seconds: float) -> list[Any]:
        """What these logs, by key, have behind these ids: waits for something. Pairs of a key and its entries"""
        read = ("XREAD", "COUNT", count, "BLOCK", round(1000 * seconds), "STREAMS", *positions, *positions.values())
        found: list[Any] | None = await self.read(*read, patience=seconds + self.deadline)
        return found or []

    # ------------------------------------------------------------------------------- connections

    async def _connect(self) -> Line:
        """The line, connected anew; those who come meanwhile wait for the same one"""
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._new_line())
            self._connecting.add_done_callback(self._has_connected)
        try:
            return await asyncio.shield(self._connecting)
        except (*CUT_OFF, RedisError) as error:
            self.known_epoch = None
            raise StoreUnavailable("the store does not answer") from error

    def _has_connected(self, task: asyncio.Task[Line]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # the callers may have left: then nobody else would look

    async def _new_line(self) -> Line:
        loop, known = asyncio.get_running_loop(), self._address
        line = Line(loop)
        try:
            async with asyncio.timeout(self.deadline):
                if known.get("connection_class") is UnixDomainSocketConnection:
                    await loop.create_unix_connection(lambda: line, known["path"])
                else:
                    address = known.get("host", "localhost"), known.get("port", 6379)
                    await loop.create_connection(lambda: line, *address)
            name, secret, database = known.get("username"), known.get("password"), known.get("db")
            commands: list[tuple[Any, ...]] = [("AUTH", *filter(None, (name, secret)))] if secret else []
            commands += [("SELECT", database)] if database else []
            await line.send([*commands, ("PING",)], self.deadline)
        except BaseException:
            line.close()
            raise
        self._line, self.known_epoch, self.generation = line, None, self.generation + 1  # this may be another server
        return line

    async def _apart(self, commands: Sequence[tuple[Any, ...]], patience: float, lost: type[Exception]) -> list[Any]:
        try:
            async with asyncio.timeout(self.deadline):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except (*CUT_OFF, RedisError) as error:
            self.known_epoch = None
            said = f": {_said(error)}" if type(error) in WORDS else ""
            raise StoreUnavailable(f"the store does not answer{said}") from error
        try:
            async with asyncio.timeout(patience):
                await connection.send_packed_command([b"".join(map(pack_command, commands))])
                return [await connection.read_response() for _ in commands]
        except BusyLoadingError as error:  # for redis-py a lost connection, but it is an answer: nothing was run
            await connection.disconnect()
            raise _refusal(error) from error
        except CUT_OFF as error:
            await connection.disconnect()
            raise self._cut_off(lost) from error
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

    def _cut_off(self, lost: type[Exception]) -> Exception:
        self.known_epoch = None
        return OutcomeUnknown() if lost is OutcomeUnknown else StoreUnavailable("the store was cut off")


def packed(command: tuple[Any, ...]) -> list[bytes]:
    """A command as it is written; a large argument is not copied"""
    last = command[-1]
    if not isinstance(last, bytes) or len(last) < LARGE:
        return [pack_command(command)]
    head = pack_command((*command[:-1], b""))  # ends with the empty argument: $0, its end of line, and its own
    return [head[: -len(b"$0\r\n\r\n")] + b"$%d\r\n" % len(last), last, b"\r\n"]


def _refused(text: str) -> RedisError:
    """What hiredis makes of an error reply"""
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)


def _refusal(error: RedisError) -> Exception:
    """Why the store said no; nothing was written. Its own words stay with it, for `said`"""
    refusal = _named(error, _said(error))
    if refusal is not error:
        refusal.__cause__ = error
    return refusal


def _named(error: RedisError, text: str) -> Exception:
    if isinstance(error, OutOfMemoryError) or "OOM" in text:
        return StoreFull("the store has no room left")
    if isinstance(error, ReadOnlyError) or "READONLY" in text:
        return StoreReadOnly("the store takes no writes at the moment")
    return error if CRASHED.match(text) else StoreUnavailable(f"the store is not ready: {text}")


def said(error: Exception) -> str:
    """The store's own words behind a refusal; none: there was no reply"""
    cause = error.__cause__
    return _said(cause) if isinstance(cause, RedisError) and not isinstance(cause, CUT_OFF) else ""


def _said(error: BaseException) -> str:
    word = next((word for kind, word in WORDS.items() if type(error) is kind), "")
    return f"{word} {error}".strip()[:200]
