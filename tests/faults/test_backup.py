"""A backup that is made while points are learned has all that was acknowledged before it began."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import redis

from tests.opening import RAW
from tests.running import command, service
from tests.waiting import wait_until

BODY = b"".join([bytes(24)] * 50)


def test_a_backup_of_a_running_service_is_restored(tmp_path: Path) -> None:
    ending, copy = threading.Event(), tmp_path / "copies" / "one"

    def learn(url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not ending.wait(0.01):  # not at full speed: what is backed up is read again below
                http.post("/sessions/a/observe?reply=summary", content=BODY, headers=RAW).raise_for_status()

    with service(tmp_path / "data", HOROCYCLE_FIT_WORKERS="0") as found, ExitStack() as stack:
        http = stack.enter_context(httpx.Client(base_url=found.url, timeout=60))
        http.post("/sessions", json={"id": "a", "dimension": 2}).raise_for_status()
        learning = threading.Thread(target=learn, args=[found.url])
        learning.start()
        try:
            wait_until(lambda: http.get("/sessions/a").json()["observed"] >= 500)
            before = http.get("/sessions/a").json()["observed"]
            told = command("backup", str(copy), "--data", str(found.data))
        finally:
            ending.set()
            learning.join()
        again = command("backup", str(copy), "--data", str(found.data))
        with redis.Redis.from_url(found.redis_url) as client:
            assert client.config_get("auto-aof-rewrite-percentage") == {"auto-aof-rewrite-percentage": "100"}
    assert (told.returncode, told.stdout) == (0, f"{copy}\n"), told.stderr
    assert again.returncode == 1 and "is there already" in again.stderr
    assert not [path for path in (copy, *copy.rglob("*")) if path.is_dir() and path.stat().st_mode & 0o077]
    with service(copy, HOROCYCLE_FIT_WORKERS="0") as restored, httpx.Client(base_url=restored.url, timeout=60) as http:
        observed = http.get("/sessions/a").json()["observed"]
        assert observed >= before and observed % 50 == 0
        assert http.post("/sessions/a/observe?reply=summary", content=BODY, headers=RAW).status_code == 200
