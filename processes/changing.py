"""Other arguments, or a result, for a task that is restarted: checked against its graph, and written."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import audit
from app.errors import BadRequest
from processes import accepting, overriding
from processes.answers import Answer, Handed, Refuse, Value
from processes.definition import declared
from processes.model import DECISION, PREFERENCES, PROCESS, ROOT, TASK
from processes.overriding import Called, Instead
from processes.restarting import Plan, applied
from processes.states import TaskState
from processes.whole import Subject, Whole
from processes.wording import listed


def checked(
    connection: Connection, process: Subject, found: Whole, planned: Plan, number: int, instead: Instead
) -> Called | None:
    """With what the task is to be called; None: as before. Refused where it will not take what it is given."""
    if instead.result is None and not instead.arguments:
        return None
    if number in planned.forgotten:
        raise BadRequest(f"task {number} of process {process.id} is forgotten, and asked for anew: give it nothing")
    if instead.result is not None:
        if applied(found.nodes, found.arrows, planned)[number].state is not TaskState.READY:
            left = [each for each in sorted(found.waits_for(number)) if not _finished(found, planned, each)]
            raise BadRequest(
                f"task {number} of process {process.id} waits for task {listed(left)}: its result is taken once that "
                "has finished, which can be given a result as well"
            )
        return None
    of = sa.select(sa.cast(TASK.c.arguments, sa.Text))
    before = connection.execute(of.where(TASK.c.process_id == process.id, TASK.c.number == number)).scalar_one()
    actor = found.actors[number]
    called = overriding.called(actor, before, instead)
    there = found.nodes.keys() - planned.forgotten
    waits_for = found.waits_for(number) & there
    overriding.check(actor, called, waits_for=waits_for, there=there, decider=_decides(connection, actor))
    return called


def _finished(found: Whole, planned: Plan, number: int) -> bool:
    node = found.nodes.get(number)
    return node is not None and node.state is TaskState.FINISHED and number not in planned.again | planned.follows


def _decides(connection: Connection, actor: str) -> bool:
    if (known := declared.get(actor)) is not None:
        return known.decider
    return bool(connection.execute(sa.select(PREFERENCES.c.decider).where(PREFERENCES.c.name == actor)).scalar())


def of_the_first(connection: Connection, process: Subject, instead: Instead) -> Called | None:
    """The same of a process that is begun from nothing."""
    if not instead.arguments:
        return None
    of = sa.select(sa.cast(PROCESS.c.arguments, sa.Text)).where(PROCESS.c.id == process.id)
    called = overriding.called(process.name, connection.execute(of).scalar_one(), instead)
    overriding.check(process.name, called, waits_for=(), there=(), decider=True)
    return called


def call(connection: Connection, process_id: int, number: int, called: Called) -> None:
    """From now on with these arguments."""
    arguments = sa.cast(sa.literal(called.text, sa.Text), sa.JSON)
    own = (TASK.c.process_id == process_id, TASK.c.number == number)
    connection.execute(sa.update(TASK).where(*own).values(arguments=arguments, uses=sorted(called.uses) or None))
    if number == ROOT:
        # From which it would be made again if it were lost.
        connection.execute(sa.update(PROCESS).where(PROCESS.c.id == process_id).values(arguments=arguments))


def give(connection: Connection, process_id: int, number: int, result: str) -> set[str]:
    """Accepts it as the answer of a task that was just restarted, and waits to be handed out. Returns the actors that
    have something to do through it."""
    own = (DECISION.c.process_id == process_id, DECISION.c.number == number)
    epoch = connection.execute(sa.select(DECISION.c.epoch).where(*own)).scalar_one()
    answer = Answer(Handed(process_id, number, epoch, None, audit.actor()), Value(result), by_hand=True)
    accepted = accepting.accept(connection, [answer])
    match accepted.judgements[0]:
        case Refuse(why):
            raise BadRequest(f"the result of task {number} of process {process_id} is not taken: {why}")
        case _:
            return set(accepted.ready)


def shown(instead: Instead, called: Called | None) -> dict[str, Any]:
    """For the audit: no more of it than anybody reads."""
    given = {"arguments": called.text if called is not None else None, "result": instead.result}
    return {word: text[:_TOLD] for word, text in given.items() if text is not None}


_TOLD = 2_000
