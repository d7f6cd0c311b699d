"""Requests with retries, exponential backoff and jitter, and the checks of every answer; without I/O.

A call is a generator that yields `Send` or `Sleep` and is sent the reply. So retries, idempotency keys and checks are
written once; `Client.run` and `AsyncClient.run` do the sending and sleeping.

Retried: 429, 502, 503, 504, a connection that fails, a response that times out. Nothing else.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import httpx
import orjson

from clients.problems import (
    Problem,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnexpectedAnswer,
    Unreachable,
    WentBackwards,
    WrongArgument,
    problem,
)

T = TypeVar("T")

URL = "http://127.0.0.1:8000"
#: Seconds to wait for a connection.
CONNECT = 5.0
#: Seconds without a heartbeat after which a stream of events counts as lost.
SILENCE = 30.0
#: No limit on connections: how many requests are made at a time is up to the caller.
#: An idle connection is given up before the service closes it, which after 5 seconds it does: a request sent just then
#: would be lost.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=3.0)

Sleeper = Callable[[float], None]
AsyncSleeper = Callable[[float], Awaitable[None]]

RETRIED = (429, 502, 503, 504)
#: Errors of httpx that say the request never reached the service.
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
#: Problems that say the service changed nothing; so does every 429.
NOT_APPLIED = (StoreUnavailable, StoreFull, StoreReadOnly)


@dataclass(frozen=True)
class Send:
    """Send this request, once."""

    method: str
    url: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | Path | None = None  # a file is sent as it is read


@dataclass(frozen=True)
class Sleep:
    seconds: float


Reply = httpx.Response | httpx.TransportError | None
Call = Generator[Send | Sleep, Reply, T]


@dataclass(frozen=True)
class Retry:
    """Exponential backoff with jitter: `first` seconds, doubled at every failure up to `longest`, each shortened at
    random by up to a half, so that clients do not retry in step; longer if the service says so (`Retry-After`). At most
    `attempts` requests in all, and none after `patience` seconds."""

    attempts: int = 8
    first: float = 0.1
    longest: float = 5.0
    patience: float = 60.0

    def __post_init__(self) -> None:
        if not (self.attempts >= 1 and self.first >= 0 and self.longest >= 0 and self.patience >= 0):
            raise WrongArgument(f"at least one attempt, and no negative seconds: {self}")

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to sleep after so many failures"""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 60)) * rng.uniform(0.5, 1.0)


@dataclass(frozen=True)
class Answer:
    """A response, without httpx's part in it."""

    status: int
    headers: httpx.Headers
    content: bytes

    def json(self) -> dict[str, Any]:
        document = orjson.loads(self.content)
        if not isinstance(document, dict):
            raise ValueError("not an object")
        return document

    @property
    def replayed(self) -> bool:
        return bool(self.headers.get("idempotency-replayed") == "true")

    @property
    def version(self) -> int | None:
        """The model's version: the ETag"""
        return _number(self.headers.get("etag", "").strip('"'))

    @property
    def epoch(self) -> int | None:
        return _number(self.headers.get("horocycle-epoch", ""))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


# ---------------------------------------------------------------------------------- what never goes backwards


@dataclass(frozen=True)
class Position:
    """How far a session is, as far as an answer says."""

    epoch: int | None = None
    observed: int | None = None
    version: int | None = None

    def items(self) -> list[tuple[str, int | None]]:
        return [("epoch", self.epoch), ("observed", self.observed), ("version", self.version)]


class Marks:
    """High-water marks: the furthest position of a session that any answer had.

    Answers to concurrent requests may arrive in any order. So `highest` is noted when a request is sent, and its answer
    must not be behind that.
    """

    def __init__(self, session: str) -> None:
        self.session = session
        self._highest, self._lock = Position(), threading.Lock()

    @property
    def highest(self) -> Position:
        return self._highest

    def check(self, sent_at: Position, told: Position) -> None:
        """Raise the marks to an answer's position; `WentBackwards` if it is behind what was known at sending time"""
        behind = [
            WentBackwards(self.session, name, was, now)
            for (name, was), (_, now) in zip(sent_at.items(), told.items(), strict=True)
            if was is not None and now is not None and now < was
        ]
        with self._lock:
            new = {name: now for name, now in told.items() if now is not None}
            if not behind:
                new = {name: max(now, getattr(self._highest, name) or 0) for name, now in new.items()}
            self._highest = replace(self._highest, **new)
        if behind:
            raise behind[0]


# --------------------------------------------------------------------------------------------------- a request


@dataclass(frozen=True)
class Channel:
    """What all calls of a client share. Clock, randomness and sleep are arguments."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    retry: Retry = Retry()
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.SystemRandom)
    _marks: WeakValueDictionary[str, Marks] = field(default_factory=WeakValueDictionary)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def to(
        cls, url: str, api_key: str | None, retry: Retry, clock: Callable[[], float], rng: random.Random | None
    ) -> Channel:
        if not url.startswith(("http://", "https://")):
            raise WrongArgument(f"{url!r} is no address of a service: it begins with http:// or https://")
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        return cls(url.rstrip("/"), headers, retry, clock, rng or random.SystemRandom())

    def marks(self, session: str) -> Marks:
        """Shared by all handles of a session, and dropped with the last of them"""
        with self._lock:
            found = self._marks.get(session)
            if found is None:
                found = self._marks[session] = Marks(session)
            return found

    def key(self) -> str:
        """A new idempotency key, or id: 128 random bits"""
        return f"{self.rng.getrandbits(128):032x}"

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | Path | None = None,
    ) -> Send:
        return Send(method, self.url + path, params or {}, {**self.headers, **(headers or {})}, content)

    def ask(self, request: Send, read: Callable[[Answer], T], marks: Marks | None = None) -> Call[T]:
        """Send a request, with retries, and parse the answer with `read`; raise the problem if it is one.

        `marks`: those of the session, for answers that tell its present position.
        """
        began, failures, doubtful = self.clock(), 0, False
        while True:
            sent_at = marks.highest if marks else Position()
            reply = yield request
            if isinstance(reply, httpx.Response) and reply.status_code not in RETRIED:
                answer = Answer(reply.status_code, reply.headers, reply.content)
                if not (reply.is_success or reply.status_code == 304):
                    raise refusal(answer, doubtful)
                result = understood(answer, read)
                if marks is not None:
                    _check(marks, sent_at, answer, result)
                return result
            failures += 1
            doubtful = doubtful or not not_applied(reply)
            wait = max(self.retry.delay(failures, self.rng), retry_after(reply))
            if failures >= self.retry.attempts or self.clock() - began + wait > self.retry.patience:
                raise self.failure(reply, failures)
            yield Sleep(wait)

    def pause(self, reply: Reply, failures: int) -> float:
        """Seconds to wait after so many failures of a download; raises what no retry would mend"""
        if isinstance(reply, httpx.Response) and reply.status_code not in RETRIED:
            raise refusal(Answer(reply.status_code, reply.headers, reply.content))
        if failures >= self.retry.attempts:
            raise self.failure(reply, failures)
        return max(self.retry.delay(failures, self.rng), retry_after(reply))

    def failure(self, reply: Reply, attempts: int) -> Problem | Unreachable:
        """What to raise after the last attempt"""
        if isinstance(reply, httpx.Response):
            return refusal(Answer(reply.status_code, reply.headers, reply.content))
        error = Unreachable(self.url, attempts, str(reply) or _spoken(type(reply).__name__))
        error.__cause__ = reply
        return error


def not_applied(reply: Reply) -> bool:
    """Whether a failure is sure to have changed nothing: the request was not sent, or the service itself refused it"""
    if not isinstance(reply, httpx.Response):
        return isinstance(reply, UNSENT)
    refused = refusal(Answer(reply.status_code, reply.headers, reply.content))
    return reply.status_code == 429 or isinstance(refused, NOT_APPLIED)


def understood(answer: Answer, read: Callable[[Answer], T]) -> T:
    try:
        return read(answer)
    except (KeyError, TypeError, ValueError) as error:
        start = answer.content[:80].decode("utf-8", "replace")
        raise UnexpectedAnswer(f"is this Horocycle? It answered {start!r} with status {answer.status}") from error


def _check(marks: Marks, sent_at: Position, answer: Answer, result: object) -> None:
    told = Position() if answer.replayed else position(result)  # a replayed answer has the position of the first time
    try:
        marks.check(sent_at, replace(told, epoch=answer.epoch))
    except WentBackwards as error:
        error.answer = result
        raise


def position(result: object) -> Position:
    """The position in a parsed answer"""
    counters = getattr(result, "session", result)
    return Position(observed=getattr(counters, "observed", None), version=getattr(counters, "version", None))


def refusal(answer: Answer, doubtful: bool = False) -> Problem:
    """The exception for an error response; a proxy's, which is no problem document, becomes a plain `Problem`"""
    document: Any = None
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        try:
            document = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            pass
    if not isinstance(document, dict):
        text = answer.content[:200].decode("utf-8", "replace").strip()
        document = {"title": f"Status {answer.status}", "detail": text or f"status {answer.status}, without a word"}
    error = problem({**document, "status": answer.status})
    error.doubtful = doubtful
    return error


def retry_after(reply: Reply) -> float:
    """The seconds of a Retry-After header: a number, or a date, which is compared with the response's Date"""
    if not isinstance(reply, httpx.Response) or "retry-after" not in reply.headers:
        return 0.0
    given = reply.headers["retry-after"]
    try:
        seconds = float(given)
    except ValueError:
        try:
            until, now = parsedate_to_datetime(given), parsedate_to_datetime(reply.headers.get("date", ""))
            seconds = (until - now).total_seconds()
        except (ValueError, TypeError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _spoken(name: str) -> str:
    """ReadTimeout → read timeout"""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def built(http: httpx.Client | httpx.AsyncClient, request: Send, timeout: httpx.Timeout | None = None) -> httpx.Request:
    content, headers = request.content, dict(request.headers)
    body: bytes | Iterator[bytes] | AsyncIterator[bytes] | None
    if isinstance(content, Path):
        headers["Content-Length"] = str(content.stat().st_size)
        body = _read(content) if isinstance(http, httpx.Client) else _aread(content)
    else:
        body = content
    return http.build_request(
        request.method,
        request.url,
        params=request.params or None,
        headers=headers,
        content=body,
        timeout=httpx.USE_CLIENT_DEFAULT if timeout is None else timeout,
    )


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            yield data


async def _aread(path: Path) -> AsyncIterator[bytes]:
    for data in _read(path):
        yield data
