"""Every example of the gallery runs, and the gallery's page names them all."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.running import Running

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    running: Running, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), running.url])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_the_page_names_them_all() -> None:
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) >= 5
    assert all(f"`python examples/{path.name}`" in page for path in EXAMPLES)
