"""Running services, for the tests that only talk to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
import trustme

from tests.cluster import Cluster, Watched, cluster, sentinels
from tests.running import Running, service

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A client reads all the certificate authorities it trusts, some 140 in 50 ms; no client here needs more"""
    path = tmp_path_factory.mktemp("authorities") / "one.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    os.environ["SSL_CERT_FILE"] = str(path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        choices=("single", "cluster", "sentinel"),
        default="single",
        help="what the service stands on in the tests that only talk to it: its private store, or several servers",
    )


@pytest.fixture(scope="session")
def asked_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Settings of a service on the store that was asked for"""
    kind = request.config.getoption("--store")
    if kind == "single":
        yield {}
        return
    several: Callable[[Path], AbstractContextManager[Cluster | Watched]] = cluster if kind == "cluster" else sentinels
    with several(tmp_path_factory.mktemp(kind)) as found:
        yield {"REDIS_URL": found.url}


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, asked_store: dict[str, str]) -> Iterator[Running]:
    data: Path = tmp_path_factory.mktemp("service") / "data"
    with service(data, workers=2, **asked_store) as found:
        yield found


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One worker, whose limits are soon met, and a store of its own; nobody works on fits"""
    with service(
        tmp_path_factory.mktemp("small") / "data",
        HOROCYCLE_LABEL_TTL="0.4",
        HOROCYCLE_WAITING_POINTS="20",
        HOROCYCLE_HEARTBEAT="0.1",
        HOROCYCLE_EVENT_STREAMS="4",
        HOROCYCLE_FIT_WORKERS="0",
    ) as found:
        yield found


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two workers and a store that may be killed: they come back"""
    data: Path = tmp_path_factory.mktemp("mortal") / "data"
    with service(data, workers=2, HOROCYCLE_HEARTBEAT="0.2") as found:
        yield found
