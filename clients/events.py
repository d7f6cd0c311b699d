"""Server-sent events, without I/O: the request, the parser, and when to reconnect."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import orjson

from clients.answers import Commit, Ended, Event, Reset, read_event
from clients.problems import UnexpectedAnswer, Unreachable, WentBackwards
from clients.transport import RETRIED, Answer, Channel, Marks, Position, Reply, Send, position, refusal, retry_after

LINE_END = re.compile(r"\r\n|\n|\r(?!$)")


@dataclass(frozen=True)
class Message:
    """One event of the stream; without a name it is a comment, which serves as a heartbeat."""

    name: str
    id: str
    data: str


@dataclass
class Parser:
    """An incremental parser of the event stream format (WHATWG)"""

    retry: float = 0.0  # seconds that the service asks clients to wait before they reconnect
    _text: str = ""
    _id: str = ""
    _name: str = ""
    _data: list[str] = field(default_factory=list)
    _decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    def feed(self, chunk: bytes) -> Iterator[Message]:
        *lines, self._text = LINE_END.split(self._text + self._decoder.decode(chunk))
        for line in lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                if self._data:
                    yield Message(self._name or "message", self._id, "\n".join(self._data))
                self._name, self._data = "", []
            elif not name:
                yield Message("", self._id, "")
            elif name == "data":
                self._data.append(value)
            elif name == "event":
                self._name = value
            elif name == "id":
                self._id = value
            elif name == "retry" and value.isascii() and value.isdigit():
                self.retry = int(value) / 1000


class Subscription:
    """The events of a session, across reconnects."""

    def __init__(self, channel: Channel, marks: Marks, path: str, after: str | None) -> None:
        self._channel, self._marks, self._path = channel, marks, path
        self._last, self._observed = after, 0
        self._sent_at, self._parser, self._failures, self._retry = Position(), Parser(), 0, 0.0
        self.was_open = False  # whether any connection got the stream

    def request(self) -> Send:
        """For a new connection, which resumes behind the last event (Last-Event-ID)"""
        self._sent_at, self._parser = self._marks.highest, Parser(retry=self._retry)
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last is not None:
            headers["Last-Event-ID"] = self._last
        return self._channel.request("GET", self._path, headers=headers)

    def opens(self, status: int, headers: httpx.Headers, content: bytes = b"") -> bool:
        """Whether this response is the stream; False: retry later. Raises any other problem"""
        if status in RETRIED:
            return False
        answer = Answer(status, headers, content)
        if status != 200:
            raise refusal(answer)
        if not headers.get("content-type", "").startswith("text/event-stream"):
            raise UnexpectedAnswer(f"is this Horocycle? {self._path} is no stream of events")
        self._marks.check(self._sent_at, Position(epoch=answer.epoch))
        self.was_open = True
        return True

    def feed(self, chunk: bytes) -> Iterator[Event]:
        for message in self._parser.feed(chunk):
            self._failures = 0
            if message.name:
                try:
                    event = read_event(message.id, message.name, orjson.loads(message.data))
                except (KeyError, TypeError, ValueError) as error:
                    raise UnexpectedAnswer(f"is this Horocycle? An event reads {message.data[:80]!r}") from error
                self._check(event)
                self._last = event.id or self._last
                yield event

    def _check(self, event: Event) -> None:
        try:
            if isinstance(event, Reset):
                self._marks.check(self._sent_at, position(event))
                self._observed = event.session.observed
            elif isinstance(event, Commit):
                if event.observed < self._observed:
                    raise WentBackwards(self._marks.session, "observed", self._observed, event.observed)
                self._marks.check(Position(), position(event))
                self._observed = event.observed
        except WentBackwards as error:
            error.answer, self._observed = event, 0
            raise

    def ended(self) -> Ended:
        """For a session that was gone at a reconnect"""
        return Ended(self._last or "", "end", {})

    def wait(self, lost: Reply) -> float:
        """The seconds to wait before reconnecting, after a connection was lost, refused or (None) closed; raises after
        too many failures in a row"""
        self._failures += 1
        if self._failures >= self._channel.retry.attempts:
            if lost is None:
                raise Unreachable(self._channel.url, self._failures, "its stream of events ends at once")
            raise self._channel.failure(lost, self._failures)
        self._retry = self._parser.retry
        return max(self._channel.retry.delay(self._failures, self._channel.rng), self._retry, retry_after(lost))
