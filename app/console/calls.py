"""What every request of the API goes through, whichever it is: token, role, body, right, thread, answer."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app import logs
from app.console import reading, schemas, status
from app.console.endpoint import KEY, KEY_HEADER, PLACES, Answer, Asked, Endpoint, denied
from app.console.gate import Gate
from app.console.polling import Gone, Lookout
from app.console.status import Refused, Told
from app.errors import BadRequest
from app.near import shown
from app.tokens import Action, Holder

log = logging.getLogger(__name__)

#: Arguments or a value of 1 MiB, and what belongs to them.
BODY_LIMIT = 1024 * 1024 + 128 * 1024
BODY_SECONDS = 20.0
#: The keys of a request's scope that hold the name of its token, and the id by which the log knows it.
TOKEN, REQUEST = "tidemill.token", "tidemill.request"
#: Of one that was found to be as it must.
READ = "tidemill.read"
#: And one that says that the log need not have it: a page that asks whether it is still up to date.
QUIET = "tidemill.quiet"
#: Parts of a path, and what the log calls them.
_LOGGED = {"process_id": "process_id", "task": "task_number", "job_id": "job_id"}
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

T = TypeVar("T")


def page_threads(threads: int) -> int:
    """Beside those of the API."""
    return max(2, threads // 2)


class Calls:
    def __init__(self, gate: Gate, threads: int, stopping: asyncio.Event) -> None:
        self._gate = gate
        self._pool = ThreadPoolExecutor(threads, "tidemill-http")
        self._pages = ThreadPoolExecutor(page_threads(threads), "tidemill-pages")
        self._lookout = Lookout(stopping)
        self._running = 0
        self._ended = threading.Condition()

    def close(self, seconds: float) -> bool:
        """Whether nothing runs any more, for which it waits so long."""
        for pool in (self._pool, self._pages):
            pool.shutdown(wait=False, cancel_futures=True)
        with self._ended:
            return self._ended.wait_for(lambda: self._running == 0, seconds)

    def handler(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            try:
                answer = await self._serve(endpoint, request)
                return respond(answer.data, answer.status)
            except (Gone, ClientDisconnect):
                # What this status says is for the log alone.
                return Response(status_code=499)
            except Exception as error:
                told = status.of(error, well_formed=READ in request.scope)
                if told.status == 500:
                    log.error("%s failed, request %s", endpoint.name, request.scope.get(REQUEST), exc_info=error)
                return refusal(told)

        return serve

    def text(self, action: Action, read: Callable[[], bytes], kind: str) -> Callable[[Request], Awaitable[Response]]:
        """For a route that answers with text of this kind; it takes nothing but a token that may do this."""

        async def serve(request: Request) -> Response:
            try:
                holder = await self._holder(request)
                if not holder.may(action, ""):
                    raise denied(holder, action)
                found = await self.in_thread(read)
            except Exception as error:
                told = status.of(error)
                if told.status == 500:
                    log.error("%s failed", request.url.path, exc_info=error)
                return refusal(told)
            return Response(found, 200, _HEADERS, kind)

        return serve

    async def _holder(self, request: Request) -> Holder:
        given = request.headers.getlist("authorization")
        holder = self._gate.known(given)
        if holder is None:
            holder = await self.in_thread(lambda: self._gate.admit(given))
        request.scope[TOKEN] = holder.name
        return holder

    async def _serve(self, endpoint: Endpoint, request: Request) -> Answer:
        holder = await self._holder(request)
        endpoint.admit(holder)
        logs.note(call=endpoint.name, token=holder.name, **_logged(request))
        body = await _body(request) if endpoint.body is not None else b""
        asked = await self.in_thread(lambda: _checked(endpoint, holder, request, body))
        if endpoint.waits is None:
            return await self.in_thread(lambda: endpoint.run(asked)) or endpoint.nothing

        async def look() -> Answer | None:
            # The token may have been revoked while it waited.
            await self._holder(request)
            return await self.in_thread(lambda: endpoint.run(asked))

        place = f"{endpoint.name} {sorted(asked.path.items())}"
        found = await self._lookout.wait(place, endpoint.waits(asked), look, lambda: _gone(request))
        return found or endpoint.nothing

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await self._in(self._pool, work)

    async def for_pages(self, work: Callable[[], T]) -> T:
        """In threads of their own: people who look hold up no program."""
        return await self._in(self._pages, work)

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        def counted() -> T:
            with self._ended:
                self._running += 1
            try:
                return work()
            finally:
                with self._ended:
                    self._running -= 1
                    self._ended.notify_all()

        # What its lines are about goes along.
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, counted)


def _logged(request: Request) -> dict[str, int]:
    """Of the path, before it was found good: what is no number is not for the log."""
    found = {told: request.path_params.get(name, "") for name, told in _LOGGED.items()}
    return {told: int(text) for told, text in found.items() if re.fullmatch("[0-9]{1,19}", text)}


def _checked(endpoint: Endpoint, holder: Holder, request: Request, body: bytes) -> Asked:
    asked = _read(endpoint, holder, request, body)
    request.scope[READ] = True
    endpoint.allow(asked)
    return asked


def _read(endpoint: Endpoint, holder: Holder, request: Request, body: bytes) -> Asked:
    path = {name: _path_value(name, text) for name, text in request.path_params.items()}
    query = reading.query(endpoint.query, request.query_params.multi_items())
    if endpoint.body is None:
        return Asked(holder, path, {}, query)
    data = reading.parse(body) if body else {}
    if endpoint.key is not None and isinstance(data, dict):
        _add_key(data, endpoint.key, request.headers)
    return Asked(holder, path, schemas.check(endpoint.body, data), query)


def _add_key(data: dict[str, Any], field: str, headers: Headers) -> None:
    key = reading.header(KEY, KEY_HEADER, headers.getlist(KEY_HEADER))
    if key is None:
        return
    if data.get(field) not in (None, key):
        raise BadRequest(f"{field} and the header {KEY_HEADER} differ: give one of them")
    data[field] = key


def _path_value(name: str, text: str) -> Any:
    schema = PLACES[name]
    if schema["type"] == "string":
        schemas.check(schema, text, name)
        return text
    # ASCII alone, which `int` is not content with.
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:30]) <= schema["maximum"]:
        raise BadRequest(f"{name}={shown(text)} must be a whole number from 1 to {schema['maximum']}")
    return int(text)


async def _body(request: Request) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > BODY_LIMIT:
        raise _too_large()
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                found += part
                if len(found) > BODY_LIMIT:
                    raise _too_large()
    except TimeoutError:
        raise Refused(408, "too_slow", f"the body did not arrive within {BODY_SECONDS:g} s") from None
    if found:
        _check_type(request.headers)
    return bytes(found)


def _too_large() -> Refused:
    return Refused(413, "too_large", f"the body is larger than {BODY_LIMIT} bytes: store what it holds and send its id")


def _check_type(headers: Headers) -> None:
    kind, _, options = headers.get("content-type", "").partition(";")
    charset = options.partition("charset=")[2].strip(' "').lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        raise Refused(415, "unsupported_media_type", "send JSON in UTF-8, and 'Content-Type: application/json'")
    if headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "unsupported_media_type", "send the body as it is, without Content-Encoding")


async def _gone(request: Request) -> None:
    """Until the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def respond(data: Any, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    try:
        content = _encode(data).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which only an escape can write.
        content = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    return Response(content, code, _HEADERS | (headers or {}), "application/json")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def refusal(told: Told) -> Response:
    return respond(told.data(), told.status, told.headers())
