"""A state outlives releases: what is stored by old code and read by new, and the other way round (S6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue
from pydantic import BaseModel, ConfigDict, Field

from app.errors import BadOutcome
from stages import JsonState
from stages.state import Stored, pack, unpack
from tests.kit.messages import NUMBER, TEXT, message
from tests.kit.stages_memory import declare, nothing_declared, parcels

#: Of a first release; of one with another field; of one that has dropped the first.
OLD = message("shop.Progress", step=(1, TEXT))
NEW = message("shop.Progress", step=(1, TEXT), tries=(2, NUMBER))
LATEST = message("shop.Progress", tries=(2, NUMBER))
RENAMED = message("shop.Advance", step=(1, TEXT), tries=(2, NUMBER))


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with nothing_declared():
        yield


def saved(state: Any, form: Any = None) -> Stored:
    """By a release that declares its class."""
    definition = declare(parcels(), state=type(state) if form is None else form)
    return Stored(*pack(definition, "p-1", state), version=1)


def read(form: Any, stored: Stored) -> Any:
    return unpack(declare(parcels(), state=form), stored)


def test_a_field_that_was_added_is_empty_in_what_is_old() -> None:
    found = read(NEW, saved(OLD(step="half")))
    assert (found.step, found.tries) == ("half", 0)


def test_older_code_keeps_a_field_that_it_does_not_know() -> None:
    # A release is rolled back, or runs beside the next one.
    found = read(OLD, saved(NEW(step="half", tries=3)))
    found.step = "done"
    again = read(NEW, saved(found))
    assert (again.step, again.tries) == ("done", 3)


def test_a_field_that_was_removed_is_kept_until_a_new_message_is_made() -> None:
    found = read(LATEST, saved(NEW(step="half", tries=3)))
    found.tries += 1
    assert read(NEW, saved(found)) == NEW(step="half", tries=4)
    assert read(NEW, saved(LATEST(tries=4))) == NEW(tries=4)


def test_a_message_that_was_renamed_is_refused_with_what_to_do() -> None:
    said = (
        r"weigh: it declares a state of shop.Advance, but what is stored is a type.googleapis.com/shop.Progress: "
        r"declare that again, or declare google.protobuf.Any and convert what is stored"
    )
    with pytest.raises(BadOutcome, match=said):
        read(RENAMED, saved(OLD(step="half")))


def test_a_renamed_message_is_converted_by_hand() -> None:
    def advance(packed: AnyMessage) -> Message:
        found, old = RENAMED(), NEW()
        if packed.Unpack(old):
            return RENAMED(step=old.step, tries=old.tries)  # type: ignore[attr-defined]
        assert packed.Unpack(found)
        return found

    for stored in (saved(NEW(step="half", tries=3)), saved(RENAMED(step="half", tries=3))):
        found = advance(read(AnyMessage, stored))
        assert found == RENAMED(step="half", tries=3)
        packed = AnyMessage()
        packed.Pack(found)
        # By then the release after may declare the new name.
        assert read(RENAMED, saved(packed)) == found


class Old(BaseModel):
    step: str


class New(Old):
    tries: int = 0


class Keeping(BaseModel):
    model_config = ConfigDict(extra="allow")

    step: str


class Strict(Old):
    model_config = ConfigDict(extra="forbid")


class Needing(Old):
    tries: int


def test_a_field_with_a_default_may_be_added_to_a_model() -> None:
    assert read(New, saved(Old(step="half"))) == New(step="half", tries=0)


def test_a_field_without_a_default_may_not() -> None:
    with pytest.raises(BadOutcome, match=r"weigh: what is stored cannot be read as Needing: tries: Field required$"):
        read(Needing, saved(Old(step="half")))


def test_older_code_of_a_model_loses_a_field_that_it_does_not_know() -> None:
    found = read(Old, saved(New(step="half", tries=3)))
    assert found == Old(step="half")
    assert read(New, saved(found)) == New(step="half", tries=0)


def test_older_code_of_a_model_that_allows_extra_fields_keeps_it() -> None:
    found = read(Keeping, saved(New(step="half", tries=3)))
    found.step = "done"
    assert read(New, saved(found)) == New(step="done", tries=3)


def test_older_code_of_a_model_that_forbids_extra_fields_fails() -> None:
    with pytest.raises(BadOutcome, match="cannot be read as Strict: tries: Extra inputs are not permitted"):
        read(Strict, saved(New(step="half", tries=3)))


def test_a_model_may_be_renamed_and_its_aliases_changed() -> None:
    class Aliased(BaseModel):
        step: str = Field(alias="at_step")

    assert read(Aliased, saved(Old(step="half"))) == Aliased(at_step="half")
    assert read(Old, saved(Aliased(at_step="half"))) == Old(step="half")
    assert read(Aliased, saved(JsonState(json='{"at_step": "half"}'))) == Aliased(at_step="half")


def test_a_message_is_converted_into_a_model() -> None:
    with pytest.raises(BadOutcome, match=r"a state of Old \(kept as tidemill.v1.JsonState\), but .*shop.Progress"):
        read(Old, saved(OLD(step="half")))
    packed, old = read(AnyMessage, saved(OLD(step="half"))), OLD()
    assert packed.Unpack(old)
    model = Old(step=old.step)  # type: ignore[attr-defined]
    packed.Pack(JsonState(json=model.model_dump_json()))
    assert read(Old, saved(packed)) == model


def test_and_a_model_into_a_message() -> None:
    with pytest.raises(BadOutcome, match=r"a state of shop.Progress, but .*tidemill.v1.JsonState"):
        read(OLD, saved(Old(step="half")))
    packed, kept = read(AnyMessage, saved(Old(step="half"))), JsonState()
    assert packed.Unpack(kept)
    assert kept == JsonState(model="Old", json='{"step":"half"}')


def test_a_type_that_nobody_knows_is_kept_byte_for_byte() -> None:
    # Not even a message; and none that would be written so.
    stored = Stored("example.com/types/shop.v9.Unknown", b"\xff\x08\x01\x00", version=7)
    packed = read(AnyMessage, stored)
    assert (packed.type_url, packed.value) == (stored.type_url, stored.value)
    again = saved(packed)
    assert (again.type_url, again.value) == (stored.type_url, stored.value)


def test_a_stage_that_declares_none_any_more_is_given_none() -> None:
    assert read(None, saved(StringValue(value="x"))) is None
    assert read(None, Stored("no type", b"\xff", 1)) is None
