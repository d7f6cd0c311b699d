"""`make demo`: a service and agents in one command, and nothing left of it afterwards."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from clients import demo
from clients.scenarios import load
from clients.simulate import Plan

PATIENCE = 120


def left_behind(folder: Path) -> list[str]:
    """The command lines of processes that have to do with a folder"""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it has just ended
            continue
        if os.fsencode(folder) in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


def environment(folder: Path) -> dict[str, str]:
    """With a store of somebody's that the demo must not touch"""
    return {**os.environ, "TMPDIR": str(folder), "REDIS_URL": "redis://127.0.0.1:9/0"}


def test_on_a_terminal_it_plays_and_stays_until_ctrl_c(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "clients.demo"], stdout=theirs, stderr=theirs, stdin=theirs, env=environment(tmp_path)
    )
    os.close(theirs)
    try:
        shown, deadline = "", time.monotonic() + PATIENCE
        while "Ctrl-C ends it" not in shown:
            assert time.monotonic() < deadline and process.poll() is None, shown
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 65536).decode()
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
        mistakes = [line.split()[1:] for line in text.splitlines() if line.startswith("mistakes ")]
        assert mistakes[0] == ["40", "1"]  # A, B, C
        assert int(mistakes[1][0]) > 10 * int(mistakes[1][1]) > 0
        pictures = re.findall(r"http://\S+/disk\.svg", text)
        assert len(pictures) == 4
        for address in pictures:
            assert httpx.get(address).text.startswith("<svg")
        assert left_behind(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        while select.select([ours], [], [], 0)[0]:
            try:
                shown += os.read(ours, 65536).decode()
            except OSError:  # nobody has the other end any more
                break
        assert "Traceback" not in shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "clients.demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    try:
        assert process.stdout is not None
        while "abc-strategic" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(0.3)  # it is among the 200 now
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGINT)  # somebody is impatient
            time.sleep(0.002)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "demo: interrupted"
    assert "Traceback" not in err
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_once_it_ends_by_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "plans", lambda url: [Plan(url, load("abc"), 3, demo.COMPARED)])
    assert demo.main(["--once"]) == 0
    shown = capsys.readouterr()
    assert "3 agents, budget 1, 3 rounds" in shown.out
    assert shown.err == ""


def test_a_service_that_does_not_start_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOROCYCLE_WORKERS", "none")
    assert demo.main([]) == 1
    assert "demo: the service did not start" in capsys.readouterr().err
