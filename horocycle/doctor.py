"""horocycle doctor: what is wrong with this environment, and how to mend it. The standard library alone.

First what can be seen without importing anything: Python, packages, variables, the port. If those are well and no
service runs here yet, `python -m service doctor` goes on with the store.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

OLDEST = (3, 11)
PATIENCE = 3.0
Check = tuple[bool, str]

EXAMPLES = """examples:
  horocycle doctor                      before the first `horocycle serve`
  horocycle doctor --port 9000          is that port free, or a service?
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="horocycle doctor",
        description="Say what is wrong with this environment, and how to mend it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default=os.environ.get("HOROCYCLE_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=os.environ.get("HOROCYCLE_PORT", "8000"))
    parser.add_argument("--data", default=None, help="the folder of the private store")
    given = parser.parse_args(argv)
    well = True
    for good, line in [*packages(), *variables(os.environ)]:
        well &= _told(good, line)
    running, line = port(given.host, given.port)
    well &= _told(running is not None, line)
    if well and not running and importlib.util.find_spec("numba") is not None:
        data = [] if given.data is None else ["--data", given.data]
        where = ["--host", given.host, "--port", str(given.port)]
        well &= subprocess.run([sys.executable, "-m", "service", "doctor", *where, *data]).returncode == 0
    return 0 if well else 1


def _told(good: bool, line: str) -> bool:
    sys.stdout.write(f"{'ok   ' if good else 'WRONG'} {line}\n")
    sys.stdout.flush()
    return good


def packages() -> Iterator[Check]:
    """Python, what the client needs, what the service needs"""
    version = ".".join(map(str, sys.version_info[:3]))
    yield sys.version_info >= OLDEST, f"Python {version}; 3.11 or newer is needed"
    for part, names, remedy in (
        ("the client", ("httpx", "numpy", "orjson", "rich"), "pip install horocycle"),
        ("the service", ("fastapi", "numba", "redis", "uvicorn"), "pip install 'horocycle[serve]'"),
    ):
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        yield not missing, f"{part} lacks {', '.join(missing)}: {remedy}" if missing else f"{part} is installed"


def variables(environment: Mapping[str, str]) -> Iterator[Check]:
    """HOROCYCLE_… variables that nobody reads: mostly misspelt ones"""
    known = {f"HOROCYCLE_{name.upper()}" for name in settings()} | {"HOROCYCLE_URL", "HOROCYCLE_API_KEY"}
    for name in sorted(environment):
        if name.startswith("HOROCYCLE_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            yield False, f"{name} is not a setting{f'; did you mean {near[0]}?' if near else ''}"


def settings() -> list[str]:
    """The names of the settings, read from the source: importing it would need its packages"""
    spec = importlib.util.find_spec("service")
    if spec is None or spec.origin is None:
        return []
    tree = ast.parse(Path(spec.origin).with_name("settings.py").read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    return [
        node.target.id for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


def port(host: str, number: int) -> tuple[bool | None, str]:
    """Whether a service runs there already; None: something else does, or it cannot be listened on"""
    where = f"{host}:{number}"
    try:
        with socket.create_server((host, number)):
            return False, f"{where} is free"
    except OSError as error:
        reason = error.strerror or str(error)
    connection = http.client.HTTPConnection(host, number, timeout=PATIENCE)
    try:
        connection.request("GET", "/health/live", headers={"Host": f"localhost:{number}"})
        answer = connection.getresponse()
        if answer.status == 200 and json.loads(answer.read(1000)) == {"status": "live"}:
            return True, f"a service runs on http://{where} already"
    except (OSError, http.client.HTTPException, ValueError):
        pass
    finally:
        connection.close()
    return None, f"{where} is taken by another program ({reason}): try --port"
