"""Loops are loaded at their first call if Numba's cache is known to hold them all, and else compiled at import."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llvmlite import binding

from service.learners import cached, loops

LEARNERS = sorted(cached.SOURCES.glob("*.py"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a cache that is complete, and noted to be"""
    monkeypatch.setattr(cached, "SOURCES", tmp_path / "sources")
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "loops.py").touch()
    for name in ("loops.f-1.py311.nbi", "loops.f-1.py311.1.nbc"):
        (tmp_path / name).touch()
    assert not cached.is_complete(tmp_path)
    cached.note(tmp_path)
    assert cached.is_complete(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "loops.f-1.py311.1.nbc").unlink(),
        lambda folder: (folder / cached.NOTE).unlink(),
        lambda folder: (folder / cached.NOTE).write_text('{"of": '),
        lambda folder: (folder / cached.NOTE).write_text("[]"),
        lambda folder: (folder / "sources" / "loops.py").write_text("x = 1"),
        lambda folder: os.utime(folder / "sources" / "loops.py", (1, 1)),
        lambda folder: (folder / "sources" / "new.py").touch(),
    ],
)
def test_what_has_changed_is_not_complete(folder: Path, change: Callable[[Path], object]) -> None:
    change(folder)
    assert not cached.is_complete(folder)
    cached.note(folder)
    assert cached.is_complete(folder)


def test_it_is_complete_for_one_processor_and_its_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "another")
    assert not cached.is_complete(folder)
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert not cached.is_complete(folder)
    cached.note(folder)
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "a third")
    assert cached.is_complete(folder), "what is compiled for any processor is good for each"


def test_a_cache_that_cannot_be_noted_is_none(folder: Path) -> None:
    cached.note(folder / "missing")
    assert not cached.is_complete(folder / "missing")


def _twice(x: int) -> int:
    raise AssertionError("not what is called")


def test_the_first_call_makes_the_loop_and_puts_it_into_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(lambda x: 2 * x)
        return made[-1]

    first = loops._at_first_call(_twice, make)
    monkeypatch.setitem(globals(), "_twice", first)
    assert made == []
    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(first, range(100))] == [*range(0, 200, 2)]
    assert [_twice] == made
    assert first(3) == 6, "who has kept the first gets the loop"
    assert first.__name__ == "_twice"


def test_the_first_call_leaves_another_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    first = loops._at_first_call(_twice, lambda: lambda x: 2 * x)
    monkeypatch.setitem(globals(), "_twice", lambda x: first(x) + 1)
    assert _twice(1) == _twice(1) == 3


def test_a_process_that_finds_them_all_loads_a_loop_when_it_is_called() -> None:
    """The import above has noted them, if they were not"""
    code = """
import numpy as np
from service.learners import gaussian, loops
print(loops.COMPLETE, type(loops.lifted_ratios).__name__, type(gaussian._radial).__name__)
X, p, w = np.array([[0.5, 0.0]]), np.zeros(2), np.array([1.0, 0.0])
print(loops.lifted_ratios(X, p, w)[0], type(loops.lifted_ratios).__name__, loops.lifted_ratios.stats.cache_misses)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["True function function", f"{2 * 0.5 / 0.75} CPUDispatcher Counter()"]


def _loops(path: Path) -> dict[str, tuple[bool, ast.FunctionDef]]:
    """Every compiled function of a file, and whether it has a signature"""
    found = {}
    for each in ast.parse(path.read_text()).body:
        for decorator in each.decorator_list if isinstance(each, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "compiled":
                assert isinstance(each, ast.FunctionDef)
                found[each.name] = bool(decorator.args), each
    return found


@pytest.mark.parametrize("path", [path for path in LEARNERS if _loops(path)], ids=lambda path: path.stem)
def test_no_loop_calls_one_that_may_not_be_loaded(path: Path) -> None:
    found = _loops(path)
    for name, (_, each) in found.items():
        named = {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
        assert not [other for other in named & found.keys() if found[other][0]], name


def test_to_import_the_learners_is_to_compile_every_loop() -> None:
    code = "import sys, service.learners; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {f"service.learners.{path.stem}" for path in LEARNERS if _loops(path)} <= set(loaded)
