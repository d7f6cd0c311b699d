"""Probes, and what Prometheus reads."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from service import telemetry
from service.api.context import context
from service.errors import HorocycleError, StoreUnavailable

router = APIRouter(tags=["health"])
#: Seconds that a scrape waits for the store before it says that it is down: a scraper has a deadline of its own.
SCRAPE = 1.0


@router.get("/health/live", summary="The process is up")
async def live() -> dict[str, str]:
    return {"status": "live"}


@router.get("/health/ready", summary="The store takes writes, and the worker is not about to end")
async def ready(request: Request) -> dict[str, str]:
    here = context(request)
    if here.streams.ending:
        raise StoreUnavailable("this worker is about to end")
    await here.connection.require_writable()
    return {"status": "ready"}


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    summary="Counters for Prometheus, over all workers",
)
async def metrics(request: Request) -> Response:
    try:
        async with asyncio.timeout(SCRAPE):
            await context(request).connection.ping()
        telemetry.store_up.set(1)
    except (HorocycleError, TimeoutError):
        telemetry.store_up.set(0)
    text = await asyncio.to_thread(telemetry.exposition)  # it may read a file of every worker
    return Response(text, media_type=telemetry.CONTENT_TYPE)
