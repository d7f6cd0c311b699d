"""Server-sent events, read as a browser would: by the blank lines between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Sent:
    name: str  # empty: a comment
    id: str = ""
    data: Any = None


@contextmanager
def listening(http: httpx.Client, sid: str, last: str | None = None) -> Iterator[Iterator[Sent]]:
    """The events and heartbeats of a session, behind the last one seen"""
    headers = {} if last is None else {"Last-Event-ID": last}
    with http.stream("GET", f"/sessions/{sid}/events", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield parsed(answer.iter_lines())


def parsed(lines: Iterator[str]) -> Iterator[Sent]:
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield Sent("")
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield Sent(fields["event"], fields["id"], json.loads(fields["data"]))
            fields = {}


def spoken(events: Iterator[Sent], count: int) -> list[Sent]:
    """The next so many, without the heartbeats between them"""
    found: list[Sent] = []
    while len(found) < count:
        event = next(events)
        found += [event] if event.name else []
    return found
