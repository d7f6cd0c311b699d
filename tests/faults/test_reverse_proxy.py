"""haproxy.cfg, run by a real HAProxy before two services that share a store."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from tests.cluster import free_ports
from tests.running import Running, service, wait_until_ready
from tests.sse import listening, spoken
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
if HAPROXY is None and os.environ.get("CI"):
    raise RuntimeError("no haproxy: .ci/run installs it")
pytestmark = pytest.mark.skipif(HAPROXY is None, reason="THE PROXY'S TESTS ARE LEFT OUT: install haproxy")


@dataclass(frozen=True)
class Proxy:
    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def upstreams(self, path: str) -> list[str]:
        """Which server each request for this path went to"""
        return re.findall(rf"services/(\w+|<NOSRV>) .*\"\w+ {re.escape(path)}[? ]", self.log.read_text())


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, running: Running) -> Iterator[Proxy]:
    folder, [port] = tmp_path_factory.mktemp("proxy"), free_ports(1)
    written = (ROOT / "haproxy.cfg").read_text()
    (folder / "haproxy.cfg").write_text(_swapped(written, "timeout http-request 10s", "timeout http-request 2s"))
    with (
        service(folder / "data", REDIS_URL=running.redis_url, HOROCYCLE_FIT_WORKERS="0") as other,
        open(folder / "log", "wb") as log,
    ):
        ones = {"PROXY_ONE": running.url.partition("//")[2], "PROXY_TWO": other.url.partition("//")[2]}
        env = {**os.environ, **ones, "PROXY_LISTEN": f"127.0.0.1:{port}"}
        words = [str(HAPROXY), "-db", "-f", str(folder / "haproxy.cfg")]
        process = subprocess.Popen(words, env=env, stdout=log, stderr=log)
        try:
            wait_until_ready(f"http://127.0.0.1:{port}")
            yield Proxy(f"http://127.0.0.1:{port}", folder / "log", process)
        finally:
            process.terminate()
            process.wait(60)


def _swapped(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def test_a_session_has_one_upstream_and_sessions_are_spread(proxy: Proxy) -> None:
    with httpx.Client(base_url=proxy.url, timeout=60) as http:
        for i in range(16):
            assert http.post("/sessions", json={"id": f"proxied-{i}", "dimension": 2}).status_code == 201
            for _ in range(3):
                told = http.post(f"/sessions/proxied-{i}/observe", json={"point": [0.1, 0.2], "label": 1})
                assert told.status_code == 200
            assert http.get("/predict", params={"session": f"proxied-{i}", "x": "0.1,0.2"}).status_code == 200
            assert http.get(f"/sessions/proxied-{i}").json()["observed"] == 3
            assert http.get(f"/v2/models/proxied-{i}").status_code == 200
    wait_until(lambda: len(proxy.upstreams("/v2/models/proxied-15")) == 1)
    for i in range(16):
        paths = (f"/sessions/proxied-{i}/observe", f"/sessions/proxied-{i}", f"/v2/models/proxied-{i}")
        assert len({server for path in paths for server in proxy.upstreams(path)}) == 1
    homes = {server for i in range(16) for server in proxy.upstreams(f"/sessions/proxied-{i}")}
    assert homes == {"one", "two"}


def test_events_and_streams_pass(proxy: Proxy) -> None:
    with httpx.Client(base_url=proxy.url, timeout=60) as http:
        assert http.post("/sessions", json={"id": "passing", "dimension": 2}).status_code == 201
        with listening(http, "passing") as events, connect(f"ws{proxy.url[4:]}/sessions/passing/stream") as messages:
            assert json.loads(messages.recv())["hello"]["observed"] == 0
            messages.send('{"point": [0.1, 0.2], "label": 1}')
            assert json.loads(messages.recv())["accepted"] == 1
            assert [event.name for event in spoken(events, 2)] == ["reset", "commit"]


def test_who_drips_headers_is_cut_off_by_the_proxy(proxy: Proxy) -> None:
    """The service behind it never hears of them, and others are served"""
    address = ("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    silent = [socket.create_connection(address, timeout=60) for _ in range(50)]
    for each in silent:
        each.sendall(b"GET /sessions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    assert httpx.get(f"{proxy.url}/health/live", timeout=60).status_code == 200
    for each in silent:
        assert each.recv(100).startswith(b"HTTP/1.1 408 ")
        each.close()
    wait_until(lambda: proxy.log.read_text().count("services/<NOSRV>") + proxy.log.read_text().count("<BADREQ>") >= 50)
