"""What a simulation came to: a table to read, JSON and CSV to work with."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clients.game import Tally
from clients.scenarios import Scenario

NONE = "—"


@dataclass(frozen=True)
class Run:
    """One session, played against."""

    session: str
    picture: str  # its address
    algorithm: str
    points: int
    mistakes: int
    mistakes_by_round: list[int]
    margin: float | None  # the one that the bound is for
    bound: float | None  # on the mistakes; None: nothing is proven of this stream
    moved: float  # share of the points
    cost: float  # spent, in gains
    requests: int
    stale: int  # requests refused because the classifier they answered was there no more
    seconds: float
    points_per_second: float
    estimating: bool
    budget: float | None  # the session's own, or its estimate at the end
    budgets: list[float]  # as they were published
    in_band: int
    nearest: list[float]  # below the threshold
    alarm: str | None

    @classmethod
    def of(
        cls,
        tally: Tally,
        scenario: Scenario,
        *,
        session: str,
        picture: str,
        algorithm: str,
        estimating: bool,
        margin: float | None,
        bound: float | None,
    ) -> Run:
        return cls(
            session=session,
            picture=picture,
            algorithm=algorithm,
            points=tally.points,
            mistakes=tally.mistakes,
            mistakes_by_round=tally.by_round,
            margin=margin,
            bound=bound,
            moved=tally.moved / max(tally.points, 1),
            cost=tally.cost,
            requests=tally.requests,
            stale=tally.stale,
            seconds=tally.seconds,
            points_per_second=tally.points / tally.seconds if tally.seconds else 0.0,
            estimating=estimating,
            budget=tally.budgets[-1] if tally.budgets else None,
            budgets=tally.budgets,
            in_band=tally.in_band,
            nearest=tally.nearest,
            alarm=alarm(tally, scenario.budget, estimating, session),
        )


def alarm(tally: Tally, own: float, estimating: bool, session: str) -> str | None:
    """Points in the forbidden band, and what they may mean. `own`: the budget that the agents really have"""
    if not tally.in_band:
        return None
    first, last = tally.budgets[0], tally.budgets[-1]
    many = "1 point" if tally.in_band == 1 else f"{tally.in_band:,} points"
    found = f"{many} in the forbidden band, {tally.nearest[0]:.4g} below the threshold and more"
    if not estimating:
        return f"{found}: those agents are not rational, or their budget is less than {last:.4g}"
    if last < own:
        again = f"--session={session} --estimate {first:.4g} begins it anew"
        return f"{found}: the estimate, {last:.4g}, is below the agents' {own:.4g}: some are not rational; {again}"
    if last < first:
        return f"{found}: the estimate was too high and came down from {first:.4g} to {last:.4g}"
    return f"{found}: the estimate, {last:.4g}, is too high, or those agents are not rational"


# ------------------------------------------------------------------------------------- for people


def show(console: Console, scenario: Scenario, rounds: int, runs: Sequence[Run]) -> None:
    agents, budget = len(scenario.phase(0).population.X), f"{scenario.budget:g}"
    console.print(f"\n[bold]{escape(scenario.name)}[/]  {escape(str(scenario.about))}", highlight=False)
    console.print(f"{agents:,} agents, budget {budget}, {rounds:,} rounds", highlight=False)
    table = Table(show_header=True, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for run in runs:
        table.add_column(run.algorithm, justify="right")
    for name, cells in _rows(scenario, runs):
        table.add_row(name, *cells)
    console.print(table, highlight=False)
    for run in runs:
        console.print(f"{run.algorithm}: {run.picture}", soft_wrap=True, highlight=False)
    for run in runs:
        if run.alarm:
            console.print(f"[red]alarm[/] {run.algorithm}: {run.alarm}", soft_wrap=True, highlight=False)


def _rows(scenario: Scenario, runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    rows = [
        ("points", [f"{run.points:,}" for run in runs]),
        ("mistakes", [f"{run.mistakes:,}" for run in runs]),
        ("in the last round", [f"{run.mistakes_by_round[-1]:,}" for run in runs]),
        ("bound", [NONE if run.bound is None else f"{run.bound:,.1f}" for run in runs]),
        ("moved", [f"{run.moved:.1%}" for run in runs]),
        ("cost spent, in gains", [f"{run.cost:,.1f}" for run in runs]),
        ("refused as stale", [f"{run.stale:,} of {run.requests:,}" for run in runs]),
        ("points/s", [f"{run.points_per_second:,.0f}" for run in runs]),
    ]
    if any(run.estimating for run in runs):
        rows += [
            ("estimate of the budget", [_estimate(run, scenario.budget) for run in runs]),
            ("evidence: stayed below by", [_evidence(run) for run in runs]),
        ]
    return rows


def _estimate(run: Run, own: float) -> str:
    if not run.estimating or run.budget is None:
        return NONE
    return f"{run.budgets[0]:.4g} → {run.budget:.4g} ({run.budget / own - 1:+.1%})"


def _evidence(run: Run) -> str:
    return ", ".join(f"{below:.4g}" for below in run.nearest) if run.estimating and run.nearest else NONE


# ----------------------------------------------------------------------------------- for programs


def as_json(scenario: Scenario, rounds: int, runs: Sequence[Run]) -> str:
    told: dict[str, Any] = {
        "scenario": scenario.name,
        "agents": len(scenario.phase(0).population.X),
        "budget": scenario.budget,
        "rounds": rounds,
        "seed": scenario.seed,
        "runs": [asdict(run) for run in runs],
    }
    return json.dumps(told, indent=2, allow_nan=False) + "\n"


def as_csv(scenario: Scenario, rounds: int, runs: Sequence[Run]) -> str:
    """A line a run; a list is one cell, its numbers set apart by blanks"""
    text = io.StringIO()
    common = {"scenario": scenario.name, "agents_budget": scenario.budget, "rounds": rounds, "seed": scenario.seed}
    lines = [{**common, **{name: _cell(value) for name, value in asdict(run).items()}} for run in runs]
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value
