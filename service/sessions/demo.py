"""Small populations whose points a page can watch: who they are, and their next points. Pure: seeded, no clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from service import geometry as g
from service.geometry import Array
from service.sessions.rows import Batch

#: Draws so many points, of which the first is at this position, in answer to a published model.
Draw = Callable[[np.random.Generator, int, int, Mapping[str, Any]], Batch]
BUDGET = 0.9
REFERENCE = (0.15, -0.1)
FAMILIES = ("mammals", "birds", "fish", "insects", "plants", "fungi")


@dataclass(frozen=True)
class Population:
    title: str
    about: str
    settings: Mapping[str, Any]  # of the session that is opened for it, in the words of POST /sessions
    points: int  # in all
    step: int  # points that come together
    pause: float  # seconds between two steps
    draw: Draw
    margin: float | None = None  # that its true points have in the coordinates of its learner, where that is known


def agents(rng: np.random.Generator, first: int, n: int, model: Mapping[str, Any]) -> Batch:
    """Applicants either side of a geodesic, who know the classifier: σ_p⟨w,v⟩/‖w‖ ≥ α gets them a loan

    Those whose true point is less than their budget below the threshold move onto it.
    """
    p, w = np.array(model["reference"]), np.array(model["weights"])
    U, side = _beside(rng, n, np.array(REFERENCE), np.array([0.8, 0.6]), 0.35)
    sigma = float(g.conformal_factor(p))
    A = sigma * g.log_map(p, U)
    length = math.sqrt(w @ w)
    toward = w / length if length else w
    missing = model["threshold"] * sigma - A @ toward
    moves = (missing > 0) & (missing <= BUDGET) & (length > 0)
    X = np.where(moves[:, None], g.exp_map(p, (A + np.where(moves, missing, 0)[:, None] * toward) / sigma), U)
    return Batch(X, (side > 0).astype(np.int64), truth=U)


def taxonomy(rng: np.random.Generator, first: int, n: int, model: Mapping[str, Any]) -> Batch:
    """A tree: six families about the root, each of three kinds, which lie further out"""
    family, kind = rng.integers(0, len(FAMILIES), n), rng.integers(-1, 2, n)
    angle = math.tau * family / len(FAMILIES) + 0.24 * kind + 0.5
    centre = np.tanh((2.1 + 0.35 * (kind == 0)) / 2)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Batch(g.exp_map(centre, rng.normal(0, 0.13, (n, 2)) / g.conformal_factor(centre)[:, None] * 2), family)


def drift(rng: np.random.Generator, first: int, n: int, model: Mapping[str, Any]) -> Batch:
    """Two classes whose border turns by a right angle when half of the points have come"""
    w = np.array([1.0, 0.4]) if first < POPULATIONS["drift"].points // 2 else np.array([-0.4, 1.0])
    X, side = _beside(rng, n, np.array([-0.1, 0.2]), w, 0.15)
    return Batch(X, (side > 0).astype(np.int64))


def _beside(rng: np.random.Generator, n: int, p: Array, w: Array, margin: float) -> tuple[Array, Array]:
    """Points within three of the origin and further than the margin from the geodesic through p; on which side"""
    angle, radius = rng.uniform(0, math.tau, 8 * n), np.arccosh(rng.uniform(1, math.cosh(3), 8 * n))
    X = np.tanh(radius / 2)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    side = g.signed_distance(p, w, X)
    kept = np.flatnonzero(np.abs(side) > margin)[:n]
    return X[kept], side[kept]


POPULATIONS = {
    "agents": Population(
        title="Strategic agents",
        about="Applicants move their points to be accepted; the learner expects it.",
        settings={
            "algorithm": "strategic",
            "dimension": 2,
            "labels": ["refused", "accepted"],
            "reference": list(REFERENCE),
            "budget": BUDGET,
        },
        points=1500,
        step=1,
        pause=0.06,
        draw=agents,
        margin=0.08,  # r sinh(0.35)/sinh(r), which falls with r, at the furthest: r = 3.37
    ),
    "taxonomy": Population(
        title="A taxonomy",
        about="Six families of a tree, learned from nothing.",
        settings={"dimension": 2, "labels": list(FAMILIES)},
        points=3000,
        step=4,
        pause=0.1,
        draw=taxonomy,
    ),
    "drift": Population(
        title="A border that turns",
        about="Two classes; half way the truth changes, and the alarm is raised.",
        settings={"dimension": 2, "labels": ["left", "right"]},
        points=3000,
        step=5,
        pause=0.1,
        draw=drift,
    ),
}
