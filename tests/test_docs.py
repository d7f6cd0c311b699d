"""The documentation tells the truth: its links lead somewhere, its commands exist, every problem has its row."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.picture import FILE, picture
from service import telemetry
from service.api.problems import STATUS
from service.errors import slug

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The headings, as links name them"""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), target


@every_page
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)", page.read_text())) <= targets


def test_every_page_is_in_the_index() -> None:
    for index in (ROOT / "docs/README.md", ROOT / "docs/decisions/README.md"):
        linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", index.read_text()))
        assert linked == {page.name for page in index.parent.glob("*.md")} - {"README.md"}


def test_every_problem_has_a_row() -> None:
    rows = [line for line in (ROOT / "docs/faults.md").read_text().splitlines() if line.startswith("|")]
    told = set(re.findall(r"`([a-z-]+)`", "\n".join(rows)))
    assert {slug(kind) for kind in STATUS} <= told


@pytest.mark.parametrize("page", ["faults.md", "security.md", "operation.md"])
def test_every_test_that_is_named_exists(page: str) -> None:
    """A file, or a file, a colon and functions of it"""
    told = (ROOT / "docs" / page).read_text()
    named = re.findall(r"`(?:tests/)?((?:faults/)?test_\w+\.py)`((?::|,? `test_\w+`|\s)*)", told)
    assert named
    for file, functions in named:
        text = (ROOT / "tests" / file).read_text()
        for function in re.findall(r"`(test_\w+)`", functions):
            assert f"def {function}(" in text, f"{file}: {function}"
    assert set(re.findall(r"`(test_\w+)`", told)) == {each for _, f in named for each in re.findall(r"`(test_\w+)`", f)}


def test_every_fault_has_its_test() -> None:
    """In the table of processes and the store, and in that of what was found by attack"""
    sections = (ROOT / "docs/faults.md").read_text().split("\n## ")[1:3]
    for row in re.findall(r"^\| (?!-|what |weakness).*$", "\n".join(sections), re.MULTILINE):
        assert re.search(r"`(?:faults/)?test_\w+\.py`[^|]*\|$", row), row


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    panels = json.loads((ROOT / "docs/grafana.json").read_text())["panels"]
    shown = set(re.findall(r"horocycle_\w+", " ".join(target["expr"] for each in panels for target in each["targets"])))
    suffix = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    assert shown == {name + suffix[metric.kind.type] for name, metric in telemetry.METRICS.items()}


def test_the_picture_of_the_readme_is_what_the_code_draws() -> None:
    assert FILE.read_text() == picture()


def test_no_test_imports_helpers_out_of_a_test_file() -> None:
    for path in ROOT.glob("tests/**/*.py"):
        assert not re.findall(r"^\s*(?:from|import) tests\.(?:faults\.)?test_", path.read_text(), re.MULTILINE), path
