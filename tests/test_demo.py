"""`make demo` shows a stream being learned, and ends by itself."""

from __future__ import annotations

import subprocess
import sys


def test_the_demo_streams_and_ends() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "clients.demo"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "3000 points" in shown.stdout
    assert "'predictions': [1]" in shown.stdout
    assert shown.stderr == ""
