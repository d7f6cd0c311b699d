"""Horocycle: online classification in the Poincaré ball."""

from __future__ import annotations

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("horocycle")  # of the installed distribution; written in pyproject.toml only
