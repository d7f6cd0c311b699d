"""The store for a command that is not the service: the configured one, or the private one, which may be running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from service.errors import DataFolderInUse
from service.process.private_store import EmbeddedServer
from service.process.store_format import connect, require_format
from service.settings import Settings

PATIENCE = 5.0  # seconds that the store may take to answer


@contextmanager
def opened_url(settings: Settings) -> Iterator[str]:
    """The URL of the configured store, or of the private one, which may be running; its format is checked"""
    if settings.redis_url is not None:
        with connect(settings.redis_url, PATIENCE) as client:
            require_format(client, "the store at REDIS_URL")
        yield settings.redis_url
        return
    server = EmbeddedServer(settings.data)
    try:
        server.start()
        url = server.url
    except DataFolderInUse:
        url = f"unix://{_folder(settings.data.resolve())}/server.sock"
    try:
        with connect(url, PATIENCE) as client:
            require_format(client, f"the data folder {settings.data}")
        yield url
    finally:
        server.stop()


@contextmanager
def opened_store(settings: Settings) -> Iterator[redis.Redis]:
    """A client of it"""
    with opened_url(settings) as url, connect(url, PATIENCE) as client:
        yield client


def _folder(data: Path) -> Path:
    """Where the running server's socket is: a link, if the folder's own path is too long for one"""
    shortcut = data / "shortcut"
    return Path(shortcut.read_text()) if shortcut.exists() else data
