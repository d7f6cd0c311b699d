"""docs/security.md: every risk has a rule and a test that is there; the service fetches nothing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
RISKS = re.findall(r"^\| (API\d+) .*?\| (.*?) \| (.*?) \|$", (ROOT / "docs/security.md").read_text(), re.MULTILINE)


def test_every_risk_has_a_rule_and_a_test_that_is_there() -> None:
    assert [risk for risk, _, _ in RISKS] == [f"API{i}" for i in range(1, 11)]
    for risk, rule, tests in RISKS:
        files = re.findall(r"`([\w/]+\.py)`", tests)
        assert rule and files, risk
        for file in files:
            assert "def test_" in (ROOT / "tests" / file).read_text(), f"{risk}: {file}"


def test_the_service_fetches_nothing() -> None:
    """No client of HTTP is imported by what answers requests: there is nothing to be sent to an address of a caller"""
    clients = re.compile(
        r"^\s*(?:import|from) (?:httpx|requests|urllib\.request|urllib3|aiohttp|http\.client)\b", re.MULTILINE
    )
    found = [path for path in (ROOT / "service").rglob("*.py") if clients.search(path.read_text())]
    assert found == []
