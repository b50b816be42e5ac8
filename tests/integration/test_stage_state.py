"""States of every form, as visits save them (S6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import StringValue
from pydantic import BaseModel

from stages import JsonState, Patch, Untouched
from stages.model import STATE
from tests.kit.messages import NUMBER, TEXT, message
from tests.kit.stages_rows import Stages, entity, execute, visit, world

OLD = message("shop.Progress", step=(1, TEXT))
NEW = message("shop.Progress", step=(1, TEXT), tries=(2, NUMBER))


class Progress(BaseModel):
    step: str
    tries: int = 0


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def kept(stage: str = "publish") -> tuple[str, bytes, int] | None:
    rows = execute(sa.select(STATE.c.type_url, STATE.c.value, STATE.c.version).where(STATE.c.stage == stage))
    return None if not rows else (rows[0].type_url, bytes(rows[0].value), rows[0].version)


def stands(type_url: str, value: bytes, stage: str = "publish") -> None:
    """As another release has left it."""
    row = {"kind": "offer", "entity_id": "a", "stage": stage, "type_url": type_url, "value": value}
    execute(sa.insert(STATE).values(row))


def test_a_model_is_saved_with_the_entity_and_given_again(stages: Stages) -> None:
    # S6
    def process(offer: Any, state: Progress | None) -> Patch:
        tries = 0 if state is None else state.tries
        return Patch({"price": tries}, state=Progress(step="Łódź", tries=tries + 1))

    stages.stage("publish", state=Progress, does=process)
    stages.asked("a")
    for tries in (1, 2):
        assert stages.serve("publish") == 1
        found = kept()
        assert found is not None
        assert found[0] == "type.googleapis.com/tidemill.v1.JsonState"
        assert Progress.model_validate_json(JsonState.FromString(found[1]).json) == Progress(step="Łódź", tries=tries)
        assert entity().price == tries - 1
        execute("update offer set status = 'changed' where id = 'a'")
        stages.serve()


def test_releases_of_a_message_read_what_the_others_have_saved(stages: Stages) -> None:
    # S6
    stands("type.googleapis.com/shop.Progress", NEW(step="half", tries=3).SerializeToString())

    def process(offer: Any, state: Any) -> Untouched:
        state.step += "!"
        return Untouched(state=state)

    stages.put("a")
    for number, form in enumerate((OLD, NEW), 1):
        stages.stage("publish", state=form, does=process)
        execute("update offer set price = :price where id = 'a'", price=number)
        stages.serve()
        assert stages.serve("publish") == 1
        found = kept()
        assert found is not None
        assert NEW.FromString(found[1]) == NEW(step="half" + "!" * number, tries=3)
        stages.undeclare("publish")


@pytest.mark.parametrize("url", ["x/shop.v9.Unknown", 'of "quotes" \\ and {braces}', "ŁÓDŹ", "\x01"])
def test_a_type_that_nobody_knows_stays_byte_for_byte(stages: Stages, url: str) -> None:
    # S6
    value = bytes(range(256))
    stands(url, value)
    seen = []

    def process(offer: Any, state: AnyMessage) -> Untouched:
        seen.append((state.type_url, state.value))
        return Untouched(state=state)

    stages.stage("publish", state=AnyMessage, does=process)
    stages.asked("a")
    assert stages.serve("publish") == 1
    assert seen == [(url, value)]
    assert kept() == (url, value, 2)


def test_a_stage_that_declares_none_any_more_leaves_what_is_stored(stages: Stages) -> None:
    # S6
    value = StringValue(value="x").SerializeToString()
    stands("type.googleapis.com/google.protobuf.StringValue", value)
    stages.stage("publish", wants=lambda _offer, state: state is None, does=Patch({"price": 4}))
    stages.asked("a")
    assert stages.serve("publish") == 1
    assert entity().price == 4
    assert kept() == ("type.googleapis.com/google.protobuf.StringValue", value, 1)


def test_what_cannot_be_read_fails_the_visit_of_its_entity_alone(stages: Stages) -> None:
    # S6 S17
    stands("type.googleapis.com/tidemill.v1.JsonState", JsonState(json='{"tries": "many"}').SerializeToString())
    stages.stage("publish", state=Progress, does=Untouched(state=Progress(step="done")))
    stages.asked("a", "b")
    assert stages.serve("publish") == 2
    error = visit("a", "publish").error
    assert "cannot be read as Progress: step: Field required; tries: Input should be a valid integer" in error
    rows = execute(sa.select(STATE.c.entity_id, STATE.c.version).order_by(STATE.c.entity_id))
    assert [tuple(row) for row in rows] == [("a", 1), ("b", 1)]
