"""The private store, as real processes: acknowledged writes survive, and a folder has one server at a time."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import pytest
import redis

from service.errors import DataFolderInUse, ServerFailed, ServerNotFound
from service.process.private_store import EmbeddedServer, Program, find_server

LIMIT = 60  # seconds a test may take
ROOT = Path(__file__).parent.parent

# Runs a private store until EOF on stdin; after SIGINT it waits, and writes once more.
LAUNCHER = """
import sys, time
from pathlib import Path
import redis
from service.process.private_store import EmbeddedServer

with EmbeddedServer(Path(sys.argv[1])) as server, redis.Redis.from_url(server.url) as client:
    try:
        print(server.pid, server.url, flush=True)
        sys.stdin.read()
    except KeyboardInterrupt:
        time.sleep(0.5)
        print(server.pid, client.set("written", "after Ctrl-C"), flush=True)
"""


def processes() -> Iterator[tuple[int, str]]:
    """Pid and command line of all that run; from /proc where there is one, as a small image may lack ps."""
    if Path("/proc/self/cmdline").exists():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                yield int(path.parent.name), path.read_bytes().decode(errors="replace").replace("\0", " ").rstrip()
        return
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,command="], capture_output=True, check=True)
    for line in listing.stdout.decode(errors="replace").splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command.strip()


def servers(data: Path) -> list[int]:
    return [pid for pid, command in processes() if command.endswith(f" {data.resolve() / 'server.conf'}")]


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def call(url: str, *command: str) -> object:
    with redis.Redis.from_url(url, decode_responses=True, socket_timeout=5.0) as client:
        return client.execute_command(*command)


def answers(url: str) -> bool:
    try:
        return call(url, "PING") is True
    except redis.RedisError:
        return False


@contextmanager
def launcher(data: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A launcher in a process and a process group of its own; with the pid and the url of its server."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(data)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            pid, url = process.stdout.readline().split()
            yield process, int(pid), url
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def bounded_in_time() -> Iterator[None]:
    def expire(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test took longer than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data folder to be; at the end, no server may be left in it."""
    folder = tmp_path / "data"
    yield folder
    left = [pid for pid, command in processes() if command.endswith("/server.conf") and f" {tmp_path}/" in command]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_it_starts_and_answers_as_promised(data: Path) -> None:
    with EmbeddedServer(data) as server:
        assert answers(server.url)
        assert servers(data) == [server.pid]
        assert (data / "server.pid").read_text().strip() == str(server.pid)
        assert (data / "server.sock").stat().st_mode & 0o777 == 0o700
        assert data.stat().st_mode & 0o777 == 0o700
        promised = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "always",
            "aof-load-truncated": "yes",
            "maxmemory-policy": "noeviction",
            "save": "",
        }
        assert call(server.url, "CONFIG", "GET", *promised) == promised


def test_stop_really_stops(data: Path) -> None:
    server = EmbeddedServer(data)
    server.start()
    pid = server.pid
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not (data / "server.sock").exists()
    assert not (data / "server.pid").exists()
    time.sleep(0.3)  # a supervisor still at work would have started another one
    assert servers(data) == []
    server.stop()  # again: nothing to do


def test_a_server_that_hangs_is_killed_at_stop(data: Path) -> None:
    with EmbeddedServer(data, grace=0.2) as server:
        os.kill(server.pid, signal.SIGSTOP)
    assert servers(data) == []
    assert not (data / "server.sock").exists()


def test_data_survives_stop_and_start(data: Path) -> None:
    server = EmbeddedServer(data)
    for expected in range(1, 4):
        with server:
            assert call(server.url, "INCR", "starts") == expected


def test_a_killed_server_comes_back_with_all_that_was_acknowledged(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedServer(data) as server:
        first, url = server.pid, server.url
        for expected in range(1, 201):
            assert call(url, "INCR", "acknowledged") == expected
        with caplog.at_level(logging.WARNING, "service.process.private_store"):
            os.kill(first, signal.SIGKILL)
            eventually(lambda: server.pid != first and answers(url), 5.0)
        assert server.url == url
        assert call(url, "GET", "acknowledged") == "200"
        assert servers(data) == [server.pid]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "code -9" in caplog.text


def test_it_is_tried_again_for_as_long_as_it_fails(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "acknowledged", "yes")
        [manifest] = data.glob("appendonlydir/*.manifest")
        good = manifest.read_bytes()
        manifest.write_bytes(b"no manifest\n")
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: len(caplog.records) >= 4)
        pauses = [record.message.rpartition(" in ")[2] for record in caplog.records]
        assert pauses[:4] == ["0.05 s", "0.10 s", "0.20 s", "0.40 s"]
        manifest.write_bytes(good)
        eventually(lambda: answers(server.url))
        assert call(server.url, "GET", "acknowledged") == "yes"


def test_it_can_be_stopped_while_it_fails(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedServer(data) as server:
        [manifest] = data.glob("appendonlydir/*.manifest")
        manifest.write_bytes(b"no manifest\n")
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: len(caplog.records) >= 3)
        began = time.monotonic()
    assert time.monotonic() - began < 2.0
    assert servers(data) == []


def test_a_folder_in_use_is_refused_with_the_pid_of_its_owner(data: Path) -> None:
    with launcher(data) as (process, pid, url):
        with pytest.raises(DataFolderInUse, match=rf"in use by a live service, pid {process.pid}$"):
            EmbeddedServer(data).start()
        assert answers(url)
        assert servers(data) == [pid]
        process.communicate(timeout=15)  # its standard input ends, and so does it
        assert process.returncode == 0
    with EmbeddedServer(data) as server:
        assert answers(server.url)
        with pytest.raises(DataFolderInUse, match=f"pid {os.getpid()}$"):
            server.start()
        assert answers(server.url)


def test_a_process_that_outlives_the_service_does_not_keep_the_folder(data: Path) -> None:
    with EmbeddedServer(data):
        worker = subprocess.Popen(["sleep", "60"], close_fds=False)
    with worker:
        with EmbeddedServer(data) as server:
            assert answers(server.url)
        worker.kill()


def test_the_server_of_a_killed_launcher_is_taken_over(data: Path) -> None:
    with launcher(data) as (process, orphan, url):
        for expected in range(1, 101):
            assert call(url, "INCR", "acknowledged") == expected
        process.kill()
        process.wait(15)
        assert servers(data) == [orphan]
        assert answers(url)
    with EmbeddedServer(data) as server:
        assert servers(data) == [server.pid]
        assert server.pid != orphan
        assert call(server.url, "GET", "acknowledged") == "100"
    story = (data / "server.log").read_text()
    assert f"{orphan}:signal-handler" not in story  # it was asked over its socket
    assert f"{server.pid}:signal-handler" in story


def test_an_orphan_that_hangs_is_killed(data: Path) -> None:
    with launcher(data) as (process, orphan, url):
        call(url, "SET", "acknowledged", "yes")
        process.kill()
        process.wait(15)
        os.kill(orphan, signal.SIGSTOP)
    with EmbeddedServer(data, grace=0.5) as server:
        assert servers(data) == [server.pid]
        assert call(server.url, "GET", "acknowledged") == "yes"


def test_a_reused_pid_is_left_alone(data: Path) -> None:
    with EmbeddedServer(data):
        pass
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (data / "server.pid").write_text(f"{stranger.pid}\n")
        with EmbeddedServer(data) as server:
            assert (data / "server.pid").read_text().strip() == str(server.pid)
        assert stranger.poll() is None
        stranger.kill()


def test_a_stranger_is_not_killed_for_an_orphan_that_hangs(data: Path) -> None:
    with launcher(data) as (process, orphan, _):
        process.kill()
        process.wait(15)
    os.kill(orphan, signal.SIGSTOP)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (data / "server.pid").write_text(f"{stranger.pid}\n")
        with pytest.raises(ServerFailed, match="does not exit"):
            EmbeddedServer(data, grace=0.3).start()
        assert servers(data) == [orphan]  # and no second server was started beside it
        assert stranger.poll() is None
        stranger.kill()
    os.kill(orphan, signal.SIGKILL)
    eventually(lambda: servers(data) == [])


def test_ctrl_c_reaches_the_launcher_and_not_its_server(data: Path) -> None:
    with launcher(data) as (process, pid, _):
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=15)
        assert output == f"{pid} True\n"
        assert process.returncode == 0
    assert servers(data) == []
    with EmbeddedServer(data) as server:
        assert call(server.url, "GET", "written") == "after Ctrl-C"


def test_a_path_too_long_for_a_socket(data: Path) -> None:
    long = data / ("d" * 80) / ("e" * 80)
    with launcher(long) as (process, orphan, url):
        left_behind = Path((long / "shortcut").read_text())
        assert url == f"unix://{left_behind}/server.sock"
        assert left_behind.parent.stat().st_mode & 0o777 == 0o700
        call(url, "SET", "acknowledged", "yes")
        process.kill()
        process.wait(15)
        assert servers(long) == [orphan]
    with EmbeddedServer(long) as server:
        assert servers(long) == [server.pid]
        assert call(server.url, "GET", "acknowledged") == "yes"
        assert not left_behind.parent.exists()
        link = Path((long / "shortcut").read_text())
        assert link.exists()
    assert not link.parent.exists()
    assert not (long / "shortcut").exists()


def test_a_copied_folder_leaves_the_link_of_the_original_alone(data: Path) -> None:
    long, copy = data / ("d" * 80) / ("e" * 80), data / "copy"
    with EmbeddedServer(long) as server:
        copy.mkdir()
        (copy / "shortcut").write_text((long / "shortcut").read_text())
        with EmbeddedServer(copy):
            assert answers(server.url)


def test_a_path_that_needs_quoting(data: Path) -> None:
    with EmbeddedServer(data / "a b#c%20?d'é\"") as server:
        assert answers(server.url)


def test_a_record_cut_short_is_dropped(data: Path) -> None:
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "acknowledged", "yes")
    [tail] = data.glob("appendonlydir/*.incr.aof")
    with open(tail, "ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$12\r\nacknow")
    with EmbeddedServer(data) as server:
        assert call(server.url, "GET", "acknowledged") == "yes"


def test_a_damaged_log_is_told_with_the_servers_own_words(data: Path) -> None:
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "acknowledged", "yes")
    [tail] = data.glob("appendonlydir/*.incr.aof")
    good = tail.read_bytes()
    tail.write_bytes(b"no log\n" + good)
    with pytest.raises(ServerFailed, match=r"(?s)ended with code 1\. The end of .*server\.log:.*Bad file format"):
        EmbeddedServer(data).start()
    assert servers(data) == []
    tail.write_bytes(good)
    with EmbeddedServer(data) as server:
        assert call(server.url, "GET", "acknowledged") == "yes"


def test_a_server_that_takes_too_long_is_not_left_running(data: Path) -> None:
    with pytest.raises(ServerFailed, match="did not answer within 0 s"):
        EmbeddedServer(data, patience=0.0).start()
    assert servers(data) == []


def test_a_folder_that_cannot_be_made(data: Path) -> None:
    data.write_text("a file")
    with pytest.raises(ServerFailed, match="no server can run in the data folder"):
        EmbeddedServer(data).start()


def test_no_server_says_what_to_install() -> None:
    with pytest.raises(ServerNotFound, match=r"pip install no-such-wheel, apt install .*, brew install .* REDIS_URL"):
        find_server(path="", wheel="no-such-wheel")


def test_a_server_on_the_path_comes_first(tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_server(path=str(tmp_path)) == program


def test_the_wheel_comes_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    version = subprocess.run([find_server(), "--version"], capture_output=True, check=True).stdout
    assert b"server v=" in version


def stranger(folder: Path, told: str) -> Path:
    """A redis-server that says this of itself, and runs nothing"""
    program = folder / "redis-server"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{told}" && exit 0\nexit 7\n')
    program.chmod(0o755)
    return program


def test_a_server_that_appears_on_path_does_not_get_the_data_of_another(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "written", "by the wheel")
    program = stranger(tmp_path, "Redis server v=7.4.1 sha=0 malloc=libc bits=64 build=0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_server() == program
    for record in (True, False):  # a folder of an earlier version has no record; its data tells
        if not record:
            (data / "server.json").unlink()
        with EmbeddedServer(data) as server:
            assert call(server.url, "GET", "written") == "by the wheel"


@pytest.mark.parametrize("writer", [("Valkey", "99.0.0"), ("Redis", "8.0.1")])
def test_data_that_no_server_here_reads_is_refused_and_not_changed(data: Path, writer: tuple[str, str]) -> None:
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "kept", "yes")
    (data / "server.json").write_text(json.dumps({"name": writer[0], "version": writer[1]}))
    before = {path: path.read_bytes() for path in data.glob("appendonlydir/*")}
    with pytest.raises(ServerFailed, match=rf"was written by {writer[0]} {writer[1]}.*Nothing was changed"):
        EmbeddedServer(data).start()
    assert {path: path.read_bytes() for path in data.glob("appendonlydir/*")} == before


@pytest.mark.parametrize(
    ("reader", "writer", "reads"),
    [
        (("Valkey", "9.0.1"), ("Valkey", "9.0.0"), True),
        (("Valkey", "8.1.0"), ("Valkey", "9.0.0"), False),
        (("Valkey", "9.0.1"), ("Redis", "7.2.4"), True),
        (("Valkey", "9.0.1"), ("Redis", "7.4.0"), False),
        (("Redis", "7.4.0"), ("Valkey", "7.2.5"), False),
        (("Redis", "10.0.0"), ("Redis", "9.1.0"), True),
    ],
)
def test_which_server_reads_whose_data(reader: tuple[str, str], writer: tuple[str, str], reads: bool) -> None:
    assert Program(*reader).reads(Program(*writer)) is reads


def test_a_damaged_file_is_not_repaired_and_no_repair_is_advised(data: Path) -> None:
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "kept", "yes")
    [log] = data.glob("appendonlydir/*.incr.aof")
    log.write_bytes(b"*3\r\n$3\r\nSET\r\nrubbish" + log.read_bytes())
    before = log.read_bytes()
    with pytest.raises(ServerFailed) as told:
        EmbeddedServer(data).start()
    assert "Nothing was changed" in told.value.detail and "--fix" not in told.value.detail
    assert log.read_bytes() == before


def test_a_folder_that_was_there_becomes_private(data: Path) -> None:
    """An empty one, and one with the data of a server that was started by hand, say"""
    (data / "appendonlydir").mkdir(parents=True)
    before = os.umask(0o022)
    try:
        for _ in range(2):
            for path in (data, *data.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            with EmbeddedServer(data) as server:
                call(server.url, "SET", "a", "secret")
                files = [data, *data.rglob("*")]
                assert {path.name for path in files} >= {"appendonlydir", "server.sock", "server.log"}
                shared = [path for path in files if path.parent.name == "appendonlydir" or path.is_dir()]
                assert [path for path in shared if path.stat().st_mode & 0o077] == []
    finally:
        os.umask(before)
