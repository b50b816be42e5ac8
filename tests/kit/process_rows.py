"""Processes in this process: handing out and answering step by step, each in a transaction of its own; and what is in
the database, in few words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app import claims
from app.claims import Cursor, Lane
from app.db import engine
from app.jobs.endings import Failure
from app.settings import settings
from processes import accepting, preferences, registration, serving, starting
from processes.accepting import Judgement
from processes.answers import Again, Answer, Break, Failed, Handed, Refuse, Take, Value
from processes.definition import declared
from processes.flow import Planned
from processes.model import ActorPreferences, Decision, queue_of
from processes.serving import DecisionServer
from processes.starting import start
from processes.states import DecisionState, ProcessState, TaskState
from processes.working import saving
from recovery import decisions
from recovery import processes as late_processes
from tests.kit import process_world
from tests.kit.database import up_for_long

MINUTE = timedelta(minutes=1)
PAST = "now() - interval '1 second'"


def done_elsewhere(actor: str) -> None:
    """As if it had been declared with `outside=True`."""
    with engine().begin() as connection:
        connection.execute(sa.update(ActorPreferences).where(ActorPreferences.name == actor).values(outside=True))


class Calls:
    """Calls functions as they are."""

    def call_for_value(
        self,
        work: Any,
        name: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        limit: float | None,
    ) -> tuple[Failure | None, Any]:
        function = next(each.function for each in declared.values() if each.task == name)
        try:
            return None, function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as a worker does
            return Failure(str(type(error)), raised=error), None

    def consumes(self, queue: str) -> bool:
        return queue.startswith("actor.")


def server(calls: Any = None) -> DecisionServer:
    return DecisionServer(calls or Calls(), "w/1", MINUTE, lambda: False)


def serve(*names: str, calls: Any = None, take: int = 100) -> int:
    """Works off the queues of these actors, and all that becomes ready through them."""
    own = server(calls)
    return sum(own.serve(queue_of(name), take)[0] for name in names)


@contextmanager
def actors(*functions: Any, **words: Any) -> Iterator[None]:
    """Declares these as actors, or as deciders where the first parameter is called `flow`, for as long as it lasts."""
    before = dict(declared)
    for each in functions:
        each.__module__, each.__qualname__ = "tests.kit.process_rows", each.__name__
        first = next(iter(each.__code__.co_varnames[: each.__code__.co_argcount]), "")
        own = {name: value for name, value in words.items() if first != "flow" or name not in OF_ACTORS}
        (registration.decider if first == "flow" else registration.actor)(**own)(each)
    preferences.synchronize()
    try:
        yield
    finally:
        declared.clear()
        declared.update(before)


@contextmanager
def nothing_declared() -> Iterator[None]:
    """What other tests have declared may have the same names; it comes back."""
    before = dict(declared)
    declared.clear()
    try:
        yield
    finally:
        declared.clear()
        declared.update(before)


@contextmanager
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The actors of `tests.kit.process_world`, in a database whose sweeps need not wait for long (R6)."""
    monkeypatch.setenv("TIDEMILL_LEASE", "1s")
    # However slow the machine is: what becomes ready is done in the ticket that made it so.
    for limit in ("QUICK_SECONDS", "TICKET_SECONDS"):
        monkeypatch.setattr(serving, limit, 60.0)
    settings.cache_clear()
    up_for_long(engine())
    process_world.create(engine())
    preferences.synchronize()
    yield


OF_ACTORS = {"accept_first", "restart_after_work_timeout", "task_timeout", "force_finish_after_task_timeout"}


# One step after the other.


def begin(process_id: int) -> int:
    starting.run_once()
    return process_id


def hand_out(name: str, worker: str = "w/1", lease: timedelta = MINUTE) -> Handed | None:
    """The next task of the actor; None: nothing is ready."""
    return next(iter(handed_out_together(name, 1, worker, lease)), None)


def handed_out_together(name: str, most: int, worker: str = "w/1", lease: timedelta = MINUTE) -> list[Handed]:
    claim = claims.take(Cursor(Decision, queue_of(name), Lane.MAIN), most, worker=worker, lease=lease)
    return [Handed(row.process_id, row.number, row.epoch, claim.pass_key, worker) for row in claim.rows]


def handed_out(name: str, worker: str = "w/1", lease: timedelta = MINUTE) -> Handed:
    found = hand_out(name, worker, lease)
    assert found is not None, f"nothing is ready for {name}"
    return found


def answer(handed: Handed, outcome: Value | Failed) -> Judgement:
    with saving() as connection:
        return accepting.accept(connection, [Answer(handed, outcome)]).judgements[0]


def well(handed: Handed, value: Any = "well") -> Judgement:
    return answer(handed, Value(json.dumps(value)))


def well_with(handed: Handed, ways: Sequence[str], actor: str = "toil") -> Judgement:
    """Of a decider that has asked for these calls, and for nothing else."""
    calls = [Planned(actor, json.dumps({"args": [way], "kwargs": {}})) for way in ways]
    return answer(handed, Value(str(len(ways)), calls))


def one_of_toil() -> int:
    """A process of one task beside its first, number 2, which is ready: `toil`."""
    found = begin(start(process_world.crowd, ["x"]))
    well_with(handed_out("crowd"), ["x"])
    return found


def badly(handed: Handed, kind: str = "Bad", *, final: bool = False) -> Judgement:
    return answer(handed, Failed((kind, "Exception"), "on purpose", final=final))


def word(judgement: Judgement) -> str:
    match judgement:
        case Take():
            return "taken"
        case Again():
            return "again"
        case Break():
            return "broken"
        case Refuse(why):
            return why


def execute(statement: str, **words: Any) -> None:
    with engine().begin() as connection:
        connection.execute(sa.text(statement), words)


def let_pass(column: str = "recovery_time", where: str = "true", table: str = "decision") -> None:
    """The moment that the column names is over."""
    execute(f"UPDATE tidemill.{table} SET {column} = {PAST} WHERE {column} IS NOT NULL AND {where}")  # noqa: S608


def sweep() -> decisions.Report:
    return decisions.run_once()


def sweep_all() -> None:
    decisions.run_once()
    late_processes.run_once()


def due_again() -> None:
    """What waits to be handed out again after a failure need not wait any more."""
    execute("UPDATE tidemill.decision SET not_before = NULL, due_at = now()")


# What is there.


def rows(session: Session, query: str, **words: Any) -> Sequence[Row[Any]]:
    session.rollback()
    return session.execute(sa.text(query), words).all()


def process(session: Session, process_id: int) -> Row[Any]:
    return rows(session, "SELECT * FROM tidemill.process WHERE id = :id", id=process_id)[0]


def state(session: Session, process_id: int) -> ProcessState:
    return ProcessState(process(session, process_id).state)


def task(session: Session, process_id: int, number: int) -> Row[Any]:
    query = "SELECT * FROM tidemill.task WHERE process_id = :id AND number = :number"
    return rows(session, query, id=process_id, number=number)[0]


def tasks(session: Session, process_id: int) -> Mapping[int, TaskState]:
    query = "SELECT number, state FROM tidemill.task WHERE process_id = :id ORDER BY number"
    return {row.number: TaskState(row.state) for row in rows(session, query, id=process_id)}


def decision(session: Session, process_id: int, number: int) -> Row[Any]:
    query = "SELECT * FROM tidemill.decision WHERE process_id = :id AND number = :number"
    return rows(session, query, id=process_id, number=number)[0]


def decided(session: Session, process_id: int, number: int) -> DecisionState:
    return DecisionState(decision(session, process_id, number).state)


def recorded(session: Session, process_id: int, number: int | None = None) -> list[tuple[str | None, str | None]]:
    """What came and was not simply taken: why it was refused, and the error."""
    query = (
        "SELECT refused, error FROM tidemill.answer WHERE process_id = :id AND (:number IS NULL OR number = :number) "
        "ORDER BY id"
    )
    return [(row.refused, row.error) for row in rows(session, query, id=process_id, number=number)]


def broken(session: Session, process_id: int) -> dict[int, tuple[str, str]]:
    query = "SELECT number, type, message FROM tidemill.broken_task WHERE process_id = :id ORDER BY number"
    return {row.number: (row.type, row.message) for row in rows(session, query, id=process_id)}


def waits_for_a_lock(session: Session) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(rows(session, query))


def unfinished(session: Session) -> int:
    found = rows(session, "SELECT count(*) AS left FROM tidemill.process WHERE state NOT IN ('FINISHED', 'ABORTED')")
    return int(found[0].left)


#: What must be true at any moment: each a query for what violates it.
MUST: dict[str, str] = {
    "a process that was begun has a graph, and one that was not has none": """
        SELECT p.id FROM process p LEFT JOIN graph g ON g.process_id = p.id
        WHERE (p.state = 'REGISTERED') = (g.process_id IS NOT NULL) AND p.state <> 'ABORTED'""",
    "a graph counts its tasks": """
        SELECT g.process_id FROM graph g JOIN (
            SELECT process_id, max(number) AS most, count(*) FILTER (WHERE state <> 'FINISHED') AS unfinished,
                count(*) FILTER (WHERE state = 'BROKEN') AS broken
            FROM task GROUP BY 1) t USING (process_id) JOIN process p ON p.id = g.process_id
        WHERE p.state <> 'ABORTED'
            AND (g.tasks < t.most OR (g.unfinished, g.broken) <> (t.unfinished, t.broken))""",
    "a graph has its first task": """
        SELECT process_id FROM graph g
        WHERE NOT EXISTS (SELECT FROM task t WHERE t.process_id = g.process_id AND number = 1)""",
    "a task is of a graph": "SELECT process_id FROM task EXCEPT SELECT process_id FROM graph",
    "the state of a process follows from its tasks": """
        SELECT p.id FROM process p JOIN graph g ON g.process_id = p.id
        WHERE (p.state = 'FINISHED') <> (g.unfinished = 0) AND p.state <> 'ABORTED'
            OR p.state = 'ACTIVE' AND g.broken > 0""",
    "a process says when it ended": """
        SELECT id FROM process WHERE (state IN ('FINISHED', 'ABORTED')) <> (ended_at IS NOT NULL)""",
    "pending counts the sources that have not finished": """
        SELECT t.process_id FROM task t WHERE t.state <> 'ABORTED' AND t.pending <> (
            SELECT count(*) FROM edge e JOIN task s ON (s.process_id, s.number) = (e.process_id, e.source)
            WHERE (e.process_id, e.target) = (t.process_id, t.number) AND NOT e.value AND s.state <> 'FINISHED')""",
    "what waits is pending, and nothing else": """
        SELECT process_id FROM task WHERE state <> 'ABORTED' AND (state = 'PENDING') <> (pending > 0)""",
    "an edge is between tasks": """
        SELECT e.process_id FROM edge e WHERE 2 <> (
            SELECT count(*) FROM task t WHERE t.process_id = e.process_id AND t.number IN (e.source, e.target))""",
    "what follows has an edge to what it follows": """
        SELECT t.process_id FROM task t WHERE t.state = 'FOLLOWS' AND NOT EXISTS (
            SELECT FROM edge e JOIN task s ON (s.process_id, s.number) = (e.process_id, e.source)
            WHERE (e.process_id, e.target, e.source) = (t.process_id, t.number, t.value_of) AND e.value
                AND s.state <> 'FINISHED')""",
    "what is ready has a decision that waits or is in work": """
        SELECT t.process_id FROM task t LEFT JOIN decision d USING (process_id, number)
        WHERE t.state = 'READY' AND coalesce(d.state, 'FINISH') = 'FINISH'""",
    "a decision that waits or is in work is of a task that is ready": """
        SELECT d.process_id FROM decision d LEFT JOIN task t USING (process_id, number)
        WHERE t.state IS NULL OR (d.state <> 'FINISH' AND t.state <> 'READY')""",
    "what has finished has a decision that has": """
        SELECT t.process_id FROM task t LEFT JOIN decision d USING (process_id, number)
        WHERE t.state IN ('FINISHED', 'BROKEN', 'FOLLOWS') AND d.state IS DISTINCT FROM 'FINISH'""",
    "a decision has a pass exactly while it is in work": """
        SELECT process_id FROM decision WHERE (state = 'WORK') <> (pass_key IS NOT NULL)
            OR (state = 'WORK' AND (recovery_time IS NULL OR claimed_by IS NULL))
            OR (state = 'FINISH' AND recovery_time IS NOT NULL)""",
    "a broken task is listed, and nothing else": """
        SELECT coalesce(b.process_id, t.process_id)
        FROM broken_task b FULL JOIN (SELECT * FROM task WHERE state = 'BROKEN') t USING (process_id, number)
        WHERE b.process_id IS NULL OR t.process_id IS NULL""",
    "what finished holds its value, or says who does": """
        SELECT t.process_id FROM task t WHERE t.state = 'FINISHED' AND (t.value_of IS NULL) <> (t.result IS NOT NULL)
            OR t.state = 'FINISHED' AND t.value_of IS NOT NULL AND NOT EXISTS (
                SELECT FROM task s WHERE (s.process_id, s.number) = (t.process_id, t.value_of)
                    AND s.state = 'FINISHED' AND s.result IS NOT NULL)""",
}


def check(session: Session) -> dict[str, list[int]]:
    """What is violated, and by which processes; `{}` if all is well."""
    session.rollback()
    session.execute(sa.text("SET LOCAL search_path TO tidemill, public"))
    found = {what: sorted(set(session.execute(sa.text(query)).scalars())) for what, query in MUST.items()}
    session.rollback()
    return {what: ids for what, ids in found.items() if ids}
