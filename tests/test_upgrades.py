"""A request that asks for another protocol is answered in HTTP/1.1, its body included; a WebSocket still is one."""

from __future__ import annotations

import http.client

import httpx
import pytest

from service.process.http_protocol import without_upgrade
from tests.opening import opened
from tests.running import Running

#: What `curl --http2` sends.
H2C = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA"}


@pytest.mark.parametrize("name", ["Upgrade", "upgrade", "UPGRADE"])
def test_h2c_is_ignored_and_the_connection_goes_on(http: httpx.Client, running: Running, name: str) -> None:
    sid = opened(http, {"dimension": 2})
    connection = http_connection(running)
    headers = {name if each == "Upgrade" else each: value for each, value in H2C.items()}
    for n in range(1, 4):
        body = b'{"point": [0.1, 0.2], "label": 1}'
        connection.request("POST", f"/sessions/{sid}/observe", body, {**headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert f'"observed":{n}'.encode() in answer.read()
        connection.request("GET", f"/sessions/{sid}", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.version) == (200, 11)
        answer.read()
    connection.close()


def http_connection(running: Running) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=60)


def test_only_the_header_goes() -> None:
    head, body = b"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nA: b", b"\r\n\r\nx\r\nUpgrade: h2c\r\n"
    assert without_upgrade(head + body) == head.replace(b"\r\nUpgrade: h2c", b"") + body
    for socket in (b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", b"GET / HTTP/1.1\r\nupgrade:WebSocket\r\n\r\n"):
        assert without_upgrade(socket) == socket
