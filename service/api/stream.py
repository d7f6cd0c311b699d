"""WebSocket /sessions/{id}/stream: messages in, answers out, in order, with many under way.

A message is observe's JSON as text (with `if_match` and `reply` as fields), late labels {"ids", "labels"}, or raw rows
as bytes. Each is answered by {"seq": n, …observe's answer} or {"seq": n, "problem": …}. More than `window` unanswered
messages are not read: backpressure reaches the sender through TCP.

With ?producer=name messages are numbered. The number is part of the commit that applies the message, and so is its
reply, which is kept; the hello says how far the producer has come. Who is cut off connects again, sends on after that
number and asks for replies that were missed by {"again": n}: every message is applied once. A message that was refused
has used its number up. If the store cannot say what became of a message the connection is closed instead.

A new connection of a producer takes over from the one before. With ?connection=k it does so only if k is above the
number of that one: an attempt that was given up, and arrives after the next one, is refused.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket, WebSocketDisconnect

from service.api.admission import charge_points, key_in
from service.api.context import Context
from service.api.formats import JSON, RAW, load_json, read_bodies, read_labelled, read_labels
from service.api.labels import labelled
from service.api.observe import answered, wants
from service.api.problems import problem, respond
from service.api.writing import offload, require_bounded
from service.errors import (
    AnswerTooLarge,
    BodyTooLarge,
    HorocycleError,
    InvalidRequest,
    OutcomeUnknown,
    RateLimited,
    SessionReplaying,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownLabel,
    described,
)
from service.ingest import WRITABLE, Replaced
from service.sessions import rows
from service.sessions.records import Loaded
from service.sessions.requests import Answer, Numbered, Request, Unread
from service.sessions.spec import Spec

NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)
#: Unanswered messages: unless asked for, and at the most.
WINDOW, LARGEST_WINDOW = 64, 1024
#: A producer that numbers its connections has so many; the next of others must still be an integer of 64 bits.
LARGEST_CONNECTION = 1 << 53
#: Fields beside those of observe; a message without these words is read as a body of observe.
FIELDS = re.compile(rb'"(?:again|ids?|if_match|reply|probabilities)"')
#: Those that say what an answer has
TOLD = ("reply", "probabilities")
#: Bytes of a message that is read on the event loop, times the scores of a point.
AT_ONCE = 1 << 17
#: Numbers that the reply to one message may have.
TOLD_AT_ONCE = 1 << 16
#: Close codes: come back (this worker ends), or later (the store is away); another connection has taken over; the
#: session has ended. And what is said when the key is no longer good.
RESTART, LATER, TAKEN_OVER, ENDED = 1012, 1013, 4409, 4410
REFUSED = 1008, "this API key has expired, or was revoked"
#: Raised by what is sent to a client that has left.
LEFT = (RuntimeError, WebSocketDisconnect)
AWAY = (StoreUnavailable, StoreFull, StoreReadOnly, OutcomeUnknown, RateLimited)

Reply = Callable[[Answer | HorocycleError], bytes]


class Waiting(NamedTuple):
    """A message that is not answered yet"""

    answer: asyncio.Future[Any]
    size: int
    reply: Reply | None  # makes the reply of the answer, if that is not one already


async def stream(socket: WebSocket) -> None:
    here: Context = socket.app.state.context
    sid = socket.path_params["id"]
    with ExitStack() as place, suppress(WebSocketDisconnect):  # it may leave before the hello
        try:
            producer, connection, window, told = _asked(socket.query_params)
            place.enter_context(here.streams.one(key_in(socket.scope)))
            loaded = await (here.ingest.connect(sid, producer, connection) if producer else here.ingest.current(sid))
            if loaded.status not in WRITABLE:
                raise SessionReplaying(sid, loaded.status)
            epoch = await here.connection.epoch(sid)
        except HorocycleError as error:
            return await socket.send_denial_response(respond(error))
        await socket.accept()
        found = Stream(here, socket, loaded, producer, window, told)
        hello = {"producer": producer, "seq": found.seq, "connection": found.connection, "window": window}
        await socket.send_text(_dump({"hello": {**hello, "observed": loaded.counters.observed, "epoch": epoch}}))
        await found.run()


def _asked(query: QueryParams) -> tuple[str | None, int | None, int, dict[str, Any]]:
    """?producer=, ?connection=, ?window=; and ?reply=, ?probabilities= for messages that do not say otherwise"""
    producer, connection = query.get("producer"), _number(query, "connection", LARGEST_CONNECTION)
    if producer is not None and not NAME.fullmatch(producer):
        raise InvalidRequest(
            f"a producer's name has 1 to 64 letters, digits or _.:-, unlike {producer[:100]!r}", parameter="producer"
        )
    if connection is not None and producer is None:
        raise InvalidRequest(
            "only the connections of a producer have numbers: say which, by ?producer=", parameter="connection"
        )
    window = _number(query, "window", LARGEST_WINDOW) or WINDOW
    return producer, connection, window, _wants({name: query[name] for name in TOLD if name in query})


def _number(query: QueryParams, name: str, most: int) -> int | None:
    """From 1 on, if it is given"""
    if (given := query.get(name)) is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) < 20 and 1 <= int(given) <= most):
        raise InvalidRequest(f"{name} is {given[:20]!r}, not a number from 1 to {most}", parameter=name)
    return int(given)


class Stream:
    """One connection: a reader, a writer, and what lies between them"""

    def __init__(
        self, here: Context, socket: WebSocket, loaded: Loaded, producer: str | None, window: int, told: dict[str, Any]
    ) -> None:
        self._here, self._socket, self._spec = here, socket, loaded.spec
        self._producer, self._window, self._told = producer, window, told
        self.connection = loaded.producers[producer].connection if producer else 0
        self.seq = loaded.producers[producer].seq if producer else 0  # the last number that is given away
        self._waiting: deque[Waiting] = deque()
        self._size, self._most = 0, here.settings.body_limit  # bytes of them
        self._closing = here.streams.closing
        self._came, self._went, self._taken_over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Until the client leaves, another connection takes over, or nothing more can be answered"""
        mine = (self._spec.id, self._producer)
        if self._producer and (earlier := self._here.producers.get(mine)) is not None:
            earlier._taken_over.set()
        self._here.producers[mine] = self
        tasks = [asyncio.create_task(each()) for each in (self._read, self._write, self._watch, self._end)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            code, reason = [task.result() for task in tasks if task in done][-1]
            if code:
                with suppress(*LEFT):
                    await self._socket.close(code, reason)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._here.producers.get(mine) is self:
                del self._here.producers[mine]

    async def _watch(self) -> tuple[int, str]:
        """Whether another connection of this producer has come: in this worker at once, in another by and by"""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._taken_over.wait(), self._here.settings.heartbeat)
            if self._taken_over.is_set() or not await self._is_newest():
                return TAKEN_OVER, "another connection of this producer has taken over"
            with suppress(HorocycleError):  # whoever sends something hears of it
                if not await self._is_admitted():
                    return REFUSED

    async def _end(self) -> tuple[int, str]:
        """When this worker ends: what was read is answered, what was not is sent again on another connection"""
        await self._here.streams.closing.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._here.settings.deadline):
                while self._waiting:
                    self._went.clear()
                    await self._went.wait()
        return RESTART, "this worker ends: connect again"

    async def _is_admitted(self) -> bool:
        """Whether the key that it came with is still good"""
        key = key_in(self._socket.scope)
        return key is None or await self._here.keys.is_good(key)

    async def _is_newest(self) -> bool:
        try:
            producers = (await self._here.ingest.current(self._spec.id)).producers
        except HorocycleError:  # whoever sends something hears of it
            return True
        found = producers.get(self._producer or "")
        return found is None or found.connection == self.connection

    # ----------------------------------------------------------------------------------------------- messages in

    async def _read(self) -> tuple[int, str]:
        receive = self._socket.receive
        while True:
            await self._has_room()
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return 0, ""
            try:
                if not await self._is_admitted():
                    return REFUSED
                for body, raw in _messages(message):
                    if len(self._waiting) >= self._window or self._size > self._most or self._closing.is_set():
                        await self._has_room()
                    waiting = self._at_once(body, raw) or await self._taken(body, raw)
                    self._waiting.append(waiting)
                    self._size += waiting.size
                    self._came.set()
            except AWAY as error:  # its key has no points left for now, or nobody can tell
                return LATER, described(error)["type"]

    async def _has_room(self) -> None:
        while len(self._waiting) >= self._window or self._size > self._most or self._closing.is_set():
            self._went.clear()
            await self._went.wait()

    def _at_once(self, body: bytes, raw: bool) -> Waiting | None:
        """A small message: its body is read with those of others, when its turn comes. None: any other"""
        if len(body) * self._spec.columns > AT_ONCE or "key" in self._socket.scope:
            return None
        if not raw and (len(body) > self._here.settings.json_limit or FIELDS.search(body)):
            return None
        self.seq += 1
        mark = Mark(self._producer, self.connection, self.seq)
        reply = _observed(self._spec_now, self.seq)
        numbered, told = mark.numbered(reply), self._told

        def alone(spec: Spec) -> Request:
            return _understood(spec, mark, body, raw, {}, told)[0]

        unread = Unread(body, raw, read_bodies, numbered=numbered, alone=alone, **told)
        return Waiting(self._here.ingest.observe(self._spec.id, unread), len(body), reply if numbered is None else None)

    def _spec_now(self) -> Spec:
        return self._here.ingest.spec(self._spec.id) or self._spec

    async def _taken(self, body: bytes, raw: bool) -> Waiting:
        """A message on its way to be applied, and where its answer will come from"""
        spec = self._here.ingest.spec(self._spec.id) or self._spec
        fields: dict[str, Any] = {}
        most = self._here.settings.body_limit if raw else self._here.settings.json_limit
        if not raw and len(body) <= most and FIELDS.search(body):
            with suppress(HorocycleError):  # read as a body of observe it is named
                fields = _object(await offload(len(body), load_json, body))
            if fields.keys() == {"again"} and type(fields["again"]) is int:
                reply_again = asyncio.ensure_future(self._again(fields["again"]))
                reply_again.add_done_callback(_seen)
                return Waiting(reply_again, len(body), None)
        self.seq += 1
        mark = Mark(self._producer, self.connection, self.seq)
        if len(body) > most:
            request, reply = _refusing(spec, mark, BodyTooLarge(most))
        else:
            request, reply = await offload(len(body), _understood, spec, mark, body, raw, fields, self._told)
        if isinstance(request.refused, UnknownLabel):  # it may have been added by another worker
            with suppress(HorocycleError):
                spec = (await self._here.ingest.current(spec.id)).spec
            request, reply = await offload(len(body), _understood, spec, mark, body, raw, fields, self._told)
        if "key" in self._socket.scope:
            await charge_points(self._here, self._socket.scope, len(request.batch) + len(request.ids))
        if request.numbered is not None:
            return Waiting(self._here.ingest.observe(spec.id, request), len(body), None)
        if request.refused is not None:
            return Waiting(_answered(reply(request.refused)), len(body), None)
        return Waiting(self._here.ingest.observe(spec.id, request), len(body), reply)

    async def _again(self, seq: int) -> bytes:
        """The reply to an earlier message of this producer"""
        found = await self._here.ingest.reply(self._spec.id, self._producer, seq) if self._producer else None
        if found is not None:
            return found
        error = InvalidRequest(f"the reply to message {seq} is not kept: it was not sent, or long ago", again=seq)
        return _refused(seq, error)

    # ----------------------------------------------------------------------------------------------- replies out

    async def _write(self) -> tuple[int, str]:
        while True:
            while not self._waiting:
                self._came.clear()
                await self._came.wait()
            with suppress(HorocycleError, Replaced):
                await self._waiting[0].answer
            replies, over = self._replies()
            try:
                await self._send(replies)
            except LEFT:
                return 0, ""
            for _ in replies:
                self._size -= self._waiting.popleft().size
            self._went.set()
            if over is not None:
                return over

    def _replies(self) -> tuple[list[bytes], tuple[int, str] | None]:
        """To as many messages as are done, in their order; and how the connection ends, if one has no reply"""
        replies: list[bytes] = []
        for answer, _, reply in self._waiting:
            if not answer.done():
                break
            try:
                found = answer.result()
            except Replaced:
                return replies, (TAKEN_OVER, "another connection of this producer has taken over")
            except HorocycleError as error:
                if reply is None:
                    return replies, (LATER if isinstance(error, AWAY) else ENDED, described(error)["type"])
                found = error
            replies.append(found if reply is None else reply(found))
        return replies, None

    async def _send(self, replies: list[bytes]) -> None:
        """All in one, where the server can do that (process/messages.py)"""
        if "horocycle.messages" in self._socket.scope.get("extensions", ()):
            return await self._socket.send({"type": "websocket.send", "texts": replies})
        for reply in replies:
            await self._socket.send({"type": "websocket.send", "text": reply.decode()})


def _seen(task: asyncio.Future[Any]) -> None:
    """The client may have left: then nobody else would look"""
    if not task.cancelled():
        task.exception()


def _answered(reply: bytes) -> asyncio.Future[bytes]:
    found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    found.set_result(reply)
    return found


class Mark(NamedTuple):
    """Where a message comes from; without a producer its number is not kept"""

    producer: str | None
    connection: int
    seq: int

    def numbered(self, reply: Reply) -> Numbered | None:
        return None if self.producer is None else Numbered(self.producer, self.connection, self.seq, reply)


def _messages(message: Any) -> list[tuple[bytes, bool]]:
    """Each with whether it is binary: many at once, where the server does that (process/messages.py)"""
    if "messages" in message:
        found: list[tuple[bytes, bool]] = message["messages"]
        return found
    text = message.get("text")
    return [(message["bytes"], True) if text is None else (text.encode(), False)]


def _understood(
    spec: Spec, mark: Mark, body: bytes, raw: bool, fields: dict[str, Any], told: dict[str, Any]
) -> tuple[Request, Reply]:
    """What a message asks for, or why it is refused, and how that is answered"""
    try:
        if fields:
            request, reply = _with_fields(spec, mark, fields, told)
        else:
            batch = read_labelled(body, RAW if raw else JSON, spec)
            reply = _observed(lambda: spec, mark.seq)
            request = Request(batch, numbered=mark.numbered(reply), **told)
        _require_short(spec, request)
        return request, reply
    except HorocycleError as error:
        return _refusing(spec, mark, error)


def _refusing(spec: Spec, mark: Mark, error: HorocycleError) -> tuple[Request, Reply]:
    empty = rows.empty(spec.dimension)
    reply = _observed(lambda: spec, mark.seq)
    return Request(empty, numbered=mark.numbered(reply), refused=error), reply


def _require_short(spec: Spec, request: Request) -> None:
    """Replies are made on the event loop, where they are stored: what is longer goes without columns"""
    points = len(request.batch) + len(request.ids)
    if request.columns and points * spec.columns > TOLD_AT_ONCE:
        instead = "ask with reply=summary, or send smaller messages"
        raise AnswerTooLarge(f"{points} points with {spec.columns} scores each", TOLD_AT_ONCE, instead)
    require_bounded(spec, points, columns=request.columns)


def _with_fields(spec: Spec, mark: Mark, fields: dict[str, Any], told: dict[str, Any]) -> tuple[Request, Reply]:
    """A message that says more than observe's body does, or brings late labels"""
    seq, if_match = mark.seq, fields.get("if_match")
    if if_match is not None and not (type(if_match) is int and if_match >= 0):
        raise InvalidRequest("if_match is a version of the model: a number from 0 on", field="if_match")
    told = {**told, **_wants({name: str(fields[name]).lower() for name in TOLD if name in fields})}
    own = {name: value for name, value in fields.items() if name != "if_match" and name not in TOLD}
    body = json.dumps(own).encode()
    if fields.keys() & {"ids", "id"} and not fields.keys() & {"points", "point"}:
        if if_match is not None:
            raise InvalidRequest("late labels answer no particular classifier: leave if_match out", field="if_match")
        late = read_labels(body, JSON, spec)

        def labels(result: Answer | HorocycleError) -> bytes:
            return _numbered(seq, labelled(spec, late, result)) if isinstance(result, Answer) else _refused(seq, result)

        empty, numbered = rows.empty(spec.dimension), mark.numbered(labels)
        return Request(empty, ids=late.ids, late=late.indices, numbered=numbered, **told), labels
    batch = read_labelled(body, JSON, spec)
    reply = _observed(lambda: spec, seq)
    return Request(batch, if_match=if_match, numbered=mark.numbered(reply), **told), reply


def _wants(asked: dict[str, str]) -> dict[str, Any]:
    """What answers have, as far as it is said"""
    columns, probabilities = wants(urlencode(asked).encode())
    found = {"reply": ("columns", columns), "probabilities": ("probabilities", probabilities)}
    return dict(found[name] for name in asked)


def _object(message: Any) -> dict[str, Any]:
    return message if isinstance(message, dict) else {}


def _observed(spec: Callable[[], Spec], seq: int) -> Reply:
    """`spec`: labels may be added until it is answered"""

    def told(result: Answer | HorocycleError) -> bytes:
        if not isinstance(result, Answer):
            return _refused(seq, result)
        return _numbered(seq, answered(spec(), result))

    return told


def _numbered(seq: int, answer: bytes) -> bytes:
    return b'{"seq":%d,' % seq + answer[1:]


def _refused(seq: int, error: HorocycleError) -> bytes:
    return orjson.dumps({"seq": seq, "problem": problem(error)}, default=str)


def _dump(value: Any) -> str:
    return orjson.dumps(value).decode()
