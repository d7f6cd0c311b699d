"""Options that the commands share, and how they end."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from clients.calls import Settings
from clients.client import URL, Client
from clients.files import typed
from clients.problems import HorocycleError

#: What a session is opened with: option → how its text is read
SETTINGS: dict[str, Callable[[str], Any]] = {
    "algorithm": str,
    "curvature": float,
    "reference": lambda text: text if text.isalpha() else json.loads(text),
    "labels": lambda text: labels(text),
    "a": float,
    "budget": float,
    "keep_points": int,
    "ttl_seconds": int,
    "name": str,
}


def parser(command: str, description: str, examples: str) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=f"horocycle {command}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--url", default=os.environ.get("HOROCYCLE_URL", URL), help="the service (%(default)s)")
    found.add_argument("--api-key", default=os.environ.get("HOROCYCLE_API_KEY"), help="or HOROCYCLE_API_KEY")
    return found


def add_settings(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("what a new session is", "left out: the service's default")
    for name, read in SETTINGS.items():
        help = {"labels": "a,b,c: two or more", "reference": "origin, or a point as [0.1,0.2]"}.get(name)
        group.add_argument(f"--{name.replace('_', '-')}", type=read, default=None, help=help)


def settings_of(given: argparse.Namespace) -> Settings:
    found: Any = {name: getattr(given, name) for name in SETTINGS if getattr(given, name) is not None}
    settings: Settings = found
    return settings


def labels(text: str) -> list[Any]:
    """a,b,c as labels: integers or booleans where all of them are, else strings"""
    return typed([part.strip() for part in text.split(",")])


def run(command: str, work: Callable[[Client], int], given: argparse.Namespace) -> int:
    """Exit codes: 0 done, 1 refused or unreachable, 130 interrupted"""
    try:
        with Client(given.url, api_key=given.api_key) as client:
            return work(client)
    except HorocycleError as error:
        sys.stderr.write(f"horocycle {command}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"horocycle {command}: interrupted\n")
        return 130
