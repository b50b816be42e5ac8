"""Names of entities and parameters, checked where they are written, as `tidemill.advance` checks them."""

from __future__ import annotations

import re

from app.errors import BadRequest

LONGEST = 200
# Control characters, and halves of surrogate pairs, which are no text.
NO_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def name(what: str, value: str) -> str:
    if type(value) is not str or not value.strip(" ") or len(value) > LONGEST or NO_TEXT.search(value):
        raise BadRequest(
            f"{what}={shown(value)} must be text of 1 to {LONGEST} characters, none of them a control character"
        )
    return value


def shown(value: object) -> str:
    return ascii(value) if len(ascii(value)) <= 100 else f"{ascii(value)[:100]}…"
