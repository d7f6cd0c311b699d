"""POST /sessions/{id}/labels: late labels for points predicted with ids; each is observed at that moment, once."""

from __future__ import annotations

import numpy as np
import orjson
from starlette.types import Receive, Scope

from service.api.admission import charge_points
from service.api.bodies import idempotency_key
from service.api.context import Context
from service.api.formats import JSON, NDJSON, LateLabels, media_type, read_labels
from service.api.front import headers_of, read_body
from service.api.observe import acknowledge, answered, fingerprint, wants
from service.api.writing import offload, require_bounded
from service.errors import InvalidRequest, UnknownLabel
from service.sessions import rows
from service.sessions.requests import Answer, Request
from service.sessions.spec import Spec


async def labels(here: Context, scope: Scope, receive: Receive) -> tuple[bytes, dict[str, str]]:
    sid, headers = scope["path_params"]["id"], headers_of(scope)
    kind = media_type(headers.get("content-type"), headers.get("content-encoding"), (JSON, NDJSON))
    columns, probabilities = wants(scope["query_string"])
    if headers.get("if-match") is not None:
        raise InvalidRequest("late labels answer no particular classifier: leave If-Match out", header="If-Match")
    body = await read_body(headers, receive, kind, here.settings)
    spec = here.ingest.spec(sid) or (await here.ingest.current(sid)).spec
    try:
        late = await offload(len(body), read_labels, body, kind, spec)
    except UnknownLabel:  # it may have been added by another worker
        spec = (await here.ingest.current(sid)).spec
        late = await offload(len(body), read_labels, body, kind, spec)
    require_bounded(spec, len(late.ids), columns=columns, instead="ask with ?reply=summary, or send fewer at once")
    await charge_points(here, scope, len(late.ids))
    key = idempotency_key(headers)
    request = Request(
        rows.empty(spec.dimension),
        b"" if key is None else fingerprint(body, f"labels {kind}", scope["query_string"]),
        key,
        columns=columns,
        probabilities=probabilities,
        ids=late.ids,
        late=late.indices,
    )
    answer = await here.ingest.observe(sid, request)
    return await offload(len(body), labelled, spec, late, answer), await acknowledge(here, sid, answer)


def labelled(spec: Spec, late: LateLabels, answer: Answer) -> bytes:
    fates = np.frombuffer(answer.fates, dtype="S1")
    named = {name: [orjson.loads(late.ids[i]) for i in np.flatnonzero(fates == fate)] for name, fate in _FATES.items()}
    return answered(spec, answer, **named)


_FATES = {"ids": b"A", "unknown": b"U", "expired": b"E", "already_learned": b"L"}
