"""Fits over HTTP: what is asked for is what is fitted, usable at once on any worker; and what cannot be, says so."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
import redis
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from service import geometry as g
from service.batch import classifier as batch
from service.batch.classifier import PLAIN, Classifier, Recipe
from service.geometry import Array
from service.store.fit_queue import KEEP_FITS, REPORTED
from service.store.keys import fit_models_key, fit_queue_key, session_keys
from tests.opening import raw
from tests.problem import require_problem
from tests.running import Running, service, wait_until_ready
from tests.sse import listening, spoken
from tests.strategies import points
from tests.streams import flipped, separable

P2 = [0.3, -0.2]
EACH = [[0.4, 0.0], [-0.2, 0.3], [-0.2, -0.3]]
NPY, RAW = "application/x-npy", "application/octet-stream"
Indices = NDArray[np.int64]


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that fits nothing by itself, and takes few points"""
    data = tmp_path_factory.mktemp("idle") / "data"
    with service(data, HOROCYCLE_FIT_WORKERS="0", HOROCYCLE_FIT_POINTS="2000") as found:
        yield found


@pytest.fixture
def still(idle: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=idle.url, timeout=30) as client:
        yield client


# ---------------------------------------------------------------------------------- sessions and points


def two(seed: int = 0, n: int = 120, noise: float = 0.0) -> tuple[Array, Indices]:
    rng = np.random.default_rng(seed)
    X, y, _ = separable(rng, n, np.array(P2), 0.1)
    return X, (flipped(rng, y, noise) > 0).astype(np.int64)


def three(seed: int = 0, n: int = 120, c: float = 1.0) -> tuple[Array, Indices]:
    """Around three points, each beyond a geodesic through one of EACH"""
    rng = np.random.default_rng(seed)
    indices = rng.integers(3, size=n)
    around = 0.8 * np.array(EACH) / np.linalg.norm(EACH, axis=1)[:, None]
    return g.mobius_add(around[indices], points(rng, n, 2, 0.8)) / np.sqrt(c), indices


def opened(http: httpx.Client, X: Array | None = None, indices: Any = None, **fields: Any) -> str:
    """A session of two labels, or three, which has learned these points"""
    labels = ["no", "yes"] if indices is None or np.max(indices) < 2 else ["a", "b", "c"]
    answer = http.post("/sessions", json={"dimension": 2, "reference": "origin", "labels": labels, **fields})
    assert answer.status_code == 201, answer.text
    sid = str(answer.json()["id"])
    if X is not None:
        observed = http.post(f"/sessions/{sid}/observe", content=raw(X, indices), headers={"content-type": RAW})
        assert observed.status_code == 200, observed.text
    return sid


def npy(X: Array, indices: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.column_stack([X, indices]))
    return file.getvalue()


def ask(http: httpx.Client, sid: str, key: str | None = None, **fields: Any) -> httpx.Response:
    """On the retained points"""
    headers = {} if key is None else {"Idempotency-Key": key}
    return http.post(f"/sessions/{sid}/fits", json=fields, headers=headers)


def upload(http: httpx.Client, sid: str, body: bytes, media: str = RAW, key: str = "", **fields: Any) -> httpx.Response:
    """On these points, with the fields as query parameters"""
    headers = {"content-type": media, **({"Idempotency-Key": key} if key else {})}
    return http.post(f"/sessions/{sid}/fits", content=body, params=query(fields), headers=headers)


def query(fields: dict[str, Any]) -> Any:
    found = []
    for name, value in fields.items():
        if name == "reference" and isinstance(value, list):
            rows = value if isinstance(value[0], list) else [value]
            found += [(name, ",".join(map(repr, row))) for row in rows]
        else:
            found.append((name, value if isinstance(value, str) else json.dumps(value)))
    return found


def accepted(answer: httpx.Response) -> str:
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert answer.headers["location"].endswith(f"/fits/{told['id']}")
    assert told["status"] in ("queued", "running", "done")
    return str(told["id"])


def ended(http: httpx.Client, sid: str, fit: str, seconds: float = 120.0) -> dict[str, Any]:
    """How it ended. Meanwhile it does what a fit may do, in this order"""
    order, before = ["queued", "running", "done", "failed", "cancelled"], "queued"
    deadline = time.monotonic() + seconds
    while True:
        answer = http.get(f"/sessions/{sid}/fits/{fit}")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        assert order.index(told["status"]) >= order.index(before)
        assert 0 <= told["progress"] <= 1
        before = told["status"]
        if before not in ("queued", "running"):
            return told
        assert time.monotonic() < deadline, f"{told} after {seconds} s"
        time.sleep(0.05)


def done(http: httpx.Client, sid: str, fit: str) -> dict[str, Any]:
    told = ended(http, sid, fit)
    assert told["status"] == "done", told
    return told


# ------------------------------------------------------------------------------- everything that can be asked for


@dataclass(frozen=True)
class Asked:
    """A fit that is asked for over HTTP, and the recipe it is in process."""

    fields: dict[str, Any]
    source: str  # retained, npy or raw
    K: int = 2
    recipe: dict[str, Any] = field(default_factory=dict)  # where it is not what is asked for

    @property
    def session(self) -> dict[str, Any]:
        return {"curvature": 2.0} if self.K == 3 else {"reference": P2}

    def points(self) -> tuple[Array, Indices]:
        return two(1) if self.K == 2 else three(1, c=2.0)

    def fitted(self) -> tuple[Classifier, dict[str, Any]]:
        """In this process, with one thread, as in the fit's own"""
        recipe = Recipe(**{"reference": "hull", **self.fields, **self.recipe})
        with threadpool_limits(1):
            return batch.fit(recipe, *self.points(), self.K, 2.0 if self.K == 3 else 1.0, lambda done: None)


def everything() -> dict[str, Asked]:
    """Every kind, margin, loss and reference with every features they go with, each from one of three sources"""
    hard: dict[str, Any]
    hard, hinge, squared = {"margin": "hard"}, {"loss": "hinge", "C": 0.5}, {"loss": "squared_hinge", "C": 5.0}
    plan: list[tuple[dict[str, Any], int, dict[str, Any]]] = []
    for features, ways in (
        ("tangent", (hard, hard, hinge, squared, hinge, squared, hinge)),
        ("lift", (squared, hinge, squared, hinge, squared, hard, hard)),
    ):
        names = ("session", "hull", "closest", "lorentz", "cv", P2, (np.array(EACH) / np.sqrt(2)).tolist())
        for reference, way in zip(names, ways, strict=True):
            K = 3 if isinstance(reference, list) and isinstance(reference[0], list) else 2
            given = {"session": [P2], "hull": "hull"}.get(str(reference), reference)
            given = [given] if given is P2 else given
            plan.append(({"features": features, "reference": reference, **way}, K, {"reference": given}))
    plan += [({"features": "hyperboloid", **way}, 2, {}) for way in (hard, hinge, squared)]
    plan += [({"reference": "hull", "probabilities": False}, 3, {})]
    plan += [({"features": "hemisphere", **way}, K, {}) for way, K in ((hard, 2), (hinge, 3), (squared, 2))]
    plan += [({"kind": "softmax", "features": features, "C": 2.0}, K, {}) for features in PLAIN for K in (2, 3)]
    plan += [({}, 3, {"kind": "softmax", "features": "hemisphere", "C": 1000.0})]
    asked = [Asked(fields, ("retained", "npy", "raw")[i % 3], K, other) for i, (fields, K, other) in enumerate(plan)]
    return {f"{each.source} {' '.join(str(value)[:12] for value in each.fields.values())}": each for each in asked}


EVERYTHING = everything()


@pytest.fixture(scope="module")
def under_way(running: Running) -> dict[str, tuple[str, str]]:
    """All of it asked for at once: session and fit"""
    found: dict[str, tuple[str, str]] = {}
    with httpx.Client(base_url=running.url, timeout=30) as http:
        for name, asked in EVERYTHING.items():
            X, indices = asked.points()
            if asked.source == "retained":
                sid = opened(http, X, indices, **asked.session)
                answer = ask(http, sid, **asked.fields)
            else:
                sid = opened(http, None, indices, **asked.session)
                body, media = (npy(X, indices), NPY) if asked.source == "npy" else (raw(X, indices), RAW)
                answer = upload(http, sid, body, media, **asked.fields)
            found[name] = sid, accepted(answer)
    return found


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_fit_over_http_is_the_one_in_process(
    http: httpx.Client, under_way: dict[str, tuple[str, str]], name: str
) -> None:
    asked, (sid, fit) = EVERYTHING[name], under_way[name]
    classifier, report = asked.fitted()
    told = done(http, sid, fit)
    assert {field: told[field] for field in REPORTED if field != "seconds"} == json.loads(json.dumps(report))
    assert told["certificate"]["gap"] <= 1e-6
    assert told["progress"] == 1
    assert (told["attempts"], told["failure"]) == (1, None)
    assert told["created_at"] <= told["started_at"] <= told["finished_at"]
    assert told["seconds"] > 0
    assert {field: told[field] for field in asked.fields} == asked.fields
    if asked.fields.get("margin") == "hard":
        assert told["training_accuracy"] == 1

    questions = points(np.random.default_rng(2), 50, 2, 3.0) / np.sqrt(classifier.c)
    answer = http.post(f"/sessions/{sid}/predict?model={fit}", json={"points": questions.tolist()}).json()
    labels = ("no", "yes") if asked.K == 2 else ("a", "b", "c")
    assert answer["predictions"] == [labels[i] for i in classifier.decide(questions)]
    assert np.array_equal(answer["scores"], classifier.scores(questions))
    P = classifier.probabilities(questions)
    assert ("probabilities" in answer) == (P is not None)
    assert P is None or np.array_equal(answer["probabilities"], P)
    assert answer["cold"] is False


def test_a_fit_is_usable_at_once_by_every_worker(http: httpx.Client, running: Running) -> None:
    sid = opened(http, *two(3))
    fit = accepted(ask(http, sid))
    done(http, sid, fit)
    answers = []
    for other in running.worker_pids:
        os.kill(other, signal.SIGSTOP)  # so it is the one that is left who answers
        try:
            wait_until_ready(running.url)
            ways = (f"/sessions/{sid}/predict?model={fit}&x=0.1,0.2", f"/predict?session={sid}&model={fit}&x=0.1,0.2")
            answers += [httpx.get(running.url + way, timeout=30) for way in ways]
        finally:
            os.kill(other, signal.SIGCONT)
    assert [answer.status_code for answer in answers] == [200] * 4
    assert all(answer.json() == answers[0].json() for answer in answers)
    assert len(answers[0].json()["probabilities"][0]) == 2
    online = httpx.get(f"{running.url}/sessions/{sid}/predict?x=0.1,0.2").json()
    assert online == httpx.get(f"{running.url}/sessions/{sid}/predict?x=0.1,0.2&model=online").json()
    assert "probabilities" not in online


def test_points_predicted_by_a_fit_wait_for_their_labels_as_well(http: httpx.Client) -> None:
    X, indices = two(4)
    sid = opened(http, X, indices)
    fit = accepted(ask(http, sid, reference="hull"))
    done(http, sid, fit)
    body = {"points": X[:2].tolist(), "ids": ["x", "y"]}
    assert http.post(f"/sessions/{sid}/predict?model={fit}", json=body).json()["expires_in"] > 0
    labelled = http.post(f"/sessions/{sid}/labels", json={"ids": ["x", "y"], "labels": ["yes", "no"]})
    assert labelled.json()["accepted"] == 2


def test_a_point_on_a_line_can_be_the_reference_of_an_upload(still: httpx.Client) -> None:
    sid = opened(still, dimension=1, reference="origin")
    X = np.array([[-0.5], [0.5]])
    fit = accepted(upload(still, sid, raw(X, [0, 1]), reference=[0.25]))
    assert still.get(f"/sessions/{sid}/fits/{fit}").json()["reference"] == [0.25]


# ------------------------------------------------------------------------------------------ list, look, cancel, forget


def test_no_files_are_read_unless_a_place_is_named(still: httpx.Client) -> None:
    sid = opened(still, *two(5))
    assert "fit_data" in require_problem(ask(still, sid, data="/etc/passwd"), 422, "invalid-parameter")["detail"]
    assert still.get(f"/sessions/{sid}/fits").json() == {"fits": []}


def test_fits_are_listed_looked_at_and_cancelled(still: httpx.Client, idle: Running) -> None:
    sid = opened(still, *two(5))
    assert still.get(f"/sessions/{sid}/fits").json() == {"fits": []}
    fits = [accepted(ask(still, sid, C=C)) for C in (1.0, 2.0, 3.0)]
    listed = still.get(f"/sessions/{sid}/fits").json()["fits"]
    assert [each["id"] for each in listed] == fits[::-1]
    assert [each["C"] for each in listed] == [3.0, 2.0, 1.0]
    assert {each["status"] for each in listed} == {"queued"}
    for each in listed:
        assert still.get(f"/sessions/{sid}/fits/{each['id']}").json() == each
        assert all(each[field] is None for field in REPORTED)

    gone = f"/sessions/{sid}/fits/{fits[1]}"
    assert still.delete(gone).status_code == 204
    told = still.get(gone).json()
    assert (told["status"], told["attempts"], told["finished_at"] is None) == ("cancelled", 0, False)
    for use in (
        still.get(f"/sessions/{sid}/predict?model={fits[1]}&x=0,0"),
        still.post(f"/sessions/{sid}/promote", json={"fit": fits[1]}),
    ):
        require_problem(use, 409, "fit-not-ready", fit=fits[1], fit_status="cancelled")
    assert still.delete(gone).status_code == 204  # the same request may come twice
    assert still.get(gone).json() == told
    assert [each["id"] for each in still.get(f"/sessions/{sid}/fits").json()["fits"]] == fits[::-1]
    with redis.Redis.from_url(idle.redis_url) as store:
        assert store.zscore(fit_queue_key(), f"{sid} {fits[1]}") is None
        assert store.zscore(fit_queue_key(), f"{sid} {fits[0]}") is not None


def test_the_newest_hundred_are_kept_and_so_many_may_be_unfinished(still: httpx.Client) -> None:
    sid = opened(still, *two(6))
    fits = [accepted(ask(still, sid)) for _ in range(KEEP_FITS)]
    refused = ask(still, sid)
    require_problem(refused, 429, "rate-limited", limit=KEEP_FITS)
    assert refused.headers["retry-after"]
    assert still.delete(f"/sessions/{sid}/fits/{fits[40]}").status_code == 204
    newest = accepted(ask(still, sid))  # in the place of the one that has ended
    listed = [each["id"] for each in still.get(f"/sessions/{sid}/fits").json()["fits"]]
    assert listed == [newest, *reversed([each for each in fits if each != fits[40]])]
    assert still.delete(f"/sessions/{sid}").status_code == 204
    require_problem(still.get(f"/sessions/{sid}/fits"), 410, "session-gone")


def test_a_finished_fit_tells_so_on_the_event_stream(http: httpx.Client) -> None:
    sid = opened(http, *two(7))
    with listening(http, sid, "0-0") as events:
        assert spoken(events, 1)[0].name == "commit"
        fit = accepted(ask(http, sid))
        told = spoken(events, 3)
        assert [event.name for event in told] == ["fit"] * 3
        assert [event.data for event in told] == [
            {"fit": fit, "status": status} for status in ("queued", "running", "done")
        ]
        assert http.get(f"/sessions/{sid}/fits/{fit}").json()["status"] == "done"  # who hears of it finds it so
        hard = accepted(upload(http, sid, raw(*two(7, noise=0.2)), margin="hard"))
        assert [event.data["status"] for event in spoken(events, 3)] == ["queued", "running", "failed"]
        http.post(f"/sessions/{sid}/observe", json={"point": [0.1, 0.2], "label": "no"})
        assert spoken(events, 1)[0].name == "commit"
    require_problem(http.get(f"/sessions/{sid}/predict?model={hard}&x=0,0"), 409, "fit-not-ready", fit_status="failed")


def test_a_session_without_events_or_points_can_be_fitted_to_an_upload(http: httpx.Client) -> None:
    X, indices = two(8)
    sid = opened(http, keep_points=0)
    require_problem(ask(http, sid), 422, "empty-class")
    fit = accepted(upload(http, sid, raw(X, indices), margin="hard", reference=P2))
    assert done(http, sid, fit)["training_accuracy"] == 1


def test_only_the_points_that_are_kept_are_fitted(http: httpx.Client) -> None:
    """Blocks are kept whole; a fit takes exactly the newest keep_points of them"""
    X, indices = two(9, n=200)
    sid = opened(http, keep_points=70)
    for part in (slice(0, 100), slice(100, 200)):
        body = raw(X[part], indices[part])
        http.post(f"/sessions/{sid}/observe", content=body, headers={"content-type": RAW}).raise_for_status()
    told = done(http, sid, accepted(ask(http, sid, features="lift")))
    assert told["points"] == 70
    with threadpool_limits(1):
        _, report = batch.fit(
            Recipe(features="lift", reference=[[0.0, 0.0]]), X[-70:], indices[-70:], 2, 1.0, lambda done: None
        )
    assert told["certificate"]["primal"] == report["certificate"]["primal"]


# ------------------------------------------------------------------------------------------ the same key


def test_the_same_key_and_body_is_the_same_fit(still: httpx.Client) -> None:
    X, indices = two(10)
    sid = opened(still, X, indices)
    first = ask(still, sid, key="k", C=2.0)
    assert "idempotency-replayed" not in first.headers
    for again in (ask(still, sid, key="k", C=2.0), ask(still, sid, key="k", C=2.0, kind="softmax")):
        assert accepted(again) == accepted(first)
        assert again.headers["idempotency-replayed"] == "true"
    require_problem(ask(still, sid, key="k", C=3.0), 422, "key-reused")
    require_problem(upload(still, sid, raw(X, indices), key="k", C=2.0), 422, "key-reused")
    with_points = accepted(upload(still, sid, raw(X, indices), key="p"))
    assert accepted(upload(still, sid, raw(X, indices), key="p")) == with_points
    require_problem(upload(still, sid, raw(X[:-1], indices[:-1]), key="p"), 422, "key-reused")
    assert accepted(ask(still, opened(still, X, indices), key="k", C=3.0))  # another session's keys are its own
    assert len(still.get(f"/sessions/{sid}/fits").json()["fits"]) == 2
    assert accepted(ask(still, sid)) != accepted(ask(still, sid))  # without a key each is new


def test_a_key_is_answered_even_when_its_points_are_gone(still: httpx.Client) -> None:
    """A class is no longer among the retained points: a new fit is refused, the one asked for before is found"""
    X, indices = two(11)
    sid = opened(still, X, indices, keep_points=len(X))
    first = accepted(ask(still, sid, key="k"))
    body = raw(X, np.ones(len(X)))
    still.post(f"/sessions/{sid}/observe", content=body, headers={"content-type": RAW}).raise_for_status()
    require_problem(ask(still, sid), 422, "empty-class", label="no")
    assert accepted(ask(still, sid, key="k")) == first


def test_a_fit_that_was_forgotten_and_asked_for_anew_is_the_new_one(http: httpx.Client, running: Running) -> None:
    """Under the same key it has the same id; no worker answers with what it had at hand of the old one"""
    X, indices = two(12)
    sid = opened(http, X, indices)
    scores = []
    for C in (0.01, 100.0):
        fit = accepted(ask(http, sid, key="k", C=C, features="lift", reference=[0.2, 0.2]))
        done(http, sid, fit)
        ask_for = f"{running.url}/sessions/{sid}/predict?model={fit}&x=0.5,0.1"
        answers = [httpx.get(ask_for).json() for _ in range(8)]  # whichever worker
        assert all(answer == answers[0] for answer in answers)
        scores.append(answers[0]["scores"])
        where = f"/sessions/{sid}/fits/{fit}"
        assert http.delete(where).status_code == 204
        for answer in (
            httpx.get(ask_for),
            http.get(where),
            http.delete(where),
            http.post(f"/sessions/{sid}/promote", json={"fit": fit}),
        ):
            require_problem(answer, 404, "unknown-fit", fit=fit)
        assert http.get(f"/sessions/{sid}/fits").json() == {"fits": []}
    assert scores[0] != scores[1]


# ------------------------------------------------------------------------------------------ what cannot be done


def demanding() -> dict[str, tuple[Array, Indices, dict[str, Any]]]:
    """Problems that once stopped far from the optimum and were called done, or ended with a dual above the primal"""
    rng = np.random.default_rng(0)
    wide = points(rng, 400, 50, 11.9)
    sides = (rng.normal(size=50) @ wide.T + 0.2 * rng.normal(size=400) >= 0).astype(np.int64)
    turn = 2 * np.pi * np.arange(200) / 200
    ring, arcs = np.column_stack([np.cos(turn), np.sin(turn)]), (np.arange(200) // 25 % 2).astype(np.int64)
    both = np.vstack([1e-8 * ring[:100], np.tanh(5.99) * ring[100:]])
    lift, soft = {"features": "lift", "reference": "session"}, {"kind": "svm", "features": "hyperboloid"}
    return {
        "wide": (wide, sides, {**lift, "loss": "squared_hinge", "C": 1000.0}),
        "ring at 12": (np.tanh(5.99) * ring, arcs, {**soft, "C": 1e4}),
        "ring at 10": (np.tanh(5.0) * ring, arcs, {**soft, "C": 1e6}),
        "near and far": (both, (both[:, 0] >= 0).astype(np.int64), {**lift, "margin": "hard"}),
    }


def test_what_is_done_has_reached_its_gap(http: httpx.Client) -> None:
    asked = {}
    for name, (X, indices, fields) in demanding().items():
        sid = opened(http, X, indices, algorithm="perceptron", dimension=X.shape[1])
        asked[name] = sid, accepted(ask(http, sid, **fields))
    for name, (sid, fit) in asked.items():
        told = ended(http, sid, fit)
        if told["status"] == "done":
            proof = told["certificate"]
            assert 0 <= proof["gap"] <= 1e-6, name
            assert proof["dual"] <= proof["primal"], name
        else:
            assert told["failure"]["type"] in ("/problems/not-converged", "/problems/not-separable"), (name, told)
            assert "gap" in told["failure"] or "witness" in told["failure"], name


def test_points_that_are_the_same_are_not_separable(http: httpx.Client) -> None:
    for X in ([[0.0, 0.0], [0.0, 0.0]], [[0.1, 0.2], [0.1, 0.2]]):
        sid = opened(http, np.array(X), np.array([1, 0]), algorithm="perceptron")
        fits = [accepted(ask(http, sid, margin="hard", **fields)) for fields in ({"reference": "hull"}, {})]
        for told in (ended(http, sid, fit) for fit in fits):
            assert (told["status"], told["failure"]["type"]) == ("failed", "/problems/not-separable"), (X, told)


def test_a_hard_margin_of_inseparable_points_fails_and_says_why(http: httpx.Client) -> None:
    X, indices = two(13, noise=0.2)
    sid = opened(http, X, indices)
    fits = [accepted(ask(http, sid, margin="hard", **{"features": f})) for f in ("tangent", "lift", "hyperboloid")]
    for fit in fits:
        told = ended(http, sid, fit)
        assert (told["status"], told["failure"]["type"]) == ("failed", "/problems/not-separable")
        assert "no classifier has a margin" in told["failure"]["detail"]
        rows, weights = zip(*told["failure"]["witness"], strict=True)
        assert sum(weights) == pytest.approx(1)
        assert set(rows) <= set(range(len(X)))
        assert all(told[field] is None for field in REPORTED)
        require_problem(
            http.get(f"/sessions/{sid}/predict?model={fit}&x=0,0"), 409, "fit-not-ready", fit_status="failed"
        )
        require_problem(http.post(f"/sessions/{sid}/promote", json={"fit": fit}), 409, "fit-not-ready")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "C is 0": ({"C": 0}, "invalid-request"),
    "C is negative": ({"C": -1.0}, "invalid-request"),
    "C is enormous": ({"C": 1e300}, "invalid-request"),
    "margin": ({"margin": "medium"}, "invalid-request"),
    "kind": ({"kind": "tree"}, "invalid-request"),
    "loss": ({"loss": "logistic"}, "invalid-request"),
    "features": ({"features": "euclidean"}, "invalid-request"),
    "a reference of no name": ({"reference": "nowhere"}, "invalid-request"),
    "a reference outside the ball": ({"reference": [0.8, 0.8]}, "point-outside-ball"),
    "a reference of another dimension": ({"reference": [0.1, 0.1, 0.1]}, "dimension-mismatch"),
    "two references for one boundary": ({"reference": [[0.1, 0.1], [0.2, 0.2]]}, "invalid-parameter"),
    "an unknown field": ({"gamma": 1.0}, "unknown-field"),
    "a hard softmax": ({"kind": "softmax", "margin": "hard"}, "invalid-parameter"),
}


@pytest.fixture(scope="module")
def session(idle: Running) -> str:
    with httpx.Client(base_url=idle.url) as http:
        return opened(http, *two(14))


@pytest.fixture
def unchanged(idle: Running, session: str) -> Iterator[None]:
    """Whatever was refused, nothing was queued and nothing kept"""

    def kept() -> tuple[Any, list[bytes | None]]:
        with redis.Redis.from_url(idle.redis_url) as store:
            return store.zrange(fit_queue_key(), 0, -1), [store.dump(key) for key in session_keys(session)]

    before = kept()
    yield
    assert kept() == before


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("unchanged")
def test_what_is_wrong_is_said_at_once(still: httpx.Client, session: str, name: str) -> None:
    fields, slug = WRONG[name]
    for answer in (ask(still, session, **fields), upload(still, session, raw(*two(14)), **fields)):
        told = require_problem(answer, 422, slug)
        assert next(iter(fields)) in told["detail"] or "reference" in fields or "margin" in told["detail"]


RAW_JSON: dict[str, tuple[bytes, int, str]] = {
    "C is NaN": (b'{"C": NaN}', 422, "non-finite"),
    "C is infinite": (b'{"C": 1e400}', 422, "non-finite"),
    "C is a string": (b'{"C": "1"}', 422, "not-a-number"),
    "C is true": (b'{"C": true}', 422, "not-a-number"),
    "a reference that is NaN": (b'{"reference": [NaN, 0.1]}', 422, "non-finite"),
    "a reference of strings": (b'{"reference": ["a", "b"]}', 422, "not-a-number"),
    "a reference of nothing": (b'{"reference": []}', 422, "not-a-number"),
    "a reference of nothings": (b'{"reference": [[], []]}', 422, "not-a-number"),
    "a ragged reference": (b'{"reference": [[0.1, 0.2], [0.1]]}', 422, "dimension-mismatch"),
    "probabilities is a word": (b'{"probabilities": "yes"}', 422, "invalid-request"),
    "a list": (b"[]", 422, "invalid-request"),
    "a number": (b"5", 422, "invalid-request"),
    "no JSON": (b'{"C": 1', 400, "malformed-body"),
    "bad UTF-8": (b'{"C\xff": 1}', 400, "malformed-body"),
    "100,000 lists": (b"[" * 100_000, 400, "malformed-body"),
}


@pytest.mark.parametrize("name", RAW_JSON)
@pytest.mark.usefixtures("unchanged")
def test_bodies_that_are_no_request(still: httpx.Client, session: str, name: str) -> None:
    body, status, slug = RAW_JSON[name]
    headers = {"content-type": "application/json"}
    require_problem(still.post(f"/sessions/{session}/fits", content=body, headers=headers), status, slug)


UPLOADS: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "nothing": (b"", "empty-batch", {}),
    "half a row": (raw(*two(14))[:-8], "dimension-mismatch", {}),
    "NaN": (raw(np.array([[0.1, 0.1], [np.nan, 0.0]]), [0, 1]), "non-finite", {"index": 1}),
    "outside the ball": (raw(np.array([[0.1, 0.1], [1.0, 0.0]]), [0, 1]), "point-outside-ball", {"index": 1}),
    "a third label": (raw(np.array([[0.1, 0.1], [0.1, 0.0]]), [0, 2]), "unknown-label", {"index": 1}),
    "half a label": (raw(np.array([[0.1, 0.1], [0.1, 0.0]]), [0, 0.5]), "unknown-label", {"index": 1}),
    "one class": (raw(*two(14))[24:48], "empty-class", {}),
    "2,001 points": (raw(*two(14, n=2001)), "too-many-points", {"points": 2001, "limit": 2000}),
}


@pytest.mark.parametrize("name", UPLOADS)
@pytest.mark.usefixtures("unchanged")
def test_points_that_cannot_be_fitted(still: httpx.Client, session: str, name: str) -> None:
    body, slug, members = UPLOADS[name]
    require_problem(upload(still, session, body), 422, slug, **members)


def test_fields_without_a_body_come_in_the_query_but_not_in_both(still: httpx.Client) -> None:
    sid = opened(still, *two(14))
    answer = still.post(f"/sessions/{sid}/fits?C=7&loss=squared_hinge")
    accepted(answer)
    assert (answer.json()["C"], answer.json()["loss"]) == (7.0, "squared_hinge")
    both = still.post(f"/sessions/{sid}/fits?C=7", json={"loss": "hinge"})
    require_problem(both, 422, "invalid-request", parameter="C")
    assert len(still.get(f"/sessions/{sid}/fits").json()["fits"]) == 1


@pytest.mark.usefixtures("unchanged")
def test_queries_and_headers_that_are_wrong(still: httpx.Client, session: str) -> None:
    body = raw(*two(14))
    for params, slug in (
        ({"C": "x"}, "invalid-request"),
        ({"C": "NaN"}, "non-finite"),
        ({"C": "1e400"}, "non-finite"),
        ({"probabilities": "maybe"}, "invalid-request"),
        ({"reference": "0.1;0.2"}, "invalid-request"),
        ({"reference": ""}, "invalid-request"),
        ({"reference": "nan,0"}, "non-finite"),
        ({"x": "1"}, "unknown-field"),
    ):
        answer = still.post(f"/sessions/{session}/fits", content=body, params=params, headers={"content-type": RAW})
        require_problem(answer, 422, slug)
    require_problem(upload(still, session, body, "text/csv"), 415, "unsupported-media-type")
    require_problem(upload(still, session, body, NPY), 400, "malformed-body")
    packed = {"content-type": RAW, "content-encoding": "gzip"}
    answer = still.post(f"/sessions/{session}/fits", content=body, headers=packed)
    require_problem(answer, 415, "unsupported-media-type")
    require_problem(upload(still, session, body, key="k" * 201), 422, "invalid-request")


@pytest.mark.parametrize(
    ("fields", "becomes"),
    [
        ({}, ("softmax", "hemisphere", 1000.0, None, None, None)),
        ({"features": "hyperboloid"}, ("softmax", "hyperboloid", 1000.0, None, None, None)),
        ({"kind": "svm"}, ("svm", "hemisphere", 1.0, "soft", "hinge", None)),
        ({"margin": "hard"}, ("svm", "hemisphere", 1.0, "hard", "hinge", None)),
        ({"loss": "squared_hinge", "C": 5}, ("svm", "hemisphere", 5.0, "soft", "squared_hinge", None)),
        ({"reference": "lorentz"}, ("svm", "tangent", 1.0, "soft", "hinge", "lorentz")),
        ({"features": "lift"}, ("svm", "lift", 1.0, "soft", "hinge", "session")),
    ],
)
def test_what_is_left_out_is_filled_in(still: httpx.Client, fields: dict[str, Any], becomes: tuple[Any, ...]) -> None:
    sid = opened(still, *two(15), algorithm="perceptron", reference="origin")
    told = ask(still, sid, **fields).json()
    assert tuple(told[name] for name in ("kind", "features", "C", "margin", "loss", "reference")) == becomes


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"kind": "softmax", "reference": "hull"}, "reference"),
        ({"kind": "softmax", "loss": "hinge"}, "loss"),
        ({"kind": "softmax", "features": "lift"}, "features"),
        ({"features": "hemisphere", "reference": "hull"}, "reference"),
        ({"features": "hyperboloid", "reference": "session"}, "reference"),
    ],
)
def test_words_that_contradict_each_other_are_refused(still: httpx.Client, fields: dict[str, Any], name: str) -> None:
    require_problem(ask(still, opened(still, *two(15)), **fields), 422, "invalid-parameter", name=name)


def test_classes_and_sessions_that_are_missing(still: httpx.Client) -> None:
    X, indices = two(15)
    require_problem(ask(still, opened(still)), 422, "empty-class")
    one = opened(still, X[indices == 1], indices[indices == 1])
    require_problem(ask(still, one), 422, "empty-class", label="no")
    most = opened(still, X, indices, labels=["a", "b", "c"])
    require_problem(ask(still, most), 422, "empty-class", label="c")
    kept = opened(still, *two(15, n=2001))
    require_problem(ask(still, kept), 422, "too-many-points", points=2001, limit=2000)
    flat = opened(still, X, indices, algorithm="hyperboloid")
    require_problem(ask(still, flat, reference="session"), 422, "invalid-parameter", name="reference")
    accepted(ask(still, flat, kind="svm", features="hyperboloid"))
    third = opened(still, *three(15))
    for count in (2, 4):
        answer = ask(still, third, reference=[[0.1, 0.1]] * count)
        require_problem(answer, 422, "invalid-parameter", name="reference")
    require_problem(ask(still, uuid4().hex), 404, "unknown-session")
    assert still.delete(f"/sessions/{one}").status_code == 204
    for answer in (ask(still, one), still.get(f"/sessions/{one}/fits"), still.get(f"/sessions/{one}/fits/a")):
        require_problem(answer, 410, "session-gone")


def test_a_fit_that_is_not_there_or_not_done_cannot_be_used(still: httpx.Client) -> None:
    sid = opened(still, *two(16))
    waiting = accepted(ask(still, sid))
    elsewhere = accepted(ask(still, opened(still, *two(16))))
    for fit in ("nothing", elsewhere, "online%20", f"{waiting}:status"):
        require_problem(still.get(f"/sessions/{sid}/predict?model={fit}&x=0,0"), 404, "unknown-fit")
    for answer in (
        still.get(f"/sessions/{sid}/fits/nothing"),
        still.delete(f"/sessions/{sid}/fits/nothing"),
        still.post(f"/sessions/{sid}/promote", json={"fit": "nothing"}),
    ):
        require_problem(answer, 404, "unknown-fit", fit="nothing")
    before = still.get(f"/sessions/{sid}").json()
    for answer in (
        still.get(f"/sessions/{sid}/predict?model={waiting}&x=0,0"),
        still.post(f"/sessions/{sid}/predict?model={waiting}", json={"point": [0, 0]}),
        still.post(f"/sessions/{sid}/promote", json={"fit": waiting}),
    ):
        require_problem(answer, 409, "fit-not-ready", fit=waiting, fit_status="queued")
    require_problem(still.post(f"/sessions/{sid}/promote", json={"fit": "a b"}), 422, "invalid-request")
    require_problem(still.post(f"/sessions/{sid}/promote", json={"fit": waiting, "x": 1}), 422, "unknown-field")
    assert still.get(f"/sessions/{sid}").json() == before


# ------------------------------------------------------------------------------------------ limits


@pytest.fixture
def alone(idle: Running) -> None:
    """What other tests left waiting is not worked on"""
    with redis.Redis.from_url(idle.redis_url) as store:
        store.delete(fit_queue_key())


@contextmanager
def worker(idle: Running, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A fit worker of its own, which ends with the block"""
    env = {**os.environ, "REDIS_URL": idle.redis_url, **environment}
    command = [sys.executable, "-m", "service.fits.worker", "--follow"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


@pytest.mark.parametrize(
    ("setting", "limit", "reason"),
    [("FIT_SECONDS", "0.3", "longer than 0.3 s"), ("FIT_MEMORY", str(256 << 20), "more than 268435456 bytes")],
)
@pytest.mark.usefixtures("alone")
def test_a_fit_beyond_its_limits_fails_with_a_reason(
    idle: Running, still: httpx.Client, tmp_path: Path, setting: str, limit: str, reason: str
) -> None:
    sid = opened(still)
    large = accepted(upload(still, sid, raw(*two(17, n=2000, noise=0.2)), reference="cv", C=1000.0))
    with worker(idle, **{f"HOROCYCLE_{setting}": limit, "TMPDIR": str(tmp_path)}):
        told = ended(still, sid, large)
    assert (told["status"], told["failure"]["type"]) == ("failed", "/problems/fit-failed")
    assert reason in told["failure"]["detail"]
    assert told["attempts"] == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("alone")
def test_a_session_with_a_time_to_live_keeps_nothing_of_a_fit_beyond_it(idle: Running, still: httpx.Client) -> None:
    """To ask for a fit is to use the session: all of it lives on, and what the fit comes to lives as long"""
    sid = opened(still, *two(18), ttl_seconds=1000)
    with redis.Redis.from_url(idle.redis_url) as store:
        for key in session_keys(sid):
            store.expire(key, 20)
        fit = accepted(ask(still, sid))
        present = [key for key in session_keys(sid) if store.exists(key)]
        assert len(present) > 2  # the session, its state, the fit
        assert all(900 < store.ttl(key) <= 1000 for key in present)
        with worker(idle):
            done(still, sid, fit)
        assert 900 < store.ttl(fit_models_key(sid)) <= 1000
    assert still.get(f"/sessions/{sid}/predict?model={fit}&x=0,0").status_code == 200


@pytest.mark.usefixtures("alone")
def test_a_session_that_expires_takes_its_fits_along(idle: Running, still: httpx.Client) -> None:
    sid = opened(still, *two(19), ttl_seconds=2)
    fit = accepted(ask(still, sid))
    with redis.Redis.from_url(idle.redis_url) as store:
        deadline = time.monotonic() + 10
        while any(store.exists(key) for key in session_keys(sid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with worker(idle):
            while store.zscore(fit_queue_key(), f"{sid} {fit}") is not None:
                assert time.monotonic() < deadline + 20
                time.sleep(0.05)
        assert not any(store.exists(key) for key in session_keys(sid))
    require_problem(still.get(f"/sessions/{sid}/fits/{fit}"), 410, "session-gone")
