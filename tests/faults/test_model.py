"""The whole API against a plain model of it: Hypothesis draws what is asked next, of a real service with two workers.

The model is a list of points and a learner that takes them one by one, in this process. After every step the service
must say what the model says, bit for bit: scores, predictions, counts, versions, the log, the past, late labels, stored
answers, forks and imports. Clients that ask at once may come in any order; the answers say in which they came.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from service.api.schemas import OpenSession
from service.geometry import Array
from service.learners import LEARNERS, encode, one_vs_rest
from service.sessions.published import published
from service.sessions.records import Counters
from service.sessions.spec import MANY_CLASSES, Spec
from tests.problem import require_problem
from tests.running import Running
from tests.waiting import wait_until

FORMS = ("application/json", "application/x-ndjson", "application/x-npy", "application/octet-stream")
KINDS: list[dict[str, Any]] = [
    {"algorithm": "perceptron", "reference": "origin"},
    {"algorithm": "perceptron", "labels": ["a", "b", "c"], "keep_points": 6},
    {"algorithm": "second_order", "reference": [0.2, -0.1], "labels": ["no", "yes"]},
    {"algorithm": "second_order", "curvature": 0.5},
    {"algorithm": "strategic", "budget": 0.4},
    {"algorithm": "hyperboloid", "labels": [3, 1, 2]},
    {"algorithm": "gaussian", "labels": [False, True]},
]
#: Sessions at a time.
MOST = 4


# ------------------------------------------------------------------------------------------------------ the model


@dataclass(frozen=True)
class Moment:
    """What is known of a session after some points"""

    spec: Spec
    state: Any
    counters: Counters = field(default_factory=Counters)

    def learn(self, x: Array, index: int) -> tuple[Moment, Array, int]:
        """The moment after one point; its score, and the class that was decided for, before it was learned"""
        spec, c = self.spec, self.counters
        outcome = spec.learner.learn(self.state, x[None], spec.targets(np.array([index])), False)
        decided = int(spec.decide(outcome.scores)[0])
        more = outcome.changed if outcome.updates is None else outcome.updates
        counters = Counters(
            c.observed + 1,
            c.mistakes + (decided != index),
            c.updates + int(np.sum(more)),
            c.version + int(outcome.changed[0]),
        )
        return Moment(spec, outcome.state, counters), outcome.scores[0], decided

    @property
    def model(self) -> dict[str, Any]:
        c = self.counters
        told = {**published(self.spec, self.state), "updates": c.updates, "version": c.version}
        found: dict[str, Any] = json.loads(json.dumps(told, default=np.ndarray.tolist))
        return found


@dataclass
class Session:
    now: Moment
    rows: list[tuple[Array, int]] = field(default_factory=list)
    past: dict[int, Moment] = field(default_factory=dict)
    cells: Counter[tuple[int, int]] = field(default_factory=Counter)
    answers: dict[str, tuple[dict[str, Any], bytes]] = field(default_factory=dict)  # key → request, answer
    waiting: dict[str, Array] = field(default_factory=dict)
    learned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.past.setdefault(self.now.counters.observed, self.now)

    @property
    def id(self) -> str:
        return self.now.spec.id

    @property
    def labels(self) -> tuple[Any, ...]:
        return self.now.spec.labels

    def learn(self, X: Array, indices: list[int], until_change: bool = False) -> dict[str, Any]:
        """What is answered"""
        before, scores, decisions = self.now.counters, list[Any](), list[int]()
        for x, index in zip(X, indices, strict=True):
            version = self.now.counters.version
            self.now, score, decided = self.now.learn(x, index)
            self.rows.append((x, index))
            self.past[self.now.counters.observed] = self.now
            self.cells[index, decided] += 1
            scores.append(score.tolist())
            decisions.append(decided)
            if until_change and self.now.counters.version != version:
                break
        c, n = self.now.counters, len(scores)
        return {
            "predictions": [self.labels[decided] for decided in decisions],
            "scores": scores,
            "correct": [decided == index for decided, index in zip(decisions, indices, strict=False)],
            "accepted": n,
            "mistakes": c.mistakes - before.mistakes,
            "session": {name: getattr(c, name) for name in ("observed", "mistakes", "updates", "version")},
        }

    def grow(self, labels: list[Any]) -> None:
        """More classes, which is a new version"""
        spec, c = self.now.spec, self.now.counters
        wider = replace(spec, labels=(*spec.labels, *labels))
        if spec.kind in MANY_CLASSES:
            state = LEARNERS[spec.kind].grown(self.now.state, wider.classes)
        else:
            state = one_vs_rest.grown(self.now.state, LEARNERS[spec.kind].first(wider), wider.classes)
        self.now = self.past[c.observed] = Moment(wider, state, replace(c, version=c.version + 1))


def body(form: str, spec: Spec, X: Array, indices: list[int] | None = None) -> dict[str, Any]:
    """As httpx takes it: the points, with their labels if they have some"""
    headers = {"content-type": form}
    labels = None if indices is None else [spec.labels[index] for index in indices]
    if form == FORMS[0]:
        told = {"points": X.tolist()} if labels is None else {"points": X.tolist(), "labels": labels}
        return {"content": json.dumps(told).encode(), "headers": headers}
    if form == FORMS[1]:
        each = [{"point": x} if labels is None else {"point": x, "label": labels[i]} for i, x in enumerate(X.tolist())]
        return {"content": "\n".join(map(json.dumps, each)).encode(), "headers": headers}
    table = np.ascontiguousarray(X if indices is None else np.column_stack([X, indices]), dtype="<f8")
    if form == FORMS[3]:
        return {"content": table.tobytes(), "headers": headers}
    file = io.BytesIO()
    np.save(file, table)
    return {"content": file.getvalue(), "headers": headers}


# -------------------------------------------------------------------------------------------------- what is asked

batches = st.integers(1, 5)
seeds = st.integers(0, 2**32 - 1)
forms = st.sampled_from(FORMS)
which = st.integers(0, MOST - 1)


class Asked(RuleBasedStateMachine):
    def __init__(self, http: httpx.Client, crowd: ThreadPoolExecutor) -> None:
        super().__init__()
        self.http, self.crowd = http, crowd
        self.sessions, self.ended = list[Session](), list[str]()

    def pick(self, number: int) -> Session:
        return self.sessions[number % len(self.sessions)]

    def drawn(self, session: Session, seed: int, n: int) -> tuple[Array, list[int]]:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-0.6, 0.6, (n, 2))
        indices = (X[:, 0] > 0.2 * X[:, 1]).astype(int) + rng.integers(0, len(session.labels) - 1, n)
        return X, indices.tolist()

    def observe(self, session: Session, asked: dict[str, Any], **headers: str) -> httpx.Response:
        how = {**asked, "headers": {**asked["headers"], **headers}}
        return self.http.post(
            f"/sessions/{session.id}/observe", params={"label": "index"} if binary(how) else {}, **how
        )

    def require_same(self, session: Session) -> None:
        c = session.now.counters
        told = self.http.get(f"/sessions/{session.id}").json()
        assert told["labels"] == list(session.labels)
        assert Counters(*(told[name] for name in ("observed", "mistakes", "updates", "version"))) == c

    # ------------------------------------------------------------------------------------ sessions come and go

    @initialize(kind=st.sampled_from(KINDS))
    def first(self, kind: dict[str, Any]) -> None:
        self.open(kind)

    @precondition(lambda self: len(self.sessions) < MOST)
    @rule(kind=st.sampled_from(KINDS))
    def open(self, kind: dict[str, Any]) -> None:
        wanted = {"dimension": 2, "id": secrets.token_hex(8), "drift": {"sensitivity": 1e-9}, **kind}
        for status in (201, 409):
            assert self.http.post("/sessions", json=wanted).status_code == status
        spec = OpenSession(**wanted).spec()
        self.sessions.append(Session(Moment(spec, spec.first_state())))
        self.require_same(self.sessions[-1])

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(number=which)
    def end(self, number: int) -> None:
        gone = self.sessions.pop(number % len(self.sessions))
        assert self.http.delete(f"/sessions/{gone.id}").status_code == 204
        require_problem(self.http.delete(f"/sessions/{gone.id}"), 410, "session-gone")
        require_problem(self.http.post("/sessions", json={"id": gone.id, "dimension": 2}), 409, "session-exists")
        self.ended.append(gone.id)

    @precondition(lambda self: bool(self.ended))
    @rule(number=which, form=forms)
    def ask_one_that_ended(self, number: int, form: str) -> None:
        gone = f"/sessions/{self.ended[number % len(self.ended)]}"
        asked = body(form, self.sessions[0].now.spec, np.array([[0.1, 0.2]]), [1])
        require_problem(self.http.post(f"{gone}/observe", **asked), 410, "session-gone")
        for look in ("", "/model", "/metrics", "/log", "/snapshot", "/at/0/model", "/predict?x=0,0"):
            require_problem(self.http.get(gone + look), 410, "session-gone")

    @rule(number=which, name=st.none() | st.text(st.characters(codec="utf-8"), max_size=10), keyed=st.booleans())
    def rename(self, number: int, name: str | None, keyed: bool) -> None:
        session = self.pick(number)
        headers = {"idempotency-key": secrets.token_hex(8)} if keyed else {}
        for _ in range(2):
            told = self.http.patch(f"/sessions/{session.id}", json={"name": name}, headers=headers)
            assert told.json()["name"] == name, told.text
        self.require_same(session)

    @rule(number=which)
    def add_a_label(self, number: int) -> None:
        session = self.pick(number)
        spec = session.now.spec
        new = f"label {len(session.labels)}" if str in spec.label_types else 100 + len(session.labels)
        refused = spec.kind == "strategic" or spec.label_types == {bool} or len(session.labels) > 4
        told = self.http.patch(
            f"/sessions/{session.id}",
            json={"add_labels": [new if len(session.labels) <= 4 else session.labels[0]]},
            headers={"idempotency-key": secrets.token_hex(8)},
        )
        if refused:
            assert told.status_code == 422, told.text
        else:
            assert told.status_code == 200, told.text
            session.grow([new])
        self.require_same(session)

    # -------------------------------------------------------------------------------------------- learning

    @rule(number=which, seed=seeds, n=batches, form=forms, keyed=st.booleans())
    def observe_some(self, number: int, seed: int, n: int, form: str, keyed: bool) -> None:
        session = self.pick(number)
        X, indices = self.drawn(session, seed, n)
        key, asked = secrets.token_hex(8), body(form, session.now.spec, X, indices)
        answer = self.observe(session, asked, **({"idempotency-key": key} if keyed else {}))
        assert answer.status_code == 200, answer.text
        assert answer.json() == session.learn(X, indices)
        if keyed:
            session.answers[key] = (asked, answer.content)

    @rule(number=which, again=st.integers(0, 1000), other=st.booleans())
    def retry(self, number: int, again: int, other: bool) -> None:
        """An old key, with its body or another"""
        session = self.pick(number)
        if not session.answers:
            return
        key = [*session.answers][again % len(session.answers)]
        asked, told = session.answers[key]
        if other:
            X = np.array([[0.123, 0.456]])
            answer = self.observe(session, body(FORMS[0], session.now.spec, X, [0]), **{"idempotency-key": key})
            require_problem(answer, 422, "key-reused")
        else:
            answer = self.observe(session, asked, **{"idempotency-key": key})
            assert (answer.status_code, answer.content) == (200, told)
            assert answer.headers["idempotency-replayed"] == "true"
        self.require_same(session)

    @rule(number=which, seed=seeds, clients=st.integers(2, 5), form=forms)
    def many_at_once(self, number: int, seed: int, clients: int, form: str) -> None:
        """Each says it twice. The order is theirs; what is answered, and twice the same, must be of one order"""
        session = self.pick(number)
        drawn = [self.drawn(session, seed + client, 1 + client) for client in range(clients)]
        keys = [secrets.token_hex(8) for _ in drawn]
        bodies = [body(form, session.now.spec, X, indices) for X, indices in drawn]
        asking = [
            self.crowd.submit(self.observe, session, bodies[i], **{"idempotency-key": keys[i]})
            for i in (*range(clients), *range(clients))
        ]
        answers = [each.result() for each in asking]
        assert {each.status_code for each in answers} == {200}, [each.text for each in answers]
        for i in range(clients):
            assert answers[i].content == answers[i + clients].content
        told = [each.json() for each in answers[:clients]]
        for i in sorted(range(clients), key=lambda i: told[i]["session"]["observed"]):
            assert told[i] == session.learn(*drawn[i])
            session.answers[keys[i]] = (bodies[i], answers[i].content)

    @rule(number=which, seed=seeds, n=batches, behind=st.integers(0, 2))
    def respond_to_a_version(self, number: int, seed: int, n: int, behind: int) -> None:
        session = self.pick(number)
        version = session.now.counters.version
        X, indices = self.drawn(session, seed, n)
        asked = body(FORMS[0], session.now.spec, X, indices)
        answer = self.observe(session, asked, **{"if-match": f'"{version - behind}"'})
        if behind and version - behind >= 0:
            require_problem(answer, 412, "stale-model")
            assert answer.headers["etag"] == f'"{version}"'
            self.require_same(session)
        elif behind:
            require_problem(answer, 422, "invalid-request")
        elif (
            session.now.spec.kind == "strategic"
        ):  # what responds to a version is evidence of a budget, not only a point
            assert answer.status_code == 200
            session.learn(X, indices, until_change=True)
            assert answer.json()["accepted"] <= n
            self.require_same(session)
        else:
            assert answer.json() == session.learn(X, indices, until_change=True)

    @rule(number=which, wrong=st.sampled_from(["label", "ball", "dimension", "number", "empty", "json"]))
    def nonsense(self, number: int, wrong: str) -> None:
        """The first point is good, the second is not: nothing is learned"""
        session = self.pick(number)
        points, labels = {
            "label": ([[0.1, 0.2], [0.1, 0.3]], [session.labels[0], "nobody's"]),
            "ball": ([[0.1, 0.2], [9.0, 9.0]], [session.labels[0]] * 2),
            "dimension": ([[0.1, 0.2], [0.9]], [session.labels[0]] * 2),
            "number": ([[0.1, 0.2], [0.1, "0.2"]], [session.labels[0]] * 2),
            "empty": ([], []),
            "json": ([[0.1, 0.2]], [session.labels[0]] * 2),
        }[wrong]
        answer = self.http.post(f"/sessions/{session.id}/observe", json={"points": points, "labels": labels})
        assert answer.status_code == 422, answer.text
        self.require_same(session)

    # ------------------------------------------------------------------------------------------- late labels

    @rule(number=which, seed=seeds, n=batches, form=forms)
    def predict(self, number: int, seed: int, n: int, form: str) -> None:
        session = self.pick(number)
        X, _ = self.drawn(session, seed, n)
        answer = self.http.post(f"/sessions/{session.id}/predict", **body(form, session.now.spec, X))
        self.require_predicted(session, X, answer)

    def require_predicted(self, session: Session, X: Array, answer: httpx.Response) -> None:
        spec, scores = session.now.spec, session.now.spec.learner.score(session.now.state, X)
        told = answer.json()
        assert told["scores"] == scores.tolist()
        assert told["predictions"] == [spec.labels[i] for i in spec.decide(scores)]
        assert told["cold"] == (session.now.counters.observed == 0)
        assert answer.headers["etag"] == f'"{session.now.counters.version}"'

    @rule(number=which, seed=seeds, n=batches)
    def predict_for_later(self, number: int, seed: int, n: int) -> None:
        session = self.pick(number)
        X, _ = self.drawn(session, seed, n)
        asked = {f"{seed}-{n}-{i}": x for i, x in enumerate(X)}
        sent = {"points": X.tolist(), "ids": list(asked)}
        for _ in range(2):  # again: the same points wait
            self.require_predicted(session, X, self.http.post(f"/sessions/{session.id}/predict", json=sent))
        for id, x in asked.items():
            if id not in session.learned:
                session.waiting[id] = x
        moved = {"points": (X + 0.01).tolist(), "ids": list(asked)}
        require_problem(self.http.post(f"/sessions/{session.id}/predict", json=moved), 422, "id-reused")

    @rule(number=which, seed=seeds, n=st.integers(1, 4), keyed=st.booleans())
    def label(self, number: int, seed: int, n: int, keyed: bool) -> None:
        session = self.pick(number)
        rng = np.random.default_rng(seed)
        waiting = [str(each) for each in rng.permutation([*session.waiting])[:n]]
        before = [str(each) for each in rng.permutation([*session.learned])[:1]]
        ids = [*waiting, *before, "unheard of"]
        indices = rng.integers(0, len(session.labels), len(ids)).tolist()
        sent = {"ids": ids, "labels": [session.labels[i] for i in indices]}
        headers = {"idempotency-key": secrets.token_hex(8)} if keyed else {}
        answer = self.http.post(f"/sessions/{session.id}/labels", json=sent, headers=headers)
        assert answer.status_code == 200, answer.text
        X = np.array([session.waiting.pop(id) for id in waiting]).reshape(-1, 2)
        learned = session.learn(X, indices[: len(waiting)])
        session.learned |= {*waiting}
        rest = {"ids": waiting, "unknown": ["unheard of"], "expired": [], "already_learned": before}
        assert answer.json() == {**learned, **rest}
        if keyed:
            again = self.http.post(f"/sessions/{session.id}/labels", json=sent, headers=headers)
            assert (again.content, again.headers["idempotency-replayed"]) == (answer.content, "true")

    # ------------------------------------------------------------------------------------------- what is told

    @rule(number=which)
    def look_at_the_model(self, number: int) -> None:
        session = self.pick(number)
        answer = self.http.get(f"/sessions/{session.id}/model")
        assert answer.json() == session.now.model
        tag = answer.headers["etag"]
        assert self.http.get(f"/sessions/{session.id}/model", headers={"if-none-match": tag}).status_code == 304

    @rule(number=which, back=st.integers(0, 1000))
    def look_back(self, number: int, back: int) -> None:
        session = self.pick(number)
        observed = session.now.counters.observed
        position = back % (observed + 1)
        answer = self.http.get(f"/sessions/{session.id}/at/{position}/model")
        if answer.status_code == 410 and (position not in session.past or session.now.spec.keep_points < observed):
            require_problem(answer, 410, "log-trimmed")
        else:
            assert answer.json() == session.past[position].model
        require_problem(self.http.get(f"/sessions/{session.id}/at/{observed + 1}/model"), 422, "invalid-parameter")

    @rule(number=which, start=st.integers(0, 1000), limit=st.integers(1, 20))
    def read_the_log(self, number: int, start: int, limit: int) -> None:
        session = self.pick(number)
        observed, oldest = len(session.rows), max(len(session.rows) - session.now.spec.keep_points, 0)
        start %= observed + 1
        answer = self.http.get(f"/sessions/{session.id}/log", params={"from": start, "limit": limit})
        if start < oldest:
            require_problem(answer, 410, "log-trimmed")
            return
        told, stop = answer.json(), min(start + limit, observed)
        assert (told["from"], told["to"], told["next"]) == (start, stop, stop if stop < observed else None)
        assert told["points"] == [x.tolist() for x, _ in session.rows[start:stop]]
        assert told["labels"] == [session.labels[index] for _, index in session.rows[start:stop]]

    @rule(number=which)
    def count(self, number: int) -> None:
        session = self.pick(number)
        told, K = self.http.get(f"/sessions/{session.id}/metrics").json(), len(session.labels)
        c = session.now.counters
        assert (told["observed"], told["mistakes"], told["version"]) == (c.observed, c.mistakes, c.version)
        assert told["confusion"] == [[session.cells[i, j] for j in range(K)] for i in range(K)]
        assert told["accuracy"] == (None if not c.observed else (c.observed - c.mistakes) / c.observed)
        rate = self.http.get(f"/sessions/{session.id}/certificate").json()["error_rate"]
        assert rate["low"] <= (rate["estimate"] or 0.0) <= rate["high"]

    @rule(number=which)
    def find_it_in_the_list(self, number: int) -> None:
        listed = self.http.get("/sessions", params={"limit": 1000}).json()["sessions"]
        found = {each["id"]: each["observed"] for each in listed}
        assert {each.id: each.now.counters.observed for each in self.sessions}.items() <= found.items()
        assert not {*self.ended} & {*found}

    # --------------------------------------------------------------------------------- copies, and fits

    @precondition(lambda self: len(self.sessions) < MOST)
    @rule(number=which, pieces=st.booleans())
    def take_it_elsewhere(self, number: int, pieces: bool) -> None:
        """All but keys, waiting points and the past"""
        session, id = self.pick(number), secrets.token_hex(8)
        found = self.http.get(f"/sessions/{session.id}/snapshot", params={"format": "ndjson" if pieces else "json"})
        if pieces:
            headers = {"content-type": FORMS[1]}
            answer = self.http.post("/sessions", params={"id": id}, content=found.content, headers=headers)
        else:
            assert b64decode(found.json()["state"]) == encode(session.now.state)
            answer = self.http.post("/sessions", json={"snapshot": found.json(), "id": id})
        assert answer.status_code == 201, answer.text
        now = replace(session.now, spec=replace(session.now.spec, id=id))
        self.sessions.append(Session(now, list(session.rows), {}, session.cells.copy()))
        self.require_same(self.sessions[-1])

    @precondition(lambda self: len(self.sessions) < MOST)
    @rule(number=which, back=st.integers(0, 1000))
    def fork(self, number: int, back: int) -> None:
        """The same settings: the session as it was, bit for bit"""
        session, id = self.pick(number), secrets.token_hex(8)
        observed = session.now.counters.observed
        at = back % (observed + 1)
        answer = self.http.post("/sessions", json={"id": id, "fork": {"session": session.id, "at": at}})
        if answer.status_code == 410 and (at not in session.past or session.now.spec.keep_points < observed):
            require_problem(answer, 410, "log-trimmed")
            return
        assert answer.status_code == 201, answer.text
        wait_until(lambda: self.http.get(f"/sessions/{id}").json()["status"] == "live")
        was = session.past[at]
        if was.spec.labels != session.labels:  # a fork has the labels of its source as it is now
            assert self.http.delete(f"/sessions/{id}").status_code == 204
            return
        copy = Session(replace(was, spec=replace(was.spec, id=id)), session.rows[:at])
        self.require_same(copy)
        assert self.http.get(f"/sessions/{id}/model").json() == was.model
        assert self.http.delete(f"/sessions/{id}").status_code == 204

    @rule(number=which, seed=seeds)
    def fit(self, number: int, seed: int) -> None:
        """A job of its own: asked for twice it is one, and the session goes on as it was"""
        session = self.pick(number)
        kept = session.rows[max(len(session.rows) - session.now.spec.keep_points, 0) :]
        if len({index for _, index in kept}) < len(session.labels):
            return
        headers = {"idempotency-key": secrets.token_hex(8)}
        asked = [
            self.http.post(f"/sessions/{session.id}/fits", json={"kind": "softmax"}, headers=headers) for _ in "ab"
        ]
        assert [each.status_code for each in asked] == [202, 202], asked[0].text
        [fit] = {each.headers["location"] for each in asked}
        wait_until(lambda: self.http.get(fit).json()["status"] not in ("queued", "running"))
        told = self.http.get(fit).json()
        assert told["status"] == "done", told
        assert told["points"] == len(kept)
        x = {"x": "0.1,0.2", "model": told["id"]}
        assert self.http.get(f"/sessions/{session.id}/predict", params=x).json()["predictions"][0] in session.labels
        assert self.http.delete(fit).status_code == 204
        require_problem(self.http.get(fit), 404, "unknown-fit")
        self.require_same(session)

    def teardown(self) -> None:
        """At last all of them, bit for bit, and they are ended"""
        for session in self.sessions:
            found = self.http.get(f"/sessions/{session.id}/snapshot").json()
            assert b64decode(found["state"]) == encode(session.now.state), session.now.spec
            self.http.delete(f"/sessions/{session.id}")


def binary(asked: dict[str, Any]) -> bool:
    return asked["headers"]["content-type"] in FORMS[2:]


@pytest.fixture
def clients(running: Running) -> Iterator[tuple[httpx.Client, ThreadPoolExecutor]]:
    """Each request on a connection of its own: to whichever worker"""
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=running.url, timeout=60, limits=limits) as http, ThreadPoolExecutor(10) as crowd:
        yield http, crowd


def checked(clients: tuple[httpx.Client, ThreadPoolExecutor], examples: int, steps: int, **how: Any) -> None:
    run_state_machine_as_test(
        partial(Asked, *clients),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            **how,
        ),
    )


def test_the_service_does_what_the_model_does(clients: tuple[httpx.Client, ThreadPoolExecutor]) -> None:
    checked(clients, 12, 30, derandomize=True)


@pytest.mark.skipif("SOAK_SECONDS" not in os.environ, reason="long: make soak")
def test_the_same_for_long(clients: tuple[httpx.Client, ThreadPoolExecutor]) -> None:
    until = time.monotonic() + float(os.environ["SOAK_SECONDS"])
    while time.monotonic() < until:
        checked(clients, 20, 60)
