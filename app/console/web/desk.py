"""What a request for a page goes through: who it is, what was sent, reading or doing in a thread, template, answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from app import audit
from app.console import status
from app.console.calls import QUIET, TOKEN, Calls
from app.console.status import Refused, Told
from app.console.web import asking, cookies, headers, memory, refusals, statics
from app.console.web.entry import Entrance
from app.console.web.fields import QUERY_LIMIT, Fields
from app.console.web.page import Act, Done, Page, Question, Visit
from app.console.web.templates import Layout, Templates, without_times
from app.db import transaction
from app.errors import TidemillError
from app.settings import settings
from app.tokens import Action, sessions
from app.tokens.sessions import Signed

log = logging.getLogger(__name__)


class Desk:
    def __init__(self, calls: Calls, pages: tuple[Page, ...], acts: tuple[Act, ...]) -> None:
        self._calls = calls
        self._pages, self._acts = pages, {each.name: each for each in acts}
        paths = {each.name: each.path for each in pages} | {each.name: each.path for each in acts}
        self._templates = Templates(paths)
        self._entrance = Entrance(calls, self._templates)

    def routes(self) -> list[BaseRoute]:
        """Acts first: their paths are longer."""
        acts = [Route(each.path, self._acting(each), methods=["GET", "POST"]) for each in self._acts.values()]
        pages = [Route(each.path, self._looking(each), methods=["GET"]) for each in self._pages]
        return [*self._entrance.routes(), Route("/static/{name}", statics.serve, methods=["GET"]), *acts, *pages]

    def refuse(self, request: Request, told: Told) -> Response:
        """For a path that there is not, to whoever asks: it says nothing of who may see what."""
        return self._refusal(request, told, None)

    def _looking(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            return await self._guarded(request, lambda signed: self._show(page, request, signed))

        return self._refusing(serve)

    def _acting(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            if request.method != "POST":
                return await self._guarded(request, lambda signed: self._ask(act, request, signed))
            asking.check_origin(request)
            form = await asking.form(request)
            return await self._guarded(request, lambda signed: self._do(act, request, signed, form))

        return self._refusing(serve)

    def _refusing(self, serve: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def refusing(request: Request) -> Response:
            try:
                return await serve(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                told = status.of(error)
                if told.status == 500:
                    log.error("%s failed", request.url.path, exc_info=error)
                return self._refusal(request, told, None)

        return refusing

    async def _guarded(self, request: Request, work: Callable[[Signed], Response]) -> Response:
        """Only for who is signed in."""
        secret = cookies.SESSION.read(request)
        if secret is None:
            return self._entrance.send_there(request)
        return await self._calls.for_pages(lambda: self._in_order(request, secret, work))

    def _in_order(self, request: Request, secret: str, work: Callable[[Signed], Response]) -> Response:
        signed = None
        try:
            there = not asking.is_live(request)
            with transaction() as session:
                signed = sessions.check(session, secret, settings().console_idle, there=there)
            if signed is None:
                return self._entrance.send_there(request)
            request.scope[TOKEN] = signed.holder.name
            request.scope[QUIET] = not there
            if not signed.holder.may(Action.LOOK, ""):
                raise Refused(403, "denied", f"the role {signed.holder.role} sees no pages")
            return work(signed)
        except Exception as error:
            told = status.of(error)
            if told.status == 500:
                log.error("%s failed", request.url.path, exc_info=error)
            return self._refusal(request, told, signed)

    def _show(self, page: Page, request: Request, signed: Signed) -> Response:
        visit = _visit(request, signed)
        layout = Layout.LIVE if asking.is_live(request) else Layout.WHOLE
        text = self._render(page.template, layout, request, signed, visit, dict(page.read(visit)))
        if layout is Layout.WHOLE and signed.told is not None:
            with transaction() as session:
                sessions.tell(session, signed.secret, None)
        tag = f'"{sha256(without_times(text).encode()).hexdigest()[:24]}"'
        if layout is Layout.LIVE and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers.PAGE | {"ETag": tag})
        return _html(text, 200, {"ETag": tag} if layout is Layout.LIVE else {})

    def _ask(self, act: Act, request: Request, signed: Signed) -> Response:
        _check_may_act(signed)
        visit = _visit(request, signed)
        return self._question(act, request, signed, visit, act.ask(visit))

    def _do(self, act: Act, request: Request, signed: Signed, form: Fields) -> Response:
        if not sessions.is_proof(signed.secret, form.text("proof") or ""):
            raise Refused(403, "forged", "this form is not of your session: load its page again, and send it again")
        _check_may_act(signed)
        visit = _visit(request, signed, form)
        try:
            with audit.acting(f"{signed.holder.name}@console"):
                done = act.do(visit)
        except TidemillError as error:
            return self._not_done(act, request, signed, visit, error)
        # Whoever has changed something sees it on the next page.
        memory.forget_all()
        with transaction() as session:
            sessions.tell(session, signed.secret, _told(done))
        return RedirectResponse(done.to, 303, headers.PAGE)

    def _not_done(self, act: Act, request: Request, signed: Signed, visit: Visit, error: TidemillError) -> Response:
        """What was wrong, above the form as it was sent."""
        told = status.of(error)
        if told.status not in (400, 409, 413):
            raise error
        question = act.ask(visit)
        return self._question(act, request, signed, visit, question, told)

    def _question(
        self, act: Act, request: Request, signed: Signed, visit: Visit, question: Question, wrong: Told | None = None
    ) -> Response:
        layout = Layout.DIALOG if asking.is_dialog(request) else Layout.WHOLE
        more = {"question": question, "wrong": None if wrong is None else wrong.text, "given": visit.form.given()}
        text = self._render(act.template, layout, request, signed, visit, more | dict(question.more))
        return _html(text, 200 if wrong is None else wrong.status)

    def _render(
        self, template: str, layout: Layout, request: Request, signed: Signed, visit: Visit, context: Mapping[str, Any]
    ) -> str:
        common = {
            "visit": visit,
            "holder": signed.holder,
            "may_act": visit.may_act,
            "proof": signed.proof,
            "told": signed.told if layout is Layout.WHOLE else None,
            "theme": cookies.theme(request),
        }
        return self._templates.render(template, layout, common | dict(context))

    def _refusal(self, request: Request, told: Told, signed: Signed | None) -> Response:
        if asking.is_live(request):
            return Response(told.text, told.status, headers.PAGE, "text/plain; charset=utf-8")
        layout = Layout.ALONE if signed is None else Layout.WHOLE
        words = refusals.words(told)
        if signed is None:
            context = {"told": None, "theme": cookies.theme(request)} | words
            text = self._templates.render("error.html", layout, context)
        else:
            text = self._render("error.html", layout, request, signed, Visit(signed.holder, request.url.path), words)
        return _html(text, told.status, told.headers())


def _visit(request: Request, signed: Signed, form: Fields | None = None) -> Visit:
    query = Fields.read(request.url.query.encode(), QUERY_LIMIT)
    numbers = {name: asking.number(text) for name, text in request.path_params.items()}
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return Visit(signed.holder, address, numbers, query, form or Fields())


def _check_may_act(signed: Signed) -> None:
    if not signed.holder.may(Action.OPERATE, ""):
        raise Refused(
            403, "denied", f"the token {signed.holder.name} is of a {signed.holder.role}, who changes nothing"
        )


def _told(done: Done) -> dict[str, Any]:
    undo = done.undo
    back = None if undo is None else {"act": undo.act, "fields": dict(undo.fields), "label": undo.label}
    return {"says": done.says, "undo": back}


def _html(text: str, code: int = 200, more: Mapping[str, str] | None = None) -> Response:
    return Response(text, code, headers.PAGE | dict(more or {}), "text/html; charset=utf-8")
