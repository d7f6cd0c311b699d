"""Late labels: predicted with ids now, learned when the label comes, at that moment and once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

import httpx
import numpy as np
import pytest

from service.api.schemas import OpenSession
from service.learners import encode
from service.sessions import rows
from service.sessions.records import Waiting
from service.sessions.requests import Request
from service.sessions.spec import Spec
from tests.opening import RAW, SESSIONS, opened, raw
from tests.running import Running
from tests.storing import stored, storing
from tests.strategies import points


def predict(http: httpx.Client, sid: str, X: Any, ids: list[Any]) -> httpx.Response:
    return http.post(f"/sessions/{sid}/predict", json={"points": np.asarray(X).tolist(), "ids": ids})


def label(http: httpx.Client, sid: str, ids: list[Any], labels: list[Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.post(f"/sessions/{sid}/labels", json={"ids": ids, "labels": labels}, headers=named)


def fates(answer: httpx.Response) -> dict[str, list[Any]]:
    assert answer.status_code == 200, answer.text
    return {name: answer.json()[name] for name in ("ids", "unknown", "expired", "already_learned")}


def replayed(spec: Spec, rows: Any) -> bytes:
    """The state that the retained points lead to"""
    outcome = spec.learner.observe(spec.first_state(), rows[:, :-1], spec.targets(rows[:, -1].astype(np.int64)))
    return encode(outcome.state)


def kept(running: Running, sid: str) -> tuple[Any, bytes]:
    """The retained points and the state"""
    found = stored(running.redis_url, sid)
    return found.rows, found.state


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())
def test_a_late_label_is_learned_when_it_comes(http: httpx.Client, running: Running, session: dict[str, Any]) -> None:
    """By the model of that moment, not the one that predicted; in the order of the labels"""
    rng = np.random.default_rng(11)
    spec = OpenSession(**session).spec()
    X = points(rng, 60, 2, 3.0) / np.sqrt(spec.curvature)
    indices = rng.integers(0, len(spec.labels), size=60)
    labels = [spec.labels[i] for i in indices]
    sid = opened(http, session)
    first = predict(http, sid, X[:20], list(range(20))).json()
    assert first["cold"] is True and first["expires_in"] == 86400.0
    http.post(f"/sessions/{sid}/observe", content=raw(X[20:], indices[20:]), headers=RAW).raise_for_status()

    order = rng.permutation(20)
    told = label(http, sid, order.tolist(), [labels[i] for i in order])
    late = np.concatenate([np.arange(20, 60), order])
    expected = spec.learner.observe(spec.first_state(), X[late], spec.targets(indices[late]))
    assert fates(told) == {"ids": order.tolist(), "unknown": [], "expired": [], "already_learned": []}
    answer = told.json()
    assert np.array_equal(np.array(answer["scores"]), expected.scores[40:])
    decided = spec.decide(expected.scores[40:])
    assert answer["predictions"] == [spec.labels[i] for i in decided]
    assert answer["correct"] == (decided == indices[order]).tolist()
    assert (answer["accepted"], answer["mistakes"]) == (20, 20 - sum(answer["correct"]))
    assert answer["session"] == {
        name: http.get(f"/sessions/{sid}").json()[name] for name in ("observed", "mistakes", "updates", "version")
    }
    assert told.headers["etag"] == f'"{answer["session"]["version"]}"'
    rows, state = kept(running, sid)
    assert np.array_equal(rows, np.column_stack([X[late], indices[late]]))
    assert state == encode(expected.state)


def test_each_id_is_learned_once(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    predict(http, sid, [[0.1, 0.2], [0.3, 0.1]], ["a", "b"]).raise_for_status()
    assert fates(label(http, sid, ["a"], [-1]))["ids"] == ["a"]
    before = http.get(f"/sessions/{sid}").json()
    again = label(http, sid, ["a", "nobody"], [1, 1])
    assert fates(again) == {"ids": [], "unknown": ["nobody"], "expired": [], "already_learned": ["a"]}
    assert (again.json()["accepted"], again.json()["mistakes"], again.json()["scores"]) == (0, 0, [])
    assert http.get(f"/sessions/{sid}").json() == before
    mixed = label(http, sid, ["nobody", "b", "a"], [1, -1, 1])
    assert fates(mixed) == {"ids": ["b"], "unknown": ["nobody"], "expired": [], "already_learned": ["a"]}
    assert mixed.json()["session"]["observed"] == 2


def test_one_and_the_string_of_it_are_two_ids(http: httpx.Client, running: Running) -> None:
    sid, odd = (
        opened(http, {"dimension": 2, "reference": "origin"}),
        ['"', "\\", "ä\N{GRINNING FACE}", "\x00", " ", -(2**63), 2**63 - 1],
    )
    ids = [1, "1", *odd]
    X = points(np.random.default_rng(0), len(ids), 2, 2.0)
    predict(http, sid, X, ids).raise_for_status()
    assert fates(label(http, sid, ["1"], [1]))["ids"] == ["1"]
    assert fates(label(http, sid, [1], [1]))["ids"] == [1]
    assert fates(label(http, sid, odd, [1] * len(odd)))["ids"] == odd
    rows, _ = kept(running, sid)
    assert np.array_equal(rows[:, :2], X[[1, 0, *range(2, len(ids))]])


def test_an_id_is_given_to_one_point(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    ask = [[0.1, 0.2], [0.3, 0.1]]
    first = predict(http, sid, ask, ["a", "b"])
    assert predict(http, sid, ask, ["a", "b"]).content == first.content
    for learned in (False, True):
        reused = predict(http, sid, [[0.5, 0.5], [0.3, 0.2]], ["c", "b"])
        assert (reused.status_code, reused.json()["type"]) == (422, "/problems/id-reused")
        assert (reused.json()["index"], reused.json()["id"]) == (1, "b")
        assert fates(label(http, sid, ["c"], [1]))["unknown"] == ["c"]  # all or nothing
        if not learned:
            assert fates(label(http, sid, ["b"], [-1]))["ids"] == ["b"]
    assert predict(http, sid, ask, ["a", "b"]).status_code == 200
    assert fates(label(http, sid, ["a", "b"], [1, 1]))["already_learned"] == ["b"]  # predicted again, it is not new


def test_a_key_has_one_answer_here_too(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    predict(http, sid, [[0.1, 0.2], [0.3, 0.1]], ["a", "b"]).raise_for_status()
    first = label(http, sid, ["a", "x"], [-1, -1], idempotency_key="k")
    assert "idempotency-replayed" not in first.headers
    for _ in range(4):  # whichever worker
        with httpx.Client(base_url=http.base_url) as other:
            again = label(other, sid, ["a", "x"], [-1, -1], idempotency_key="k")
        assert again.content == first.content and again.headers["idempotency-replayed"] == "true"
    for reused in (
        label(http, sid, ["b"], [-1], idempotency_key="k"),
        http.post(f"/sessions/{sid}/observe", json={"point": [0, 0], "label": 1}, headers={"Idempotency-Key": "k"}),
    ):
        assert (reused.status_code, reused.json()["type"]) == (422, "/problems/key-reused")
    none = label(http, sid, ["never"], [1], idempotency_key="j")  # also of an answer that learned nothing
    predict(http, sid, [[0.1, 0.3]], ["never"]).raise_for_status()
    assert label(http, sid, ["never"], [1], idempotency_key="j").content == none.content
    assert http.get(f"/sessions/{sid}").json()["observed"] == 1


def test_a_summary_names_the_ids_without_the_columns(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    predict(http, sid, [[0.1, 0.2]], ["a"]).raise_for_status()
    body = b'{"id": "a", "label": -1}\n\n{"id": 7, "label": 1}\n'
    kind = {"content-type": "application/x-ndjson"}
    told = http.post(f"/sessions/{sid}/labels?reply=summary", content=body, headers=kind).json()
    assert told == {
        **{"ids": ["a"], "unknown": [7], "expired": [], "already_learned": []},
        **{"accepted": 1, "mistakes": 1},
        "session": {"observed": 1, "mistakes": 1, "updates": 1, "version": 1},
    }
    one = http.post(f"/sessions/{sid}/labels", json={"id": "a", "label": 1})
    assert fates(one)["already_learned"] == ["a"]


def test_requests_that_race_for_the_same_ids_learn_each_once(http: httpx.Client, running: Running) -> None:
    """24 at once, over connections of their own to two workers"""
    sid = opened(http, {"dimension": 2, "reference": "origin", "algorithm": "second_order"})
    rng = np.random.default_rng(4)
    X, ids = points(rng, 60, 2, 3.0), [f"p{i}" for i in range(60)]
    labels = rng.choice([-1, 1], size=60).tolist()
    predict(http, sid, X, ids).raise_for_status()

    async def race() -> list[httpx.Response]:
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=running.url, timeout=30, limits=limits) as client:
            asked = [rng.permutation(60)[:40] for _ in range(24)]
            bodies = [{"ids": [ids[i] for i in each], "labels": [labels[i] for i in each]} for each in asked]
            return await asyncio.gather(*(client.post(f"/sessions/{sid}/labels", json=body) for body in bodies))

    answers = asyncio.run(race())
    taken = Counter(id for answer in answers for id in fates(answer)["ids"])
    assert taken == dict.fromkeys(ids, 1)
    for answer in answers:
        assert len(fates(answer)["ids"]) + len(fates(answer)["already_learned"]) == 40
        assert answer.json()["accepted"] == len(fates(answer)["ids"])
    rows, state = kept(running, sid)
    order = sorted((answer.json() for answer in answers), key=lambda told: told["session"]["observed"])
    learned = [ids.index(id) for told in order for id in told["ids"]]
    assert np.array_equal(rows, np.column_stack([X[learned], np.array(labels)[learned] > 0]))
    assert state == replayed(OpenSession(dimension=2, reference="origin", algorithm="second_order").spec(), rows)


def test_what_waits_too_long_expires_and_may_wait_again(small: Running) -> None:
    with httpx.Client(base_url=small.url, timeout=30) as http:
        sid = opened(http, {"dimension": 2, "reference": "origin"})
        told = predict(http, sid, [[0.1, 0.2], [0.3, 0.1]], ["a", "b"]).json()
        assert told["expires_in"] == 0.4
        time.sleep(told["expires_in"])
        late = label(http, sid, ["a", "b"], [-1, -1])
        assert fates(late) == {"ids": [], "unknown": [], "expired": ["a", "b"], "already_learned": []}
        assert late.json()["session"]["observed"] == 0
        predict(http, sid, [[0.1, 0.4]], ["c"]).raise_for_status()  # sweeps
        assert fates(label(http, sid, ["a", "b"], [-1, -1]))["expired"] == ["a", "b"]
        reused = predict(http, sid, [[0.1, 0.3]], ["a"])
        assert reused.json()["type"] == "/problems/id-reused"
        for _ in range(100):  # as soon as the machine is quick enough
            predict(http, sid, [[0.1, 0.2]], ["a"]).raise_for_status()
            again = fates(label(http, sid, ["a"], [-1]))
            if again["expired"] != ["a"]:
                break
        assert again["ids"] == ["a"]


def test_only_so_many_points_wait(small: Running) -> None:
    with httpx.Client(base_url=small.url, timeout=30) as http:
        sid, X = opened(http, {"dimension": 2, "reference": "origin"}), points(np.random.default_rng(0), 41, 2, 2.0)
        full = predict(http, sid, X[:21], list(range(21)))
        assert (full.status_code, full.json()["type"], full.json()["limit"]) == (429, "/problems/rate-limited", 20)
        assert full.headers["retry-after"]
        assert fates(label(http, sid, list(range(21)), [1] * 21))["unknown"] == list(range(21))
        began = time.monotonic()
        predict(http, sid, X[:20], list(range(20))).raise_for_status()
        assert predict(http, sid, X[:20], list(range(20))).status_code == 200  # the same, not more
        more = predict(http, sid, X[20:21], [20])
        assert more.status_code == 429 or time.monotonic() - began > 0.4
        time.sleep(0.4)
        assert predict(http, sid, X[20:40], list(range(20, 40))).status_code == 200  # those before have expired
        assert predict(http, sid, X[40:], ["free"]).status_code in (200, 429)


def test_more_ids_than_redis_takes_arguments_are_more_than_are_read(http: httpx.Client) -> None:
    sid, many = opened(http, {"dimension": 2, "reference": "origin"}), 350_000
    body = json.dumps({"points": [[0, 0]] * many, "ids": list(range(many))})
    full = http.post(f"/sessions/{sid}/predict", content=body, headers={"content-type": "application/json"})
    assert (full.status_code, full.json()["type"]) == (413, "/problems/body-too-large")


def test_many_ids_are_asked_about_in_turn(
    http: httpx.Client, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    X = points(np.random.default_rng(6), 10, 2, 2.0)
    predict(http, sid, X, list(range(0, 20, 2))).raise_for_status()
    monkeypatch.setattr("service.store.late_labels.ASKED", 7)

    async def asked() -> list[Waiting]:
        async with storing(running.redis_url) as parts:
            return await parts.late.look(sid, list(map(str, range(20))))

    found = asyncio.run(asked())
    assert [each.status for each in found] == ["waiting", "unknown"] * 10
    assert [each.point for each in found[::2]] == [x.tobytes() for x in X]


def test_so_many_ids_are_remembered(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that have their labels, and of those that expired, the newest: here three"""
    for where in ("sessions", "late_labels"):
        monkeypatch.setattr(f"service.store.{where}.KEEP_IDS", 3)

    async def remembered() -> list[str]:
        ids, x = [f'"{i}"' for i in range(8)], np.array([0.1, 0.2]).tobytes()
        async with storing(running.redis_url) as parts:
            loaded = await parts.opened()

            async def wait(some: list[str], seconds: float) -> None:
                await parts.late.wait(loaded.spec, [(id, x) for id in some], ttl=seconds, limit=100)

            async def fates() -> list[str]:
                return [each.status for each in await parts.late.look(loaded.spec.id, ids)]

            await wait(ids[:5], 60.0)
            late = Request(rows.empty(2), bytes(16), ids=tuple(ids[:5]), late=np.ones(5, dtype=np.int64))
            await parts.ingest.observe(loaded.spec.id, late)
            assert Counter(await fates()) == {"unknown": 5, "learned": 3}
            await wait(ids[5:], 0.001)
            async with asyncio.timeout(30):
                while "waiting" in await fates():
                    await asyncio.sleep(0.005)
            await wait(['"another"'], 60.0)  # which takes up those that expired
            return await fates()

    assert asyncio.run(remembered()) == ["unknown"] * 5 + ["expired"] * 3


def test_points_that_wait_are_bounded_in_bytes(http: httpx.Client) -> None:
    """Of 4,096 dimensions some 2,000 may wait: 64 MiB, whatever waiting_points says"""
    sid = opened(http, {"dimension": 4096, "algorithm": "perceptron", "reference": "origin"})
    row = "[" + ",".join(["0"] * 4096) + "]"

    def ask(first: int, count: int) -> httpx.Response:
        ids = ",".join(str(i) for i in range(first, first + count))
        body = '{"points":[' + ",".join([row] * count) + '],"ids":[' + ids + "]}"
        return http.post(f"/sessions/{sid}/predict", content=body, headers={"content-type": "application/json"})

    answers = [ask(250 * i, 250) for i in range(9)]
    assert [answer.status_code for answer in answers] == [200] * 8 + [429]
    assert answers[-1].json()["limit"] == (64 << 20) // (8 * 4096 + 600)
