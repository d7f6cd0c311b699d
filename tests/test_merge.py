"""Gaussian sessions add up: what several have learned is what one would have that saw all their points."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import httpx
import numpy as np
import pytest

from clients import Client
from service.api.schemas import OpenSession
from service.learners import gaussian
from service.sessions import snapshot
from service.sessions.apply import apply
from service.sessions.measure import measured
from service.sessions.merging import merged
from service.sessions.opening import first_session
from service.sessions.records import Kept, Loaded
from service.sessions.requests import Request
from service.sessions.rows import Batch, empty
from tests.opening import opened
from tests.problem import require_problem
from tests.running import Running
from tests.storing import bits, stored

EPS = np.finfo(float).eps
#: dimension, classes: full scatters, and diagonals alone
SHAPES = [(2, 2), (5, 4), (200, 60)]


def learned(id: str, points: Batch, K: int) -> Loaded:
    labels: list[bool | int | str] = list(range(K))
    spec = OpenSession(id=id, algorithm="gaussian", dimension=points.X.shape[1], labels=labels).spec()
    return apply(first_session(spec), [Request(points)]).change.after


def some(n: int, d: int, K: int, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, K, n)
    X = rng.normal(scale=0.2, size=(n, d)) / np.sqrt(d) + 0.2 * (indices[:, None] / K - 0.5) / np.sqrt(d)
    assert np.linalg.norm(X, axis=1).max() < 0.99
    return Batch(X, indices)


@pytest.mark.parametrize("d, K", SHAPES)
def test_the_sum_is_what_one_session_would_have(d: int, K: int) -> None:
    """To rounding, however the points are divided; and the same bits however the sessions are named"""
    N = 700
    points = some(N, d, K)
    whole = learned("whole", points, K)
    parts = [learned(f"part{i}", points[cut], K) for i, cut in enumerate((slice(0, 40), slice(40, 300), slice(300, N)))]
    sums = [merged(whole.spec, order) for order in permutations(parts)]
    assert len({str(bits(each)) for each in sums}) == 1
    state, want = sums[0].state, whole.state
    assert np.array_equal(state.n, want.n)
    for name in ("mean", "factor", "diagonal"):
        got, whole_one = getattr(state, name), getattr(want, name)
        assert np.abs(got - whole_one).max(initial=0) <= N * EPS * np.abs(whole_one).max(initial=0)
    assert np.abs(gaussian.score(state, points.X) - gaussian.score(want, points.X)).max() <= 1e-8


@pytest.mark.parametrize("sizes", [(3, 5), (0, 7), (999, 1, 1000), (2500, 3700), (12_345, 40, 0)])
def test_counts_add_up(sizes: tuple[int, ...]) -> None:
    parts = [learned(f"{i}", some(n, 2, 3, seed=i), 3) if n else _fresh(f"{i}") for i, n in enumerate(sizes)]
    found = merged(parts[0].spec, parts)
    for name in ("observed", "mistakes", "updates", "version"):
        assert getattr(found.counters, name) == sum(getattr(each.counters, name) for each in parts)
    told, each = measured(found), [measured(part) for part in parts]
    assert np.array_equal(told["confusion"], np.sum([one["confusion"] for one in each], axis=0))
    tally = found.tally
    assert (tally.seen, tally.window_size) == (sum(sizes), min(sum(sizes), 1000))
    assert tally.loss == pytest.approx(sum(part.tally.loss for part in parts), rel=1e-12)
    assert int(tally.log.astype(int).sum()) + tally.block == found.counters.mistakes
    if all(n <= 1000 * n / sum(sizes) for n in sizes):
        assert tally.window_mistakes == found.counters.mistakes
    # As a snapshot it is checked as if a stranger had written it; and it goes on learning
    document = snapshot.export(Kept(found, empty(2)))
    assert bits(snapshot.read(document, found.spec).loaded) == bits(found)
    after = apply(found, [Request(some(1500, 2, 3, seed=9))]).change.after
    assert after.tally.seen == sum(sizes) + 1500
    assert len(after.tally.log) == after.tally.seen // 1000


def _fresh(id: str) -> Loaded:
    return first_session(OpenSession(id=id, algorithm="gaussian", dimension=2, labels=[0, 1, 2]).spec())


def test_newest_points_are_those_of_each_session_in_proportion() -> None:
    """3,000 points that were all wrong and 1,000 that were all right: of the newest 1,000 are 750 wrong"""
    parts = [learned("bad", some(3000, 2, 3), 3), learned("good", some(1000, 2, 3), 3)]
    full = [np.ones(1000, dtype=np.uint8), np.zeros(1000, dtype=np.uint8)]
    parts = [replace(each, tally=replace(each.tally, window=w)) for each, w in zip(parts, full, strict=True)]
    assert merged(parts[0].spec, parts).tally.window_mistakes == 750


# ------------------------------------------------------------------------------------------------------ over HTTP


def open_parts(http: httpx.Client, **settings: Any) -> list[str]:
    rng, ids = np.random.default_rng(1), []
    for _ in range(2):
        sid = opened(http, {"algorithm": "gaussian", "dimension": 2, "labels": ["a", "b", "c"], **settings})
        points = some(60, 2, 3, seed=int(rng.integers(100)))
        body = {"points": points.X.tolist(), "labels": [["a", "b", "c"][i] for i in points.indices]}
        http.post(f"/sessions/{sid}/observe", json=body).raise_for_status()
        ids.append(sid)
    return ids


def test_sessions_are_merged_over_http_and_go_on(http: httpx.Client, running: Running) -> None:
    ids = open_parts(http)
    answer = http.post("/sessions", json={"merge": {"sessions": ids}, "name": "both"})
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert (told["observed"], told["name"], told["status"], told["algorithm"]) == (120, "both", "live", "gaussian")
    parts = [stored(running.redis_url, each).loaded for each in ids]
    found = stored(running.redis_url, told["id"]).loaded
    assert bits(found) == bits(merged(found.spec, parts))
    assert http.get(f"/sessions/{ids[0]}").json()["observed"] == 60
    body = {"point": [0.1, 0.2], "label": "a"}
    assert http.post(f"/sessions/{told['id']}/observe", json=body).json()["session"]["observed"] == 121
    assert http.get(f"/sessions/{told['id']}/certificate").status_code == 200
    with Client(running.url) as client:
        again = client.sessions.merge([client.sessions.get(ids[1]), ids[0]], name="again")
        assert (again.info.observed, again.info.name) == (120, "again")


def test_what_does_not_add_up_is_refused(http: httpx.Client) -> None:
    ids = open_parts(http)
    other = opened(http, {"algorithm": "softmax", "dimension": 2, "labels": ["a", "b", "c"]})
    wide = opened(http, {"algorithm": "gaussian", "dimension": 3, "labels": ["a", "b", "c"]})
    before = http.get("/sessions").json()
    for sessions, status, slug in [
        ([ids[0], other], 422, "invalid-parameter"),
        ([ids[0], wide], 422, "invalid-parameter"),
        ([ids[0], ids[0]], 422, "invalid-request"),
        ([ids[0]], 422, "invalid-request"),
        ([ids[0], "nobody"], 404, "unknown-session"),
    ]:
        answer = http.post("/sessions", json={"merge": {"sessions": sessions}})
        assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}"), answer.text
    refused = http.post("/sessions", json={"merge": {"sessions": [ids[0], other]}}).json()
    assert "only its sums are the same for every order" in refused["detail"]
    taken = http.post("/sessions", json={"merge": {"sessions": ids}, "id": ids[0]})
    assert taken.json()["type"] == "/problems/session-exists"
    assert http.get("/sessions").json() == before


def test_a_merge_is_bounded_in_bytes(http: httpx.Client) -> None:
    """Each of these has 32 MiB; two may be merged at once"""
    wide = {"algorithm": "gaussian", "dimension": 4096, "labels": list(range(500))}
    ids = [opened(http, wide) for _ in range(3)]
    refused = http.post("/sessions", json={"merge": {"sessions": ids}})
    assert "merge fewer" in require_problem(refused, 422, "invalid-parameter")["detail"]
    assert http.post("/sessions", json={"merge": {"sessions": ids[:2]}}).status_code == 201
