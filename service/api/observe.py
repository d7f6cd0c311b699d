"""POST /sessions/{id}/observe: for each labelled point, in order, predict, then learn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import numpy as np
import orjson
from starlette.types import Receive, Scope
from xxhash import xxh3_128

from service import telemetry
from service.api.admission import charge_points
from service.api.bodies import require_key
from service.api.columns import binary, binary_form
from service.api.context import Context
from service.api.formats import JSON, PLAIN, RAW, READING, Reading, media_type, read_bodies, read_labelled, reading
from service.api.front import headers_of, read_body
from service.api.writing import LARGE, MOST, dump, offload, require_bounded
from service.errors import InvalidRequest, NotPlain, OutcomeUnknown, StoreUnavailable, UnknownField, UnknownLabel
from service.sessions.requests import Answer, Request, Unread
from service.sessions.rows import Batch
from service.sessions.spec import Spec

#: Bytes of a body that is read on the event loop: of JSON a millisecond's work, of rows less.
AT_ONCE = {JSON: 1 << 17, RAW: 1 << 20}


async def observe(here: Context, scope: Scope, receive: Receive) -> tuple[bytes, Mapping[str, str]]:
    sid, headers = scope["path_params"]["id"], headers_of(scope)
    asked = asked_by(headers, scope["query_string"])
    key = headers.get("idempotency-key")
    body = await read_body(headers, receive, asked.kind, here.settings)
    spec = here.ingest.spec(sid) or (await here.ingest.current(sid)).spec
    if "key" not in scope and (unread := asked.plainly(here, spec, key, body)) is not None:
        with suppress(NotPlain):
            answer = await here.ingest.observe(sid, unread)
            return answered(here.ingest.spec(sid) or spec, answer), await acknowledge(here, sid, answer)
    large, given = len(body) > AT_ONCE.get(asked.kind, LARGE), (asked, key, body)
    try:
        request = await asyncio.to_thread(understood, spec, *given) if large else understood(spec, *given)
    except UnknownLabel:  # it may have been added by another worker
        spec = (await here.ingest.current(sid)).spec
        request = await offload(len(body), understood, spec, *given)
    batch = request.batch
    if "key" in scope:
        await charge_points(here, scope, len(batch))
    answer = await here.ingest.observe(sid, request)
    telemetry.clipped.value += batch.clipped
    more = remarks(batch) if batch.clipped or batch.ambiguous else {}
    extra = await acknowledge(here, sid, answer)
    if answer.scores is None:
        return answered(spec, answer, **more), extra
    if (form := asked.form) is not None:
        found, totals = told_of(spec, answer)
        body, own = await offload(answer.scores.size, binary, form, found, {**totals, **more})
        return body, {**extra, **own}
    large = answer.scores.size > LARGE
    return await asyncio.to_thread(answered, spec, answer, **more) if large else answered(spec, answer, **more), extra


class Asked(NamedTuple):
    """What the head of an observe says, whatever its body is"""

    kind: str  # of the body
    query: bytes
    columns: bool  # whether the answer has them
    probabilities: bool
    how: Reading
    version: int | None  # If-Match
    form: str | None  # of the columns, if that is not JSON

    def plainly(self, here: Context, spec: Spec, key: str | None, body: bytes) -> Unread | None:
        """An observe that nothing has to be waited for but its turn and its commit; None: any other"""
        if self.form is not None or self.how is not PLAIN or here.connection.known_epoch is None:
            return None
        most = here.settings.json_limit if self.kind == JSON else here.settings.body_limit
        if len(body) > min(AT_ONCE.get(self.kind, 0), most) or len(body) * spec.columns > AT_ONCE[RAW]:
            return None  # it is too large; or reading it, or writing what is told, would keep others waiting
        told = (self.version, self.columns, self.probabilities)
        if key is None:
            return Unread(body, self.kind == RAW, read_bodies, None, b"", *told)
        mark = fingerprint(body, self.kind, self.query)
        return Unread(body, self.kind == RAW, read_bodies, require_key(key), mark, *told)

    def told(self, spec: Spec, answer: Answer) -> bytes:
        return answered(spec, answer)

    async def acknowledged(self, here: Context, spec: Spec, answer: Answer) -> tuple[bytes, Mapping[str, str]]:
        return answered(spec, answer), await acknowledge(here, spec.id, answer)


def asked_by(headers: Mapping[str, str], query: bytes) -> Asked:
    """Raise what is wrong with it"""
    kind = media_type(headers.get("content-type"), headers.get("content-encoding"))
    version = _if_match(headers["if-match"]) if "if-match" in headers else None
    return Asked(kind, query, *wanted(query), version, binary_form(headers.get("accept", "")))


def understood(spec: Spec, asked: Asked, key: str | None, body: bytes) -> Request:
    """What is asked for; or raise what is wrong with it"""
    batch = read_labelled(body, asked.kind, spec, asked.how)
    if len(batch) * len(spec.labels) > MOST:
        instead = "ask with ?reply=summary, or send fewer at once"
        require_bounded(spec, len(batch), columns=asked.columns, instead=instead)
    told = (asked.version, asked.columns, asked.probabilities)
    if key is None:
        return Request(batch, b"", None, *told)
    return Request(batch, fingerprint(body, asked.kind, asked.query), require_key(key), *told)


async def acknowledge(here: Context, sid: str, answer: Answer) -> dict[str, str]:
    """The headers of an answer to something that was learned"""
    epoch = here.connection.known_epoch
    if epoch is None:
        try:
            epoch = await here.connection.epoch(sid)
        except StoreUnavailable as error:  # which says that nothing was changed, and it was
            raise OutcomeUnknown from error
    extra = {"ETag": f'"{answer.counters.version}"', "Horocycle-Epoch": str(epoch)}
    if answer.replayed:
        extra["Idempotency-Replayed"] = "true"
    return extra


def answered(spec: Spec, answer: Answer, **more: Any) -> bytes:
    """The answer as JSON: columns, if they were asked for, and totals"""
    c, scores, decided, labels = answer.counters, answer.scores, answer.decided, answer.labels
    if not more and (scores is None or (answer.accepted == 1 and spec.binary and answer.probabilities is None)):
        counts = (answer.accepted, answer.mistakes, c.observed, c.mistakes, c.updates, c.version)
        if scores is None or labels is None:
            return b"{" + TOTALS % counts
        index = int(scores[0] >= 0) if decided is None else int(decided[0])
        right = b"true" if index == labels[0] else b"false"
        return COLUMNS % (spec.tokens[index], orjson.dumps(scores.item()), right) + TOTALS % counts
    columns, totals = told_of(spec, answer)
    if columns:
        names = spec.label_array[columns["predictions"]]
        columns["predictions"] = names if names.dtype == np.int64 else names.tolist()
    told = {**columns, **totals, **more}
    small = scores is None or scores.size <= LARGE
    return orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY) if small and not more else dump(told)


#: The columns of one point, and what every answer has behind them
COLUMNS = b'{"predictions":[%b],"scores":[%b],"correct":[%b],'
TOTALS = b'"accepted":%d,"mistakes":%d,"session":{"observed":%d,"mistakes":%d,"updates":%d,"version":%d}}'


def told_of(spec: Spec, answer: Answer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns, if they were asked for, with indices of labels for predictions; and the totals"""
    c = answer.counters
    columns: dict[str, Any] = {}
    session = {"observed": c.observed, "mistakes": c.mistakes, "updates": c.updates, "version": c.version}
    if answer.scores is not None:
        decided = spec.decide(answer.scores) if answer.decided is None else answer.decided
        columns = {"predictions": decided, "scores": answer.scores, "correct": decided == answer.labels}
        if answer.probabilities is not None:
            columns["probabilities"] = answer.probabilities
    return columns, {"accepted": answer.accepted, "mistakes": answer.mistakes, "session": session}


def fingerprint(body: bytes, kind: str, query: bytes) -> bytes:
    """What a key belongs to: the body, and how it was to be read and answered"""
    mark = xxh3_128(kind.encode() + b" " + query + b" ")
    mark.update(body)
    return mark.digest()


def remarks(batch: Batch) -> dict[str, Any]:
    """What was noticed while the body was read, if anything was"""
    told: dict[str, Any] = {"clipped": batch.clipped} if batch.clipped else {}
    if batch.ambiguous:
        told["notes"] = [
            "the last column was read as indices, and could as well be labels: ?label=index or ?label=value says which"
        ]
    return told


KNOWN = ("reply", "probabilities", *READING)


@lru_cache
def wanted(query: bytes) -> tuple[bool, bool, Reading]:
    """What the answer has (`wants`), and how the body is read; a parameter that is not known is misspelt"""
    if not query:
        return True, False, PLAIN
    given = {name: values[-1] for name, values in parse_qs(query.decode("latin-1"), keep_blank_values=True).items()}
    for name in given:
        if name not in KNOWN:
            raise UnknownField(name[:100], ", ".join(KNOWN))
    return *wants(query), reading(given) if given.keys() & set(READING) else PLAIN


def wants(query: bytes) -> tuple[bool, bool]:
    """Whether the answer has columns: ?reply=summary leaves them out; and ?probabilities=true among them"""
    asked = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    reply, sure = asked.get("reply", ["columns"])[-1], asked.get("probabilities", ["false"])[-1]
    if reply not in ("columns", "summary"):
        raise InvalidRequest(f"reply is {reply!r}; it may be columns or summary", parameter="reply")
    if sure not in ("true", "false"):
        raise InvalidRequest(f"probabilities is {sure!r}; it may be true or false", parameter="probabilities")
    return reply == "columns", sure == "true"


def _if_match(tag: str) -> int:
    """If-Match: "31" """
    number = tag.strip().removeprefix('"').removesuffix('"')
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise InvalidRequest(f"If-Match is {tag!r}, not a version of the model in quotes", header="If-Match")
    return int(number)
