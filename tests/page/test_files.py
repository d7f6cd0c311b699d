"""What is served for the page: static files, a strict policy, nothing inline or from elsewhere. Without a browser."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import httpx
import pytest

from service.api.page import FILES
from service.app import create_app
from service.settings import Settings
from tests.running import Running

ROOT = Path(__file__).parent.parent.parent
PAGES = ["/", "/sessions/any/live", "/problems", "/problems/stale-model"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_nothing_inline_and_nothing_from_elsewhere(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", answer.text)
    for address in re.findall(r"(?:src|href)=\"([^\"]+)\"", answer.text):
        assert address.startswith("/") and not address.startswith("//")
        assert http.get(address).status_code == 200, address


def test_no_script_or_style_names_another_host() -> None:
    for name, content in FILES.items():
        found = re.findall(r"https?://[\w.:]+", content.decode())
        assert set(found) <= {"http://www.w3.org", "http://127.0.0.1:8000"}, name
        assert "innerHTML" not in content.decode() and "eval(" not in content.decode(), name


def test_files_are_asked_for_once(http: httpx.Client) -> None:
    for name in FILES:
        if not name.endswith(".html"):
            first = http.get(f"/page/{name}")
            assert first.status_code == 200
            again = http.get(f"/page/{name}", headers={"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
    assert http.get("/page/live.html").status_code == http.get("/page/..%2Fapp.py").status_code == 404


def test_the_wheel_has_the_page() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "service.page" in setup["packages"]
    kept = setup["package-data"]["service.page"]
    for path in (ROOT / "service/page").iterdir():
        if path.suffix not in ("", ".py"):
            assert any(path.match(each) for each in kept), path


def test_a_demo_is_bounded_and_can_be_switched_off(http: httpx.Client) -> None:
    kinds = http.get("/demo").json()["demos"]
    assert {"agents", "taxonomy", "drift"} == {each["kind"] for each in kinds}
    assert all(each["points"] <= 5000 for each in kinds)
    assert "/demo" not in create_app(Settings(redis_url="unix:///nowhere", demo=False)).openapi()["paths"]


def test_only_a_few_demos_run_at_a_time(small: Running) -> None:
    with httpx.Client(base_url=small.url, timeout=30) as http:
        answers = [http.post("/demo", json={"kind": "taxonomy"}) for _ in range(5)]
        assert [each.status_code for each in answers] == [201] * 4 + [429]
        assert answers[4].json()["type"] == "/problems/rate-limited"
        for each in answers[:4]:
            assert http.delete(each.headers["location"]).status_code == 204
