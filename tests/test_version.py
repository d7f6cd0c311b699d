"""The version is written once, in pyproject.toml; what else is packed beside the code."""

from __future__ import annotations

import tomllib
from pathlib import Path

import service

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_that_of_the_project() -> None:
    assert service.__version__ == PROJECT["project"]["version"], "installed from another version: run make setup"


def test_every_package_and_its_data_are_packed() -> None:
    """Every folder with an __init__.py is listed"""
    packages = {
        str(path.parent.relative_to(ROOT)).replace("/", ".") for path in (ROOT / "service").rglob("__init__.py")
    }
    assert packages <= set(PROJECT["tool"]["setuptools"]["packages"])
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["service"]
    assert (ROOT / "service/py.typed").exists()
