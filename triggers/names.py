"""Names of entities and parameters, checked where they are written."""

from __future__ import annotations

from unicodedata import category

from app.errors import BadRequest

LONGEST = 200
_REFUSED = {"Cc": "a control character", "Cs": "half of a surrogate pair"}


def name(what: str, value: str) -> str:
    if type(value) is not str or not value.strip():
        raise BadRequest(f"{what}={value!r} must be text that is not empty, such as 'dds.orders'")
    if len(value) > LONGEST:
        raise BadRequest(f"{what}={value[:20]!r}… is {len(value)} characters long: write at most {LONGEST}")
    for sign in value:
        if (kind := category(sign)) in _REFUSED:
            raise BadRequest(f"{what}={value!r} has {_REFUSED[kind]}: write letters, digits and signs only")
    return value
