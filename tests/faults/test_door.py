"""A web page cannot write into a service on loopback: a body names its type, a request its host and its origin."""

from __future__ import annotations

import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from service.api.door import Door, own_hosts
from service.errors import CrossSite, UnknownHost
from tests.problem import require_problem
from tests.running import Running, service

PAGE = "https://page.example"


@pytest.fixture(scope="module")
def welcoming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that is known by a name, and that one foreign page may call"""
    with (
        service(
            tmp_path_factory.mktemp("welcoming") / "data",
            HOROCYCLE_HOSTS="ball.example, *.not-a-pattern",
            HOROCYCLE_ORIGINS=PAGE,
            HOROCYCLE_FIT_WORKERS="0",
        ) as found,
        httpx.Client(base_url=found.url, timeout=30) as http,
    ):
        yield http


def raw(running: Running, request: bytes) -> bytes:
    """The answer to exactly these bytes"""
    url = httpx.URL(running.url)
    assert url.port is not None
    with socket.create_connection((url.host, url.port), timeout=30) as connection:
        connection.sendall(request)
        heard = b""
        while some := connection.recv(65536):
            heard += some
        return heard


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/sessions"),
        ("PATCH", "/sessions/{id}"),
        ("POST", "/sessions/{id}/observe"),
        ("POST", "/sessions/{id}/predict"),
        ("POST", "/sessions/{id}/labels"),
        ("POST", "/sessions/{id}/fits"),
        ("POST", "/sessions/{id}/promote"),
    ],
)
def test_a_body_needs_its_content_type(running: Running, http: httpx.Client, verb: str, path: str, kind: Any) -> None:
    http.post("/sessions", json={"id": "typed", "dimension": 2})
    before = http.get("/sessions/typed").json()
    target, body = path.format(id="typed").encode(), b'{"dimension": 2, "point": [0.1, 0.2], "label": 1}'
    type_line = b"" if kind is None else b"content-type: %b\r\n" % kind.encode()
    head = b"%b %b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n" % (verb.encode(), target)
    answer = raw(running, head + type_line + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    assert answer.startswith(b"HTTP/1.1 415 ") and b"unsupported-media-type" in answer
    assert http.get("/sessions/typed").json() == before


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "0.0.0.0", ""])
def test_a_host_that_we_are_not_is_refused(running: Running, host: str) -> None:
    """A page of evil.example whose name resolves to 127.0.0.1 could read everything"""
    lines = f"GET /sessions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    answer = raw(running, lines.encode())
    assert answer.startswith(b"HTTP/1.1 421 ") and b"unknown-host" in answer and b"HOROCYCLE_HOSTS" in answer


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9", "localhost:8000", "LOCALHOST", "[::1]:8000"])
def test_loopback_is_known_by_its_names(http: httpx.Client, host: str) -> None:
    assert http.get("/sessions", headers={"host": host}).status_code == 200


def test_a_name_that_was_told_is_known(welcoming: httpx.Client) -> None:
    assert welcoming.get("/sessions", headers={"host": "ball.example"}).status_code == 200
    require_problem(welcoming.get("/sessions", headers={"host": "a.not-a-pattern"}), 421, "unknown-host")


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_probes_come_by_any_name(http: httpx.Client, path: str) -> None:
    assert http.get(path, headers={"host": "10.1.2.3:8000"}).status_code == 200


@pytest.mark.parametrize(
    "page",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_a_page_of_another_site_writes_nothing(http: httpx.Client, page: dict[str, str]) -> None:
    http.post("/sessions", json={"id": "foreign", "dimension": 2})
    before = http.get("/sessions/foreign").json()
    body = {"point": [0.1, 0.2], "label": 1}
    require_problem(http.post("/sessions/foreign/observe", json=body, headers=page), 403, "cross-site")
    require_problem(http.post("/sessions", json={"dimension": 2}, headers=page), 403, "cross-site")
    require_problem(http.patch("/sessions/foreign", json={"name": "x"}, headers=page), 403, "cross-site")
    require_problem(http.delete("/sessions/foreign", headers=page), 403, "cross-site")
    assert http.get("/sessions/foreign").json() == before
    assert "access-control-allow-origin" not in http.get("/sessions", headers=page).headers


@pytest.mark.parametrize(
    "page", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}], ids=str
)
def test_a_page_of_another_site_has_no_stream_of_messages(running: Running, http: httpx.Client, page: Any) -> None:
    """A browser asks nobody before it opens a WebSocket to another site"""
    http.post("/sessions", json={"id": "streamed", "dimension": 2})
    key = b64encode(bytes(16)).decode()
    asked = {"host": "127.0.0.1", "upgrade": "websocket", "connection": "upgrade", "sec-websocket-version": "13"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**asked, "sec-websocket-key": key, **page}.items())
    answer = raw(running, f"GET /sessions/streamed/stream?producer=p HTTP/1.1\r\n{lines}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_our_own_pages_write(http: httpx.Client) -> None:
    own = {"origin": str(http.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert http.post("/sessions", json={"dimension": 2}, headers=own).status_code == 201


def test_a_page_that_was_told_calls_and_others_do_not(welcoming: httpx.Client) -> None:
    page = {"origin": PAGE, "sec-fetch-site": "cross-site"}
    asked = {"access-control-request-method": "PATCH", "access-control-request-headers": "content-type,if-match"}
    allowed = welcoming.options("/sessions/any", headers=page | asked)
    assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == PAGE
    assert "PATCH" in allowed.headers["access-control-allow-methods"]
    opened = welcoming.post("/sessions", json={"dimension": 2}, headers=page)
    assert opened.status_code == 201 and opened.headers["access-control-allow-origin"] == PAGE
    assert "etag" in opened.headers["access-control-expose-headers"].lower()
    observed = welcoming.post(
        f"{opened.headers['location']}/observe", json={"point": [0.1, 0.2], "label": 1}, headers=page
    )
    assert observed.status_code == 200 and observed.headers["access-control-allow-origin"] == PAGE
    other = {"origin": "https://other.example"}
    assert "access-control-allow-origin" not in welcoming.options("/sessions", headers=other | asked).headers


def test_every_answer_has_its_security_headers(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "headed", "dimension": 2})
    good, bad = {"point": [0.1, 0.2], "label": 1}, {"point": [9.0, 0.2], "label": 1}
    for answer in (
        http.get("/sessions"),
        http.get("/sessions/nowhere"),
        http.get("/docs"),
        http.get("/problems/cross-site"),
        http.get("/sessions/headed/disk.svg"),
        http.post("/sessions/headed/observe", json=good),
        http.post("/sessions/headed/observe", json=bad),
        http.get("/sessions", headers={"host": "evil.example"}),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_the_documentation_may_run_its_own_scripts_only(http: httpx.Client) -> None:
    page = http.get("/docs")
    [script] = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    policy = page.headers["content-security-policy"]
    assert f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_the_rules_by_themselves() -> None:
    door = Door(own_hosts("10.0.0.7", ["ball.example"]), [PAGE])
    for host in ("10.0.0.7:80", "ball.example", "Ball.Example:443", "[::1]"):
        door.check("POST", "/sessions", {"host": host})
    with pytest.raises(UnknownHost):
        door.check("GET", "/sessions", {})
    with pytest.raises(UnknownHost):
        Door(own_hosts("0.0.0.0", [])).check("GET", "/", {"host": "0.0.0.0"})
    Door(own_hosts("0.0.0.0", ["*"])).check("GET", "/", {"host": "anything"})
    with pytest.raises(CrossSite):
        door.check("GET", "/", {"host": "[::1]", "origin": "http://[::2]"}, writes=True)
    door.check("GET", "/", {"host": "[::1]", "origin": "http://[::1]"}, writes=True)
