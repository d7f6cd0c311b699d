"""An answer that must be a problem (RFC 9457)."""

from __future__ import annotations

from typing import Any

import httpx


def require_problem(answer: httpx.Response, status: int, slug: str, **members: Any) -> dict[str, Any]:
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in answer.headers) == (status in (429, 503))
    if answer.request.method == "HEAD":
        return {}
    told: dict[str, Any] = answer.json()
    assert told["type"] == f"/problems/{slug}", told
    assert told["status"] == status and told["title"] and told["detail"]
    assert len(answer.content) < 20_000  # not all that was sent, back
    assert {name: told.get(name) for name in members} == members
    return told
