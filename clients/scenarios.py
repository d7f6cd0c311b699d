"""Populations to play with, as small files: clients/scenarios/*.toml, in the unit ball.

A file says where agents measure (`reference`), what they can spend (`budget`), and in phases who they are: `points` and
`y` written out, `separable` ones drawn around the reference point, or the nodes of a `tree`; and `weights` that tell
them apart. A phase with none of these keeps the agents of the one before, and changes their `mix`.

Placed that a classifier w through p separates are separated by w strategically too: a positive one is above 0, so the
threshold α is within its budget; a negative one is below 0, so it is not.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clients.agents import RADIUS_LIMIT, Array, Population, Signs, arrows, hyperboloid, points, translate

FOLDER = Path(__file__).with_name("scenarios")
#: How often agents are drawn, four times as many as are wanted, before the margin is found too large.
DRAWS = 1000
Toml = Mapping[str, Any]
#: true points, true signs, and the agents' names if they have some
Placed = tuple[Array, Signs, tuple[str, ...]]


@dataclass(frozen=True)
class Phase:
    rounds: int
    population: Population
    names: tuple[str, ...]
    margin: float | None  # by which some classifier through the reference point separates the agents, if one is known


@dataclass(frozen=True)
class Scenario:
    name: str
    about: str
    reference: Array
    labels: tuple[str | int, ...]  # the negative one first
    budget: float
    estimate: float  # where the estimate of an unknown budget is to start
    phases: tuple[Phase, ...]
    seed: int

    @property
    def rounds(self) -> int:
        return sum(phase.rounds for phase in self.phases)

    def phase(self, turn: int) -> Phase:
        """The phase that round is in; the last one goes on for ever"""
        ends = np.cumsum([phase.rounds for phase in self.phases[:-1]])
        return self.phases[int(np.searchsorted(ends, turn, side="right"))]

    def rng(self, turn: int) -> np.random.Generator:
        """The randomness of a round"""
        return np.random.default_rng([self.seed, turn])


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str, *, seed: int = 0, agents: int | None = None, budget: float | None = None) -> Scenario:
    """A scenario by its name, or by the path of a file of one's own; with another number of agents, another budget"""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        return _scenario(path.stem, tomllib.loads(path.read_text()), seed, agents, budget)
    except FileNotFoundError:
        raise ValueError(f"there is no scenario {name!r}; there are {', '.join(names())}") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except KeyError as missing:
        raise ValueError(f"{path}: {missing} is missing") from None
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"{path}: {error}") from None


def _scenario(name: str, told: Toml, seed: int, agents: int | None, other_budget: float | None) -> Scenario:
    p, rng = np.array(told["reference"], dtype=np.float64), np.random.default_rng(seed)
    budget = float(told["budget"]) if other_budget is None else other_budget
    phases: list[Phase] = []
    for part in told["phase"]:
        mix, rounds = part.get("mix", {"rational": 1.0}), part["rounds"]
        if not isinstance(rounds, int) or rounds < 1:
            raise ValueError(f"a phase has {rounds!r} rounds; it must have one or more")
        source = next((make for key, make in SOURCES.items() if key in part), None)
        if source:
            X, y, called = _so_many(agents, *source(_sized(part, agents), p, budget, rng))
            if not len(X) or not np.isin(y, (-1, 1)).all():
                raise ValueError("a phase has agents, and each of them is -1 or 1")
            phases.append(Phase(rounds, Population(X, y, budget, mix), called, margin(X, y, p, part["weights"])))
        elif not phases:
            raise ValueError(f"the first phase has no agents: {', '.join(SOURCES)}")
        else:
            same = replace(phases[-1].population, mix=mix)
            phases.append(replace(phases[-1], rounds=rounds, population=same))
    if not phases:
        raise ValueError("there is no phase")
    labels = tuple(told.get("labels", (-1, 1)))
    estimate = float(told.get("estimate", 4 * budget)) if other_budget is None else 4 * budget
    return Scenario(name, told["about"], p, labels, budget, estimate, tuple(phases), seed)


def _sized(part: Toml, agents: int | None) -> Toml:
    return (
        part if agents is None or "separable" not in part else {**part, "separable": {**part["separable"], "n": agents}}
    )


def _so_many(agents: int | None, X: Array, y: Signs, called: tuple[str, ...]) -> Placed:
    """Those who are listed, all of them, again and again"""
    if agents is None:
        return X, y, called
    times, rest = divmod(agents, len(X))
    if rest or not times:
        raise ValueError(f"it has {len(X)} agents of its own; {agents} are not a multiple of them")
    return np.tile(X, (times, 1)), np.tile(y, times), called * times


def margin(X: ArrayLike, y: ArrayLike, p: ArrayLike, w: ArrayLike) -> float | None:
    """min asinh(y⟨w,z⟩/‖w‖): how far the agents are from the geodesic of w through p; None if w errs on one"""
    z = translate(hyperboloid(p), hyperboloid(X))[..., 1:]
    least = float(np.min(np.asarray(y) * (z @ np.asarray(w)))) / float(np.linalg.norm(w))
    return math.asinh(least) if least > 0 else None


# --------------------------------------------------------------------------------- who they are


def _listed(part: Toml, p: Array, budget: float, rng: np.random.Generator) -> Placed:
    return np.array(part["points"], dtype=np.float64), np.array(part["y"], dtype=np.int8), tuple(part.get("names", ()))


def _separable(part: Toml, p: Array, budget: float, rng: np.random.Generator) -> Placed:
    return *separable(rng, p=p, w=part["weights"], budget=budget, **part["separable"]), ()


def separable(
    rng: np.random.Generator, *, n: int, p: ArrayLike, w: ArrayLike, budget: float, margin: float, radius: float
) -> tuple[Array, Signs]:
    """n agents within `radius` of p, at least `margin` from the geodesic of w through p, and their sides of it"""
    w = np.asarray(w, dtype=np.float64)
    if not 0 <= margin < radius:
        raise ValueError(f"the margin is {margin!r}; it must be less than the radius, {radius!r}")
    if not (np.isfinite(w).all() and w.any()):
        raise ValueError(f"the weights are {w.tolist()}; no geodesic has these")
    if np.arccosh(hyperboloid(p)[0]) + math.hypot(radius, budget) >= RADIUS_LIMIT:
        raise ValueError(
            f"some agents would have to leave the ball to be called positive; radius {radius!r} is too large"
        )
    A, side = np.empty((0, w.size)), np.empty(0)
    for _ in range(DRAWS):
        if len(A) >= n:
            break
        directions = rng.standard_normal((4 * n, w.size))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        r = rng.uniform(0, radius, 4 * n)
        sinh = np.sinh(r) * (directions @ w) / np.linalg.norm(w)  # of the distance to the geodesic
        keep = np.abs(sinh) >= math.sinh(margin)
        A, side = np.vstack([A, (r[:, None] * directions)[keep]]), np.append(side, sinh[keep])
    if len(A) < n:
        raise ValueError(f"hardly anything within {radius!r} is {margin!r} from the geodesic")
    return points(p, A[:n]).astype(np.float64), np.sign(side[:n]).astype(np.int8)


def _tree(part: Toml, p: Array, budget: float, rng: np.random.Generator) -> Placed:
    """A tree in the disk, its root in the middle: neighbours an edge apart, in evenly spread directions (Sarkar)"""
    children, edge = part["children"], part["tree"]["edge"]
    below = {child for each in children.values() for child in each}
    (root,) = set(children) - below
    placed, inside = {root: np.zeros(2)}, set()
    for parent in (order := [root]):
        mine, x = children.get(parent, ()), placed[parent]
        toward = next((placed[other] for other in children if parent in children[other]), None)
        first, ways = (0.0, len(mine)) if toward is None else (_angle(x, toward), len(mine) + 1)
        for i, child in enumerate(mine):
            angle = first + math.tau * (i + (toward is not None)) / ways
            placed[child] = points(x, edge * np.array([math.cos(angle), math.sin(angle)])).astype(np.float64)
            order.append(child)
            if child == part["tree"]["positive"] or parent in inside:
                inside.add(child)
    return (
        np.array([placed[name] for name in order]),
        np.array([1 if name in inside else -1 for name in order], dtype=np.int8),
        tuple(order),
    )


def _angle(x: Array, y: Array) -> float:
    """the direction of y, seen from x"""
    a = arrows(x, y)
    return math.atan2(a[1], a[0])


#: by the key that a phase has
SOURCES: dict[str, Callable[[Toml, Array, float, np.random.Generator], Placed]] = {
    "points": _listed,
    "separable": _separable,
    "tree": _tree,
}
