"""schemathesis: every answer has a status, a type and a shape that the OpenAPI document has for its operation.

Good requests, a strategy an operation, to sessions of every kind: each operation must be answered with its good status.
Requests that schemathesis makes from the document, and such that break it: no 5xx, and nothing that is not documented.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from service.api.examples import EXAMPLES
from tests.opening import SESSIONS, opened
from tests.running import Running, service
from tests.waiting import wait_until

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
#: So many requests an operation, of each sort.
GOOD, MADE = (500, 200) if "SOAK_SECONDS" in os.environ else (12, 5)
KINDS = {
    **SESSIONS,
    "auto": {"dimension": 2},
    "auto, three classes": {"dimension": 2, "labels": ["a", "b", "c"]},
    "softmax": {"dimension": 2, "algorithm": "softmax", "labels": [0, 1, 2]},
    "gaussian": {"dimension": 2, "algorithm": "gaussian", "labels": [False, True]},
    "learns its reference": {"dimension": 2, "reference": {"learn": {"warmup": 4}}},
    "keeps nothing": {"dimension": 2, "algorithm": "perceptron", "keep_points": 0},
}
Operation = APIOperation[Any, Any, Any, Any]
LABELS = [f"{method.upper()} {path}" for method, path in EXAMPLES]
EVENTS = "GET /sessions/{id}/events"


@dataclass(frozen=True)
class Live:
    """A session that has learned, with a fit that is done where it has points for one"""

    kind: str
    id: str
    labels: list[Any]
    fit: str | None


def live(http: httpx.Client, kind: str, fitted: bool = False) -> Live:
    id = opened(http, KINDS[kind])
    labels = http.get(f"/sessions/{id}").json()["labels"]
    body = {"points": [[0.1, 0.05 * i] for i in range(8)], "labels": [labels[i % len(labels)] for i in range(8)]}
    http.post(f"/sessions/{id}/observe", json=body).raise_for_status()
    if not fitted or kind == "keeps nothing":
        return Live(kind, id, labels, None)
    fit = http.post(f"/sessions/{id}/fits", json={"kind": "softmax"}).json()["id"]
    wait_until(lambda: http.get(f"/sessions/{id}/fits/{fit}").json()["status"] not in ("queued", "running"))
    return Live(kind, id, labels, fit)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Of its own: the document's examples have ids that others use, too"""
    with service(tmp_path_factory.mktemp("openapi") / "data") as found:
        yield found


@pytest.fixture(scope="module")
def schema(own: Running) -> Any:
    return schemathesis.openapi.from_url(f"{own.url}/openapi.json")


@pytest.fixture(scope="module")
def operations(schema: Any) -> dict[str, Operation]:
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


@pytest.fixture(scope="module")
def client(own: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own.url, timeout=30) as http:
        yield http


def bounded(count: int) -> settings:
    return settings(
        max_examples=count,
        derandomize="SOAK_SECONDS" not in os.environ,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


# ------------------------------------------------------------------------------------------------- good requests

Draw = Callable[[st.SearchStrategy[Any]], Any]
Asked = dict[str, Any]  # the arguments of httpx.Client.request, but for the method
FORMS = ("application/json", "application/x-ndjson", "application/x-npy", "application/octet-stream")
ACCEPTS = ("*/*", "application/json", "application/x-npy", "application/octet-stream")
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
numbers = st.floats(-0.4, 0.4)
#: Hypothesis draws some twice, and a key may come with one body only.
fresh_words = st.builds(secrets.token_hex)


def points(draw: Draw, most: int = 4) -> list[list[float]]:
    found: list[list[float]] = draw(st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=most))
    return found


def some(draw: Draw, **choices: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Any of these"""
    return {name: draw(each) for name, each in choices.items() if draw(st.booleans())}


def headers(draw: Draw, **choices: st.SearchStrategy[Any]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in some(draw, **choices).items()}


def body(draw: Draw, X: list[list[float]], labels: list[Any] | None, known: list[Any]) -> Asked:
    """The points, with their labels if they have some, in any of the formats"""
    form = draw(st.sampled_from(FORMS))
    head = {"content-type": form}
    if form == FORMS[0]:
        return {"json": {"points": X} if labels is None else {"points": X, "labels": labels}, "headers": head}
    if form == FORMS[1]:
        lines = [{"point": x} if labels is None else {"point": x, "label": labels[i]} for i, x in enumerate(X)]
        return {
            "content": b"\n".join(httpx.Request("POST", "http://a", json=line).content for line in lines),
            "headers": head,
        }
    table = np.array(X, dtype="<f8")
    if labels is not None:
        table = np.column_stack([table, [known.index(label) for label in labels]])
    if form == FORMS[3]:
        return {"content": table.tobytes(), "headers": head}
    file = io.BytesIO()
    np.save(file, table)
    return {"content": file.getvalue(), "headers": head}


def reading(draw: Draw) -> dict[str, Any]:
    return some(
        draw,
        coordinates=st.sampled_from(["poincare", "klein", "euclidean"]),
        outside=st.sampled_from(["refuse", "clip"]),
    )


def observe(draw: Draw, on: Live) -> Asked:
    X = points(draw)
    labels = [draw(st.sampled_from(on.labels)) for _ in X]
    asked = body(draw, X, labels, on.labels)
    params = some(draw, reply=st.sampled_from(["columns", "summary"]), probabilities=st.sampled_from(["true", "false"]))
    asked["params"] = {**params, **reading(draw), "label": "index"}
    asked["headers"] |= headers(draw, idempotency_key=fresh_words, accept=st.sampled_from(ACCEPTS))
    return asked


def predict(draw: Draw, on: Live) -> Asked:
    asked = body(draw, points(draw), None, on.labels)
    asked["headers"] |= headers(draw, accept=st.sampled_from(ACCEPTS))
    asked["params"] = {**some(draw, model=st.sampled_from(["online", on.fit or "online"])), **reading(draw)}
    if "json" in asked and draw(st.booleans()):
        asked["json"]["ids"] = [draw(fresh_words) for _ in asked["json"]["points"]]
    return asked


def predict_query(draw: Draw, on: Live) -> Asked:
    params = {"x": [",".join(map(str, x)) for x in points(draw)], **reading(draw)}
    return {"params": params, "headers": headers(draw, accept=st.sampled_from(ACCEPTS))}


def opening(draw: Draw, on: Live) -> Asked:
    settings = dict(draw(st.sampled_from(list(KINDS.values()))))
    fork = {"fork": {"session": on.id, **some(draw, at=st.integers(0, 8), keep_points=st.integers(8, 100))}}
    body = draw(st.sampled_from([settings, settings, fork]))
    return {"json": {**body, **some(draw, name=words)}}


def change(draw: Draw, on: Live) -> Asked:
    changes = {
        "name": st.none() | words,
        "ttl_seconds": st.none() | st.integers(100, 10**6),
        "keep_points": st.integers(8, 10**4),
    }
    return {
        "json": some(draw, **changes),
        "headers": headers(draw, idempotency_key=fresh_words),
    }


def late(draw: Draw, on: Live) -> Asked:
    """Of ids that nobody knows, too"""
    ids = draw(
        st.lists(st.integers(0, 10**6) | words, min_size=1, max_size=4, unique_by=lambda each: (type(each), each))
    )
    return {
        "json": {"ids": ids, "labels": [draw(st.sampled_from(on.labels)) for _ in ids]},
        "params": some(draw, reply=st.sampled_from(["columns", "summary"])),
    }


def fit(draw: Draw, on: Live) -> Asked:
    choices = some(
        draw,
        features=st.sampled_from(["hemisphere", "hyperboloid"]),
        C=st.floats(0.1, 100),
        probabilities=st.booleans(),
    )
    return {"json": {"kind": draw(st.sampled_from(["svm", "softmax"])), **choices}}


def inference(draw: Draw, on: Live) -> Asked:
    X = points(draw)
    tensor = {"name": "points", "datatype": draw(st.sampled_from(["FP64", "FP32"])), "shape": [len(X), 2], "data": X}
    return {"json": {"inputs": [tensor], **some(draw, id=words)}}


def nothing(draw: Draw, on: Live) -> Asked:
    return {}


ASK: dict[str, Callable[[Draw, Live], Asked]] = {
    "POST /sessions": opening,
    "PATCH /sessions/{id}": change,
    "POST /sessions/{id}/observe": observe,
    "POST /sessions/{id}/predict": predict,
    "GET /sessions/{id}/predict": predict_query,
    "GET /predict": lambda draw, on: (
        (asked := predict_query(draw, on)) | {"params": asked["params"] | {"session": on.id}}
    ),
    "POST /sessions/{id}/labels": late,
    "POST /sessions/{id}/fits": fit,
    "POST /sessions/{id}/promote": lambda draw, on: {"json": {"fit": on.fit}},
    "POST /v2/models/{id}/infer": inference,
    "POST /demo": lambda draw, on: {"json": {"kind": "agents", "seed": draw(st.integers(0, 100))}},
    "GET /sessions": lambda draw, on: {"params": some(draw, limit=st.integers(1, 5))},
    "GET /sessions/{id}/certificate": lambda draw, on: {
        "params": some(draw, margin=st.sampled_from(["0.1", "best" if on.kind == "perceptron" else "0.2"]))
    },
    "GET /sessions/{id}/log": lambda draw, on: {
        "params": some(draw, limit=st.integers(1, 5), format=st.sampled_from(["json", "ndjson", "npy"])),
        "headers": headers(draw, accept=st.sampled_from([*FORMS])),
    },
    "GET /sessions/{id}/snapshot": lambda draw, on: {
        "params": some(draw, points=st.sampled_from(["true", "false"]), format=st.sampled_from(["json", "ndjson"]))
    },
    "GET /sessions/{id}/model": lambda draw, on: {
        "headers": headers(draw, if_none_match=st.sampled_from(['"0"', '"1"']))
    },
}
#: Which sessions an operation is not for, and how often it is asked.
NOT_FOR = {
    "POST /sessions/{id}/promote": tuple(kind for kind in KINDS if kind != "softmax"),  # what the fit is
    "POST /sessions/{id}/fits": ("keeps nothing",),
    "GET /sessions/{id}/log": ("keeps nothing",),
    "GET /sessions/{id}/certificate": ("keeps nothing",),
    "GET /sessions/{id}/fits/{fit}": ("keeps nothing",),
    "DELETE /sessions/{id}/fits/{fit}": ("keeps nothing",),
    "GET /sessions/{id}/at/{position}/model": ("keeps nothing",),
    "POST /sessions": ("keeps nothing", "learns"),
}
SELDOM = {"POST /demo": 1}
FITTED = ("/predict", "/fits/{fit}", "/promote")


def ask(http: httpx.Client, case: Case[Any], asked: Asked) -> httpx.Response:
    path = case.path.format(**{name: str(value) for name, value in (case.path_parameters or {}).items()})
    if not case.path.endswith("/events"):
        return http.request(case.method, path, **asked)
    with http.stream(case.method, path, **asked) as answer:  # it has no end
        first = next(answer.iter_bytes())
        found = httpx.Response(answer.status_code, headers=answer.headers, content=first, request=answer.request)
        found.elapsed = timedelta()
        return found


def test_no_operation_is_left_out(operations: dict[str, Operation]) -> None:
    assert {*LABELS} == {*operations}


@pytest.mark.parametrize("label", LABELS)
def test_good_requests_get_good_answers_as_documented(
    operations: dict[str, Operation], client: httpx.Client, label: str
) -> None:
    """Every operation is answered with success, in some form that the document has"""
    operation = operations[label]
    kinds = [kind for kind in KINDS if not any(word in kind for word in NOT_FOR.get(label, ()))]
    fresh, fitted = label.startswith("DELETE") or label.endswith("/promote"), label.endswith(FITTED)
    known: dict[str, Live] = {}

    @bounded(SELDOM.get(label, GOOD if label in ASK else 3))
    @given(st.data())
    def answered(data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(kinds))
        on = known[kind] = known[kind] if kind in known and not fresh else live(client, kind, fitted)
        named = {"id": on.id, "fit": on.fit, "position": 3, "slug": "point-outside-ball"}
        names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
        case = operation.Case(path_parameters={name: named[name] for name in names})
        answer = ask(client, case, ASK.get(label, nothing)(data.draw, on))
        assert answer.is_success or answer.status_code == 304, f"{label}, {kind}: {answer.text}"
        case.validate_response(answer, checks=CHECKS)

    answered()


# ---------------------------------------------------------------------------------------------- made from the document


class There:
    """A session that is there, until it is ended or expires"""

    def __init__(self, client: httpx.Client) -> None:
        self._client, self._found = client, live(client, "perceptron", fitted=True)

    def found(self) -> Live:
        if self._client.get(f"/sessions/{self._found.id}/fits/{self._found.fit}").status_code != 200:
            self._found = live(self._client, "perceptron", fitted=True)
        return self._found


@pytest.fixture(scope="module")
def there(client: httpx.Client) -> There:
    return There(client)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["by the book", "broken"])
@pytest.mark.parametrize("label", [label for label in LABELS if label not in (EVENTS, "POST /demo")])
def test_whatever_the_document_allows_or_not_is_answered_as_documented(
    operations: dict[str, Operation], there: There, label: str, mode: GenerationMode
) -> None:
    """Of sessions that are there, and of such that are not"""
    operation = operations[label]
    if mode == GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.headers):
        return  # a path is only a string, which cannot be broken

    @bounded(MADE)
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    def answered(case: Case[Any], known: bool) -> None:
        on = there.found()
        for name, value in {"id": on.id, "fit": on.fit, "position": 3}.items():
            if name in (case.path_parameters or {}) and known:
                case.path_parameters[name] = value
        answer = case.call(timeout=30)
        taken = answer.status_code < 400 and mode == GenerationMode.NEGATIVE
        case.validate_response(answer, checks=[*CHECKS, *([checks.negative_data_rejection] if taken else [])])

    with suppress(Unsatisfiable) if mode == GenerationMode.NEGATIVE else nullcontext():  # nor can a header be
        answered()
