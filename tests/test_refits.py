"""A softmax begins anew from batch fits: where, from what, and the same bits however the stream was cut."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.api.schemas import OpenSession
from service.batch import hemisphere_softmax
from service.learners import auto, encode, softmax
from service.process.private_store import EmbeddedServer
from service.sessions.apply import apply, replay
from service.sessions.beginnings import Past, needs_past
from service.sessions.opening import first_session
from service.sessions.records import Entry, EntryId, Loaded
from service.sessions.refit import SMALL, asked_for, refits
from service.sessions.requests import Request
from service.sessions.rows import Batch
from tests.opening import RAW, opened, raw
from tests.sse import listening
from tests.storing import bits, storing
from tests.streams import rings
from tests.waiting import wait_until

K = 5


def begun(**session: Any) -> Loaded:
    return first_session(OpenSession(**{"dimension": 2, "labels": list(range(K)), **session}).spec())


def streamed(before: Loaded, batch: Batch, cuts: list[int]) -> tuple[Loaded, list[Entry]]:
    """In commits of these sizes, each given what it needs of the past"""
    after, entries = before, list[Entry]()
    for start, stop in pairwise([0, *cuts, len(batch)]):
        keep = before.spec.keep_points
        past = Past(batch[max(0, start - keep) : start]) if needs_past(after, stop - start) else None
        change = apply(after, [Request(batch[start:stop])], past).change
        assert change.entry is not None
        after = change.after
        entries.append(change.entry)
    return after, entries


def some(n: int, seed: int = 0) -> Batch:
    return Batch(*rings(np.random.default_rng(seed), n, K))


@pytest.mark.parametrize("session", [{"algorithm": "softmax"}, {}, {"keep_points": 60}], ids=["softmax", "auto", "few"])
def test_refits_are_at_25_times_powers_of_two_however_the_stream_is_cut(session: dict[str, Any]) -> None:
    before, batch = begun(**session), some(450)
    whole, [entry] = streamed(before, batch, [])
    assert [(each.after, each.reason) for each in entry.replaced] == [(t, "refit") for t in (25, 50, 100, 200, 400)]
    for cuts in ([25], [24, 26, 200], [7, 50, 99, 101, 399, 401], list(range(1, 450))):
        cut, entries = streamed(before, batch, cuts)
        assert bits(cut) == bits(whole)
        replayed = before
        for each in entries:
            replayed = replay(replayed, each)
        assert bits(replayed) == bits(whole)


def test_a_refit_is_the_batch_softmax_of_the_newest_points() -> None:
    before, batch = begun(algorithm="softmax", keep_points=60), some(100)
    _, [entry] = streamed(before, batch, [])
    newest = batch[40:100]
    W = hemisphere_softmax.fit(newest.X, newest.indices, K)
    expected = softmax.init(2, classes=K, W=W, points=newest.X)
    assert encode(entry.replaced[-1].state) == encode(expected)


def test_without_refits_or_points_there_are_none() -> None:
    for session in ({"refit": "none"}, {"keep_points": 0}, {"algorithm": "gaussian"}):
        assert not needs_past(begun(**session), 1000)
    of_one_class = Batch(some(30).X, np.zeros(30, dtype=np.int64))
    _, [entry] = streamed(begun(), of_one_class, [])
    assert entry.replaced == () and entry.skipped == (25,)


def test_large_ones_take_effect_half_as_far_again() -> None:
    spec = begun(dimension=100, labels=list(range(20))).spec
    large = [each for each in refits(spec, 0, 0, 10_000) if not each.small]
    assert [(each.due, each.effect) for each in large] == [(800, 1200), (1600, 2400), (3200, 4800), (6400, 9600)]
    assert min(800, spec.keep_points) * 20 * 102 > SMALL >= 400 * 20 * 102
    assert asked_for(spec, 0, 799, 800) == [800] and asked_for(spec, 0, 800, 1599) == []
    for first, last in [(0, 5000), (799, 800), (1199, 1200), (1200, 1201), (37, 38), (25, 50)]:
        every = [each for each in refits(spec, 0, 0, 10_000) if first < each.effect <= last]
        assert list(refits(spec, 0, first, last)) == every
    assert [each.effect for each in refits(spec, 1000, 1000, 1100)] == [1025, 1050, 1100]


def test_a_large_one_whose_weights_are_not_there_is_left_out() -> None:
    before = begun(dimension=100, labels=list(range(20)))
    rng = np.random.default_rng(3)
    batch = Batch(0.05 * rng.normal(size=(1201, 100)), rng.integers(20, size=1201))
    first = apply(before, [Request(batch[:1000])], Past(batch[:0])).change.after
    W = np.zeros((20, 102))
    for weights, expected in (({}, []), ({800: W}, [1200]), ({400: W}, [])):
        entry = apply(first, [Request(batch[1000:])], Past(batch[:1000], weights)).change.entry
        assert entry is not None
        assert [1000 + each.after for each in entry.replaced] == expected
        assert entry.skipped == (() if expected else (1200,))


# ------------------------------------------------------------------------------------------------- over HTTP


def test_a_session_begins_anew_from_a_large_fit_and_its_log_replays(http: httpx.Client) -> None:
    """d = 100 and twenty classes: the fit at 800 runs as a job, and takes effect at 1,200"""
    rng = np.random.default_rng(5)
    centres = 0.09 * rng.normal(size=(20, 100))
    y = rng.integers(20, size=1300)
    X = centres[y] * 0.5 + 0.02 * rng.normal(size=(1300, 100))
    sid = opened(http, {"algorithm": "softmax", "dimension": 100, "labels": list(range(20))})

    def observe(start: int, stop: int) -> None:
        body = raw(X[start:stop], y[start:stop])
        answer = http.post(f"/sessions/{sid}/observe?reply=summary", content=body, headers=RAW)
        assert answer.status_code == 200, answer.text

    observe(0, 750)
    observe(750, 810)

    def done() -> bool:
        return bool(http.get(f"/sessions/{sid}/fits/refit-800").json().get("status") == "done")

    wait_until(done, 120)
    [fit] = http.get(f"/sessions/{sid}/fits").json()["fits"]
    assert (fit["kind"], fit["features"], fit["points"]) == ("softmax", "hemisphere", 800)
    observe(810, 1190)
    observe(1190, 1300)
    at = [np.array(http.get(f"/sessions/{sid}/at/{t}/model").json()["weights"]) for t in (1198, 1199, 1200, 1201)]
    steps = [float(np.abs(after - before).max()) for before, after in pairwise(at)]
    assert steps[1] > 10 * max(steps[0], steps[2])  # what a point does, but for the one at exactly 1.5·800
    with listening(http, sid, "0-0") as events:
        said = next(each.data for each in events if each.name == "commit" and each.data["from"] == 1190)
    assert said["begun"] == [{"position": 1200, "reason": "refit"}] and said["skipped"] == []
    fork = http.post("/sessions", json={"fork": {"session": sid}}).json()["id"]
    wait_until(lambda: http.get(f"/sessions/{fork}").json()["status"] == "live", 120)
    mine, its = (http.get(f"/sessions/{each}/model").json() for each in (sid, fork))
    assert mine == its


def test_a_refit_that_nobody_works_on_is_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    X, y = 0.05 * rng.normal(size=(1250, 100)), rng.integers(20, size=1250)
    session = {"algorithm": "softmax", "dimension": 100, "labels": list(range(20))}

    async def run(url: str) -> tuple[Loaded, list[Entry]]:
        async with storing(url) as parts:
            sid = (await parts.opened(**session)).spec.id
            for start in range(0, 1250, 125):
                await parts.observe(sid, X[start : start + 125], y[start : start + 125], columns=False)
            assert [fit["status"] for fit in await parts.fits.all(sid)] == ["queued"]
            loaded = await parts.store.load(sid)
            entries = [entry async for _, entry in parts.log.entries(loaded, EntryId(), 1250)]
            return loaded, entries

    with EmbeddedServer(tmp_path / "data") as server:
        loaded, entries = asyncio.run(run(server.url))
    assert [(entry.first, entry.skipped) for entry in entries if entry.skipped] == [(1125, (1200,))]
    begins = [entry.first + each.after for entry in entries for each in entry.replaced]
    assert begins == [25, 50, 100, 200, 400]  # the small ones alone
    replayed = begun(**session)
    for entry in entries:
        replayed = replay(replayed, entry)
    assert bits(replayed) == bits(loaded)
    expected, _ = streamed(begun(**session), Batch(X, y), list(range(125, 1250, 125)))
    assert encode(loaded.state) == encode(expected.state)


def test_one_member_alone_goes_on_from_where_it_was(http: httpx.Client) -> None:
    X, y = rings(np.random.default_rng(7), 300, K)
    sid = opened(http, {"dimension": 2, "labels": list(range(K))})
    http.post(f"/sessions/{sid}/observe", content=raw(X, y), headers=RAW)
    auto_model = http.get(f"/sessions/{sid}/model").json()
    assert [each["algorithm"] for each in auto_model["members"]] == list(auto.MEMBERS)
    assert sum(each["weight"] for each in auto_model["members"]) == pytest.approx(1)
    changed = http.patch(f"/sessions/{sid}", json={"algorithm": "gaussian"})
    assert changed.status_code == 200 and changed.json()["algorithm"] == "gaussian"
    alone = http.get(f"/sessions/{sid}/model").json()
    voting = auto_model["members"][2]
    assert alone["classes"] == voting["classes"] and alone["version"] == auto_model["version"] + 1
    refused = http.patch(f"/sessions/{sid}", json={"algorithm": "softmax"})
    assert refused.status_code == 422 and refused.json()["type"] == "/problems/invalid-parameter"
    more = http.post(f"/sessions/{sid}/observe", content=raw(X[:5], y[:5]), headers=RAW)
    assert more.json()["session"]["observed"] == 305
