"""The README tells the truth: its commands work when pasted, its tables are the code's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.running import Running

README = (Path(__file__).parent.parent / "README.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading"""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def test_the_curl_lines_work_when_pasted(http: httpx.Client) -> None:
    lines = re.findall(r"^curl .*$", README, re.MULTILINE)
    assert len(lines) == 9
    for line in lines:
        _, address, *rest = shlex.split(line)
        path = address.removeprefix("http://127.0.0.1:8000")
        assert rest[:1] in ([], ["--json"])
        if rest:
            answer = http.post(path, content=rest[1], headers={"content-type": "application/json"})
        else:
            answer = http.get(path)
        assert answer.status_code in (200, 201, 202), (line, answer.text)


def test_the_python_lines_work(capsys: pytest.CaptureFixture[str], running: Running) -> None:
    blocks = [part.split("```")[0] for part in README.split("```python\n")[1:]]
    assert len(blocks) == 2
    for code in blocks:
        exec(compile(code.replace("http://127.0.0.1:8000", running.url), "README.md", "exec"), {})
    told = capsys.readouterr().out
    assert "Certificate(updates=1" in told
    assert "[1]" in told


def test_the_routes_are_all_listed() -> None:
    document = create_app(Settings(redis_url="unix:///nowhere")).openapi()
    served = {f"{verb.upper()} {path}" for path, verbs in document["paths"].items() for verb in verbs}
    assert {row[0] for row in table("Routes")} == served


def test_the_settings_are_all_listed() -> None:
    assert table("Settings") == [
        [name, str(field.default), field.description] for name, field in Settings.model_fields.items()
    ]


def test_every_file_on_the_map_is_there() -> None:
    root = Path(__file__).parent.parent
    for path in re.findall(r"(?:service|clients|tests|benchmarks)/\S*", README.split("## Map")[1].split("```")[1]):
        assert (root / path).exists(), path
