"""Visits that fail: one at a time, with backoff, and parked in the end with what was seen (S17); chains that never
end (S11); stages that cannot say whether they want an entity, or are not known here (S4)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from app.claims import keeper
from app.db import transaction
from stages import Patch, Untouched, Updated, batch, ending
from stages.ending import backoff
from tests.kit.stages_rows import Lot, Offer, Stages, entity, execute, number, visit, visits, waiting, world

NOW = datetime.now(UTC)
URL = "type.googleapis.com/google.protobuf.Int64Value"
WHERE = r"stage tests\.kit\.stages_memory\.publish of offer 'a'"


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("by zero")


def tried(stages: Stages, times: int) -> Any:
    """The entry of `a` after so many tries of `publish`."""
    for _ in range(times):
        stages.all_due()
        stages.serve("publish")
    return visit("a", "publish")


# What process returns


def with_id(offer: Offer, _state: object) -> Updated:
    offer.id = "z"
    return Updated(offer)


def with_version(offer: Offer, _state: object) -> Updated:
    offer.version = 9
    return Updated(offer)


class Mute:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def with_sql(offer: Offer, _state: object) -> Updated:
    offer.price = Offer.price + 1
    return Updated(offer)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (lambda *_: None, r"process returned None: return Untouched\(\)"),
        (True, "process returned True"),
        ("live", "process returned 'live'"),
        (lambda *_: Untouched, "process returned <class"),
        (Offer(id="a"), "process returned"),
        (Mute(), "process returned an object of Mute"),
        (Updated(None), "None is not of the class Offer"),
        (Updated(Lot(id="a")), "is not of the class Offer"),
        (Updated(Offer(id="b", status="x", version=1)), "id was 'a' and is 'b' now"),
        (with_id, "id was 'a' and is 'z' now"),
        (with_version, "version was 1 and is 9 now"),
        (with_sql, "price is a SQL expression"),
        (Patch({"colour": 1}), "'colour' cannot be used here"),
        (Patch({"id": "z"}), "'id' cannot be used here"),
        (Patch({"version": 7}), "'version' cannot be used here"),
        (Patch({"price": 1}, reads=["colour"]), "'colour' cannot be used here"),
        (Patch({"price": 1}, reads="price"), "must list the names"),
        (Patch([("price", 1)]), "must map attributes to new values"),  # type: ignore[arg-type]
        (Untouched(timer=NOW.replace(tzinfo=None)), "has no time zone"),
        (Untouched(timer=NOW - timedelta(days=3)), "lies more than a day in the past"),
        (Untouched(timer=timedelta(days=-3)), "lies more than a day in the past"),
        (Patch({"price": 1}, timer=NOW + timedelta(days=99_999)), "lies more than 100 years away"),
        (Untouched(timer=60), "must be a datetime with a time zone, or a timedelta"),  # type: ignore[arg-type]
        (Untouched(state=StringValue(value="x")), r"must be a google\.protobuf\.Int64Value"),
        (Patch({"price": 1}, state=7), r"must be a google\.protobuf\.Int64Value"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_saved_fails_the_visit_with_stage_and_entity(stages: Stages, outcome: Any, said: str) -> None:
    # S5 S17
    stages.stage("publish", does=outcome, state=Int64Value)
    stages.asked("a", status="new")
    row = tried(stages, 1)
    assert row.error is not None
    assert (row.state, row.attempts, row.seen_version) == ("waiting", 1, 1)
    for words in (WHERE, said):
        assert re.search(words, row.error), row.error
    assert (entity("a").version, entity("a").price, number()) == (1, None, None)


def test_a_stage_without_state_returns_none(stages: Stages) -> None:
    # S6
    stages.stage("publish", does=Untouched(state=Int64Value()))
    stages.asked("a")
    assert "returned a state but declares none" in tried(stages, 1).error


def test_a_state_of_another_type_than_declared_fails_the_visit(stages: Stages) -> None:
    # S6
    stages.stage("publish", state=Int64Value, wants=True)
    stages.asked("a")
    execute("INSERT INTO tidemill.stage_state VALUES ('offer', 'a', 'publish', 'type.googleapis.com/my.Own', '', 4)")
    row = tried(stages, 1)
    assert "declares a state of google.protobuf.Int64Value, but what is stored is a" in row.error
    assert row.seen_state_version == 4


@pytest.mark.parametrize("change", [{"price": -1}, {"status": None}, {"price": 2**40}])
def test_what_the_database_refuses_fails_that_visit_only(
    stages: Stages, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # S17
    stages.stage("publish", does=lambda offer, _state: Patch(change if offer.id == "b" else {"status": "live"}))
    stages.asked("a", "b", "c")
    # So long it would be tried again, if that helped.
    monkeypatch.setattr(batch, "PATIENCE_SECONDS", 60.0)
    begun = time.monotonic()
    stages.serve("publish")
    assert time.monotonic() - begun < 30, "it is not waited for to get better"
    assert [entity(each).status for each in "abc"] == ["live", "new", "live"]
    row = visit("b", "publish")
    assert (row.state, row.attempts) == ("waiting", 1)
    assert row.not_before > row.due_at
    assert re.match(r"app\.errors\.BadOutcome: stage \S+ of offer 'b': the database refuses", row.error)
    assert "\n" not in row.error, "no SQL, and no values of the entity"
    assert "psycopg2" in row.traceback


def test_what_is_taken_by_another_fails_that_visit_only(stages: Stages) -> None:
    # S17
    execute("CREATE UNIQUE INDEX one_price ON offer (price)")
    stages.stage("publish", does=Patch({"price": 1}), max_attempts=2)
    stages.asked("a", "b")
    for _ in range(2):
        stages.all_due()
        stages.serve("publish")
    (row,) = visits("publish")
    assert (row.state, row.attempts) == ("parked", 2)
    assert "one_price" in row.error


# Failures of one


@pytest.mark.parametrize("bad", ["000", "049", "099"])
def test_one_that_fails_costs_the_others_nothing(stages: Stages, bad: str) -> None:
    # S17
    def process(offer: Offer, _state: object) -> Patch:
        if offer.id == bad:
            raise ValueError("half a pair: \ud800 and NUL: \0")
        return Patch({"status": "live"})

    stages.stage("publish", does=process)
    ids = [f"{number:03}" for number in range(100)]
    stages.asked(*ids)
    stages.serve("publish")
    assert {row.id for row in execute("SELECT id FROM offer WHERE status = 'live'")} == set(ids) - {bad}
    (row,) = visits()
    assert (row.entity_id, row.attempts, row.error.startswith("ValueError: half a pair")) == (bad, 1, True)


def test_an_entity_that_cannot_be_loaded_costs_the_others_nothing(stages: Stages) -> None:
    # S17
    def load(offer: Offer, _context: object) -> None:
        if offer.id == "b":
            raise LookupError("of no use")

    stages.stage("publish", does=Patch({"status": "live"}))
    stages.asked("a", "b", "c")
    sa.event.listen(Offer, "load", load)
    try:
        stages.serve("publish")
    finally:
        sa.event.remove(Offer, "load", load)
    assert [entity(each).status for each in "abc"] == ["live", "new", "live"]
    row = visit("b", "publish")
    assert (row.error, row.state, row.attempts, row.seen_version) == ("LookupError: of no use", "waiting", 1, None)


def test_it_is_tried_again_with_backoff(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    # S17
    monkeypatch.setattr(ending, "BACKOFF", timedelta(seconds=20))
    stages.stage("publish", does=fail)
    stages.asked("a")
    for attempt in range(1, 8):
        before = datetime.now(UTC)
        row = tried(stages, 1)
        assert (row.attempts, row.state) == (attempt, "waiting")
        pause = row.not_before - row.failed_at
        assert abs(pause - backoff(attempt)) < timedelta(seconds=1)
        assert row.failed_at > before - timedelta(minutes=1)
    assert backoff(1) < backoff(2) < backoff(3)
    assert backoff(100) == timedelta(minutes=5)


def test_after_max_attempts_it_is_parked_with_all_that_was_seen(stages: Stages) -> None:
    # S17
    stages.stage("publish", does=fail, max_attempts=3, state=Int64Value)
    stages.asked("a")
    execute("UPDATE offer SET price = 1")
    execute("INSERT INTO tidemill.stage_state VALUES ('offer', 'a', 'publish', :url, '', 4)", url=URL)
    assert tried(stages, 2).state == "waiting"
    row = tried(stages, 1)
    assert (row.state, row.attempts, row.error) == ("parked", 3, "ZeroDivisionError: by zero")
    assert "in fail\n" in row.traceback
    assert (row.seen_version, row.seen_state_version, row.pass_key, row.recovery_time) == (2, 4, None, None)
    assert tried(stages, 1).attempts == 3
    assert execute("SELECT * FROM tidemill.entity_guard") == []


def test_success_forgets_what_failed(stages: Stages) -> None:
    # S17
    outcomes: list[Any] = [1, 2, Untouched(timer=timedelta(days=1))]
    stages.stage("publish", does=lambda *_: outcomes.pop(0))
    stages.asked("a")
    row = tried(stages, 3)
    assert (row.attempts, row.error, row.traceback, row.failed_at, row.not_before) == (0, None, None, None, None)


# Limits of time


def test_a_visit_has_a_limit_of_time(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    # S17
    # What waits behind a slow visit goes back after a second; here it must not.
    monkeypatch.setattr(keeper, "REST_SECONDS", 60)

    def process(offer: Offer, _state: object) -> Patch:
        while offer.id == "a":
            pass
        return Patch({"status": "live"})

    stages.stage("publish", does=process, time_limit="1s")
    stages.asked("a", "b")
    stages.serve("publish")
    assert visit("a", "publish").error == "TimeoutError: over its time limit of 1 s"
    assert entity("b").status == "live"


def test_a_query_that_hangs_is_ended(stages: Stages) -> None:
    # S17
    def process(_offer: Offer, _state: object) -> Untouched:
        with transaction() as session:
            session.execute(sa.text("SELECT pg_sleep(60)"))
        return Untouched()

    stages.stage("publish", does=process, time_limit="1s")
    stages.asked("a")
    begun = time.monotonic()
    stages.serve("publish")
    assert time.monotonic() - begun < 30
    assert visit("a", "publish").error == "TimeoutError: over its time limit of 1 s"


# Loops


def test_a_chain_that_never_ends_is_parked_with_its_cycle(stages: Stages) -> None:
    # S11
    stages.calls.all = True
    stages.stage("up", watches={"price"}, does=lambda *_: Patch({"status": str(len(stages.made))}))
    stages.stage("down", watches={"status"}, does=lambda *_: Patch({"price": len(stages.made)}))
    stages.put("a")
    for _ in range(40):
        stages.serve()
        stages.serve("up")
        stages.serve("down")
    (row,) = [each for each in visits() if each.state == "parked"]
    assert row.hops == 30
    assert "stages visit offer 'a' in a circle, 30 times without a pause" in row.error
    assert "up → down → up → down" in row.error
    assert len(stages.made) < 70


def test_a_stage_that_wants_itself_at_once_is_a_loop(stages: Stages) -> None:
    # S11
    stages.stage("publish", does=Untouched(timer=timedelta(0)))
    stages.asked("a")
    for _ in range(3):
        stages.serve("publish")
    row = visit("a", "publish")
    assert (row.state, row.hops, len(stages.made)) == ("parked", 30, 30)
    assert "change offer" not in row.error
    assert "a timer that is due within a second is no pause: set a later one" in row.error


def test_a_pause_or_a_change_by_a_user_begins_a_new_chain(stages: Stages) -> None:
    # S11
    stages.stage(
        "publish", does=lambda offer, _state: Patch({"price": (offer.price or 0) + 1}, timer=timedelta(hours=1))
    )
    stages.asked("a")
    row = tried(stages, 35)
    assert (row.state, row.hops, row.chain) == ("waiting", 0, None)
    assert entity("a").price == 35


# Stages that cannot say


def test_a_stage_that_cannot_say_whether_it_wants_it_is_taken_to(stages: Stages) -> None:
    # S4
    stages.stage("publish", wants=lambda *_: 1 / 0)
    stages.stage("odd", wants="maybe")
    stages.stage("naive", wants=NOW.replace(tzinfo=None))
    stages.stage("well", wants=False)
    stages.sync()
    stages.asked("a", "b")
    assert [stage for entity_id, stage in waiting() if entity_id == "a"] == ["naive", "odd", "publish"]
    rows = {row.name: row for row in execute("SELECT * FROM tidemill.stage")}
    assert {name: row.ask_failures for name, row in rows.items()} == {"publish": 2, "odd": 2, "naive": 2, "well": 0}
    assert rows["publish"].ask_failure == "ZeroDivisionError: division by zero"
    assert "should_process returned 'maybe'" in rows["odd"].ask_failure


def test_also_after_a_save_by_another(stages: Stages) -> None:
    # S4
    stages.stage("publish", does=Patch({"price": 1}), watches={"status"})
    stages.stage("other", wants=lambda *_: 1 / 0, watches={"price"})
    stages.sync()
    stages.put("a")
    execute("DELETE FROM tidemill.stage_visit")
    execute("UPDATE offer SET status = 'x'")
    stages.serve()
    stages.serve("publish")
    assert waiting() == [("a", "other")]
    assert {row.name: row.ask_failures for row in execute("SELECT * FROM tidemill.stage")} == {"publish": 0, "other": 1}


def test_a_stage_of_another_release_is_taken_to_want_what_it_watches(stages: Stages) -> None:
    # S4
    stages.stage("publish", wants=False)
    stages.stage("theirs", watches={"price"})
    stages.stage("all")
    stages.sync()
    stages.undeclare("theirs")
    stages.undeclare("all")
    stages.asked("a")
    assert [stage for _, stage in waiting()] == ["all", "theirs"]
    stages.forget()
    execute("UPDATE offer SET status = 'x'")
    stages.serve()
    assert [stage for _, stage in waiting()] == ["all"]
    stages.stage("publish", does=Patch({"price": 1}), wants=True)
    execute("UPDATE tidemill.stage_visit SET stage = 'publish', queue = 'stage.offer.publish'")
    stages.serve("publish")
    assert [stage for _, stage in waiting()] == ["all", "theirs"]


def test_a_stage_that_is_removed_is_asked_no_more_and_what_waits_for_it_stays(stages: Stages) -> None:
    # S4
    for name in ("publish", "gone", "parked"):
        stages.stage(name, does=fail if name == "parked" else Untouched(), max_attempts=1)
    assert len(stages.sync().new) == 3
    stages.asked("a", "b")
    stages.serve("parked")
    stages.undeclare("gone")
    stages.undeclare("parked")
    assert stages.sync().removed == ("offer.gone", "offer.parked")
    # For a release that has it again.
    assert [stage for _, stage in waiting()] == ["gone", "parked", "publish"] * 2
    stages.put("c")
    stages.serve()
    assert [each for each in waiting() if each[0] == "c"] == [("c", "publish")]
    stages.stage("gone")
    assert stages.sync().changed == ("tests.kit.stages_memory.gone",)
    assert stages.sync() == stages.sync()
