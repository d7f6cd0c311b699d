"""API keys, where they are asked for: whose a request is, what it may do, and how much of it.

With keys a path of a session names the session of the key's tenant: /sessions/demo is acme~demo to every handler behind
this, for a key of acme. Another tenant's session cannot be named at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.types import Scope

from service.api.context import Context
from service.errors import InvalidRequest, ScopeMissing, SessionQuota
from service.sessions.tenants import DEFAULT, inner
from service.store.api_keys import ApiKey

#: What anybody may ask for: it tells nothing of any session.
PUBLIC = re.compile(
    r"/(?:(?:v2/)?health/(?:live|ready)|v2|docs(?:/.*)?|openapi\.json|problems(?:/[^/]*)?|page/.*|favicon\.ico|sessions/[^/]+/live)?"
)
SESSION = re.compile(r"/(sessions|v2/models)/([^/]+)(/.*)?")
#: Behind /sessions/{id}: what the scopes observe and predict may do. Whatever is not here needs admin.
OBSERVE = {("POST", "/observe"), ("POST", "/labels"), ("GET", "/stream"), ("GET", "/events"), ("GET", "/disk.svg")}
READ = {("GET", each) for each in ("", "/predict", "/model", "/metrics", "/certificate")}
PREDICT = {("POST", "/predict"), ("GET", "/predict"), ("POST", "/infer"), ("GET", "/ready")}


def needed(method: str, path: str) -> tuple[str, ...]:
    """The scopes of which one is needed"""
    method = "GET" if method == "HEAD" else method
    if path == "/predict":
        return ("predict", "admin")
    if (found := SESSION.fullmatch(path)) is None:
        return ("admin",)
    asked = (method, found[3] or "")
    allowed = [name for name, may in (("observe", OBSERVE | READ), ("predict", PREDICT | READ)) if asked in may]
    return (*(name for name in allowed if asked != ("GET", "/predict") or name == "predict"), "admin")


async def admit(here: Context, scope: Scope, headers: Mapping[str, str]) -> dict[str, str]:
    """Find the key, and the session that it names; headers that say what is left of its rates"""
    method, path = scope.get("method", "GET"), scope["path"]
    if PUBLIC.fullmatch(path):
        return {}
    key = await here.keys.admitted(headers.get("authorization"))
    scopes = needed(method, path)
    if not set(scopes) & set(key.scopes) or (path == "/metrics" and key.tenant != DEFAULT):
        raise ScopeMissing(scopes[0])
    scope["key"] = key
    if found := SESSION.fullmatch(path):
        scope["path"] = f"/{found[1]}/{inner(key.tenant, found[2])}{found[3] or ''}"
    length = headers.get("content-length", "0" if "transfer-encoding" not in headers else "")
    if key.limits.get("bytes") and not length.isdigit():
        raise InvalidRequest("a key with a rate of bytes needs a Content-Length", header="Content-Length")
    left = await here.keys.charge(key, {"requests": 1, "bytes": int(length) if length.isdigit() else 0})
    if not left:
        return {}
    return {
        "RateLimit-Policy": ", ".join(f'"{name}";q={key.limits[name]};w=1' for name in left),
        "RateLimit": ", ".join(f'"{name}";r={number};t=1' for name, number in left.items()),
    }


def key_in(scope: Scope) -> ApiKey | None:
    found: ApiKey | None = scope.get("key")
    return found


def tenant_in(scope: Scope) -> str:
    key = key_in(scope)
    return DEFAULT if key is None else key.tenant


async def charge_points(here: Context, scope: Scope, points: int) -> None:
    if (key := key_in(scope)) is not None:
        await here.keys.charge(key, {"points": points})


async def require_room(here: Context, scope: Scope) -> None:
    """Raise if the tenant has as many sessions as its key says"""
    key = key_in(scope)
    limit = None if key is None else key.limits.get("sessions")
    if key is None or not limit or await here.store.count(key.tenant) < limit:
        return
    cursor, live = None, 0
    while live < limit:  # some of those on the list may have expired
        found, cursor = await here.store.page(1000, cursor, key.tenant)
        live += len(found)
        if cursor is None:
            break
    if live >= limit:
        raise SessionQuota(limit)
