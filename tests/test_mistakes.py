"""docs/mistakes.md tells the messages that newcomers get, word for word."""

from __future__ import annotations

from clients import Client
from tests.mistakes import MISTAKES, PAGE, table
from tests.running import Running


def test_the_table_of_mistakes_is_true(running: Running) -> None:
    assert len(MISTAKES) >= 20
    with Client(running.url) as client:
        told = "| what was done" + PAGE.read_text(encoding="utf-8").split("| what was done")[1]
        assert told.splitlines() == table(client.sessions.open(dimension=2)).splitlines()
