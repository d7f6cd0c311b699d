"""WebSocket /sessions/{id}/stream: numbered messages, each answered in order with what observe would say."""

from __future__ import annotations

import asyncio
import json
import socket as sockets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from clients import Client, PointOutsideBall, SessionGone, StaleModel, TakenOver
from service.sessions.producers import MOST, advanced, connected, out_of_turn
from service.sessions.records import Producer
from service.sessions.requests import Numbered, Request
from service.sessions.rows import empty
from service.store.keys import state_key
from tests.opening import opened
from tests.relay import relay
from tests.running import Running, service
from tests.storing import storing

POINTS = np.random.default_rng(5).uniform(-0.6, 0.6, (200, 2)).round(3)
LABELS = [1 if x[0] > 0.2 * x[1] else -1 for x in POINTS]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, asked_store: dict[str, str]) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("messages") / "data"
    with service(
        folder,
        workers=2,
        HOROCYCLE_HEARTBEAT="0.3",
        HOROCYCLE_BODY_LIMIT="100000",
        HOROCYCLE_FIT_WORKERS="0",
        **asked_store,
    ) as found:
        yield found


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=30) as client:
        yield client


@contextmanager
def streaming(http: httpx.Client, sid: str, query: str = "") -> Iterator[tuple[ClientConnection, dict[str, Any]]]:
    url = f"{str(http.base_url).replace('http', 'ws', 1)}/sessions/{sid}/stream{query}"
    with connect(url, compression=None) as socket:
        yield socket, heard(socket)["hello"]


def heard(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(30))
    return found


def said(socket: ClientConnection, message: Any) -> dict[str, Any]:
    socket.send(message if isinstance(message, bytes | str) else json.dumps(message))
    return heard(socket)


def one(i: int, **more: Any) -> dict[str, Any]:
    return {"point": POINTS[i].tolist(), "label": LABELS[i], **more}


def raw(rows: range) -> bytes:
    return np.column_stack([POINTS[rows], np.array(LABELS)[rows] > 0]).astype("<f8").tobytes()


# ------------------------------------------------------------------------------------------- what observe would say


@pytest.mark.parametrize("query", ["", "?producer=p"])
def test_every_message_is_answered_as_observe_would(http: httpx.Client, query: str) -> None:
    sid, twin = opened(http, {"dimension": 2}), opened(http, {"dimension": 2})
    messages: list[tuple[Any, dict[str, Any]]] = [
        (one(0), {"json": one(0)}),
        ({"points": POINTS[1:4].tolist(), "labels": LABELS[1:4]}, {}),
        (raw(range(4, 30)), {"content": raw(range(4, 30)), "headers": {"content-type": "application/octet-stream"}}),
        ({**one(30), "reply": "summary"}, {"json": one(30), "params": {"reply": "summary"}}),
        ({**one(31), "truth": [0.0, 0.1]}, {}),
        ({"point": [2.0, 0.0], "label": 1}, {}),
        ({**one(32), "if_match": 10_000}, {"json": one(32), "headers": {"if-match": '"10000"'}}),
        ({"point": [0.1], "label": 1}, {}),
        ("{", {"content": "{", "headers": {"content-type": "application/json"}}),
        (
            '{"point": [NaN, 0.1], "label": 1, "reply": "summary"}',
            {"content": '{"point": [NaN, 0.1], "label": 1}', "headers": {"content-type": "application/json"}},
        ),
        ({**one(33), "surprise": 1}, {}),
        (one(34), {}),
    ]
    with streaming(http, sid, query) as (socket, hello):
        assert hello["seq"] == hello["observed"] == 0
        for seq, (message, request) in enumerate(messages, 1):
            answer = http.post(f"/sessions/{twin}/observe", **(request or {"json": message})).json()
            expected = {"seq": seq, **(answer if "type" not in answer else {"problem": answer})}
            assert said(socket, message) == expected
    assert http.get(f"/sessions/{sid}/model").json() == http.get(f"/sessions/{twin}/model").json()


def test_an_if_match_is_taken_up_to_the_first_change(http: httpx.Client) -> None:
    sid, twin = opened(http, {"dimension": 2}), opened(http, {"dimension": 2})
    body = {"points": POINTS[:50].tolist(), "labels": LABELS[:50]}
    expected = http.post(f"/sessions/{twin}/observe", json=body, headers={"if-match": '"0"'}).json()
    assert expected["accepted"] < 50
    with streaming(http, sid, "?producer=p") as (socket, _):
        assert said(socket, {**body, "if_match": 0}) == {"seq": 1, **expected}


def test_late_labels_come_over_it(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    http.post(f"/sessions/{sid}/predict", json={"points": POINTS[:2].tolist(), "ids": ["a", "b"]}).raise_for_status()
    with streaming(http, sid, "?producer=p") as (socket, _):
        answer = said(socket, {"ids": ["a", "x"], "labels": [1, -1]})
        assert (answer["accepted"], answer["ids"], answer["unknown"]) == (1, ["a"], ["x"])
        again = said(socket, {"ids": ["a", "b"], "labels": [1, -1], "reply": "summary"})
        assert (again["ids"], again["already_learned"], "scores" in again) == (["b"], ["a"], False)
        assert said(socket, {"ids": ["b"], "labels": [1], "if_match": 1})["problem"]["status"] == 422
        assert said(socket, {"again": 1}) == answer


@pytest.mark.parametrize(
    ("sid", "query", "status"),
    [
        *(("none", "", 404), ("", "?producer=a%20b", 422), ("", "?window=0", 422), ("", "?reply=loud", 422)),
        *(("", "?connection=1", 422), ("", "?producer=p&connection=0", 422), ("", "?producer=p&connection=1e3", 422)),
    ],
)
def test_who_may_not_stream_gets_a_problem_before_the_handshake(
    http: httpx.Client, sid: str, query: str, status: int
) -> None:
    sid = sid or opened(http, {"dimension": 2})
    with pytest.raises(InvalidStatus) as refused, streaming(http, sid, query):
        pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["status"] == status


def test_a_message_beyond_the_limit_closes_the_connection_and_is_not_learned(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    with streaming(http, sid, "?producer=p") as (socket, _), pytest.raises(ConnectionClosed) as closed:
        said(socket, bytes(24 * 5000))
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    with streaming(http, sid, "?producer=p") as (_, hello):
        assert (hello["seq"], hello["observed"]) == (0, 0)


def test_an_ended_session_closes_it(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    with streaming(http, sid, "?producer=p") as (socket, _):
        said(socket, one(0))
        http.delete(f"/sessions/{sid}").raise_for_status()
        with pytest.raises(ConnectionClosed) as closed:
            said(socket, one(1))
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4410, "/problems/session-gone")


# ------------------------------------------------------------------------------------------------- numbers


def test_a_producer_goes_on_where_it_was_and_hears_what_it_missed(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    with streaming(http, sid, "?producer=p&window=3") as (socket, hello):
        assert hello["window"] == 3
        answers = [said(socket, message) for message in (one(0), {"point": [9, 9], "label": 1}, one(1))]
    with streaming(http, sid, "?producer=p") as (socket, hello):
        assert (hello["seq"], hello["observed"]) == (3, 2)  # the refused one has used its number up
        for seq in (3, 1, 2):
            assert said(socket, {"again": seq}) == answers[seq - 1]
        assert said(socket, {"again": 4})["problem"]["again"] == 4
        assert said(socket, one(2))["seq"] == 4
    with streaming(http, sid, "?producer=q") as (socket, hello):
        assert (hello["seq"], hello["observed"]) == (0, 3)
        assert "problem" in said(socket, {"again": 1})


def test_more_than_the_window_may_be_sent_and_all_is_answered_in_order(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    with streaming(http, sid, "?producer=p&window=4") as (socket, _):
        for i in range(200):
            socket.send(json.dumps(one(i)))
        answers = [heard(socket) for _ in range(200)]
    assert [answer["seq"] for answer in answers] == list(range(1, 201))
    assert [answer["session"]["observed"] for answer in answers] == list(range(1, 201))


def test_a_second_connection_of_a_producer_closes_the_first_on_any_worker(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    for _ in range(6):  # the kernel chooses the worker
        with streaming(http, sid, "?producer=p") as (first, _), streaming(http, sid, "?producer=p") as (second, hello):
            with pytest.raises(ConnectionClosed) as closed:
                first.recv(30)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 4409
            assert said(second, one(0))["seq"] == hello["seq"] + 1


def test_a_connection_whose_number_is_not_above_the_newest_is_refused_and_disturbs_nobody(http: httpx.Client) -> None:
    sid = opened(http, {"dimension": 2})
    with streaming(http, sid, "?producer=p&connection=7") as (socket, hello):
        assert hello["connection"] == 7
        for late in (1, 6, 7):
            with pytest.raises(InvalidStatus) as refused, streaming(http, sid, f"?producer=p&connection={late}"):
                pass
            problem = json.loads(refused.value.response.body or b"")
            expected = ("/problems/earlier-connection", 409, late, 7)
            assert (problem["type"], problem["status"], problem["connection"], problem["newest"]) == expected
        time.sleep(0.7)  # two heartbeats
        assert said(socket, one(0))["seq"] == 1
        with streaming(http, sid, "?producer=p") as (_, hello):
            assert (hello["seq"], hello["connection"]) == (1, 8)
        with pytest.raises(ConnectionClosed):
            said(socket, one(1))


def test_only_so_many_producers_are_remembered_and_the_idle_ones_are_forgotten_first() -> None:
    producers: Any = {}
    for i in range(MOST + 3):
        producers = connected(producers, f"p{i}", now=i)
    assert len(producers) == MOST and "p2" not in producers and "p3" in producers
    assert connected(producers, "p3", now=5)["p3"] == Producer(0, 2, 5)


def test_messages_are_taken_in_turn_and_from_the_newest_connection() -> None:
    def message(producer: str, connection: int, seq: int) -> Request:
        return Request(empty(2), numbered=Numbered(producer, connection, seq, lambda _: b""))

    producers = {"p": Producer(4, 2, 0), "q": Producer(0, 1, 0)}
    requests = [message("p", 2, 5), message("q", 1, 1), Request(empty(2)), message("p", 2, 6), message("q", 1, 2)]
    assert out_of_turn(producers, requests) == []
    after = advanced(producers, requests, now=9)
    assert after == {"p": Producer(6, 2, 9), "q": Producer(2, 1, 9)}
    assert out_of_turn(producers, [message("p", 2, 6), message("p", 2, 5), message("p", 1, 6), message("r", 1, 1)]) == [
        0,
        2,
        3,
    ]
    assert advanced(producers, [Request(empty(2))], now=9) is producers


def test_forgotten_producers_leave_the_store(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.sessions.producers.MOST", 2)

    async def connect_four() -> set[str]:
        async with storing(running.redis_url) as parts:
            sid = (await parts.opened()).spec.id
            for name in "abcd":
                await parts.ingest.connect(sid, name)
            assert (await parts.store.load(sid)).producers.keys() == {"c", "d"}
            names = await parts.connection.call("HKEYS", state_key(sid))
            return {name.decode() for name in names if name.startswith(b"producer:")}

    assert asyncio.run(connect_four()) == {"producer:c", "producer:d"}


# ------------------------------------------------------------------------------------------------------- the SDK


def test_the_client_streams_and_collects_the_answers(running: Running) -> None:
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2)
        with session.stream(window=8) as stream:
            for x, y in zip(POINTS[:50], LABELS[:50], strict=True):
                stream.send(x, y)
            assert stream.receive().session.observed == 1
            answers = stream.flush()
            assert [answer.session.observed for answer in answers] == list(range(2, 51))
            stream.send(POINTS[50:90], LABELS[50:90], columns=False)
            summary = stream.receive()
            assert (summary.accepted, summary.scores) == (40, None)
            with pytest.raises(ValueError, match="answered"):
                stream.receive()
        assert session.refresh().observed == 90


def test_a_refused_message_is_raised_where_its_answer_is_received(running: Running) -> None:
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2)
        with session.stream() as stream:
            stream.send(POINTS[0], LABELS[0])
            refused = stream.send([2.0, 0.0], 1)
            stream.send(POINTS[1], LABELS[1], if_match=10_000)
            stream.send(POINTS[2], LABELS[2])
            stream.receive()
            with pytest.raises(PointOutsideBall) as raised:
                stream.receive()
            assert raised.value.seq == refused == 2
            with pytest.raises(StaleModel):
                stream.flush()
        assert session.refresh().observed == 2


def test_a_named_producer_is_told_its_number_and_another_connection_takes_over(running: Running) -> None:
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2)
        with pytest.raises(TakenOver), session.stream(producer="me") as first:
            first.send(POINTS[0], LABELS[0])
            first.flush()
            with session.stream(producer="me") as second:
                assert second.seq == 1
                while True:
                    first.send(POINTS[1], LABELS[1])
                    first.flush()


def test_an_attempt_to_connect_that_arrives_after_the_next_one_takes_nothing_over(running: Running) -> None:
    """As one does that waited at a worker that was stopped, until its client had given it up"""
    with withholding(running.url) as (url, withheld), Client(url) as client:
        session = client.sessions.open(dimension=2)
        for producer in ("me", "me"):  # the second begins behind connections of another
            with session.stream(producer=producer) as stream:
                stream.send(POINTS[0], LABELS[0])
                assert len(stream.flush()) == 1
                late = withheld.pop()
                with sockets.create_connection(("127.0.0.1", httpx.URL(running.url).port)) as arriving:
                    arriving.sendall(late)
                    assert arriving.recv(1000).startswith(b"HTTP/1.1 409 ")
                time.sleep(0.7)  # two heartbeats
                stream.send(POINTS[1], LABELS[1])
                assert len(stream.flush()) == 1
        assert client.sessions.get(session.id).info.observed == 4


@contextmanager
def withholding(url: str) -> Iterator[tuple[str, list[bytes]]]:
    """Passes connections on; but while nothing is withheld, a handshake is, and its connection closed"""
    withheld: list[bytes] = []
    upstream = httpx.URL(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readuntil(b"\r\n\r\n")
        if b"/stream?" in first and not withheld:
            withheld.append(first)
            return writer.close()
        above, to_above = await asyncio.open_connection(upstream.host, upstream.port)
        try:
            to_above.write(first)
            await asyncio.gather(forward(reader, to_above), forward(above, writer))
        finally:
            to_above.transport.abort()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(65536):
                writer.write(some)
        writer.close()

    with relay(serve) as address:
        yield address, withheld


def test_streaming_to_no_session_is_its_problem(running: Running) -> None:
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2)
        session.end()
        with pytest.raises(SessionGone), session.stream():
            pass


def test_many_producers_at_once_are_all_served(running: Running) -> None:
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2)

        def produce(i: int) -> int:
            with session.stream() as stream:
                for j in range(20):
                    stream.send(POINTS[(i + j) % 200], LABELS[(i + j) % 200])
                return len(stream.flush())

        with ThreadPoolExecutor(16) as aside:
            assert sum(aside.map(produce, range(16))) == 320
        assert session.refresh().observed == 320


@pytest.mark.parametrize("producer", [True, False])
def test_a_label_that_another_worker_has_added_is_known(http: httpx.Client, producer: bool) -> None:
    sid = opened(http, {"dimension": 2, "labels": ["a", "b"], "algorithm": "perceptron"})
    with ExitStack() as open_ones:
        sockets = []
        for i in range(6):  # over both workers
            query = f"?producer=p{i}" if producer else ""
            socket, _ = open_ones.enter_context(streaming(http, sid, query))
            assert said(socket, {"point": [0.1, 0.2], "label": "a"})["accepted"] == 1
            sockets.append(socket)
        assert http.patch(f"/sessions/{sid}", json={"add_labels": ["c"]}).status_code == 200
        for socket in sockets:
            assert said(socket, {"point": [0.1, 0.2], "label": "c"})["accepted"] == 1
            assert said(socket, {"point": [0.1, 0.2], "label": "d"})["problem"]["type"].endswith("unknown-label")


@pytest.mark.parametrize("query", ["", "?producer=burst"])
def test_good_and_bad_messages_that_come_at_once_are_answered_in_their_order(http: httpx.Client, query: str) -> None:
    sid = opened(http, {"dimension": 2, "algorithm": "perceptron", "reference": "origin"})
    rows = np.column_stack([POINTS[:3], [label > 0 for label in LABELS[:3]]])
    burst: list[tuple[Any, int | str]] = [
        (json.dumps(one(0)), 1),
        ("{", "malformed-body"),
        (json.dumps({"point": [0.1, 0.2], "label": 7}), "unknown-label"),
        (rows.tobytes(), 3),
        (rows.tobytes()[:-8], "dimension-mismatch"),
        (json.dumps({"point": [1.5, 0], "label": 1}), "point-outside-ball"),
        (json.dumps(one(1, reply="summary")), 1),
        ('{"points": [[1e400, 0]], "labels": [1]}', "non-finite"),
        (json.dumps({"label": 1, "point": [0.1, 0.2], "truth": [0.1, 0.1]}), 1),
        (json.dumps(one(2)), 1),
    ]
    with streaming(http, sid, query) as (socket, _):
        for message, _ in burst:
            socket.send(message)
        told = [heard(socket) for _ in burst]
    assert [each["seq"] for each in told] == list(range(1, len(burst) + 1))
    found = [each["problem"]["type"].rpartition("/")[2] if "problem" in each else each["accepted"] for each in told]
    assert found == [expected for _, expected in burst]
    assert told[-1]["session"]["observed"] == 7
