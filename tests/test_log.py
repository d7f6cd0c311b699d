"""GET /sessions/{id}/log and /at/{position}/model: the retained stream by position, and the classifier as it was."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import httpx
import numpy as np
import pytest

from service.geometry import Array
from tests.opening import opened, raw
from tests.strategies import points

RAW = {"content-type": "application/octet-stream"}
LABELS = ["no", "yes", 3]


def observe(http: httpx.Client, sid: str, X: Array, indices: Any, **headers: str) -> dict[str, Any]:
    """Answered without columns"""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    where = f"/sessions/{sid}/observe?reply=summary"
    answer = http.post(where, content=raw(X, indices), headers={**RAW, **more})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def sent(http: httpx.Client, sizes: list[int], K: int = 2, d: int = 2, **session: Any) -> tuple[str, Array]:
    """A session that learned commits of these sizes; and its rows, the label's index last"""
    rng, n = np.random.default_rng(1), sum(sizes)
    X, indices = points(rng, n, d, 3.0), rng.integers(0, K, size=n)
    sid, at = opened(http, {"dimension": d, "reference": "origin", **session}), 0
    for size in sizes:
        observe(http, sid, X[at : at + size], indices[at : at + size])
        at += size
    return sid, np.column_stack([X, indices])


def page(http: httpx.Client, sid: str, **query: Any) -> httpx.Response:
    renamed = {name.rstrip("_"): value for name, value in query.items()}
    return http.get(f"/sessions/{sid}/log", params=renamed)


def loaded(content: bytes) -> Array:
    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))


def walked(http: httpx.Client, sid: str, limit: int, start: int = 0) -> tuple[list[Any], list[Any], list[int]]:
    """All pages by `next`: the points, the labels, where each page ended"""
    X, labels, ends = list[Any](), list[Any](), list[int]()
    following: int | None = start
    while following is not None:
        told = page(http, sid, from_=following, limit=limit).json()
        assert told["from"] == following
        assert told["to"] - told["from"] == len(told["points"]) == len(told["labels"]) <= limit
        assert told["next"] in (None, told["to"])
        X, labels, ends = X + told["points"], labels + told["labels"], [*ends, told["to"]]
        following = told["next"]
    return X, labels, ends


@pytest.mark.parametrize("limit", [1, 7, 50, 64, 65, 1000])
def test_pages_go_on_at_next_and_are_the_stream(http: httpx.Client, limit: int) -> None:
    """Pages begin and end inside of entries"""
    sid, rows = sent(http, [1, 10, 1, 30, 3, 20], K=3, labels=LABELS)
    X, labels, ends = walked(http, sid, limit)
    assert X == rows[:, :-1].tolist()
    assert labels == [LABELS[int(i)] for i in rows[:, -1]]
    assert ends == [*range(limit, 65, limit), 65]
    again = page(http, sid, from_=ends[0] // 2, limit=limit).json()  # resumed anywhere, any time
    assert again["points"] == X[ends[0] // 2 :][:limit]


def test_every_stretch_is_cut_out_of_its_entries(http: httpx.Client) -> None:
    sid, rows = sent(http, [5, 1, 4, 6])
    for start in range(17):
        for limit in (1, 2, 5, 16):
            told = page(http, sid, from_=start, limit=limit)
            stop = min(start + limit, 16)
            body = told.json()
            assert (told.status_code, body["from"], body["to"]) == (200, start, stop)
            assert body["points"] == rows[start:stop, :-1].tolist()
            assert body["labels"] == [int(2 * i - 1) for i in rows[start:stop, -1]]
            assert body["next"] == (stop if stop < 16 else None)


def test_a_page_that_was_read_stays_the_same_while_the_stream_grows(http: httpx.Client) -> None:
    sid, rows = sent(http, [30])
    first = page(http, sid, limit=30).json()
    assert first["next"] is None
    end = page(http, sid, from_=30).json()
    assert (end["from"], end["to"], end["points"], end["next"]) == (30, 30, [], None)
    observe(http, sid, rows[:5, :-1], rows[:5, -1])
    assert page(http, sid, limit=30).json() == {**first, "next": 30}
    assert page(http, sid, from_=30).json()["points"] == rows[:5, :-1].tolist()


@pytest.mark.parametrize("how", ["format", "accept"])
def test_the_formats_agree(http: httpx.Client, how: str) -> None:
    sid, rows = sent(http, [20, 33], K=3, labels=LABELS)

    def ask(name: str, kind: str) -> httpx.Response:
        query: dict[str, Any] = {"from": 15, "limit": 20}
        if how == "format":
            found = http.get(f"/sessions/{sid}/log", params={**query, "format": name}, headers={"accept": "*/*"})
        else:
            found = http.get(f"/sessions/{sid}/log", params=query, headers={"accept": kind})
        assert found.status_code == 200, found.text
        assert found.headers["content-type"].partition(";")[0] == kind
        told = [found.headers[f"horocycle-{name}"] for name in ("from", "to", "next")]
        assert told == ["15", "35", "35"]
        return found

    part = rows[15:35]
    assert ask("json", "application/json").json()["points"] == part[:, :-1].tolist()
    table = loaded(ask("npy", "application/x-npy").content)
    assert table.dtype == np.dtype("<f8") and table.tobytes() == part.tobytes()
    lines = [json.loads(line) for line in ask("ndjson", "application/x-ndjson").text.splitlines()]
    assert [line["position"] for line in lines] == list(range(15, 35))
    assert [line["point"] for line in lines] == part[:, :-1].tolist()
    assert [line["label"] for line in lines] == [LABELS[int(i)] for i in part[:, -1]]
    last = page(http, sid, from_=50, format="npy")
    assert "horocycle-next" not in last.headers and loaded(last.content).shape == (3, 3)
    assert "horocycle-epoch" in last.headers


def test_large_entries_come_out_of_their_blocks(http: httpx.Client) -> None:
    """10,000 points of d = 10 are 880 KB; then single ones, and another large entry"""
    sid, rows = sent(http, [10_000, 1, 1, 9_000], d=10, keep_points=20_000)
    for start, limit in ((0, 100_000), (0, 1), (9_999, 3), (5_000, 10_000), (19_001, 5)):
        found = loaded(page(http, sid, from_=start, limit=limit, format="npy").content)
        assert found.tobytes() == rows[start : start + limit].tobytes()


def test_what_is_trimmed_is_410_with_the_first_that_is_kept(http: httpx.Client) -> None:
    sid, rows = sent(http, [1] * 10 + [40] * 5 + [7], keep_points=60)
    for start in (0, 5, 156):
        gone = page(http, sid, from_=start)
        assert (gone.status_code, gone.json()["type"]) == (410, "/problems/log-trimmed")
        assert (gone.json()["position"], gone.json()["first"]) == (start, 157)
    X, _, _ = walked(http, sid, 13, start=157)
    assert X == rows[157:, :-1].tolist()
    http.patch(f"/sessions/{sid}", json={"keep_points": 20}).raise_for_status()
    assert page(http, sid, from_=196).json()["first"] == 197
    assert page(http, sid, from_=197).json()["points"] == rows[197:, :-1].tolist()


@pytest.mark.parametrize("sizes", [[300] * 6, [9] * 200], ids=["blocks", "small"])
def test_more_points_kept_from_now_on_do_not_bring_back_what_is_gone(http: httpx.Client, sizes: list[int]) -> None:
    """Of large entries the blocks go at once; small ones stay a while, and then all of an entry goes"""
    sid, rows = sent(http, sizes, keep_points=50)
    http.patch(f"/sessions/{sid}", json={"keep_points": 10_000}).raise_for_status()
    gone = page(http, sid)
    assert gone.status_code == 410, gone.text
    first = gone.json()["first"]
    assert 0 < first <= 1750
    X, _, _ = walked(http, sid, 1000, start=first)
    assert X == rows[first:, :-1].tolist()
    for start, limit in ((0, 1), (0, first), (first - 1, 1), (first - 1, 1000)):
        gone = page(http, sid, from_=start, limit=limit)
        assert (gone.status_code, gone.json().get("first")) == (410, first)


def test_a_session_that_keeps_nothing_has_an_empty_log(http: httpx.Client) -> None:
    sid, rows = sent(http, [5, 3], keep_points=0)
    gone = page(http, sid)
    assert (gone.status_code, gone.json()["first"]) == (410, 8)
    assert page(http, sid, from_=8).json() == {"from": 8, "to": 8, "points": [], "labels": [], "next": None}
    http.patch(f"/sessions/{sid}", json={"keep_points": 100}).raise_for_status()
    observe(http, sid, rows[:4, :-1], rows[:4, -1])
    gone = page(http, sid, from_=7)
    assert (gone.status_code, gone.json()["first"]) == (410, 8)
    assert page(http, sid, from_=8).json()["points"] == rows[:4, :-1].tolist()


def test_an_empty_session_and_what_lies_beyond_the_end(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    empty = page(http, sid).json()
    assert empty == {"from": 0, "to": 0, "points": [], "labels": [], "next": None}
    assert loaded(page(http, sid, format="npy").content).shape == (0, 3)
    assert page(http, sid, format="ndjson").content == b""
    observe(http, sid, np.zeros((2, 2)), [0, 1])
    for start in (2, 3, 10**15):
        assert page(http, sid, from_=start).json() == {"from": 2, "to": 2, "points": [], "labels": [], "next": None}


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": 100_001},
        {"limit": "x"},
        {"from": -1},
        {"from": 10**15 + 1},
        {"from": "1.5"},
        {"format": "csv"},
    ],
)
def test_what_is_no_page_is_422(http: httpx.Client, query: dict[str, Any]) -> None:
    sid, _ = sent(http, [3])
    answer = http.get(f"/sessions/{sid}/log", params=query)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert page(http, sid, limit=100_000).status_code == 200


def test_no_session_no_log(http: httpx.Client) -> None:
    for path in ("log", "at/0/model"):
        assert http.get(f"/sessions/nobody-has-this-id/{path}").status_code == 404
    sid, _ = sent(http, [3])
    http.delete(f"/sessions/{sid}").raise_for_status()
    for path in ("log", "at/0/model"):
        answer = http.get(f"/sessions/{sid}/{path}")
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/session-gone")


def test_the_log_of_an_imported_session_goes_on_where_the_snapshot_was(http: httpx.Client) -> None:
    source, rows = sent(http, [100, 20], keep_points=50)
    snapshot = http.get(f"/sessions/{source}/snapshot").json()
    sid = opened(http, {"snapshot": snapshot})
    assert page(http, sid).json()["first"] == page(http, source).json()["first"] == 70
    X, _, _ = walked(http, sid, 17, start=70)
    assert X == rows[70:, :-1].tolist()
    now = http.get(f"/sessions/{sid}/model").json()
    assert http.get(f"/sessions/{sid}/at/120/model").json() == now == http.get(f"/sessions/{source}/model").json()
    assert http.get(f"/sessions/{sid}/at/119/model").json()["first"] == 120
    observe(http, sid, rows[:10, :-1], rows[:10, -1])
    X, _, _ = walked(http, sid, 17, start=80)
    assert X == [*rows[80:, :-1].tolist(), *rows[:10, :-1].tolist()]
    observe(http, source, rows[:10, :-1], rows[:10, -1])
    for at in range(120, 131):
        models = [http.get(f"/sessions/{each}/at/{at}/model").json() for each in (sid, source)]
        assert models[0] == models[1]


# ------------------------------------------------------------------------------------------ the past

LEARN = {"learn": {"warmup": 20, "method": "closest"}}
PAST: dict[str, dict[str, Any]] = {
    "perceptron": {"reference": [0.2, -0.1]},
    "second order, a=0": {"algorithm": "second_order", "a": 0},
    "strategic, estimating": {"algorithm": "strategic", "budget": {"estimate": {"initial": 2.0}}},
    "three classes, hyperboloid": {"algorithm": "hyperboloid", "labels": ["a", "b", "c"]},
    "warming": {"reference": LEARN},
    "warming, three classes": {"algorithm": "second_order", "labels": [1, 2, 3], "reference": LEARN},
}


def promoted(http: httpx.Client, sid: str, **recipe: Any) -> str:
    """A fit of the retained points, and the learner begun anew from it"""
    answer = http.post(f"/sessions/{sid}/fits", json=recipe)
    assert answer.status_code == 202, answer.text
    fit, deadline = str(answer.json()["id"]), time.monotonic() + 120
    while (told := http.get(f"/sessions/{sid}/fits/{fit}").json())["status"] != "done":
        assert told["status"] in ("queued", "running"), told
        assert time.monotonic() < deadline
        time.sleep(0.02)
    http.post(f"/sessions/{sid}/promote", json={"fit": fit}).raise_for_status()
    return fit


@pytest.mark.parametrize("name", PAST)
def test_the_model_of_every_position_is_what_was_said_then(http: httpx.Client, name: str) -> None:
    """Point by point, with If-Match now and then, a promotion, a new estimate; then from commits of many points"""
    session = PAST[name]
    K = len(session.get("labels", [0, 1]))
    rng = np.random.default_rng(2)
    X, indices = points(rng, 40, 2, 3.0), rng.integers(0, K, size=40)
    single, whole = (
        opened(http, {"dimension": 2, "reference": "origin", **session}),
        opened(http, {"dimension": 2, "reference": "origin", **session}),
    )
    said = [http.get(f"/sessions/{single}/model").json()]
    for i in range(40):
        match = {"If_Match": f'"{said[-1]["version"]}"'} if i % 3 == 0 else {}
        observe(http, single, X[i : i + 1], indices[i : i + 1], **match)
        if i == 25 and "a" not in session:
            far = session.get("algorithm") == "hyperboloid"
            promoted(http, single, **({"kind": "svm", "features": "hyperboloid"} if far else {"reference": "hull"}))
        if i == 30 and "budget" in session:
            http.patch(f"/sessions/{single}", json={"budget": {"estimate": {"initial": 1.0}}}).raise_for_status()
        said.append(http.get(f"/sessions/{single}/model").json())
    assert len({json.dumps(each) for each in said}) > 10
    for position, then in enumerate(said):
        answer = http.get(f"/sessions/{single}/at/{position}/model")
        assert (answer.status_code, answer.json()) == (200, then)
    observe(http, whole, X[:7], indices[:7])
    observe(http, whole, X[7:], indices[7:])
    if "budget" not in session:  # what names the version it answers is evidence of a budget
        for position, then in enumerate(said[:26]):
            assert http.get(f"/sessions/{whole}/at/{position}/model").json() == then


@pytest.mark.parametrize("position", ["-1", "5", "1000000", str(10**30), "x", "1.5"])
def test_a_position_beyond_what_was_observed_is_422(http: httpx.Client, position: str) -> None:
    sid, _ = sent(http, [4])
    answer = http.get(f"/sessions/{sid}/at/{position}/model")
    assert answer.status_code == 422, answer.text
    assert http.get(f"/sessions/{sid}/at/4/model").status_code == 200


@pytest.mark.parametrize("sizes", [[1] * 300, [10] * 200, [200] * 6], ids=["singles", "tens", "blocks"])
def test_before_the_oldest_checkpoint_the_past_is_410(http: httpx.Client, sizes: list[int]) -> None:
    """And from the oldest retained point on it is there"""
    sid, _ = sent(http, sizes, keep_points=40)
    n, first = sum(sizes), None
    for position in (*range(1, n - 40, 31), *range(n - 43, n - 36), n - 1, n):
        answer = http.get(f"/sessions/{sid}/at/{position}/model")
        if position >= n - 40:
            assert answer.status_code == 200, answer.text
        elif answer.status_code != 200:
            assert (answer.status_code, answer.json()["type"]) == (410, "/problems/log-trimmed")
            first = answer.json()["first"]
            assert position < first <= n - 40
    assert first is not None
    assert http.get(f"/sessions/{sid}/at/{first}/model").status_code == 200
    now = http.get(f"/sessions/{sid}/model").json()
    assert http.get(f"/sessions/{sid}/at/{n}/model").json() == now


def test_of_a_session_that_keeps_nothing_the_past_is_410(http: httpx.Client) -> None:
    sid, _ = sent(http, [5, 3], keep_points=0)
    for position in (1, 5, 7):
        answer = http.get(f"/sessions/{sid}/at/{position}/model")
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/log-trimmed")
        assert answer.json()["first"] == 8
    now = http.get(f"/sessions/{sid}/at/8/model")
    assert (now.status_code, now.json()) == (200, http.get(f"/sessions/{sid}/model").json())
