"""The wheel, in an empty environment outside the repository: the client alone, then the service."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: object, folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HOROCYCLE_", "PYTHON"))}
    done = subprocess.run([*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def interpreter(python: str) -> str | None:
    """One that runs: a version manager puts a name on PATH for versions that are not chosen, too"""
    if python == f"python3.{sys.version_info[1]}":
        return sys.executable
    found = shutil.which(python)
    return found if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0 else None


@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_the_wheel_is_the_client_and_with_its_extra_the_service(tmp_path: Path, python: str) -> None:
    if (found := interpreter(python)) is None:
        pytest.skip(f"{python} is not on this machine")
    source = shutil.copytree(
        ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(".*", "build", "dist", "site", "*.egg-info")
    )
    run(found, "-m", "venv", "empty", folder=tmp_path)
    pip = [tmp_path / "empty/bin/pip", "install", "-qq", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    run(tmp_path / "empty/bin/pip", "wheel", "-qq", "--no-deps", "--wheel-dir", tmp_path, source, folder=tmp_path)
    shutil.rmtree(source)
    [wheel] = tmp_path.glob("*.whl")
    run(*pip, wheel, folder=tmp_path)
    horocycle, own = tmp_path / "empty/bin/horocycle", tmp_path / "empty/bin/python"
    assert "stream" in run(horocycle, "--help", folder=tmp_path)
    run(own, "-c", "from clients import Client; import clients.embeddings", folder=tmp_path)
    told = subprocess.run([horocycle, "serve"], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 1 and "horocycle[serve]" in told.stderr
    run(*pip, f"{wheel}[serve]", folder=tmp_path)
    assert "WRONG" not in run(horocycle, "doctor", "--port", "0", folder=tmp_path)
