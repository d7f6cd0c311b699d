"""docs/architecture.md tells the walk of one observe; here one is traced, and must be that walk."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx
import pytest
from numba.core.dispatcher import Dispatcher

import service
from service.app import create_app
from service.learners import drift, loops
from service.process.private_store import EmbeddedServer
from service.sessions import fast_json
from service.settings import Settings

ROOT = Path(service.__file__).parent.parent
WALK = (ROOT / "docs/architecture.md").read_text().split("## The walk")[1].split("\n## ")[0]
#: Compiled, or to be at the first call: machine code, of which the profiler hears too
KERNELS = {
    (f"{module.__name__.replace('.', '/')}.py", name)
    for module in (loops, drift, fast_json)
    for name, each in vars(module).items()
    if isinstance(each, Dispatcher) or hasattr(each, "__wrapped__")
}

Name = tuple[str, str]  # of the file, and in it


def told() -> list[Name]:
    """The walk as the documentation has it"""
    found: list[Name] = []
    for file, names in re.findall(r"`(service/\S+\.py)`:((?:\s+`[^`]+`)+)", WALK):
        found += [(file, name) for name in re.findall(r"`([^`]+)`", names)]
    return found


@contextmanager
def tracing() -> Iterator[dict[Name, CodeType]]:
    """Every named function of ours that is called meanwhile"""
    found: dict[Name, CodeType] = {}

    def called(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and path.is_relative_to(ROOT / "service") and not code.co_name.startswith("<"):
            name = (str(path.relative_to(ROOT)), code.co_qualname)  # not of a comprehension or a lambda
            if name not in KERNELS and code.co_name != "__init__":  # most records have theirs made by dataclass
                found.setdefault(name, code)

    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def traced(url: str) -> dict[Name, CodeType]:
    """One observe of a perceptron: one point as JSON, no key, a session that the worker knows"""
    app = create_app(Settings(redis_url=url))
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        await http.post(
            "/sessions", json={"id": "walk", "dimension": 2, "algorithm": "perceptron", "reference": [0, 0]}
        )
        for _ in range(2):
            await http.post("/sessions/walk/observe", json={"point": [0.1, 0.2], "label": -1})
        with tracing() as found:
            answer = await http.post("/sessions/walk/observe", json={"point": [0.3, -0.2], "label": 1})
        assert answer.status_code == 200 and answer.json()["session"]["observed"] == 3
    return found


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> dict[Name, CodeType]:
    with EmbeddedServer(tmp_path_factory.mktemp("walk") / "data") as server:
        return asyncio.run(traced(server.url))


def test_the_documentation_tells_the_walk_of_an_observe(walk: dict[Name, CodeType]) -> None:
    assert set(told()) == set(walk)
    assert len(told()) == len(set(told())), "a function is told twice"


def test_the_walk_is_short(walk: dict[Name, CodeType]) -> None:
    assert len(walk) <= 40
    assert len({file for file, _ in walk}) <= 10
    for name, code in walk.items():
        assert len(inspect.getsource(code).splitlines()) <= 60, name


#: One of each step: nothing is answered before it is stored
LANDMARKS = [
    ("service/api/front.py", "App.__call__"),
    ("service/api/observe.py", "observe"),
    ("service/ingest.py", "Ingest.observe"),
    ("service/api/formats.py", "read_bodies"),
    ("service/sessions/apply.py", "apply"),
    ("service/store/sessions.py", "Store.commit"),
    ("service/store/connection.py", "Connection.calls"),
    ("service/api/observe.py", "answered"),
]


def test_the_steps_come_in_the_order_they_are_told(walk: dict[Name, CodeType]) -> None:
    assert [each for each in walk if each in LANDMARKS] == LANDMARKS
    assert [each for each in told() if each in LANDMARKS] == LANDMARKS
