"""The client, its sessions and their fits. sync_client.py is written from async_client.py: see unasync.py.

Each method runs a call of calls.py, which knows the routes; transport.py retries its requests.
"""

from __future__ import annotations

import random
from asyncio import sleep
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any, Self, TypeVar, Unpack, overload

import httpx

from clients import calls
from clients.answers import (
    Array,
    Certificate,
    Ended,
    Event,
    FitInfo,
    FitResult,
    Labelled,
    LogPage,
    Metrics,
    Model,
    Observed,
    Predicted,
    SessionInfo,
)
from clients.bodies import Batch, Points, alabelled, is_label, rows, unlabelled
from clients.calls import Changes, How, Observing, Placing, Recipe, SessionCalls, Settings, probabilities
from clients.disk import Disk, ashown
from clients.problems import HorocycleError, SessionGone
from clients.progress import bar
from clients.stream import LOST, Conversation, Message, aconnect
from clients.transport import CONNECT, LIMITS, SILENCE, URL, AsyncSleeper, Call, Channel, Reply, Retry, Sleep, built

T = TypeVar("T")


class AsyncClient:
    """A connection pool to one service. Threads, or the tasks of one event loop, may share it.

    `timeout`: seconds to wait for one response; `retry`: how often and with what backoff to try again; `api_key`: sent
    as a bearer token. `http` is for a proxy or certificates of your own; `sleep`, `clock` and `rng` are for tests.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retry: Retry = Retry(),  # noqa: B008 (frozen)
        http: httpx.AsyncClient | None = None,
        sleep: AsyncSleeper = sleep,
        clock: Callable[[], float] = monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.channel = Channel.to(url, api_key, retry, clock, rng)
        limit = httpx.Timeout(timeout, connect=min(CONNECT, timeout))
        self.http = httpx.AsyncClient(timeout=limit, limits=LIMITS) if http is None else http
        self.sleep = sleep
        self.sessions = AsyncSessions(self)

    async def run(self, call: Call[T]) -> T:
        """Send the requests of a call of calls.py, sleep when it says so, and give its result"""
        reply: Reply = None
        while True:
            try:
                step = call.send(reply)
            except StopIteration as done:
                result: T = done.value
                return result
            reply = None
            if isinstance(step, Sleep):
                await self.sleep(step.seconds)
                continue
            try:
                reply = await self.http.send(built(self.http, step))
            except httpx.TransportError as error:
                reply = error

    async def close(self) -> None:
        """Close the connections"""
        await self.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncSessions:
    """The sessions of a service: `client.sessions`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def open(self, *, dimension: int, **settings: Unpack[Settings]) -> AsyncSession:
        """A new session. What is left out is the service's default; without an `id` the client chooses a random one."""
        return await self._open({"dimension": dimension, **settings})

    async def restore(
        self, snapshot: dict[str, Any] | str | PathLike[str], *, id: str | None = None, name: str | None = None
    ) -> AsyncSession:
        """Import what `AsyncSession.snapshot` exported, or a file that `AsyncSession.save` wrote, from this service or
        another, under a new id"""
        if not isinstance(snapshot, dict):
            call = calls.restore_file(self._client.channel, Path(snapshot), id, name)
            return AsyncSession(self._client, await self._client.run(call))
        return await self._open({"snapshot": snapshot, "id": id, "name": name})

    async def fork(
        self, session: str | AsyncSession, at: int | None = None, **settings: Unpack[Settings]
    ) -> AsyncSession:
        """A new session from the log of another, up to position `at` (default: all of it), with these settings changed.

        The service replays the log in the background: see `AsyncSession.wait`. The settings unchanged: the state that
        the session had at that position. Otherwise all its points from the first are learned anew; `LogTrimmed` if
        they are no longer kept.
        """
        source = session.id if isinstance(session, AsyncSession) else session
        return await self._open({**settings}, {"session": source} if at is None else {"session": source, "at": at})

    async def merge(
        self, sessions: Iterable[str | AsyncSession], *, id: str | None = None, name: str | None = None
    ) -> AsyncSession:
        """A new session that has learned what several gaussian ones have. They stay as they are."""
        sources = [each.id if isinstance(each, AsyncSession) else each for each in sessions]
        return await self._open({"merge": {"sessions": sources}, "id": id, "name": name})

    async def _open(self, asked: dict[str, Any], fork: dict[str, Any] | None = None) -> AsyncSession:
        call = calls.open_session(self._client.channel, asked, fork)
        return AsyncSession(self._client, await self._client.run(call))

    async def get(self, id: str) -> AsyncSession:
        """The session with this id"""
        return AsyncSession(self._client, await self._client.run(calls.find_session(self._client.channel, id)))

    async def list(self, *, page: int = 100) -> AsyncIterator[AsyncSession]:
        """All sessions, newest first; requested `page` at a time while you iterate"""
        cursor: str | None = None
        while True:
            found = await self._client.run(calls.page(self._client.channel, cursor, page))
            for info in found.sessions:
                yield AsyncSession(self._client, SessionCalls(self._client.channel, info))
            if (cursor := found.cursor) is None:
                return


class AsyncSession:
    """One session. Those who share it may call at the same time; the service puts their points into one order.

    `info` is the session as of the last response that described it: open, get, change, refresh, promote or wait.
    """

    def __init__(self, client: AsyncClient, calls: SessionCalls) -> None:
        self._client, self._calls = client, calls

    def __repr__(self) -> str:
        return f"<AsyncSession {self.id}: {self.info.algorithm}, {self.info.observed} observed>"

    def _repr_html_(self) -> str | None:
        return ashown(self)

    @property
    def id(self) -> str:
        return self._calls.info.id

    @property
    def info(self) -> SessionInfo:
        return self._calls.info

    async def refresh(self) -> SessionInfo:
        """Ask how the session is now, and keep it as `info`"""
        return await self._client.run(self._calls.refresh())

    # -------------------------------------------------------------------------------- the stream

    async def observe(self, X: Points, y: Any = None, **how: Unpack[How]) -> Observed:
        """For each point, in order: predict, then learn; exactly once, also if requests have to be retried.

        X and y: sequences, arrays or iterators; or X alone, of pairs (point, label); or one point and its label. What
        does not fit into one request is sent in batches of at most `batch` points, each learned wholly or not at all;
        an exception's `accepted` says how many points were learned before it.

        `if_match`: the model (or version) that the points respond to. They are learned up to and including the first
        that changes it: see `accepted`. `truth`: where the points were before they moved, for display. `columns=False`
        leaves predictions and scores out of the response. `coordinates`: poincare, hyperboloid, klein, halfspace or
        euclidean (see `clients.embeddings.to_ball`); `outside="clip"` moves points beyond the radius limit to it, and
        the answer's `clipped` counts them. `key`: your own idempotency key, to repeat a call after a
        crash of the client; `batch` must be the same then.
        """
        return Observed.joined([part async for part in self.stream(X, y, **how)])

    @overload
    def stream(
        self, X: None = None, y: None = None, *, producer: str | None = None, window: int = 64, columns: bool = True
    ) -> AsyncStream: ...

    @overload
    def stream(self, X: Points, y: Any = None, **how: Unpack[How]) -> AsyncIterator[Observed]: ...

    def stream(self, X: Points = None, y: Any = None, **how: Any) -> AsyncStream | AsyncIterator[Observed]:
        """Without points: a connection to stream messages on, for many small ones; see `AsyncStream`.

        With points: as `observe`, but gives the result of each batch when it is learned.
        """
        if X is None:
            return AsyncStream(self._client, self._calls, **how)
        return self._batches(X, y, how)

    async def _batches(self, X: Points, y: Any, how: Any) -> AsyncIterator[Observed]:
        observing = Observing(self._calls, how)
        async for part in alabelled(X, y, how.get("truth"), n=observing.rows):
            done = await self._client.run(observing.batch(part))
            if done is not None:
                yield done
            if observing.over:
                return

    async def predict(
        self,
        X: Points,
        *,
        ids: Any = None,
        model: str | AsyncFit | None = None,
        batch: int | None = None,
        **placing: Unpack[Placing],
    ) -> Predicted:
        """Predict points, or one, with the online model or a fit; nothing is learned.

        With `ids` the service keeps the points until their labels come: see `label`. `coordinates` and `outside`: as
        for `observe`.
        """
        parts, model = unlabelled(X, ids, n=rows(self.info.dimension, batch)), _fit_id(model)
        return Predicted.joined([await self._client.run(self._calls.predict(part, model, placing)) for part in parts])

    async def predict_proba(
        self, X: Points, *, model: str | AsyncFit | None = None, **placing: Unpack[Placing]
    ) -> Array:
        """The probability of each label, a row a point; `NoProbabilities` if the model has none"""
        return probabilities(await self.predict(X, model=model, **placing), _fit_id(model))

    async def label(self, ids: Any, labels: Any, *, columns: bool = True, key: str | None = None) -> Labelled:
        """Late labels for points that were predicted with ids: each point is observed now, once"""
        return await self._client.run(self._calls.label(ids, labels, key, columns))

    # ------------------------------------------------------------------------------- the session

    async def model(self, at: int | None = None) -> Model:
        """The published classifier; downloaded only if it has changed (ETag).

        `at`: the classifier after that many points; `LogTrimmed` if the log does not go back that far.
        """
        return await self._client.run(self._calls.model() if at is None else self._calls.model_at(at))

    async def log(self, start: int = 0, *, page: int = 10_000) -> AsyncIterator[LogPage]:
        """The retained points and labels in the order in which they were learned, from position `start` on.

        Requested `page` points at a time while you iterate; `log(start=last.end)` goes on behind a page. `LogTrimmed`
        if the point at `start` is no longer kept: its `first` is the oldest that is.
        """
        following: int | None = start
        while following is not None:
            found = await self._client.run(self._calls.log_page(following, page))
            if found.end > found.start:
                yield found
            following = found.next

    async def fork(self, at: int | None = None, **settings: Unpack[Settings]) -> AsyncSession:
        """A new session from this one's log: see `AsyncSessions.fork`"""
        return await self._client.sessions.fork(self, at, **settings)

    async def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> SessionInfo:
        """Poll until a fork has replayed its log. Raises what it failed with; `NotYet` after `timeout` seconds.
        `progress`: draw a bar on stderr; None: if that is a terminal."""
        with bar(f"session {self.id}", progress) as report:
            return await self._client.run(self._calls.wait(timeout, report))

    async def metrics(self) -> Metrics:
        """Accuracy so far and in a window, confusion matrix, mistakes over time, drift"""
        return await self._client.run(self._calls.metrics())

    async def certificate(self, margin: float | str | None = None, *, loss: str | None = None) -> Certificate:
        """The mistakes so far beside the proven bounds, for a margin that some classifier has ("best": the retained
        points' own); `loss="hinge"`: bounds that need no margin"""
        return await self._client.run(self._calls.certificate(margin, loss))

    async def events(self, after: str | Event | None = None, *, silence: float = SILENCE) -> AsyncGenerator[Event]:
        """Server-sent events as they happen, until the session ends (`Ended`) or you leave the loop.

        Begins with a `Reset`, the session as it is; with `after`, behind that event ("0-0": the oldest that is kept).
        A lost connection is reopened behind the last event (Last-Event-ID); if that one is no longer kept, another
        `Reset` comes. A connection without a heartbeat for `silence` seconds counts as lost.
        """
        subscription = self._calls.subscribe(after.id if isinstance(after, Event) else after)
        timeout = httpx.Timeout(silence, connect=CONNECT)
        while True:
            lost: Reply = None
            request = built(self._client.http, subscription.request(), timeout)
            try:
                response = await self._client.http.send(request, stream=True)
                try:
                    content = await response.aread() if response.status_code != 200 else b""
                    if subscription.opens(response.status_code, response.headers, content):
                        async for chunk in response.aiter_bytes():
                            for event in subscription.feed(chunk):
                                yield event
                                if isinstance(event, Ended):
                                    return
                    else:
                        lost = response
                finally:
                    await response.aclose()
            except httpx.TransportError as error:
                lost = error
            except SessionGone:
                if not subscription.was_open:
                    raise
                yield subscription.ended()
                return
            await self._client.sleep(subscription.wait(lost))

    async def snapshot(self, *, points: bool = True) -> dict[str, Any]:
        """The session as one JSON document, for `restore`; `points`: with the retained points"""
        return await self._client.run(self._calls.snapshot(points))

    async def save(self, path: str | PathLike[str], *, points: bool = True) -> Path:
        """The session as a file, for `restore`, of any size: it is written as it comes. The file is there when it is
        whole. Fits that have ended go with it; `points`: the retained points too"""
        target, failures = Path(path), 0
        part = target.with_name(target.name + ".part")
        while True:
            lost: Reply = None
            try:
                request = built(self._client.http, self._calls.snapshot_in_pieces(points))
                response = await self._client.http.send(request, stream=True)
                try:
                    if response.status_code == 200:
                        with part.open("wb") as file:
                            async for chunk in response.aiter_bytes():
                                file.write(chunk)
                        return part.replace(target)
                    await response.aread()
                    lost = response
                finally:
                    await response.aclose()
            except httpx.TransportError as error:
                lost = error
            failures += 1
            await self._client.sleep(self._calls.channel.pause(lost, failures))

    async def disk(self) -> Disk:
        """A picture of points, boundary and band: a notebook shows it, `save` writes it to a file"""
        return Disk(await self.disk_svg(), self.info.name or self.id)

    async def disk_svg(self) -> str:
        """A picture of points, boundary and band"""
        return await self._client.run(self._calls.disk_svg())

    async def change(self, **changes: Unpack[Changes]) -> SessionInfo:
        """Change settings; what is left out stays. `budget={"estimate": {"initial": 4.0}}` restarts the estimate."""
        return await self._client.run(self._calls.change(changes))

    async def end(self) -> None:
        """Delete the session. Its id cannot be used again."""
        await self._client.run(self._calls.end())

    # ---------------------------------------------------------------------------------- the fits

    async def fit(
        self, X: Points = None, y: Any = None, *, key: str | None = None, **recipe: Unpack[Recipe]
    ) -> AsyncFit:
        """Start a job that fits a batch classifier to the retained points, or to X and y"""
        return AsyncFit(self._client, self._calls, await self._client.run(self._calls.fit(recipe, X, y, key)))

    async def fits(self) -> list[AsyncFit]:
        """The session's fits, newest first"""
        return [AsyncFit(self._client, self._calls, info) for info in await self._client.run(self._calls.fits())]

    async def promote(self, fit: str | AsyncFit, *, member: str | None = None) -> SessionInfo:
        """Restart the online learner, or a `member` of auto's vote, from a fit, as which it then answers"""
        return await self._client.run(self._calls.promote(fit.id if isinstance(fit, AsyncFit) else fit, member))


class AsyncStream:
    """A connection for many small messages, each learned exactly once and answered in order: `session.stream()`.

        async with session.stream() as stream:
            await stream.send([0.1, -0.2], 1)
            await stream.send([[0.3, 0.4], [-0.5, 0.1]], [-1, -1])
            answers = await stream.flush()

    `send` returns before the answer is there, unless `window` messages are unanswered. A lost connection is made anew,
    and nothing is lost or doubled by that. `producer`: your own name, to go on after a crash of the client: `seq` is
    the number of its newest message then. One task or thread at a time.
    """

    def __init__(
        self,
        client: AsyncClient,
        calls: SessionCalls,
        *,
        producer: str | None = None,
        window: int = 64,
        columns: bool = True,
    ) -> None:
        self._client, self._messages = client, Conversation(calls, producer, window, columns)
        self._socket: Any = None
        self._answers: deque[Observed | HorocycleError] = deque()
        self.seq = 0  # of the newest message

    async def __aenter__(self) -> Self:
        await self._connect()
        self.seq = self._messages.last
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self._socket.close()

    @property
    def producer(self) -> str:
        return self._messages.producer

    async def send(
        self, X: Points, y: Any, *, truth: Any = None, if_match: Model | int | None = None, columns: bool | None = None
    ) -> int:
        """Send one point and its label, or several, as one message; its number. What they mean, `observe` says."""
        batch = Batch([X], [y], None if truth is None else [truth]) if is_label(y) else Batch(X, y, truth)
        version = if_match.version if isinstance(if_match, Model) else if_match
        return await self._send(self._messages.points(batch, version, columns))

    async def label(self, ids: Any, labels: Any) -> int:
        """Send late labels for points that were predicted with ids; the number of the message"""
        return await self._send(self._messages.labels(ids, labels))

    async def receive(self) -> Observed:
        """The next answer, in the order of the messages; raises the problem of a message that was refused"""
        if not self._answers:
            if not self._messages.unanswered:
                raise ValueError("every message is answered")
            self._answers.append(await self._next())
        found = self._answers.popleft()
        if isinstance(found, HorocycleError):
            raise found
        return found

    async def flush(self) -> list[Observed]:
        """Wait until every message is answered: the answers that were not received yet

        If some were refused, raises the problem of the first; the others were learned, and their answers are gone.
        """
        while self._messages.unanswered:
            self._answers.append(await self._next())
        answers, self._answers = list(self._answers), deque()
        for refused in answers:
            if isinstance(refused, HorocycleError):
                raise refused
        return [answer for answer in answers if not isinstance(answer, HorocycleError)]

    async def _send(self, message: Message) -> int:
        while self._messages.full:
            self._answers.append(await self._next())
        self.seq = self._messages.add(message)
        try:
            await self._socket.send(message)
        except LOST as lost:
            await self._connect(lost)
        return self.seq

    async def _next(self) -> Observed | HorocycleError:
        while True:
            try:
                text = await self._socket.recv()
            except LOST as lost:
                await self._connect(lost)
            else:
                return self._messages.answer(text)

    async def _connect(self, lost: Exception | None = None) -> None:
        """Connect, and send what the service does not have"""
        while True:
            if lost is not None:
                await self._client.sleep(self._messages.wait(lost))
            try:
                self._socket = await aconnect(self._messages.address(), **self._messages.how).__aenter__()
                for message in self._messages.hello(await self._socket.recv()):
                    await self._socket.send(message)
                return
            except LOST as error:
                lost = error


class AsyncFit:
    """A batch classifier, or the job that computes it. `info` is the fit as of the last response about it."""

    def __init__(self, client: AsyncClient, calls: SessionCalls, info: FitInfo) -> None:
        self._client, self._calls, self.info = client, calls, info

    def __repr__(self) -> str:
        return f"<AsyncFit {self.id}: {self.status}>"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> str:
        """queued, running, done, failed or cancelled, as of `info`"""
        return self.info.status

    @property
    def result(self) -> FitResult:
        """Raises what the fit failed with; `NotYet` if it was not done as of `info`"""
        return self.info.result

    async def refresh(self) -> FitInfo:
        """Ask how the fit is now, and keep it as `info`"""
        self.info = await self._client.run(self._calls.look_at_fit(self.id))
        return self.info

    async def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> FitResult:
        """Poll until the fit is done, and give its result. Raises what it failed with; `NotYet` after `timeout`
        seconds. `progress`: draw a bar on stderr; None: if that is a terminal."""
        with bar(f"fit {self.id}", progress) as report:
            self.info = await self._client.run(self._calls.wait_for_fit(self.id, timeout, report))
        return self.info.result

    async def cancel(self) -> None:
        """Stop the job; a fit that has ended is deleted."""
        await self._client.run(self._calls.cancel_fit(self.id))
        self.info = self.info if self.info.ended else replace(self.info, status="cancelled")


def _fit_id(fit: str | AsyncFit | None) -> str | None:
    return fit.id if isinstance(fit, AsyncFit) else fit
