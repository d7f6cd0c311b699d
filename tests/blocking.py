"""An asynchronous client as if it were the other one, so that one test drives both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from clients.client import AsyncClient, AsyncFit, AsyncSession, AsyncSessions, Client


class Blocking:
    """Every method of an object, awaited. What it gives back, too, if that has methods to be awaited."""

    def __init__(self, wrapped: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._wrapped, self._loop = wrapped, loop

    def __getattr__(self, name: str) -> Any:
        return self._given(getattr(self._wrapped, name))

    def _given(self, value: Any) -> Any:
        if isinstance(value, AsyncSessions | AsyncSession | AsyncFit):
            return Blocking(value, self._loop)
        if isinstance(value, list):
            return [self._given(each) for each in value]
        if inspect.ismethod(value):
            return lambda *args, **kwargs: self._called(value, args, kwargs)
        return value

    def _called(self, method: Any, args: Any, kwargs: Any) -> Any:
        given = method(*map(_bare, args), **{name: _bare(value) for name, value in kwargs.items()})
        if inspect.isasyncgen(given):
            return self._each(given)
        return self._given(self._loop.run_until_complete(given) if inspect.isawaitable(given) else given)

    def _each(self, values: Any) -> Iterator[Any]:
        try:
            while True:
                yield self._given(self._loop.run_until_complete(anext(values)))
        except StopAsyncIteration:
            return
        finally:
            self._loop.run_until_complete(values.aclose())


def _bare(value: Any) -> Any:
    return value._wrapped if isinstance(value, Blocking) else value


@contextmanager
def client(kind: str, url: str, **options: Any) -> Iterator[Client]:
    """A Client, or an AsyncClient that looks like one"""
    if kind == "sync":
        with Client(url, **options) as plain:
            yield plain
        return
    loop = asyncio.new_event_loop()
    wrapped = AsyncClient(url, **options)
    try:
        yield cast(Client, Blocking(wrapped, loop))
    finally:
        loop.run_until_complete(wrapped.close())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
