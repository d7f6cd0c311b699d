"""A running service for the hosts."""

from __future__ import annotations

from tests.conftest import http, running

__all__ = ["http", "running"]
