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

from service.api.page import HEADERS
from service.api.problems import STATUS, about
from service.api.remedies import REMEDIES
from service.errors import UnknownRoute, slug, title

router = APIRouter(include_in_schema=False)
ASSETS = Path(inspect.getfile(fastapi_offline)).parent / "static"
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon.png": "image/png"}


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


@problems.get("/problems", response_class=HTMLResponse, summary="All problems")
async def every() -> HTMLResponse:
    rows = [
        f'<tr><th scope="row"><a href="/problems/{name}">{escape(title(kind))}</a></th>'
        f"<td>{STATUS[kind]}</td><td>{_html(about(kind))}</td></tr>"
        for name, kind in KINDS.items()
    ]
    intro = "<p>Every error is an RFC 9457 problem: JSON with a type, a detail, and the facts behind it.</p>"
    head = "<thead><tr><th>problem</th><th>status</th><th>what it means</th></tr></thead>"
    return _page("Problems", f"<h1>Problems</h1>{intro}<table>{head}<tbody>{''.join(rows)}</tbody></table>")


@problems.get("/problems/{slug}", response_class=HTMLResponse, summary="What a problem means, and the remedy")
async def problem(slug: str) -> HTMLResponse:
    kind = KINDS.get(slug)
    if kind is None:
        raise UnknownRoute(f"/problems/{slug}")
    name = title(kind)
    remedy = f'<div class="panel"><h2>What to do</h2><p>{_html(REMEDIES[slug])}</p></div>'
    told = f'<p class="status">Status {STATUS[kind]}, type <code>/problems/{slug}</code></p>'
    more = '<p><a href="/problems">All problems</a></p>'
    return _page(name, f"<h1>{escape(name)}</h1>{told}<p>{_html(about(kind))}</p>{remedy}{more}")


def _html(text: str) -> str:
    """Names between backquotes as code"""
    return re.sub("`(.+?)`", r"<code>\1</code>", escape(text, quote=False))


def _page(name: str, body: str) -> HTMLResponse:
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(name)} · Horocycle</title>",
        '<link rel="icon" href="/page/mark.svg"><link rel="stylesheet" href="/page/style.css"></head>',
        '<body class="words"><header class="top"><a class="brand" href="/">',
        '<img src="/page/mark.svg" alt="" width="28" height="28">Horocycle</a>',
        '<nav aria-label="Elsewhere"><a href="/problems">Problems</a><a href="/docs">API</a></nav></header>',
        f"<main>{body}</main></body></html>",
    )
    return HTMLResponse("".join(parts), headers=HEADERS)


KINDS = {slug(kind): kind for kind in STATUS}
