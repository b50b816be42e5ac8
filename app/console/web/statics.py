"""The static files: read once, and served by their names; there is no path to go astray on."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from app.console.web import headers

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


@cache
def _all() -> dict[str, bytes]:
    folder = files("app.console") / "static"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.partition(".")[2] in _TYPES}


@cache
def address(name: str) -> str:
    return f"/static/{name}?v={sha256(_all()[name]).hexdigest()[:12]}"


async def serve(request: Request) -> Response:
    name = request.path_params["name"]
    if (found := _all().get(name)) is None:
        return Response("there is no such file\n", 404, headers.SECURITY, "text/plain; charset=utf-8")
    return Response(found, 200, headers.STATIC, _TYPES[name.partition(".")[2]])
