"""A store of its own for the tests that talk to it without a service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.process.private_store import EmbeddedServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("store") / "data") as found:
        yield found
