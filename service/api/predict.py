"""GET and POST /sessions/{id}/predict, and the short GET /predict?session=: never change what is learned."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Receive, Scope

from service import telemetry
from service.api.admission import tenant_in
from service.api.columns import binary, binary_form
from service.api.context import Context
from service.api.fits import fitted
from service.api.formats import Question, media_type, read_points, read_query
from service.api.front import headers_of, read_body
from service.api.writing import dump, offload, require_bounded
from service.batch.classifier import Classifier
from service.coordinates import placing
from service.errors import InvalidRequest, StoreReadOnly, UnknownField
from service.geometry import Array
from service.learners import LEARNERS
from service.sessions.records import Loaded
from service.sessions.tenants import inner, outer

COLUMNS = ("predictions", "scores", "probabilities")
KNOWN = ("session", "x", "model", "coordinates", "outside")


async def predict(here: Context, scope: Scope, receive: Receive) -> tuple[bytes, dict[str, str]]:
    try:
        query = parse_qs(scope["query_string"].decode("utf-8"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest("the query is not UTF-8", parameter="x") from None
    sid = scope["path_params"].get("id") or inner(tenant_in(scope), query.get("session", [""])[-1])
    if not outer(sid):
        raise InvalidRequest("which session? ask with ?session=", parameter="session")
    for name in query:
        if name not in KNOWN:
            raise UnknownField(name, ", ".join(KNOWN))
    model = query.get("model", ["online"])[-1]
    how = placing({name: values[-1] for name, values in query.items()})
    loaded = await here.ingest.current(sid)
    with suppress(StoreReadOnly):  # then its time to live does not begin anew; predictions it still has
        await here.store.touch(loaded.spec)
    headers = headers_of(scope)
    if scope["method"] == "POST":
        kind = media_type(headers.get("content-type"), headers.get("content-encoding"))
        body = await read_body(headers, receive, kind, here.settings)
        asked = await offload(len(body), read_points, body, kind, loaded.spec, how)
    else:
        asked = read_query(query.get("x", []), loaded.spec, how)
    require_bounded(loaded.spec, len(asked.X))
    work = len(asked.X) * max(loaded.learner_bytes, loaded.spec.row_bytes)
    if model == "online":
        answer = await offload(work, predicted, loaded, asked.X)
    else:
        answer = await offload(work, _predicted_by, await fitted(here, sid, model), loaded, asked.X)
    if asked.ids:
        answer["expires_in"] = await _wait(here, loaded, asked)
    if asked.clipped:
        answer["clipped"] = asked.clipped
        telemetry.clipped.inc(asked.clipped)
    extra = {"ETag": f'"{loaded.counters.version}"', "Horocycle-Epoch": str(await here.connection.epoch(sid))}
    if (form := binary_form(headers.get("accept", ""))) is not None:
        columns = {name: answer.pop(name) for name in COLUMNS if name in answer}
        body, own = await offload(len(asked.X), binary, form, columns, answer)
        return body, {**extra, **own}
    answer["predictions"] = loaded.spec.named(answer["predictions"])
    return await offload(len(asked.X), dump, answer), extra


def _predicted_by(classifier: Classifier, loaded: Loaded, X: Array) -> dict[str, Any]:
    answer = {
        "predictions": classifier.decide(X),
        "scores": classifier.scores(X),
        "cold": False,
    }
    probabilities = classifier.probabilities(X)
    return answer if probabilities is None else {**answer, "probabilities": probabilities}


async def _wait(here: Context, loaded: Loaded, asked: Question) -> float:
    """Let the points wait for their labels; asked again with the same ids they are the same points"""
    seconds, limit = here.settings.label_ttl, here.settings.waiting_points
    points = [(id, x.tobytes()) for id, x in zip(asked.ids, asked.X, strict=True)]
    await here.late.wait(loaded.spec, points, ttl=seconds, limit=limit)
    return seconds


def predicted(loaded: Loaded, X: Array) -> dict[str, Any]:
    spec = loaded.spec
    scores = spec.learner.score(loaded.state, X)
    answer = {
        "predictions": spec.decide(scores),
        "scores": scores,
        "cold": loaded.counters.observed == 0,
    }
    if spec.kind not in ("softmax", "gaussian"):
        return answer
    return {**answer, "probabilities": LEARNERS[spec.kind].probabilities(loaded.state, X)}
