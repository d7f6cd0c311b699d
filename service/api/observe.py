"""POST /sessions/{id}/observe: for each labelled point, in order, predict, then learn."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any
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
from service.api.formats import PLAIN, READING, Reading, media_type, read_labelled, reading
from service.api.front import headers_of, read_body
from service.api.writing import LARGE, MOST, dump, offload, require_bounded
from service.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable, UnknownField, UnknownLabel
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch, Indices
from service.sessions.spec import Spec


async def observe(here: Context, scope: Scope, receive: Receive) -> tuple[bytes, dict[str, str]]:
    sid, headers, query = scope["path_params"]["id"], headers_of(scope), scope["query_string"]
    kind = media_type(headers.get("content-type"), headers.get("content-encoding"))
    columns, probabilities, how = asked_by(query) if query else (True, False, PLAIN)
    body = await read_body(headers, receive, kind, here.settings)
    spec = here.ingest.spec(sid) or (await here.ingest.current(sid)).spec
    large, as_sent = len(body) > LARGE, (body, kind, spec, how)
    try:
        batch = await asyncio.to_thread(read_labelled, *as_sent) if large else read_labelled(*as_sent)
    except UnknownLabel:  # it may have been added by another worker
        spec = (await here.ingest.current(sid)).spec
        batch = await offload(len(body), read_labelled, body, kind, spec, how)
    if len(batch.X) * len(spec.labels) > MOST:
        require_bounded(spec, len(batch), columns=columns, instead="ask with ?reply=summary, or send fewer at once")
    if "key" in scope:
        await charge_points(here, scope, len(batch.X))
    key = idempotency_key(headers) if "idempotency-key" in headers else None
    mark = b"" if key is None else await offload(len(body), fingerprint, body, kind, query)
    version = _if_match(headers["if-match"]) if "if-match" in headers else None
    answer = await here.ingest.observe(sid, Request(batch, mark, key, version, columns, probabilities))
    telemetry.clipped.value += batch.clipped
    told, more = (spec, batch.indices, answer), remarks(batch) if batch.clipped or batch.ambiguous else {}
    large = large or (answer.scores is not None and answer.scores.size > LARGE)
    extra = await acknowledge(here, sid, answer)
    if answer.scores is not None and (form := binary_form(headers.get("accept", ""))) is not None:
        found, totals = told_of(*told)
        body, own = await offload(answer.scores.size, binary, form, found, {**totals, **more})
        return body, {**extra, **own}
    return await asyncio.to_thread(answered, *told, **more) if large else answered(*told, **more), extra


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


def answered(spec: Spec, indices: Indices, answer: Answer, **more: Any) -> bytes:
    """The answer as JSON: columns, if they were asked for, and totals"""
    columns, totals = told_of(spec, indices, answer)
    if columns:
        names = spec.label_array[columns["predictions"]]
        columns["predictions"] = names if names.dtype == np.int64 else names.tolist()
    told = {**columns, **totals, **more}
    small = answer.scores is None or answer.scores.size <= LARGE
    return orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY) if small and not more else dump(told)


def told_of(spec: Spec, indices: Indices, answer: Answer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns, if they were asked for, with indices of labels for predictions; and the totals"""
    c, columns = answer.counters, dict[str, Any]()
    session = {"observed": c.observed, "mistakes": c.mistakes, "updates": c.updates, "version": c.version}
    if answer.scores is not None:
        decided = spec.decide(answer.scores) if answer.decided is None else answer.decided
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
