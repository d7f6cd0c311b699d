"""A snapshot in pieces: a session of any size goes out and in, with its fits, wholly or not at all."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from clients import Client, WrongArgument
from service.batch.classifier import Classifier
from service.store.keys import staged_keys
from tests.opening import RAW, opened, raw
from tests.running import Running
from tests.strategies import points
from tests.waiting import wait_until

NDJSON = {"content-type": "application/x-ndjson"}
N, D = 110_000, 10


def labelled(n: int, d: int = 2, seed: int = 5) -> tuple[Any, Any]:
    X = points(np.random.default_rng(seed), n, d, 3.0)
    return X, (X[:, 0] > 0.1 * X[:, 1]).astype(int)


def answers(http: httpx.Client, sid: str, X: Any) -> list[Any]:
    """All that it says of itself, its fits and these points"""
    what = ("model", "metrics", "certificate?margin=0.1", "fits", "log?from=105000&limit=50", "snapshot?points=false")
    told = [http.get(f"/sessions/{sid}/{each}").json() for each in what]
    models = ["online", *(fit["id"] for fit in told[3]["fits"] if fit["status"] == "done")]
    asked = {"points": X.tolist()}
    return [*told, *(http.post(f"/sessions/{sid}/predict?model={each}", json=asked).json() for each in models)]


def wait_for_fits(http: httpx.Client, sid: str) -> list[dict[str, Any]]:
    def ended() -> bool:
        fits = http.get(f"/sessions/{sid}/fits").json()["fits"]
        return all(fit["status"] not in ("queued", "running") for fit in fits)

    wait_until(ended, 240)
    found: list[dict[str, Any]] = http.get(f"/sessions/{sid}/fits").json()["fits"]
    return found


def test_a_large_session_with_fits_goes_out_and_in(http: httpx.Client, small: Running, tmp_path: Path) -> None:
    X, indices = labelled(N, D)
    sid = opened(http, {"dimension": D, "keep_points": N, "algorithm": "second_order"})
    for at in range(0, N, 40_000):  # blocks of more than one piece
        part = raw(X[at : at + 40_000], indices[at : at + 40_000])
        assert http.post(f"/sessions/{sid}/observe?reply=summary", content=part, headers=RAW).status_code == 200
    some = raw(X[:300], indices[:300])
    for kind in ("softmax", "svm"):
        assert http.post(f"/sessions/{sid}/fits?kind={kind}", content=some, headers=RAW).status_code == 202
    http.post(f"/sessions/{sid}/fits?kind=svm&margin=hard", content=raw(X[:200], [0, 1] * 100), headers=RAW)
    assert sorted(fit["status"] for fit in wait_for_fits(http, sid)) == ["done", "done", "failed"]
    with Client(str(http.base_url)) as client, Client(small.url) as elsewhere:
        file = client.sessions.get(sid).save(tmp_path / "a.ndjson")
        assert list(tmp_path.iterdir()) == [file] and file.stat().st_size > N * (D + 1) * 8
        assert max(len(line) for line in file.read_bytes().splitlines()) < 2 << 20
        copy = elsewhere.sessions.restore(file, name="a copy")
        again = copy.save(tmp_path / "b.ndjson")
        assert (copy.info.name, copy.info.observed) == ("a copy", N)
        bodies = [each.read_bytes().splitlines()[1:-1] for each in (file, again)]
        assert bodies[0] == bodies[1]
        with httpx.Client(base_url=small.url, timeout=60) as there:
            there.patch(f"/sessions/{copy.id}", json={"name": None})
            assert answers(there, copy.id, X[:20]) == answers(http, sid, X[:20])
            assert there.get(f"/sessions/{copy.id}/log").json() == http.get(f"/sessions/{sid}/log").json()
            next_points = raw(X[::-1][:500], indices[:500])
            first, second = (
                each.post(f"/sessions/{name}/observe", content=next_points, headers=RAW).content
                for each, name in ((http, sid), (there, copy.id))
            )
            assert first == second
            assert there.get(f"/sessions/{copy.id}/model").json() == http.get(f"/sessions/{sid}/model").json()


@pytest.fixture(scope="module")
def lines(running: Running) -> list[bytes]:
    """A small snapshot in pieces, with two fits"""
    X, indices = labelled(400)
    with httpx.Client(base_url=running.url, timeout=60) as http:
        sid = opened(http, {"dimension": 2, "algorithm": "perceptron", "keep_points": 100})
        http.post(f"/sessions/{sid}/observe", content=raw(X, indices), headers=RAW)
        for kind in ("softmax", "svm"):
            http.post(f"/sessions/{sid}/fits", json={"kind": kind})
        assert [fit["status"] for fit in wait_for_fits(http, sid)] == ["done", "done"]
        return http.get(f"/sessions/{sid}/snapshot", headers={"accept": "application/x-ndjson"}).content.splitlines(
            True
        )


def sealed(lines: list[bytes]) -> bytes:
    body = b"".join(lines)
    return body + json.dumps({"digest": sha256(body).hexdigest()}).encode() + b"\n"


def changed(lines: list[bytes], at: int, **members: Any) -> bytes:
    return sealed([*lines[:at], json.dumps({**json.loads(lines[at]), **members}).encode() + b"\n", *lines[at + 1 : -1]])


def test_a_json_snapshot_carries_the_fits_too(http: httpx.Client, lines: list[bytes]) -> None:
    sid = http.post("/sessions", content=b"".join(lines), headers=NDJSON).json()["id"]
    document = http.get(f"/sessions/{sid}/snapshot").json()
    assert len(document["fits"]) == 2
    copy = http.post("/sessions", json={"snapshot": document}).json()["id"]
    X, _ = labelled(20, seed=6)
    assert answers(http, copy, X) == answers(http, sid, X)
    fit = next(fit["id"] for fit in document["fits"] if fit["asked"]["kind"] == "svm")
    assert http.post(f"/sessions/{copy}/promote", json={"fit": fit}).status_code == 200


def broken(lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """Bodies that are no whole snapshot, each with what is said of it"""
    head, _, rows, fit, model = (json.loads(each) for each in lines[:5])
    table = np.frombuffer(b64decode(rows["points"]), dtype="<f8").reshape(-1, 3).copy()

    def with_rows(**cell: float) -> str:
        row = {**dict(zip("xyl", table[3], strict=True)), **cell}
        return b64encode(np.array([*table[:3], [row["x"], row["y"], row["l"]], *table[4:]]).tobytes()).decode()

    for n in range(len(lines)):
        yield "ends before", b"".join(lines[:n])
    yield "ends before", b"".join(lines)[:-1]
    yield "behind its last line", b"".join(lines) + b"{}\n"
    yield "digest", b"".join([*lines[:-1], b'{"digest": "00"}\n'])
    yield "digest", b"".join([lines[0].replace(b'"name":null', b'"name":"xxxx"'), *lines[1:]])
    yield "no head", sealed(lines[1:-1])
    yield "no head", changed(lines, 0, version=2)
    yield "no session", changed(lines, 0, session=7)
    yield "size", changed(lines, 0, sizes=None)
    yield "size", changed(lines, 0, sizes={**head["sizes"], "state": 1 << 40})
    yield "keep_points", changed(lines, 0, sizes={**head["sizes"], "points": 101})
    yield "does not have its", changed(lines, 0, sizes={**head["sizes"], "state": 3})
    yield "more points than", changed(lines, 0, sizes={**head["sizes"], "points": 99})
    yield "confusion", changed(lines, 0, counters={**head["counters"], "observed": 401})
    yield "not base64", changed(lines, 1, state="%%%")
    yield "has nothing", sealed([lines[0], b"{}\n", *lines[2:-1]])
    yield "not points", sealed([*lines[:2], *lines[3:-1]])
    yield "whole rows", changed(lines, 2, points=rows["points"][:-4])
    yield "norm", changed(lines, 2, points=with_rows(x=1.0))
    yield "nan", changed(lines, 2, points=with_rows(y=np.nan))
    yield "labels", changed(lines, 2, points=with_rows(l=2.0))
    yield "is empty", changed(lines, 2, points="")
    yield "not an object", sealed([*lines[:-1], b"[]\n"])
    yield "neither a fit", sealed([*lines[:-1], b"{}\n"])
    yield "neither a fit", changed(lines, 3, size=1 << 40)
    yield "a fit twice", sealed([*lines[:-1], *lines[3:5]])
    for member, value in (
        ("status", "running"),
        ("status", "failed"),
        ("id", "a b"),
        ("created", 10**18),
        ("asked", 7),
    ):
        yield "cannot be", changed(lines, 3, fit={**fit["fit"], member: value})
    yield "malformed", changed(lines, 3, fit=None)
    yield "a fit of the snapshot", changed(lines, 3, fit={**fit["fit"], "asked": {"kind": "tree"}})
    yield "a fit of the snapshot", changed(lines, 3, fit={**fit["fit"], "report": {"points": "many"}})
    packed = b64decode(model["model"])
    for field, array in (
        ("weights", np.full((1, 4), np.nan)),
        ("weights", np.ones((1, 7))),
        ("weights", np.ones((2, 4))),
        ("references", np.array([[2.0, 0.0]])),
        ("platt", np.ones((1, 3))),
        ("c", 2.0),
        ("kind", "tree"),
        ("features", "lift"),
    ):
        forged = vars(Classifier.unpack(packed)) | {field: array}
        data = Classifier(**forged).pack()
        told = {**fit, "size": len(data)}
        piece = json.dumps({"model": b64encode(data).decode()}).encode() + b"\n"
        yield "classifier", sealed([*lines[:3], json.dumps(told).encode() + b"\n", piece, *lines[5:-1]])
    yield "classifier", changed(lines, 4, model=b64encode(b"\0" + packed[1:]).decode())


def test_what_is_not_whole_opens_nothing_and_leaves_nothing(
    http: httpx.Client, running: Running, lines: list[bytes]
) -> None:
    store = redis.Redis.from_url(running.redis_url)
    before = set(store.keys())
    for said, body in broken(lines):
        answer = http.post("/sessions?id=half", content=body, headers=NDJSON)
        assert answer.status_code in (400, 422), (said, answer.text[:300])
        assert said in answer.json()["detail"], (said, answer.text[:300])
        assert http.get("/sessions/half").status_code == 404
    assert set(store.keys()) <= before
    assert http.post("/sessions?id=half", content=b"".join(lines), headers=NDJSON).status_code == 201
    http.delete("/sessions/half")


def test_a_sender_that_is_cut_off_opens_nothing(http: httpx.Client, running: Running, lines: list[bytes]) -> None:
    def cut() -> Iterator[bytes]:
        yield from lines[:4]
        raise ConnectionError("cut")

    with pytest.raises(ConnectionError):
        http.post("/sessions?id=cut", content=cut(), headers=NDJSON)
    assert http.get("/sessions/cut").status_code == 404
    again = http.post("/sessions?id=cut", content=b"".join(lines), headers=NDJSON)
    assert again.status_code == 201, again.text
    http.delete("/sessions/cut")


def test_staged_keys_expire(http: httpx.Client, running: Running, lines: list[bytes]) -> None:
    """Those of a service that was killed in the middle of an import"""
    store, seen = redis.Redis.from_url(running.redis_url), list[int]()
    pattern = staged_keys("slow", "*")[0].replace(":log", "*").encode()

    def slow() -> Iterator[bytes]:
        yield b"".join(lines[:5])
        for _ in range(200):
            seen[:] = [store.ttl(key) for key in store.keys(pattern)]
            if len(seen) >= 3:  # the log, fits and models; the points are too few for a block
                break
            yield b""
            httpx.get(f"{running.url}/health/live")  # time for the service to read
        yield b"".join(lines[5:])

    assert http.post("/sessions?id=slow", content=slow(), headers=NDJSON).status_code == 201
    assert len(seen) >= 3 and all(0 < ttl <= 600 for ttl in seen)
    assert not store.keys(pattern)
    assert {store.ttl(key) for key in store.keys("*{slow}*")} == {-1}
    http.delete("/sessions/slow")


def test_the_client_says_what_is_no_snapshot(http: httpx.Client, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    with Client(str(http.base_url)) as client:
        with pytest.raises(WrongArgument, match="cannot be read"):
            client.sessions.restore(file)
        for text in ("", "7", "x,y\n1,2\n", '{\n "a": 1}'):
            file.write_text(text)
            with pytest.raises(WrongArgument, match="no snapshot"):
                client.sessions.restore(str(file))
        session = client.sessions.open(dimension=2)
        file.write_text(json.dumps(session.snapshot(), indent=1))
        assert client.sessions.restore(file).info.dimension == 2
