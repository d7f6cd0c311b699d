"""Fits of files over HTTP: for administrators, below the places that the operator named, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.batch.classifier import Recipe, fit
from tests.fit_cases import data
from tests.problem import require_problem
from tests.running import command, service
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "points"
    folder.mkdir()
    X, indices = data("hinge", 3000)
    np.save(folder / "a.npy", np.c_[X, indices])
    np.save(folder / "wrong.npy", np.c_[X, indices + 5])
    np.save(folder / "flat.npy", np.c_[X[:, :2], indices])
    np.save(folder.parent / "secret.npy", np.c_[X, indices])
    return folder


@pytest.fixture(scope="module")
def http(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, httpx.Client]]:
    """Clients with the admin keys of two tenants"""
    store = tmp_path_factory.mktemp("keyed") / "data"
    with service(store, HOROCYCLE_KEYS="on", HOROCYCLE_FIT_DATA=str(place)) as running:
        found = {}
        for tenant in ("default", "acme"):
            key = command("keys", "add", "--tenant", tenant, "--data", str(store)).stdout.strip()
            found[tenant] = httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {key}"}, timeout=30)
            opened = found[tenant].post("/sessions", json={"id": "demo", "dimension": 3, "labels": [0, 1]})
            assert opened.status_code == 201, opened.text
        yield found
        for client in found.values():
            client.close()


def asked(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A fit that has ended"""
    answer = client.post("/sessions/demo/fits", json=fields)
    assert answer.status_code == 202, answer.text
    where = answer.headers["location"]
    wait_until(lambda: client.get(where).json()["status"] in ("done", "failed"))
    found: dict[str, Any] = client.get(where).json()
    return found


def test_an_administrator_fits_files(http: dict[str, httpx.Client], place: Path) -> None:
    url = str(place / "a*.npy")
    found = asked(http["default"], data=url, features="hemisphere", loss="squared_hinge")
    assert found["status"] == "done", found
    assert (found["data"], found["points"]) == (url, 3000)
    assert 0 <= found["certificate"]["gap"] <= 1e-6
    X, indices = data("hinge", 3000)
    one, told = fit(Recipe(features="hemisphere", loss="squared_hinge"), X, indices, 2, 1.0, lambda _: None)
    assert found["certificate"]["primal"] == pytest.approx(told["certificate"]["primal"], rel=1e-9)
    answer = (
        http["default"].post(f"/sessions/demo/predict?model={found['id']}", json={"points": X[:50].tolist()}).json()
    )
    assert answer["scores"] == pytest.approx(one.scores(X[:50]).tolist(), rel=1e-9)


def test_files_that_are_not_of_the_session_fail(http: dict[str, httpx.Client], place: Path) -> None:
    for name, slug in (("wrong.npy", "unknown-label"), ("flat.npy", "dimension-mismatch"), ("none.npy", "fit-failed")):
        found = asked(http["default"], data=str(place / name))
        assert found["status"] == "failed"
        assert found["failure"]["type"].endswith(slug), found["failure"]


def test_nothing_else_is_read(http: dict[str, httpx.Client], place: Path) -> None:
    for url in (str(place.parent / "secret.npy"), f"{place}/../secret.npy", "/etc/passwd", "http://127.0.0.1/a.npy"):
        require_problem(http["default"].post("/sessions/demo/fits", json={"data": url}), 422, "invalid-parameter")
    assert require_problem(
        http["acme"].post("/sessions/demo/fits", json={"data": str(place / "a.npy")}), 403, "scope-missing"
    )
    rows = np.zeros((2, 4)).tobytes()
    both = http["default"].post(
        "/sessions/demo/fits",
        params={"data": str(place / "a.npy")},
        content=rows,
        headers={"content-type": "application/octet-stream"},
    )
    require_problem(both, 422, "invalid-request")
