"""Pages: the documentation, which needs no internet, and what a problem means."""

from __future__ import annotations

import inspect
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path

import fastapi_offline
from fastapi import APIRouter, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse

from service.api.problems import STATUS, about
from service.errors import UnknownRoute, slug, title

router = APIRouter(include_in_schema=False)
ASSETS = Path(inspect.getfile(fastapi_offline)).parent / "static"
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon.png": "image/png"}
STYLE = ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto}"


@router.get("/docs")
async def docs() -> HTMLResponse:
    return with_policy(
        get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Horocycle",
            swagger_js_url="/docs/swagger-ui-bundle.js",
            swagger_css_url="/docs/swagger-ui.css",
            swagger_favicon_url="/docs/favicon.png",
        )
    )


def with_policy(page: HTMLResponse) -> HTMLResponse:
    """A page that runs its own scripts, this service's files, and nothing else (Swagger UI sets styles as it goes)"""
    inline = re.findall(rb"<script>(.*?)</script>", bytes(page.body), re.DOTALL)
    known = "".join(f" 'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in inline)
    page.headers["Content-Security-Policy"] = (
        f"default-src 'self'; script-src 'self'{known}; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
        " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    return page


@router.get("/docs/{name}")
async def asset(name: str) -> Response:
    if name not in FILES:
        raise UnknownRoute(f"/docs/{name}")
    headers = {"Cache-Control": "max-age=86400"}
    return FileResponse(ASSETS / name, media_type=FILES[name], headers=headers)


problems = APIRouter(tags=["problems"])


@problems.get("/problems/{slug}", response_class=HTMLResponse, summary="What a problem means")
async def problem(slug: str) -> HTMLResponse:
    kind = KINDS.get(slug)
    if kind is None:
        raise UnknownRoute(f"/problems/{slug}")
    text = f"<p>{escape(about(kind))}</p><p>Status {STATUS[kind]}.</p>"
    head = f"<title>{escape(title(kind))}</title><style>{STYLE}</style>"
    html = f"<!doctype html><html lang=en><meta charset=utf-8>{head}<h1>{escape(title(kind))}</h1>{text}"
    return with_policy(HTMLResponse(html))


KINDS = {slug(kind): kind for kind in STATUS}
