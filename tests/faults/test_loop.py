"""The worst body of every route: the event loop never works for 100 ms at a stretch on anything.

Measured in CPU time of the loop's thread between two of its turns, which other programs and other threads do not add
to. So what is done on the loop is counted, and only that: not for how long a thread that parses or writes a large body
keeps the interpreter's lock meanwhile, nor how long the machine has no time for it. The client is another process.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import uvicorn

from service.app import create_app
from service.process.direct_http import DirectHttp
from service.process.private_store import EmbeddedServer
from service.settings import Settings

#: A time that is asserted depends on the machine: `make soak` does it, `make test` does not.
pytestmark = pytest.mark.skipif("SOAK_SECONDS" not in os.environ, reason="measured by make soak")
HELD = 0.1  # seconds
MIB = 1 << 20
JSON, RAW, NDJSON = "application/json", "application/octet-stream", "application/x-ndjson"
#: Sends the requests of its standard input, and prints the status, the problem and the size of each answer.
CLIENT = """
import json, sys, httpx
from websockets.sync.client import connect
def message(asked, body):
    with connect(sys.argv[1].replace("http", "ws", 1) + asked["path"], compression=None, max_size=None) as socket:
        socket.recv()
        socket.send(body if "octet" in asked["headers"]["content-type"] else body.decode())
        told = socket.recv(120)
    status = json.loads(told).get("problem", {}).get("status", 200)
    print(status, len(told), told[:300] if status >= 400 else "", flush=True)
with httpx.Client(base_url=sys.argv[1], timeout=120) as http:
    for asked in map(json.loads, sys.stdin):
        body = open(asked["body"], "rb").read() if asked["body"] else None
        if asked["verb"] == "STREAM":
            message(asked, body)
            continue
        try:
            with http.stream(asked["verb"], asked["path"], content=body, headers=asked["headers"]) as answer:
                size, first = 0, b""
                for part in answer.iter_raw():
                    size, first = size + len(part), first or part
            print(answer.status_code, size, first[:300] if answer.status_code >= 400 else b"", flush=True)
        except httpx.HTTPError as error:
            print(0, repr(error), flush=True)
"""


class Worst(NamedTuple):
    status: int
    verb: str
    path: str
    body: bytes | None = None
    kind: str = JSON

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.body is None else {"content-type": self.kind}


def repeated(head: bytes, part: bytes, tail: bytes, size: int = 8 * MIB) -> bytes:
    """A body of about so many bytes: the part again and again between head and tail"""
    return head + b",".join([part] * ((size - len(head) - len(tail)) // (len(part) + 1))) + tail


def junk(**members: Any) -> bytes:
    document = {"format": "horocycle-snapshot", "version": 1, "digest": "0", **members}
    return json.dumps({"snapshot": document}).encode()


IDS = b"".join(b'"%d",' % i for i in range(500_000))[:-1]
SOME_IDS = b",".join(b'"%d"' % i for i in range(50_000))
WIDE, FLAT = np.full((32 * MIB // (8 * 2001), 2001), 0.001), np.full((2 * MIB, 2), 0.5)
CLASSES = np.column_stack([np.full(2000, 0.5), np.arange(2000) % 1000])
PAIRS = np.full((400_000, 3), 0.5)
for each in (WIDE, FLAT, PAIRS):
    each[:, -1] = np.arange(len(each)) % 2
LABELS = list(range(1000))
OPENED: list[dict[str, Any]] = [
    {"id": "one", "dimension": 1, "keep_points": 1_000_000, "algorithm": "perceptron", "reference": "origin"},
    {"id": "two", "dimension": 2, "keep_points": 2_000_000, "algorithm": "perceptron", "reference": "origin"},
    {"id": "wide", "dimension": 2000, "algorithm": "perceptron", "reference": "origin"},
    {"id": "square", "dimension": 1448, "algorithm": "second_order", "reference": "origin"},
    {"id": "classes", "dimension": 1, "labels": LABELS, "algorithm": "perceptron", "reference": "origin"},
    {"id": "deep", "dimension": 2097, "labels": LABELS, "algorithm": "perceptron", "reference": "origin"},
    *({"dimension": 4096, "labels": LABELS[:500], "algorithm": "perceptron", "reference": "origin"} for _ in range(20)),
]
ONE, TWO, STREAM = "/sessions/one/observe", "/sessions/two/observe", "/sessions/one/stream?producer=p"
#: What is answered, and to what
WORST: dict[str, Worst] = {
    "empty rows": Worst(413, "POST", ONE, repeated(b'{"points":[', b"[]", b'],"labels":[]}')),
    "rows of rows": Worst(413, "POST", ONE, repeated(b'{"points":[', b"[[]]", b"]}")),
    "objects": Worst(413, "POST", ONE, repeated(b"[", b"{}", b"]")),
    "strings": Worst(413, "POST", ONE, repeated(b'{"points":[', b'"x"', b"]}")),
    "numbers": Worst(413, "POST", ONE, repeated(b'{"points":[', b"1", b"]}")),
    "a long string": Worst(422, "POST", ONE, b'{"points":"' + b"x" * (8 * MIB - 20) + b'"}'),
    "a number that is none": Worst(422, "POST", ONE, repeated(b'{"points":[', b"0.12345678", b",NaN]}")),
    "one bad row of many": Worst(413, "POST", TWO, repeated(b'{"points":[', b"[0.12345678,0.1]", b",[NaN,0]]}")),
    "other members": Worst(413, "POST", ONE, repeated(b'{"point":[0.1],"label":1,"truth":[', b"[0.1]", b"]}")),
    "lines": Worst(200, "POST", ONE, b"\n".join([b'{"point":[0.1],"label":1}'] * (8 * MIB // 26)), NDJSON),
    "good rows": Worst(200, "POST", "/sessions/two/predict", repeated(b'{"points":[', b"[0.1234567,0.123456]", b"]}")),
    "many points, raw": Worst(200, "POST", ONE, FLAT.tobytes(), RAW),
    "wide points, raw": Worst(200, "POST", "/sessions/wide/observe", WIDE.tobytes(), RAW),
    "points of a square": Worst(200, "POST", "/sessions/square/observe", WIDE[:4, -1449:].tobytes(), RAW),
    "many classes": Worst(200, "POST", "/sessions/classes/observe", CLASSES.tobytes(), RAW),
    "too many classes": Worst(422, "POST", "/sessions/classes/observe", FLAT[:100_000].tobytes(), RAW),
    "unknown ids": Worst(
        200, "POST", "/sessions/one/labels", b'{"ids":[' + IDS + b'],"labels":[' + b"1," * 499_999 + b"1]}"
    ),
    "ids that wait": Worst(
        200, "POST", "/sessions/one/predict", b'{"points":[' + b"[0.1]," * 49_999 + b'[0.1]],"ids":[' + SOME_IDS + b"]}"
    ),
    "a confusion": Worst(200, "GET", "/sessions/classes/metrics"),
    "a large model": Worst(200, "GET", "/sessions/deep/model"),
    "the list": Worst(200, "GET", "/sessions?limit=1000"),
    "points to keep": Worst(200, "POST", TWO, PAIRS.tobytes(), RAW),
    "a page of the log": Worst(200, "GET", "/sessions/two/log?limit=100000"),
    "a snapshot": Worst(200, "GET", "/sessions/two/snapshot"),
    "a snapshot of junk numbers": Worst(422, "POST", "/sessions", junk(log=[0.1] * 900_000)),
    "a snapshot of junk lists": Worst(422, "POST", "/sessions", junk(log=[[]] * 99_000)),
    "a snapshot of junk text": Worst(422, "POST", "/sessions", junk(points="A" * (31 * MIB))),
    "many names": Worst(422, "POST", "/sessions", repeated(b'{"labels":[', b'"a"', b"]}", MIB - 10)),
    "a long message": Worst(413, "STREAM", STREAM, repeated(b'{"points":[', b"[]", b'],"labels":[]}')),
    "a message that is too long": Worst(413, "STREAM", STREAM, b"[" * (9 * MIB)),
    "a message of many points": Worst(422, "STREAM", STREAM, FLAT.tobytes(), RAW),
    "a message of many points, in short": Worst(200, "STREAM", f"{STREAM}&reply=summary", FLAT.tobytes(), RAW),
    "a message of many ids": Worst(
        422, "STREAM", STREAM, b'{"ids":[' + IDS + b'],"labels":[' + b"1," * 499_999 + b"1]}"
    ),
    "a message of many classes": Worst(422, "STREAM", "/sessions/classes/stream", CLASSES.tobytes(), RAW),
    "the points of a fit": Worst(422, "POST", "/sessions/one/fits", FLAT.tobytes(), RAW),
}


class Ticker:
    """The longest that the loop was held since it was last asked, in CPU seconds of its thread"""

    def __init__(self) -> None:
        self._longest, self._task = 0.0, asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            self._longest = max(self._longest, time.thread_time() - before)

    def asked(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        self._task.cancel()


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[str]:
    """The service in this process"""
    settings = Settings(redis_url=url, deadline=30)
    config = uvicorn.Config(
        create_app(settings), port=0, log_config=None, http=DirectHttp, ws_max_size=settings.body_limit
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await task


@asynccontextmanager
async def client(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, url, stdin=pipe, stdout=pipe, limit=MIB
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ask(process: asyncio.subprocess.Process, worst: Worst, folder: Path) -> tuple[int, str]:
    """Send it; the status, and what came"""
    path = folder / "body"
    await asyncio.to_thread(path.write_bytes, worst.body or b"")
    body = None if worst.body is None else str(path)
    assert process.stdin is not None and process.stdout is not None
    line = {"verb": worst.verb, "path": worst.path, "body": body, "headers": worst.headers}
    process.stdin.write(json.dumps(line).encode() + b"\n")
    told = (await process.stdout.readline()).decode()
    assert told, f"the client ended with {await process.wait()}"
    return int(told.split()[0]), told


async def measured(url: str, folder: Path) -> dict[str, str]:
    """Those that held the loop for too long, or were answered with something else. What is slow is so each time"""
    wrong = dict[str, str]()
    async with serving(url) as address, client(address) as process:
        for asked in OPENED:
            assert (await ask(process, Worst(201, "POST", "/sessions", json.dumps(asked).encode()), folder))[0] == 201
        ticker = Ticker()
        for name, worst in WORST.items():
            held = []
            for _ in range(3):
                ticker.asked()
                status, told = await ask(process, worst, folder)
                if status != worst.status:
                    wrong[name] = told
                held.append(ticker.asked())
                if held[-1] <= HELD:
                    break
            if min(held) > HELD:
                wrong[name] = f"held for {held} s: {told}"
        ticker.stop()
    return wrong


def test_no_body_holds_the_event_loop(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "data") as server:
        wrong = asyncio.run(measured(server.url, tmp_path))
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
