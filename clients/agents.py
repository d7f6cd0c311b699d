"""How an agent answers a classifier: it moves its point to be called positive, if that is worth it.

    utility = gain − cost,  gain 1 if called positive, else 0;  cost σ_p‖u−v‖/α,  u = log_p(true x), v = log_p(shown x)

So a rational agent moves at most α, its budget, only along w, and only as far as it must:

    strategic model, positive iff ⟨w,v⟩/‖w‖ ≥ a:  onto the threshold a, if it lacks at most α/σ_p
    plain model, positive iff ⟨w,v⟩ ≥ 0:          onto 0 plus a hair, likewise: a plain learner has no tolerance

The geometry is the agents' own, on the hyperboloid, from the textbook: it shares no line with the service's, and so it
checks it. The translation that takes p to the origin takes h = (1+‖x‖², 2x)/(1−‖x‖²) to (cosh r, sinh(r) a/r), where
a = σ_p log_p(x) and r = ‖a‖ = d(p,x). The way there loses eps·σ_p·σ_x, the way back eps·σ_p·cosh r; hence the
long doubles. Budgets are lengths of the model's curvature; inside, all is in the unit ball. An agent that would have to
leave the ball's radius limit stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Long = NDArray[np.longdouble]
Signs = NDArray[np.int8]

RADIUS_LIMIT = 12.25  # the service refuses points further from the origin, in the unit ball
HAIR = 1e-12
TOLERANCE = 1e-9  # within this, relative to max(α, r), a point is on a strategic threshold
EPS = float(np.finfo(np.float64).eps)
GREED = 3.0  # how many times its budget an over-budget agent spends
NOISE = 0.05  # how far a noisy agent strays, in budgets


@dataclass(frozen=True)
class Model:
    """A published classifier: what `GET /sessions/{id}/model` answers, checked."""

    algorithm: str
    curvature: float
    labels: tuple[str | int, ...]
    reference: Array
    weights: Array
    sigma: float  # σ_p
    budget: float | None  # α, or the service's estimate of it; strategic only
    threshold: float | None  # α/σ_p
    version: int

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Model:
        if told["reference"] is None:
            raise ValueError(f"a {told['algorithm']} model has no reference point to measure an agent's cost at")
        if len(told["labels"]) != 2:
            raise ValueError(f"agents want one of two labels; this model has {len(told['labels'])}")
        return cls(
            algorithm=told["algorithm"],
            curvature=float(told["curvature"]),
            labels=tuple(told["labels"]),
            reference=np.array(told["reference"], dtype=np.float64),
            weights=np.array(told["weights"], dtype=np.float64),
            sigma=float(told["sigma"]),
            budget=told["budget"],
            threshold=told["threshold"],
            version=int(told["version"]),
        )

    def __post_init__(self) -> None:
        if self.weights.shape != self.reference.shape:
            raise ValueError(f"the model has {self.weights.size} weights but {self.reference.size} dimensions")
        sigma = float(1 + hyperboloid(self.unit_reference)[0])
        if not math.isclose(self.sigma, sigma, rel_tol=8 * EPS * sigma):
            raise ValueError(f"the model's sigma is {self.sigma!r}, that of its reference point {sigma!r}")

    @property
    def unit_reference(self) -> Array:
        """p in the unit ball"""
        return self.reference * math.sqrt(self.curvature)

    @property
    def bar(self) -> float:
        """σ_p times the threshold, in the unit ball: what ⟨w,a⟩/‖w‖ has to reach"""
        return 0.0 if self.threshold is None else self.threshold * self.sigma * math.sqrt(self.curvature)


@dataclass(frozen=True)
class Response:
    X: Array  # the points shown
    moved: NDArray[np.bool_]
    cost: Array  # in gains: a rational agent pays at most 1


@dataclass(frozen=True)
class Population:
    """Agents: where they truly are, what they truly are, what they can spend, and how they behave."""

    X: Array
    y: Signs
    budget: float
    mix: Mapping[str, float] = field(default_factory=lambda: {"rational": 1.0})  # kind: share

    def __post_init__(self) -> None:
        if unknown := set(self.mix) - set(KINDS):
            raise ValueError(f"there is no kind of agent {unknown.pop()!r}; there are {', '.join(KINDS)}")
        if len(self.X) != len(self.y):
            raise ValueError(f"{len(self.X)} agents but {len(self.y)} labels")
        _budget(self.budget)

    def cast(self, rng: np.random.Generator) -> NDArray[np.str_]:
        """The kind of each agent, drawn from the mix"""
        shares = np.array(list(self.mix.values()), dtype=np.float64)
        return rng.choice(list(self.mix), size=len(self.X), p=shares / shares.sum())


# ------------------------------------------------------------------------------------- geometry


def hyperboloid(x: ArrayLike) -> Long:
    """h = (1+‖x‖², 2x)/(1−‖x‖²)"""
    x = np.asarray(x, dtype=np.longdouble)
    xx = (x * x).sum(axis=-1, keepdims=True)
    return np.asarray(np.concatenate([1 + xx, 2 * x], axis=-1) / (1 - xx))


def translate(p: Long, h: Long) -> Long:
    """The Lorentz boost that takes p to (1, 0):  h₀' = p₀h₀ − ⟨p_s,h_s⟩,  h_s' = h_s − p_s(h₀ + h₀')/(1+p₀)"""
    time = p[..., :1] * h[..., :1] - (p[..., 1:] * h[..., 1:]).sum(axis=-1, keepdims=True)
    space = h[..., 1:] - p[..., 1:] * (h[..., :1] + time) / (1 + p[..., :1])
    return np.concatenate([time, space], axis=-1)


def arrows(p: ArrayLike, X: ArrayLike) -> Long:
    """a = σ_p log_p(x)"""
    z = translate(hyperboloid(p), hyperboloid(X))[..., 1:]  # sinh(r) a/r
    length = _norm(z)
    return np.asarray(z * np.divide(np.arcsinh(length), length, out=np.ones_like(length), where=length > 0))


def points(p: ArrayLike, A: ArrayLike) -> Long:
    """x with σ_p log_p(x) = a"""
    A = np.asarray(A, dtype=np.longdouble)
    r = _norm(A)
    z = A * np.divide(np.sinh(r), r, out=np.ones_like(r), where=r > 0)
    back = hyperboloid(-np.asarray(p))  # the translation by −p is the inverse
    h = translate(back, np.concatenate([np.cosh(r), z], axis=-1))
    return np.asarray(h[..., 1:] / (1 + h[..., :1]))


def _norm(A: Long) -> Long:
    return np.asarray(np.sqrt((A * A).sum(axis=-1, keepdims=True)))


# ------------------------------------------------------------------------------------ behaviour


def best_response(X: ArrayLike, model: Model, budget: float) -> Array:
    """Where rational agents with these true points and this budget go"""
    X, alpha = _points(X, model), _budget(budget) * math.sqrt(model.curvature)
    if not model.weights.any():
        return X  # all is positive
    A, n = arrows(model.unit_reference, X * math.sqrt(model.curvature)), _direction(model)
    missing = model.bar - A @ n
    moves = (missing > 0) & (missing <= alpha * (1 + HAIR))
    if model.threshold is None:
        missing = missing + HAIR + 16 * EPS * model.sigma * (1 + _norm(A)[:, 0])  # what writing it down may lose
    return _shifted(X, A, np.where(moves, missing, 0)[:, None] * n, model)


def gain(X: ArrayLike, model: Model) -> Array:
    """1 where the model calls a point positive, else 0"""
    X = _points(X, model)
    if not model.weights.any():
        return np.ones(len(X))
    A = arrows(model.unit_reference, X * math.sqrt(model.curvature))
    slack = 0.0 if model.threshold is None else TOLERANCE * np.maximum(model.bar, _norm(A)[:, 0])
    return np.asarray(A @ _direction(model) >= model.bar - slack, dtype=np.float64)


def cost(X: ArrayLike, shown: ArrayLike, model: Model, budget: float) -> Array:
    """σ_p‖u−v‖/α"""
    p, root = model.unit_reference, math.sqrt(model.curvature)
    away = arrows(p, _points(X, model) * root) - arrows(p, _points(shown, model) * root)
    return (_norm(away)[:, 0] / (_budget(budget) * root)).astype(np.float64)


def respond(
    X: ArrayLike,
    kinds: ArrayLike,
    model: Model,
    budget: float,
    rng: np.random.Generator,
    older: Model | None = None,
) -> Response:
    """What agents of these kinds show to this model, and what it costs them; the late ones answer an `older` one."""
    X, kinds = _points(X, model), np.asarray(kinds)
    shown = X.copy()
    for kind in sorted(set(kinds.tolist())):
        rows = kinds == kind
        shown[rows] = KINDS[kind](X[rows], model, older or model, budget, rng)
    moved = (shown != X).any(axis=1)
    return Response(shown, moved, np.where(moved, cost(X, shown, model, budget), 0.0))


def _noisy(X: Array, model: Model, older: Model, budget: float, rng: np.random.Generator) -> Array:
    """rational, but its hand trembles"""
    X = best_response(X, model, budget)
    A = arrows(model.unit_reference, X * math.sqrt(model.curvature))
    return _shifted(X, A, NOISE * budget * math.sqrt(model.curvature) * rng.standard_normal(X.shape), model)


Kind = Callable[[Array, Model, Model, float, np.random.Generator], Array]
KINDS: dict[str, Kind] = {
    "rational": lambda X, model, older, budget, rng: best_response(X, model, budget),
    "honest": lambda X, model, older, budget, rng: X,
    "noisy": _noisy,
    "over_budget": lambda X, model, older, budget, rng: best_response(X, model, GREED * budget),
    "late": lambda X, model, older, budget, rng: best_response(X, older, budget),
}


def _shifted(X: Array, A: Long, steps: ArrayLike, model: Model) -> Array:
    """The points at a + step; those without a step, and those that would leave the ball's limit, as they are"""
    steps = np.asarray(steps, dtype=np.longdouble)
    moved = points(model.unit_reference, A + steps).astype(np.float64)
    inside = np.linalg.norm(moved, axis=1) < math.tanh(RADIUS_LIMIT / 2) * (1 - 4 * EPS)
    return np.where((inside & steps.any(axis=1))[:, None], moved / math.sqrt(model.curvature), X)


def _direction(model: Model) -> Long:
    w = model.weights.astype(np.longdouble)
    return np.asarray(w / _norm(w))


def _points(X: ArrayLike, model: Model) -> Array:
    X = np.atleast_2d(np.asarray(X, dtype=np.float64))
    if X.shape[1] != model.reference.size:
        raise ValueError(f"an agent has {X.shape[1]} coordinates, the model {model.reference.size}")
    if not (np.linalg.norm(X, axis=1) * math.sqrt(model.curvature) < 1).all():
        raise ValueError("an agent is not in the ball")
    return X


def _budget(budget: float) -> float:
    if not 0 < budget < math.inf:
        raise ValueError(f"the budget is {budget!r}; it must be a positive number")
    return budget
