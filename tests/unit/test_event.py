"""What a message says, and what is none (S14)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from app.errors import BadRequest
from app.events import Event
from app.events.event import Malformed, read
from app.events.subscriptions import check
from tidemill import events

MESSAGE: dict[str, Any] = {
    "sequence": 17,
    "kind": "offer",
    "id": "o-1",
    "stage": "expire",
    "version": 5,
    "fields": ["status"],
    "entity": {"id": "o-1", "status": "gone"},
    "state": {"type_url": "type.googleapis.com/shop.Mailed", "value": "CAE=", "version": 3},
    "saved_at": "2026-07-01T12:00:00.5Z",
}


def _read(**changes: Any) -> Event:
    return read(json.dumps(MESSAGE | changes))


def test_a_message() -> None:
    event = _read()
    assert (event.sequence, event.key, event.stage, event.version) == (17, ("offer", "o-1"), "expire", 5)
    assert event.fields == ("status",)
    assert event.entity == {"id": "o-1", "status": "gone"}
    assert event.state is not None
    assert (event.state.type_url, event.state.value, event.state_version) == (
        "type.googleapis.com/shop.Mailed",
        b"\x08\x01",
        3,
    )
    assert event.saved_at == datetime(2026, 7, 1, 12, 0, 0, 500_000, UTC)


def test_without_a_state_and_without_an_entity() -> None:
    event = _read(state=None, entity=None)
    assert (event.state, event.state_version, event.entity) == (None, 0, None)


def test_what_is_added_later_is_passed_over() -> None:
    assert _read(colour="red") == _read()


def test_it_is_acknowledged_by_whoever_has_it() -> None:
    said = []
    event = read(json.dumps(MESSAGE), lambda: said.append(1))
    event.ack()
    assert said == [1]
    assert "_ack" not in repr(event)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no JSON",
        b"\xff\xfe",
        "[" * 100_000,
        "[]",
        "17",
        "{}",
        *(json.dumps({word: MESSAGE[word] for word in MESSAGE if word != missing}) for missing in MESSAGE),
        json.dumps(MESSAGE | {"sequence": "17"}),
        json.dumps(MESSAGE | {"sequence": True}),
        json.dumps(MESSAGE | {"id": 1}),
        json.dumps(MESSAGE | {"fields": None}),
        json.dumps(MESSAGE | {"entity": "all"}),
        json.dumps(MESSAGE | {"state": "all"}),
        json.dumps(MESSAGE | {"state": {"type_url": "x", "value": "!", "version": 1}}),
        json.dumps(MESSAGE | {"saved_at": "yesterday"}),
        json.dumps(MESSAGE | {"saved_at": "2026-07-01T12:00:00"}),
    ],
)
def test_what_is_no_event(body: str | bytes) -> None:
    with pytest.raises(Malformed):
        read(body)


def test_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.events.event.LARGEST", 10)
    with pytest.raises(Malformed, match="larger than 10"):
        read(json.dumps(MESSAGE))


@pytest.mark.parametrize("name", ["mail", "Mail_2.search-a", "x" * 100])
def test_names_of_subscriptions(name: str) -> None:
    assert events.Subscriber(name, "#", url="memory://").name == name


@pytest.mark.parametrize("name", ["", "a b", ".mail", "-mail", "x" * 101, "mail\n", "é"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadRequest, match="a name is"):
        events.Subscriber(name, "#")


@pytest.mark.parametrize("pattern", ["#", "*", "offer.*", "*.expire", "offer.expire", "offer.#", "é.ü"])
def test_patterns(pattern: str) -> None:
    assert events.Subscriber("mail", pattern, url="memory://").patterns == (pattern,)


@pytest.mark.parametrize("pattern", ["", ".", "offer.", ".expire", "of*er.expire", "a b", "offer..x", "x" * 256])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadRequest, match="is no pattern"):
        check("mail", [pattern])


def test_a_subscription_to_nothing() -> None:
    with pytest.raises(BadRequest, match="has no pattern"):
        events.Subscriber("mail")
