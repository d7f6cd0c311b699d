"""python -m clients.simulate: agents that answer the classifier of a running service, and what it makes of them.

    --compare    the plain perceptron and the strategic one, against the same population
    --estimate   the service is not told the budget
    --session    play against this session; it is opened if it is not there

Exit codes: 0 done, 1 the service failed or refused, 2 something asked for makes no sense, 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any, TextIO

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from clients import report
from clients.answers import Certificate, Observed, SessionInfo
from clients.calls import Settings
from clients.client import URL, AsyncClient, AsyncSession, Retry
from clients.game import Game, check, covered, known_margin, point_count
from clients.interrupts import Interrupts
from clients.problems import EmptyClass, HorocycleError, InvalidInput, Problem, UnknownSession
from clients.scenarios import Scenario, load

ALGORITHMS = ("perceptron", "second_order", "strategic")
#: For the first call: few retries, so that a mistyped address is reported soon.
HASTY = Retry(attempts=3)
#: Concurrent requests that share a connection pool: httpx scans the whole pool at every request.
SHARE = 16
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
#: The points of a session that are kept for the best margin, at most.
KEPT = 1_000_000


class UsageError(Exception):
    """Options that contradict each other, the scenario or the session: exit code 2."""


@dataclass(frozen=True)
class Plan:
    """What is to be played, and against what."""

    url: str
    scenario: Scenario
    rounds: int
    algorithms: tuple[str, ...] = ("strategic",)
    batch: int = 20
    concurrency: int = 16
    estimate: float | None = None  # where the estimate of the budget begins; None: the service is told it
    session: str | None = None
    key: str | None = None
    ids: tuple[str | None, ...] = ()  # of the sessions that are opened, an algorithm


@dataclass
class Simulation:
    """The games of a plan, one after another, so that they do not compete for the CPU."""

    plan: Plan
    progress: Progress
    games: list[tuple[Game, TaskID]] = field(default_factory=list)

    async def run(self) -> list[report.Run]:
        plan, secure = self.plan, httpx.create_ssl_context()
        async with AsyncExitStack() as stack:
            clients = []
            for _ in range(math.ceil(plan.concurrency / SHARE)):
                http = await stack.enter_async_context(httpx.AsyncClient(timeout=TIMEOUT, verify=secure))
                clients.append(AsyncClient(plan.url, api_key=plan.key, http=http))
            ids = plan.ids or (None,) * len(plan.algorithms)
            return [await self._play(clients, *each) for each in zip(plan.algorithms, ids, strict=True)]

    async def _play(self, clients: Sequence[AsyncClient], algorithm: str, id: str | None) -> report.Run:
        plan = self.plan
        id = await find_or_open(plan, algorithm, id)
        sessions = [await client.sessions.get(id) for client in clients]
        session, begun = sessions[0], sessions[0].info
        task = self.progress.add_task(session.info.algorithm, total=point_count(plan.scenario, plan.rounds), told="")
        game = Game(sessions, plan.scenario, batch=plan.batch, concurrency=plan.concurrency, tell=self._tell)
        self.games.append((game, task))
        tally = await game.play(plan.rounds)
        proof = await certificate(session, begun, plan)
        return report.Run.of(
            tally,
            plan.scenario,
            session=session.id,
            picture=f"{plan.url.rstrip('/')}/sessions/{session.id}/disk.svg",
            algorithm=session.info.algorithm,
            estimating=isinstance(session.info.budget, dict),
            margin=None if proof is None else proof.margin,
            bound=None if proof is None else proof.bound,
        )

    def _tell(self, version: int, told: Observed) -> None:
        game, task = self.games[-1]
        tally = game.tally
        said = f"{tally.mistakes:,} mistakes, {tally.stale:,} refused as stale"
        if tally.in_band:
            said += f", {tally.in_band:,} in the forbidden band"
        self.progress.update(task, completed=tally.points, told=said)


async def find_or_open(plan: Plan, algorithm: str, id: str | None = None) -> str:
    """The id of the session to play against: the one that is named, if it is there, else a new one"""
    async with AsyncClient(plan.url, api_key=plan.key, retry=HASTY) as client:
        if plan.session is not None:
            try:
                return await _join(client, plan, algorithm, plan.session)
            except UnknownSession:
                id = plan.session
        scenario = plan.scenario
        settings: Settings = {
            "algorithm": algorithm,
            "reference": scenario.reference.tolist(),
            "labels": list(scenario.labels),
            "keep_points": min(max(10_000, point_count(scenario, plan.rounds)), KEPT),
            "name": f"{scenario.name}, {algorithm}",
            "id": id,
        }
        if algorithm == "strategic":
            known = plan.estimate is None
            settings["budget"] = scenario.budget if known else {"estimate": {"initial": plan.estimate}}
        opened = await client.sessions.open(dimension=scenario.reference.size, **settings)
        return opened.id


async def _join(client: AsyncClient, plan: Plan, algorithm: str, id: str) -> str:
    """One that is there. An estimate that is asked for begins anew."""
    found = await client.sessions.get(id)
    check(found.info, plan.scenario)
    if found.info.algorithm != algorithm:
        raise UsageError(f"session {id!r} is {found.info.algorithm}, not {algorithm}")
    if plan.estimate is not None:
        await found.change(budget={"estimate": {"initial": plan.estimate}})
    return found.id


async def certificate(session: AsyncSession, begun: SessionInfo, plan: Plan) -> Certificate | None:
    """What is proven of a stream that found the session as `begun`. The strategic theorem takes the margin of the true
    points, the plain one that of the points shown; where the former is not known, the latter is used."""
    margin: float | str | None = "best"
    if begun.algorithm == "strategic":
        if not covered(begun, plan.scenario, plan.rounds):
            return None
        margin = known_margin(begun, plan.scenario, plan.rounds) or "best"
    if margin == "best" and (await session.refresh()).observed > session.info.keep_points:
        return None
    try:
        return await session.certificate(margin)
    except EmptyClass:  # no margin between a class and nobody
        return None


# ------------------------------------------------------------------------------------ the command


def main(argv: Sequence[str] | None = None) -> int:
    out, err = Console(), Console(stderr=True)
    with ExitStack() as files, Interrupts(signal.SIGINT) as interrupts:
        try:
            arguments = parser().parse_args(argv)
            plan, sinks = planned(arguments), opened(arguments, files)
            return carried_out(plan, sinks, out, err, interrupts)
        except (UsageError, InvalidInput) as error:
            say(err, str(error))
            return 2
        except HorocycleError as error:
            say(err, failure(error))
            return 1
        except KeyboardInterrupt:
            say(err, "interrupted")
            return 130


def carried_out(
    plan: Plan, sinks: Sequence[tuple[Any, TextIO | None]], out: Console, err: Console, interrupts: Interrupts
) -> int:
    """Play, and write what came of it: to files, to standard output (None) in place of the table"""
    quiet = not err.is_terminal or any(sink is None for _, sink in sinks)
    with game_bar(err, quiet) as progress:
        simulation = Simulation(plan, progress)
        try:
            runs = interrupts.run(simulation.run())
        except KeyboardInterrupt:
            progress.stop()
            for game, _ in simulation.games:
                tally = game.tally
                say(err, f"session {game.session.id}: {tally.points:,} points, {tally.mistakes:,} mistakes so far")
            raise
        except ValueError as error:
            raise UsageError(str(error)) from error
    for write, sink in sinks:
        text = write(plan.scenario, plan.rounds, runs)
        if sink is None:
            out.out(text, end="", highlight=False)
        else:
            sink.write(text)
    if all(sink is not None for _, sink in sinks):
        report.show(out, plan.scenario, plan.rounds, runs)
    return 0


def game_bar(console: Console, quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"))
    return Progress(*columns, TimeElapsedColumn(), console=console, disable=quiet, transient=True)


def failure(error: HorocycleError) -> str:
    if isinstance(error, Problem) and error.status in (401, 403):
        return f"the service does not take this key (--key): {error}"
    return str(error)


def say(console: Console, line: str) -> None:
    console.print(f"simulate: {line}", markup=False, highlight=False, soft_wrap=True)


def planned(arguments: argparse.Namespace) -> Plan:
    try:
        scenario = load(arguments.scenario, seed=arguments.seed, agents=arguments.agents, budget=arguments.budget)
    except ValueError as error:
        raise UsageError(str(error)) from None
    plain = "perceptron" if arguments.algorithm == "strategic" else arguments.algorithm
    algorithms = (plain, "strategic") if arguments.compare else (arguments.algorithm,)
    estimate = scenario.estimate if arguments.estimate is True else arguments.estimate
    if estimate is not None and "strategic" not in algorithms:
        raise UsageError(f"--estimate: a {arguments.algorithm} session has no budget to estimate")
    if arguments.compare and arguments.session:
        raise UsageError("--compare plays against two sessions, --session against one")
    return Plan(
        url=arguments.url,
        scenario=scenario,
        rounds=arguments.rounds or scenario.rounds,
        algorithms=algorithms,
        batch=arguments.batch,
        concurrency=arguments.concurrency,
        estimate=estimate,
        session=arguments.session,
        key=arguments.key,
    )


def opened(arguments: argparse.Namespace, files: ExitStack) -> list[tuple[Any, TextIO | None]]:
    """How to write, and where to. The files are opened before the games begin, so that a wrong path fails at once."""
    wanted = [(report.as_json, arguments.json), (report.as_csv, arguments.csv)]
    if arguments.json == arguments.csv == "-":
        raise UsageError("--json - and --csv -: only one of them can have the standard output")
    sinks: list[tuple[Any, TextIO | None]] = []
    for write, path in wanted:
        if path is not None:
            try:
                sinks.append((write, None if path == "-" else files.enter_context(open(path, "w", encoding="utf-8"))))
            except OSError as error:
                raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return sinks


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m clients.simulate", description="Agents against a running service.")
    add = made.add_argument
    add("--url", type=_url, default=URL, help=f"the service ({URL})")
    add("--scenario", default="loans", help="abc, loans, taxonomy, drift, band, or the path of a .toml file (loans)")
    add("--agents", type=_whole(1, 1_000_000), help="how many (what the scenario says)")
    add("--budget", type=_positive, help="what an agent can spend, α (what the scenario says)")
    add("--algorithm", choices=ALGORITHMS, default="strategic", help="the learner (strategic)")
    add("--compare", action="store_true", help="the plain learner and the strategic one, side by side")
    add("--estimate", type=_positive, nargs="?", const=True, metavar="START", help="do not tell the service the budget")
    add(
        "--rounds", type=_whole(1, 1_000_000_000), help="how often every agent shows its point (what the scenario says)"
    )
    add("--seed", type=_whole(0, 2**63 - 1), default=0, help="of the population and of the noise (0)")
    add("--batch", type=_whole(1, 10_000), default=20, help="agents that share a request (20)")
    add("--concurrency", type=_whole(1, 1_000), default=16, help="requests at a time (16)")
    add("--session", type=_session_id, metavar="ID", help="play against this session; opened if it is not there")
    add("--key", type=_key, default=os.environ.get("HOROCYCLE_KEY") or None, help="an API key ($HOROCYCLE_KEY)")
    add("--json", metavar="FILE", help="write the result as JSON; -: to standard output, in place of the table")
    add("--csv", metavar="FILE", help="write the result as CSV, likewise")
    return made


def _url(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise argparse.ArgumentTypeError(f"{text!r} is no address of a service: it begins with http:// or https://")
    return text


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def _whole(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text[:20]) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most:,}")
        return int(text)

    return number


def _session_id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no id of a session: letters, digits, - and _, at most 64")
    return text


def _key(text: str) -> str:
    if not (text and text.isascii() and text.isprintable()):
        raise argparse.ArgumentTypeError("a key has printable ASCII characters only")
    return text


if __name__ == "__main__":
    sys.exit(main())
