"""A running service for the hosts."""

from __future__ import annotations

from tests.conftest import asked_store, http, pytest_addoption, running

__all__ = ["asked_store", "http", "pytest_addoption", "running"]
