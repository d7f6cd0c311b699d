"""POST /sessions/{id}/observe: for each labelled point, in order, predict, then learn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import numpy as np
import orjson
from starlette.types import Receive, Scope
from xxhash import xxh3_128

from service import telemetry
from service.api.admission import charge_points
from service.api.bodies import idempotency_key
from service.api.columns import binary, binary_form
from service.api.context import Context
from service.api.formats import JSON, PLAIN, RAW, READING, Reading, media_type, read_labelled, reading
from service.api.front import headers_of, read_body
from service.api.writing import LARGE, MOST, dump, offload, require_bounded
from service.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable, UnknownField, UnknownLabel
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch, Indices
from service.sessions.spec import Spec

#: Bytes of a body that is read on the event loop: of JSON a millisecond's work, of rows less.
AT_ONCE = {JSON: 1 << 17, RAW: 1 << 20}


async def observe(here: Context, scope: Scope, receive: Receive) -> tuple[bytes, dict[str, str]]:
    sid, headers, query = scope["path_params"]["id"], headers_of(scope), scope["query_string"]
    kind = media_type(headers.get("content-type"), headers.get("content-encoding"))
    asked_by(query)
    body = await read_body(headers, receive, kind, here.settings)
    spec, large = here.ingest.spec(sid) or (await here.ingest.current(sid)).spec, len(body) > AT_ONCE.get(kind, LARGE)
    given = (headers, query, body, kind)
    try:
        request = await asyncio.to_thread(understood, spec, *given) if large else understood(spec, *given)
    except UnknownLabel:  # it may have been added by another worker
        spec = (await here.ingest.current(sid)).spec
        request = await offload(len(body), understood, spec, *given)
    batch = request.batch
    if "key" in scope:
        await charge_points(here, scope, len(batch.indices))
    answer = await here.ingest.observe(sid, request)
    telemetry.clipped.value += batch.clipped
    told, more = (spec, batch, answer), remarks(batch) if batch.clipped or batch.ambiguous else {}
    extra = await acknowledge(here, sid, answer)
    if answer.scores is None:
        return answered(*told, **more), extra
    if (form := binary_form(headers.get("accept", ""))) is not None:
        found, totals = told_of(*told)
        body, own = await offload(answer.scores.size, binary, form, found, {**totals, **more})
        return body, {**extra, **own}
    large = answer.scores.size > LARGE
    return await asyncio.to_thread(answered, *told, **more) if large else answered(*told, **more), extra


def understood(spec: Spec, headers: Mapping[str, str], query: bytes, body: bytes, kind: str) -> Request:
    """What is asked for; or raise what is wrong with it"""
    columns, probabilities, how = asked_by(query)
    batch = read_labelled(body, kind, spec, how)
    if len(batch.indices) * len(spec.labels) > MOST:
        require_bounded(
            spec, len(batch.indices), columns=columns, instead="ask with ?reply=summary, or send fewer at once"
        )
    key = idempotency_key(headers) if "idempotency-key" in headers else None
    mark = b"" if key is None else fingerprint(body, kind, query)
    version = _if_match(headers["if-match"]) if "if-match" in headers else None
    return Request(batch, mark, key, version, columns, probabilities)


def plainly(here: Context, sid: str, headers: Mapping[str, str], query: bytes, body: bytes) -> Plain | None:
    """An observe that nothing has to be waited for but its commit; None: any other"""
    spec, kind = here.ingest.spec(sid), media_type(headers.get("content-type"), headers.get("content-encoding"))
    if spec is None or kind not in AT_ONCE or here.connection.known_epoch is None:
        return None
    if len(body) * spec.columns > AT_ONCE[JSON]:  # reading it, or writing what is told, would keep others waiting
        return None
    if binary_form(headers.get("accept", "")) is not None:
        return None
    return Plain(spec, understood(spec, headers, query, body, kind))


class Plain(NamedTuple):
    """An observe, and the session that it is for"""

    spec: Spec
    request: Request

    async def concluded(self, here: Context, outcome: Answer | Exception) -> tuple[bytes, dict[str, str]]:
        if isinstance(outcome, Exception):
            raise outcome
        return self.told(outcome), await acknowledge(here, self.spec.id, outcome)

    def told(self, answer: Answer) -> bytes:
        batch = self.request.batch
        if batch.clipped or batch.ambiguous:
            telemetry.clipped.value += batch.clipped
            return answered(self.spec, batch, answer, **remarks(batch))
        return answered(self.spec, batch, answer)


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


def answered(spec: Spec, labels: Batch | Indices, answer: Answer, **more: Any) -> bytes:
    """The answer as JSON: columns, if they were asked for, and totals"""
    c, scores = answer.counters, answer.scores
    if scores is None and not more:
        return SUMMARY % (answer.accepted, answer.mistakes, c.observed, c.mistakes, c.updates, c.version)
    columns, totals = told_of(spec, labels, answer)
    if columns:
        names = spec.label_array[columns["predictions"]]
        columns["predictions"] = names if names.dtype == np.int64 else names.tolist()
    told = {**columns, **totals, **more}
    small = scores is None or scores.size <= LARGE
    return orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY) if small and not more else dump(told)


#: An answer without columns
SUMMARY = b'{"accepted":%d,"mistakes":%d,"session":{"observed":%d,"mistakes":%d,"updates":%d,"version":%d}}'


def told_of(spec: Spec, labels: Batch | Indices, answer: Answer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns, if they were asked for, with indices of labels for predictions; and the totals"""
    c = answer.counters
    columns: dict[str, Any] = {}
    session = {"observed": c.observed, "mistakes": c.mistakes, "updates": c.updates, "version": c.version}
    if answer.scores is not None:
        decided = spec.decide(answer.scores) if answer.decided is None else answer.decided
        indices = labels.indices if isinstance(labels, Batch) else labels
        correct = decided == indices[: answer.accepted]
        columns = {"predictions": decided, "scores": answer.scores, "correct": correct}
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
def asked_by(query: bytes) -> tuple[bool, bool, Reading]:
    """What the answer has (`wants`), and how the body is read; a parameter that is not known is misspelt"""
    if not query:
        return True, False, PLAIN
    given = {name: values[-1] for name, values in parse_qs(query.decode("latin-1"), keep_blank_values=True).items()}
    for name in given:
        if name not in KNOWN:
            raise UnknownField(name[:100], ", ".join(KNOWN))
    return *wants(query), reading(given)


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
