"""Signing in with a token, and signing out."""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from app import tokens
from app.console import status
from app.console.calls import TOKEN, Calls
from app.console.status import Refused
from app.console.web import asking, cookies, headers
from app.console.web.attempts import Attempts
from app.console.web.fields import Fields
from app.console.web.templates import Layout, Templates
from app.db import transaction
from app.settings import settings
from app.tokens import Action, sessions
from app.tokens.sessions import Signed

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
#: Longer than any address of ours.
NEXT_LIMIT = 2_000


class Entrance:
    def __init__(self, calls: Calls, templates: Templates) -> None:
        self._calls, self._templates = calls, templates
        self._attempts = Attempts()

    def routes(self) -> list[BaseRoute]:
        return [
            Route(SIGN_IN, self._refusing(self._sign_in), methods=["GET", "POST"]),
            Route(SIGN_OUT, self._refusing(self._sign_out), methods=["POST"]),
        ]

    def send_there(self, request: Request) -> Response:
        if asking.is_live(request):
            return Response("sign in again", 401, headers.PAGE, "text/plain")
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = f"{request.url.path}{query}" if request.method == "GET" else "/"
        words = f"?{urlencode({'next': wanted})}" if wanted != "/" else ""
        return RedirectResponse(f"{SIGN_IN}{words}", 303, headers.PAGE)

    def _refusing(self, serve: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def refusing(request: Request) -> Response:
            try:
                return await serve(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # noqa: BLE001 - whatever it is becomes a page
                told = status.of(error)
                return self._form(request, told.text[:1].upper() + told.text[1:], told.status, told.headers())

        return refusing

    async def _sign_in(self, request: Request) -> Response:
        if request.method == "GET":
            return self._form(request)
        asking.check_origin(request)
        form = await asking.form(request)
        address = request.client.host if request.client else "-"
        if (seconds := self._attempts.wait(address)) > 0:
            wait = math.ceil(seconds)
            text = f"Too many tries have failed: try again in {wait} s."
            return self._form(request, text, 429, {"Retry-After": str(wait)})
        if not sessions.is_proof(cookies.FORM.read(request) or "", form.text("proof") or ""):
            return self._form(request, "This form was too old, or the browser keeps no cookies: try again.", 403)
        signed = await self._calls.for_pages(lambda: _signed(form.text("token") or ""))
        if isinstance(signed, str):
            self._attempts.failed(address)
            return self._form(request, signed, 401)
        request.scope[TOKEN] = signed.holder.name
        response = RedirectResponse(_next(form), 303, headers.PAGE)
        cookies.SESSION.write(request, response, signed.secret)
        cookies.FORM.remove(request, response)
        return response

    def _form(
        self, request: Request, wrong: str | None = None, code: int = 200, more: dict[str, str] | None = None
    ) -> Response:
        secret = secrets.token_urlsafe(sessions.BYTES)
        query = Fields.read(request.url.query.encode()[:NEXT_LIMIT], NEXT_LIMIT)
        context = {
            "proof": sessions.proof(secret),
            "wrong": wrong,
            "next": _next(query),
            "told": None,
            "theme": cookies.theme(request),
        }
        text = self._templates.render("sign_in.html", Layout.ALONE, context)
        response = Response(text, code, headers.PAGE | (more or {}), "text/html; charset=utf-8")
        cookies.FORM.write(request, response, secret)
        return response

    async def _sign_out(self, request: Request) -> Response:
        asking.check_origin(request)
        form = await asking.form(request)
        secret = cookies.SESSION.read(request)
        if secret is not None and sessions.is_proof(secret, form.text("proof") or ""):
            await self._calls.for_pages(lambda: _signed_out(secret))
        elif secret is not None:
            raise Refused(403, "forged", "this form is not of your session")
        response = RedirectResponse(SIGN_IN, 303, headers.PAGE)
        cookies.SESSION.remove(request, response)
        return response


def _signed(token: str) -> Signed | str:
    """Or why not."""
    with transaction() as session:
        holder = tokens.check(session, token)
        if holder is None:
            return "This token is unknown, expired or revoked."
        if not holder.may(Action.LOOK, ""):
            return f"This token is of the role {holder.role}, which sees no pages: take one of a viewer or an operator."
        return sessions.sign_in(session, holder, settings().console_session)


def _signed_out(secret: str) -> None:
    with transaction() as session:
        sessions.sign_out(session, secret)


def _next(fields: Fields) -> str:
    """An address of ours, or the first page."""
    text = next((value for word, value in fields.pairs if word == "next"), "/")
    parts = urlsplit(text)
    ours = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if ours and not parts.netloc and not parts.scheme and len(text) <= NEXT_LIMIT else "/"
