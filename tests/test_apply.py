"""What a commit comes to, without a store: requests in order, each point predicted and learned as if it came alone."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from service.api.schemas import OpenSession
from service.batch import reference_point
from service.errors import StaleModel
from service.geometry import Array
from service.learners import encode
from service.sessions.apply import Applied, apply
from service.sessions.beginnings import Past
from service.sessions.measure import measured
from service.sessions.opening import first_session
from service.sessions.records import Counters, Kind, Loaded
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch, joined
from service.sessions.spec import Spec
from tests.storing import bits
from tests.strategies import points

SESSIONS: dict[str, dict[str, Any]] = {
    "perceptron": {"algorithm": "perceptron", "reference": [0.2, -0.1], "curvature": 0.5},
    "second order": {"algorithm": "second_order"},
    "second order, a=0": {"algorithm": "second_order", "a": 0},
    "strategic": {"algorithm": "strategic", "budget": 0.5},
    "strategic, estimating": {"algorithm": "strategic", "budget": {"estimate": {"initial": 2.0}}},
    "hyperboloid": {"algorithm": "hyperboloid"},
    "three classes": {"algorithm": "perceptron", "labels": ["a", "b", "c"]},
    "three classes, second order": {"algorithm": "second_order", "labels": [1, 2, 3]},
    "three classes, hyperboloid": {"algorithm": "hyperboloid", "labels": [1, 2, 3]},
    "hemisphere": {"algorithm": "perceptron", "reference": None},
    "hemisphere, last iterate": {"algorithm": "second_order", "reference": None, "average": False, "curvature": 0.5},
    "three classes, hemisphere": {"algorithm": "second_order", "reference": None, "labels": [1, 2, 3]},
    "softmax": {"algorithm": "softmax", "reference": None, "refit": "none", "labels": [1, 2, 3]},
    "gaussian": {"algorithm": "gaussian", "reference": None},
    "auto": {"algorithm": "auto", "reference": None, "refit": "none"},
    "three classes, auto": {"algorithm": "auto", "reference": None, "refit": "none", "labels": [1, 2, 3]},
}
sessions = pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())


def begun(**session: Any) -> Loaded:
    return first_session(OpenSession(**{"dimension": 2, "reference": "origin", **session}).spec())


def stream(spec: Spec, n: int, seed: int = 0) -> Batch:
    """Clusters around the disk, and some labels wrong"""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, len(spec.labels), size=n)
    angle = 0.3 + 2 * np.pi * indices / len(spec.labels) / 3
    X = 0.55 * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.3 * points(rng, n, 2, 1.5)
    return Batch(X / np.sqrt(spec.curvature), np.where(rng.random(n) < 0.1, 0, indices))


def by_hand(before: Loaded, requests: list[Request]) -> tuple[list[Answer | int], Any, Counters, Batch]:
    """The definition, a point at a time: an answer each, or the version that a stale one is refused with"""
    spec, state, c, taken = before.spec, before.state, before.counters, list[Batch]()
    told: list[Answer | int] = []
    for request in requests:
        if request.if_match not in (None, c.version):
            told.append(c.version)
            continue
        scores, mistakes = list[Any](), 0
        for i in range(len(request.batch)):
            one = request.batch[i : i + 1]
            answers = request.if_match is not None  # this very classifier, which estimates learn from
            outcome = spec.learner.observe(state, one.X, spec.targets(one.indices), until_change=answers)
            wrong, changed = int(spec.decide(outcome.scores)[0] != one.indices[0]), int(outcome.changed[0])
            k = c.updates + int(outcome.updated[0])
            state, c = outcome.state, Counters(c.observed + 1, c.mistakes + wrong, k, c.version + changed)
            scores, mistakes = [*scores, outcome.scores[0]], mistakes + wrong
            taken.append(one)
            if changed and request.if_match is not None:
                break
        told.append(Answer(np.array(scores), len(scores), mistakes, c))
    return told, state, c, joined(taken)


def agree(applied: Applied, before: Loaded, requests: list[Request]) -> None:
    told, state, counters, taken = by_hand(before, requests)
    assert len(applied.results) == len(told)
    for found, expected in zip(applied.results, told, strict=True):
        if isinstance(expected, int):
            assert isinstance(found, StaleModel) and found.version == expected
            continue
        assert isinstance(found, Answer) and isinstance(expected, Answer)
        assert found.scores is not None and expected.scores is not None
        assert np.array_equal(found.scores, expected.scores)
        assert replace(found, scores=None) == replace(expected, scores=None)
    entry, after = applied.change.entry, applied.change.after
    assert (encode(after.state), after.counters) == (encode(state), counters)
    assert entry is not None and entry.batch is not None
    assert (entry.kind, entry.counters, entry.points) == (Kind.POINTS, counters, len(taken))
    assert np.array_equal(entry.batch.X, taken.X) and np.array_equal(entry.batch.indices, taken.indices)
    assert entry.first == before.counters.observed
    wrong = entry.predicted != taken.indices
    assert int(wrong.sum()) == counters.mistakes - before.counters.mistakes
    assert after.tally.seen == counters.observed
    assert int(np.sum(measured(after)["confusion"])) == counters.observed


@sessions
def test_gathered_requests_are_learned_as_if_each_point_came_alone(session: dict[str, Any]) -> None:
    before = begun(**session)
    batch = stream(before.spec, 120)
    before = apply(before, [Request(batch[:20])]).change.after
    requests = [Request(batch[20:21]), Request(batch[21:70]), Request(batch[70:71]), Request(batch[71:])]
    applied = apply(before, requests)
    agree(applied, before, requests)
    assert not applied.change.entry.matched  # type: ignore[union-attr]
    after = before
    for request in requests:
        after = apply(after, [request]).change.after
    assert bits(after) == bits(applied.change.after)


@sessions
def test_if_match_is_held_to_the_version_of_its_turn(session: dict[str, Any]) -> None:
    """Plain requests and ones with If-Match in one commit, for many orders and versions named"""
    before = begun(**session)
    rng, seen = np.random.default_rng(7), {"refused": 0, "cut short": 0, "taken whole": 0}
    for seed in range(25):
        batch, requests, at = stream(before.spec, 60, seed), list[Request](), 0
        while at < 60:
            size = int(rng.integers(1, 12))
            version = before.counters.version + int(rng.integers(0, 4))
            requests.append(Request(batch[at : at + size], if_match=version if rng.random() < 0.6 else None))
            at += size
        applied = apply(before, requests)
        agree(applied, before, requests)
        entry = applied.change.entry
        assert entry is not None
        pairs = [(r, a) for r, a in zip(requests, applied.results, strict=True) if isinstance(a, Answer)]
        pairs = [(r, a) for r, a in pairs if r.if_match is not None]
        assert [(m.if_match, m.accepted, m.version) for m in entry.matched] == [
            (r.if_match, a.accepted, a.counters.version) for r, a in pairs
        ]
        places = [a.counters.observed - a.accepted - before.counters.observed for _, a in pairs]
        assert [m.first for m in entry.matched] == places
        seen["refused"] += sum(isinstance(a, StaleModel) for a in applied.results)
        seen["cut short"] += sum(a.accepted < len(r.batch) for r, a in pairs)
        seen["taken whole"] += sum(a.accepted == len(r.batch) for r, a in pairs)
        before = applied.change.after
    assert all(seen.values()), seen


def test_when_all_are_refused_nothing_is_written() -> None:
    before = begun()
    before = apply(before, [Request(stream(before.spec, 50))]).change.after
    stale = Request(stream(before.spec, 5), if_match=before.counters.version + 1)
    applied = apply(before, [stale, replace(stale, if_match=0)])
    assert [type(each) for each in applied.results] == [StaleModel, StaleModel]
    assert applied.change.entry is None and applied.change.after is before


def test_an_answer_without_columns_has_no_scores_and_true_points_stay_beside_theirs() -> None:
    before = begun()
    batch = stream(before.spec, 6)
    moved = Batch(batch.X[:2], batch.indices[:2], truth=batch.X[:2] / 2)
    applied = apply(before, [Request(moved, columns=False), Request(batch[2:])])
    first, second = applied.results
    assert isinstance(first, Answer) and isinstance(second, Answer)
    assert first.scores is None and second.scores is not None and len(second.scores) == 4
    entry = applied.change.entry
    assert entry is not None and entry.batch is not None and entry.batch.truth is not None
    assert np.array_equal(entry.batch.truth[:2], batch.X[:2] / 2) and np.isnan(entry.batch.truth[2:]).all()


def test_the_entry_names_the_position_where_drift_was_found() -> None:
    """A rule that is learned, and then turned round at position 2,000"""
    before = begun(algorithm="perceptron")
    rng = np.random.default_rng(0)
    X = points(rng, 3000, 2, 3.0)
    side = (X[:, 0] > 0).astype(np.int64)
    first = apply(before, [Request(Batch(X[:2000], side[:2000]))]).change
    noise = rng.integers(0, 2, size=1000)
    second = apply(first.after, [Request(Batch(X[2000:2500], noise[:500])), Request(Batch(X[2500:], noise[500:]))])
    assert first.entry is not None and first.entry.alarms == ()
    assert second.change.entry is not None
    [alarm, *_] = second.change.entry.alarms
    assert 2000 < alarm <= 3000
    assert second.change.after.tally.last_alarm == second.change.entry.alarms[-1]


# ---------------------------------------------------------------------------------------------- warm-up

WARMING = {
    "perceptron": {"algorithm": "perceptron"},
    "second order": {"algorithm": "second_order", "keep_points": 60},
    "three classes": {"algorithm": "perceptron", "labels": ["a", "b", "c"]},
}


@pytest.mark.parametrize("session", WARMING.values(), ids=WARMING.keys())
@pytest.mark.parametrize("sizes", [[120], [59, 61], [40, 15, 15, 50], [1] * 120], ids=["one", "two", "some", "singles"])
def test_a_session_goes_live_in_the_middle_of_a_commit(session: dict[str, Any], sizes: list[int]) -> None:
    """Both inside one request and between gathered ones; what it goes live with is learned from the points before"""
    before = begun(**session, reference={"learn": {"warmup": 60, "method": "closest"}})
    spec, batch = before.spec, stream(before.spec, 120)
    cuts = np.cumsum([0, *sizes]).tolist()
    requests = [Request(batch[a:b]) for a, b in pairwise(cuts)]
    applied = apply(before, requests, past=Past(batch[:0]))
    entry, after = applied.change.entry, applied.change.after
    assert entry is not None
    [replaced] = entry.replaced
    n = replaced.after
    assert 60 <= n < 120
    past, y = batch[max(0, n - spec.keep_points) : n], spec.targets(batch.indices)
    cold = spec.learner.observe(spec.first_state(), batch.X[:n], y[:n])
    if spec.binary:
        learned = reference_point.learn(past.X, spec.targets(past.indices), "closest", c=spec.curvature)
        warm = replace(spec, reference=tuple(learned.p)).first_state()
        replayed = spec.learner.observe(warm, past.X, spec.targets(past.indices))
        assert encode(replaced.state) == encode(replayed.state)
        assert after.state.p.any()
    live = spec.learner.observe(replaced.state, batch.X[n:], y[n:])
    assert encode(after.state) == encode(live.state)
    assert (before.status, after.status, entry.status) == ("warming", "live", "live")
    answers = [each for each in applied.results if isinstance(each, Answer) and each.scores is not None]
    assert np.array_equal(np.concatenate([a.scores for a in answers]), np.concatenate([cold.scores, live.scores]))
    assert after.counters.version == int(cold.changed[:-1].sum()) + 1 + int(live.changed.sum())
    k = int((spec.decide(live.scores) != batch.indices[n:]).sum()) if spec.binary else int(live.changed.sum())
    assert after.counters.updates == replaced.updates + k

    apart = before
    for at, request in zip(cuts, requests, strict=False):
        apart = apply(apart, [request], past=Past(batch[:at])).change.after
    assert bits(apart) == bits(after)


def test_going_live_changes_the_version_that_if_match_waits_for() -> None:
    before = begun(reference={"learn": {"warmup": 60, "method": "closest"}})
    batch, past, going = stream(before.spec, 120), 0, False
    while before.status == "warming":
        version = before.counters.version
        applied = apply(
            before, [Request(batch[past:], if_match=version), Request(batch[:1], if_match=version)], Past(batch[:past])
        )
        taken, stale = applied.results
        assert isinstance(taken, Answer) and isinstance(stale, StaleModel)
        assert taken.counters.version == stale.version == version + 1
        before, past = applied.change.after, past + taken.accepted
        assert applied.change.entry is not None
        going = bool(applied.change.entry.replaced)
    assert going and past == before.counters.observed >= 60
    assert applied.change.entry.replaced[0].after == taken.accepted  # type: ignore[union-attr]


def test_while_too_few_points_are_there_it_goes_on_warming() -> None:
    before = begun(reference={"learn": {"warmup": 60, "method": "closest"}})
    batch = stream(before.spec, 59)
    change = apply(before, [Request(batch)], past=Past(batch[:0])).change
    assert change.after.status == "warming" and change.entry is not None
    assert (change.entry.status, change.entry.replaced) == ("warming", ())
    of_one_class = Batch(batch.X, np.zeros(59, dtype=np.int64))
    change = apply(change.after, [Request(of_one_class)], past=Past(of_one_class)).change
    assert change.after.status == "warming"


# ------------------------------------------------------------------------------------- keep_points=0, purity


def test_without_kept_points_an_entry_counts_them_and_holds_none() -> None:
    kept, none = begun(), begun(keep_points=0)
    batch = stream(kept.spec, 50)
    requests = [Request(batch[:30]), Request(batch[30:], if_match=10**6)]
    with_rows, without = apply(kept, requests), apply(none, requests)
    entry = without.change.entry
    assert entry is not None
    assert (entry.batch, entry.predicted, entry.replaced) == (None, None, ())
    assert (entry.points, entry.counters.observed, entry.first) == (30, 30, 0)
    assert bits(without.change.after) == bits(with_rows.change.after)
    first, again = with_rows.results[0], without.results[0]
    assert isinstance(first, Answer) and isinstance(again, Answer)
    assert first.counters == again.counters


def arrays(value: Any) -> list[Array]:
    """Every array that can be reached from a record"""
    if isinstance(value, np.ndarray):
        return [value]
    found = value if isinstance(value, tuple) else ()
    if is_dataclass(value):
        found = tuple(getattr(value, each.name) for each in fields(value))
    return [array for each in found for array in arrays(each)]


@sessions
def test_apply_changes_nothing_that_it_was_given(session: dict[str, Any]) -> None:
    before = begun(**session)
    batch = stream(before.spec, 1500)
    before = apply(before, [Request(batch[:1100])]).change.after
    held, copies = arrays(before), [array.copy() for array in arrays(before)]
    assert len(held) >= 4  # the learner's and the tally's
    was = deepcopy(bits(before))
    requests = [Request(batch[1100:1400]), Request(batch[1400:], if_match=3)]
    given = [array.copy() for array in arrays(batch)]
    first, second = apply(before, requests), apply(before, requests)
    assert bits(before) == was
    assert all(np.array_equal(a, b) for a, b in zip(held, copies, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(arrays(batch), given, strict=True))
    assert bits(first.change.after) == bits(second.change.after) != was


# ------------------------------------------------------------------------------- what it needs

ALONE = """
import importlib, pkgutil, sys
import service.sessions
for module in pkgutil.iter_modules(service.sessions.__path__, "service.sessions."):
    importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
print(*sorted(name for name in sys.modules if name.startswith("service.sessions.")))
"""


def test_sessions_load_neither_redis_nor_a_web_framework() -> None:
    ran = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, timeout=120)
    packages, modules = (set(line.split()) for line in ran.stdout.splitlines())
    assert {"service.sessions.apply", "service.sessions.snapshot", "service.sessions.forking"} <= modules
    assert "numpy" in packages  # it looked
    foreign = {"redis", "hiredis", "starlette", "fastapi", "pydantic", "uvicorn", "httpx"}
    assert not packages & foreign
