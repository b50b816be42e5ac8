"""What stands in front of all routes: how many requests there may be at once, and one line in the log for each."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console.calls import QUIET, REQUEST, TOKEN, refusal
from app.console.status import Told

log = logging.getLogger(__name__)

HEALTH = "/healthz"
PATH_LIMIT = 200
#: The id of a request: the client's own where it is fit for a line of the log, else one of ours.
ID_HEADER = "X-Request-Id"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_TOO_MANY = Told(429, "too_many", "there are too many requests at once: try again")


class Front:
    def __init__(self, app: ASGIApp, max_calls: int) -> None:
        self._app, self._max_calls = app, max_calls
        self._calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, status = time.monotonic(), 0
        request = scope[REQUEST] = _id(scope)

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (ID_HEADER.lower().encode(), request.encode())]
            await send(message)

        self._calls += 1
        try:
            free = self._calls <= self._max_calls or scope["path"] == HEALTH
            await (self._app if free else refusal(_TOO_MANY))(scope, receive, noting)
        finally:
            self._calls -= 1
            _note(scope, status, time.monotonic() - begun)


def _id(scope: Scope) -> str:
    name = ID_HEADER.lower().encode()
    given = [value for key, value in scope["headers"] if key == name]
    return str(given[0].decode()) if len(given) == 1 and _ID.fullmatch(given[0]) else uuid.uuid4().hex


def _note(scope: Scope, status: int, seconds: float) -> None:
    # Not the query, in which somebody may have put a token; as it came, so that it is one line of ASCII.
    path = scope["raw_path"].decode("ascii", "replace")[:PATH_LIMIT]
    who = f"token {scope[TOKEN]}" if TOKEN in scope else "no token"
    address = scope["client"][0] if scope.get("client") else "-"
    quiet = (scope["path"] == HEALTH or scope.get(QUIET)) and status in (200, 304)
    level = logging.DEBUG if quiet else logging.WARNING if status in (401, 403, 429) or status >= 500 else logging.INFO
    words = (scope["method"], path, address, who, status, seconds * 1000, scope[REQUEST])
    log.log(level, "%s %s from %s, %s: %s in %.0f ms, request %s", *words)
