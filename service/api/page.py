"""The live page: GET / and GET /sessions/{id}/live. Static files; what they show they ask the API for, key and all."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from service.errors import UnknownRoute

#: Nothing inline, nothing from elsewhere, in nobody's frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
}
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
FILES = {each.name: each.read_bytes() for each in files("service.page").iterdir() if each.name.split(".")[-1] in TYPES}
TAGS = {name: f'"{sha256(content).hexdigest()[:16]}"' for name, content in FILES.items()}

router = APIRouter(tags=["page"])


@router.get("/", response_class=HTMLResponse, summary="The sessions, in a browser")
async def home(request: Request) -> Response:
    return served(request, "index.html")


@router.get("/sessions/{id}/live", response_class=HTMLResponse, summary="A session's disk, live, in a browser")
async def live(id: str, request: Request) -> Response:
    """The same page for every id: it asks the API for the session, and shows what that answers."""
    return served(request, "live.html")


@router.get("/page/{name}", include_in_schema=False)
async def asset(name: str, request: Request) -> Response:
    if name not in FILES or name.endswith(".html"):
        raise UnknownRoute(f"/page/{name}")
    return served(request, name)


def served(request: Request, name: str) -> Response:
    headers = {**HEADERS, "ETag": TAGS[name]}
    if request.headers.get("if-none-match") == TAGS[name]:
        return Response(status_code=304, headers=headers)
    return Response(FILES[name], headers=headers, media_type=TYPES[name.split(".")[-1]])
