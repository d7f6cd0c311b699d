"""A stream of numbered messages, without I/O: what was sent, what is answered, and what to send after a reconnect.

The service counts the messages of a producer and says in its hello how far it has come. So after a reconnect each
message is either there, and its reply is asked for again, or is sent once more: every one is applied once.

Connections are numbered, too: an attempt that was given up may reach the service after the next one (it waited at a
worker that was stopped), and must not take over from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import orjson
from websockets.asyncio.client import connect as aconnect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.sync.client import connect

from clients.answers import Labelled, Observed
from clients.arrays import plain
from clients.bodies import JSON, Batch, dump, encode
from clients.calls import SessionCalls, session_path
from clients.problems import (
    EarlierConnection,
    HorocycleError,
    Problem,
    TakenOver,
    UnexpectedAnswer,
    WentBackwards,
    problem,
)
from clients.transport import CONNECT, RETRIED, Answer, Position, refusal

__all__ = ["LOST", "Conversation", "aconnect", "connect"]

#: Exceptions that say the connection is lost, or was not made.
LOST = (ConnectionClosed, InvalidHandshake, InvalidMessage, OSError, TimeoutError, EOFError)
#: The close code that says another connection of this producer has taken over.
TAKEN_OVER = 4409

Message = str | bytes


class Conversation:
    """All that one producer sent and has no answer to yet"""

    def __init__(self, calls: SessionCalls, producer: str | None, window: int, columns: bool) -> None:
        self._calls = calls
        self.producer = producer or calls.channel.key()
        self._asked = {"producer": self.producer, "window": window, "reply": "columns" if columns else "summary"}
        self._connection = 0  # number of the newest attempt to connect
        self._columns, self.window = columns, window
        self._unanswered: deque[tuple[int, Message]] = deque()
        self._last: int | None = None  # number of the newest message; None: no hello was heard yet
        self._failures, self._began, self._known = 0, 0.0, Position()

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    @property
    def last(self) -> int:
        return self._last or 0

    @property
    def full(self) -> bool:
        return len(self._unanswered) >= self.window

    # ----------------------------------------------------------------------------------------------- connections

    def address(self) -> str:
        """Where to connect now; what is heard then must not be behind what is known by now"""
        self._known = self._calls.marks.highest
        self._connection += 1
        http = self._calls.channel.url + session_path(self._calls.info.id)
        asked = {**self._asked, "connection": self._connection}
        return f"ws{http.removeprefix('http')}/stream?{urlencode(asked)}"

    @property
    def how(self) -> dict[str, Any]:
        headers = dict(self._calls.channel.headers)
        return {"additional_headers": headers, "open_timeout": CONNECT, "compression": None, "max_size": None}

    def hello(self, text: Message) -> list[Message]:
        """What to send on a new connection: the messages that the service does not have, in their order"""
        try:
            hello = orjson.loads(text)["hello"]
            seq, observed, self.window = int(hello["seq"]), int(hello["observed"]), int(hello["window"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(f"is this Horocycle? It greeted with {text[:80]!r}") from error
        self._calls.marks.check(self._known, Position(epoch=hello.get("epoch"), observed=observed))
        if self._last is None:
            self._last = seq
        first = self._last - len(self._unanswered) + 1
        if not first - 1 <= seq <= self._last:
            raise WentBackwards(self._calls.info.id, "seq", first - 1, seq)
        again = [dump({"again": number}).decode() for number, _ in self._unanswered if number <= seq]
        return [*again, *(message for number, message in self._unanswered if number > seq)]

    def wait(self, lost: Exception) -> float:
        """Seconds to wait before the next attempt; raises if there is none"""
        channel = self._calls.channel
        if isinstance(lost, ConnectionClosed) and lost.rcvd is not None and lost.rcvd.code == TAKEN_OVER:
            raise TakenOver(self.producer) from lost
        reply: Any = lost
        if isinstance(lost, InvalidStatus):
            headers = httpx.Headers(list(lost.response.headers.raw_items()))
            reply = httpx.Response(lost.response.status_code, headers=headers, content=bytes(lost.response.body or b""))
            if reply.status_code not in RETRIED:
                self._begin_after(refusal(Answer(reply.status_code, headers, reply.content)), lost)
                return 0.0
        if not self._failures:
            self._began = channel.clock()
        self._failures += 1
        pause = channel.retry.delay(self._failures, channel.rng)
        if self._failures >= channel.retry.attempts or channel.clock() - self._began + pause > channel.retry.patience:
            raise channel.failure(reply, self._failures) from lost
        return pause

    def _begin_after(self, refused: Problem, lost: Exception) -> None:
        """Whoever begins takes over from the newest connection there is; whoever goes on was taken over from"""
        if not isinstance(refused, EarlierConnection):
            raise refused from lost
        if self._last is not None:
            raise TakenOver(self.producer) from lost
        self._connection = refused.newest

    # -------------------------------------------------------------------------------------------------- messages

    def add(self, message: Message) -> int:
        """The number of a message that is sent next"""
        assert self._last is not None
        self._last += 1
        self._unanswered.append((self._last, message))
        return self._last

    def points(self, batch: Batch, if_match: int | None, columns: bool | None) -> Message:
        fields: dict[str, Any] = {} if if_match is None else {"if_match": if_match}
        if columns is not None and columns != self._columns:
            fields["reply"] = "columns" if columns else "summary"
        content, kind = encode(batch, self._calls.info.dimension, self._calls.index)
        if kind == JSON and not fields:
            return content.decode()
        if not fields:
            return content
        given = {"points": batch.points, "labels": batch.labels, "truth": batch.truth}
        return dump({**{name: plain(each) for name, each in given.items() if each is not None}, **fields}).decode()

    def labels(self, ids: Any, labels: Any) -> Message:
        return dump({"ids": plain(ids), "labels": plain(labels)}).decode()

    def answer(self, text: Message) -> Observed | HorocycleError:
        """The answer to the oldest message that has none"""
        try:
            document: Mapping[str, Any] = orjson.loads(text)
            seq = int(document["seq"])
            found: Observed | HorocycleError
            if "problem" in document:
                found = problem(document["problem"])
            else:
                found = (Labelled if "ids" in document else Observed).read(dict(document), False)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(f"is this Horocycle? It answered {text[:80]!r}") from error
        number, _ = self._unanswered[0]
        if seq != number:
            raise UnexpectedAnswer(f"message {number} was to be answered, not {seq}")
        self._unanswered.popleft()
        self._failures = 0
        if isinstance(found, Problem):
            found.seq = seq
        return found
