"""`backup FOLDER` copies the private store's data, also while the service runs; `serve --data FOLDER` goes on from it.

The append-only file only grows, so a copy of it is the store at some moment of the copying: all that was acknowledged
before is in it. A record that was cut short is dropped when it is loaded. A rewrite replaces files: it is held off.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import redis

from service.errors import LaunchError
from service.process.store_access import opened_store
from service.settings import Settings

PERCENTAGE = "auto-aof-rewrite-percentage"


def backup(settings: Settings, target: Path) -> int:
    """The exit code: 1 if there is no copy, with one sentence on stderr"""
    if settings.redis_url is not None:
        sys.stderr.write("the store at REDIS_URL is backed up by its own means; this copies a private store\n")
        return 1
    try:
        if target.exists():
            raise FileExistsError(f"{target} is there already")
        with opened_store(settings) as client:
            _copy(client, settings.data, target)
    except LaunchError as error:
        sys.stderr.write(error.detail + "\n")
    except (OSError, redis.RedisError) as error:
        sys.stderr.write(f"no backup was made: {error}\n")
    else:
        sys.stdout.write(f"{target}\n")
        return 0
    return 1


def _copy(client: redis.Redis, data: Path, target: Path) -> None:
    before: Any = client.config_get(PERCENTAGE)
    client.config_set(PERCENTAGE, 0)
    try:
        while _rewriting(client):
            time.sleep(0.05)
        target.mkdir(mode=0o700, parents=True)
        shutil.copytree(data / "appendonlydir", target / "appendonlydir")
        shutil.copy2(data / "server.json", target / "server.json")
    finally:
        client.config_set(PERCENTAGE, before[PERCENTAGE])


def _rewriting(client: redis.Redis) -> bool:
    told: Any = client.info("persistence")
    return bool(told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"])
