"""Processes in one process: real claims and acceptances on the test's database, functions called plainly.

    decisions.ready()                         # once, on a fresh database: the settings of what is declared
    process_id = start(fulfil, "o-1")
    served = decisions.settle()               # everything that can be done now is done
    assert decisions.process(process_id).value == ...
    assert served.called == [("fulfil", 1), ("charge", 2)]

Step by step: `serve(charge)` works off one queue; `take(charge)` hands out and leaves the answers to the test, which
gives them by `answer(handed, outcome)`. `hurry()` lets everything that waits for a time be handed out now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row

from app import claims, db
from app.claims import Cursor, Lane
from app.jobs.endings import Failure
from processes import accepting, preferences, starting
from processes.answers import Answer, Failed, Handed, Value
from processes.definition import declared, definition_of
from processes.model import ANSWER, BROKEN_TASK, DECISION, EDGE, GRAPH, PROCESS, TASK, Decision, queue_of
from processes.serving import DecisionServer
from processes.states import DecisionState
from processes.working import saving

LEASE = timedelta(minutes=1)
ROUNDS_MOST = 1000


@dataclass
class PlainCalls:
    """What a worker is to `DecisionServer`: calls functions, and notes of which tasks. `consumes`: the queues from
    which it goes on by itself; None: all of them."""

    queues: frozenset[str] | None = None
    #: The names of actors, and the numbers of their tasks; each attempt.
    called: list[tuple[str, int]] = field(default_factory=list)

    def call_for_value(
        self, work: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], limit: float | None
    ) -> tuple[Failure | None, Any]:
        function = {each.task: each.function for each in declared.values()}[name]
        self.called.append((work.actor, work.id))
        try:
            return None, function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a function raises
            return Failure(str(error), raised=error), None

    def consumes(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


def name_of(actor: Callable[..., Any] | str) -> str:
    return actor if isinstance(actor, str) else definition_of(actor).name


def ready() -> None:
    """The database knows what is declared, as after the start of a service."""
    preferences.synchronize()


def clear() -> None:
    """No process is there any more: for tests that begin anew on one database."""
    with db.engine().begin() as connection:
        for table in (PROCESS, GRAPH, TASK, EDGE, DECISION, BROKEN_TASK, ANSWER):
            connection.execute(sa.delete(table))


def server(calls: PlainCalls | None = None, worker: str = "worker-1") -> DecisionServer:
    return DecisionServer(calls or PlainCalls(), worker, LEASE, lambda: False)


def serve(actor: Callable[..., Any] | str, take: int = 100, *, worker: str = "worker-1") -> PlainCalls:
    """Works off the queue of this actor alone, for as long as there is something to hand out."""
    calls = PlainCalls(frozenset({queue_of(name_of(actor))}))
    server(calls, worker).serve(queue_of(name_of(actor)), take)
    return calls


def settle(take: int = 100, *, in_a_hurry: bool = False) -> PlainCalls:
    """Serves every queue until nothing can be handed out; `in_a_hurry`: nor ever could, but by somebody outside."""
    calls = PlainCalls()
    for _ in range(ROUNDS_MOST):
        # Anew: it remembers how far it has come, and what is tried again may lie before that.
        worker = server(calls)
        if in_a_hurry:
            hurry()
        starting.run_once()
        names = [name.removeprefix("actor.") for name in _queues()]
        made = [worker.serve(queue_of(name), take)[0] for name in names if not declared[name].outside]
        if not sum(made):
            return calls
    raise AssertionError(f"something is handed out again and again: {calls.called[-10:]}")


def _queues() -> list[str]:
    """Those of actors that are known here, and have something waiting."""
    query = sa.select(DECISION.c.queue).where(DECISION.c.state == DecisionState.QUEUED).distinct()
    with db.engine().connect() as connection:
        found = connection.execute(query.order_by(DECISION.c.queue)).scalars().all()
    return [queue for queue in found if queue.removeprefix("actor.") in declared]


def hurry() -> None:
    """What waits for a moment, or after a failure, has waited long enough."""
    with db.engine().begin() as connection:
        waits = DECISION.c.state == DecisionState.QUEUED
        connection.execute(
            sa.update(DECISION).where(waits).values(not_before=None, due_at=sa.func.least(DECISION.c.due_at, _NOW))
        )


_NOW = sa.func.clock_timestamp()


def take(actor: Callable[..., Any] | str, limit: int = 100, *, worker: str = "worker-1") -> list[Handed]:
    """Hands out what is ready, best first; the test has to answer."""
    claim = claims.take(Cursor(Decision, queue_of(name_of(actor)), Lane.MAIN), limit, worker=worker, lease=LEASE)
    return [Handed(row.process_id, row.number, row.epoch, claim.pass_key, worker) for row in claim.rows]


def answer(handed: Handed, outcome: Value | Failed) -> accepting.Judgement:
    return accept(Answer(handed, outcome)).judgements[0]


def accept(*answers: Answer) -> accepting.Accepted:
    """In one transaction."""
    with saving() as connection:
        return accepting.accept(connection, answers)


def process(process_id: int) -> Row[Any]:
    return _rows(sa.select(PROCESS).where(PROCESS.c.id == process_id))[0]


def graph(process_id: int) -> Row[Any]:
    return _rows(sa.select(GRAPH).where(GRAPH.c.process_id == process_id))[0]


def tasks(process_id: int) -> dict[int, Row[Any]]:
    """By number."""
    return {row.number: row for row in _rows(_of(TASK, process_id))}


def decisions(process_id: int) -> dict[int, Row[Any]]:
    return {row.number: row for row in _rows(_of(DECISION, process_id))}


def edges(process_id: int) -> set[tuple[int, int, bool]]:
    rows = _rows(sa.select(EDGE).where(EDGE.c.process_id == process_id))
    return {(row.source, row.target, row.value) for row in rows}


def broken(process_id: int) -> dict[int, Row[Any]]:
    return {row.number: row for row in _rows(_of(BROKEN_TASK, process_id))}


def answers(process_id: int, number: int) -> list[Row[Any]]:
    """What was recorded of a task, in order."""
    query = sa.select(ANSWER).where(ANSWER.c.process_id == process_id, ANSWER.c.number == number)
    return _rows(query.order_by(ANSWER.c.id))


def _of(table: sa.Table, process_id: int) -> Any:
    return sa.select(table).where(table.c.process_id == process_id).order_by(table.c.number)


def _rows(query: Any) -> list[Row[Any]]:
    with db.engine().connect() as connection:
        return list(connection.execute(query).all())
