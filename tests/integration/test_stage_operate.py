"""What a person does with a stage, its queue and what is parked in it (S15, S17)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import db
from app.audit import Audit
from app.errors import BadRequest, NotFound
from app.limits import Queue
from stages import lookup, operate, parked, redriving
from stages.lookup import Known
from stages.model import GUARD, VISIT, Stage
from stages.parked import Selection
from stages.redriving import Redriven
from tests.kit import plans, visit_rows
from tests.kit.plans import captured
from tests.kit.visit_rows import errors, many, register, row, states, visit

PREDICT = Known("offer", "predict", "shop.predict")
SYSTEM = Known("offer", "system")


@pytest.fixture(autouse=True)
def _stages(session: Session, broker_url: str) -> None:
    register(session, "predict", "publish")


def redrive(selection: Selection, session: Session) -> Redriven:
    session.rollback()
    return redriving.redrive(selection, visit_rows.now(session))


def audited(session: Session) -> list[tuple[str, str]]:
    session.rollback()
    return [(each.action, each.subject) for each in session.execute(sa.select(Audit).order_by(Audit.id)).scalars()]


# Names


@pytest.mark.parametrize("words", ["offer.predict", "stage.offer.predict", "predict"])
def test_a_stage_is_found_by_its_names(session: Session, words: str) -> None:
    assert lookup.stage(session, words) == PREDICT


def test_a_name_of_several_kinds_is_asked_for_in_full(session: Session) -> None:
    register(session, "predict", kind="car")
    with pytest.raises(BadRequest, match=r"'predict' may be one of car\.predict, offer\.predict: write the kind too"):
        lookup.stage(session, "predict")
    assert lookup.of_kind(session, "offer", "predict") == PREDICT
    session.execute(sa.update(Stage).where(Stage.kind == "car").values(removed_at=sa.func.now()))
    assert lookup.stage(session, "predict") == PREDICT
    assert lookup.stage(session, "car.predict").removed


def test_the_system_stage_has_a_name_too(session: Session) -> None:
    assert lookup.stage(session, "system") == SYSTEM


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("offer.predct", "did you mean offer.predict"),
        ("publsh", "did you mean offer.publish"),
        ("'; drop table tidemill.stage; --", "stage list"),
        ("offer.\x00", "'offer.\\\\x00'"),
        ("offer.\ud800", "no stage"),
        ("", "stage list"),
        ("x" * 100_000, r"… \(100000 characters\)"),
    ],
)
def test_what_is_no_stage_is_told_with_the_nearest(session: Session, words: str, hint: str) -> None:
    with pytest.raises(NotFound, match=hint) as raised:
        lookup.stage(session, words)
    assert len(str(raised.value)) < 400


def test_what_is_no_kind(session: Session) -> None:
    with pytest.raises(NotFound, match="no kind 'ofer': did you mean offer"):
        lookup.kind(session, "ofer")
    with pytest.raises(NotFound, match="no kind 'zz': there is offer"):
        lookup.kind(session, "zz")


@pytest.mark.parametrize("words", ["", "x" * 501, "a\x00b", "\ud800"])
def test_what_is_no_id(words: str) -> None:
    with pytest.raises(BadRequest, match="1 to 500 characters"):
        lookup.entity("offer", words)


# Limits


def test_pause_and_resume_say_whether_that_is_new(session: Session) -> None:
    # S15
    assert (operate.pause(PREDICT), operate.pause(PREDICT)) == (True, False)
    assert session.get(Queue, "stage.offer.predict").paused  # type: ignore[union-attr]
    assert (operate.resume(PREDICT), operate.resume(PREDICT)) == (True, False)
    assert audited(session) == [("stage.pause", "offer.predict")] * 2 + [("stage.resume", "offer.predict")] * 2


def test_limits_that_are_left_out_stay(session: Session) -> None:
    # S15
    operate.limit(PREDICT, rate="6/min", max_parallel=4)
    operate.limit(PREDICT, rate=None)
    found = session.execute(sa.select(Queue).where(Queue.name == PREDICT.queue)).scalar_one()
    assert (found.rate, found.max_parallel) == (None, 4)


@pytest.mark.parametrize("limits", [{"rate": "fast"}, {"rate": "0/s"}, {"max_parallel": 0}, {"burst": 0.5}])
def test_limits_that_make_no_sense(session: Session, limits: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        operate.limit(PREDICT, **limits)
    assert audited(session) == []


def test_reset_begins_the_count_anew(session: Session) -> None:
    session.execute(sa.update(Stage).where(Stage.name == "predict").values(ask_failures=7, ask_failure="KeyError: 1"))
    session.commit()
    assert (operate.reset(PREDICT), operate.reset(PREDICT), operate.reset(SYSTEM)) == (7, 0, 0)


# Offer and delete


def test_offer_by_names_alone(session: Session) -> None:
    assert (operate.offer(PREDICT, "e1"), operate.offer(PREDICT, "e1")) == (True, False)
    assert operate.offer(PREDICT, "e1", low=True)
    found = row(session)
    assert found is not None
    assert (found["due_at"] is not None, found["low_at"] is not None) == (True, True)


def test_offer_for_a_time_keeps_the_earliest(session: Session) -> None:
    assert operate.offer(PREDICT, "e1", timedelta(days=2))
    assert operate.offer(PREDICT, "e1", timedelta(days=1))
    assert not operate.offer(PREDICT, "e1", timedelta(days=3))


def test_offered_to_the_system_stage_everything_is_asked(session: Session) -> None:
    operate.offer(SYSTEM, "e1")
    found = row(session, stage="system")
    assert found is not None
    assert found["fields"] == ["*"]


@pytest.mark.parametrize(
    "at",
    [datetime(2026, 7, 1), timedelta(days=99_999), datetime(1, 1, 1, tzinfo=UTC), timedelta.max],  # noqa: DTZ001
)
def test_offer_for_a_time_that_makes_no_sense(session: Session, at: Any) -> None:
    with pytest.raises(BadRequest):
        operate.offer(PREDICT, "e1", at)
    assert row(session) is None


def test_nothing_is_offered_to_a_stage_that_is_gone(session: Session) -> None:
    with pytest.raises(BadRequest, match="not declared any more"):
        operate.offer(Known("offer", "predict", "shop.predict", removed=True), "e1")


def test_delete_takes_the_guard_of_a_visit_that_works_too(session: Session) -> None:
    visit(session, state="running")
    visit_rows.guard(session)
    assert (operate.delete(PREDICT, "e1"), operate.delete(PREDICT, "e1")) == (True, False)
    session.rollback()
    assert session.execute(sa.select(GUARD.c.stage)).all() == []
    assert audited(session) == [("stage.delete", "offer.predict")] * 2


# Redriving


def test_redriven_it_waits_anew(session: Session) -> None:
    # S17
    visit(session, state="parked", hops=30, chain="a → b", traceback="…", seen_version=3, alone=True)
    assert redrive(Selection((PREDICT,)), session) == Redriven(1, 0)
    found = row(session)
    assert found is not None
    assert (found["state"], found["attempts"], found["hops"]) == ("waiting", 0, 0)
    assert [found[word] for word in ("chain", "error", "traceback", "seen_version", "failed_at")] == [None] * 5
    # It may have killed its workers: it is still handed out by itself.
    assert found["alone"]
    assert audited(session) == [("stage.redrive", "offer.predict")]


@pytest.mark.parametrize(
    ("asked", "main"),
    [
        ({}, True),
        ({"again_at": sa.func.now() + timedelta(days=1)}, True),
        ({"due_at": None, "low_at": sa.func.now()}, False),
        ({"due_at": None, "low_at": sa.func.now(), "again_low_at": sa.func.now()}, False),
        ({"due_at": None, "low_at": sa.func.now(), "again_at": sa.func.now()}, True),
        ({"again_low_at": sa.func.now()}, True),
    ],
)
def test_redriven_it_stays_in_its_lane_and_serves_what_was_asked(
    session: Session,
    asked: dict[str, Any],
    main: bool,  # noqa: FBT001
) -> None:
    # S10, S16
    visit(session, state="parked", **asked)
    redrive(Selection(), session)
    found = row(session)
    assert found is not None
    assert (found["due_at"] is not None, found["low_at"] is not None) == (main, not main)
    assert (found["again_at"], found["again_low_at"]) == (None, None)
    assert all(found[word] is None or found[word] <= visit_rows.now(session) for word in ("due_at", "low_at"))


def test_redriven_the_system_stage_asks_about_all_that_changed(session: Session) -> None:
    visit(session, stage="system", state="parked", fields=["price"], again_fields=["title"], again_hops=4)
    redrive(Selection((SYSTEM,)), session)
    found = row(session, stage="system")
    assert found is not None
    assert (found["fields"], found["again_fields"], found["again_hops"]) == (["price", "title"], None, 0)


def test_only_what_is_parked_is_redriven(session: Session) -> None:
    visit(session, "waits", not_before=sa.func.now() + timedelta(minutes=5), attempts=3)
    visit(session, "runs", state="running")
    visit(session, "parked", state="parked")
    visit(session, "elsewhere", "publish", "parked")
    assert redrive(Selection((PREDICT,)), session) == Redriven(1, 0)
    assert states(session) == {"waits": "waiting", "runs": "running", "parked": "waiting"}
    assert states(session, "publish") == {"elsewhere": "parked"}
    assert redrive(Selection(), session) == Redriven(1, 0)


def test_what_is_parked_again_meanwhile_stays(session: Session) -> None:
    visit(session, state="parked")
    until = visit_rows.now(session)
    visit(session, "later", state="parked")
    assert redriving.redrive(Selection(), until) == Redriven(1, 0)
    assert states(session) == {"e1": "waiting", "later": "parked"}


def test_what_somebody_changes_is_left_and_counted(session: Session, engine: Engine) -> None:
    visit(session, "held", state="parked")
    visit(session, "free", state="parked")
    until = visit_rows.now(session)
    with Session(engine) as other:
        other.execute(sa.select(VISIT).where(VISIT.c.entity_id == "held").with_for_update())
        assert redriving.redrive(Selection(), until) == Redriven(1, 1)
    assert redriving.redrive(Selection(), until) == Redriven(1, 0)


def test_named_ones(session: Session) -> None:
    for each in ("a", "b", "c"):
        visit(session, each, state="parked")
    visit(session, "d")
    assert redriving.redrive_named(PREDICT, ["b", "a", "a", "d", "nobody"]) == {"a", "b"}
    assert states(session) == {"a": "waiting", "b": "waiting", "c": "parked", "d": "waiting"}
    with pytest.raises(BadRequest, match="no id is named"):
        redriving.redrive_named(PREDICT, [])


# Groups


SAME: list[Callable[[int], str]] = [
    lambda n: f"KeyError: 'entity-{n}'",
    lambda n: f"ValueError: no price for entity-{n} after {n * 7} tries, {n * 1.5} s",
    lambda n: f"BadOutcome: stage shop.predict of offer 'entity-{n}': it can't be of version {n}",
    lambda n: f"ApiError: request 0fb5e1a2-aaaa-4bbb-8ccc-{n:012x} failed at 2026-07-0{n}T10:00:0{n}+00:00",
    lambda n: f"Boom: object at 0x7f{n:04x}, digest {n:040x}",
    lambda n: f'E: "entity {n}" is wrong\nline {n} of many {"x" * n}',
    lambda n: f"E: é {'😀'} entity-{n} `{n}`",
]


@pytest.mark.parametrize("text", SAME)
def test_the_same_failure_of_several_entities_is_one_group(session: Session, text: Callable[[int], str]) -> None:
    errors(session, [text(n) for n in range(1, 4)])
    [found] = parked.groups(session, Selection())
    assert found.count == 3
    assert redrive(Selection(group=found.name), session) == Redriven(3, 0)


def test_other_failures_are_other_groups(session: Session) -> None:
    errors(session, [text(1) for text in SAME])
    assert {each.count for each in parked.groups(session, Selection())} == {1}
    assert len(parked.groups(session, Selection())) == len(SAME)
    assert len(parked.groups(session, Selection(), limit=2)) == 2


def test_an_error_that_is_missing_or_empty_is_a_group_too(session: Session) -> None:
    visit(session, "a", state="parked", error=None)
    visit(session, "b", state="parked", error="")
    [found] = parked.groups(session, Selection())
    assert found.count == 2


def test_the_largest_group_comes_first_with_an_example(session: Session) -> None:
    errors(session, ["KeyError: 'x'", "timeout after 1 s", "timeout after 2 s"])
    first, second = parked.groups(session, Selection((PREDICT,)))
    assert (first.count, first.error, first.entity_id) == (2, "timeout after 1 s", "entity-2")
    assert (second.count, second.kind, second.stage) == (1, "offer", "predict")
    assert first.first_at < first.last_at


@pytest.mark.parametrize(("text", "count"), [("TIMEOUT", 2), ("50%", 1), ("_", 0), ("'; --", 0), ("x" * 100_000, 0)])
def test_by_a_part_of_the_error(session: Session, text: str, count: int) -> None:
    errors(session, ["timeout at 50%", "Timeout at 500", "no"])
    selection = Selection(error=text)
    assert sum(parked.count(session, selection).values()) == count
    assert len(parked.latest(session, selection)) == count
    assert redrive(selection, session) == Redriven(count, 0)


def test_the_latest_are_listed_first(session: Session) -> None:
    errors(session, ["a", "b", "c"])
    visit(session, "other", "publish", "parked", again_at=sa.func.now())
    found = parked.latest(session, Selection(), limit=2)
    assert [(each.entity_id, each.asked_again) for each in found] == [("other", True), ("entity-3", False)]
    assert parked.latest(session, Selection((Known("offer", "nobody"),))) == []


# Many


def test_many_are_redriven_in_batches_that_end_where_the_next_begins(session: Session) -> None:
    many(session, redriving.PAGE * 2 + 7, error="no price %s")
    told: list[int] = []
    until = visit_rows.now(session)
    found = redriving.preview(session, Selection())
    assert (found.total, found.more, [each.count for each in found.groups]) == (1007, False, [1007])
    session.rollback()
    assert redriving.redrive(Selection(), until, told=told.append) == Redriven(1007, 0)
    assert told == [500, 1000, 1007]
    assert set(states(session).values()) == {"waiting"}


def test_those_that_failed_at_the_same_moment_are_all_found(session: Session) -> None:
    many(session, redriving.PAGE + 20)
    session.execute(sa.update(VISIT).values(failed_at=sa.func.now()))
    session.commit()
    assert redrive(Selection(), session).visits == redriving.PAGE + 20


def test_what_does_not_match_is_read_once(session: Session, engine: Engine) -> None:
    many(session, redriving.PAGE * 3)
    visit(session, "right", state="parked", error="this one")
    with captured(engine) as statements:
        assert redrive(Selection(error="this one"), session) == Redriven(1, 0)
    assert sum("page" in each.text for each in statements) == 4


def test_batches_and_groups_are_read_by_index(session: Session, engine: Engine, subtests: pytest.Subtests) -> None:
    many(session, 3_000)
    many(session, 50_000, stage="publish", state="waiting")
    asked: dict[str, Callable[[], object]] = {
        "named": lambda: redriving.redrive_named(PREDICT, ["e5", "e6"]),
        "groups": lambda: parked.groups(session, Selection((PREDICT,))),
        "queues": lambda: parked.queues(session, Selection()),
        "latest": lambda: parked.latest(session, Selection()),
        "redrive": lambda: redriving.redrive(Selection((PREDICT,)), visit_rows.now(session)),
    }
    for what, ask in asked.items():
        with subtests.test(what):
            assert read_whole(session, engine, ask) == set()


def test_batches_are_read_by_index_where_all_is_parked(session: Session, engine: Engine) -> None:
    many(session, 20_000)
    assert read_whole(session, engine, lambda: redrive(Selection(group="nobody"), session)) == set()
    assert read_whole(session, engine, lambda: redrive(Selection(), session)) == set()


def read_whole(session: Session, engine: Engine, ask: Callable[[], object]) -> set[str]:
    with captured(db.engine()) as statements:
        ask()
    session.rollback()
    asked = [each for each in statements if "stage_visit" in each.text]
    assert asked
    return {table for each in (asked[0], asked[-1]) for table in plans.explain(engine, each).read_whole()}
