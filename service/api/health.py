"""Probes."""

from __future__ import annotations

from fastapi import APIRouter, Request

from service.api.context import context

router = APIRouter(prefix="/health", tags=["health"])


@router.get("/live", summary="The process is up")
async def live() -> dict[str, str]:
    return {"status": "live"}


@router.get("/ready", summary="The store answers")
async def ready(request: Request) -> dict[str, str]:
    await context(request).store.ping()
    return {"status": "ready"}
