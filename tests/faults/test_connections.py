"""Sockets that say nothing, drip, or do not read: each is closed by its deadline, and others are served meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running import Running, service
from tests.waiting import retry, wait_until

HEADERS, BODY = 0.6, 2.0
GET = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n"
POST = b"POST /sessions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One worker that takes sixteen connections and has little patience"""
    folder = tmp_path_factory.mktemp("brisk")
    with (
        (folder / "log").open("w") as log,
        service(
            folder / "data",
            stderr=log,
            HOROCYCLE_CONNECTIONS="16",
            HOROCYCLE_HEADER_SECONDS=str(HEADERS),
            HOROCYCLE_BODY_SECONDS=str(BODY),
            HOROCYCLE_FIT_WORKERS="0",
        ) as found,
    ):
        yield found


def log_of(running: Running) -> Path:
    return running.data.parent / "log"


def connected(running: Running) -> socket.socket:
    url = httpx.URL(running.url)
    assert url.port is not None
    return socket.create_connection((url.host, url.port), timeout=30)


def until_closed(connection: socket.socket, drip: bytes = b"") -> bytes:
    """What is heard until the other side closes; meanwhile a byte is sent again and again"""
    heard, deadline = b"", time.monotonic() + 30
    connection.settimeout(0.1 if drip else 30)
    while time.monotonic() < deadline:
        try:
            if drip:
                connection.sendall(drip)
            if not (some := connection.recv(4096)):
                return heard
            heard += some
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return heard
    raise AssertionError("still open")


def test_a_silent_socket_is_closed(brisk: Running) -> None:
    with connected(brisk) as silent:
        assert until_closed(silent) == b""


@pytest.mark.parametrize(
    ("sent", "drip"),
    [
        (GET, b""),
        (GET, b"x"),
        (POST + b"content-length: 99\r\n\r\n", b""),
        (POST + b"content-length: 99999\r\n\r\n", b" "),
    ],
    ids=["half a header", "a dripping header", "half a body", "a dripping body"],
)
def test_a_request_that_is_never_whole_is_told_and_closed(brisk: Running, sent: bytes, drip: bytes) -> None:
    with connected(brisk) as slow:
        slow.sendall(sent)
        assert until_closed(slow, drip).startswith(b"HTTP/1.1 408 ")


def test_empty_lines_do_not_keep_a_connection_open(brisk: Running) -> None:
    with connected(brisk) as idle:
        idle.sendall(GET + b"\r\n")
        assert b"200 OK" in until_closed(idle, b"\r\n")


def test_headers_without_end_are_refused(brisk: Running) -> None:
    with connected(brisk) as endless:
        endless.sendall(GET + b"x-much: " + b"x" * 70_000)
        assert until_closed(endless).startswith(b"HTTP/1.1 431 ")


def is_established(connection: socket.socket) -> bool:
    """At its other end, as the kernel has it: who does not read hears of no end"""
    here, there = (f"0100007F:{address[1]:04X}" for address in (connection.getsockname(), connection.getpeername()))
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
    return [there, here, "01"] in [row[1:4] for row in rows]


def test_an_answer_that_nobody_reads_is_given_up(brisk: Running) -> None:
    """The answers of many requests on one connection fill every buffer on the way"""
    with connected(brisk) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 200)
        wait_until(lambda: not is_established(deaf))
    assert httpx.get(f"{brisk.url}/health/ready").status_code == 200
    assert log_of(brisk).read_text() == ""


def test_silent_sockets_shut_nobody_out(brisk: Running) -> None:
    """Many more than there are places for; each new one takes the place of the one that was silent for longest"""
    with ExitStack() as many:
        crowd = [many.enter_context(connected(brisk)) for _ in range(200)]
        for _ in range(3):
            assert httpx.get(f"{brisk.url}/health/ready", timeout=30).status_code == 200
        assert until_closed(crowd[0]) == b""


def test_there_are_fewer_connections_than_files(tmp_path: Path) -> None:
    """A worker that may open 200 files has places for 72: others come, and it can still connect to its store"""
    few = ("sh", "-c", 'ulimit -n 200 && exec "$@"', "sh")
    patient = {"HOROCYCLE_HEADER_SECONDS": "300"}  # so that nobody is closed for being silent
    settings: dict[str, Any] = {"through": few, "HOROCYCLE_FIT_WORKERS": "0", **patient}
    with service(tmp_path / "data", **settings) as running, ExitStack() as many:
        crowd = [many.enter_context(connected(running)) for _ in range(300)]
        with running.client() as store:
            store.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        retry(lambda: httpx.get(f"{running.url}/health/ready", timeout=30), 200)
        assert until_closed(crowd[0]) == b""


def test_a_request_under_way_does_not_give_way(brisk: Running) -> None:
    with httpx.Client(base_url=brisk.url, timeout=30) as http:
        http.post("/sessions", json={"id": "followed", "dimension": 2}).raise_for_status()
        with http.stream("GET", "/sessions/followed/events") as stream, ExitStack() as many:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            for _ in range(40):
                many.enter_context(connected(brisk))
            httpx.post(
                f"{brisk.url}/sessions/followed/observe", json={"point": [0.1, 0.2], "label": 1}, timeout=30
            ).raise_for_status()
            assert any(line == "event: commit" for line in lines)
