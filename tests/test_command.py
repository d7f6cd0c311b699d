"""`horocycle`: its commands against a running service; the doctor without one."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from clients import Client
from clients.commands import fit, stream, watch
from clients.commands import open as opening
from clients.files import read
from horocycle import cli, doctor
from service.settings import Settings
from tests.opening import opened
from tests.running import Running
from tests.strategies import Array, points


@pytest.fixture
def url(running: Running, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOROCYCLE_URL", running.url)
    return running.url


def table(n: int = 3000, seed: int = 1) -> tuple[Array, Array]:
    X = points(np.random.default_rng(seed), n, 2, 3.0)
    return X, (X[:, 0] > 0.3 * X[:, 1]).astype(float)


def told(text: str) -> dict[str, str]:
    """What the command printed, by its first word"""
    return dict(re.findall(r"^(\w+(?: out)?) {2,}(.+)$", text, re.MULTILINE))


def test_a_file_is_streamed_and_what_was_held_out_is_predicted(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = table()
    np.save(tmp_path / "a.npy", np.column_stack([X, y]))
    assert stream.main([str(tmp_path / "a.npy"), "--holdout", "0.2", "--passes", "2", "--session", "cmd-a"]) == 0
    said = told(capsys.readouterr().out)
    assert said["learned"].startswith("4,800 points") and "of 600" in said["held out"]
    assert float(said["held out"].split()[0]) > 0.85
    with Client(url) as client:
        info = client.sessions.get("cmd-a").info
    assert info.observed == 4800 and info.labels == (0, 1)


def test_a_stream_that_was_cut_goes_on_where_it_stopped(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = table(2000)
    np.savez(tmp_path / "a.npz", X=X, y=y)
    file, same = str(tmp_path / "a.npz"), ["--shuffle", "7", "--passes", "2"]
    sent, _ = stream.sequence(read(file), 7, 2, 0.0)
    with Client(url) as client:
        whole = client.sessions.open(dimension=2, labels=[0, 1], id="cmd-whole")
        cut = client.sessions.open(dimension=2, labels=[0, 1], id="cmd-cut")
        for start in (0, 2000):
            whole.observe(*sent.part(start, 2000))
        cut.observe(*sent.part(0, 2000))
        cut.observe(*sent.part(2000, 345))
        assert stream.main([file, "--session", "cmd-cut", "--resume", *same]) == 0
        assert "1,655 points" in capsys.readouterr().out
        assert cut.refresh().observed == 4000
        assert cut.model().document == whole.model().document
        assert stream.main([file, "--session", "cmd-cut", "--resume", "--shuffle", "8", "--passes", "3"]) == 1
        assert "has learned other points" in capsys.readouterr().err
        assert stream.main([file, "--session", "cmd-cut", "--resume"]) == 1
        assert "not this file" in capsys.readouterr().err


def test_sorted_labels_are_warned_of(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = table(500)
    order = np.argsort(y)
    np.savez(tmp_path / "a.npz", x_train=X[order], y_train=y[order], x_test=X, y_test=y)
    assert stream.main([str(tmp_path / "a.npz")]) == 0
    said = capsys.readouterr()
    assert "come sorted" in said.err and "of 500" in told(said.out)["held out"]
    assert stream.main([str(tmp_path / "a.npz"), "--shuffle"]) == 0
    assert "sorted" not in capsys.readouterr().err


def test_stdin(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(1500)
    rows = "".join(f"{a},{b},{'yes' if label else 'no'}\n" for (a, b), label in zip(X.tolist(), y, strict=True))
    monkeypatch.setattr("sys.stdin", io.StringIO("a,b,label\n" + rows))
    assert stream.main(["-", "--session", "cmd-stdin"]) == 0
    assert "1,500 points" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert stream.main(["-"]) == 1 and "stdin is empty" in capsys.readouterr().err


def test_coordinates_and_clipping(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = table(200)
    np.savez(tmp_path / "a.npz", X=3 * X, y=y)
    assert stream.main([str(tmp_path / "a.npz")]) == 1
    assert "outside=clip" in capsys.readouterr().err
    assert stream.main([str(tmp_path / "a.npz"), "--outside", "clip"]) == 0
    assert "clipped" in told(capsys.readouterr().out)
    assert stream.main([str(tmp_path / "a.npz"), "--coordinates", "euclidean", "--rate", "2000"]) == 0


def test_open_fit_promote_watch(url: str, http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert opening.main(["cmd-fit", "--dimension", "2", "--labels", "false,true", "--reference", "origin"]) == 0
    assert capsys.readouterr().out == "cmd-fit\n"
    X, y = table(300)
    body = {"points": X.tolist(), "labels": [bool(each) for each in y]}
    assert http.post("/sessions/cmd-fit/observe", json=body).status_code == 200
    assert fit.main(["cmd-fit", "--reference", "session", "--features", "lift", "--promote"]) == 0
    said = capsys.readouterr().out
    assert "training accuracy" in said and "promoted: version" in said
    assert watch.main(["cmd-fit", "--events", "1"]) == 0
    assert "observed" in capsys.readouterr().out
    assert watch.main(["no-such-session"]) == 1 and "no-such-session" in capsys.readouterr().err


def test_a_band_shrinks_and_covers() -> None:
    """Seeded: of 200 fair streams none leaves the band in 2,000 steps more often than α allows"""
    assert stream.band(10_000) < 0.03 < stream.band(100)
    rng = np.random.default_rng(0)
    n = np.arange(1, 2001)
    widths = np.array([stream.band(int(each)) for each in n])
    means = np.cumsum(rng.random((200, 2000)) < 0.5, axis=1) / n
    assert ((np.abs(means - 0.5) > widths).any(axis=1)).mean() <= stream.ALPHA
    low, high = stream.wilson(80, 100)
    assert low < 0.8 < high


def test_the_command_is_installed_and_says_what_there_is() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("horocycle")), *arguments], capture_output=True, text=True
        )

    shown, wrong = run("--help").stdout, run("strem")
    assert all(name in shown for name in cli.COMMANDS)
    assert wrong.returncode == 2 and "known are serve" in wrong.stderr
    assert "examples:" in run("stream", "--help").stdout


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli.NEEDS, "service", ("no_such_package",))
    assert cli.main(["serve"]) == 1
    assert "pip install 'horocycle[serve]'" in capsys.readouterr().err


def test_the_doctor_needs_the_standard_library_alone() -> None:
    code = "import sys; import horocycle.doctor as d; d.main(['--help'])"
    code = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert (
        "horocycle.doctor" in loaded and "numpy" not in loaded and "httpx" not in loaded and "'service'" not in loaded
    )


def test_the_doctor_knows_a_service_from_a_taken_port(running: Running) -> None:
    host, number = running.url.removeprefix("http://").split(":")
    assert doctor.port(host, int(number))[0] is True
    with socket.create_server(("127.0.0.1", 0)) as taken:
        state, line = doctor.port("127.0.0.1", taken.getsockname()[1])
        taken.close()
    assert state is None and "another program" in line
    assert doctor.port("127.0.0.1", 0)[0] is False


def test_the_doctor_names_unknown_variables() -> None:
    assert doctor.settings() == list(Settings.model_fields)
    [(good, line)] = doctor.variables({"HOROCYCLE_WORKER": "2", "HOROCYCLE_PORT": "1", "PATH": ""})
    assert not good and "did you mean HOROCYCLE_WORKERS" in line
    assert all(good for good, _ in doctor.packages())


def test_the_doctor_of_this_environment_is_content(tmp_path: Path) -> None:
    unset = {k: v for k, v in os.environ.items() if k != "REDIS_URL" and not k.startswith("HOROCYCLE_")}
    command = [sys.executable, "-m", "horocycle", "doctor", "--port", "0", "--data", str(tmp_path / "data")]
    found = subprocess.run(command, capture_output=True, text=True, env=unset)
    assert found.returncode == 0 and "WRONG" not in found.stdout, found.stdout + found.stderr


def test_a_session_of_another_dimension_is_named(
    tmp_path: Path, url: str, http: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = table(50)
    np.savez(tmp_path / "a.npz", X=X, y=y)
    sid = opened(http, {"dimension": 3, "labels": [0, 1]})
    assert stream.main([str(tmp_path / "a.npz"), "--session", sid]) == 1
    assert "2 coordinates, not 3" in capsys.readouterr().err
