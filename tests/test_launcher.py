"""The command line: serve starts and stops, or says why it does not; doctor."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from service.process.serve import HEALTH_TIMEOUT, _listen
from service.settings import Settings
from tests.running import Running, alive, command, service, wait_until_ready
from tests.waiting import wait_until


def test_told_to_stop_it_stops_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Two workers; the second finds what the first was told. One worker: test_events.py and test_demo.py"""
    for round, number in enumerate((signal.SIGTERM, signal.SIGINT)):
        with service(tmp_path / "data", workers=2) as running:
            assert len(httpx.get(f"{running.url}/sessions").json()["sessions"]) == round
            httpx.post(f"{running.url}/sessions", json={"dimension": 2}).raise_for_status()
            pids = [running.store_pid, *running.worker_pids, *running.fit_worker_pids]
            assert len(pids) == 4
            running.launcher.send_signal(number)
            assert running.launcher.wait(60) == 0
            assert not any(map(alive, pids))


def test_a_worker_that_is_killed_during_its_health_check_is_replaced_at_once(mortal: Running) -> None:
    wait_until(lambda: len(mortal.worker_pids) == 2)  # another test may have killed one
    wait_until_ready(mortal.url)
    victim, other = mortal.worker_pids
    os.kill(victim, signal.SIGSTOP)
    time.sleep(1.5)  # its health check is under way, and it cannot answer
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(set(mortal.worker_pids) - {victim}) == 2, HEALTH_TIMEOUT / 2)
    assert other in mortal.worker_pids


def test_after_a_killed_launcher_the_next_one_has_its_port_at_once(tmp_path: Path) -> None:
    """Of a launcher with one worker, and of one with two, which end with it and take their metrics along"""
    data = tmp_path / "data"
    with service(data, HOROCYCLE_FIT_WORKERS="0") as first:
        port = str(httpx.URL(first.url).port)
        httpx.post(f"{first.url}/sessions", json={"id": "a", "dimension": 2}).raise_for_status()
        first.launcher.kill()
        with service(data, workers=2, port=port, HOROCYCLE_FIT_WORKERS="0") as second:
            assert httpx.get(f"{second.url}/sessions/a").status_code == 200
            workers, folder = second.worker_pids, second.metrics_folder
            assert folder.exists()
            second.launcher.kill()
            with service(data, port=port, HOROCYCLE_FIT_WORKERS="0") as third:
                assert first.url == second.url == third.url
                assert httpx.get(f"{third.url}/sessions/a").status_code == 200
                wait_until(lambda: not any(map(alive, workers)) and not folder.exists())


def test_a_port_that_is_still_held_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the workers of a killed launcher, which take a moment to notice: this one leaves while it is waited for"""
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = held.getsockname()
        monkeypatch.setattr("service.process.serve.time.sleep", lambda _: held.close())
        with _listen(*address) as listening:
            assert listening.getsockname() == address


def test_the_banner_says_where_and_what_to_try(running: Running) -> None:
    assert httpx.get(f"{running.url}/docs").status_code == 200
    assert httpx.get(f"{running.url}/health/live").json() == {"status": "live"}


def test_a_configured_store_is_used(tmp_path: Path, running: Running) -> None:
    with service(tmp_path / "data", REDIS_URL=running.redis_url, HOROCYCLE_FIT_WORKERS="0") as other:
        httpx.post(
            f"{other.url}/sessions", json={"id": "from-afar", "dimension": 2, "reference": "origin"}
        ).raise_for_status()
        assert not (tmp_path / "data").exists()
    assert httpx.get(f"{running.url}/sessions/from-afar").status_code == 200


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = command("serve", "--port", port, "--data", str(tmp_path))
        asked = command("doctor", "--port", port, "--data", str(tmp_path))
    assert told.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in told.stderr
    assert "Traceback" not in told.stderr
    assert asked.returncode == 1
    assert f"WRONG 127.0.0.1:{port}" in asked.stdout


def test_a_data_folder_in_use_is_said(running: Running) -> None:
    told = command("serve", "--port", "0", "--data", str(running.data))
    assert told.returncode == 1
    assert f"in use by a live service, pid {running.launcher.pid}" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_setting_out_of_range_is_said(tmp_path: Path) -> None:
    told = command("serve", "--port", "99999", "--data", str(tmp_path))
    assert (told.returncode, "port: " in told.stderr, "Traceback" in told.stderr) == (2, True, False)
    told = command("serve", "--data", str(tmp_path), HOROCYCLE_WORKERS="none")
    assert (told.returncode, "workers: " in told.stderr.lower(), "Traceback" in told.stderr) == (2, True, False)


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:6379", "redis://127.0.0.1:port", "127.0.0.1:6379"])
def test_what_is_no_url_of_a_store_is_no_setting(url: str) -> None:
    with pytest.raises(ValidationError, match="no URL of a store"):
        Settings(redis_url=url)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_store_that_is_no_url_is_said_before_anything_starts(tmp_path: Path, workers: str) -> None:
    told = command("serve", "--port", "0", "--workers", workers, "--data", str(tmp_path / "data"), REDIS_URL="nowhere")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.startswith("redis_url: no URL of a store") and told.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_the_doctor_finds_nothing_wrong_here(tmp_path: Path) -> None:
    told = command("doctor", "--port", "0", "--data", str(tmp_path / "data"))
    assert told.returncode == 0, told.stdout + told.stderr
    assert "WRONG" not in told.stdout


def test_the_doctor_finds_a_store_that_does_not_answer(tmp_path: Path) -> None:
    told = command("doctor", "--port", "0", "--redis-url", f"unix://{tmp_path}/nothing.sock")
    assert told.returncode == 1
    assert "WRONG the store at" in told.stdout
