"""The state of a stage, as it is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from app.errors import BadOutcome
from stages.definition import Definition
from stages.state import STATE_LIMIT, Stored, pack, unpack
from tests.kit.stages_memory import MODULE, declare, nothing_declared, parcels


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with nothing_declared():
        yield


@pytest.fixture
def counting() -> Definition:
    return declare(parcels(), state=Int64Value)


def stored(definition: Definition, state: object, version: int = 1) -> Stored:
    return Stored(*pack(definition, "p-1", state), version)


def test_a_state_comes_back_as_it_was_stored(counting: Definition) -> None:
    # S6
    there = stored(counting, Int64Value(value=7))
    assert unpack(counting, there) == Int64Value(value=7)
    assert unpack(counting, there) is not unpack(counting, there), "each call may change its own"


def test_it_is_what_any_pack_makes(counting: Definition) -> None:
    # S6
    packed = AnyMessage()
    packed.Pack(Int64Value(value=7))
    assert pack(counting, "p-1", Int64Value(value=7)) == (packed.type_url, packed.value)
    assert unpack(counting, Stored("example.com/types/google.protobuf.Int64Value", packed.value, 1)) is not None


def test_there_may_be_none(counting: Definition) -> None:
    assert unpack(counting, None) is None
    assert unpack(counting, Stored("", b"", 0)) is None


def test_a_stage_that_declares_none_is_given_none(counting: Definition) -> None:
    stateless = declare(parcels(), "post")
    assert unpack(stateless, stored(counting, Int64Value(value=7))) is None
    with pytest.raises(BadOutcome, match=rf"stage {MODULE}.post of parcel 'p-1': .* declares none: add state="):
        pack(stateless, "p-1", Int64Value())


def test_what_is_stored_under_another_type_is_not_read(counting: Definition) -> None:
    there = stored(declare(parcels(), "post", state=StringValue), StringValue(value="x"))
    with pytest.raises(BadOutcome, match=rf"{MODULE}.weigh: it declares .*Int64Value, but .*StringValue: declare that"):
        unpack(counting, there)
    with pytest.raises(BadOutcome, match=rf"stage {MODULE}.weigh: what is stored cannot be read as"):
        unpack(counting, Stored(there.type_url.replace("String", "Int64"), b"\xff\xff", 1))


@pytest.mark.parametrize("state", [StringValue(), 7, Int64Value, b""])
def test_a_state_of_another_type_is_refused(counting: Definition, state: object) -> None:
    with pytest.raises(BadOutcome, match=r"of parcel 'p-1': state=.* must be a google.protobuf.Int64Value"):
        pack(counting, "p-1", state)


def test_a_state_has_a_limit() -> None:
    writing = declare(parcels(), state=StringValue)
    for length in (STATE_LIMIT // 2, STATE_LIMIT - 4):
        assert len(pack(writing, "p-1", StringValue(value="x" * length))[1]) <= STATE_LIMIT
    with pytest.raises(BadOutcome, match="its state takes 1048580 bytes, more than 1048576: store the large part"):
        pack(writing, "p-1", StringValue(value="x" * STATE_LIMIT))
