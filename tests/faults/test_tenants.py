"""API keys and tenants: nobody sees a session of another, on any route; scopes, rates and quotas hold."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from fastapi import FastAPI
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from service.api.admission import needed
from service.app import create_app
from service.settings import Settings
from service.store.api_keys import BELIEVED, ApiKey, hashed, issue, read, write
from service.store.keys import api_keys_key
from tests.problem import require_problem
from tests.running import Running, command, service
from tests.waiting import wait_until

POINT = {"point": [0.1, 0.2], "label": 1}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that asks for keys, and logs every request"""
    folder = tmp_path_factory.mktemp("locked")
    with service(folder / "data", HOROCYCLE_KEYS="on", HOROCYCLE_ACCESS_LOG="1", HOROCYCLE_EVENT_STREAMS="8") as found:
        yield found


Make = Callable[..., httpx.Client]


@pytest.fixture(scope="module")
def client(locked: Running) -> Iterator[Make]:
    """A client with a new key"""
    made: list[httpx.Client] = []

    def make(**fields: Any) -> httpx.Client:
        told, key = issue(**fields)
        with redis.Redis.from_url(locked.redis_url) as store:
            store.hset(api_keys_key(), key.id, write(key))
        made.append(httpx.Client(base_url=locked.url, timeout=30, headers={"authorization": f"Bearer {told}"}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def requests_to(document: dict[str, Any], id: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every operation of the OpenAPI document that names a session, about this one"""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if ("{id}" in path and not path.endswith("/live")) or path == "/predict":  # the page tells nothing itself
                url = re.sub(r"\{(\w+)\}", lambda name: {"id": id, "position": "0"}.get(name[1], "any"), path)
                params = {
                    each["name"]: each["example"]
                    for each in operation["parameters"]
                    if each["in"] == "query" and "example" in each
                }
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
                if path == "/predict":
                    params["session"] = id
                yield method.upper(), url, {"params": params, "json": body}


def test_a_foreign_session_is_404_on_every_route(client: Make) -> None:
    ours, theirs = client(tenant="acme"), client(tenant="other")
    assert ours.post("/sessions", json={"id": "secret", "dimension": 2, "name": "ours"}).status_code == 201
    assert ours.post("/sessions/secret/observe", json=POINT).status_code == 200
    before, document = ours.get("/sessions/secret").json(), ours.get("/openapi.json").json()
    asked = list(requests_to(document, "secret"))
    assert len(asked) >= 20
    for method, url, how in asked:
        told = require_problem(theirs.request(method, url, **how), 404, "unknown-session")
        assert "acme" not in json.dumps(told) and "other" not in json.dumps(told)
    for id in ("acme~secret", "other~secret", "~secret", "default~secret", "x" * 5000):
        for method, url, how in requests_to(document, id):
            assert theirs.request(method, url, **how).status_code == 404, url
    assert theirs.get("/sessions/secret/live").content == theirs.get("/sessions/none/live").content
    assert require_problem(theirs.post("/sessions", json={"fork": {"session": "secret"}}), 404, "unknown-session")
    assert theirs.get("/sessions").json()["sessions"] == []
    assert theirs.post("/sessions", json={"id": "secret", "dimension": 3}).status_code == 201  # an id of their own
    assert theirs.delete("/sessions/secret").status_code == 204
    assert ours.get("/sessions/secret").json() == before


#: What names no session: lists and probes; the tests below and above look at those that tell of sessions.
NAMELESS = {
    *("/", "/sessions", "/demo", "/metrics", "/health/live", "/health/ready", "/v2", "/v2/health/live"),
    *("/v2/health/ready", "/problems", "/problems/{slug}", "/docs", "/openapi.json", "/favicon.ico"),
}


def test_no_route_is_left_out_of_the_crawl() -> None:
    """Every route of the app, in the OpenAPI document or not: a new one is crawled, or is listed here"""
    app = create_app(Settings(redis_url="redis://127.0.0.1:1"))
    crawled = {url for _, url, _ in requests_to(app.openapi(), "{id}")}
    crawled |= {"/sessions/{id}/stream", "/sessions/{id}/live"}  # by tests of their own
    found = {
        re.sub(r"\{(?!id)(\w+)(:\w+)?\}", lambda name: {"position": "0"}.get(name[1], "any"), path)
        for path in paths(app)
    }
    left = found - crawled - {re.sub(r"\{\w+\}", "any", path) for path in NAMELESS}
    assert not {path for path in left if not path.startswith(("/docs/", "/page", "/static"))}
    assert len(crawled) > 18


def paths(app: FastAPI) -> set[str]:
    """Of all routes, however they were included"""
    found, routes = set[str](), list[Any](app.routes)
    for route in routes:
        found |= {route.path} if hasattr(route, "path") else set()
    return found | set(app.openapi()["paths"])


def test_a_foreign_session_has_no_stream_of_messages(client: Make, locked: Running) -> None:
    ours, theirs = client(tenant="streaming"), client(tenant="curious", scopes=("observe",))
    assert ours.post("/sessions", json={"id": "secret", "dimension": 2}).status_code == 201
    for id in ("secret", "streaming~secret", "~secret"):
        with pytest.raises(InvalidStatus) as refused:
            streaming(locked, theirs, id)
        assert refused.value.response.status_code in (403, 404)
        assert b"streaming" not in (refused.value.response.body or b"")
    with streaming(locked, ours, "secret") as socket:
        assert json.loads(socket.recv())["hello"]["observed"] == 0


def streaming(locked: Running, http: httpx.Client, id: str) -> ClientConnection:
    headers = {"Authorization": http.headers["authorization"]}
    url = f"{locked.url.replace('http', 'ws', 1)}/sessions/{id}/stream?producer=p"
    return connect(url, additional_headers=headers, open_timeout=60)


def test_a_stream_pays_for_its_points_and_is_one_of_its_keys_streams(client: Make, locked: Running) -> None:
    http = client(tenant="paying", limits={"points": 10, "streams": 1})
    assert http.post("/sessions", json={"id": "s", "dimension": 2}).status_code == 201
    many = json.dumps({"points": [[0.1, 0.2]] * 100, "labels": [1] * 100})
    with streaming(locked, http, "s") as socket:
        socket.recv()
        require_problem(http.get("/sessions/s/events"), 429, "rate-limited")
        with pytest.raises(InvalidStatus) as refused:
            streaming(locked, http, "s")
        assert refused.value.response.status_code == 429
        socket.send(many)  # the bucket was full, and is in debt now
        assert json.loads(socket.recv())["accepted"] == 100
        require_problem(http.post("/sessions/s/observe", json=POINT), 429, "rate-limited")
        socket.send(json.dumps(POINT))
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
    wait_until(lambda: http.get("/sessions/s").json()["observed"] == 100)


def test_a_key_pays_for_its_bytes_before_they_are_read(client: Make) -> None:
    http = client(tenant="bytes", limits={"bytes": 1000})
    assert http.post("/sessions", json={"id": "s", "dimension": 2}).status_code == 201
    large = http.post("/sessions/s/observe", json={"points": [[0.1, 0.2]] * 1000, "labels": [1] * 1000})
    late = http.post("/sessions/s/observe", json=POINT)
    assert {large.status_code, late.status_code} == {200, 429}
    refused = late if late.status_code == 429 else large
    require_problem(refused, 429, "rate-limited")
    assert int(refused.headers["retry-after"]) >= 1
    unknown = http.post("/sessions/s/observe", content=iter([b"{}"]), headers={"content-type": "application/json"})
    require_problem(unknown, 422, "invalid-request", header="Content-Length")


def test_a_foreign_session_is_no_model_of_the_inference_protocol(client: Make) -> None:
    """/v2/models/{id} names the session of the key's tenant, as /sessions/{id} does"""
    ours, theirs = client(tenant="ours"), client(tenant="theirs", scopes=("predict",))
    assert ours.post("/sessions", json={"id": "model", "dimension": 2}).status_code == 201
    assert client().post("/sessions", json={"id": "default-model", "dimension": 2}).status_code == 201
    body = {"inputs": [{"name": "points", "datatype": "FP64", "shape": [1, 2], "data": [0.1, 0.2]}]}
    asked = (("GET", "", None), ("GET", "/ready", None), ("POST", "/infer", body))
    for method, rest, content in asked:
        own = ours.request(method, f"/v2/models/model{rest}", json=content)
        assert own.status_code == 200 and "ours~" not in own.text, own.text
        for id in ("model", "ours~model", "default-model"):
            told = require_problem(
                theirs.request(method, f"/v2/models/{id}{rest}", json=content), 404, "unknown-session"
            )
            assert "theirs" not in json.dumps(told)


def test_a_tenant_has_the_whole_api_under_its_own_names(client: Make) -> None:
    http = client(tenant="whole")
    opened = http.post(
        "/sessions", json={"id": "mine", "dimension": 2, "algorithm": "perceptron", "reference": "origin"}
    )
    assert (opened.headers["location"], opened.json()["id"]) == ("/sessions/mine", "mine")
    both = {"points": [[0.1, 0.2], [-0.3, 0.1]], "labels": [1, -1]}
    assert http.post("/sessions/mine/observe", json=both).status_code == 200
    assert http.get("/predict", params={"session": "mine", "x": "0.1,0.2"}).status_code == 200
    assert [each["id"] for each in http.get("/sessions").json()["sessions"]] == ["mine"]
    taken = require_problem(http.post("/sessions", json={"id": "mine", "dimension": 2}), 409, "session-exists")
    assert taken["session"] == "mine" and "whole" not in taken["detail"]
    exported = http.get("/sessions/mine/snapshot")
    assert 'filename="mine.json"' in exported.headers["content-disposition"]
    assert http.post("/sessions", json={"id": "copy", "snapshot": exported.json()}).json()["id"] == "copy"
    forked = http.post("/sessions", json={"id": "fork", "fork": {"session": "mine"}})
    assert forked.status_code == 201 and forked.headers["location"] == "/sessions/fork"
    wait_until(lambda: http.get("/sessions/fork").json()["status"] == "live")
    fit = http.post("/sessions/mine/fits", json={"margin": "soft"})
    assert fit.status_code == 202 and fit.headers["location"].startswith("/sessions/mine/fits/")
    wait_until(lambda: http.get(fit.headers["location"]).json()["status"] in ("done", "failed"))
    assert "whole~" not in http.get("/sessions/mine/disk.svg").text
    with http.stream("GET", "/sessions/mine/events") as stream:
        assert any('"id":"mine"' in line for line in stream.iter_lines() if line.startswith("data:")) is True
    assert http.delete("/sessions/mine").status_code == 204
    assert require_problem(http.get("/sessions/mine"), 410, "session-gone")["session"] == "mine"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer hk_", "Bearer hk_abc_def", "Basic aGs6eA==", "Bearer x_y_z", "hk_abc_def"],
    ids=str,
)
def test_no_key_or_a_wrong_one_is_401(locked: Running, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for path in ("/sessions", "/sessions/any", "/metrics", "/predict?session=any&x=0,0"):
        answer = httpx.get(f"{locked.url}{path}", headers=headers)
        assert "keys add" in require_problem(answer, 401, "unauthenticated")["detail"] or header == "Bearer hk_abc_def"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_what_tells_nothing_needs_no_key(locked: Running) -> None:
    for path in ("/health/live", "/health/ready", "/docs", "/openapi.json", "/problems/unauthenticated"):
        assert httpx.get(f"{locked.url}{path}").status_code == 200, path


def test_a_secret_of_another_key_does_not_open(client: Make, locked: Running) -> None:
    one, two = (client().headers["authorization"].split("_", 2) for _ in range(2))
    mixed = {"authorization": "_".join([one[0], one[1], two[2]])}
    require_problem(httpx.get(f"{locked.url}/sessions", headers=mixed), 401, "unauthenticated")


def test_an_expired_key_and_a_revoked_one_do_not_open(client: Make, locked: Running) -> None:
    require_problem(client(expires=1.0).get("/sessions"), 401, "unauthenticated")
    http = client()
    assert http.get("/sessions").status_code == 200
    with redis.Redis.from_url(locked.redis_url) as store:
        store.hdel(api_keys_key(), http.headers["authorization"].split("_")[1])
    wait_until(lambda: http.get("/sessions").status_code == 401, BELIEVED + 30)


@pytest.mark.parametrize(
    ("scopes", "method", "path", "may"),
    [
        (("observe",), "POST", "/sessions/s/observe", True),
        (("observe",), "POST", "/sessions/s/labels", True),
        (("observe",), "GET", "/sessions/s/model", True),
        (("observe",), "GET", "/sessions/s/predict", False),
        (("observe",), "POST", "/sessions/s/predict", False),
        (("predict",), "GET", "/predict", True),
        (("predict",), "HEAD", "/sessions/s", True),
        (("predict",), "POST", "/sessions/s/predict", True),
        (("predict",), "POST", "/sessions/s/observe", False),
        (("predict",), "GET", "/sessions/s/log", False),
        (("observe", "predict"), "GET", "/sessions/s/snapshot", False),
        (("observe", "predict"), "DELETE", "/sessions/s", False),
        (("observe", "predict"), "POST", "/sessions", False),
        (("observe", "predict"), "GET", "/sessions", False),
        (("observe", "predict"), "GET", "/metrics", False),
        (("admin",), "POST", "/sessions/s/observe", True),
        (("admin",), "GET", "/metrics", True),
    ],
)
def test_what_a_scope_may_do(scopes: tuple[str, ...], method: str, path: str, may: bool) -> None:
    assert bool(set(needed(method, path)) & set(scopes)) is may


def test_a_scope_that_is_missing_is_403_and_nothing_is_learned(client: Make) -> None:
    admin, reader = client(tenant="scoped"), client(tenant="scoped", scopes=("predict",))
    admin.post("/sessions", json={"id": "s", "dimension": 2})
    require_problem(reader.post("/sessions/s/observe", json=POINT), 403, "scope-missing", scope="observe")
    require_problem(reader.delete("/sessions/s"), 403, "scope-missing", scope="admin")
    assert reader.get("/sessions/s").json()["observed"] == 0
    assert reader.get("/sessions/s/predict?x=0.1,0.2").status_code == 200
    require_problem(admin.get("/metrics"), 403, "scope-missing")  # of all tenants: for the default one alone
    assert client().get("/metrics").status_code == 200


def test_rates_are_told_and_kept(client: Make) -> None:
    http = client(tenant="rates", limits={"requests": 3, "points": 10, "bytes": 100_000})
    first = http.post("/sessions", json={"id": "s", "dimension": 2})
    assert first.headers["ratelimit-policy"] == '"requests";q=3;w=1, "bytes";q=100000;w=1'
    assert re.fullmatch(r'"requests";r=\d+;t=1, "bytes";r=\d+;t=1', first.headers["ratelimit"])
    refused = [answer for answer in (http.get("/sessions/s") for _ in range(50)) if answer.status_code != 200]
    assert refused
    for answer in refused:
        require_problem(answer, 429, "rate-limited")
    others = client(tenant="rates", limits={"points": 10})
    many = {"points": [[0.1, 0.2]] * 100, "labels": [1] * 100}
    assert others.post("/sessions/s/observe", json=many).status_code == 200  # the bucket was full, and is in debt now
    late = others.post("/sessions/s/observe", json=POINT)
    require_problem(late, 429, "rate-limited")
    assert int(late.headers["retry-after"]) >= 5
    assert others.get("/sessions/s").json()["observed"] == 100
    assert client(tenant="rates").post("/sessions/s/observe", json=POINT).status_code == 200


def test_quotas_of_sessions_and_streams(client: Make) -> None:
    http = client(tenant="few", limits={"sessions": 2, "streams": 1})
    for id in ("a", "b"):
        assert http.post("/sessions", json={"id": id, "dimension": 2}).status_code == 201
    require_problem(http.post("/sessions", json={"dimension": 2}), 429, "session-quota", limit=2)
    with http.stream("GET", "/sessions/a/events") as stream:
        assert stream.status_code == 200
        require_problem(http.get("/sessions/b/events"), 429, "rate-limited")
        assert client(tenant="few").get("/sessions/a").status_code == 200
    assert http.delete("/sessions/a").status_code == 204
    assert http.post("/sessions", json={"dimension": 2}).status_code == 201


def test_keys_are_made_listed_and_ended_on_the_command_line(locked: Running) -> None:
    """On a store that is in use by the service"""
    where = ("--data", str(locked.data))
    made = command("keys", "add", *where, "--tenant", "cli", "--scopes", "predict", "--name", "a test", "--days", "2")
    assert made.returncode == 0, made.stderr
    told = made.stdout.strip()
    id = told.split("_")[1]
    headers = {"authorization": f"Bearer {told}"}
    require_problem(httpx.get(f"{locked.url}/sessions/none", headers=headers), 404, "unknown-session")
    listed = command("keys", "list", *where).stdout
    assert f"{id}  cli  predict  expires 20" in listed and told.split("_", 2)[2] not in listed
    assert command("keys", "revoke", id, *where).returncode == 0
    again = command("keys", "revoke", id, *where)
    assert (again.returncode, again.stderr) == (1, f"there is no key {id!r}\n")
    wrong = command("keys", "add", *where, "--scopes", "all")
    assert wrong.returncode == 2 and "observe, predict, admin" in wrong.stderr


def test_what_is_kept_of_a_key_does_not_open_it() -> None:
    told, key = issue(tenant="t", limits={"requests": 5})
    secret = told.split("_", 2)[2]
    assert secret not in write(key) and read(key.id, write(key).encode()) == key
    assert key.hash == hashed(secret) and len(secret) >= 43
    assert key.opened_by(secret, 0.0) and not key.opened_by(secret + "x", 0.0) and not key.opened_by("", 0.0)
    assert not ApiKey("i", hashed(secret), expires=5.0).opened_by(secret, 5.0)


@pytest.mark.parametrize(
    ("host", "keys", "asked"),
    [
        ("127.0.0.1", "auto", False),
        ("localhost", "auto", False),
        ("::1", "auto", False),
        ("0.0.0.0", "auto", True),
        ("::", "auto", True),
        ("10.0.0.1", "auto", True),
        ("127.0.0.1", "on", True),
        ("0.0.0.0", "off", False),
    ],
)
def test_off_loopback_keys_are_asked_for_unless_that_is_said_to_be_off(host: str, keys: Any, asked: bool) -> None:
    assert Settings(host=host, keys=keys).with_keys is asked


def test_neither_secrets_nor_points_are_logged(tmp_path: Path) -> None:
    """Not even when everything is logged and goes wrong"""
    made = command("keys", "add", "--data", str(tmp_path / "data")).stdout.strip()
    errors = tmp_path / "stderr"
    with (
        open(errors, "w") as stderr,
        service(tmp_path / "data", stderr=stderr, HOROCYCLE_KEYS="on", HOROCYCLE_ACCESS_LOG="1") as found,
        httpx.Client(base_url=found.url, timeout=30, headers={"authorization": f"Bearer {made}"}) as http,
    ):
        http.post("/sessions", json={"id": "s", "dimension": 2, "labels": ["confidential-a", "confidential-b"]})
        http.post("/sessions/s/observe", json={"point": [0.123454321, 0.2], "label": "confidential-a"})
        http.get("/sessions/s/predict?x=0.123454321,0.1")
        http.post("/sessions/s/observe", json={"point": [7.123454321, 0.2], "label": "confidential-c"})
        with redis.Redis.from_url(found.redis_url) as store:
            store.hset("hc:2:{s}:state", "learner", b"damaged")
        assert http.get("/sessions/s/snapshot").status_code == 500
    told = errors.read_text()
    assert told.count('"path": "/sessions/s/observe"') == 2
    assert not [word for word in (made.split("_", 2)[2], "123454321", "confidential") if word in told]


def test_the_streams_of_a_revoked_key_end(client: Make, locked: Running) -> None:
    """Of events when the next one would be told, of messages with the next message; both are looked at now and then"""
    http, other = client(tenant="leaving"), client(tenant="leaving")
    assert http.post("/sessions", json={"id": "s", "dimension": 2}).status_code == 201
    with http.stream("GET", "/sessions/s/events") as events, streaming(locked, http, "s") as socket:
        lines = events.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: reset"
        assert "hello" in json.loads(socket.recv())
        with redis.Redis.from_url(locked.redis_url) as store:
            store.hdel(api_keys_key(), http.headers["authorization"].split("_")[1])
        wait_until(lambda: http.get("/sessions").status_code == 401, BELIEVED + 30)
        assert other.post("/sessions/s/observe", json=POINT).status_code == 200
        assert [line for line in lines if line.startswith("event:")] == []
        with pytest.raises(ConnectionClosed) as closed:
            socket.send(json.dumps(POINT))
            socket.recv(60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
    assert other.get("/sessions/s").json()["observed"] == 1


def test_a_tenant_watches_a_demo_of_its_own(client: Make) -> None:
    http = client(tenant="watching")
    where = http.post("/demo", json={"kind": "taxonomy"}).headers["location"]
    wait_until(lambda: http.get(where).json()["observed"] > 0)
    assert http.delete(where).status_code == 204
