"""Ids of entities as text: one codec for every primary key, and the shard that an id belongs to. Pure.

Promises:
- Every id has exactly one text and every text at most one id: `id_of(text_of(id)) == id`, and the other way round.
- The database trigger of a watched table makes the same text and the same shard (S13, S20).

One part is its own text: text as it is, an integer in decimal, a UUID in lower case. The parts of a composite key are
joined by `/`; in each of them, `\\` is written as `\\\\` and `/` as `\\/`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from typing import Any

from app.checks import encodable
from app.errors import BadRequest

LONGEST = 500
#: What a column of Postgres can hold.
LEAST, MOST = -(2**63), 2**63 - 1
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: One part of a composite key: what is escaped, or neither a backslash nor a slash.
_PART = re.compile(r"(?:[^\\/]|\\[\\/])*")
_ESCAPED = re.compile(r"\\(.)")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise _wrong(value, "text")


def _integer(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and LEAST <= value <= MOST:
        return int.__repr__(value)
    raise _wrong(value, "a whole number of 64 bits")


def _uuid(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    raise _wrong(value, "a uuid.UUID")


def _integer_of(text: str) -> int:
    if _INTEGER.fullmatch(text) and LEAST <= (value := int(text)) <= MOST:
        return value
    raise _wrong(text, "a whole number of 64 bits in decimal")


def _uuid_of(text: str) -> uuid.UUID:
    if _UUID.fullmatch(text):
        return uuid.UUID(text)
    raise _wrong(text, "a UUID in lower case")


_TO_TEXT: dict[type, Callable[[Any], str]] = {str: _text, int: _integer, uuid.UUID: _uuid}
_FROM_TEXT: dict[type, Callable[[str], Any]] = {str: _text, int: _integer_of, uuid.UUID: _uuid_of}


@dataclass(frozen=True)
class Codec:
    #: Of the columns of the primary key, in its order.
    parts: tuple[type, ...]

    def __post_init__(self) -> None:
        if not self.parts or any(part not in _TO_TEXT for part in self.parts):
            raise BadRequest(
                f"an id of {_names(self.parts)} has no text: use str, int or uuid.UUID, one or more of them"
            )

    @cached_property
    def _encode(self) -> tuple[Callable[[Any], str], ...]:
        return tuple(_TO_TEXT[part] for part in self.parts)

    @cached_property
    def _decode(self) -> tuple[Callable[[str], Any], ...]:
        return tuple(_FROM_TEXT[part] for part in self.parts)

    def text_of(self, id: Any) -> str:  # noqa: A002 - the word of this domain
        """Of one value; of a composite key, of a tuple of them."""
        encode = self._encode
        if len(encode) == 1:
            return _checked(encode[0](id))
        if not isinstance(id, tuple) or len(id) != len(encode):
            raise BadRequest(f"id {id!r:.200} must be a tuple of {len(encode)} values: {_names(self.parts)}")
        return _checked("/".join([_escaped(each(value)) for each, value in zip(encode, id, strict=True)]))

    def id_of(self, text: str) -> Any:
        """One value, or a tuple for a composite key."""
        _checked(_text(text))
        decode = self._decode
        if len(decode) == 1:
            return decode[0](text)
        parts = _split(text)
        if len(parts) != len(decode):
            raise BadRequest(
                f"id {text!r:.200} must have {len(decode)} parts with '/' between them ({_names(self.parts)}); "
                r"within a part, write '\/' for a slash and '\\' for a backslash"
            )
        return tuple([each(part) for each, part in zip(decode, parts, strict=True)])


def shard_of(text: str, count: int) -> int:
    """The same number as the database makes of it."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big") % count


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("/", "\\/") if "/" in text or "\\" in text else text


def _split(text: str) -> list[str]:
    """None, where a backslash stands before anything but a backslash or a slash."""
    parts, start = [], 0
    while match := _PART.match(text, start):
        parts.append(_ESCAPED.sub(r"\1", match[0]) if "\\" in match[0] else match[0])
        if match.end() == len(text):
            return parts
        if text[match.end()] != "/":
            break
        start = match.end() + 1
    return []


def _checked(text: str) -> str:
    if not text or len(text) > LONGEST or "\x00" in text or not (text.isascii() or encodable(text)):
        raise BadRequest(f"id {text!r:.100} must be text of 1 to {LONGEST} characters without NUL")
    return text


def _names(parts: tuple[type, ...]) -> str:
    return ", ".join(getattr(part, "__name__", repr(part)) for part in parts) or "nothing"


def _wrong(value: object, wanted: str) -> BadRequest:
    return BadRequest(f"id {value!r:.200} ({type(value).__name__}) must be {wanted}")
