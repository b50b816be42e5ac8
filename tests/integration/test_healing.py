"""Each corruption that can be planted is named and put right, or declared broken; a second run changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import counters
from app.db import engine
from processes import operate, preferences, start
from processes.states import DecisionState, ProcessState, TaskState
from recovery import healing, invariants
from recovery.findings import Case
from recovery.healing import Healed
from tests.kit import corruption as c
from tests.kit import process_rows as r
from tests.kit import process_world as w


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def heal(*process_ids: int, operation_id: int | None = None) -> list[Healed]:
    with engine().begin() as connection:
        return healing.heal(connection, process_ids, operation_id=operation_id)


def repaired(healed: Sequence[Healed]) -> dict[Case, tuple[int, ...]]:
    return {finding.case: finding.tasks for each in healed for finding in each.repaired}


def cases(process_id: int) -> dict[Case, tuple[int, ...]]:
    with engine().begin() as connection:
        (found,) = healing.examine(connection, [process_id])
    return {each.case: each.tasks for each in found.findings}


def recorded(session: Session) -> list[tuple[str, str, str, int | None]]:
    query = "SELECT subject, finding, action, operation_id FROM tidemill.repair ORDER BY id"
    return [tuple(row) for row in r.rows(session, query)]


def nothing_left_to_do(session: Session, *process_ids: int) -> None:
    """R7: a second run changes nothing."""
    before = c.content(session)
    assert repaired(heal(*process_ids)) == {}
    assert c.content(session) == before


def violated(session: Session) -> set[str]:
    session.rollback()
    found = {each.invariant for each in invariants.check(session)}
    session.rollback()
    return found


@pytest.mark.parametrize("name", c.REPAIRABLE)
def test_what_is_planted_is_put_right(session: Session, name: str) -> None:
    planted, found, other = c.REPAIRABLE[name], c.journey(), c.journey()
    planted.into(found.id)
    healed = heal(found.id, other.id)
    assert repaired(healed) == {planted.case: planted.tasks}
    subject = f"{found.id}/{planted.tasks[0]}" if len(planted.tasks) == 1 else str(found.id)
    assert [row[:2] for row in recorded(session)] == [(subject, planted.case)]
    assert counters.read(session) == {f"repaired.{planted.case}": 1}
    assert r.check(session) == {}
    assert violated(session) == set()
    nothing_left_to_do(session, found.id, other.id)
    c.finish(found)
    assert r.state(session, found.id) is ProcessState.FINISHED
    assert r.process(session, found.id).value == c.VALUE
    assert r.check(session) == {}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("name", c.LOST)
def test_what_has_lost_a_part_is_declared_or_restarted(session: Session, name: str, *, restarted: bool) -> None:
    # R3
    planted, found, other = c.LOST[name], c.journey(), c.journey()
    if restarted:
        preferences.configure("journey", {"when_inconsistent": "restart"})
    planted.into(found.id)
    assert repaired(heal(found.id, other.id))[planted.case] == planted.tasks
    nothing_left_to_do(session, found.id, other.id)
    actions = {row[1]: row[2] for row in recorded(session)}
    if restarted:
        assert actions == {planted.case: "restarted"}
        assert r.tasks(session, found.id) == {1: TaskState.READY}
        assert r.decision(session, found.id, 1).epoch == 1
        r.serve("journey", "midway", "stride", "meet")
    else:
        assert actions[planted.case] == "broken"
        process = r.process(session, found.id)
        assert (process.state, process.error.split(":")[0]) == (ProcessState.BROKEN, "inconsistent")
        assert planted.case in cases(found.id)
        operate.restart(found.id)
        r.serve("journey", "midway", "stride", "meet")
    assert r.process(session, found.id).value == c.VALUE
    assert r.check(session) == {}
    assert r.state(session, other.id) is ProcessState.ACTIVE


def test_the_first_task_is_made_again(session: Session) -> None:
    # R4, its seventh case.
    found = r.begin(start(w.journey, c.NUMBER))
    r.execute(f"DELETE FROM tidemill.task WHERE process_id = {found}")  # noqa: S608
    r.execute(f"DELETE FROM tidemill.decision WHERE process_id = {found}")  # noqa: S608
    healed = heal(found)
    assert repaired(healed) == {Case.NO_START_TASK: (1,)}
    assert healed[0].ready == ("journey",)
    nothing_left_to_do(session, found)
    r.serve("journey")
    assert r.process(session, found).value == c.VALUE


def test_all_that_is_done_is_finished(session: Session) -> None:
    # R5
    found = c.journey()
    c.finish(found)
    r.execute("UPDATE tidemill.process SET state = 'BROKEN', error = 'x', value = NULL, ended_at = NULL")
    r.let_pass(table="graph")
    assert repaired(heal(found.id)) == {Case.ALL_DONE: ()}
    process = r.process(session, found.id)
    assert (process.state, process.value, process.error) == (ProcessState.FINISHED, c.VALUE, None)
    assert r.check(session) == {}
    nothing_left_to_do(session, found.id)


def test_the_last_decision_is_applied_and_ends_its_process(session: Session) -> None:
    # R4, its fourth case.
    found = c.journey()
    c.finish(found)
    last = max(r.tasks(session, found.id))
    r.execute(f"UPDATE tidemill.task SET state = 'READY' WHERE process_id = {found.id} AND number = 5")  # noqa: S608
    r.execute("UPDATE tidemill.task SET state = 'FOLLOWS', value_of = 5, ended_at = NULL WHERE number = 1")
    r.execute("UPDATE tidemill.graph SET unfinished = 2, recovery_time = now()")
    r.execute("UPDATE tidemill.process SET state = 'ACTIVE', value = NULL, ended_at = NULL")
    assert last > 5
    assert repaired(heal(found.id)) == {Case.DECIDED_NOT_APPLIED: (5,)}
    process = r.process(session, found.id)
    assert (process.state, process.value) == (ProcessState.FINISHED, c.VALUE)
    assert r.check(session) == {}
    nothing_left_to_do(session, found.id)


def test_what_was_never_begun_is_begun(session: Session) -> None:
    # R5
    found, fresh = start(w.journey, c.NUMBER), start(w.journey, c.NUMBER)
    r.execute(f"UPDATE tidemill.process SET recovery_time = now() - interval '1 s' WHERE id = {found}")  # noqa: S608
    assert repaired(heal(found, fresh)) == {Case.NEVER_BEGUN: ()}
    assert (r.state(session, found), r.state(session, fresh)) == (ProcessState.ACTIVE, ProcessState.REGISTERED)
    nothing_left_to_do(session, found, fresh)


def test_what_takes_too_long_is_broken(session: Session) -> None:
    # R5
    found = c.journey()
    r.execute("UPDATE tidemill.process SET deadline_at = now(), recovery_time = now()")
    assert repaired(heal(found.id)) == {Case.OVER_TIME: ()}
    assert r.process(session, found.id).error.startswith("ProcessTimeout: ")
    nothing_left_to_do(session, found.id)


_TOLD = "DELETE FROM tidemill.broken_task"


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (_TOLD, {Case.NOT_TOLD: (4,)}),
        ("UPDATE tidemill.process SET state = 'ACTIVE', error = NULL", {Case.NOT_BROKEN: ()}),
        ("UPDATE tidemill.graph SET broken = 0", {Case.WRONG_COUNTS: ()}),
        ("UPDATE tidemill.decision SET state = 'QUEUED' WHERE number = 4", {Case.OPEN_DECISION: (4,)}),
    ],
)
def test_what_is_broken_is_told(session: Session, statement: str, found: dict[Case, tuple[int, ...]]) -> None:
    # R10: the unit of breakage is the task.
    journey = c.broken_journey()
    before = r.process(session, journey.id).error
    r.execute(statement)
    assert repaired(heal(journey.id)) == found
    assert r.broken(session, journey.id) == {4: ("Bad", "on purpose")}
    assert r.process(session, journey.id).error == before
    assert r.check(session) == {}
    nothing_left_to_do(session, journey.id)


def test_what_was_aborted_is_aborted_as_a_whole(session: Session) -> None:
    found = c.broken_journey()
    r.execute("UPDATE tidemill.process SET state = 'ABORTED', ended_at = now(), recovery_time = now()")
    assert repaired(heal(found.id)).keys() == {
        Case.OPEN_DECISION,
        Case.NOT_ABORTED,
        Case.TOLD_IN_VAIN,
        Case.WRONG_CLOCK,
    }
    assert r.decided(session, found.id, 3) is DecisionState.FINISH
    assert r.check(session) == {}
    assert violated(session) == set()
    nothing_left_to_do(session, found.id)


def test_what_is_left_of_a_process_that_is_gone_is_ended(session: Session) -> None:
    # R3
    found = c.journey()
    r.execute("DELETE FROM tidemill.process")
    assert repaired(heal(found.id)) == {Case.PROCESS_LOST: ()}
    assert {r.decided(session, found.id, number) for number in (1, 2, 3, 4)} == {DecisionState.FINISH}
    assert cases(found.id) == {Case.PROCESS_LOST: ()}
    nothing_left_to_do(session, found.id)


@pytest.mark.parametrize(
    ("constraint", "statement", "found"),
    [
        ("process.process_ended_as_its_state_says", "UPDATE tidemill.process SET ended_at = now()", Case.WRONG_END),
        ("decision.decision_held_exactly_in_work", "UPDATE tidemill.decision SET pass_key = NULL", Case.UNWATCHED_WORK),
        (
            "decision.decision_held_exactly_in_work",
            "UPDATE tidemill.decision SET pass_key = gen_random_uuid() WHERE number = 3",
            Case.NOT_CLAIMABLE,
        ),
        ("task.task_pending_waits", "UPDATE tidemill.task SET state = 'PENDING' WHERE number = 3", Case.NOT_ADVANCED),
    ],
)
def test_what_the_database_refuses_is_put_right_too(
    session: Session, constraint: str, statement: str, found: Case
) -> None:
    """Should a constraint ever be gone."""
    table, _, name = constraint.partition(".")
    journey = c.journey()
    r.execute(f"ALTER TABLE tidemill.{table} DROP CONSTRAINT {name}")
    r.execute(statement)
    assert repaired(heal(journey.id)).keys() == {found}
    assert r.check(session) == {}
    nothing_left_to_do(session, journey.id)


def test_a_repair_says_on_whose_wish_it_was_made(session: Session) -> None:
    # R7
    found = c.journey()
    c.REPAIRABLE["counts"].into(found.id)
    heal(found.id, operation_id=7)
    assert recorded(session) == [(str(found.id), "wrong_counts", "counted", 7)]


def test_one_that_cannot_be_looked_at_stops_none(session: Session) -> None:
    # R3
    bad, good = c.journey(), c.journey()
    for each in (bad, good):
        c.REPAIRABLE["no decision"].into(each.id)
    r.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF NEW.process_id = {bad.id} THEN RAISE 'refused'; END IF; RETURN NEW; END $$"
    )
    r.execute(
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON tidemill.decision "
        "FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    )
    first, second = heal(bad.id, good.id)
    assert first.failed is not None
    assert "refused" in first.failed
    assert repaired([second]) == {Case.NOT_QUEUED: (3,)}
    assert [row[0] for row in recorded(session)] == [f"{good.id}/3"]
    assert r.decided(session, good.id, 3) is DecisionState.QUEUED


def test_what_somebody_holds_is_left_to_him(session: Session) -> None:
    found, other = c.journey(), c.journey()
    for each in (found, other):
        c.REPAIRABLE["counts"].into(each.id)
    for table, column in (("graph", "process_id"), ("process", "id")):
        query = f"SELECT 1 FROM tidemill.{table} WHERE {column} = {found.id} FOR UPDATE"  # noqa: S608
        session.execute(sa.text(query))
        first, second = heal(found.id, other.id)
        assert first.busy
        assert not second.busy
        session.rollback()
    assert repaired(heal(found.id)) == {Case.WRONG_COUNTS: ()}
