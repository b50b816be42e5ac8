"""Ids as text: what they look like, what is refused, and which shard they belong to."""

from __future__ import annotations

import enum
import hashlib
from typing import Any
from uuid import UUID

import pytest

from app.errors import BadRequest
from stages.identity import LONGEST, Codec, shard_of

ONE = UUID("6F9619FF-8B86-D011-B42D-00CF4FC964FF")
TEXT, NUMBER, UNIQUE = Codec((str,)), Codec((int,)), Codec((UUID,))
BOTH, ALL = Codec((str, str)), Codec((str, int, UUID))


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 7


@pytest.mark.parametrize(
    ("codec", "id", "text"),
    [
        (TEXT, "o-1", "o-1"),
        (TEXT, "a/b\\c", "a/b\\c"),
        (TEXT, "größe €", "größe €"),
        (TEXT, "x" * LONGEST, "x" * LONGEST),
        (TEXT, Colour.RED, "red"),
        (NUMBER, 0, "0"),
        (NUMBER, -17, "-17"),
        (NUMBER, Size.LARGE, "7"),
        (NUMBER, 2**63 - 1, "9223372036854775807"),
        (NUMBER, -(2**63), "-9223372036854775808"),
        (UNIQUE, ONE, "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        (BOTH, ("a", "b"), "a/b"),
        (BOTH, ("a/b", "c\\d"), r"a\/b/c\\d"),
        (BOTH, ("", ""), "/"),
        (BOTH, ("\\/", "/\\"), r"\\\//\/\\"),
        (ALL, ("x", -3, ONE), "x/-3/6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
    ],
)
def test_an_id_has_one_text(codec: Codec, id: Any, text: str) -> None:  # noqa: A002
    # S20
    assert codec.text_of(id) == text
    assert type(codec.text_of(id)) is str
    assert codec.id_of(text) == id


@pytest.mark.parametrize(
    ("codec", "id", "said"),
    [
        (TEXT, 5, "id 5 (int) must be text"),
        (TEXT, None, "id None (NoneType) must be text"),
        (TEXT, "", "id '' must be text of 1 to 500 characters without NUL"),
        (TEXT, "a\x00b", "without NUL"),
        (TEXT, "\ud800", "must be text of 1 to 500"),
        (TEXT, "é" * (LONGEST + 1), "must be text of 1 to 500"),
        (NUMBER, "5", "id '5' (str) must be a whole number of 64 bits"),
        (NUMBER, True, "id True (bool) must be a whole number"),
        (NUMBER, 5.0, "id 5.0 (float) must be a whole number"),
        (NUMBER, 2**63, "id 9223372036854775808 (int) must be a whole number of 64 bits"),
        (UNIQUE, str(ONE), "must be a uuid.UUID"),
        (BOTH, "a/b", "id 'a/b' must be a tuple of 2 values: str, str"),
        (BOTH, ("a",), "must be a tuple of 2 values"),
        (BOTH, ("a", "b", "c"), "must be a tuple of 2 values"),
        (BOTH, ("a", 1), "id 1 (int) must be text"),
        (BOTH, ("a" * 300, "b" * 200), "must be text of 1 to 500 characters"),
    ],
)
def test_what_is_no_id_has_no_text(codec: Codec, id: Any, said: str) -> None:  # noqa: A002
    with pytest.raises(BadRequest) as error:
        codec.text_of(id)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        (TEXT, ""),
        (TEXT, "a\x00"),
        (TEXT, 5),
        *[(NUMBER, text) for text in ("", "+1", "01", "-0", " 1", "1 ", "1_0", "1.0", "٣", str(2**63), "9" * 30)],
        *[(UNIQUE, text) for text in (str(ONE).upper(), ONE.hex, f"{{{ONE}}}", "x")],
        *[(BOTH, text) for text in ("a", "a/b/c", "a\\", "a\\/b", "a\\b/c", "a/b\\")],
        (ALL, "x/3/y"),
        (ALL, "x/y/6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
    ],
)
def test_a_text_that_no_id_has_is_refused(codec: Codec, text: Any) -> None:
    with pytest.raises(BadRequest, match="must "):
        codec.id_of(text)


@pytest.mark.parametrize("parts", [(), (float,), (str, bytes)])
def test_a_codec_is_of_types_that_have_one_text(parts: tuple[type, ...]) -> None:
    with pytest.raises(BadRequest, match=r"use str, int or uuid\.UUID"):
        Codec(parts)


@pytest.mark.parametrize("text", ["o-1", "größe €", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"])
def test_the_shard_is_what_the_first_half_of_md5_leaves(text: str) -> None:
    # S13
    assert shard_of(text, 16) == int(hashlib.md5(text.encode()).hexdigest()[:8], 16) % 16  # noqa: S324
    assert shard_of(text, 1) == 0
