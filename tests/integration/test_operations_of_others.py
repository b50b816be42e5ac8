"""Operations over what is no process: parked entities, reactive tasks, the log of jobs; and what they read by index."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import db
from app.jobs.model import Job, Outcome
from app.jobs.search import Filters as JobFilters
from processes import retention as process_retention
from processes.model import PROCESS
from recovery import operations
from recovery.operations import Ids, Kind, Named, Order, running, watching
from recovery.operations import retention as operation_retention
from recovery.operations.model import ITEM, OPERATION
from stages.parked import Selection
from tests.kit import cli, plans, visit_rows
from tests.kit import operation_rows as o
from tests.kit import reactive_cli as kit
from tests.kit.plans import captured
from triggers.model import TaskRun


def start(order: Order) -> int:
    found = operations.start(order, rate=None)
    o.work_off()
    return found


def test_what_is_parked_is_visited_again(session: Session, broker_url: str) -> None:
    visit_rows.register(session, "predict", "publish", "old")
    for number in range(3):
        visit_rows.visit(session, f"e{number}", "predict", "parked", error=f"Timeout: {number}")
    visit_rows.visit(session, "e9", "publish", "parked", error="ValueError: no")
    visit_rows.visit(session, "e9", "old", "parked", error="Timeout: 9")
    session.execute(sa.text("UPDATE tidemill.stage SET removed_at = now() WHERE name = 'old'"))
    session.commit()
    order = Order(Kind.REDRIVE, Selection(error="timeout"))
    assert [each.subject for each in operations.preview(order).sample] == [
        ("offer", "predict", f"e{number}") for number in range(3)
    ]
    found = operations.start(order, rate=None)
    session.execute(sa.text("UPDATE tidemill.stage_visit SET state = 'waiting' WHERE entity_id = 'e1'"))
    session.commit()
    o.work_off()
    assert o.counts(found) == ("DONE", 3, 2, 0, 1)
    assert [each.outcome for each in operations.items(found)] == ["redriven", "it is not parked any more", "redriven"]
    assert visit_rows.states(session, "publish") == {"e9": "parked"}
    assert set(visit_rows.states(session).values()) == {"waiting"}


@pytest.fixture
def mart(session: Session, broker_url: str) -> Iterator[str]:
    kit.register(kit.definition())
    yield kit.MART
    kit.unregister()


def test_reactive_tasks_are_run_by_hand(mart: str, session: Session) -> None:
    one = start(Order(Kind.RERUN_REACTIVE, Named((f"{mart[:-3]}*",))))
    assert o.counts(one) == ("DONE", 1, 1, 0, 0)
    [run] = session.scalars(sa.select(TaskRun)).all()
    assert (run.task, str(run.kind)) == (mart, "manual")
    # It has a run by now.
    again = start(Order(Kind.RERUN_REACTIVE, Named((mart,)), record=True))
    assert o.counts(again) == ("DONE", 1, 0, 0, 1)
    assert "has a run that is waiting" in str(operations.items(again)[0].outcome)


def test_past_jobs_are_put_in_again_once_each(session: Session, broker_url: str) -> None:
    cli.log(session, "a", times=3)
    cli.log(session, "b")
    cli.log(session, "c", Outcome.DONE)
    found = start(Order(Kind.RERUN_JOBS, JobFilters(outcome=Outcome.FAILED)))
    assert o.counts(found) == ("DONE", 2, 2, 0, 0)
    jobs = session.scalars(sa.select(Job).order_by(Job.id)).all()
    assert [item.outcome for item in operations.items(found)] == [f"job {job.id}" for job in jobs]
    by_id = operations.start(Order(Kind.RERUN_JOBS, Ids((1,))), rate=None)
    session.execute(sa.text("DELETE FROM tidemill.job_log"))
    session.commit()
    o.work_off()
    assert operations.items(by_id)[0].outcome == "the log has forgotten it"


def test_a_process_that_waits_in_an_operation_is_not_forgotten(session: Session, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tidemill.actor_preferences SELECT 'crowd', true, false, 'm', 't', true, '1 min', true, 3,"
            " null, false, '{}', '{}', null, '1 min', '1 d', 'break', '{}'"
        )
    one, two = o.broken(session, 2)
    held = operations.start(Order(Kind.RESTART, Ids((one,))), rate=None)
    ended = {"state": "FINISHED", "ended_at": sa.func.now() - sa.text("interval '2 d'")}
    session.execute(sa.update(PROCESS).values(**ended))
    session.commit()

    def there() -> list[int]:
        process_retention.run_once()
        session.rollback()
        return list(session.execute(sa.select(PROCESS.c.id)).scalars())

    assert there() == [one]
    operations.pause(held)
    assert there() == [one]
    operations.cancel(held)
    assert there() == []
    assert two


def test_operations_that_ended_long_ago_are_forgotten(session: Session) -> None:
    o.broken(session, 5)
    old, young, live = (o.over_broken() for _ in range(3))
    operations.cancel(old)
    operations.cancel(young)
    session.execute(
        sa.update(OPERATION).where(OPERATION.c.id == old).values(ended_at=sa.func.now() - sa.text("interval '400 d'"))
    )
    session.execute(sa.update(OPERATION).values(created_at=sa.func.now() - sa.text("interval '400 d'")))
    session.commit()
    reports = [operation_retention.run_once(3) for _ in range(3)]
    assert [(each.items, each.operations) for each in reports] == [(3, 0), (2, 1), (0, 0)]
    assert {each.id for each in operations.overview()} == {young, live}
    assert set(session.execute(sa.select(ITEM.c.operation_id)).scalars()) == {young, live}


#: Ten operations of ten thousand items, of which the first half is done.
_FILL = """
INSERT INTO tidemill.operation (kind, state, selection, parameters, total, done, ended_at)
SELECT 'restart-task', cast(CASE WHEN i < 6 THEN 'DONE' ELSE 'RUNNING' END AS tidemill.operation_state), '{}',
    '{"broken": true}', 10000, 5000, CASE WHEN i < 6 THEN now() END FROM generate_series(1, 10) i;
INSERT INTO tidemill.operation_item (operation_id, position, process_id, number, state, outcome, at)
SELECT o, i, i, 2, cast(CASE WHEN i <= 5000 THEN 'DONE' ELSE 'WAITING' END AS tidemill.operation_item_state),
    'restarted', now() FROM generate_series(1, 10) o, generate_series(1, 10000) i;
INSERT INTO tidemill.process (name, state, arguments, begun_at)
SELECT 'crowd', 'ACTIVE', '{}', now() FROM generate_series(1, 10000) i;
INSERT INTO tidemill.task (process_id, number, actor, state, arguments)
SELECT i, 2, 'toil', 'READY', '{}' FROM generate_series(1, 10000) i;
INSERT INTO tidemill.broken_task (process_id, number, actor, type, message)
SELECT i, 2, 'toil', 'Bad', 'on purpose' FROM generate_series(5001, 10000) i;
"""
_FILLED = ("operation", "operation_item", "process", "task", "broken_task")


def test_a_batch_reads_its_items_and_no_others(engine: Engine, broker_url: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(_FILL)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE " + ", ".join(f"tidemill.{each}" for each in _FILLED))
    with captured(db.engine()) as asked:
        running.run_once()
    ours = [each for each in asked if "operation" in each.text and not each.text.startswith(("SAVEPOINT", "RELEASE"))]
    assert len(ours) >= 4
    for each in ours:
        plan = plans.explain(engine, each, analyze=True)
        assert plan.read_whole() <= {"operation"}, each.text
        assert plan.pages < 6000, each.text
    assert watching.LOOKED_AT < 1000
    held = sa.select(PROCESS.c.id).where(PROCESS.c.id == 7000, operation_retention.holding(PROCESS.c.id))
    with captured(engine) as asked, engine.connect() as connection:
        connection.execute(held)
    plan = plans.explain(engine, asked[0], analyze=True)
    assert plan.read_whole() <= {"operation"}
    assert plan.pages < 100
