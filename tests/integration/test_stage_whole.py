"""Visits that have changed their entities are saved and ended by one statement (S6, S9, S14): what comes of it is what
comes of it step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value

from app import db
from app.outbox.model import EVENT
from stages import Patch
from stages import visits as visiting
from stages.model import STATE
from tests.kit.plans import captured
from tests.kit.stages_rows import Stages, entity, execute, waiting, world

URL = "type.googleapis.com/google.protobuf.Int64Value"
FIVE, SIX = Int64Value(value=5), Int64Value(value=6)
REFUSE = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'begin return null; end';
CREATE TRIGGER refuse BEFORE UPDATE ON offer FOR EACH ROW WHEN (old.id = 'b') EXECUTE FUNCTION public.refuse()
"""


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def states() -> dict[str, tuple[Any, ...]]:
    rows = execute(sa.select(STATE.c.entity_id, STATE.c.type_url, STATE.c.value, STATE.c.version))
    return {row.entity_id: (row.type_url, bytes(row.value), row.version) for row in rows}


def told() -> dict[str, tuple[Any, ...]]:
    rows = execute(sa.select(EVENT).order_by(EVENT.c.id))
    assert [(row.version, row.fields, row.entity["price"], row.entity["version"]) for row in rows] == [
        (2, ["price"], 7, 2)
    ] * len(rows)
    return {
        row.entity_id: (row.state_type, row.state_value and bytes(row.state_value), row.state_version) for row in rows
    }


def whole(texts: list[str]) -> list[bool]:
    """Of each statement that ends visits of `publish`: whether it saves the entities as well."""
    return ["_whole_" in each for each in texts if "_whole_" in each or "_complete_guarded" in each]


@pytest.mark.parametrize("together", [True, False])
def test_what_is_told_is_what_is_kept(stages: Stages, monkeypatch: pytest.MonkeyPatch, *, together: bool) -> None:
    def process(offer: Any, _state: object) -> Patch:
        state: dict[str, Any] = {"first": {"state": SIX}, "next": {"state": SIX}, "removed": {"state": None}}
        return Patch({"price": 7}, **state.get(offer.id, {}))

    if not together:
        monkeypatch.setattr(visiting, "whole", lambda *_: None)
    stages.stage("publish", does=process, state=Int64Value, tells=lambda *_: None)
    stages.stage("other")
    stages.asked("first", "next", "kept", "removed", "none")
    for each in ("next", "kept", "removed"):
        row = {"kind": "offer", "entity_id": each, "stage": "publish", "type_url": URL, "version": 4}
        execute(sa.insert(STATE).values(value=FIVE.SerializeToString(), **row))
    with captured(db.engine()) as statements:
        assert stages.serve("publish") == 5
    assert whole([each.text for each in statements if each.text.startswith("EXECUTE")]) == [together]
    kept, none = states(), (None, None, 0)
    first = kept["first"][2]
    assert first > 0
    assert kept == {
        "first": (URL, SIX.SerializeToString(), first),
        "next": (URL, SIX.SerializeToString(), 5),
        "kept": (URL, FIVE.SerializeToString(), 4),
    }
    assert told() == {**kept, "removed": none, "none": none}
    assert len(execute("SELECT 1 FROM tidemill.job")) == 5
    assert sorted(waiting()) == sorted((each, "other") for each in ("first", "next", "kept", "removed", "none"))


def test_what_a_trigger_of_the_table_keeps_from_being_saved_is_not_ended(stages: Stages) -> None:
    stages.stage("publish", does=Patch({"price": 7}, state=SIX), state=Int64Value)
    stages.asked("a", "b", "c")
    execute(REFUSE)
    stages.serve("publish")
    assert [entity(each).price for each in "abc"] == [7, None, 7]
    assert waiting() == [("b", "publish")]
    assert sorted(states()) == sorted(told()) == ["a", "c"]
