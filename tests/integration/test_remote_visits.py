"""Visits by a stage that lives in another service: asked, visited and saved as by any other (S18)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from stages import Untouched, queue, resweep
from stages.definition import RESWEEP, Definition
from stages.model import GUARD, STATE, Stage
from tests.kit.remote import Service
from tests.kit.stages_rows import Offer, Stages, entity, execute, limit, visit, visits, waiting, world


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def _stage(stages: Stages, service: Service, **more: Any) -> Definition:
    found = service.stage(**more)
    stages.sync()
    return found


def _visited(stages: Stages, service: Service, *ids: str, **way: Any) -> None:
    """New entities, each visited once, and answered so."""
    service.behaves(process={"*": way})
    stages.put(*(ids or ("a",)), price=7)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)


# Asked


def test_a_change_asks_the_service_and_then_visits(stages: Stages, service: Service) -> None:
    # S18 S4 S5
    _stage(stages, service)
    service.behaves(process={"*": {"set": {"status": "scored"}}}, should={"b": False})
    stages.put("a", "b", "c", price=7)
    assert stages.serve() == 3
    assert waiting() == [("a", "score.ask"), ("b", "score.ask"), ("c", "score.ask")]
    assert service.calls() == [], "neither the system stage nor anybody else calls it"
    assert stages.serve("score.ask") == 3
    assert waiting() == [("a", "score"), ("c", "score")]
    assert stages.serve("score") == 2
    assert waiting() == []
    assert [entity(each).status for each in "abc"] == ["scored", "new", "scored"]
    assert entity("a").version == 2
    (call,) = service.calls("ProcessBatch")
    assert (call["ids"], call["versions"], call["stage"]) == (["a", "c"], [1, 1], "score")
    assert call["entities"][0]["price"] == 7
    assert execute(sa.select(GUARD)) == []


def test_a_worker_that_takes_all_tickets_does_not_call_from_those_of_others(stages: Stages, service: Service) -> None:
    # S18: a service that hangs must not hold the system stage.
    stages.calls.all = True
    _stage(stages, service)
    stages.put("a")
    stages.serve()
    assert (waiting(), service.calls()) == ([("a", "score.ask")], [])
    stages.serve("score.ask")
    assert waiting() == [], "its own ticket goes on with its own visits"


def test_a_wish_may_be_a_time(stages: Stages, service: Service) -> None:
    # S4
    _stage(stages, service)
    later = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)
    service.behaves(should={"a": {"after": 3600}, "b": {"at": later.isoformat()}, "c": {"at": "2020-01-01T00:00:00Z"}})
    stages.put("a", "b", "c")
    stages.serve()
    stages.serve("score.ask")
    now = datetime.now(UTC)
    assert now + timedelta(minutes=55) < visit("a", "score").due_at < now + timedelta(minutes=61)
    assert visit("b", "score").due_at == later
    assert visit("c", "score").due_at <= now


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ({"failure": "no model"}, "no model"),
        ("left out", "was not answered"),
        ("empty", "answer is empty"),
        ({}, "must be one of wanted, at and after"),
        ({"at": "9999-12-31T00:00:00Z"}, "100 years"),
    ],
)
def test_what_cannot_be_asked_is_visited(stages: Stages, service: Service, way: Any, why: str) -> None:
    # S4: it fails open, for that entity alone, and is counted.
    _stage(stages, service)
    service.behaves(should={"a": way, "*": False})
    stages.put("a", "b")
    stages.serve()
    stages.serve("score.ask")
    assert waiting() == [("a", "score")]
    (row,) = execute(sa.select(Stage.ask_failures, Stage.ask_failure).where(Stage.name == "score"))
    assert row.ask_failures == 1
    assert why in row.ask_failure


def test_it_is_asked_about_the_fields_that_it_watches(stages: Stages, service: Service) -> None:
    # S8
    _stage(stages, service, watches=("price",))
    stages.asked("a")
    stages.forget()
    execute("UPDATE offer SET status = 'x'")
    stages.serve()
    assert waiting() == []
    execute("UPDATE offer SET price = 3")
    stages.serve()
    assert waiting() == [("a", "score.ask")]


def test_without_asks_every_change_is_visited(stages: Stages, service: Service) -> None:
    _stage(stages, service, asks=False, watches=("price",))
    stages.asked("a")
    assert waiting() == [("a", "score")]
    stages.serve("score")
    assert [call["method"] for call in service.calls()] == ["ProcessBatch"]
    execute("UPDATE offer SET status = 'x'")
    stages.serve()
    assert waiting() == []


def test_a_release_without_the_file_still_asks_for_it(stages: Stages, service: Service) -> None:
    # S4 S8: the entry that asks is a stage of another release; the one that is asked by it is not asked for.
    _stage(stages, service)
    for name in ("score", "score.ask"):
        stages.undeclare(name)
    stages.put("a")
    stages.serve()
    assert waiting() == [("a", "score.ask")]


# What it answers


def test_untouched(stages: Stages, service: Service) -> None:
    # S5
    _stage(stages, service)
    _visited(stages, service)
    assert (entity("a").version, waiting()) == (1, [])


def test_updated_changes_what_differs(stages: Stages, service: Service) -> None:
    # S5 S8
    _stage(stages, service)
    stages.stage("tell", watches={"status"})
    stages.stage("sleep", watches={"price"})
    stages.put("b")
    stages.serve()
    stages.forget()
    _visited(stages, service, set={"status": "done", "note": [1, {"x": 1.5}], "price": 7})
    found = entity("a")
    assert (found.status, found.note, found.price, found.version) == ("done", [1, {"x": 1.5}], 7, 2)
    assert waiting() == [("a", "sleep"), ("a", "tell")]
    assert visit("a", "tell").chain == "score"
    assert visit("a", "sleep").chain is None, "the price is the same, and it was asked for when the entity was new"


def test_patch_changes_what_it_names(stages: Stages, service: Service) -> None:
    _stage(stages, service)
    _visited(stages, service, patch={"status": "patched"})
    assert (entity("a").status, entity("a").price) == ("patched", 7)


def test_a_column_may_be_named_otherwise_in_python_and_hold_anything_that_json_has(
    stages: Stages, service: Service
) -> None:
    _stage(stages, service)
    _visited(stages, service, set={"note": None, "status": "ü\n\"'\\", "price": "12"})
    found = entity("a")
    assert (found.note, found.status, found.price) == (None, "ü\n\"'\\", 12)


def test_state_is_kept_byte_for_byte(stages: Stages, service: Service) -> None:
    # S6
    _stage(stages, service)
    _visited(stages, service, count=True)
    service.behaves(process={"*": {"count": True, "set": {"status": "two"}}})
    queue.offer("a", "offer.score")
    stages.serve("score")
    (row,) = execute(sa.select(STATE.c.type_url, STATE.c.value, STATE.c.version).where(STATE.c.stage == "score"))
    assert (row.type_url, bytes(row.value), row.version) == ("example.com/anything", b"xx", 2)
    service.behaves(process={"*": {"no_state": False}})
    queue.offer("a", "offer.score")
    stages.serve("score")
    assert len(execute(sa.select(STATE))) == 1
    service.behaves(process={"*": {"no_state": True}})
    queue.offer("a", "offer.score")
    stages.serve("score")
    assert execute(sa.select(STATE)) == []


def test_a_timer_is_armed_and_left_out_is_gone(stages: Stages, service: Service) -> None:
    # S5
    _stage(stages, service)
    _visited(stages, service, after=3600)
    now = datetime.now(UTC)
    assert now + timedelta(minutes=55) < visit("a", "score").due_at < now + timedelta(minutes=61)
    service.behaves()
    stages.all_due()
    stages.serve("score")
    assert waiting() == []


# Under limits


def test_a_rate_holds_call_by_call(stages: Stages, service: Service) -> None:
    # S15
    _stage(stages, service, rate_limit="20/s")
    service.behaves(process={"*": {"patch": {"status": "done"}}})
    stages.put(*(f"e{number}" for number in range(6)))
    for name in ("system", "score.ask", "score"):
        stages.serve(name)
    assert len(service.ids("Process")) == 6
    assert service.calls("ProcessBatch") == []
    assert all(entity(f"e{number}").status == "done" for number in range(6))


def test_a_paused_stage_is_not_called(stages: Stages, service: Service) -> None:
    # S15
    _stage(stages, service)
    limit("score", paused=True)
    _visited(stages, service)
    assert service.calls("ProcessBatch") == []
    assert waiting() == [("a", "score")]
    limit("score", paused=False)
    stages.serve("score")
    assert waiting() == []


def test_a_large_batch_goes_in_several_messages(stages: Stages, service: Service) -> None:
    _stage(stages, service, max_message=64 * 1024)
    service.behaves(process={"*": {"patch": {"status": "done"}}})
    stages.put("a", "b", "c", "d", note="x" * 20_000)
    stages.put("huge", note="x" * 70_000)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)
    assert [entity(each).status for each in "abcd"] == ["done"] * 4
    assert [len(call["ids"]) for call in service.calls("ProcessBatch")] == [2, 2]
    assert "raise max_message" in visit("huge", "score").error


def test_a_walk_asks_through_the_entry_that_asks(stages: Stages, service: Service, session: Session) -> None:
    # S16
    _stage(stages, service)
    stages.put("a", "b")
    stages.forget()
    service.behaves(should={"b": False})
    walk = resweep.start("offer.score")
    while stages.serve(RESWEEP):
        pass
    assert resweep.progress(walk).state == "done"
    assert [(row.entity_id, row.due_at) for row in visits("score.ask")] == [("a", None), ("b", None)]
    assert stages.serve("score.ask", low=True) == 2
    assert [(row.entity_id, row.due_at) for row in visits()] == [("a", None)]
    assert stages.serve("score", low=True) == 1
    assert waiting() == []


def test_an_entity_that_is_no_more_is_forgotten(stages: Stages, service: Service) -> None:
    _stage(stages, service)
    stages.put("a", "b")
    for name in ("system", "score.ask"):
        stages.serve(name)
    execute("ALTER TABLE offer DISABLE TRIGGER ALL")
    execute("DELETE FROM offer WHERE id = 'a'")
    execute("ALTER TABLE offer ENABLE TRIGGER ALL")
    stages.serve("score")
    assert (service.ids("ProcessBatch"), waiting()) == (["b"], [])


def test_local_stages_know_nothing_of_it(stages: Stages, service: Service) -> None:
    _stage(stages, service)
    stages.stage("local", does=Untouched())
    stages.asked("a")
    assert stages.serve("local") == 1
    assert Offer.__tablename__ == "offer"
    assert service.calls() == []
