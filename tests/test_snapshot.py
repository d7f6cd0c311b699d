"""A snapshot opened elsewhere goes on as if nothing had happened; a damaged or forged one is refused."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b, sha256
from typing import Any

import httpx
import numpy as np
import pytest

from service.api.schemas import OpenSession
from service.errors import InvalidSnapshot
from service.learners import decode, encode, one_vs_rest, perceptron
from service.sessions import snapshot
from service.sessions.tally import Tally
from tests.opening import RAW, SESSIONS, opened, raw
from tests.running import Running
from tests.storing import stored
from tests.strategies import points

JSON = {"content-type": "application/json"}
LEARN = {"learn": {"warmup": 120, "method": "closest"}}
ALL: dict[str, dict[str, Any]] = {
    **SESSIONS,
    "warming": {"dimension": 2, "reference": LEARN},
    "warming, three classes": {"dimension": 2, "reference": LEARN, "labels": ["a", "b", "c"]},
    "learned": {"dimension": 2, "reference": {"learn": {"warmup": 40, "method": "closest"}}},
}


@pytest.fixture
def elsewhere(small: Running) -> Iterator[httpx.Client]:
    """Another service, with another store"""
    with httpx.Client(base_url=small.url, timeout=30) as found:
        yield found


def stream(session: dict[str, Any], n: int = 240) -> tuple[Any, Any]:
    rng = np.random.default_rng(21)
    spec = OpenSession(**session).spec()
    return points(rng, n, spec.dimension, 3.0) / np.sqrt(spec.curvature), rng.integers(0, len(spec.labels), size=n)


def observe(http: httpx.Client, sid: str, X: Any, indices: Any) -> bytes:
    answer = http.post(f"/sessions/{sid}/observe", content=raw(X, indices), headers=RAW)
    assert answer.status_code == 200, answer.text
    return answer.content


def views(http: httpx.Client, sid: str) -> list[Any]:
    look = http.get(f"/sessions/{sid}").json()
    own = {name: value for name, value in look.items() if name not in ("id", "created_at")}
    rest = [http.get(f"/sessions/{sid}/{what}").json() for what in ("model", "metrics", "certificate?margin=0.1")]
    return [own, *rest]


#: a session that warms goes live with its points, so it needs them
WAYS = [(name, with_points) for name in ALL for with_points in (True, False) if with_points or "warming" not in name]


@pytest.mark.parametrize(("name", "with_points"), WAYS)
def test_a_snapshot_goes_on_elsewhere_with_the_same_bits(
    http: httpx.Client,
    elsewhere: httpx.Client,
    running: Running,
    small: Running,
    name: str,
    with_points: bool,
) -> None:
    session = ALL[name]
    X, indices = stream(session)
    here = opened(http, {**session, "name": "the one"})
    observe(http, here, X[:50], indices[:50])
    observe(http, here, X[50:90], indices[50:90])
    exported = http.get(f"/sessions/{here}/snapshot", params={"points": with_points})
    assert exported.headers["content-disposition"] == f'attachment; filename="{here}.json"'
    answer = elsewhere.post("/sessions", json={"snapshot": exported.json()})
    assert answer.status_code == 201, answer.text
    there = answer.json()["id"]
    assert there != here and answer.headers["location"] == f"/sessions/{there}"
    assert views(elsewhere, there) == views(http, here)
    for part in (slice(90, 91), slice(91, 150), slice(150, 240)):
        assert observe(elsewhere, there, X[part], indices[part]) == observe(http, here, X[part], indices[part])
    assert views(elsewhere, there) == views(http, here)
    assert stored(running.redis_url, here).state == stored(small.redis_url, there).state
    if with_points:
        first, second = (
            client.get(f"/sessions/{sid}/snapshot").json() for client, sid in ((http, here), (elsewhere, there))
        )
        assert first == second and b64decode(first["points"]) == raw(X, indices)


def test_it_is_opened_under_a_name_of_ones_own_once(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin", "name": "old"})
    document = http.get(f"/sessions/{sid}/snapshot").json()
    taken = http.post("/sessions", json={"snapshot": document, "id": sid})
    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/session-exists")
    found = http.post("/sessions", json={"snapshot": document, "id": f"{sid}-2", "name": "new"}).json()
    assert (found["id"], found["name"]) == (f"{sid}-2", "new")
    with_field = http.post("/sessions", json={"snapshot": document, "dimension": 3, "reference": "origin"})
    assert (with_field.status_code, with_field.json()["type"]) == (422, "/problems/unknown-field")


def test_programs_that_write_the_json_anew_do_no_harm(http: httpx.Client) -> None:
    """Indented, in another order, and 1.0 written as 1"""
    sid = opened(http, {"dimension": 2, "reference": "origin", "curvature": 2.0})
    observe(http, sid, *stream({"dimension": 2, "reference": "origin", "curvature": 2.0}))
    document = http.get(f"/sessions/{sid}/snapshot").json()
    turned = dict(reversed(document.items()))
    text = json.dumps({"snapshot": turned}, indent=3).replace("2.0,", "2,")
    assert '"curvature": 2,' in text
    assert http.post("/sessions", content=text, headers=JSON).status_code == 201


def test_idempotency_keys_stay_behind(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin"})
    ask: dict[str, Any] = {"json": {"point": [0.1, 0.2], "label": -1}, "headers": {"Idempotency-Key": "k"}}
    http.post(f"/sessions/{sid}/observe", **ask)
    new = http.post("/sessions", json={"snapshot": http.get(f"/sessions/{sid}/snapshot").json()}).json()["id"]
    assert "idempotency-replayed" not in http.post(f"/sessions/{new}/observe", **ask).headers
    assert http.get(f"/sessions/{new}").json()["observed"] == 2


def test_a_large_snapshot_is_read_and_another_large_body_is_not(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2, "reference": "origin", "keep_points": 100_000})
    rng = np.random.default_rng(3)
    X, indices = points(rng, 50_000, 2, 3.0), rng.integers(0, 2, size=50_000)
    observe(http, sid, X, indices)
    body = json.dumps({"snapshot": http.get(f"/sessions/{sid}/snapshot").json()})
    assert len(body) > 3 << 19
    answer = http.post("/sessions", content=body, headers=JSON)
    assert answer.status_code == 201, answer.text
    assert answer.json()["observed"] == 50_000
    other = http.post(
        "/sessions", content=json.dumps({"dimension": 2, "reference": "origin", "name": "x" * (1 << 20)}), headers=JSON
    )
    assert (other.status_code, other.json()["type"]) == (413, "/problems/body-too-large")


# ------------------------------------------------------------------------------------ damage


@pytest.fixture(scope="module")
def document(running: Running) -> dict[str, Any]:
    """A small snapshot with something in every member"""
    session = {"dimension": 2, "reference": "origin", "labels": ["a", "b", "c"], "algorithm": "second_order"}
    X, indices = stream(session, 1010)
    with httpx.Client(base_url=running.url, timeout=30) as http:
        sid = opened(http, {**session, "keep_points": 20})
        observe(http, sid, X[:990], indices[:990])
        observe(http, sid, X[990:], indices[990:])
        found: dict[str, Any] = http.get(f"/sessions/{sid}/snapshot").json()
    assert all(found[name] for name in found)
    return found


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """With the digest that fits: SHA-256 of the sorted JSON without it, whole floats as integers"""

    def whole(value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(each) for name, each in value.items()}
        return [walk(each) for each in value] if isinstance(value, list) else whole(value)

    rest = {name: value for name, value in document.items() if name != "digest"}
    text = json.dumps(walk(rest), sort_keys=True, separators=(",", ":"))
    return {**rest, "digest": sha256(text.encode()).hexdigest()}


def test_the_digest_is_what_it_is_said_to_be(document: dict[str, Any]) -> None:
    assert sealed(document) == document
    snapshot.check(document)


def test_a_flip_of_any_byte_is_found(document: dict[str, Any]) -> None:
    text = json.dumps(document, separators=(",", ":")).encode()
    survived = 0
    for at in range(len(text)):
        try:
            damaged = json.loads(text[:at] + bytes([text[at] ^ (1 << at % 7)]) + text[at + 1 :])
        except ValueError:
            continue  # no JSON any more
        survived += 1
        with pytest.raises(InvalidSnapshot):
            snapshot.check(damaged)
    assert survived > len(text) / 2


def refused(http: httpx.Client, forged: dict[str, Any], slugs: tuple[str, ...] = ("invalid-snapshot",)) -> None:
    body = json.dumps({"snapshot": forged})
    answer = http.post("/sessions", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text[:300]
    assert answer.json()["type"].removeprefix("/problems/") in slugs, answer.text
    assert len(answer.content) < 20_000


def test_a_flip_is_refused_by_the_service(http: httpx.Client, document: dict[str, Any]) -> None:
    text = json.dumps({"snapshot": document}, separators=(",", ":")).encode()
    for at in range(13, len(text) - 1, 97):
        damaged = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        answer = http.post("/sessions", content=damaged, headers=JSON)
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["type"] in ("/problems/malformed-body", "/problems/invalid-snapshot")


MEMBERS = ["session", "counters", "status", "state", "tally", "points", "confusion", "log", "format", "version"]
DEEP: Any = json.loads("[" * 900 + "]" * 900)
WRONG = [None, True, -1, 7, 1.5, 10**400, "x", "AAAA", [], {}, [[1]], [[0, 0, "1"]], [1, -1], {"a": 1}, DEEP]


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_is_needed_and_has_its_type(http: httpx.Client, document: dict[str, Any], member: str) -> None:
    refused(http, sealed({name: value for name, value in document.items() if name != member}))
    refused(http, {name: value for name, value in document.items() if name != "digest"})
    for value in WRONG:
        if value is DEEP:
            refused(http, {**document, member: value})  # nested too deep for a digest of ours
        elif (member, value) != ("version", True):  # which is 1
            refused(http, sealed({**document, member: value}))


@pytest.mark.parametrize("snapshot", ["null", "[]", "1", '"x"', "{}", "NaN"])
def test_what_is_no_snapshot(http: httpx.Client, snapshot: str) -> None:
    answer = http.post("/sessions", content=f'{{"snapshot": {snapshot}}}', headers=JSON)
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"] in ("/problems/invalid-snapshot", "/problems/invalid-request")


def binary(http: httpx.Client, **session: Any) -> dict[str, Any]:
    """A snapshot of a learner that has learned"""
    fields = {"dimension": 2, "reference": "origin", **session}
    sid = opened(http, fields)
    observe(http, sid, *stream(fields, 60))
    found: dict[str, Any] = http.get(f"/sessions/{sid}/snapshot").json()
    return found


def with_state(document: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    state = change(decode(b64decode(document["state"])))
    return sealed({**document, "state": b64encode(encode(state)).decode()})


BAD = np.array([0.1, np.nan])
STATES: list[tuple[str, dict[str, Any], Callable[[Any], Any]]] = [
    ("w is NaN", {}, lambda s: replace(s, w=BAD)),
    ("w is infinite", {}, lambda s: replace(s, w=np.array([np.inf, 0]))),
    ("w is huge", {}, lambda s: replace(s, w=np.array([1e101, 0]))),
    ("w and p of another dimension", {}, lambda s: replace(s, w=np.ones(3), p=np.zeros(3), start=np.zeros(3))),
    ("p outside", {}, lambda s: replace(s, p=np.array([1.0, 0]))),
    ("p at the rim", {}, lambda s: replace(s, p=np.array([0.999999, 0]))),
    ("p is NaN", {}, lambda s: replace(s, p=BAD)),
    ("another curvature", {}, lambda s: replace(s, c=2.0)),
    ("curvature is NaN", {}, lambda s: replace(s, c=np.nan)),
    ("k below 0", {}, lambda s: replace(s, k=-1)),
    ("k huge", {}, lambda s: replace(s, k=2**63 - 1)),
    ("reach below 0", {}, lambda s: replace(s, reach=-1.0)),
    ("reach is NaN", {}, lambda s: replace(s, reach=np.nan)),
    ("reach is infinite", {}, lambda s: replace(s, reach=np.inf)),
    ("another algorithm", {"algorithm": "second_order"}, lambda s: perceptron.init(s.p)),
    ("K learners for two classes", {}, lambda s: one_vs_rest.init([s, s])),
    ("one learner for K classes", {"labels": [1, 2, 3]}, lambda s: s.members[0]),
    ("too few learners", {"labels": [1, 2, 3]}, lambda s: one_vs_rest.init(s.members[:2])),
    (
        "a learner of another dimension",
        {"labels": [1, 2, 3]},
        lambda s: one_vs_rest.init([*s.members[:2], perceptron.init([0, 0, 0])]),
    ),
    ("factor is NaN", {"algorithm": "second_order"}, lambda s: replace(s, factor=s.factor * np.nan)),
    ("factor is not triangular", {"algorithm": "second_order"}, lambda s: replace(s, factor=np.ones((2, 2)))),
    ("factor is singular", {"algorithm": "second_order"}, lambda s: replace(s, factor=np.zeros((2, 2)))),
    ("rank below 0", {"algorithm": "second_order", "a": 0}, lambda s: replace(s, rank=-1)),
    ("rank above d", {"algorithm": "second_order"}, lambda s: replace(s, rank=3)),
    ("rank without a basis", {"algorithm": "second_order", "a": 0}, lambda s: replace(s, rank=1)),
    ("another a", {"algorithm": "second_order"}, lambda s: replace(s, a=2.0)),
    ("xi is huge", {"algorithm": "second_order"}, lambda s: replace(s, xi=np.array([1e300, 0]))),
    ("alpha below 0", {"algorithm": "strategic"}, lambda s: replace(s, alpha=-1.0)),
    ("alpha is NaN", {"algorithm": "strategic"}, lambda s: replace(s, alpha=np.nan)),
    ("estimating what is given", {"algorithm": "strategic"}, lambda s: replace(s, estimating=True)),
    ("evidence is NaN", {"algorithm": "strategic"}, lambda s: replace(s, evidence=np.full(3, np.nan))),
    ("evidence below 0", {"algorithm": "strategic"}, lambda s: replace(s, evidence=-np.ones(3))),
    ("too much evidence", {"algorithm": "strategic"}, lambda s: replace(s, evidence=np.ones(4))),
]


@pytest.mark.parametrize(("session", "change"), [each[1:] for each in STATES], ids=[each[0] for each in STATES])
def test_a_state_that_cannot_be_is_refused(
    http: httpx.Client, session: dict[str, Any], change: Callable[[Any], Any]
) -> None:
    document = binary(http, **session)
    assert http.post("/sessions", json={"snapshot": with_state(document, lambda s: s)}).status_code == 201
    refused(http, with_state(document, change))


def encoded(header: bytes, data: bytes = b"") -> str:
    """A state's bytes with this header, sealed as the store's are"""
    body = len(header).to_bytes(4, "little") + header + data
    return b64encode(b"HORO" + blake2b(body, digest_size=16).digest() + body).decode()


NESTED = b'{"format":1,"learner":"one_vs_rest","members":['


@pytest.mark.parametrize(
    "state",
    [
        encoded(b"["),
        encoded(b"[" * 100_000),
        encoded(NESTED * 2000 + b"]}" * 2000),
        encoded(b"{}"),
        encoded(b'{"format":1,"learner":["perceptron"]}'),
        encoded(b'{"format":1,"learner":"perceptron","fields":7}'),
        encoded(b'{"format":1,"learner":"one_vs_rest","members":[]}'),
        encoded(b'{"format":1,"learner":"one_vs_rest","members":{"a":1}}'),
        *(
            encoded(
                b'{"format":1,"learner":"perceptron","fields":[["c","<f8",[]],["p","<f8",[%b]],["w","<f8",[%b]],'
                b'["start","<f8",[%b]],["k","<i8",[]],["reach","<f8",[]]]}' % (n, n, n),
                bytes(80),
            )
            for n in (b"1" + b"0" * 30, b"1e30", b"1.5", b'"2"', b"-1", b"null", b"9223372036854775807", b"true", b"0")
        ),
    ],
)
def test_bytes_that_are_no_state_are_refused(http: httpx.Client, state: str) -> None:
    document = binary(http)
    refused(http, sealed({**document, "state": state}))


def with_tally(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    tally = replace(Tally.unpack(b64decode(document["tally"])), **changes)
    return {**document, "tally": b64encode(tally.pack()).decode()}


@pytest.mark.parametrize("huge", [2**53, 2**63 - 61, 2**63 - 1, 2**63, 2**64 - 1, 10**30])
def test_counts_too_large_to_count_on_are_refused(http: httpx.Client, huge: int) -> None:
    document = binary(http)
    for name in document["counters"]:
        refused(http, sealed({**document, "counters": {**document["counters"], name: huge}}))
    [i, j, n], *rest = document["confusion"]
    counters = {**document["counters"], "observed": huge}
    more = {**document, "counters": counters, "confusion": [[i, j, n + huge - 60], *rest]}
    refused(http, sealed(with_tally(more, seen=huge) if huge < 2**64 else more))
    refused(http, sealed({**document, "log": [huge]}))
    refused(http, sealed({**document, "confusion": [[i, j, huge], *rest]}))
    refused(http, sealed({**document, "confusion": [[huge, j, n], *rest]}))
    for name in ("block", "switches", "alarms", "last_alarm", "seen") if huge < 2**64 else ():
        refused(http, sealed(with_tally(document, **{name: huge})))


def test_counts_that_contradict_each_other_are_refused(http: httpx.Client) -> None:
    document = binary(http)
    ones, nan = np.ones(1000, dtype=np.uint8), float("nan")
    counters, [[i, j, n], *rest] = document["counters"], document["confusion"]
    for forged in (
        {**document, "counters": {**counters, "observed": 61}},
        {**document, "counters": {**counters, "mistakes": counters["mistakes"] + 1}},
        {**document, "confusion": [*rest]},
        {**document, "confusion": [[i, 2, n], *rest]},
        {**document, "confusion": [[i, j, n - 1], [i, j, 1], *rest]},
        {**document, "log": [1]},
        {**document, "log": [0] * 1001},
        {**document, "status": "warming"},
        {**document, "status": "asleep"},
        with_tally(document, window=ones),
        with_tally(document, switches=61),
        with_tally(document, alarms=2, last_alarm=1),
        with_tally(document, held=np.array([6]), errors=np.zeros((1, 5), dtype=int)),
        with_tally(document, held=np.array([1]), errors=np.array([[2, 0, 0, 0, 0]])),
        with_tally(document, held=np.array([1]), errors=np.array([[0, 1, 0, 0, 0]])),
        with_tally(document, held=np.full(7, 5), errors=np.zeros((7, 5), dtype=int)),
        with_tally(document, loss=nan, bins=np.ones((10, 3))),
        with_tally(document, loss=-1.0, bins=np.ones((10, 3))),
        with_tally(document, bins=np.full((10, 3), nan)),
        with_tally(document, bins=np.full((10, 3), 7.0)),
        with_tally(document, bins=np.tile([1.0, 0.5, 2.0], (10, 1))),
    ):
        refused(http, sealed(forged))


@pytest.mark.parametrize(
    "rows",
    [
        [[0.1, 0.2]],
        [[0.1, 0.2, 2]],
        [[0.1, 0.2, -1]],
        [[0.1, 0.2, 0.5]],
        [[0.1, np.nan, 1]],
        [[1.0, 0, 1]],
        [[0, 0, np.nan]],
    ],
)
def test_points_that_cannot_have_been_learned_are_refused(http: httpx.Client, rows: list[list[float]]) -> None:
    document = binary(http)
    text = b64encode(np.array(rows, dtype="<f8").tobytes()).decode()
    slugs = ("invalid-snapshot", "point-outside-ball", "non-finite")
    refused(http, sealed({**document, "points": text}), slugs)


def test_more_points_than_were_observed_are_refused(http: httpx.Client) -> None:
    document = binary(http)
    refused(http, sealed({**document, "points": b64encode(raw(np.zeros((61, 2)), np.ones(61))).decode()}))


def with_cells(document: dict[str, Any], K: int) -> dict[str, Any]:
    """As if every class had once been taken for every other"""
    cells, log = [[i, j, 1] for i in range(K) for j in range(K)], [900] * (K * K // 1000)
    counters = {**document["counters"], "observed": K * K, "mistakes": K * K - K}
    return sealed(with_tally({**document, "confusion": cells, "counters": counters, "log": log[:1000]}, seen=K * K))


def test_many_classes_fit_into_a_snapshot(http: httpx.Client) -> None:
    document = binary(http, dimension=1, labels=list(range(150)))
    answer = http.post("/sessions", json={"snapshot": with_cells(document, 150)})
    assert answer.status_code == 201, answer.text
    assert http.get(f"/sessions/{answer.json()['id']}/metrics").json()["confusion"] == [[1] * 150] * 150


SESSION_CHANGES: list[dict[str, Any]] = [
    {"dimension": 3, "reference": "origin"},
    {"dimension": 5000, "reference": "origin"},
    {"labels": [1, 2, 3]},
    {"labels": [1]},
    {"curvature": 2.0},
    {"curvature": float("nan")},
    {"algorithm": "hyperboloid"},
    {"algorithm": "svm"},
    {"reference": [2.0, 0.0]},
    {"ttl_seconds": 0},
    {"colour": "red"},
    {"keep_points": -1},
]


@pytest.mark.parametrize("change", SESSION_CHANGES, ids=map(str, SESSION_CHANGES))
def test_a_session_that_does_not_fit_its_state_is_refused(http: httpx.Client, change: dict[str, Any]) -> None:
    document = binary(http)
    session = {**document["session"], **change}
    slugs = ("invalid-snapshot", "point-outside-ball", "invalid-parameter", "dimension-mismatch")
    refused(http, sealed({**document, "session": session}), slugs)
