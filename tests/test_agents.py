"""The agents and the service, each by its own geometry, agree; and the agents are as rational as they claim."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients import scenarios
from clients.agents import (
    GREED,
    KINDS,
    Model,
    Population,
    arrows,
    best_response,
    cost,
    gain,
    points,
    respond,
)
from clients.scenarios import load, separable
from service import geometry as g
from service.api.schemas import OpenSession
from service.errors import PointOutsideBall
from service.geometry import Array
from service.learners import perceptron, strategic
from service.learners.certificates import corrected_radius
from service.sessions.published import published
from service.sessions.spec import Spec
from tests.strategies import directions, generators
from tests.strategies import points as ball_points

EPS = float(np.finfo(np.float64).eps)
LONG = float(np.finfo(np.longdouble).eps)
LEARNERS: dict[str, Any] = {"strategic": strategic, "perceptron": perceptron}


def opened(algorithm: str, p: Any, budget: Any = 1.0, c: float = 1.0, labels: Any = (-1, 1)) -> Spec:
    body = {"algorithm": algorithm, "dimension": len(p), "reference": list(p), "curvature": c, "labels": list(labels)}
    return OpenSession.model_validate({**body, **({"budget": budget} if algorithm == "strategic" else {})}).spec()


def model_of(spec: Spec, state: Any, version: int = 0) -> Model:
    """As it comes over the wire"""
    return Model.from_json(json.loads(json.dumps({**published(spec, state), "version": version})))


def classifier(
    rng: np.random.Generator, algorithm: str, d: int = 2, budget: float = 1.0, c: float = 1.0, far: float = 2.0
) -> tuple[Model, Any]:
    """Somewhere, with some weights"""
    spec = opened(algorithm, ball_points(rng, 1, d, far)[0] / math.sqrt(c), budget, c)
    state = replace(spec.first_state(), w=rng.normal(size=d))
    return model_of(spec, state), state


def over_the_wire(X: Array) -> Array:
    return np.array(json.loads(json.dumps(X.tolist())))


# ------------------------------------------------------------------------------------- geometry


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rng=generators, d=st.sampled_from([1, 2, 10, 300]), far=st.floats(0, 12), near=st.floats(0, 12))
def test_the_two_geometries_agree(rng: np.random.Generator, d: int, far: float, near: float) -> None:
    """σ_p log_p(x) on the hyperboloid in long doubles and in the ball in doubles: the ball's own eps·σ apart"""
    p, X = ball_points(rng, 1, d, near)[0], ball_points(rng, 20, d, far)
    a = arrows(p, X)
    sigma, reach = float(g.conformal_factor(p)), g.conformal_factor(X)
    tolerance = (16 * EPS * (sigma + reach) + 16 * LONG * sigma * reach) * (1 + g.distance(p, X))
    assert (np.linalg.norm(a - sigma * g.log_map(p, X), axis=1) <= tolerance).all()
    back = points(p, a).astype(np.float64)
    assert (g.distance(back, X) <= 8 * (EPS * reach + LONG * sigma * np.cosh(g.distance(p, X)))).all()


def test_at_the_reference_point_nothing_is_divided_by_0() -> None:
    p = np.array([0.3, -0.2])
    assert np.abs(arrows(p, p)).max() <= 4 * LONG * float(g.conformal_factor(p)) ** 2
    assert points(p, np.zeros(2)).astype(np.float64) == pytest.approx(p, abs=EPS)


# ------------------------------------------------------------------------------------ rationality


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rng=generators, algorithm=st.sampled_from(list(LEARNERS)), budget=st.sampled_from([0.3, 1.0, 2.5]))
def test_no_other_answer_is_worth_more(rng: np.random.Generator, algorithm: str, budget: float) -> None:
    """On a fine grid around the agent: the service's own verdict, less the cost by the service's geometry"""
    model, state = classifier(rng, algorithm, budget=budget)
    p = state.p
    along = rng.uniform(-1.5 * budget, 2.5 * budget)  # in reach of 0 or of the threshold, or not
    n = state.w / np.linalg.norm(state.w)
    sigma = float(g.conformal_factor(p))
    x = g.exp_map(p, (along * n + rng.normal() * np.array([-n[1], n[0]])) / sigma)

    def utility(shown: Array) -> Array:
        spent = sigma * np.linalg.norm(g.log_map(p, shown) - g.log_map(p, x), axis=-1) / budget
        return np.asarray((LEARNERS[algorithm].predict(state, shown) > 0) - spent)

    r, angle = np.meshgrid(np.linspace(0, 1.3 * budget, 131), np.linspace(0, 2 * np.pi, 145))
    steps = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=-1).reshape(-1, 2) / sigma
    grid = g.exp_map(p, g.log_map(p, x) + steps)
    answer = best_response(x, model, budget)
    best = utility(over_the_wire(answer))[0]
    assert best >= utility(grid).max() - 1e-9
    assert best <= max(utility(grid).max(), 0) + 0.02  # and the grid knows nothing much worse
    assert gain(answer, model)[0] == (LEARNERS[algorithm].predict(state, answer) > 0)[0]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rng=generators,
    algorithm=st.sampled_from(list(LEARNERS)),
    budget=st.sampled_from([0.01, 0.5, 3.0]),
    c=st.sampled_from([0.5, 1.0, 3.0]),
    d=st.sampled_from([1, 2, 20]),
    far=st.sampled_from([0.0, 2.0, 5.0]),
)
def test_who_moves_is_called_positive(
    rng: np.random.Generator, algorithm: str, budget: float, c: float, d: int, far: float
) -> None:
    """Exactly on the strategic threshold, a hair beyond a plain boundary; for no more than the budget, along w only"""
    root = math.sqrt(c)
    model, state = classifier(rng, algorithm, d=d, budget=budget / root, c=c, far=far)
    A = directions(rng, 200, d) * rng.uniform(0, 3, (200, 1))
    n = state.w / np.linalg.norm(state.w)
    A += (rng.uniform(-1.5, 1.5, 200) * budget - A @ n)[:, None] * n
    X = g.exp_map(state.p, A / g.conformal_factor(state.p)) / root
    shown = over_the_wire(best_response(X, model, budget / root))
    moved = (shown != X).any(axis=1)

    bar = budget if algorithm == "strategic" else 0.0
    v = np.asarray(arrows(state.p, X * root), dtype=np.float64)  # as rounded; the rules are checked by what was asked
    near = np.abs([v @ n - bar, v @ n - bar + budget]).min(axis=0) < 1e-9
    expected = (v @ n < bar) & (v @ n >= bar - budget)
    assert (moved == expected)[~near].all()
    if algorithm == "strategic":
        assert (strategic.score(state, shown[moved]) == 0).all()
    else:
        assert (perceptron.score(state, shown[moved]) > 0).all()
    way = np.asarray(arrows(state.p, shown * root), dtype=np.float64) - v
    off = np.linalg.norm(way - (way @ n)[:, None] * n, axis=1)
    written = 16 * EPS * g.conformal_factor(shown * root) + 1e-15
    assert (off <= written).all()
    assert ((way @ n)[moved] <= budget + 1e-9).all()
    assert moved.any() and not moved.all()


def test_far_out_the_hair_is_thicker_than_what_writing_a_point_down_loses() -> None:
    rng = np.random.default_rng(0)
    spec = opened("perceptron", [math.tanh(11 / 2), 0.0])
    for _ in range(20):
        state = replace(spec.first_state(), w=rng.normal(size=2))
        X = g.exp_map(state.p, 0.4 * directions(rng, 100, 2) / g.conformal_factor(state.p))
        shown = over_the_wire(best_response(X, model_of(spec, state), 1.0))
        assert (perceptron.predict(state, shown) > 0).all()


def test_an_agent_that_would_leave_the_ball_stays() -> None:
    model = model_of(spec := opened("strategic", [0.0, 0.0], 2.0), replace(spec.first_state(), w=np.array([1.0, 0.0])))
    near, far = (g.exp_map(np.zeros(2), [0.5, y]) for y in (5.0, 6.08))  # 1 below the threshold, 10.05 and 12.2 out
    shown = best_response([near, far], model, 2.0)
    assert (shown[0] != near).any()
    assert np.array_equal(shown[1], far)
    with pytest.raises(PointOutsideBall):
        g.require_ball(g.exp_map(np.zeros(2), [1.0, 6.08]))


def test_before_anything_is_learned_nobody_moves() -> None:
    model = model_of(spec := opened("strategic", [0.0, 0.0]), spec.first_state())
    X = ball_points(np.random.default_rng(0), 20, 2, 3.0)
    assert np.array_equal(best_response(X, model, 1.0), X)
    assert gain(X, model).all()


# ------------------------------------------------------------------------------------------ kinds


@pytest.mark.parametrize("c", [1.0, 2.0])
def test_what_each_kind_does_and_pays(c: float) -> None:
    rng = np.random.default_rng(5)
    budget = 0.6
    model, state = classifier(rng, "strategic", budget=budget, c=c)
    older, _ = classifier(rng, "strategic", budget=budget, c=c)
    older = replace(older, reference=model.reference, sigma=model.sigma, threshold=model.threshold)
    X = ball_points(rng, 500, 2, 3.0) / math.sqrt(c)
    shown = {kind: respond(X, np.full(500, kind), model, budget, rng, older) for kind in KINDS}
    p, sigma = model.reference, model.sigma
    for kind, answer in shown.items():
        spent = sigma * np.linalg.norm(g.log_map(p, answer.X, c=c) - g.log_map(p, X, c=c), axis=1) / budget
        assert np.abs(answer.cost - spent).max() <= 1e-11, kind
        assert np.array_equal(answer.moved, (answer.X != X).any(axis=1))
        assert (answer.cost[~answer.moved] == 0).all()
    rational, greedy = shown["rational"], shown["over_budget"]
    assert rational.moved.any() and (rational.cost <= 1 + 1e-9).all()
    assert (strategic.score(state, rational.X[rational.moved]) == 0).all()
    assert not shown["honest"].moved.any()
    assert (greedy.cost > 1).any() and (greedy.cost <= GREED + 1e-9).all()
    assert (strategic.score(state, greedy.X[greedy.moved]) == 0).all()
    assert np.array_equal(shown["late"].X, best_response(X, older, budget))
    assert (shown["late"].X != rational.X).any()
    trembled = g.distance(shown["noisy"].X, rational.X, c=c)
    assert shown["noisy"].moved.all() and 0 < trembled.mean() < budget
    assert set(shown) == set(KINDS)


def test_a_population_is_cast_from_its_mix_and_the_same_rng_gives_the_same_play() -> None:
    X, y = ball_points(np.random.default_rng(0), 10_000, 2, 2.0), np.ones(10_000, np.int8)
    mix = {"rational": 6.0, "honest": 3.0, "noisy": 1.0}
    population = Population(X, y, 0.5, mix)
    kinds = population.cast(np.random.default_rng(1))
    for kind, share in mix.items():  # 5 standard deviations
        assert abs((kinds == kind).mean() - share / 10) < 5 * math.sqrt(share / 10 * (1 - share / 10) / 10_000)
    model, _ = classifier(np.random.default_rng(2), "strategic")
    plays = [respond(X, kinds, model, 0.5, np.random.default_rng(3)).X for _ in range(2)]
    assert np.array_equal(plays[0], plays[1])
    alone = respond(X, np.full(10_000, "rational"), model, 0.5, np.random.default_rng(3)).X
    assert np.array_equal(plays[0][kinds == "rational"], alone[kinds == "rational"])


# ---------------------------------------------------------------------------------------- games


def play(scenario: scenarios.Scenario, algorithm: str, rounds: int, *, budget: Any = None) -> tuple[Any, list[int]]:
    """In process, as over HTTP with If-Match: answer the model, be judged, answer the next one. Mistakes a round."""
    spec = opened(algorithm, scenario.reference.tolist(), budget or scenario.budget, labels=scenario.labels)
    state, learner, mistakes = spec.first_state(), LEARNERS[algorithm], []
    older = model = model_of(spec, state)
    for turn in range(rounds):
        phase, rng = scenario.phase(turn), scenario.rng(turn)
        X, y, kinds = phase.population.X, phase.population.y, phase.population.cast(rng)
        at, wrong = 0, 0
        while at < len(X):
            some = slice(at, at + 50)
            answer = respond(X[some], kinds[some], model, scenario.budget, rng, older)
            outcome = learner.observe(state, over_the_wire(answer.X), y[some], until_change=True)
            wrong += outcome.state.k - state.k
            at, state = at + outcome.accepted, outcome.state
            older, model = model, model_of(spec, state, state.k)
        mistakes.append(wrong)
    return state, mistakes


def test_a_b_c_cheat_the_plain_perceptron_for_ever_and_the_strategic_one_once() -> None:
    scenario = load("abc")
    assert play(scenario, "perceptron", 50)[1][1:] == [2] * 49
    assert play(scenario, "strategic", 50)[1] == [1] + [0] * 49


@pytest.mark.parametrize("name", ["abc", "loans", "taxonomy", "band"])
def test_the_strategic_perceptron_ends_within_the_corrected_bound_and_the_plain_one_does_not_end(name: str) -> None:
    scenario = load(name)
    phase = scenario.phase(0)
    X, y = phase.population.X, phase.population.y
    assert phase.margin is not None
    state, mistakes = play(scenario, "strategic", 30)
    r = float(g.distance(scenario.reference, X).max())
    assert state.k == sum(mistakes) <= (corrected_radius(r, scenario.budget) / math.sinh(phase.margin)) ** 2
    assert mistakes[-5:] == [0] * 5
    assert set(y.tolist()) == {-1, 1}
    assert min(play(scenario, "perceptron", 6)[1][1:]) > 0


def test_the_band_gives_an_unknown_budget_away() -> None:
    """From 4 times too high: never below α, within a tenth of it from above, at most twice the mistakes"""
    for seed in range(2):
        scenario = load("band", seed=seed)
        assert scenario.estimate == 4 * scenario.budget
        known, _ = play(scenario, "strategic", 10)
        state, _ = play(scenario, "strategic", 10, budget={"estimate": {"initial": scenario.estimate}})
        assert scenario.budget <= state.alpha <= 1.1 * scenario.budget
        assert state.k <= 2 * known.k


def test_drift_brings_mistakes_back() -> None:
    scenario = load("drift")
    assert [phase.rounds for phase in scenario.phases] == [6, 6, 6]
    _, mistakes = play(scenario, "strategic", 18)
    assert mistakes[5] == mistakes[11] == 0
    assert mistakes[6] > 0
    assert min(mistakes[12:]) > 0
    assert scenario.phase(5) is scenario.phases[0]
    assert scenario.phase(6) is scenario.phases[1]
    assert scenario.phase(1000) is scenario.phases[2]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(rng=generators, d=st.sampled_from([1, 2, 8]), budget=st.sampled_from([0.2, 1.0, 4.0]))
def test_separable_agents_have_a_strategic_perfect_classifier(rng: np.random.Generator, d: int, budget: float) -> None:
    p, w = ball_points(rng, 1, d, 2.0)[0], rng.normal(size=d)
    X, y = separable(rng, n=150, p=p, w=w, budget=budget, margin=0.1, radius=3.0)
    side = g.signed_distance(p, w, X)
    assert len(X) == len(y) == 150
    assert (y * side >= 0.1 - 16 * EPS * g.conformal_factor(X)).all()
    assert (g.distance(p, X) <= 3 + 16 * EPS * g.conformal_factor(X)).all()
    assert scenarios.margin(X, y, p, w) == pytest.approx(float((y * side).min()), abs=1e-12)
    assert scenarios.margin(X, -y, p, w) is None
    spec = opened("strategic", p.tolist(), budget)
    state = replace(spec.first_state(), w=w)
    shown = over_the_wire(best_response(X, model_of(spec, state), budget))
    assert np.array_equal(strategic.predict(state, shown), y)


def test_a_scenario_is_drawn_from_its_seed() -> None:
    X = [load("loans", seed=seed).phase(0).population.X for seed in (1, 1, 2)]
    assert np.array_equal(X[0], X[1])
    assert not np.array_equal(X[0], X[2])
    assert load("loans").rng(3).random() == load("loans").rng(3).random() != load("loans").rng(4).random()


def test_the_taxonomy_is_a_tree_of_equal_edges() -> None:
    phase = load("taxonomy").phase(0)
    at = dict(zip(phase.names, phase.population.X, strict=True))
    for parent, child in (("animal", "mammal"), ("mammal", "cetacean"), ("cetacean", "whale"), ("bird", "raptor")):
        assert float(g.distance(at[parent], at[child])) == pytest.approx(1.5, rel=1e-12)
    gaps = g.distance(phase.population.X[:, None], phase.population.X)
    assert gaps[np.triu_indices(len(at), 1)].min() > 1.4  # no two nodes are nearer than neighbours are, or hardly
    called = dict(zip(phase.names, phase.population.y.tolist(), strict=True))
    assert [called[name] for name in ("mammal", "whale", "shark", "animal")] == [1, 1, -1, -1]


# ------------------------------------------------------------------------------------- bad input


def wire(**changes: Any) -> dict[str, Any]:
    spec = opened("strategic", [0.1, 0.2])
    return {**published(spec, spec.first_state()), "version": 0, **changes}


def test_bad_input_is_named() -> None:
    model = Model.from_json(wire())
    for budget in (0.0, -1.0, math.nan, math.inf):
        for ask in (
            best_response,
            lambda X, m, b: cost(X, X, m, b),
            lambda X, m, b: Population(X, np.ones(1, np.int8), b),
        ):
            with pytest.raises(ValueError, match=r"the budget is .*; it must be a positive number"):
                ask(np.zeros((1, 2)), model, budget)
    with pytest.raises(ValueError, match="an agent has 3 coordinates, the model 2"):
        best_response([[0.1, 0.2, 0.3]], model, 1.0)
    for outside in ([[1.0, 0.0]], [[math.nan, 0.0]]):
        with pytest.raises(ValueError, match="not in the ball"):
            best_response(outside, model, 1.0)
    with pytest.raises(ValueError, match="3 weights but 2 dimensions"):
        Model.from_json(wire(weights=[1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="no reference point"):
        Model.from_json(wire(algorithm="hyperboloid", reference=None))
    with pytest.raises(ValueError, match="one of two labels; this model has 3"):
        Model.from_json(wire(labels=[1, 2, 3]))
    with pytest.raises(ValueError, match=r"sigma is 2\.5"):
        Model.from_json(wire(sigma=2.5))
    with pytest.raises(ValueError, match="no kind of agent 'sly'"):
        Population(np.zeros((1, 2)), np.ones(1, np.int8), 1.0, {"sly": 1.0})
    with pytest.raises(ValueError, match="2 agents but 1 labels"):
        Population(np.zeros((2, 2)), np.ones(1, np.int8), 1.0)


def test_bad_scenarios_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no scenario 'nope'; there are abc, band, drift, loans, taxonomy"):
        load("nope")
    mine = tmp_path / "mine.toml"
    good = (scenarios.FOLDER / "loans.toml").read_text()
    for text, said in (
        (good.replace("budget", "bucket"), "'budget' is missing"),
        (good.replace("0.6", "-0.6"), "budget is -0.6"),
        (good.replace("radius = 2.5", "radius = 0.1"), "less than the radius"),
        (good.replace("radius = 2.5", "radius = 11.9"), "leave the ball"),
        (good.replace("n = 200", "m = 200"), "unexpected keyword argument 'm'"),
        (good.replace("separable =", "inseparable ="), "the first phase has no agents"),
        ("about = ", "Invalid value"),
    ):
        mine.write_text(text)
        with pytest.raises(ValueError, match=said):
            load(str(mine))
    mine.write_text(good)
    assert load(str(mine)).name == "mine"
