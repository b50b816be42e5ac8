"""What is sent to a service and what comes back, without either (S5, S18)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct

from app.errors import BadOutcome
from app.proto.tidemill.v1 import stage_pb2
from stages.outcomes import KEEP
from stages.remote import wire
from stages.remote.service import Remote
from stages.state import Stored
from tests.kit.remote_messages import Offer

DOCUMENT = '{"id":"a","price":7,"status":"new","weight":1.10,"at":"2026-01-01T00:00:00+00:00","note":null,"version":3}'


def remote(message: Any = None) -> Remote:
    none: dict[str, Any] = dict.fromkeys(Remote.__dataclass_fields__)
    return Remote(**none | {"kind": "offer", "name": "score", "message": message})


def sent(message: Any = None, document: str = DOCUMENT) -> wire.Sent:
    return wire.sent(remote(message), "offer", "a", 3, document)


def updated(text: str) -> stage_pb2.ProcessResponse:
    return stage_pb2.ProcessResponse(updated=stage_pb2.ProcessResponse.Updated(json=text))


def test_an_entity_is_sent_as_the_database_wrote_it() -> None:
    entity = sent().entity
    assert (entity.kind, entity.id, entity.version, entity.json) == ("offer", "a", 3, DOCUMENT)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({'"price":7': '"price":7.0'}, {}),
        ({'"weight":1.10': '"weight":1.1'}, {}),
        ({'"price":7': '"price":"7"'}, {"price": "7"}),
        ({'"price":7': '"price":true'}, {"price": True}),
        ({'"note":null': '"note":[1,{"x":2.5}]'}, {"note": [1, {"x": Decimal("2.5")}]}),
    ],
)
def test_what_differs_in_value_was_changed(change: dict[str, str], expected: dict[str, Any]) -> None:
    text = DOCUMENT
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    assert wire.answer(sent(), updated(text)).values == expected


def test_numbers_reach_the_database_with_every_digit() -> None:
    made = wire.document_of(sent(), {"weight": Decimal("1.1000000000000000000001"), "note": {"x": Decimal("2.5")}})
    assert '"weight":1.1000000000000000000001' in made
    assert '"note":{"x": 2.5}' in made


def test_deep_json_is_refused() -> None:
    deep = "[" * 100_000
    with pytest.raises(BadOutcome, match="is no JSON"):
        wire.answer(sent(), updated(deep))


@pytest.mark.parametrize("number", ["1e99999999999999999999", "-1e-99999999999999999999"])
def test_a_number_that_nobody_can_hold_is_refused(number: str) -> None:
    for response in (
        updated(DOCUMENT.replace("null", number)),
        stage_pb2.ProcessResponse(patch=stage_pb2.ProcessResponse.Patch(json=f'{{"price":{number}}}')),
    ):
        with pytest.raises(BadOutcome, match="is no JSON"):
            wire.answer(sent(), response)


def test_what_is_nested_too_deep_is_refused() -> None:
    """Whoever compares it later would come to an end, not the service that answered it."""
    for deep, well in ((wire.DEPTH, True), (wire.DEPTH + 1, False)):
        text = "[" * deep + "1" + "]" * deep
        response = stage_pb2.ProcessResponse(patch=stage_pb2.ProcessResponse.Patch(json=f'{{"note":{text}}}'))
        if well:
            assert wire.answer(sent(), response).values is not None
        else:
            with pytest.raises(BadOutcome, match="nested more than 100 deep"):
                wire.answer(sent(), response)


def test_what_is_too_deep_to_be_compared_is_refused() -> None:
    """A comparison takes more room than reading does."""
    deep = '{"x":' * 700 + "1" + "}" * 700
    document = DOCUMENT.replace("null", deep)
    with pytest.raises(BadOutcome, match="too deep"):
        wire.answer(sent(document=document), updated(document))


def test_state_and_timer() -> None:
    kept = AnyMessage(type_url="example.com/x", value=b"\x00\xff")
    full = stage_pb2.ProcessResponse(untouched={}, state=kept)
    full.after.FromTimedelta(timedelta(seconds=5))
    found = wire.answer(sent(), full)
    assert (found.values, found.state, found.timer) == (None, kept, timedelta(seconds=5))
    assert wire.answer(sent(), stage_pb2.ProcessResponse(untouched={})).state is KEEP
    assert wire.answer(sent(), stage_pb2.ProcessResponse(untouched={}, no_state=True)).state is None
    assert wire.state_of(None) is None
    assert wire.state_of(Stored("x", b"", 0)) is None
    assert wire.state_of(Stored("example.com/x", b"\x00\xff", 4)) == stage_pb2.State(value=kept, version=4)
    now = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert wire.moment_of(now).ToDatetime(tzinfo=UTC) == now


# Messages


def test_an_entity_is_sent_as_its_message() -> None:
    given = sent(Offer, '{"id":"a","price":null,"status":"new","version":3,"picture":"\\\\x00ff","other":{"x":1}}')
    made: Any = Offer()
    assert given.entity.message.Unpack(made)
    assert (made.id, made.HasField("price"), made.status, made.picture) == ("a", False, "new", b"\x00\xff")


def test_what_differs_in_a_message_was_changed() -> None:
    given = sent(Offer)
    made: Any = Offer()
    given.entity.message.Unpack(made)
    made.status = ""
    made.ClearField("price")
    made.picture = b"\x01"
    response = stage_pb2.ProcessResponse()
    response.updated.message.Pack(made)
    assert wire.answer(given, response).values == {"status": "", "price": None, "picture": "\\x01"}


def test_a_message_of_another_class_is_refused() -> None:
    response = stage_pb2.ProcessResponse()
    response.updated.message.Pack(stage_pb2.Failure(message="x"))
    with pytest.raises(BadOutcome, match="Failure"):
        wire.answer(sent(Offer), response)
    with pytest.raises(BadOutcome, match="the entity was sent as json"):
        wire.answer(sent(), response)
    response.updated.message.type_url = "type.googleapis.com/kit.Offer"
    response.updated.message.value = b"\xff\xff"
    with pytest.raises(BadOutcome, match=r"cannot be read as kit\.Offer"):
        wire.answer(sent(Offer), response)


def test_a_message_that_json_cannot_tell_is_refused() -> None:
    made = Struct()
    made.fields["x"].number_value = math.nan
    response = stage_pb2.ProcessResponse()
    response.updated.message.Pack(made)
    with pytest.raises(BadOutcome, match=r"cannot be read as google\.protobuf\.Struct"):
        wire.answer(sent(Struct), response)


def test_what_is_no_message_is_not_sent() -> None:
    with pytest.raises(BadOutcome, match=r"cannot be sent as kit\.Offer"):
        sent(Offer, '{"id":"a","price":"much","status":"new","version":3}')


@pytest.mark.parametrize(
    ("sent", "answered", "changed"),
    [
        ("9007199254740993", "9007199254740992", False),
        ("12345678901234567.89", "12345678901234568", False),
        ("1.50", "1.5", False),
        ("1", "true", True),
        ("1", "2", True),
        ("0.1", "0.10000001", True),
        ('[1, {"a": 2}]', '[1.0, {"a": 2.0}]', False),
        ("null", "0", True),
        # More than a double has room for.
        ("1", "1" + "0" * 400, True),
        ("1e999", "2e999", True),
    ],
)
def test_numbers_that_were_rounded_on_the_way_are_not_changed(sent: str, answered: str, changed: bool) -> None:  # noqa: FBT001
    assert wire._same(wire._object("it", f'{{"a": {sent}}}'), wire._object("it", f'{{"a": {answered}}}')) is not changed
