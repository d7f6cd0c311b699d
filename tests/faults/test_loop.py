"""The worst body of every route: the event loop never works for 100 ms at a stretch on anything.

Measured in CPU time of the loop's thread between two of its turns, which other programs and other threads do not add
to. So what is done on the loop is counted, and only that: not for how long a thread that parses or writes a large body
keeps the interpreter's lock meanwhile, nor how long the machine has no time for it. The client is another process. The
worker has forgotten every session before each request, so that it is loaded, too.

`make soak` tries them all, and asserts seconds. `make test` tries some, each of which was found to hold the loop for
much longer, and compares with what another piece of work takes here and now: to parse the largest JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import orjson
import uvicorn
from fastapi import FastAPI

from service.api.schemas import OpenSession
from service.app import create_app
from service.geometry import Array
from service.learners import encode
from service.process.direct_http import DirectHttp
from service.process.private_store import EmbeddedServer
from service.sessions import snapshot, snapshot_pieces
from service.sessions.apply import apply
from service.sessions.opening import first_session
from service.sessions.records import Kept
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.settings import Settings

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
                    if asked["path"].endswith("/events") and part.endswith(b"}\\n\\n"):
                        break  # it has no end
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
    more: Mapping[str, str] = MappingProxyType({})

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.body is None else {"content-type": self.kind, **self.more}


def repeated(head: bytes, part: bytes, tail: bytes, size: int = 8 * MIB) -> bytes:
    """A body of about so many bytes: the part again and again between head and tail"""
    return head + b",".join([part] * ((size - len(head) - len(tail)) // (len(part) + 1))) + tail


def junk(**members: Any) -> bytes:
    document = {"format": "horocycle-snapshot", "version": 1, "digest": "0", **members}
    return json.dumps({"snapshot": document}).encode()


def tensor(shape: list[int], **data: Any) -> bytes:
    """The JSON of a request of the Open Inference Protocol"""
    return json.dumps(
        {"inputs": [{"name": "points", "datatype": "FP64", "shape": shape, **data}]}, separators=(",", ":")
    ).encode()


LABELS = list(range(1000))
OPENED: list[dict[str, Any]] = [
    {"id": "one", "dimension": 1, "keep_points": 1_000_000, "algorithm": "perceptron", "reference": "origin"},
    {"id": "two", "dimension": 2, "keep_points": 2_000_000, "algorithm": "perceptron", "reference": "origin"},
    {"id": "wide", "dimension": 2000, "algorithm": "perceptron", "reference": "origin"},
    {"id": "square", "dimension": 1448, "algorithm": "second_order", "reference": "origin"},
    {"id": "classes", "dimension": 1, "labels": LABELS, "algorithm": "perceptron", "reference": "origin"},
    {"id": "deep", "dimension": 2097, "labels": LABELS, "algorithm": "perceptron", "reference": "origin"},
    {"id": "normals", "dimension": 60, "labels": LABELS[:500], "algorithm": "gaussian"},
]
#: So many more of them, for the list
MANY, ANOTHER = 20, {"dimension": 4096, "labels": LABELS[:500], "algorithm": "perceptron", "reference": "origin"}
ONE, TWO, STREAM = "/sessions/one/observe", "/sessions/two/observe", "/sessions/one/stream?producer=p"


def labelled(rows: int, columns: int, value: float) -> Array:
    """Points, all the same, and labels in turn"""
    found = np.full((rows, columns), value)
    found[:, -1] = np.arange(rows) % 2
    return found


def many_ids(count: int) -> bytes:
    """Late labels"""
    return b'{"ids":[' + b",".join([b'"%d"' % i for i in range(count)]) + b'],"labels":[' + b"1," * (count - 1) + b"1]}"


def some() -> dict[str, Worst]:
    """What is tried in `make test`: each was found to hold the loop"""
    numbers = tensor([400_000, 2], data=[0.1234567] * 800_000)
    return {
        "empty rows": Worst(413, "POST", ONE, repeated(b'{"points":[', b"[]", b'],"labels":[]}')),
        "unknown ids": Worst(200, "POST", "/sessions/one/labels", many_ids(500_000)),
        "a large model": Worst(200, "GET", "/sessions/deep/model"),
        "the first event": Worst(200, "GET", "/sessions/deep/events"),
        "numbers to infer": Worst(200, "POST", "/v2/models/two/infer", numbers),
        "a certificate": Worst(200, "GET", "/sessions/square/certificate?margin=0.1"),
    }


def junk_points() -> dict[str, Worst]:
    return {
        "rows of rows": Worst(413, "POST", ONE, repeated(b'{"points":[', b"[[]]", b"]}")),
        "objects": Worst(413, "POST", ONE, repeated(b"[", b"{}", b"]")),
        "strings": Worst(413, "POST", ONE, repeated(b'{"points":[', b'"x"', b"]}")),
        "numbers": Worst(413, "POST", ONE, repeated(b'{"points":[', b"1", b"]}")),
        "a long string": Worst(422, "POST", ONE, b'{"points":"' + b"x" * (8 * MIB - 20) + b'"}'),
        "a number that is none": Worst(422, "POST", ONE, repeated(b'{"points":[', b"0.12345678", b",NaN]}")),
        "one bad row of many": Worst(413, "POST", TWO, repeated(b'{"points":[', b"[0.12345678,0.1]", b",[NaN,0]]}")),
        "other members": Worst(413, "POST", ONE, repeated(b'{"point":[0.1],"label":1,"truth":[', b"[0.1]", b"]}")),
    }


def good_points() -> dict[str, Worst]:
    flat, wide = labelled(2 * MIB, 2, 0.5).tobytes(), labelled(32 * MIB // (8 * 2001), 2001, 0.001)
    classes = np.column_stack([np.full(2000, 0.5), np.arange(2000) % 1000]).tobytes()
    rows = repeated(b'{"points":[', b"[0.1234567,0.123456]", b"]}")
    waiting = b'{"points":[' + b"[0.1]," * 49_999 + b'[0.1]],"ids":[' + b",".join(b'"%d"' % i for i in range(50_000))
    return {
        "lines": Worst(200, "POST", ONE, b"\n".join([b'{"point":[0.1],"label":1}'] * (8 * MIB // 26)), NDJSON),
        "good rows": Worst(200, "POST", "/sessions/two/predict", rows),
        "many points, raw": Worst(200, "POST", ONE, flat, RAW),
        "wide points, raw": Worst(200, "POST", "/sessions/wide/observe", wide.tobytes(), RAW),
        "points of a square": Worst(200, "POST", "/sessions/square/observe", wide[:4, -1449:].tobytes(), RAW),
        "many classes": Worst(200, "POST", "/sessions/classes/observe", classes, RAW),
        "too many classes": Worst(422, "POST", "/sessions/classes/observe", flat[: 16 * 100_000], RAW),
        "ids that wait": Worst(200, "POST", "/sessions/one/predict", waiting + b"]}"),
        "points to keep": Worst(200, "POST", TWO, labelled(400_000, 3, 0.5).tobytes(), RAW),
        "the points of a fit": Worst(422, "POST", "/sessions/one/fits", flat, RAW),
        "a fit of all points": Worst(202, "POST", "/sessions/two/fits", b"{}"),
    }


def questions() -> dict[str, Worst]:
    """After the points above"""
    paths = {
        "a confusion": "/sessions/classes/metrics",
        "a model of normals": "/sessions/normals/model",
        "the past": "/sessions/deep/at/0/model",
        "a session of many classes": "/sessions/deep",
        "the list": "/sessions?limit=1000",
        "a page of the log": "/sessions/two/log?limit=100000",
        "a snapshot": "/sessions/two/snapshot",
        "a picture": "/sessions/two/disk.svg",
    }
    return {name: Worst(200, "GET", path) for name, path in paths.items()}


def inference() -> dict[str, Worst]:
    count, where = 2 * MIB - 64, "/v2/models/two/infer"
    announced = tensor([count // 2, 2])
    length = {"inference-header-content-length": str(len(announced))}
    return {
        "rows to infer": Worst(413, "POST", where, repeated(b'{"inputs":[', b"[]", b"]}")),
        "text to infer": Worst(413, "POST", where, b'{"id":"' + b"x" * (31 * MIB) + b'"}'),
        "bytes to infer": Worst(200, "POST", where, announced + np.full(count, 0.5).tobytes(), more=length),
    }


def snapshots() -> dict[str, Worst]:
    """Of the largest session that one JSON document holds, and the same in pieces, each as long as may be"""
    points = labelled(23 * MIB // 24, 3, 0.5)
    spec = OpenSession(dimension=2, algorithm="perceptron", reference="origin", keep_points=len(points)).spec()
    batch = Batch(np.ascontiguousarray(points[:, :2]), points[:, 2].astype(np.int64))
    loaded = apply(first_session(spec), [Request(batch)]).change.after
    state, data = encode(loaded.state), points.tobytes()
    lines = b"".join((snapshot_pieces.head(loaded, state, len(points)), *snapshot_pieces.pieces("state", state)))
    lines += b"".join(snapshot_pieces.pieces("points", data, len(data)))
    lines += snapshot_pieces.line({"digest": sha256(lines).hexdigest()})
    whole = orjson.dumps({"snapshot": snapshot.export(Kept(loaded, batch))})
    return {
        "a snapshot to import": Worst(201, "POST", "/sessions", whole),
        "a snapshot of long lines": Worst(201, "POST", "/sessions", lines, NDJSON),
    }


def sessions() -> dict[str, Worst]:
    head, reference = b'{"reference":[', b"[0.12345678,0.1]"
    return {
        "a snapshot of junk numbers": Worst(422, "POST", "/sessions", junk(log=[0.1] * 900_000)),
        "a snapshot of junk lists": Worst(422, "POST", "/sessions", junk(log=[[]] * 99_000)),
        "a snapshot of junk text": Worst(422, "POST", "/sessions", junk(points="A" * (31 * MIB))),
        "many names": Worst(422, "POST", "/sessions", repeated(b'{"labels":[', b'"a"', b"]}", MIB - 10)),
        "a long reference": Worst(422, "POST", "/sessions", repeated(b'{"reference":[', b"0", b"]}", MIB - 10)),
        "labels to add": Worst(
            422, "PATCH", "/sessions/classes", repeated(b'{"add_labels":[', b'"a"', b"]}", MIB - 10)
        ),
        "references of a fit": Worst(413, "POST", "/sessions/two/fits", repeated(head, reference, b"]}")),
        "fewer of them": Worst(422, "POST", "/sessions/two/fits", repeated(head, reference, b"]}", MIB - 10)),
    }


def messages() -> dict[str, Worst]:
    flat, classes = labelled(2 * MIB, 2, 0.5).tobytes(), np.full((2000, 2), 0.5).tobytes()
    return {
        "a long message": Worst(413, "STREAM", STREAM, repeated(b'{"points":[', b"[]", b'],"labels":[]}')),
        "a message that is too long": Worst(413, "STREAM", STREAM, b"[" * (9 * MIB)),
        "a message of many points": Worst(422, "STREAM", STREAM, flat, RAW),
        "a message of many points, in short": Worst(200, "STREAM", f"{STREAM}&reply=summary", flat, RAW),
        "a message of many ids": Worst(422, "STREAM", STREAM, many_ids(500_000)),
        "a message of many classes": Worst(422, "STREAM", "/sessions/classes/stream", classes, RAW),
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
async def serving(url: str) -> AsyncIterator[tuple[FastAPI, str]]:
    """The service in this process, and its address"""
    settings = Settings(redis_url=url, deadline=30)
    app = create_app(settings)
    config = uvicorn.Config(app, port=0, log_config=None, http=DirectHttp, ws_max_size=settings.body_limit)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield app, f"http://127.0.0.1:{listening.getsockname()[1]}"
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


async def measured(url: str, folder: Path, asked: dict[str, Worst], held: float) -> dict[str, str]:
    """Those that held the loop for too long, or were answered with something else. What is slow is so each time"""
    wrong, paths = dict[str, str](), "".join(worst.path for worst in asked.values())
    opened = [each for each in OPENED if f"/{each['id']}/" in paths]
    async with serving(url) as (app, address), client(address) as process:
        for each in [*opened, *([ANOTHER] * MANY if "the list" in asked else [])]:
            assert (await ask(process, Worst(201, "POST", "/sessions", json.dumps(each).encode()), folder))[0] == 201
        ticker = Ticker()
        for name, worst in asked.items():
            found = list[float]()
            while len(found) < 3 and (not found or found[-1] > held):
                for each in opened:
                    app.state.context.ingest.forget(each["id"])
                ticker.asked()
                status, told = await ask(process, worst, folder)
                found.append(ticker.asked())
                if status != worst.status:
                    wrong[name] = told
            if min(found) > held:
                wrong[name] = f"held for {found} s, more than {held}: {told}"
        ticker.stop()
    return wrong


def parsing() -> float:
    """CPU seconds that it takes here and now to parse the largest JSON, of numbers alone"""
    body = repeated(b"[", b"0.1234567", b"]")
    before = time.thread_time()
    orjson.loads(body)
    return time.thread_time() - before


def test_no_body_holds_the_event_loop(tmp_path: Path) -> None:
    asked, held = some(), parsing()
    if "SOAK_SECONDS" in os.environ:
        for group in (junk_points, good_points, questions, inference, snapshots, sessions, messages):
            asked |= group()
        held = HELD
    with EmbeddedServer(tmp_path / "data") as server:
        wrong = asyncio.run(measured(server.url, tmp_path, asked, held))
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
