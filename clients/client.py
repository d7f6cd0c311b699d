"""Horocycle's clients: `Client`, and `AsyncClient` with the same surface behind `await`.

    with Client("http://127.0.0.1:8000") as client:
        session = client.sessions.open(dimension=2)
        session.observe([[0.1, -0.2], [-0.3, 0.4]], [1, -1])
        session.predict([0.2, -0.3]).predictions

Whatever is lost on the way is asked for again, and done once. What goes wrong for good is an exception of
clients/problems.py. docs/client.md has an example of everything.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar, Unpack

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from clients import calls
from clients.answers import (
    Array,
    Certificate,
    Ended,
    Event,
    FitInfo,
    FitResult,
    Labelled,
    Metrics,
    Model,
    Observed,
    Predicted,
    SessionInfo,
)
from clients.bodies import Points, alabelled, labelled, rows, unlabelled
from clients.calls import Changes, How, Observing, Recipe, SessionCalls, Settings, probabilities
from clients.problems import HorocycleError, SessionGone
from clients.transport import Call, Channel, Reply, Retry, arun, built, run

__all__ = ["AsyncClient", "AsyncFit", "AsyncSession", "Client", "Fit", "HorocycleError", "Retry", "Session"]

T = TypeVar("T")

URL = "http://127.0.0.1:8000"
#: Seconds to wait for a connection; for an answer, `timeout`.
CONNECT = 5.0
#: Seconds without a heartbeat after which a stream of events is taken for cut.
SILENCE = 30.0
#: As many connections as there are requests at a time: how many those are is up to the caller.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)


def _channel(
    url: str, api_key: str | None, retry: Retry, clock: Callable[[], float], rng: random.Random | None
) -> Channel:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no address of a service: it begins with http:// or https://")
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    return Channel(url.rstrip("/"), headers, retry, clock, rng or random.SystemRandom())


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(CONNECT, seconds))


def _id(fit: str | Fit | AsyncFit | None) -> str | None:
    return fit.id if isinstance(fit, Fit | AsyncFit) else fit


def _after(after: str | Event | None) -> str | None:
    return after.id if isinstance(after, Event) else after


@contextmanager
def _bar(shown: bool | None) -> Iterator[Callable[[FitInfo], None]]:
    """A progress bar on stderr, if it is wanted or there is somebody to look at it"""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda info: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("fit", total=1.0)
        yield lambda info: progress.update(task, completed=info.progress, description=f"fit {info.id}: {info.status}")


# ----------------------------------------------------------------------------------------------------------- Client


class Client:
    """A service. Threads may share it.

    `timeout`: seconds to wait for one answer; `retry`: when to ask again; `api_key`: if the service wants one. `http`,
    `sleep`, `clock` and `rng` are arguments for tests, and for those who need a proxy or certificates of their own.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retry: Retry = Retry(),  # noqa: B008 (frozen)
        http: httpx.Client | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.channel = _channel(url, api_key, retry, clock, rng)
        self.http = httpx.Client(timeout=_timeout(timeout), limits=LIMITS) if http is None else http
        self.sleep = sleep
        self.sessions = Sessions(self)

    def run(self, call: Call[T]) -> T:
        return run(call, self.http, self.sleep)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sessions:
    def __init__(self, client: Client) -> None:
        self._client = client

    def open(self, *, dimension: int, **settings: Unpack[Settings]) -> Session:
        """A new session. What is left out is the service's default; the id is chosen here if none is given."""
        asked = {"dimension": dimension, **settings}
        return Session(self._client, self._client.run(calls.open_session(self._client.channel, asked)))

    def restore(self, snapshot: dict[str, Any], *, id: str | None = None, name: str | None = None) -> Session:
        """A session from `Session.snapshot`, of this service or another, under a new id"""
        asked = {"snapshot": snapshot, "id": id, "name": name}
        return Session(self._client, self._client.run(calls.open_session(self._client.channel, asked)))

    def get(self, id: str) -> Session:
        return Session(self._client, self._client.run(calls.find_session(self._client.channel, id)))

    def list(self, *, page: int = 100) -> Iterator[Session]:
        """All sessions, newest first, asked for `page` at a time"""
        cursor: str | None = None
        while True:
            found = self._client.run(calls.page(self._client.channel, cursor, page))
            for info in found.sessions:
                yield Session(self._client, SessionCalls(self._client.channel, info))
            if (cursor := found.cursor) is None:
                return


class Session:
    """A session of the service. Threads may share it; the service puts what they send into one order.

    `info` is what was last heard of it, when it was opened, got, changed or refreshed.
    """

    def __init__(self, client: Client, calls: SessionCalls) -> None:
        self._client, self._calls = client, calls

    def __repr__(self) -> str:
        return f"<Session {self.id}: {self.info.algorithm}, {self.info.observed} observed>"

    @property
    def id(self) -> str:
        return self._calls.info.id

    @property
    def info(self) -> SessionInfo:
        return self._calls.info

    def refresh(self) -> SessionInfo:
        """How the session is now"""
        return self._client.run(self._calls.refresh())

    # -------------------------------------------------------------------------------- the stream

    def observe(self, X: Points, y: Any = None, **how: Unpack[How]) -> Observed:
        """For each point, in order: predict, then learn; exactly once, however often it had to be asked.

        X and y: sequences, arrays or iterators; or X alone, of pairs (point, label); or one point and its label. What
        does not go into one request is cut into batches of at most `batch` points, each of which is learned wholly or
        not at all; an exception's `accepted` says how many points were learned before it.

        `if_match`: the points answer this model (or version). They are learned up to and including the first that
        changes it: see `accepted`. `truth`: where the points were before they moved, to be shown. `columns=False`
        leaves predictions and scores out of the answer. `key`: an idempotency key of your own, to say the same again
        after a crash; then `batch` must be the same, too.
        """
        return Observed.joined([*self.stream(X, y, **how)])

    def stream(self, X: Points, y: Any = None, **how: Unpack[How]) -> Iterator[Observed]:
        """As `observe`, but tells of each batch when it is learned: for streams that are long, or never end"""
        observing = Observing(self._calls, how)
        for part in labelled(X, y, how.get("truth"), n=observing.rows):
            done = self._client.run(observing.batch(part))
            if done is not None:
                yield done
            if observing.over:
                return

    def predict(
        self, X: Points, *, ids: Any = None, model: str | Fit | None = None, batch: int | None = None
    ) -> Predicted:
        """Predict points, or one, with the online model or a fit; nothing is learned.

        With `ids` the points wait for their labels: see `label`.
        """
        parts = unlabelled(X, ids, n=rows(self.info.dimension, batch))
        return Predicted.joined([self._client.run(self._calls.predict(part, _id(model))) for part in parts])

    def predict_proba(self, X: Points, *, model: str | Fit | None = None) -> Array:
        """The probability of each label, a row a point. The online model has none; a fit has."""
        return probabilities(self.predict(X, model=model), _id(model))

    def label(self, ids: Any, labels: Any, *, columns: bool = True, key: str | None = None) -> Labelled:
        """Late labels for points that were predicted with ids: each is observed now, once"""
        return self._client.run(self._calls.label(ids, labels, key, columns))

    # ------------------------------------------------------------------------------- the session

    def model(self) -> Model:
        """The published classifier. It comes over the wire only if it has changed."""
        return self._client.run(self._calls.model())

    def metrics(self) -> Metrics:
        return self._client.run(self._calls.metrics())

    def certificate(self, margin: float | str | None = None) -> Certificate:
        """The mistakes so far beside the proven bounds, for a margin that some classifier has"""
        return self._client.run(self._calls.certificate(margin))

    def events(self, after: str | Event | None = None, *, silence: float = SILENCE) -> Generator[Event]:
        """What happens, as it happens, until the session ends (`Ended`) or the loop is left.

        First a `Reset`, which tells how things stand; with `after`, what happened behind that event ("0-0": all that
        is kept). A cut connection goes on where it was; if too much was missed, another `Reset` comes. After `silence`
        seconds without a heartbeat the connection is taken for cut.
        """
        subscription, timeout = self._calls.subscribe(_after(after)), httpx.Timeout(silence, connect=CONNECT)
        while True:
            lost: Reply = None
            request = built(self._client.http, subscription.request(), timeout)
            try:
                response = self._client.http.send(request, stream=True)
                try:
                    content = response.read() if response.status_code != 200 else b""
                    if subscription.opens(response.status_code, response.headers, content):
                        for chunk in response.iter_bytes():
                            for event in subscription.feed(chunk):
                                yield event
                                if isinstance(event, Ended):
                                    return
                    else:
                        lost = response
                finally:
                    response.close()
            except httpx.TransportError as error:
                lost = error
            except SessionGone:
                if not subscription.met:
                    raise
                yield subscription.ended()
                return
            self._client.sleep(subscription.wait(lost))

    def snapshot(self, *, points: bool = True) -> dict[str, Any]:
        """All of it as one JSON document, for `Sessions.restore`; `points`: the retained ones, too"""
        return self._client.run(self._calls.snapshot(points))

    def disk_svg(self) -> str:
        """A picture: points, boundary, band"""
        return self._client.run(self._calls.disk_svg())

    def change(self, **changes: Unpack[Changes]) -> SessionInfo:
        """What is left out stays. `budget={"estimate": {"initial": 4.0}}` begins an estimate anew."""
        return self._client.run(self._calls.change(changes))

    def end(self) -> None:
        """Its id is not given away again."""
        self._client.run(self._calls.end())

    # ---------------------------------------------------------------------------------- the fits

    def fit(self, X: Points = None, y: Any = None, *, key: str | None = None, **recipe: Unpack[Recipe]) -> Fit:
        """Begin to fit a batch classifier, to the retained points or to X and y"""
        return Fit(self._client, self._calls, self._client.run(self._calls.fit(recipe, X, y, key)))

    def fits(self) -> list[Fit]:
        """Newest first"""
        return [Fit(self._client, self._calls, info) for info in self._client.run(self._calls.fits())]

    def promote(self, fit: str | Fit) -> SessionInfo:
        """Start the online learner from a fit's weights"""
        return self._client.run(self._calls.promote(fit.id if isinstance(fit, Fit) else fit))


class Fit:
    """A batch classifier, or what is to become one. `info` is what was last heard of it."""

    def __init__(self, client: Client, calls: SessionCalls, info: FitInfo) -> None:
        self._client, self._calls, self.info = client, calls, info

    def __repr__(self) -> str:
        return f"<Fit {self.id}: {self.status}>"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> str:
        """queued, running, done, failed or cancelled, as was last heard"""
        return self.info.status

    @property
    def result(self) -> FitResult:
        """Raises what it failed with; `NotYet` if it was not done when last heard of"""
        return self.info.result

    def refresh(self) -> FitInfo:
        self.info = self._client.run(self._calls.look_at_fit(self.id))
        return self.info

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> FitResult:
        """The result, when it is there. Raises what it failed with; `NotYet` after `timeout` seconds. `progress`: with
        a bar on stderr; by default if that is a terminal."""
        with _bar(progress) as tell:
            self.info = self._client.run(self._calls.wait_for_fit(self.id, timeout, tell))
        return self.info.result

    def cancel(self) -> None:
        """End it; one that has ended is forgotten."""
        self._client.run(self._calls.cancel_fit(self.id))
        self.info = self.info if self.info.ended else replace(self.info, status="cancelled")


# ------------------------------------------------------------------------------------------------------ AsyncClient


class AsyncClient:
    """As `Client`, behind `await`."""

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retry: Retry = Retry(),  # noqa: B008 (frozen)
        http: httpx.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.channel = _channel(url, api_key, retry, clock, rng)
        self.http = httpx.AsyncClient(timeout=_timeout(timeout), limits=LIMITS) if http is None else http
        self.sleep = sleep
        self.sessions = AsyncSessions(self)

    async def run(self, call: Call[T]) -> T:
        return await arun(call, self.http, self.sleep)

    async def close(self) -> None:
        await self.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncSessions:
    """As `Sessions`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def open(self, *, dimension: int, **settings: Unpack[Settings]) -> AsyncSession:
        asked = {"dimension": dimension, **settings}
        return AsyncSession(self._client, await self._client.run(calls.open_session(self._client.channel, asked)))

    async def restore(
        self, snapshot: dict[str, Any], *, id: str | None = None, name: str | None = None
    ) -> AsyncSession:
        asked = {"snapshot": snapshot, "id": id, "name": name}
        return AsyncSession(self._client, await self._client.run(calls.open_session(self._client.channel, asked)))

    async def get(self, id: str) -> AsyncSession:
        return AsyncSession(self._client, await self._client.run(calls.find_session(self._client.channel, id)))

    async def list(self, *, page: int = 100) -> AsyncIterator[AsyncSession]:
        cursor: str | None = None
        while True:
            found = await self._client.run(calls.page(self._client.channel, cursor, page))
            for info in found.sessions:
                yield AsyncSession(self._client, SessionCalls(self._client.channel, info))
            if (cursor := found.cursor) is None:
                return


class AsyncSession:
    """As `Session`; X may also be an asynchronous iterator of pairs (point, label)."""

    def __init__(self, client: AsyncClient, calls: SessionCalls) -> None:
        self._client, self._calls = client, calls

    def __repr__(self) -> str:
        return f"<AsyncSession {self.id}: {self.info.algorithm}, {self.info.observed} observed>"

    @property
    def id(self) -> str:
        return self._calls.info.id

    @property
    def info(self) -> SessionInfo:
        return self._calls.info

    async def refresh(self) -> SessionInfo:
        return await self._client.run(self._calls.refresh())

    # -------------------------------------------------------------------------------- the stream

    async def observe(self, X: Points, y: Any = None, **how: Unpack[How]) -> Observed:
        return Observed.joined([part async for part in self.stream(X, y, **how)])

    async def stream(self, X: Points, y: Any = None, **how: Unpack[How]) -> AsyncIterator[Observed]:
        observing = Observing(self._calls, how)
        n, truth = observing.rows, how.get("truth")
        parts = alabelled(X, n=n) if isinstance(X, AsyncIterable) else _each(labelled(X, y, truth, n=n))
        async for part in parts:
            done = await self._client.run(observing.batch(part))
            if done is not None:
                yield done
            if observing.over:
                return

    async def predict(
        self, X: Points, *, ids: Any = None, model: str | AsyncFit | None = None, batch: int | None = None
    ) -> Predicted:
        parts = unlabelled(X, ids, n=rows(self.info.dimension, batch))
        return Predicted.joined([await self._client.run(self._calls.predict(part, _id(model))) for part in parts])

    async def predict_proba(self, X: Points, *, model: str | AsyncFit | None = None) -> Array:
        return probabilities(await self.predict(X, model=model), _id(model))

    async def label(self, ids: Any, labels: Any, *, columns: bool = True, key: str | None = None) -> Labelled:
        return await self._client.run(self._calls.label(ids, labels, key, columns))

    # ------------------------------------------------------------------------------- the session

    async def model(self) -> Model:
        return await self._client.run(self._calls.model())

    async def metrics(self) -> Metrics:
        return await self._client.run(self._calls.metrics())

    async def certificate(self, margin: float | str | None = None) -> Certificate:
        return await self._client.run(self._calls.certificate(margin))

    async def events(self, after: str | Event | None = None, *, silence: float = SILENCE) -> AsyncGenerator[Event]:
        subscription, timeout = self._calls.subscribe(_after(after)), httpx.Timeout(silence, connect=CONNECT)
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
                if not subscription.met:
                    raise
                yield subscription.ended()
                return
            await self._client.sleep(subscription.wait(lost))

    async def snapshot(self, *, points: bool = True) -> dict[str, Any]:
        return await self._client.run(self._calls.snapshot(points))

    async def disk_svg(self) -> str:
        return await self._client.run(self._calls.disk_svg())

    async def change(self, **changes: Unpack[Changes]) -> SessionInfo:
        return await self._client.run(self._calls.change(changes))

    async def end(self) -> None:
        await self._client.run(self._calls.end())

    # ---------------------------------------------------------------------------------- the fits

    async def fit(
        self, X: Points = None, y: Any = None, *, key: str | None = None, **recipe: Unpack[Recipe]
    ) -> AsyncFit:
        return AsyncFit(self._client, self._calls, await self._client.run(self._calls.fit(recipe, X, y, key)))

    async def fits(self) -> list[AsyncFit]:
        return [AsyncFit(self._client, self._calls, info) for info in await self._client.run(self._calls.fits())]

    async def promote(self, fit: str | AsyncFit) -> SessionInfo:
        return await self._client.run(self._calls.promote(fit.id if isinstance(fit, AsyncFit) else fit))


class AsyncFit:
    """As `Fit`."""

    def __init__(self, client: AsyncClient, calls: SessionCalls, info: FitInfo) -> None:
        self._client, self._calls, self.info = client, calls, info

    def __repr__(self) -> str:
        return f"<AsyncFit {self.id}: {self.status}>"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> str:
        return self.info.status

    @property
    def result(self) -> FitResult:
        return self.info.result

    async def refresh(self) -> FitInfo:
        self.info = await self._client.run(self._calls.look_at_fit(self.id))
        return self.info

    async def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> FitResult:
        with _bar(progress) as tell:
            self.info = await self._client.run(self._calls.wait_for_fit(self.id, timeout, tell))
        return self.info.result

    async def cancel(self) -> None:
        await self._client.run(self._calls.cancel_fit(self.id))
        self.info = self.info if self.info.ended else replace(self.info, status="cancelled")


async def _each(values: Iterator[T]) -> AsyncIterator[T]:
    for value in values:
        yield value
