"""What a browser, or the script of a page, asks for in its headers and its body."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from app.console.calls import BODY_SECONDS
from app.console.status import Refused
from app.console.web.fields import FORM_LIMIT, LARGEST, Fields

_SENT_AS = "application/x-www-form-urlencoded"


def is_live(request: Request) -> bool:
    """The living part of a page, by the page itself."""
    return "x-tidemill-live" in request.headers


def is_dialog(request: Request) -> bool:
    return "x-tidemill-dialog" in request.headers


def number(text: str) -> int:
    """Of a path."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 0 < int(text) <= LARGEST):
        raise Refused(404, "not_found", "there is no such page")
    return int(text)


def check_origin(request: Request) -> None:
    """A browser says where a form comes from; what is no browser cannot be led astray."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "forged", "this form comes from another site")


async def form(request: Request) -> Fields:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _SENT_AS:
        raise Refused(415, "unsupported_media_type", "a form is sent as a browser sends it")
    length = request.headers.get("content-length", "")
    found = bytearray()
    if length.isdecimal() and (len(length) > 9 or int(length) > FORM_LIMIT):
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                found += part
                if len(found) > FORM_LIMIT:
                    raise _too_large()
    except TimeoutError:
        raise Refused(408, "too_slow", f"the form did not arrive within {BODY_SECONDS:g} s") from None
    try:
        return Fields.read(bytes(found), FORM_LIMIT)
    except ValueError as error:
        raise Refused(400, "bad_request", str(error)) from None


def _too_large() -> Refused:
    return Refused(413, "too_large", f"the form is larger than {FORM_LIMIT} bytes")
