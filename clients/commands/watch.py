"""horocycle watch: a session live in the terminal, from its events."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from clients.answers import Commit, Ended, Event, Metrics
from clients.client import Client, Session
from clients.commands.options import parser, run

EXAMPLES = """  horocycle watch demo
  horocycle watch demo --events 10        ends after ten events
"""
BARS = " ▁▂▃▄▅▆▇█"
#: Seconds between two looks at the metrics, however fast events come.
PAUSE = 0.25


def main(argv: Sequence[str] | None = None) -> int:
    found = parser("watch", "Watch a session live: points, accuracy, drift, the newest events.", EXAMPLES)
    found.add_argument("session")
    found.add_argument("--events", type=int, default=None, help="end after so many events")
    given = found.parse_args(argv)
    return run("watch", lambda client: _watch(client, given), given)


def _watch(client: Client, given: argparse.Namespace) -> int:
    session, console = client.sessions.get(given.session), Console()
    newest: list[str] = []
    last, seen, metrics = 0.0, 0, session.metrics()
    with Live(drawn(session, metrics, newest), console=console, auto_refresh=False) as live:
        for event in session.events():
            if isinstance(event, Ended):
                console.print("the session has ended")
                return 0
            newest = [told(event), *newest[:4]]
            seen += 1
            if time.monotonic() - last > PAUSE or seen == given.events:
                last, metrics = time.monotonic(), session.metrics()
            live.update(drawn(session, metrics, newest), refresh=True)
            if seen == given.events:
                return 0
    sys.stdout.flush()
    return 0


def told(event: Event) -> str:
    if isinstance(event, Commit):
        alarms = f", drift at {event.alarms[-1]}" if event.alarms else ""
        return f"{event.id}: {event.observed - event.first} points, version {event.version}{alarms}"
    return f"{event.id}: {event.name}"


def drawn(session: Session, metrics: Metrics, newest: Sequence[str]) -> Table:
    """One table: what a session is, how well it does, what happened last"""
    table = Table(title=f"{session.id} · {session.info.algorithm}", show_header=False, min_width=60)
    table.add_row("observed", f"{metrics.observed:,}")
    table.add_row("mistakes", f"{metrics.mistakes:,}")
    table.add_row("accuracy", _share(metrics.accuracy))
    table.add_row(f"newest {metrics.window.points:,}", _share(metrics.window.accuracy))
    recent = metrics.log.mistakes[-40:]
    if recent:
        table.add_row(f"mistakes per {metrics.log.block:,}", sparkline(recent))
    table.add_row("alarms", str(metrics.drift.alarms))
    table.add_row("events", "\n".join(newest))
    return table


def sparkline(values: Sequence[int]) -> str:
    """▁▃█: each as a share of the largest"""
    most = max(max(values), 1)
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"
