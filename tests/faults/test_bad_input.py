"""Bad input, as raw bytes: each gets the problem that FAULTS.md names, changes nothing, and is never a 5xx."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.api.problems import STATUS
from service.errors import slug as slug_of
from service.geometry import RADIUS_LIMIT
from service.store.keys import born_key, session_keys, sessions_key
from tests.problem import require_problem
from tests.running import Running

JSON, RAW = "application/json", "application/octet-stream"
NDJSON, NPY = "application/x-ndjson", "application/x-npy"
SLUGS = {f"/problems/{slug_of(kind)}": status for kind, status in STATUS.items()}
MIB = 1 << 20
HUGE = "1" + "0" * 400  # an integer that no float64 comes near


@dataclass(frozen=True)
class Ask:
    """A request. In its path, {id} is a session that has learned, {ended} one that is gone."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, http: httpx.Client, ids: dict[str, str]) -> httpx.Response:
        path = self.path.format(**ids) if "{" in self.path else self.path
        body = self.body.replace(b"<id>", ids["id"].encode()) if self.body else self.body
        body = body.replace(b"<ended>", ids["ended"].encode()) if body else body
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        return http.request(self.method, path, content=body, headers=headers)


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


def opening(body: str | bytes, kind: str = JSON, **headers: str) -> Ask:
    return Ask("POST", "/sessions", _bytes(body), {"content-type": kind, **headers})


def observing(body: str | bytes, kind: str = JSON, sid: str = "{id}", query: str = "", **headers: str) -> Ask:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Ask("POST", f"/sessions/{sid}/observe{query}", _bytes(body), {"content-type": kind, **named})


def predicting(body: str | bytes, kind: str = JSON, sid: str = "{id}", **headers: str) -> Ask:
    return Ask("POST", f"/sessions/{sid}/predict", _bytes(body), {"content-type": kind, **headers})


def labelling(body: str | bytes, kind: str = JSON, query: str = "", **headers: str) -> Ask:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Ask("POST", f"/sessions/{{id}}/labels{query}", _bytes(body), {"content-type": kind, **named})


def changing(body: str | bytes, kind: str = JSON, **headers: str) -> Ask:
    return Ask("PATCH", "/sessions/{id}", _bytes(body), {"content-type": kind, **headers})


def asking(query: str) -> Ask:
    return Ask("GET", "/sessions/{id}/predict" + query)


def rows(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def point(value: str, label: str = "1") -> str:
    """The second point of two has this value."""
    return f'{{"points": [[0.1, 0.2], [0.3, {value}]], "labels": [1, {label}]}}'


def session(name: str, value: str, **others: str) -> str:
    fields = {"dimension": "2", **others, name: value}
    return "{" + ", ".join(f'"{key}": {text}' for key, text in fields.items()) + "}"


Row = tuple[str, Ask, int, str, dict[str, Any]]

GOOD = {
    "session": '{"dimension": 2, "reference": "origin"}',
    "observe": '{"point": [0.1, 0.2], "label": 1}',
    "predict": '{"point": [0.1, 0.2]}',
    "labels": '{"id": "nobody", "label": 1}',
    "change": '{"name": "another"}',
}
BODIES: list[tuple[str, Any]] = [
    *(("session", opening), ("observe", observing), ("predict", predicting)),
    *(("labels", labelling), ("change", changing)),
]
NON_FINITE = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", HUGE, "-" + HUGE, HUGE + ".0"]
NOT_NUMBERS = ['"NaN"', '"0.1"', '""', "true", "false", "null", "[]", "[0.1]", "{}", '{"a": 1}']
DEEP = [990, 1000, 1015]  # deeper than Python shows, not deeper than orjson reads


def malformed() -> Iterator[Row]:
    """What is no JSON in UTF-8"""
    for where, ask in BODIES:
        good = GOOD[where]
        for what, body in {
            "empty": b"",
            "blank": b"  \n",
            "truncated": good[:-1].encode(),
            "cut in a string": b'{"po',
            "trailing garbage": f"{good} x".encode(),
            "two documents": f"{good}{good}".encode(),
            "NUL after": f"{good}\0".encode(),
            "NUL before": f"\0{good}".encode(),
            "byte order mark": b"\xef\xbb\xbf" + good.encode(),
            "UTF-16": good.encode("utf-16"),
            "bad UTF-8": good.encode().replace(b"}", b', "\xff": 1}'),
            "surrogate in UTF-8": good.encode().replace(b"}", b', "\xed\xa0\x80": 1}'),
            "lone surrogate as a key": good.replace("}", ', "\\ud800": 1}').encode(),
            "lone surrogate as a value": good.replace("}", ', "name": "\\ud800"}').encode(),
            "single quotes": good.replace('"', "'").encode(),
            "comma at the end": good.replace("}", ",}").encode(),
            "100,000 lists deep": b"[" * 100_000,
            "100,000 lists deep and closed": b"[" * 100_000 + b"]" * 100_000,
            "100,000 objects deep": b'{"a":' * 100_000,
            "an integer of 5,000 digits": good.replace("}", f', "a": 1{"0" * 5000}}}').encode(),
            "raw values": rows(0.1, 0.2, 1),
        }.items():
            yield f"{where}: {what}", ask(body), 400, "malformed-body", {}
        for what, body in {"list": b"[]", "null": b"null", "string": b'"a"', "number": b"1", "NaN": b"NaN"}.items():
            yield f"{where}: a {what}, not an object", ask(body), 422, "invalid-request", {}
        unknown = good.replace("}", ', "colour": 1}')
        yield f"{where}: unknown field", ask(unknown), 422, "unknown-field", {"field": "colour"}
        yield (
            f"{where}: long unknown field",
            ask(good.replace("}", f', "{"x" * 50000}": 1}}')),
            422,
            "unknown-field",
            {},
        )
        for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data", "x"):
            yield f"{where}: {kind}", ask(good, kind), 415, "unsupported-media-type", {"got": kind}
        for coding in ("gzip", "deflate", "br", "x"):
            refused = ask(good, **{"content-encoding": coding})
            yield f"{where}: {coding}", refused, 415, "unsupported-media-type", {"encoding": coding}
    for where, ask in (("session", opening), ("change", changing), ("labels", labelling)):
        for kind in (RAW, NPY, NDJSON) if where == "change" else (RAW, NPY):
            yield f"{where}: {kind}", ask(rows(1), kind), 415, "unsupported-media-type", {"got": kind}
    for name in ("id", "name", "labels"):
        value = '["\\ud800", "b"]' if name == "labels" else '"\\udfff"'
        yield f"session: lone surrogate in {name}", opening(session(name, value)), 400, "malformed-body", {}
    lone = '{"point": [0, 0], "label": "\\ud800"}'
    yield "observe: lone surrogate as a label", observing(lone), 400, "malformed-body", {}


def opened_badly() -> Iterator[Row]:
    """Fields of a session that are out of their range, or no numbers"""

    def row(name: str, value: str, slug: str, **others: str) -> Row:
        return f"session: {name} = {value:.40}", opening(session(name, value, **others)), 422, slug, {}

    for name, algorithm in (("curvature", "perceptron"), ("a", "second_order"), ("budget", "strategic")):
        chosen = {"algorithm": f'"{algorithm}"'}
        for value in NON_FINITE:
            yield row(name, value, "not-a-number" if value.endswith(HUGE) else "non-finite", **chosen)
        for value in NOT_NUMBERS:
            yield row(name, value, "invalid-request" if value[0] in "[{" else "not-a-number", **chosen)
        yield row(name, "-1", "invalid-request", **chosen)
        yield row(name, "-5e-324", "invalid-request", **chosen)
    for name in ("curvature", "budget"):
        yield row(name, "0", "invalid-request")
    yield row("budget", "1e300", "invalid-parameter", curvature="1e100")
    for value, slug in {
        '{"estimate": {"initial": NaN}}': "non-finite",
        '{"estimate": {"initial": "4"}}': "not-a-number",
        '{"estimate": {"initial": true}}': "not-a-number",
        '{"estimate": {"initial": -1}}': "invalid-request",
        '{"estimate": {"x": 1}}': "unknown-field",
        '{"estimate": 1}': "invalid-request",
    }.items():
        yield row("budget", value, slug, algorithm='"strategic"')
    yield row("keep_events", "1", "unknown-field")
    for name in ("dimension", "keep_points", "ttl_seconds"):
        for value in ("NaN", "Infinity", "1e400", "1.5", "2.0", '"2"', "true"):
            yield row(name, value, "not-a-number")
        for value in ("-1", HUGE, "[]", "{}", "9223372036854775808"):
            yield row(name, value, "invalid-request")
    for name, value in {"dimension": "4097", "ttl_seconds": "0", "keep_points": "10000001"}.items():
        yield row(name, value, "invalid-request")
    yield row("dimension", "0", "invalid-request")
    yield "session: no dimension", opening("{}"), 422, "invalid-request", {}
    for value, slug in {
        "[NaN, 0]": "non-finite",
        "[0, 1e400]": "non-finite",
        '["0.1", 0]': "not-a-number",
        "[0, true]": "not-a-number",
        "[0, null]": "not-a-number",
        "[[0.1], 0]": "invalid-request",
        "[1, 0]": "point-outside-ball",
        "[1e308, 1e308]": "point-outside-ball",
        "[0.1]": "dimension-mismatch",
        "[]": "dimension-mismatch",
        "[0.1, 0.1, 0.1]": "dimension-mismatch",
        '"here"': "invalid-request",
        "1": "invalid-request",
        "NaN": "invalid-request",
        "true": "invalid-request",
    }.items():
        yield row("reference", value, slug)
    yield row("reference", "[0.2, 0]", "point-outside-ball", curvature="100")
    for value in (
        "[1]",
        "[]",
        "[1, 1]",
        '["a", "a"]',
        "[true, 1]",
        "[1.0, 2]",
        "[null, 1]",
        "[NaN, 1]",
        "[[1], 2]",
        "1",
    ):
        yield row("labels", value, "invalid-request")
    for value in (f"[{HUGE}, 1]", "[9223372036854775808, 1]", "null", '"ab"', json.dumps(list(range(1001)))):
        yield row("labels", value, "invalid-request")
    yield row("labels", "[1, 2, 3]", "binary-only", algorithm='"strategic"')
    many = json.dumps(list(range(1000)))
    yield row("labels", many, "invalid-parameter", dimension="4096", algorithm='"second_order"')
    yield row("labels", json.dumps(["a" * 201, "b"]), "invalid-request")
    for dimension in ("1447", "4096"):  # 2²¹ numbers are 1448², and hemisphere coordinates have two more
        yield row("dimension", dimension, "invalid-parameter", algorithm='"second_order"', reference="null")
    for value in ('"svm"', '"Perceptron"', "1", '""', '["perceptron"]'):
        yield row("algorithm", value, "invalid-request")
    for value in ("", " ", "a b", "a/b", "{a}", "a}b", "a:b", "a.b", "a\n", "ä", "a" * 65, "\0", "../a", "%41"):
        yield row("id", json.dumps(value), "invalid-request")
    for value in ("1", "true", "[]", "NaN"):
        yield row("id", value, "invalid-request")
        yield row("name", value, "invalid-request")
    yield row("name", json.dumps("a" * 201), "invalid-request")
    taken = '{"dimension": 2, "reference": "origin", "id": "<id>"}'
    yield "session: id taken", opening(taken), 409, "session-exists", {}
    yield "session: id of one that ended", opening(taken.replace("id>", "ended>")), 409, "session-exists", {}


def points_badly() -> Iterator[Row]:
    """Points and labels that cannot be learned"""
    both: list[tuple[str, Any]] = [("observe", observing), ("predict", lambda body: predicting(_unlabelled(body)))]
    limit = math.tanh(RADIUS_LIMIT / 2)
    for where, ask in both:
        for value in NON_FINITE:
            yield f"{where}: {value:.20} in a point", ask(point(value)), 422, "non-finite", {"index": 1}
        for value in NOT_NUMBERS:
            yield f"{where}: {value} in a point", ask(point(value)), 422, "not-a-number", {"index": 1}
        for depth in DEEP:
            lists, objects = "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth
            yield f"{where}: {depth} lists in a point", ask(point(lists)), 422, "not-a-number", {"index": 1}
            yield f"{where}: {depth} objects in a point", ask(point(objects)), 422, "not-a-number", {"index": 1}
        for value in ("null", "1", '"ab"', '["a", "b"]', '{"a": 1, "b": 2}', "true"):
            row = f'{{"points": [[0.1, 0.2], {value}], "labels": [1, 1]}}'
            yield f"{where}: {value} for a point", ask(row), 422, "not-a-number", {"index": 1}
        for x, y in ((1, 0), (0.8, 0.6), (0.999995, 0), (-1.5, 0.0), (1e308, 0), (2**64, 0)):
            outside = f'{{"points": [[0.1, 0.2], [{x!r}, {y!r}]], "labels": [1, 1]}}'
            members = {"index": 1, "norm": pytest.approx((x * x + y * y) ** 0.5 if x < 1e300 else x), "limit": limit}
            yield f"{where}: norm of {x!r}, {y!r}", ask(outside), 422, "point-outside-ball", members
        for many, index, got in (
            ("[[0.1], [0.1, 0.2, 0.3]]", 0, 1),
            ("[[0.1, 0.2], [0.1, 0.2, 0.3]]", 1, 3),
            ("[[0.1, 0.2], []]", 1, 0),
            ("[[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]", 0, 3),
            ("[[], []]", 0, 0),
        ):
            ragged = f'{{"points": {many}, "labels": [1, 1]}}'
            yield (
                f"{where}: {many}",
                ask(ragged),
                422,
                "dimension-mismatch",
                {"index": index, "expected": 2, "got": got},
            )
        wide = f'{{"points": [["{"a" * MIB}", 0]{", [0, 0]" * 200_000}], "labels": [1]}}'
        yield f"{where}: a long string among many points", ask(wide), 422, "not-a-number", {"index": 0}
        yield f"{where}: no points", ask('{"points": [], "labels": []}'), 422, "empty-batch", {}
        for value in ("{}", "1", '"a"', "null", "NaN"):
            yield f"{where}: points = {value}", ask(f'{{"points": {value}, "labels": []}}'), 422, "invalid-request", {}
        neither, either = '{"labels": [1]}', '{"points": [[0, 0]], "point": [0, 0], "labels": [1]}'
        yield f"{where}: neither point nor points", ask(neither), 422, "invalid-request", {}
        yield f"{where}: both point and points", ask(either), 422, "invalid-request", {}

    for value in (
        "0",
        "2",
        "true",
        "false",
        "1.5",
        "-0.5",
        '"1"',
        "null",
        "NaN",
        "1e400",
        HUGE,
        "[]",
        "[1]",
        "{}",
        '""',
    ):
        yield f"observe: {value:.20} for a label", observing(point("0", value)), 422, "unknown-label", {"index": 1}
    for depth in DEEP:
        deep = point("0", "[" * depth + "]" * depth)
        yield f"observe: {depth} lists for a label", observing(deep), 422, "unknown-label", {"index": 1}
    long = point("0", f'"{"a" * MIB}"')
    yield "observe: a long label", observing(long), 422, "unknown-label", {"index": 1}
    counts = {"points": 1, "labels": 2}
    yield "observe: more labels", observing('{"points": [[0, 0]], "labels": [1, 1]}'), 422, "length-mismatch", counts
    yield "observe: no labels", observing('{"points": [[0, 0]], "labels": []}'), 422, "length-mismatch", {"labels": 0}
    for labels in ('"labels": 1', '"labels": {}', '"labels": "1"', '"labels": null'):
        yield f"observe: {labels}", observing(f'{{"points": [[0, 0]], {labels}}}'), 422, "invalid-request", {}
    yield "observe: neither label nor labels", observing('{"point": [0, 0]}'), 422, "invalid-request", {}
    both_labels = '{"point": [0, 0], "label": 1, "labels": [1]}'
    yield "observe: both label and labels", observing(both_labels), 422, "invalid-request", {}
    yield "predict: with labels", predicting('{"point": [0, 0], "label": 1}'), 422, "unknown-field", {"field": "label"}

    nan, inf = float("nan"), float("inf")
    for number in (nan, inf, -inf):
        seen, body = {"index": 1, "value": str(number)}, rows(0.1, 0.2, 1, 0.1, number, 1)
        yield f"observe raw: {number} in a point", observing(body, RAW), 422, "non-finite", seen
        yield f"predict raw: {number} in a point", predicting(rows(0.1, 0.2, 0.1, number), RAW), 422, "non-finite", seen
    for label in (nan, inf, -inf, -1.0, 0.5, 2.0, 1e300, 5e-324):
        seen, body = {"index": 1, "value": repr(label)}, rows(0.1, 0.2, 1, 0.1, 0.2, label)
        yield f"observe raw: label {label}", observing(body, RAW), 422, "unknown-label", seen
    far = {"index": 1, "norm": 1.0, "limit": limit}
    yield "observe raw: outside", observing(rows(0, 0, 1, 1, 0, 1), RAW), 422, "point-outside-ball", far
    yield "predict raw: outside", predicting(rows(0, 0, 0, 1), RAW), 422, "point-outside-ball", far
    for size in (1, 7, 8, 16, 23, 25, 40):
        yield f"observe raw: {size} bytes", observing(bytes(size), RAW), 422, "dimension-mismatch", {"expected": 3}
    for size in (1, 15, 24):
        yield f"predict raw: {size} bytes", predicting(bytes(size), RAW), 422, "dimension-mismatch", {"expected": 2}
    yield "observe raw: empty", observing(b"", RAW), 422, "empty-batch", {}
    yield "predict raw: empty", predicting(b"", RAW), 422, "empty-batch", {}


def lines_badly() -> Iterator[Row]:
    """The other formats; what they hold is read as JSON's and raw rows' are"""
    good, asked = GOOD["observe"], GOOD["predict"]
    for where, ask, line in (("observe", observing, good), ("predict", predicting, asked)):
        yield f"{where} ndjson: empty", ask(" \n", NDJSON), 422, "empty-batch", {}
        yield f"{where} ndjson: a list", ask(f"{line}\n[]", NDJSON), 400, "malformed-body", {"index": 1}
        yield f"{where} ndjson: two on a line", ask(line + line, NDJSON), 400, "malformed-body", {}
        yield f"{where} ndjson: cut off", ask(line[:-1], NDJSON), 400, "malformed-body", {}
        yield f"{where} ndjson: an empty object", ask(f"{line}\n{{}}", NDJSON), 422, "invalid-request", {"index": 1}
        outside = line.replace("0.2", "1")
        yield f"{where} ndjson: outside", ask(f"{line}\n{outside}", NDJSON), 422, "point-outside-ball", {"index": 1}
        many = '{"points": [[0, 0]]}'
        yield f"{where} ndjson: points", ask(many, NDJSON), 422, "unknown-field", {"field": "points"}
        yield f"{where} npy: none", ask(b"", NPY), 400, "malformed-body", {}
        yield f"{where} npy: raw values", ask(rows(0, 0, 1), NPY), 400, "malformed-body", {}
        for header in ("{'descr': '<f8', 'fortran_order': False, 'shape': (1e999, 3)}", "(" * 3000, "{1: {2}}", "1"):
            file = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
            yield f"{where} npy: {header:.70}", ask(file, NPY), 400, "malformed-body", {}
    apart = '{"point": [0, 0]}\n{"label": 1}'
    yield "observe ndjson: a point, then its label", observing(apart, NDJSON), 422, "invalid-request", {"index": 1}


def labelled_badly() -> Iterator[Row]:
    """Ids, late labels and the true points"""
    for id in ("true", "null", "1.0", "[]", "{}", "NaN", '""', f'"{"a" * 201}"', HUGE):
        ids = f'{{"points": [[0, 0]], "ids": [{id}]}}'
        yield f"predict: {id:.20} for an id", predicting(ids), 422, "invalid-request", {}
        late = f'{{"ids": [{id}], "labels": [1]}}'
        yield f"labels: {id:.20} for an id", labelling(late), 422, "invalid-request", {}
    twice = '{"points": [[0, 0], [0, 0]], "ids": ["a", "a"]}'
    yield "predict: an id twice", predicting(twice), 422, "invalid-request", {}
    few = '{"points": [[0, 0], [0, 0]], "ids": ["a"]}'
    yield "predict: too few ids", predicting(few), 422, "length-mismatch", {"points": 2, "labels": 1}
    for body, slug in {
        '{"ids": [], "labels": []}': "empty-batch",
        '{"ids": ["a"], "labels": [1, 1]}': "length-mismatch",
        '{"ids": ["a", "a"], "labels": [1, 1]}': "invalid-request",
        '{"ids": ["a"], "labels": [0]}': "unknown-label",
        '{"ids": ["a"], "labels": [true]}': "unknown-label",
        '{"ids": ["a"]}': "invalid-request",
        '{"labels": [1]}': "invalid-request",
        '{"ids": {}, "labels": [1]}': "invalid-request",
        '{"ids": ["a"], "labels": [1], "points": [[0, 0]]}': "unknown-field",
    }.items():
        yield f"labels: {body}", labelling(body), 422, slug, {}
    late = GOOD["labels"]
    yield "labels with If-Match", labelling(late, if_match='"1"'), 422, "invalid-request", {"header": "If-Match"}
    yield "labels: a used key", labelling(late, idempotency_key="used"), 422, "key-reused", {}
    yield "labels: no key", labelling(late, idempotency_key=""), 422, "invalid-request", {"header": "Idempotency-Key"}
    yield "labels?reply=x", labelling(late, query="?reply=x"), 422, "invalid-request", {"parameter": "reply"}
    for truth, slug in {
        "[[0, 0], [0, 0]]": "length-mismatch",
        "[[0]]": "dimension-mismatch",
        "[[0, 1]]": "point-outside-ball",
        "[[0, NaN]]": "non-finite",
        "[0]": "not-a-number",
        "null": "invalid-request",
    }.items():
        body = f'{{"points": [[0, 0]], "labels": [1], "truth": {truth}}}'
        yield f"observe: truth = {truth}", observing(body), 422, slug, {}


def changed_badly() -> Iterator[Row]:
    """PATCH, and the queries of the routes that only look"""
    for body, slug in {
        '{"name": 1}': "invalid-request",
        f'{{"name": "{"x" * 201}"}}': "invalid-request",
        '{"ttl_seconds": 0}': "invalid-request",
        '{"ttl_seconds": NaN}': "not-a-number",
        '{"ttl_seconds": true}': "not-a-number",
        f'{{"ttl_seconds": {HUGE}}}': "invalid-request",
        '{"keep_points": -1}': "invalid-request",
        '{"keep_points": null}': "not-a-number",
        '{"keep_points": 1.5}': "not-a-number",
        '{"dimension": 3, "reference": "origin"}': "unknown-field",
        '{"budget": 1.0}': "invalid-request",
        '{"budget": {"estimate": {"initial": NaN}}}': "non-finite",
        '{"budget": {"estimate": {"initial": -1}}}': "invalid-request",
        '{"budget": {"estimate": {"x": 1}}}': "unknown-field",
        '{"budget": {"estimate": {}}}': "invalid-parameter",
    }.items():
        yield f"PATCH {body:.60}", changing(body), 422, slug, {}
    for margin in ("0", "-1", "nan", "inf", "1e400", "x", "", "%00", "%ff"):
        ask = Ask("GET", f"/sessions/{{id}}/certificate?margin={margin}")
        yield f"certificate?margin={margin}", ask, 422, "invalid-parameter", {"name": "margin"}
    for points in ("2", "maybe", "", "%ff"):
        ask = Ask("GET", f"/sessions/{{id}}/snapshot?points={points}")
        yield f"snapshot?points={points}", ask, 422, "invalid-request", {}
    for cursor in ("x", "", "nan", "nan:a", "-nan:", "1e400x", "%00", "%ff"):
        ask = Ask("GET", f"/sessions?cursor={cursor}")
        yield f"sessions?cursor={cursor}", ask, 422, "invalid-request", {"parameter": "cursor"}
    yield "no such problem", Ask("GET", "/problems/none"), 404, "unknown-route", {}


def past_badly() -> Iterator[Row]:
    """The log, the session as it was, and forks"""
    for query in (
        "from=-1",
        "from=x",
        "from=1.5",
        "from=nan",
        "from=1" + "0" * 16,
        "limit=0",
        "limit=100001",
        "limit=x",
    ):
        ask = Ask("GET", f"/sessions/{{id}}/log?{query}")
        yield f"log?{query}", ask, 422, "invalid-request", {}
    for name in ("xml", "", "JSON", "%ff"):
        yield f"log?format={name}", Ask("GET", f"/sessions/{{id}}/log?format={name}"), 422, "invalid-request", {}
    for position in ("-1", "3", "9" * 30):
        ask = Ask("GET", f"/sessions/{{id}}/at/{position}/model")
        yield f"at {position}", ask, 422, "invalid-parameter", {"name": "position"}
    for position in ("x", "1.5", "nan", "%00"):
        yield f"at {position}", Ask("GET", f"/sessions/{{id}}/at/{position}/model"), 422, "invalid-request", {}
    for fields, slug in {
        '"at": -1': "invalid-request",
        '"at": 1.5': "not-a-number",
        '"at": true': "not-a-number",
        '"at": 3': "invalid-parameter",
        '"dimension": 3, "reference": "origin"': "invalid-parameter",
        '"curvature": 2.0': "invalid-parameter",
        '"curvature": NaN': "non-finite",
        '"labels": [0, 1]': "invalid-parameter",
        '"labels": [1, 1]': "invalid-parameter",
        '"algorithm": "svm"': "invalid-request",
        '"reference": [1, 0]': "point-outside-ball",
        '"keep_points": -1': "invalid-request",
        '"id": "a b"': "invalid-request",
        '"colour": 1': "unknown-field",
    }.items():
        yield f"fork: {fields}", opening(f'{{"fork": {{"session": "<id>", {fields}}}}}'), 422, slug, {}
    for body in ("1", "null", "[]", "{}", '{"session": 1}', '{"session": "a b"}'):
        yield f"fork = {body}", opening(f'{{"fork": {body}}}'), 422, "invalid-request", {}
    twice = '{"fork": {"session": "<id>", "id": "a"}, "id": "b"}'
    yield "fork: two ids", opening(twice), 422, "invalid-request", {"field": "id"}
    taken = '{"fork": {"session": "<id>"}, "id": "<ended>"}'
    yield "fork: id of one that ended", opening(taken), 409, "session-exists", {}
    yield "fork of nobody", opening('{"fork": {"session": "never"}}'), 404, "unknown-session", {}
    yield "fork of one that ended", opening('{"fork": {"session": "<ended>"}}'), 410, "session-gone", {}


def _unlabelled(body: str) -> str:
    """The same without labels, for predict"""
    return body.rpartition(', "labels"')[0] + "}" if ', "labels"' in body else "{}"


def asked_badly() -> Iterator[Row]:
    """Queries, headers, paths and verbs"""
    good = GOOD["observe"]
    for query, slug in {
        "": "invalid-request",
        "?x=": "not-a-number",
        "?x=abc": "not-a-number",
        "?x=0.1,": "not-a-number",
        "?x=0.1;0.2": "not-a-number",
        "?x=true,0": "not-a-number",
        "?x=[0.1,0.2]": "not-a-number",
        "?x=1_0,0": "not-a-number",
        "?x=0_0,0": "not-a-number",
        "?x=%D9%A0,0": "not-a-number",
        "?x=0.1%00,0": "not-a-number",
        "?x=nan,0": "non-finite",
        "?x=nan": "non-finite",
        "?x=-inf,0": "non-finite",
        "?x=1e400,0": "non-finite",
        "?x=1,0": "point-outside-ball",
        "?x=0.1": "dimension-mismatch",
        "?x=0.1,0.2,0.3": "dimension-mismatch",
        "?x=0.1,0.2&x=0.1": "dimension-mismatch",
        "?x=0.1,0.2&y=1": "unknown-field",
        "?x=%ff,0": "invalid-request",
    }.items():
        yield f"GET predict{query}", asking(query), 422, slug, {}
    yield "GET predict: no such fit", asking("?x=0.1,0.2&model=fit"), 404, "unknown-fit", {}
    yield "GET predict: no session", Ask("GET", "/predict?x=0,0"), 422, "invalid-request", {"parameter": "session"}
    for value in ("foo", "", "SUMMARY", "columns&reply=foo", "%ff"):
        query = f"?reply={value}"
        yield f"observe{query}", observing(good, query=query), 422, "invalid-request", {"parameter": "reply"}
    for value in ("0", "-1", "abc", "", "1001", "1.5", "1e400", "nan", "9" * 5000):
        yield f"GET sessions?limit={value:.9}", Ask("GET", f"/sessions?limit={value}"), 422, "invalid-request", {}
    for key in ("", "a" * 201):
        header = {"header": "Idempotency-Key"}
        yield f"key {key:.9}", observing(good, idempotency_key=key), 422, "invalid-request", header
    yield "key with another body", observing(good, idempotency_key="used"), 422, "key-reused", {}
    yield "key with another type", observing(rows(0.5, 0.5, 0), RAW, idempotency_key="used"), 422, "key-reused", {}
    for tag in ("", "*", 'W/"1"', '"a"', '"-1"', '"1", "2"', '"1.0"', '"' + "9" * 30 + '"', '"²"'):
        header = {"header": "If-Match"}
        yield f"If-Match {tag:.9}", observing(good, if_match=tag), 422, "invalid-request", header
    for tag in ('"0"', '"999"', "0"):
        yield f"If-Match {tag}", observing(good, if_match=tag), 412, "stale-model", {"version": 1}

    for sid in ("never", "{{id}}", "a%20b", "%00", "%FF", "%7Bepoch%7D", "ä", "a" * 65, "*", "..."):
        for method, path, body in routes(sid):
            ask = Ask(method, path, body, {"content-type": JSON})
            yield f"{method} {path:.60} unknown", ask, 404, "unknown-session", {}
    for method, path, body in routes("{ended}"):
        yield f"{method} {path} ended", Ask(method, path, body, {"content-type": JSON}), 410, "session-gone", {}
    for path in (
        "/nope",
        "/sessions/",
        "/sessions/a/b",
        "/sessions/a%2Fb",
        "/sessions//model",
        "/sessions/{id}/",
        "/Sessions",
    ):
        yield f"GET {path}", Ask("GET", path), 404, "unknown-route", {}
    for method, path in (
        ("PUT", "/sessions"),
        ("DELETE", "/sessions"),
        ("OPTIONS", "/sessions"),
        ("HEAD", "/sessions/{id}/events"),
        ("TRACE", "/sessions"),
        ("POST", "/sessions/{id}"),
        ("PUT", "/sessions/{id}"),
        ("GET", "/sessions/{id}/observe"),
        ("OPTIONS", "/sessions/{id}/observe"),
        ("DELETE", "/sessions/{id}/predict"),
        ("OPTIONS", "/sessions/{id}/predict"),
        ("POST", "/sessions/{id}/model"),
        ("POST", "/predict"),
        ("GET", "/sessions/{id}/labels"),
        ("POST", "/sessions/{id}/events"),
        ("PUT", "/sessions/{id}/snapshot"),
        ("DELETE", "/sessions/{id}/metrics"),
    ):
        yield f"{method} {path}", Ask(method, path), 405, "method-not-allowed", {}
    yield "HEAD of an unknown session", Ask("HEAD", "/sessions/never/predict?x=0,0"), 404, "unknown-session", {}


LOOKS = ("metrics", "certificate", "events", "snapshot", "disk.svg", "log", "at/0/model")


def routes(sid: str) -> list[tuple[str, str, bytes | None]]:
    """Every route of one session"""
    found = [
        ("GET", f"/sessions/{sid}", None),
        ("DELETE", f"/sessions/{sid}", None),
        ("GET", f"/sessions/{sid}/model", None),
        ("GET", f"/sessions/{sid}/predict?x=0.1,0.2", None),
        ("GET", f"/predict?x=0.1,0.2&session={sid}", None),
        ("POST", f"/sessions/{sid}/predict", GOOD["predict"].encode()),
        ("POST", f"/sessions/{sid}/observe", GOOD["observe"].encode()),
        ("POST", f"/sessions/{sid}/labels", GOOD["labels"].encode()),
        ("PATCH", f"/sessions/{sid}", GOOD["change"].encode()),
        *(("GET", f"/sessions/{sid}/{what}", None) for what in LOOKS),
    ]
    return [route for route in found if "%FF" not in sid or "?" not in route[1]]  # a query says that it is not UTF-8


ROWS = [*malformed(), *opened_badly(), *points_badly(), *asked_badly()]
ROWS += [*lines_badly(), *labelled_badly(), *changed_badly(), *past_badly()]


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=30) as found:
        yield found


@pytest.fixture(scope="module")
def ids(client: httpx.Client) -> dict[str, str]:
    """A session that made one mistake, under the key `used`, and one that has ended"""
    names = {"id": f"bad-{uuid4().hex}", "ended": f"ended-{uuid4().hex}"}
    for sid in names.values():
        assert client.post("/sessions", json={"id": sid, "dimension": 2, "reference": "origin"}).status_code == 201
    learned = {"points": [[0.5, 0.1], [0.1, 0.2]], "labels": [-1, -1]}
    answer = client.post(f"/sessions/{names['id']}/observe", json=learned, headers={"Idempotency-Key": "used"})
    assert answer.json()["session"] == {"observed": 2, "mistakes": 1, "updates": 1, "version": 1}
    assert client.delete(f"/sessions/{names['ended']}").status_code == 204
    return names


def everything(client: httpx.Client, ids: dict[str, str]) -> list[Any]:
    """The session, its model and what is counted, as the service tells it"""
    look, model, counted = (client.get(f"/sessions/{ids['id']}{what}") for what in ("", "/model", "/metrics"))
    assert look.status_code == model.status_code == counted.status_code == 200
    return [look.json(), model.json(), model.headers["etag"], counted.json()]


@pytest.fixture(scope="module")
def before(client: httpx.Client, ids: dict[str, str]) -> list[Any]:
    """Nothing of this module changes that session, so it is looked at once."""
    return everything(client, ids)


@pytest.fixture(scope="module")
def store(running: Running) -> Iterator[redis.Redis]:
    with running.client() as found:
        yield found


def kept(store: redis.Redis, ids: dict[str, str]) -> list[Any]:
    """What a request could have changed: all that the store has of the session, and which was opened last"""
    with store.pipeline(transaction=False) as asked:
        for key in (born_key(ids["id"]), *session_keys(ids["id"])):
            asked.dump(key)
        asked.zrevrange(sessions_key(), 0, 0)
        return list(asked.execute())


@contextmanager
def unchanged(store: redis.Redis, ids: dict[str, str]) -> Iterator[None]:
    before = kept(store, ids)
    assert any(before[:-1]) and before[-1]
    yield
    assert kept(store, ids) == before


@pytest.fixture(scope="module")
def paths(client: httpx.Client) -> dict[str, Any]:
    """Of the OpenAPI document"""
    found: dict[str, Any] = client.get("/openapi.json").json()["paths"]
    return found


def documented(paths: dict[str, Any], ask: Ask, status: int, slug: str) -> bool:
    """Whether the document says that this route may answer so"""
    if slug in ("unknown-route", "method-not-allowed"):
        return True
    for path, operations in paths.items():
        shape = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
        if re.fullmatch(shape, ask.path.partition("?")[0]) and ask.method.lower() in operations:
            answer = operations[ask.method.lower()]["responses"].get(str(status), {})
            return f"`{slug}`" in answer.get("description", "")
    return ask.method == "HEAD"


@pytest.mark.parametrize(("ask", "status", "slug", "members"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_bad_input_is_a_problem_and_changes_nothing(
    client: httpx.Client,
    store: redis.Redis,
    ids: dict[str, str],
    before: list[Any],
    paths: dict[str, Any],
    ask: Ask,
    status: int,
    slug: str,
    members: dict[str, Any],
) -> None:
    with unchanged(store, ids):
        answer = ask.send(client, ids)
    require_problem(answer, status, slug, **(members or {}))
    assert documented(paths, ask, status, slug)
    if status == 412:
        assert answer.headers["etag"] == before[2]
    if status == 405:
        assert answer.headers["allow"]


def test_nor_does_the_service_tell_anything_else_of_the_session(
    client: httpx.Client, ids: dict[str, str], before: list[Any]
) -> None:
    """After all of these, by whichever worker"""
    assert all(everything(client, ids) == before for _ in range(4))


@pytest.mark.parametrize(
    "ask",
    [
        *(ask(GOOD[where]) for where, ask in BODIES),
        *(ask(GOOD[where], f"{JSON}; charset=utf-8") for where, ask in BODIES),
        opening(GOOD["session"], **{"content-encoding": "identity"}),
        opening(session("name", '"\\u0000\\ud83d\\ude00"')),
        opening(session("reference", "[0, 0.5]", curvature="1", a="0", budget="3")),
        opening(session("reference", "null")),
        opening(session("algorithm", "null")),
        observing(' { "points" : [ [ 0 , -0.0 ] , [ 1e-400 , 5E-1 ] ] , "labels" : [ 1 , -1 ] } \n'),
        observing('{"point": [5, 5], "point": [0.1, 0.2], "label": 7, "label": 1}'),
        observing('{"po\\u0069nts": [[0.1, 0.2]], "label": 1}'),
        observing(rows(-0.0, 0.5, -0.0), RAW),
        observing(GOOD["observe"] + "\r\n\n" + GOOD["observe"], NDJSON),
        predicting(rows(0.1, 0.2), "APPLICATION/octet-stream ; x=y"),
        predicting('{"points": [[0, 0], [0, 0]], "ids": [1, "1"]}'),
        labelling(GOOD["labels"], NDJSON),
        changing("{}"),
        changing('{"ttl_seconds": null, "name": null}'),
        asking("?x=0,-.5&x=%201e-1,+0"),
    ],
    ids=lambda ask: f"{ask.method} {ask.path} {(ask.body or b'')[:40]!r}",
)
def test_what_looks_bad_and_is_not(client: httpx.Client, ask: Ask) -> None:
    """The same requests without their fault are taken, so that the rows above are refused for it alone."""
    sid = client.post("/sessions", json={"dimension": 2, "reference": "origin"}).json()["id"]
    answer = ask.send(client, {"id": sid, "ended": ""})
    assert answer.status_code in (200, 201), answer.text
    assert answer.headers["content-type"] == JSON


def test_an_expired_session_is_gone(client: httpx.Client) -> None:
    sid = client.post("/sessions", json={"dimension": 2, "reference": "origin", "ttl_seconds": 1}).json()["id"]
    typed = {"content-type": JSON}
    assert client.post(f"/sessions/{sid}/observe", content=GOOD["observe"], headers=typed).status_code == 200
    deadline = time.monotonic() + 10
    while client.get(f"/sessions/{sid}").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for method, path, body in routes(sid):
        require_problem(client.request(method, path, content=body, headers=typed), 410, "session-gone")
    require_problem(
        client.post("/sessions", json={"dimension": 3, "reference": "origin", "id": sid}), 409, "session-exists"
    )
    listed = client.get("/sessions", params={"limit": 1000}).json()["sessions"]
    assert sid not in [each["id"] for each in listed]


# ------------------------------------------------------------------------------------- size


def chunks(size: int) -> Iterator[bytes]:
    """So many bytes, without a Content-Length"""
    for start in range(0, size, MIB):
        yield b"[" * min(MIB, size - start)


@pytest.mark.parametrize("whole", [True, False], ids=["Content-Length", "chunked"])
@pytest.mark.parametrize(
    ("path", "kind", "limit"),
    [
        ("/sessions", JSON, MIB),
        ("/sessions/{id}/observe", JSON, 8 * MIB),
        ("/sessions/{id}/observe", RAW, 32 * MIB),
        ("/sessions/{id}/predict", RAW, 32 * MIB),
    ],
)
def test_a_body_over_the_limit(
    client: httpx.Client, store: redis.Redis, ids: dict[str, str], path: str, kind: str, limit: int, whole: bool
) -> None:
    content = b"[" * (limit + 1) if whole else chunks(limit + 1)
    with unchanged(store, ids):
        answer = client.post(path.format(**ids), content=content, headers={"content-type": kind})
    require_problem(answer, 413, "body-too-large", limit=limit)


@pytest.mark.parametrize(
    "head", [b'{"name": "snapshot", ', b'{"id": "a", "name": "snapshot", ', b'{"x": {"snapshot": {}}, ']
)
def test_the_word_snapshot_does_not_lift_the_limit(client: httpx.Client, head: bytes) -> None:
    body = head + b'"dimension": 2}'.rjust(MIB + 1)
    answer = client.post("/sessions", content=body, headers={"content-type": JSON})
    require_problem(answer, 413, "body-too-large", limit=MIB)


def test_an_npy_shape_that_no_machine_holds(client: httpx.Client, ids: dict[str, str]) -> None:
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 100000000000000000000)}".ljust(117) + b"\n"
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
    for path in ("observe", "predict"):
        answer = client.post(f"/sessions/{ids['id']}/{path}", content=body, headers={"content-type": NPY})
        require_problem(answer, 400, "malformed-body")


def test_a_body_at_the_limit_is_read(client: httpx.Client) -> None:
    typed = {"content-type": JSON}
    sid = client.post("/sessions", content=GOOD["session"].ljust(MIB), headers=typed).json()["id"]
    whole = GOOD["observe"].ljust(8 * MIB).encode()
    answer = client.post(f"/sessions/{sid}/observe?reply=summary", content=whole, headers=typed)
    assert answer.json()["accepted"] == 1


@pytest.mark.parametrize("path", ["/sessions", "/sessions/{id}/observe"])
def test_memory_stays_flat_however_much_is_sent(
    running: Running, client: httpx.Client, ids: dict[str, str], path: str
) -> None:
    before = peak_memory(running)
    answer = client.post(path.format(**ids), content=chunks(256 * MIB), headers={"content-type": RAW})
    require_problem(answer, 413, "body-too-large")
    assert peak_memory(running) < before + 80 * MIB


def peak_memory(running: Running) -> int:
    """Of all workers together, in bytes"""
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in running.worker_pids]
    assert statuses
    return sum(int(status.partition("VmHWM:")[2].split()[0]) * 1024 for status in statuses)


@pytest.mark.parametrize("path", ["/sessions", "/sessions/{id}/observe"])
def test_a_client_that_leaves_in_mid_body(
    running: Running, client: httpx.Client, store: redis.Redis, ids: dict[str, str], before: list[Any], path: str
) -> None:
    last, body = kept(store, ids), GOOD["observe" if "observe" in path else "session"].encode()
    head = f"POST {path.format(**ids)} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body) + 1}\r\n\r\n".encode()
    where = httpx.URL(running.url)
    assert where.port is not None
    with socket.create_connection((where.host, where.port), timeout=10) as left:
        left.sendall(head + body)
    with socket.create_connection((where.host, where.port), timeout=10) as half:
        half.sendall(head + body)
        half.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            assert not half.recv(1000).startswith((b"HTTP/1.1 2", b"HTTP/1.1 5"))
    assert everything(client, ids) == before and kept(store, ids) == last


# ------------------------------------------------------------------------------------- fuzz

NAMES = "points labels point label dimension curvature reference a budget keep_points ttl_seconds id name".split()
NAMES += "ids truth snapshot fork session at".split()
TOKENS = [*NON_FINITE, *NOT_NUMBERS, "0", "1", "2", "-1", "0.5", "-0.3", "1e-400", "5e-324", '"origin"', '"strategic"']
TOKENS += ['"\\ud800"', '"second_order"', '{"estimate": {"initial": 1e300}}', "[0.1, 0.2]", "[[0.1, 0.2]]", "[1]"]
keys = st.sampled_from(NAMES).map(json.dumps) | st.text(max_size=5).map(json.dumps)
texts = st.recursive(
    st.sampled_from(TOKENS) | st.text(max_size=5).map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: f"[{','.join(parts)}]")
        | st.dictionaries(keys, inner, max_size=5).map(
            lambda parts: "{" + ",".join(f"{key}:{value}" for key, value in parts.items()) + "}"
        )
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(NAMES).map(json.dumps), texts, min_size=1, max_size=6).map(
    lambda parts: "{" + ",".join(f"{key}:{value}" for key, value in parts.items()) + "}"
)
bodies = st.binary(max_size=64) | texts.map(str.encode) | objects.map(str.encode)
visible = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_categories=["Cc"]), max_size=12)
values = visible.map(str.strip) | st.sampled_from(
    [JSON, RAW, NDJSON, NPY, "gzip", '"0"', '"1"', "identity", "text/plain"]
)
header_names = [b"content-type", b"content-encoding", b"idempotency-key", b"if-match", b"if-none-match", b"accept"]
headers = st.dictionaries(st.sampled_from(header_names), values.map(lambda value: value.encode("latin-1")), max_size=3)
parameters = st.sampled_from(["x", "session", "model", "reply", "limit", "cursor", "margin", "from", "format", "y"])
arguments = st.binary(max_size=8) | st.sampled_from(
    [b"0.1,0.2", b"nan,0", b"1e400", b"summary", b"online", b"1", b"-1"]
)
queries = st.lists(st.tuples(parameters, arguments.map(lambda value: quote(value, safe=",")))).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
) | st.binary(max_size=16).map(lambda raw: quote(raw, safe="=&,;+"))
fuzzed = settings(
    derandomize=True,
    deadline=None,
    max_examples=1000 if "SOAK_SECONDS" in os.environ else 40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def prey(client: httpx.Client) -> str:
    """A session that may change"""
    return str(client.post("/sessions", json={"dimension": 2, "reference": "origin"}).json()["id"])


@pytest.fixture(scope="module")
def changed(client: httpx.Client) -> str:
    """Another, which may expire"""
    return str(
        client.post("/sessions", json={"dimension": 2, "reference": "origin", "algorithm": "strategic"}).json()["id"]
    )


def require_sane(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text[:500]
    if answer.status_code < 400:
        kind = answer.headers.get("content-type", JSON)
        assert kind in (JSON, NDJSON, NPY, "image/svg+xml")
        assert answer.content or answer.status_code in (204, 304) or kind == NDJSON  # no lines: no points
        return
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert SLUGS[problem["type"]] == problem["status"] == answer.status_code
    assert problem["title"] and problem["detail"]


@fuzzed
@given(body=bodies, headers=headers, query=queries)
def test_no_body_header_or_query_is_a_5xx(
    client: httpx.Client, prey: str, changed: str, body: bytes, headers: dict[bytes, bytes], query: str
) -> None:
    for path in ("/sessions", "/sessions/{id}/observe", "/sessions/{id}/predict", "/sessions/{id}/labels"):
        require_sane(client.post(path.format(id=prey), content=body, headers={"content-type": JSON}))
        require_sane(client.post(f"{path.format(id=prey)}?{query}", content=body, headers=headers))
    require_sane(client.patch(f"/sessions/{changed}", content=body, headers={"content-type": JSON}))


@fuzzed
@given(query=queries, headers=headers, sid=st.text(st.characters(codec="utf-8"), min_size=1, max_size=70))
def test_no_query_or_path_is_a_5xx(
    client: httpx.Client, prey: str, query: str, headers: dict[bytes, bytes], sid: str
) -> None:
    for path in ("/sessions", "/predict", "/sessions/{id}/predict", "/sessions/{id}/model", "/sessions/{id}", "/nope"):
        require_sane(client.get(f"{path.format(id=prey)}?{query}", headers=headers))
    for look in ("metrics", "certificate", "snapshot", "disk.svg", "log", "at/0/model"):
        require_sane(client.get(f"/sessions/{prey}/{look}?{query}", headers=headers))
    for verb, path in (("GET", ""), ("DELETE", ""), ("GET", "/model"), ("POST", "/observe"), ("PUT", "")):
        require_sane(client.request(verb, f"/sessions/{quote(sid, safe='')}{path}"))
