"""Clocks that jump. A worker's wall clock is moved while it runs: a `sitecustomize` adds what a file says to it. The
store's clock cannot be set; that it went back is what its stamps in the future mean."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import redis

from service.errors import RateLimited
from service.process.private_store import EmbeddedServer
from service.store import fit_queue
from service.store.api_keys import ApiKey, ApiKeys
from service.store.connection import Connection
from service.store.fit_queue import FitQueue
from service.store.keys import fits_key, quota_key
from tests.faults.stream import Stream, assert_exactly_once, open_session, stored, stream_through
from tests.running import Running, service
from tests.storing import storing
from tests.waiting import wait_until

HOUR = 3600
#: A fit worker may be told another time than the workers that serve.
SHIFT = """
import json, sys, time
real, role = time.time, "fits" if "service.fits.worker" in sys.orig_argv else "workers"
def shifted():
    with open({path!r}) as file:
        return real() + json.load(file)[role]
time.time = shifted
"""


class Clocks:
    def __init__(self, folder: Path) -> None:
        self._path, self.folder = folder / "clocks", folder
        self.set()
        (folder / "sitecustomize.py").write_text(SHIFT.format(path=str(self._path)))

    def set(self, workers: int = 0, fits: int = 0) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"workers": workers, "fits": fits}))
        new.rename(self._path)


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Clocks:
    return Clocks(tmp_path_factory.mktemp("clocks"))


@pytest.fixture(scope="module")
def jumping(clocks: Clocks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    where = tmp_path_factory.mktemp("jumping") / "data"
    with service(where, workers=2, PYTHONPATH=str(clocks.folder)) as found:
        yield found


def test_every_point_is_learned_once_while_the_clock_jumps(jumping: Running, clocks: Clocks) -> None:
    stream = Stream(20261118, points=1_000, clients=8, pause=0.01)
    open_session(jumping.url, "second_order")
    jumps = (HOUR, -HOUR, 10**9, 0)
    stream_through(stream, jumping, [partial(clocks.set, workers=each) for each in jumps])
    assert_exactly_once(stream.requests, stored(jumping))


@pytest.mark.parametrize(("workers", "fits"), [(HOUR, 0), (0, HOUR), (-HOUR, 0)], ids=["ahead", "behind", "back"])
def test_fits_forks_and_late_labels_are_not_put_off_by_a_wrong_clock(
    jumping: Running, clocks: Clocks, workers: int, fits: int
) -> None:
    """Who asks for a fit and who works on it may be machines with clocks an hour apart"""
    clocks.set(workers, fits)
    began = time.monotonic()
    with httpx.Client(base_url=jumping.url, timeout=30) as http:
        sid = http.post("/sessions", json={"dimension": 2, "ttl_seconds": 600}).json()["id"]
        points = {"points": [[0.1 * i, 0.2] for i in range(-4, 4)], "labels": [-1, 1] * 4}
        assert http.post(f"/sessions/{sid}/observe", json=points).status_code == 200
        assert http.post(f"/sessions/{sid}/predict", json={"point": [0.1, 0.1], "id": "a"}).status_code == 200
        clocks.set(-workers, fits)
        told = http.post(f"/sessions/{sid}/labels", json={"id": "a", "label": 1}).json()
        assert (told["ids"], told["session"]["observed"]) == (["a"], 9)
        clocks.set(workers, fits)
        fit = http.post(f"/sessions/{sid}/fits", json={}).headers["location"]
        fork = http.post("/sessions", json={"fork": {"session": sid, "keep_points": 50}}).headers["location"]
        wait_until(lambda: http.get(fit).json()["status"] == "done")
        wait_until(lambda: http.get(fork).json()["status"] == "live")
        assert http.get(fork).json()["observed"] == 9
    clocks.set()
    assert time.monotonic() - began < HOUR / 2  # not once the clocks agree again


def test_rates_are_not_used_up_by_a_store_clock_that_goes_back(server: EmbeddedServer) -> None:
    key = ApiKey("clocked", "", limits={"requests": 5})

    async def charged() -> None:
        connection = Connection(server.url)
        try:
            keys = ApiKeys(connection)
            await keys.charge(key, {"requests": 1})
            with redis.Redis.from_url(server.url) as client:  # as it is seen an hour earlier
                for name, value in client.hgetall(quota_key(key.id)).items():
                    client.hset(quota_key(key.id), name, int(value) + HOUR * 10**6)
            assert await keys.charge(key, {"requests": 1}) == {"requests": 3}
            with pytest.raises(RateLimited):
                for _ in range(50):
                    await keys.charge(key, {"requests": 1})
        finally:
            await connection.close()

    asyncio.run(charged())


def test_a_lease_does_not_outlast_a_store_clock_that_goes_back(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit whose worker died is taken up a lease later, not an hour"""
    monkeypatch.setattr(fit_queue, "LEASE", 200)

    async def claimed() -> None:
        async with storing(server.url) as parts:
            sid = (await parts.opened()).spec.id
            queue: FitQueue = parts.fits
            await queue.submit(sid, "fit", b"body", {"asked": {}}, b"", ttl=0)
            assert await queue.claim() is not None
            with redis.Redis.from_url(server.url) as client:
                lease = int(client.hget(fits_key(sid), "fit:lease") or 0)
                client.hset(fits_key(sid), "fit:lease", lease + HOUR * 1000)
            deadline = time.monotonic() + 30
            while (job := await queue.claim()) is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            assert (job.session, job.fit) == (sid, "fit")
            await queue.cancel(sid, "fit")

    asyncio.run(claimed())
