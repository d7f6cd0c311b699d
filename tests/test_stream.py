"""Through the front door: the service does what the learner does in process, and keeps a strategic stream exact."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest

from service.api.schemas import OpenSession
from service.geometry import Array
from service.learners import encode
from tests.opening import RAW, SESSIONS, P, opened, raw
from tests.running import Running
from tests.sse import listening
from tests.storing import stored
from tests.strategies import points
from tests.streams import flipped, separable, strategic_response


@pytest.mark.parametrize("body", SESSIONS.values(), ids=SESSIONS.keys())
def test_the_service_is_the_learner(http: httpx.Client, running: Running, body: dict[str, Any]) -> None:
    """The same stream over HTTP, in pieces and in both formats, and in process: the same bits"""
    rng = np.random.default_rng(0)
    spec = OpenSession(**body).spec()
    X = points(rng, 300, 2, 4.0) / np.sqrt(spec.curvature)
    indices = rng.integers(0, len(spec.labels), size=300)
    labels = [spec.labels[i] for i in indices]
    expected = spec.learner.observe(spec.first_state(), X, spec.targets(indices))

    sid = opened(http, body)
    scores: list[Any] = []
    predictions: list[Any] = []
    at, mistakes = 0, 0
    for size in (1, 1, 50, 7, 100, 141):
        part = slice(at, at + size)
        if size == 1:
            answer = http.post(f"/sessions/{sid}/observe", json={"point": X[at].tolist(), "label": labels[at]})
        elif size % 2:
            answer = http.post(
                f"/sessions/{sid}/observe",
                content=raw(X[part], indices[part]),
                headers=RAW,
            )
        else:
            message = {"points": X[part].tolist(), "labels": labels[part]}
            answer = http.post(f"/sessions/{sid}/observe", json=message)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        at += size
        mistakes += told["mistakes"]
        assert told["accepted"] == size
        assert told["session"]["observed"] == at
        assert told["session"]["mistakes"] == mistakes
        assert told["correct"] == [p == y for p, y in zip(told["predictions"], labels[part], strict=True)]
        scores += told["scores"]
        predictions += told["predictions"]

    assert np.array_equal(np.array(scores), expected.scores)
    assert predictions == [spec.labels[i] for i in spec.decide(expected.scores)]
    found = stored(running.redis_url, sid)
    assert found.state == encode(expected.state)
    model = http.get(f"/sessions/{sid}/model").json()
    if spec.binary:
        assert model["weights"] == expected.state.w.tolist()
    else:
        assert model["weights"] == [member.w.tolist() for member in expected.state.members]
    assert found.rows.tobytes() == raw(X, indices)
    assert model["version"] == int(expected.changed.sum())

    asked = points(rng, 40, 2, 4.0) / np.sqrt(spec.curvature)
    truth = spec.learner.score(expected.state, asked)
    told = http.post(f"/sessions/{sid}/predict", json={"points": asked.tolist()}).json()
    assert np.array_equal(np.array(told["scores"]), truth)
    one = http.get(f"/sessions/{sid}/predict", params={"x": ",".join(map(repr, asked[0].tolist()))}).json()
    assert np.array_equal(np.array(one["scores"]), truth[:1])
    short = http.get("/predict", params={"session": sid, "x": ",".join(map(repr, asked[0].tolist()))}).json()
    assert short == one
    assert one["cold"] is False


def test_a_summary_has_no_columns_and_a_cold_session_says_so(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin", "keep_points": 0})
    assert http.get(f"/sessions/{sid}/predict?x=0.1,0.2").json() == {"predictions": [1], "scores": [0.0], "cold": True}
    told = http.post(f"/sessions/{sid}/observe?reply=summary", json={"point": [0.1, 0.2], "label": -1}).json()
    assert told == {
        "accepted": 1,
        "mistakes": 1,
        "session": {"observed": 1, "mistakes": 1, "updates": 1, "version": 1},
    }


def test_a_key_is_good_for_one_body_and_one_answer(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    ask = {"point": [0.1, 0.2], "label": -1}
    headers = {"Idempotency-Key": "k"}
    first = http.post(f"/sessions/{sid}/observe", json=ask, headers=headers)
    for _ in range(6):  # whichever worker
        with httpx.Client(base_url=http.base_url) as other:
            again = other.post(f"/sessions/{sid}/observe", json=ask, headers=headers)
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
    reused = http.post(f"/sessions/{sid}/observe", json={**ask, "label": 1}, headers=headers)
    assert (reused.status_code, reused.json()["type"]) == (422, "/problems/key-reused")
    refused = http.post(
        f"/sessions/{sid}/observe", json={"point": [5, 5], "label": 1}, headers={"Idempotency-Key": "j"}
    )
    assert refused.status_code == 422
    taken = http.post(f"/sessions/{sid}/observe", json=ask, headers={"Idempotency-Key": "j"})
    assert taken.status_code == 200  # only a 200 uses a key up
    assert http.get(f"/sessions/{sid}").json()["observed"] == 2


def test_only_the_newest_points_are_kept(http: httpx.Client, running: Running) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin", "keep_points": 100})
    X = points(np.random.default_rng(1), 1000, 2, 3.0)
    sizes = [1] * 50 + [30] * 10 + [650]
    at = 0
    for size in sizes:
        body = raw(X[at : at + size], np.ones(size))
        http.post(f"/sessions/{sid}/observe", content=body, headers=RAW)
        at += size
        assert stored(running.redis_url, sid).rows.tobytes() == raw(X[:at], np.ones(at))[-2400:]


def test_the_model_has_an_etag(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "algorithm": "strategic", "reference": P, "budget": 0.5})
    model = http.get(f"/sessions/{sid}/model")
    assert model.headers["etag"] == '"0"'
    assert http.get(f"/sessions/{sid}/model", headers={"If-None-Match": '"0"'}).status_code == 304
    http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": -1})
    changed = http.get(f"/sessions/{sid}/model", headers={"If-None-Match": '"0"'})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"1"')
    told = changed.json()
    assert told["threshold"] == pytest.approx(0.5 / told["sigma"])
    assert told["reference"] == P


# --------------------------------------------------------------------------------- strategic, exactly


async def agent_batches(
    http: httpx.AsyncClient, sid: str, X: Array, y: Any, budget: float
) -> list[tuple[int, dict[str, Any], int]]:
    """A client of many agents: fetch the model, respond to it, post with If-Match, respond anew for the rest"""
    done: list[tuple[int, dict[str, Any], int]] = []
    refused = 0
    while len(X):
        model = (await http.get(f"/sessions/{sid}/model")).json()
        p, w = np.array(model["reference"]), np.array(model["weights"])
        moved = [strategic_response(x, p, w, model["budget"], budget).tolist() for x in X[:25]]
        answer = await http.post(
            f"/sessions/{sid}/observe",
            json={"points": moved, "labels": y[:25].tolist()},
            headers={"If-Match": f'"{model["version"]}"', "Idempotency-Key": uuid4().hex},
        )
        if answer.status_code == 412:
            assert answer.json()["type"] == "/problems/stale-model"
            assert int(answer.headers["etag"].strip('"')) > model["version"]
            refused += 1
            continue
        assert answer.status_code == 200, answer.text
        told = answer.json()
        done.append((model["version"], told, refused))
        X, y = X[told["accepted"] :], y[told["accepted"] :]
    return done


def test_every_strategic_point_was_judged_by_the_version_it_named(http: httpx.Client, running: Running) -> None:
    """16 clients at once through two workers; from answers and events, each accepted point met the version it named"""
    rng = np.random.default_rng(3)
    sid = opened(http, {"algorithm": "strategic", "dimension": 2, "reference": P, "budget": 0.5})
    X, y, _ = separable(rng, 1600, np.array(P), 0.1)
    y = flipped(rng, y, 0.02)  # so that the classifier goes on changing under the agents

    async def run() -> list[list[tuple[int, dict[str, Any], int]]]:
        async with httpx.AsyncClient(base_url=running.url, timeout=30) as client:
            parts = (agent_batches(client, sid, X[i::16], y[i::16], 0.5) for i in range(16))
            return await asyncio.gather(*parts)

    answers = [answer for client in asyncio.run(run()) for answer in client]
    assert sum(told["accepted"] for _, told, _ in answers) == len(X)
    assert sum(refused for _, _, refused in answers) > 0  # there was a race, and it was refused
    for version, told, _ in answers:  # a version changes with the last accepted point, or not at all
        assert told["session"]["version"] in (version, version + 1)
        assert all(told["correct"][:-1])
        assert told["correct"][-1] == (told["session"]["version"] == version)

    # in the order of the stream the version an answer names is the one the answer before it left
    order = sorted(answers, key=lambda each: each[1]["session"]["observed"])
    at, version = 0, 0
    for named, told, _ in order:
        assert told["session"]["observed"] - told["accepted"] == at
        assert named == version
        at, version = told["session"]["observed"], told["session"]["version"]
    with listening(http, sid, "0-0") as stream:
        events = [next(event.data for event in stream if event.name == "commit")]
        while events[-1]["observed"] < len(X):
            events.append(next(event.data for event in stream if event.name == "commit"))
    seen: dict[int, int] = defaultdict(int)
    for event in events:
        for request in event["requests"]:
            seen[request["if_match"]] += request["accepted"]
    told_by_answers: dict[int, int] = defaultdict(int)
    for named, told, _ in answers:
        told_by_answers[named] += told["accepted"]
    assert seen == told_by_answers


def test_every_answer_about_a_session_carries_the_epoch(http: httpx.Client) -> None:
    opening = http.post("/sessions", json={"dimension": 2, "reference": "origin"})
    where = opening.headers["location"]
    answers = [
        opening,
        http.get(where),
        http.post(f"{where}/observe", json={"point": [0.1, 0.2], "label": 1}),
        http.get(f"{where}/predict?x=0.1,0.2"),
        http.get(f"{where}/model"),
        http.delete(where),
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200, 204]
    assert len({int(answer.headers["horocycle-epoch"]) for answer in answers}) == 1
