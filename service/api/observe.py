"""POST /sessions/{id}/observe: for each labelled point, in order, predict, then learn."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Receive, Scope

from service.api.bodies import idempotency_key
from service.api.context import Context
from service.api.formats import media_type, read_labelled
from service.api.hot import dump, headers_of, read_body
from service.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch
from service.sessions.spec import Spec


async def observe(here: Context, scope: Scope, receive: Receive) -> tuple[bytes, dict[str, str]]:
    sid, headers = scope["path_params"]["id"], headers_of(scope)
    kind = media_type(headers.get("content-type"), headers.get("content-encoding"))
    columns = wants_columns(scope["query_string"])
    body = await read_body(headers, receive, here.settings.body_limit)
    spec = here.ingest.spec(sid) or (await here.ingest.current(sid)).spec
    batch = read_labelled(body, kind, spec)
    key = idempotency_key(headers)
    mark = b"" if key is None else fingerprint(body, kind, columns)
    request = Request(batch, mark, key, _if_match(headers), columns)
    answer = await here.ingest.observe(sid, request)
    return dump(answered(spec, batch, answer)), await acknowledge(here, answer)


async def acknowledge(here: Context, answer: Answer) -> dict[str, str]:
    """The headers of an answer to something that was learned"""
    try:
        epoch = await here.connection.epoch()
    except StoreUnavailable as error:  # which says that nothing was changed, and it was
        raise OutcomeUnknown from error
    extra = {"ETag": f'"{answer.counters.version}"', "Horocycle-Epoch": str(epoch)}
    if answer.replayed:
        extra["Idempotency-Replayed"] = "true"
    return extra


def answered(spec: Spec, batch: Batch, answer: Answer) -> dict[str, Any]:
    c = answer.counters
    session = {"observed": c.observed, "mistakes": c.mistakes, "updates": c.updates, "version": c.version}
    totals = {"accepted": answer.accepted, "mistakes": answer.mistakes, "session": session}
    if answer.scores is None:
        return totals
    decided = spec.decide(answer.scores)
    correct = decided == batch.indices[: answer.accepted]
    return {"predictions": spec.named(decided), "scores": answer.scores, "correct": correct, **totals}


def fingerprint(body: bytes, kind: str, columns: bool) -> bytes:
    """What a key belongs to: the body, and how it was to be read and answered (SHA is in the processor)"""
    mark = sha256(f"{kind} {columns} ".encode())
    mark.update(body)
    return mark.digest()[:16]


def wants_columns(query: bytes) -> bool:
    """Whether the answer has columns: ?reply=summary leaves them out"""
    if not query:
        return True
    reply = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("reply", ["columns"])[-1]
    if reply not in ("columns", "summary"):
        raise InvalidRequest(f"reply is {reply!r}; it may be columns or summary", parameter="reply")
    return reply == "columns"


def _if_match(headers: Mapping[str, str]) -> int | None:
    """If-Match: "31" """
    tag = headers.get("if-match")
    if tag is None:
        return None
    number = tag.strip().removeprefix('"').removesuffix('"')
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise InvalidRequest(f"If-Match is {tag!r}, not a version of the model in quotes", header="If-Match")
    return int(number)
