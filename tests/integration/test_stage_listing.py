"""What is told of stages, their queues and an entity, by what the database knows alone (S3, S15)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import limits
from stages import depths, listing, state_text
from stages.depths import Depth
from stages.listing import Listed
from stages.lookup import Known
from stages.model import VISIT, Stage
from stages.state import Stored
from tests.kit import plans, visit_rows
from tests.kit.cli import live_worker
from tests.kit.plans import captured
from tests.kit.visit_rows import guard, many, register, visit

PREDICT = Known("offer", "predict", "shop.predict")
URL = "type.googleapis.com/"


@pytest.fixture(autouse=True)
def _stages(session: Session) -> None:
    register(session, "predict", "publish")


def listed(session: Session) -> dict[str, Listed]:
    session.rollback()
    return {f"{each.kind}.{each.name}": each for each in listing.stages(session)}


def soon(seconds: float) -> Any:
    return sa.func.now() + timedelta(seconds=seconds)


# Stages


def test_stages_are_listed_with_the_system_stage_of_their_kind(session: Session) -> None:
    register(session, kind="car", mode="optimistic")
    found = listed(session)
    assert list(found) == ["car.system", "offer.predict", "offer.publish", "offer.system"]
    assert (found["car.system"].mode, found["offer.predict"].mode) == ("optimistic", "exclusive")
    assert found["offer.predict"].depth == Depth()
    assert list(listing.stages(session, "car")) == [found["car.system"]]


def test_nothing_is_registered(session: Session) -> None:
    session.execute(sa.delete(Stage))
    assert listing.stages(session, "nobody") == []
    assert depths.of(session, []) == {}


def test_depth_counts_both_lanes_what_runs_and_what_is_parked(session: Session) -> None:
    visit(session, "ready", due_at=soon(-90))
    visit(session, "just", due_at=soon(-1))
    visit(session, "later", due_at=soon(3600))
    visit(session, "paused", due_at=soon(-90), not_before=soon(600))
    visit(session, "low", due_at=None, low_at=soon(-5))
    visit(session, "low later", due_at=None, low_at=soon(3600))
    visit(session, "both", due_at=soon(3600), low_at=soon(-5))
    visit(session, "runs", state="running")
    visit(session, "parked", state="parked")
    deep = listed(session)["offer.predict"].depth
    assert (deep.ready, deep.later, deep.low_ready, deep.low_later) == (2, 3, 2, 1)
    assert (deep.running, deep.parked, deep.late) == (1, 1, 1)
    assert deep.oldest is not None
    assert deep.low_oldest is not None
    assert deep.oldest > deep.low_oldest
    assert deep.next_at is not None
    assert depths.queues(session) == ["stage.offer.predict"]


def test_limits_in_force_beside_those_that_are_declared(session: Session) -> None:
    register(session, "predict", declared={"rate_limit": "5/s", "max_parallel": None})
    limits.configure(session, PREDICT.queue, paused=True, rate="6/min", max_parallel=3, burst=2)
    session.commit()
    found = listed(session)["offer.predict"]
    assert (found.paused, found.rate_limit, found.burst, found.max_parallel) == (True, "6/min", 2.0, 3)
    assert found.declared == {"rate_limit": "5/s", "max_parallel": None}
    assert not listed(session)["offer.publish"].paused


def test_slots_of_live_workers_and_failures_of_should_process(session: Session) -> None:
    session.execute(sa.update(Stage).where(Stage.name == "publish").values(ask_failures=3, ask_failure="KeyError: 1"))
    session.commit()
    with live_worker("stage.offer.predict", "stage.offer.predict.low", slots=4):
        found = listed(session)
    assert (found["offer.predict"].slots, found["offer.predict"].low_slots) == (4, 4)
    assert (found["offer.publish"].slots, found["offer.publish"].ask_failures) == (0, 3)


def test_a_stage_that_is_gone_is_listed_while_anything_is_left_of_it(session: Session) -> None:
    session.execute(sa.update(Stage).values(removed_at=sa.func.now()))
    session.commit()
    assert list(listed(session)) == ["offer.system"]
    visit(session, state="parked")
    assert list(listed(session)) == ["offer.predict", "offer.system"]


def test_millions_are_counted_up_to_a_bound_and_by_index(
    session: Session, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depths, "COUNTED", 1000)
    for state in ("waiting", "parked"):
        many(session, 10_000, stage=state, state=state)
    names = ["stage.offer.waiting", "stage.offer.parked", "stage.offer.nobody"]
    with captured(engine) as statements:
        found = depths.of(session, names)
        assert depths.queues(session) == sorted(names[:2])
    session.rollback()
    assert (found[names[0]].ready, found[names[1]].parked, found[names[2]]) == (1000, 1000, Depth())
    for each in statements:
        assert plans.explain(engine, each).read_whole() == set(), each.text


# Queues


def test_what_waits_is_shown_the_earliest_first(session: Session) -> None:
    # S3
    visit(session, "b", due_at=soon(-1))
    visit(session, "a", due_at=soon(-9), not_before=soon(60), attempts=2, error="no")
    visit(session, "c", due_at=soon(30))
    visit(session, "low", due_at=None, low_at=soon(0))
    visit(session, "runs", state="running")
    found = listing.waiting(session, PREDICT)
    assert [each.entity_id for each in found] == ["b", "c", "a"]
    assert (found[2].attempts, found[2].error, found[2].visit_time > found[2].asked_for) == (2, "no", True)
    assert [each.entity_id for each in listing.waiting(session, PREDICT, 1)] == ["b"]
    assert [each.entity_id for each in listing.waiting(session, PREDICT, ready_only=True)] == ["b"]
    assert [each.entity_id for each in listing.waiting(session, PREDICT, low=True)] == ["low"]


@pytest.mark.parametrize("ready_only", [True, False])
def test_what_waits_is_read_by_index(session: Session, engine: Engine, ready_only: bool) -> None:  # noqa: FBT001
    many(session, 10_000, state="waiting")
    with captured(engine) as statements:
        assert len(listing.waiting(session, PREDICT, ready_only=ready_only)) == 100
    session.rollback()
    assert plans.explain(engine, statements[-1]).read_whole() == set()


# One entity


def test_an_entity_in_the_queues_of_stages(session: Session) -> None:
    # S3
    visit(session, due_at=soon(60), low_at=soon(5))
    visit(session, stage="publish", state="parked", again_at=soon(0), hops=3, chain="a → b", traceback="trace")
    visit(session, "other")
    predict, publish = listing.visits_of(session, "offer", "e1")
    assert (predict.stage, predict.state) == ("predict", "waiting")
    assert predict.visit_time == predict.low_at != predict.due_at
    assert (publish.state, publish.visit_time, publish.hops, publish.chain) == ("parked", None, 3, "a → b")
    assert publish.again_at is not None
    assert listing.visits_of(session, "car", "e1") == []


def test_who_works_on_an_entity(session: Session) -> None:
    # S12
    assert listing.working_on(session, "offer", "e1") == []
    visit(session, state="running")
    guard(session)
    [one] = listing.working_on(session, "offer", "e1")
    assert (one.stage, one.worker, one.live) == ("predict", "w/1", True)
    visit(session, stage="system", state="running", claimed_by="w/2")
    assert [each.worker for each in listing.working_on(session, "offer", "e1")] == ["w/1", "w/2"]


def test_a_guard_that_has_run_out_is_told_as_such(session: Session) -> None:
    guard(session, until=timedelta(seconds=-1))
    [one] = listing.working_on(session, "offer", "e1")
    assert (one.stage, one.worker, one.since, one.live) == ("predict", None, None, False)


# States


def test_states_of_an_entity(session: Session) -> None:
    message = Int64Value(value=7)
    visit_rows.state(session, "e1", "predict", f"{URL}google.protobuf.Int64Value", message.SerializeToString(), 3)
    visit_rows.state(session, "e1", "publish", f"{URL}shop.Nobody", b"\x08\x01")
    predict, publish = listing.states_of(session, "offer", "e1")
    assert (predict.stage, predict.stored.version, state_text.text_of(predict.stored)) == ("predict", 3, "value: 7")
    assert (state_text.text_of(publish.stored), state_text.data_of(publish.stored)) == ("0x0801", None)


READ: list[tuple[str, bytes, str]] = [
    ("google.protobuf.StringValue", StringValue(value="é").SerializeToString(), 'value: "é"'),
    ("google.protobuf.StringValue", b"\xff\xff\xff", "0xffffff"),
    ("google.protobuf.StringValue", b"", ""),
    ("no such name", b"", ""),
    ("", b"\x00", "0x00"),
]


@pytest.mark.parametrize(("name", "value", "text"), READ)
def test_a_state_is_text_where_its_class_is_here(name: str, value: bytes, text: str) -> None:
    assert state_text.text_of(Stored(f"{URL}{name}", value, 1)) == text


def test_the_text_of_a_large_state_is_cut() -> None:
    stored = Stored(f"{URL}google.protobuf.StringValue", StringValue(value="x" * 1_000_000).SerializeToString(), 1)
    text = state_text.text_of(stored)
    assert text.endswith("… (1000009 characters)")
    assert len(text) < 11_000
    assert state_text.data_of(stored) == "x" * 1_000_000


ASKED: list[Callable[[Session], object]] = [
    lambda session: listing.visits_of(session, "offer", "e7"),
    lambda session: listing.working_on(session, "offer", "e7"),
]


@pytest.mark.parametrize("ask", ASKED)
def test_an_entity_is_found_by_its_key(session: Session, engine: Engine, ask: Callable[[Session], object]) -> None:
    many(session, 10_000, state="waiting")
    with captured(engine) as statements:
        ask(session)
    session.rollback()
    for each in statements:
        assert VISIT.name not in plans.explain(engine, each).read_whole(), each.text
