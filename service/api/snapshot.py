"""GET /sessions/{id}/snapshot: a session as one JSON document, which POST /sessions opens elsewhere."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from service.api.context import context, stamp
from service.sessions import snapshot

router = APIRouter(tags=["sessions"])


@router.get("/sessions/{id}/snapshot", summary="Export a session")
async def export(
    id: str, request: Request, points: Annotated[bool, Query(description="the retained points too")] = True
) -> Response:
    """`POST /sessions {"snapshot": …}` goes on with it elsewhere, with the same predictions. Idempotency keys, events
    and points that wait for labels stay behind."""
    kept = await context(request).store.kept(id, points=points)
    response = Response(orjson.dumps(snapshot.export(kept)), media_type="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="{id}.json"'
    await stamp(request, response)
    return response
