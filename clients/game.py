"""A population plays against a session: fetch the published classifier, answer it, post with If-Match, be judged.

A point that is accepted was judged by the very classifier it answers. If that is another by then (412), or becomes
another in the middle of a batch, those who are left answer the new one. So a strategic stream is exact over HTTP, in
batches and with many clients at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from clients.agents import RADIUS_LIMIT, TOLERANCE, Array, Model, Response, Signs, respond
from clients.answers import Observed, SessionInfo
from clients.client import AsyncSession
from clients.problems import StaleModel
from clients.scenarios import Phase, Scenario

#: How many of the smallest distances below the threshold are remembered.
NEAREST = 3
#: Told of every answer: the version that was named, and what came of it.
Tell = Callable[[int, Observed], None]


@dataclass
class Tally:
    """What has come of a game so far."""

    points: int = 0
    mistakes: int = 0
    by_round: list[int] = field(default_factory=list)  # mistakes
    moved: int = 0
    cost: float = 0.0  # in gains
    requests: int = 0
    stale: int = 0  # requests refused with 412: they answered an older classifier
    seconds: float = 0.0
    budgets: list[float] = field(default_factory=list)  # that were published, one after another
    in_band: int = 0  # points below a threshold that was, as published, within their reach
    nearest: list[float] = field(default_factory=list)  # how far below, the smallest


@dataclass(frozen=True)
class Agents:
    """Those who share a request."""

    X: Array  # where they truly are
    y: Signs
    kinds: NDArray[np.str_]
    budget: float
    rng: np.random.Generator


def check(info: SessionInfo, scenario: Scenario) -> None:
    """Whether these agents can play against this session"""
    if info.dimension != scenario.reference.size:
        own = scenario.reference.size
        raise ValueError(
            f"session {info.id!r} has {info.dimension} dimensions, the agents of {scenario.name} have {own}"
        )
    if info.reference is None:
        raise ValueError(
            f"session {info.id!r} is {info.algorithm}: it has no reference point to measure an agent's cost at"
        )
    if len(info.labels) != 2:
        raise ValueError(f"session {info.id!r} has {len(info.labels)} labels; agents want one of two")
    if info.curvature != 1:
        raise ValueError(f"session {info.id!r} has curvature −{info.curvature:g}; agents live in the unit ball")


def phases(scenario: Scenario, rounds: int) -> list[Phase]:
    """Those that so many rounds meet"""
    return [phase for i, phase in enumerate(scenario.phases) if sum(p.rounds for p in scenario.phases[:i]) < rounds]


def point_count(scenario: Scenario, rounds: int) -> int:
    """How many points so many rounds have"""
    total = 0
    for phase in phases(scenario, rounds):
        here = rounds if phase is scenario.phases[-1] else min(rounds, phase.rounds)
        total, rounds = total + here * len(phase.population.X), rounds - here
    return total


def known_margin(info: SessionInfo, scenario: Scenario, rounds: int) -> float | None:
    """The margin of a stream, if its agents are the same throughout, and measured from where the session does"""
    met = phases(scenario, rounds)
    same = all(phase.population.X is met[0].population.X for phase in met)
    return met[0].margin if same and np.array_equal(np.asarray(info.reference), scenario.reference) else None


def covered(info: SessionInfo, scenario: Scenario, rounds: int) -> bool:
    """Whether the strategic theorem speaks of this stream: rational agents from the first point on, with this budget"""
    rational = all(set(phase.population.mix) == {"rational"} for phase in phases(scenario, rounds))
    return info.observed == 0 and info.budget == scenario.budget and rational


class Published:
    """The newest classifier; fetched when an answer named a newer version, once for all tasks that wait for it."""

    def __init__(self, session: AsyncSession) -> None:
        self._session, self._newest, self._lock = session, 0, asyncio.Lock()
        self._model: Model | None = None
        self.older: Model | None = None

    def heard(self, version: int) -> None:
        self._newest = max(self._newest, version)

    async def model(self) -> Model:
        async with self._lock:
            if self._model is None or self._model.version < self._newest:
                self.older, self._model = self._model, Model.from_json((await self._session.model()).document)
                self.heard(self._model.version)
            return self._model


class Gate:
    """Limits concurrent requests: `most` while the classifier stays, one when it has just changed (slow start)

    A change makes all requests under way stale. So after one, a single request goes ahead; each that changes nothing
    admits one more, which doubles their number every round trip.
    """

    def __init__(self, most: int) -> None:
        self._most, self._open, self._inside, self._version = most, most, 0, 0
        self._free = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._free:
            await self._free.wait_for(lambda: self._inside < self._open)
            self._inside += 1

    async def __aexit__(self, *_: object) -> None:
        async with self._free:
            self._inside -= 1
            self._free.notify(max(0, self._open - self._inside))

    def changed(self, version: int) -> None:
        if version > self._version:
            self._version, self._open = version, 1

    def unchanged(self) -> None:
        self._open = min(self._most, self._open + 1)


class Game:
    """A scenario, played against a session. `batch` agents share a request; at most `concurrency` are under way.

    `sessions`: one and the same, as different clients know it; the agents are dealt out among them.
    """

    def __init__(
        self,
        sessions: Sequence[AsyncSession],
        scenario: Scenario,
        *,
        batch: int = 1,
        concurrency: int = 1,
        tell: Tell = lambda version, told: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.session, self.scenario, self.tally = sessions[0], scenario, Tally()
        check(self.session.info, scenario)
        self._sessions, self._labels = sessions, self.session.info.labels
        self._batch, self._tell, self._clock = batch, tell, clock
        self._gate, self._published = Gate(concurrency), Published(self.session)

    async def play(self, rounds: int) -> Tally:
        """Every agent shows its point once a round; a round begins when the last one is over."""
        began = self._clock()
        for turn in range(rounds):
            self.tally.by_round.append(0)
            try:
                await self._round(turn)
            except BaseExceptionGroup as errors:
                raise _first(errors) from None
            finally:
                self.tally.seconds = self._clock() - began
        self._seen(await self._published.model())
        return self.tally

    async def _round(self, turn: int) -> None:
        population, rng = self.scenario.phase(turn).population, self.scenario.rng(turn)
        kinds = population.cast(rng)
        cuts = [slice(i, i + self._batch) for i in range(0, len(kinds), self._batch)]
        async with asyncio.TaskGroup() as group:
            for cut, own, session in zip(cuts, rng.spawn(len(cuts)), cycle(self._sessions), strict=False):
                agents = Agents(population.X[cut], population.y[cut], kinds[cut], population.budget, own)
                group.create_task(self._turn(agents, session))

    async def _turn(self, agents: Agents, session: AsyncSession) -> None:
        """These agents, until all of them are accepted"""
        while len(agents.X):
            async with self._gate:
                n = await self._show(agents, session)
            agents = replace(agents, X=agents.X[n:], y=agents.y[n:], kinds=agents.kinds[n:])

    async def _show(self, agents: Agents, session: AsyncSession) -> int:
        """Answer the classifier as it is now; how many of the answers were taken"""
        model = await self._published.model()
        self._seen(model)
        answer = respond(agents.X, agents.kinds, model, agents.budget, agents.rng, self._published.older)
        labels = [self._labels[int(sign > 0)] for sign in agents.y]
        self.tally.requests += 1
        try:
            told = await session.observe(answer.X, labels, truth=agents.X, if_match=model.version)
        except StaleModel as error:
            self.tally.stale += 1
            self._changed(error.version)
            return 0
        if told.session.version == model.version:
            self._gate.unchanged()
        else:
            self._changed(told.session.version)
        self._count(model, answer, told)
        self._tell(model.version, told)
        return told.accepted

    def _changed(self, version: int) -> None:
        self._published.heard(version)
        self._gate.changed(version)

    def _count(self, model: Model, answer: Response, told: Observed) -> None:
        tally, n = self.tally, told.accepted
        tally.points += n
        tally.mistakes += told.mistakes
        tally.by_round[-1] += told.mistakes
        tally.moved += int(answer.moved[:n].sum())
        tally.cost += float(answer.cost[:n].sum())
        if told.scores is not None:
            found = in_band(told.scores, model)
            tally.in_band += len(found)
            tally.nearest = sorted([*tally.nearest, *found.tolist()])[:NEAREST]

    def _seen(self, model: Model) -> None:
        if model.budget is not None and model.budget not in self.tally.budgets[-1:]:
            self.tally.budgets.append(model.budget)


def in_band(scores: Array, model: Model) -> Array:
    """How far below the threshold those are who could have afforded it, were the budget what the model says

    An agent that answered this classifier and stays there is not rational; or its budget is less. Nearer to the ends
    than the service's own tolerance, TOLERANCE·max(α, r), nothing is said.
    """
    if model.budget is None or not model.weights.any():
        return np.empty(0)
    below, slack = -scores, TOLERANCE * (model.budget + 2 * RADIUS_LIMIT)
    return below[(below > slack) & (below < model.budget - slack)]


def _first(error: BaseException) -> BaseException:
    """The first error of a group: tasks that fail together fail for the same reason"""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
