"""GET /sessions/{id}/snapshot: a session as one JSON document, which POST /sessions opens elsewhere."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from service.api.context import context, stamp
from service.api.writing import offload
from service.errors import AnswerTooLarge, outer
from service.sessions import snapshot
from service.sessions.records import Kept

router = APIRouter(tags=["sessions"])


@router.get("/sessions/{id}/snapshot", summary="Export a session")
async def export(
    id: str, request: Request, points: Annotated[bool, Query(description="the retained points too")] = True
) -> Response:
    """`POST /sessions {"snapshot": …}` goes on with it elsewhere, with the same predictions. Idempotency keys, events
    and points that wait for labels stay behind."""
    here = context(request)
    loaded = await here.ingest.current(id)
    retained = min(loaded.spec.keep_points, loaded.counters.observed) * loaded.spec.row_bytes if points else 0
    if 4 * (retained + loaded.learner_bytes) > 3 * here.settings.body_limit:  # as base64
        instead = "ask with points=false, and read the points from /log"
        raise AnswerTooLarge(f"{retained // 8} numbers of retained points", here.settings.body_limit // 8, instead)
    kept = await here.store.kept(id, points=points)
    body = await offload(retained + loaded.learner_bytes, _written, kept)
    response = Response(body, media_type="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="{outer(id)}.json"'
    await stamp(request, response)
    return response


def _written(kept: Kept) -> bytes:
    return orjson.dumps(snapshot.export(kept))
