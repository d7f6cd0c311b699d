"""A store of another format is refused at start with one sentence, and not changed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from service.errors import OldFormat, ServerFailed
from service.process.private_store import EmbeddedServer
from service.process.store_format import FORMAT, FORMAT_KEY, connect, require_format, require_version, stored_format
from tests.running import Running, command, wait_until_ready
from tests.waiting import wait_until

OLD = ("hc:1:sessions", {"demo": 1.0})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with connect(server.url, 5.0) as found:
        found.flushall()
        yield found


def contents(data: Path) -> dict[str, bytes]:
    """Every file of the append-only log"""
    return {path.name: path.read_bytes() for path in (data / "appendonlydir").iterdir()}


def test_a_new_store_is_marked_once(client: redis.Redis) -> None:
    assert stored_format(client) is None
    for _ in range(2):
        require_format(client, "here")
        assert client.get(FORMAT_KEY) == FORMAT.encode() == stored_format(client).encode()  # type: ignore[union-attr]
    assert client.keys() == [FORMAT_KEY.encode()]


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.16", "6.1.240"])
def test_a_redis_before_6_2_is_refused(version: str) -> None:
    with pytest.raises(ServerFailed, match=rf"here is on Redis {version}; 6.2 or newer"):
        require_version({"redis_version": version}, "here")


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "10.0.1", "unstable", ""])
def test_a_later_one_is_not(version: str) -> None:
    require_version({"redis_version": version}, "here")


def test_foreign_keys_are_no_data_of_ours(client: redis.Redis) -> None:
    client.set("hc", "x")
    client.set("hc:1", "x")
    client.set("another:1:sessions", "x")
    require_format(client, "here")
    assert stored_format(client) == FORMAT


@pytest.mark.parametrize("key", ["hc:1:sessions", "hc:1:fits", "hc:1:{epoch}:number"])
def test_any_fixed_key_of_format_1_is_refused(client: redis.Redis, key: str) -> None:
    client.set(key, "x")
    with pytest.raises(
        OldFormat, match=r"^here holds data of format '1', not '2': export snapshots with version 0\.1 "
    ):
        require_format(client, "here")
    assert client.keys() == [key.encode()]


@pytest.mark.parametrize("value", ["3", "", "\xff", "2.0"])
def test_another_number_is_refused(client: redis.Redis, value: str) -> None:
    client.set(FORMAT_KEY, value.encode("latin-1"))
    with pytest.raises(OldFormat, match="with the version that wrote it"):
        require_format(client, "here")
    assert client.get(FORMAT_KEY) == value.encode("latin-1")


def test_a_store_of_our_format_may_have_old_keys_beside_it(client: redis.Redis) -> None:
    """Version 0.1 used the same Redis later: their keys are apart"""
    require_format(client, "here")
    client.zadd(*OLD)
    require_format(client, "here")


# --------------------------------------------------------------------------------------- the command line


def test_an_old_data_folder_is_refused_and_not_changed(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, connect(server.url, 5.0) as client:
        client.zadd(*OLD)
    before = contents(tmp_path)
    told = command("serve", "--port", "0", "--data", str(tmp_path))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == OldFormat(f"the data folder {tmp_path}", "1", FORMAT).detail + "\n"
    asked = command("doctor", "--port", "0", "--data", str(tmp_path))
    assert asked.returncode == 1
    assert f"WRONG {told.stderr}" in asked.stdout
    assert contents(tmp_path) == before


def test_an_old_configured_store_is_refused_and_not_changed(
    tmp_path: Path, client: redis.Redis, server: EmbeddedServer
) -> None:
    client.zadd(*OLD)
    told = command("serve", "--port", "0", "--data", str(tmp_path), REDIS_URL=server.url)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == OldFormat("the store at REDIS_URL", "1", FORMAT).detail + "\n"
    asked = command("doctor", "--port", "0", REDIS_URL=server.url)
    assert f"WRONG {told.stderr}" in asked.stdout
    assert client.keys() == [OLD[0].encode()]


def test_the_doctor_marks_nothing(client: redis.Redis, server: EmbeddedServer) -> None:
    assert f"ok    the store's format is {FORMAT}" in command("doctor", "--port", "0", REDIS_URL=server.url).stdout
    assert client.keys() == []


def test_a_service_marks_its_store(running: Running) -> None:
    with connect(running.redis_url, 5.0) as client:
        assert client.get(FORMAT_KEY) == FORMAT.encode()


def test_a_store_that_hangs_does_not_hold_up_the_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with connect(f"redis://127.0.0.1:{silent.getsockname()[1]}", 0.2) as client:
            with pytest.raises(redis.TimeoutError):
                require_format(client, "here")
        assert time.monotonic() - began < 2.0  # redis-py's own limit is 5 s


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_store_that_does_not_answer_yet_is_waited_for_by_requests(tmp_path: Path, workers: str) -> None:
    """The banner comes although there is no store; readiness is 503 until there is one. It is said once"""
    data, address = tmp_path / "data", f"unix://{tmp_path}/data/server.sock"
    with subprocess.Popen(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--workers", workers],
        env={**os.environ, "REDIS_URL": address, "HOROCYCLE_FIT_WORKERS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[2]
            wait_until(lambda: unready(url))
            with EmbeddedServer(data):
                wait_until_ready(url)
        finally:
            process.terminate()
        _, told = process.communicate(timeout=20)
    assert process.returncode == 0 and "Traceback" not in told
    assert told.count("the format of the store was not checked") == 1


def unready(url: str) -> bool:
    """Whether it answers, and says that it has no store"""
    try:
        return httpx.get(f"{url}/health/ready", timeout=10).status_code == 503
    except httpx.TransportError:
        return False


def test_a_store_of_another_format_that_answers_late_ends_the_service(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedServer(data) as server, connect(server.url, 5.0) as client:
        client.zadd(*OLD)
    with subprocess.Popen(
        [sys.executable, "-m", "service", "serve", "--port", "0"],
        env={**os.environ, "REDIS_URL": f"unix://{data}/server.sock", "HOROCYCLE_FIT_WORKERS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None and "Horocycle on" in process.stdout.readline()
            with EmbeddedServer(data):
                assert process.wait(30) == 1
        finally:
            process.kill()
        _, told = process.communicate(timeout=20)
    assert told.endswith(OldFormat("the store at REDIS_URL", "1", FORMAT).detail + "\n")
