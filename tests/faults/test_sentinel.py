"""A master, its replica and three sentinels: when the master dies the service goes on with the replica."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import httpx

from tests.cluster import sentinels
from tests.running import command, service
from tests.waiting import retry, wait_until


def test_the_service_goes_on_with_the_replica_when_the_master_dies(tmp_path: Path) -> None:
    with (
        sentinels(tmp_path / "servers") as servers,
        service(tmp_path / "data", REDIS_URL=servers.url, HOROCYCLE_FIT_WORKERS="0") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        http.post("/sessions", json={"id": "one", "dimension": 2, "reference": "origin"}).raise_for_status()

        def observe(number: int) -> httpx.Response:
            body = {"point": [0.1, 0.2], "label": 1}
            return http.post("/sessions/one/observe", json=body, headers={"Idempotency-Key": str(number)})

        answers = [retry(partial(observe, number), 200) for number in range(20)]
        master = servers.master
        [replica] = [each for each in servers.servers if each is not master]
        wait_until(lambda: master.run("ROLE")[1] == replica.run("ROLE")[4])
        assert command("doctor", "--port", "0", REDIS_URL=servers.url).stdout.count("ok ") >= 3
        servers.set("quorum", 4)  # as if they did not agree that it is gone, however long the next lines take
        master.kill()
        assert observe(20).status_code in (503, 504)
        assert http.get("/health/ready").status_code == 503
        servers.set("down-after-milliseconds", 500)
        servers.set("quorum", 2)
        answers += [retry(partial(observe, number), 200, 90) for number in range(20, 30)]
        wait_until(lambda: servers.master is replica)  # that sentinel may not have led the election
        assert [each.json()["session"]["observed"] for each in answers] == list(range(1, 31))
        epochs = [int(each.headers["Horocycle-Epoch"]) for each in answers]
        assert epochs == sorted(epochs) and epochs[0] < epochs[-1]
        retry(partial(http.get, "/health/ready"), 200)
        assert retry(partial(observe, 7), 200).headers["Idempotency-Replayed"] == "true"
        assert [each["id"] for each in http.get("/sessions").json()["sessions"]] == ["one"]
