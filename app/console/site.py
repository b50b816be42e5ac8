"""Which routes there are: health, metrics, the API, and the pages for people."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from app.console.api import ENDPOINTS
from app.console.calls import Calls, refusal, respond
from app.console.endpoint import PREFIX, Answer, Endpoint
from app.console.front import HEALTH, Front
from app.console.openapi import document
from app.console.pages import demo
from app.console.pages.index import ACTS, PAGES
from app.console.routes import of_api
from app.console.schemas import OBJECT
from app.console.status import Told
from app.console.web import cookies
from app.console.web.desk import Desk
from app.metrics.exposition import TEXT, shared
from app.settings import settings
from app.tokens import Action

_WORDS = {404: ("not_found", "there is no such path"), 405: ("method_not_allowed", "this path has no such method")}


def endpoints() -> tuple[Endpoint, ...]:
    """All of the API, with the one that tells of them."""
    found: list[Endpoint] = [*ENDPOINTS]
    made: dict[str, Any] = {}
    described = Endpoint(
        "GET",
        f"{PREFIX}/openapi.json",
        "openapi",
        "This document.",
        None,
        lambda _: Answer(made),
        {200: OBJECT},
    )
    found.append(described)
    made.update(document(found))
    return tuple(found)


def site(calls: Calls, stopping: asyncio.Event, max_calls: int) -> Starlette:
    async def health(_: Request) -> Response:
        """Whether this process serves, not whether the database does: starting it again would not help that."""
        return respond({"status": "stopping"}, 503) if stopping.is_set() else respond({"status": "ok"})

    desk = Desk(calls, (*PAGES, *demo.PAGES) if settings().demo else PAGES, ACTS)
    metrics = calls.text(Action.READ, shared.read, TEXT)
    routes: list[BaseRoute] = [
        Route(HEALTH, health, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        *of_api(endpoints(), calls),
        *desk.routes(),
    ]

    async def no_route(request: Request, error: Exception) -> Response:
        code = error.status_code if isinstance(error, HTTPException) else 404
        name, text = _WORDS.get(code, ("bad_request", "this is not a request that can be answered"))
        told = Told(code, name, text)
        found = desk.refuse(request, told) if _is_person(request) else refusal(told)
        # Which methods it has.
        found.headers.update(getattr(error, "headers", None) or {})
        return found

    found = Starlette(
        routes=routes, middleware=[Middleware(Front, max_calls)], exception_handlers={HTTPException: no_route}
    )
    found.router.redirect_slashes = False
    return found


def _is_person(request: Request) -> bool:
    signed_in = cookies.SESSION.read(request) is not None
    return (signed_in or "text/html" in request.headers.get("accept", "")) and not request.url.path.startswith("/api/")
