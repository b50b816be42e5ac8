"""The codec of ids: there and back, in both directions, and no two ids of one text."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from app.errors import BadRequest
from stages.identity import LONGEST, Codec, shard_of

#: Much of what is escaped, or looks like it.
texts = st.text(st.sampled_from("\\/ab\n") | st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
values: dict[type, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(-(2**63), 2**63 - 1),
    UUID: st.uuids(),
}
codecs = st.lists(st.sampled_from(list(values)), min_size=1, max_size=4).map(lambda parts: Codec(tuple(parts)))


def ids_of(codec: Codec) -> st.SearchStrategy[Any]:
    parts = [values[part] for part in codec.parts]
    return parts[0] if len(parts) == 1 else st.tuples(*parts)


pairs = codecs.flatmap(lambda codec: st.tuples(st.just(codec), ids_of(codec), ids_of(codec)))


def naive(value: Any) -> str:
    """As the database does it: part by part, then joined."""
    if not isinstance(value, tuple):
        return str(value)
    return "/".join(str(part).replace("\\", "\\\\").replace("/", "\\/") for part in value)


@given(pairs)
@example((Codec((str, str)), ("\\", "/"), ("\\/", "")))
def test_every_id_has_a_text_of_its_own(drawn: tuple[Codec, Any, Any]) -> None:
    # S20
    codec, one, other = drawn
    assume(all(0 < len(naive(each)) <= LONGEST for each in (one, other)))
    assert codec.text_of(one) == naive(one)
    assert codec.id_of(codec.text_of(one)) == one
    assert (codec.text_of(one) == codec.text_of(other)) == (one == other)


@given(codecs, texts)
def test_a_text_is_of_one_id_or_refused(codec: Codec, text: str) -> None:
    # S20
    try:
        found = codec.id_of(text)
    except BadRequest:
        return
    assert codec.text_of(found) == text


@given(codecs, st.none() | st.binary() | st.floats() | st.lists(texts) | st.tuples(texts, st.booleans()))
def test_anything_else_is_refused(codec: Codec, value: Any) -> None:
    with pytest.raises(BadRequest):
        codec.text_of(value)


@given(texts, st.integers(1, 1024))
def test_a_shard_lies_within_the_count(text: str, count: int) -> None:
    # S13
    assert 0 <= shard_of(text, count) < count
