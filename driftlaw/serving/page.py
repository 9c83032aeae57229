"""Live page of the server: HTML, style and script as files, under a strict Content-Security-Policy."""

from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)
"""Routes of the page. Its files contain no data and need no token."""


def _serve(name: str) -> Callable[[], FileResponse]:
    path = Path(__file__).parent / "page_files" / name
    return lambda: FileResponse(path, headers=HEADERS)


for route, name in {"/": "page.html", "/page.css": "page.css", "/page.js": "page.js"}.items():
    router.add_api_route(route, _serve(name), methods=["GET", "HEAD"])
