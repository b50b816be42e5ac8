"""What a save leaves behind in its own transaction: an event for the relay, a job of the stage's `saved` (S14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.db import engine
from app.outbox.model import EVENT
from app.registry import Hook, Registry
from stages import Patch, Untouched, registration
from stages.events import record_outside
from stages.watched import kind_of
from tests.kit.faults import Crashed, crash_at
from tests.kit.stages_rows import Lot, Offer, Stages, execute, visit, world
from tests.kit.waiting import never_within

SOON = datetime.now(UTC) + timedelta(hours=1)
URL = "type.googleapis.com/google.protobuf.Int64Value"


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def events() -> Sequence[Row[Any]]:
    return execute(sa.select(EVENT).order_by(EVENT.c.id))


def jobs() -> Sequence[Row[Any]]:
    return execute("SELECT queue, task, args, kwargs, max_attempts FROM tidemill.job ORDER BY id")


def hooks() -> dict[str, Hook]:
    """The world of a test has a registry of its own."""
    found: Registry = vars(registration)["registry"]
    return found.hooks


def seven(*_: object) -> Patch:
    return Patch({"price": 7, "status": "live"}, state=Int64Value(value=1))


def test_a_save_is_an_event(stages: Stages) -> None:
    stages.stage("publish", does=seven, state=Int64Value)
    stages.asked("a", "b", price=3, note={"long": "text"})
    assert stages.serve("publish") == 2
    for event, entity_id in zip(sorted(events(), key=lambda event: str(event.entity_id)), "ab", strict=True):
        assert (event.kind, event.entity_id, event.stage, event.version) == ("offer", entity_id, "publish", 2)
        assert event.fields == ["price", "status"]
        assert event.entity == {"id": entity_id, "price": 7, "status": "live", "note": {"long": "text"}, "version": 2}
        assert (event.state_type, event.state_version > 0) == (URL, True)
        assert Int64Value.FromString(bytes(event.state_value)).value == 1
    assert jobs() == []


def test_what_is_not_changed_is_no_field_of_the_event(stages: Stages) -> None:
    stages.stage("publish", does=Patch({"price": 3, "status": "live"}))
    stages.asked("a", price=3)
    stages.serve("publish")
    assert [(event.fields, event.state_type, event.state_version) for event in events()] == [(["status"], None, 0)]


@pytest.mark.parametrize("of", [Offer, Lot])
def test_a_new_state_alone_is_an_event_too(stages: Stages, of: type) -> None:
    given = [Int64Value(value=1), Int64Value(value=2), None]
    stages.stage("publish", does=lambda *_: Untouched(timer=timedelta(0), state=given.pop(0)), state=Int64Value, of=of)
    stages.asked("a", of=of)
    kind = kind_of(of).name
    for _ in range(3):
        stages.serve("publish", kind)
        if not given:
            break
    found = [(event.kind, event.version, event.fields, event.state_version) for event in events()]
    assert found[:3] == [(kind, 1, [], 1), (kind, 1, [], 2), (kind, 1, [], 0)]


@pytest.mark.parametrize(
    "outcome", [Untouched(), Untouched(timer=SOON), Patch({"price": 3}), Untouched(state=None), Patch({}, timer=SOON)]
)
def test_a_visit_that_changes_nothing_is_none(stages: Stages, outcome: Any) -> None:
    stages.stage("publish", does=outcome, state=Int64Value, tells=lambda *_: None)
    stages.asked("a", price=3)
    assert stages.serve("publish") == 1
    assert (events(), jobs()) == ([], [])


@pytest.mark.parametrize("point", ["visits.processed", "finish.before_commit"])
def test_it_comes_with_the_save_or_not_at_all(stages: Stages, point: str) -> None:
    stages.stage("publish", does=seven, state=Int64Value, tells=lambda *_: None)
    stages.asked("a")
    with crash_at(point), pytest.raises(Crashed):
        stages.serve("publish")
    assert (events(), jobs()) == ([], [])
    stages.sweep()
    stages.all_due()
    stages.serve("publish")
    assert (len(events()), len(jobs())) == (1, 1)


def test_a_conflict_leaves_one_event_of_what_was_saved_in_the_end(stages: Stages) -> None:
    # S9
    def process(_offer: Offer, _state: object) -> Patch:
        if len(stages.made) == 1:
            execute("UPDATE offer SET note = '1' WHERE id = 'a'")
        return Patch({"status": "live"}, reads=["note"])

    stages.stage("publish", does=process)
    stages.asked("a", "b")
    stages.serve("publish")
    assert [(event.entity_id, event.version) for event in events()] == [("b", 2), ("a", 3)]
    assert events()[1].entity["note"] == 1


def test_events_of_one_entity_have_the_order_of_their_commits(stages: Stages) -> None:
    """A stage keeps a state alone, while somebody else, who has the entity, draws a later number and commits first."""
    stages.stage("publish", does=lambda *_: Untouched(state=Int64Value(value=1)), state=Int64Value, of=Lot)
    stages.asked("a", of=Lot)
    with Session(engine()) as other, ThreadPoolExecutor(1) as threads:
        kind_of(Lot).store.hold(other, ["a"], wait=True)
        record_outside(other.connection(), kind_of(Lot), "other", "a")
        served = threads.submit(stages.serve, "publish", "lot")
        assert never_within(lambda: len(events()) > 0, 0.3)
        other.commit()
        served.result(60)
    while visits := execute("SELECT 1 FROM tidemill.stage_visit WHERE stage = 'publish'"):
        assert len(visits) == 1
        stages.all_due()
        stages.serve("publish", "lot")
    assert [event.stage for event in events()] == ["other", "publish"]


# The hook


def test_the_hook_is_a_job_of_the_same_transaction(stages: Stages) -> None:
    told: list[tuple[Any, Any]] = []
    definition = stages.stage(
        "publish", does=seven, state=Int64Value, tells=lambda *saved: told.append(saved), max_attempts=4
    )
    stages.asked("a")
    stages.serve("publish")
    (event,) = events()
    task = f"{definition.task}.saved"
    assert [tuple(each) for each in jobs()] == [("saved.offer.publish", task, ["offer", "a", event.id], {}, 4)]
    execute("UPDATE offer SET price = 100")
    hooks()[task].function("offer", "a", event.id)
    ((entity, state),) = told
    assert isinstance(entity, Offer)
    assert (entity.id, entity.price, entity.status, entity.version) == ("a", 7, "live", 2), "as it was saved"
    assert state == Int64Value(value=1)
    assert visit("a").state == "waiting", "what the test has written asks the stages again"


def test_a_hook_whose_event_is_gone_says_so(stages: Stages, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    definition = stages.stage("publish", does=seven, state=Int64Value, tells=lambda *saved: told.append(saved))
    hooks()[f"{definition.task}.saved"].function("offer", "a", 5)
    assert told == []
    assert "saved is not called: its event 5 is not kept any more" in caplog.text
