"""Horocycle's clients: `Client`, and `AsyncClient` with the same methods to be awaited.

    with Client("http://127.0.0.1:8000") as client:
        session = client.sessions.open(dimension=2)
        session.observe([[0.1, -0.2], [-0.3, 0.4]], [1, -1])
        session.predict([0.2, -0.3]).predictions

Requests that get no answer, or a 429, 502, 503 or 504, are retried with the same idempotency key, so that each takes
effect once. Everything else is an exception of clients/problems.py. docs/client.md has an example of every method.
"""

from __future__ import annotations

from clients.async_client import AsyncClient, AsyncFit, AsyncSession, AsyncSessions, AsyncStream
from clients.problems import HorocycleError
from clients.sync_client import Client, Fit, Session, Sessions, Stream
from clients.transport import URL, Retry

__all__ = [
    "URL",
    "AsyncClient",
    "AsyncFit",
    "AsyncSession",
    "AsyncSessions",
    "AsyncStream",
    "Client",
    "Fit",
    "HorocycleError",
    "Retry",
    "Session",
    "Sessions",
    "Stream",
]
