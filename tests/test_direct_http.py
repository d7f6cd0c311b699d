"""What the HTTP protocol answers by itself is what the app answers over ASGI, byte for byte, good or bad."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import uvicorn
from uvicorn.server import ServerState

from service import telemetry
from service.api.heads import Heads
from service.app import create_app
from service.process.direct_http import PIECE, WHOLE, DirectHttp
from service.process.private_store import EmbeddedServer
from service.settings import Settings

OPEN = {"dimension": 2, "algorithm": "perceptron", "reference": "origin"}


class Counting(DirectHttp):
    """How many requests were answered past ASGI, and how many of those had a task"""

    direct = run = 0

    def _run(self, exchange: Any, answer: Any) -> None:
        Counting.run += 1
        super()._run(exchange, answer)

    def _begin(self, exchange: Any) -> None:
        Counting.direct += 1
        super()._begin(exchange)


@asynccontextmanager
async def listening(url: str, app: Any = None, **settings: Any) -> AsyncIterator[tuple[str, int]]:
    app = app or create_app(Settings(redis_url=url, fit_workers=0, **settings))
    config = uvicorn.Config(app, http=Counting, log_config=None, proxy_headers=False, ws="none", server_header=False)
    config.load()
    state = ServerState()
    async with app.router.lifespan_context(app):
        server = await asyncio.get_running_loop().create_server(lambda: Counting(config, state, {}), "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            yield host, port
            server.close()
            for each in list(state.connections):
                each.transport.abort()


async def heard(address: tuple[str, int], sent: bytes | list[bytes]) -> list[tuple[bytes, list[bytes], bytes]]:
    """The answers to what is sent over one connection, which is then half closed: status line, headers, body"""
    reader, writer = await asyncio.open_connection(*address, limit=64 << 20)
    for part in [sent] if isinstance(sent, bytes) else sent:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.005)
    found, several = [], sent if isinstance(sent, bytes) else b"".join(sent)
    async with asyncio.timeout(30):
        for _ in range(max(len(re.findall(rb" HTTP/1\.[01]\r\n", several)), 1)):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                while head.startswith(b"HTTP/1.1 100"):
                    head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            status, *headers = head.strip().split(b"\r\n")
            length = next((int(line[16:]) for line in headers if line.startswith(b"content-length: ")), 0)
            body = b"" if several.startswith(b"HEAD") else await reader.readexactly(length)
            if status.startswith(b"HTTP/1.1 400") and b"text/plain" in head:  # uvicorn's own
                headers = []
            found.append((status, headers, body))
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return found


def request(
    body: bytes,
    *more: str,
    path: str = "/sessions/s/observe",
    kind: str = "application/json",
    method: str = "POST",
    length: bool = True,
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *([f"Content-Type: {kind}"] if kind else []), *more]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([*lines, "", ""]).encode() + body


ONE = b'{"point": [0.1, 0.2], "label": 1}'
MANY = orjson.dumps({"points": [[0.01 * i, -0.3] for i in range(50)], "labels": [1, -1] * 25})
ROWS = np.column_stack([np.random.default_rng(3).uniform(-0.5, 0.5, (3000, 2)), np.arange(3000) % 2])
RAW = "application/octet-stream"
#: Path → whether it is answered past ASGI
REQUESTS: dict[str, tuple[bytes | list[bytes], bool]] = {
    "one": (request(ONE), True),
    "many": (request(MANY), True),
    "summary": (request(MANY, path="/sessions/s/observe?reply=summary"), True),
    "raw": (request(ROWS.tobytes(), kind=RAW), True),
    "in pieces": ([request(MANY)[i : i + 100] for i in range(0, len(request(MANY)), 100)], True),
    "keyed": (request(ONE, "Idempotency-Key: k1"), True),
    "keyed again": (request(ONE, "Idempotency-Key: k1"), True),
    "key reused": (request(MANY, "Idempotency-Key: k1"), True),
    "stale": (request(ONE, 'If-Match: "999"'), True),
    "named": (request(ONE, "X-Request-ID: mine"), True),
    "a bad name": (request(ONE, "X-Request-ID: <mine>"), True),
    "close": (request(ONE, "Connection: close"), True),
    "predict": (request(b'{"points": [[0.1, 0.2], [0.3, 0.1]]}', path="/sessions/s/predict"), True),
    "predict by GET": (request(b"", path="/sessions/s/predict?x=0.1,0.2", method="GET", kind="", length=False), True),
    "short": (request(b"", path="/predict?session=s&x=0.1,0.2", method="GET", kind="", length=False), True),
    "labels": (request(b'{"ids": ["a"], "labels": [1]}', path="/sessions/s/labels"), True),
    "two at once": (request(ONE) + request(MANY), False),
    "malformed": (request(b"{"), True),
    "non-finite": (request(b'{"point": [NaN, 0], "label": 1}'), True),
    "outside": (request(b'{"point": [1.5, 0], "label": 1}'), True),
    "empty": (request(b""), True),
    "no type": (request(ONE, kind=""), True),
    "another type": (request(ONE, kind="text/plain"), True),
    "encoded": (request(ONE, "Content-Encoding: gzip"), True),
    "no session": (request(ONE, path="/sessions/nobody/observe"), True),
    "unknown parameter": (request(ONE, path="/sessions/s/observe?replay=summary"), True),
    "a fragment": (request(ONE, path="/sessions/s/observe#x"), False),
    "escaped": (request(ONE, path="/sessions/%73/observe"), False),
    "foreign host": (request(ONE).replace(b"localhost", b"evil.example"), True),
    "no host": (request(ONE).replace(b"Host: localhost\r\n", b""), True),
    "foreign page": (request(ONE, "Origin: https://evil.example"), False),
    "cross-site": (request(ONE, "Sec-Fetch-Site: cross-site"), True),
    "too large": (request(b"0" * (1 << 20)), True),
    "chunked": (
        request(b"", "Transfer-Encoding: chunked", length=False) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE),
        False,
    ),
    "expected": (request(ONE, "Expect: 100-continue"), False),
    "old": (request(ONE, "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"), False),
    "wrong method": (request(b"", method="GET", length=False), False),
    "head": (request(b"", path="/predict?session=s&x=0.1,0.2", method="HEAD", kind="", length=False), False),
    "not HTTP": (b"observe, please\r\n\r\n", False),
    "a bad length": (request(ONE, "Content-Length: x", length=False), False),
    "another route": (request(b"", path="/health/live", method="GET", kind="", length=False), False),
}


LONG = request(ROWS.tobytes(), kind=RAW)
#: Heads that come again and again; of these the last line of each head is its length
KEYED = {
    "its own key": [request(ONE, f"Idempotency-Key: own-{i}") for i in range(4)],
    "a key in other letters": [request(ONE, f"idempotency-KEY:other-{i} ") for i in range(4)],
    "two keys": [request(ONE, "Idempotency-Key: two", f"Idempotency-Key: two-{i}") for i in range(3)],
    "a key of other characters": [request(ONE, f"Idempotency-Key: k\u00e9y{i}") for i in range(3)],
    "a long key": [request(ONE, "Idempotency-Key: " + "k" * (198 + i)) for i in range(5)],
    "no key": [request(ONE, "Idempotency-Key: ") for _ in range(3)],
    "bodies that differ": [request(body) for body in (ONE, ONE.replace(b"0.2", b"9.2"), b"x" * len(ONE), ONE)],
    "a key, then another body": [request(b, "Idempotency-Key: b") for b in (ONE, ONE, ONE.replace(b"0.2", b"0.3"))],
    "two at once": [request(ONE), request(ONE) + request(ONE), request(ONE) + request(MANY)[:20], request(MANY)[20:]],
    "in the middle": [request(MANY), request(MANY)[:-99], request(MANY)[-99:], request(MANY)[:80], request(MANY)[80:]],
    "raw": [LONG, LONG[:40000], LONG[40000:], LONG[:100], LONG[100:70000], LONG[70000:]],
    "another head": [request(ONE), request(ONE, "Accept: application/octet-stream"), request(ONE)],
}
REPEATED = {
    **{name: [sent] * 3 for name, (sent, direct) in REQUESTS.items() if direct and isinstance(sent, bytes)},
    **KEYED,
}
del REPEATED["close"], REPEATED["too large"]


def test_a_head_that_comes_again_means_the_same(store: str) -> None:
    chosen = {name: (sent, True) for name, sent in REPEATED.items()}
    usual, _ = asyncio.run(answers(store, "often", False, chosen))
    direct, _ = asyncio.run(answers(store, "again", True, chosen))
    for name, one, other in zip(chosen, usual, direct, strict=True):
        assert len(one) >= 3 and one == other, name


async def remembered(url: str, first: bytes, second: bytes) -> tuple[Heads, list[bytes]]:
    """What is known after requests over one connection, and the statuses of the last over another"""
    app, sid = create_app(Settings(redis_url=url, fit_workers=0)), b"heads-%d" % next(numbers)
    first, second = (each.replace(b"/s/", b"/%b/" % sid) for each in (first, second))
    async with listening(url, app=app) as address, asyncio.timeout(60):
        await heard(address, request(orjson.dumps({**OPEN, "id": sid.decode()}), path="/sessions"))
        reader, writer = await asyncio.open_connection(*address)
        for each in (first, first, second):  # each when the one before is answered
            writer.write(each)
            assert await reader.readuntil(b"HTTP/1.1 200" if each is first else b"HTTP/1.1 ")
            await asyncio.sleep(0.05)
        writer.close()
        again = await heard(address, second)
        return app.heads, [status for status, _, _ in again]  # type: ignore[attr-defined]


numbers = count()


def test_only_what_the_parser_has_read_is_remembered(store: str) -> None:
    for second in (request(ONE), request(ONE, "Authorization: Bearer secret"), request(ONE, "X-Request-ID: mine")):
        heads, statuses = asyncio.run(remembered(store, request(ONE), second))
        assert len(heads) == 1 and statuses == [b"HTTP/1.1 200 OK"], second
    for second in (
        request(ONE, "Content-Length: 33", "Content-Length: 34", length=False),
        request(ONE, "Bad Header: x"),
        request(ONE, "X: a\x00b"),
        request(ONE).replace(b"HTTP/1.1", b"HTTP/1.x"),
    ):
        heads, statuses = asyncio.run(remembered(store, request(ONE), second))
        assert len(heads) == 1 and statuses == [b"HTTP/1.1 400 Bad Request"], second


async def answers(
    url: str, sid: str, direct: bool, requests: Mapping[str, tuple[bytes | list[bytes], bool]] = REQUESTS
) -> tuple[list[Any], list[bool]]:
    found, past = [], []
    async with listening(url, direct=direct, json_limit=1 << 19) as address:
        opened = await heard(address, request(orjson.dumps({**OPEN, "id": sid}), path="/sessions"))
        assert opened[0][0].endswith(b"201 Created")
        for sent, _ in requests.values():
            before = Counting.direct
            named = [
                part.replace(b"/s/", b"/%b/" % sid.encode()) for part in ([sent] if isinstance(sent, bytes) else sent)
            ]
            named = [part.replace(b"session=s&", b"session=%b&" % sid.encode()) for part in named]
            told = await heard(address, named)
            past.append(Counting.direct > before)
            found.append(
                [
                    (status, sorted(map(normal, headers)), body.replace(sid.encode(), b"s"))
                    for status, headers, body in told
                ]
            )
    return found, past


def normal(line: bytes) -> bytes:
    """Without what differs between any two answers"""
    line = re.sub(rb"^(x-request-id: )[0-9a-f]{16}$", rb"\1made", line)
    return re.sub(rb"^date: .*", b"date", re.sub(rb"^(content-length: ).*", rb"\1n", line))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with EmbeddedServer(Path(tmp_path_factory.mktemp("direct")) / "data") as server:
        yield server.url


def test_the_protocol_answers_as_asgi_does(store: str) -> None:
    usual, none = asyncio.run(answers(store, "usual", False))
    direct, past = asyncio.run(answers(store, "quick", True))
    assert not any(none)
    assert dict(zip(REQUESTS, past, strict=True)) | {"two at once": False} == {k: v for k, (_, v) in REQUESTS.items()}
    for name, one, other in zip(REQUESTS, usual, direct, strict=True):
        assert one and one == other, name


async def large(url: str) -> tuple[int, int, int]:
    """One answer of several pieces to a client that reads late, and a body that is too large to be held back"""
    before = telemetry.requests.labels("POST", "/sessions/{id}/predict", "200").value
    async with listening(url) as address:
        await heard(address, request(orjson.dumps({**OPEN, "id": "large"}), path="/sessions"))
        await heard(address, request(ONE.replace(b"1}", b"-1}"), path="/sessions/large/observe"))
        points = np.random.default_rng(5).uniform(-0.5, 0.5, (WHOLE // 16, 2))
        first = Counting.direct
        told = await heard(address, request(points.tobytes(), path="/sessions/large/predict", kind=RAW))
        past = Counting.direct - first
        assert len(orjson.loads(told[0][2])["scores"]) == len(points)
        more = np.concatenate([points, points[:1]])
        await heard(address, request(more.tobytes(), path="/sessions/large/predict", kind=RAW))
    counted = telemetry.requests.labels("POST", "/sessions/{id}/predict", "200").value - before
    return len(told[0][2]), past, int(counted)


def test_large_answers_come_in_pieces_and_are_counted(store: str) -> None:
    size, past, counted = asyncio.run(large(store))
    assert size > 2 * PIECE and past == 1 and counted == 2


async def small(url: str) -> list[bytes]:
    """Of a service that takes but small bodies: the statuses of one that is too large, twice, and of one that is not"""
    async with listening(url, json_limit=1024, body_limit=1024) as address:
        await heard(address, request(orjson.dumps({**OPEN, "id": "small"}), path="/sessions"))
        sent = [request(ONE), request(ONE + b" " * 1000), request(ROWS[:50].tobytes(), kind=RAW), request(ONE)]
        told = [await heard(address, [each.replace(b"/s/", b"/small/")]) for each in [*sent, *sent]]
        return [status for [(status, _, _)] in told]


def test_limits_hold_for_what_is_read_later(store: str) -> None:
    good, large = b"HTTP/1.1 200 OK", b"HTTP/1.1 413 "
    assert [status[:13] for status in asyncio.run(small(store))] == [good[:13], large, large, good[:13]] * 2


async def unforeseen(url: str) -> list[Any]:
    async with listening(url) as address:
        await heard(address, request(orjson.dumps({**OPEN, "id": "broken"}), path="/sessions"))
        bad = []
        for name in ("answered", "read_bodies"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(f"service.api.observe.{name}", lambda *_, **__: 1 / 0)
                for _ in range(2):  # the session is not known at first
                    bad += await heard(address, request(ONE, "X-Request-ID: mine", path="/sessions/broken/observe"))
        return [*bad, *await heard(address, request(ONE, path="/sessions/broken/observe"))]


def test_what_nobody_foresaw_is_a_problem(store: str, caplog: pytest.LogCaptureFixture) -> None:
    *bad, (after, _, _) = asyncio.run(unforeseen(store))
    for status, headers, body in bad:
        assert status.startswith(b"HTTP/1.1 500") and b"x-request-id: mine" in headers
        assert orjson.loads(body)["type"].endswith("internal-error")
    assert len(bad) == 4 and after == b"HTTP/1.1 200 OK"
    assert "ZeroDivisionError" in caplog.text


async def plain(url: str) -> tuple[list[int], list[bytes]]:
    """Tasks that each of these takes, of a session that the worker knows; and their statuses"""
    tasks, statuses = [], []
    async with listening(url) as address:
        await heard(address, request(orjson.dumps({**OPEN, "id": "plain"}), path="/sessions"))
        for sent in (
            request(ONE),
            request(ONE),
            request(MANY, "Idempotency-Key: a"),
            request(MANY, "Idempotency-Key: a"),
            request(ROWS.tobytes(), kind=RAW),
            request(ROWS[:2000].tobytes(), kind=RAW),
            request(ONE, 'If-Match: "999"'),
            request(ONE, "Accept: application/octet-stream"),
            request(b"{"),
        ):
            before = Counting.run
            [(status, _, _)] = await heard(address, sent.replace(b"/s/", b"/plain/"))
            tasks.append(Counting.run - before)
            statuses.append(status[9:12])
    return tasks, statuses


def test_a_plain_observe_waits_for_its_commit_without_a_task(store: str) -> None:
    tasks, statuses = asyncio.run(plain(store))
    assert statuses == [*[b"200"] * 6, b"412", b"200", b"400"]
    # the first has the session loaded, and so does the one behind an answer that was stored; what is binary, or wrong,
    # has a task too
    assert tasks == [1, 0, 0, 0, 1, 0, 1, 1, 1]


async def gone(url: str) -> int:
    """Clients that hang up while their points are on their way to the store: what was read is learned all the same"""
    async with listening(url) as address:
        await heard(address, request(orjson.dumps({**OPEN, "id": "gone"}), path="/sessions"))
        await heard(address, request(ONE, path="/sessions/gone/observe"))
        for _ in range(20):
            _, writer = await asyncio.open_connection(*address)
            writer.write(request(ONE, path="/sessions/gone/observe"))
            await writer.drain()
            await asyncio.sleep(0)
            writer.transport.abort()
        [(_, _, body)] = await heard(address, request(ONE, path="/sessions/gone/observe"))
        return int(orjson.loads(body)["session"]["observed"])


def test_a_client_that_hangs_up_disturbs_nobody(store: str, caplog: pytest.LogCaptureFixture) -> None:
    assert 2 <= asyncio.run(gone(store)) <= 22
    assert not caplog.records
