"""The notebooks, run from the first cell to the last on small data. The repository keeps them without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.running import Running

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs/notebooks").glob("*.ipynb"))


def test_they_are_all_here() -> None:
    assert [each.stem for each in NOTEBOOKS] == ["cells", "images", "taxonomy"]


@pytest.mark.filterwarnings("ignore")  # of the kernel's own packages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(running: Running, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOROCYCLE_URL", running.url)
    monkeypatch.setenv("EPOCHS", "40")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("POINCARE_DATA", raising=False)
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output
    )
    held_out = [float(line.split(":")[1]) for line in told.splitlines() if line.startswith("held out:")]
    assert len(held_out) >= 1 and min(held_out) > 0.6, told
