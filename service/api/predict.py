"""GET and POST /sessions/{id}/predict, and the short GET /predict?session=: never change what is learned."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from service.api.context import Context
from service.api.hot import dump, read_body
from service.errors import InvalidRequest, StoreReadOnly, UnknownField
from service.geometry import Array
from service.store import Loaded
from service.wire import media_type, read_points, read_query


async def predict(here: Context, scope: Scope, receive: Receive) -> tuple[bytes, dict[str, str]]:
    try:
        query = parse_qs(scope["query_string"].decode("utf-8"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest("the query is not UTF-8", parameter="x") from None
    sid = scope["path_params"].get("id") or query.get("session", [""])[-1]
    if not sid:
        raise InvalidRequest("which session? ask with ?session=", parameter="session")
    for name in query:
        if name not in ("session", "x", "model"):
            raise UnknownField(name, "session, x, model")
    if query.get("model", ["online"])[-1] != "online":
        raise InvalidRequest("the only model there is here is online", parameter="model")
    loaded = await here.ingest.current(sid)
    with suppress(StoreReadOnly):  # then its time to live does not begin anew; predictions it still has
        await here.store.touch(loaded.spec)
    if scope["method"] == "POST":
        headers = Headers(scope=scope)
        kind = media_type(headers.get("content-type"), headers.get("content-encoding"))
        X = read_points(await read_body(scope, receive, here.settings.body_limit), kind, loaded.spec)
    else:
        X = read_query(query.get("x", []), loaded.spec)
    extra = {"ETag": f'"{loaded.counters.version}"', "Horocycle-Epoch": str(await here.store.epoch())}
    return dump(predicted(loaded, X)), extra


def predicted(loaded: Loaded, X: Array) -> dict[str, Any]:
    spec = loaded.spec
    scores = spec.learner.score(loaded.state, X)
    return {
        "predictions": spec.named(spec.decide(scores)),
        "scores": scores,
        "cold": loaded.counters.observed == 0,
    }
