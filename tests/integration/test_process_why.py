"""Why a process stands, on real rows; and what it costs to know that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import limits, workers
from app.cli.output import span
from processes import operate, preferences, showing, start
from recovery import why
from recovery.explaining import Reason
from recovery.findings import Case
from tests.kit import process_rows as r
from tests.kit import process_world as w


@pytest.fixture(autouse=True)
def _world(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def reasons(process_id: int) -> list[Reason]:
    with showing.one_moment() as found:
        return list(why.stands(found, showing.load(found, process_id), span))


def reason(process_id: int) -> Reason:
    [found] = reasons(process_id)
    return found


def works(session: Session, actor: str) -> None:
    """A live worker takes its queue, as far as anybody can see."""
    workers.beat(session, f"w/{actor}", [f"actor.{actor}"], 2, 1)
    session.commit()


def test_each_step_of_a_process_says_what_it_stands_for(session: Session) -> None:
    # R4, P3
    found = start(w.crowd, ["bad"])
    assert reason(found).finding is Case.NOT_YET_BEGUN
    r.begin(found)
    assert reason(found).says == "no live worker takes the queue of crowd"
    assert reason(found).tasks == (1,)
    r.well_with(r.handed_out("crowd"), ["bad"])
    works(session, "toil")
    others = [r.one_of_toil() for _ in range(3)]
    assert reason(others[2]).says == "behind 3 others in the queue of toil"
    preferences.configure("toil", {"blocked": True})
    assert (reason(found).finding, reason(found).queue) == (Case.QUEUE_PAUSED, "actor.toil")
    preferences.configure("toil", {"blocked": False, "max_parallel": 1})
    handed = r.handed_out("toil")
    assert (handed.process_id, reason(found).finding) == (found, Case.IN_WORK)
    assert "after that it is handed out again, 3 more times at most" in reason(found).next
    assert reason(others[0]).says == "the next one in the queue of toil, of which 1 may be in work at once, and are"
    r.badly(handed)
    r.execute("UPDATE tidemill.decision SET not_before = now() + interval '1 hour' WHERE not_before IS NOT NULL")
    assert reason(found).finding is Case.NOT_DUE
    assert reason(found).says == "failed once, and waits before it is tried again: Bad: on purpose"
    r.due_again()
    r.badly(r.handed_out("toil"), final=True)
    broken = next(each for each in map(reason, [found, *others]) if each.finding is Case.TASK_BROKEN)
    assert broken.says == "broken: Bad: on purpose"
    assert broken.tasks == (2,)
    operate.abort(found)
    assert reasons(found) == []


def test_what_rests_is_late_or_inconsistent_says_so(session: Session) -> None:
    found = r.one_of_toil()
    works(session, "toil")
    limits.rest(session, "actor.toil", "no answer from the store")
    session.commit()
    assert "no answer from the store" in reason(found).says
    r.execute("UPDATE tidemill.queue SET rests_why = NULL, rests_until = NULL, rests = 0")
    handed = r.handed_out("toil")
    r.let_pass(where="state = 'WORK'")
    assert reason(found).finding is Case.OVERDUE
    r.execute("UPDATE tidemill.decision SET state = 'FINISH', pass_key = NULL, recovery_time = NULL WHERE number = 2")
    wrong = reason(found)
    assert (wrong.finding, wrong.tasks) == (Case.NOT_QUEUED, (2,))
    assert wrong.next.endswith(f"tidemill recover operation start recover --process {handed.process_id}")


def test_thousands_of_tasks_cost_a_few_queries(engine: Engine, session: Session) -> None:
    found = r.begin(start(w.crowd, ["x"]))
    r.well_with(r.handed_out("crowd"), [f"{number}" for number in range(3000)])
    works(session, "toil")
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        asked.append(statement)

    with showing.one_moment() as moment:
        shown = showing.load(moment, found, answers=0, text=0)
        event.listen(engine, "before_cursor_execute", note)
        try:
            [told] = why.stands(moment, shown, span)
        finally:
            event.remove(engine, "before_cursor_execute", note)
    assert len(told.tasks) == 3000
    assert len([each for each in asked if not each.startswith(("SET", "BEGIN"))]) <= 16


def test_who_is_ahead_is_counted_by_the_index(engine: Engine, session: Session) -> None:
    # Of a long queue, no more is read than is counted.
    session.execute(
        sa.text(
            "INSERT INTO tidemill.decision (process_id, number, queue, rank, due_at) "
            "SELECT id, 1, 'actor.toil', 0, now() - interval '1 hour' FROM generate_series(1000, 41000) AS id"
        )
    )
    session.commit()
    session.execute(sa.text("ANALYZE tidemill.decision"))
    found = r.one_of_toil()
    works(session, "toil")
    assert reason(found).says == "behind more than 10000 others in the queue of toil"
    values = {"p_queues": ["actor.toil"], "p_first": [r.process(session, found).registered_at], "p_rank": 0}
    compiled = why._looked().compile(engine, compile_kwargs={"render_postcompile": True})
    lines = session.connection().exec_driver_sql(
        f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {compiled}", {**compiled.params, **values}
    )
    plan = "\n".join(row[0] for row in lines)
    assert "decision_waiting_main" in plan
    assert "Seq Scan on decision" not in plan
