"""A progress bar on stderr, for what the service does in the background and the client polls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WIDTH = 40
#: Called with the share that is done, 0 to 1, and the status.
Report = Callable[[float, str], None]


@contextmanager
def bar(what: str, shown: bool | None) -> Iterator[Report]:
    """One line, overwritten at every call. `shown`: None draws it only if stderr is a terminal"""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda done, status: None
        return

    def draw(done: float, status: str) -> None:
        sys.stderr.write(f"\r{what}: {status:<9} [{'#' * round(WIDTH * done):<{WIDTH}}] {done:4.0%}")
        sys.stderr.flush()

    try:
        yield draw
    finally:
        sys.stderr.write("\n")
