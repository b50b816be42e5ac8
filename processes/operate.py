"""What an operator does with one process: restart it, from its start or from a task, as it was or with other values, in
place or as a copy; abort it. Audited.

Under the lock of the graph, as everything that changes tasks. What was handed out before a restart is of another
`epoch`: its answer does not count any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import audit
from app.errors import BadRequest, NotFound, NotRepeatable
from processes import accepting, changing, copying, inconsistent, overriding, renewing, repeating, restarting
from processes.model import BROKEN_TASK, DECISION, GRAPH, PROCESS, ROOT, TASK
from processes.overriding import UNCHANGED, Called, Instead
from processes.restarting import Plan
from processes.statements import NOW
from processes.states import ENDED, DecisionState, ProcessState, TaskState
from processes.whole import Subject, Whole, locked
from processes.wording import listed
from processes.working import saving


@dataclass(frozen=True)
class Restarted:
    """What a restart does, or would do: the numbers of tasks, and the actors that are called again."""

    process_id: int
    name: str
    again: tuple[int, ...]
    follows: tuple[int, ...]
    forgotten: tuple[int, ...]
    actors: tuple[str, ...]
    #: The task that is not called, since its result is given.
    given: int | None = None
    #: By actor, what was called before, and is to be called again, or asked for anew, against what the actor says.
    not_repeatable: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: The process that was made; None: this one goes on.
    copy: int | None = None


@dataclass(frozen=True)
class _Intent:
    process: Subject
    found: Whole
    #: None: from nothing, since a part of it is lost.
    planned: Plan | None
    told: Restarted
    #: The task by itself, and with what it is called from now on, where that is changed.
    number: int
    called: Called | None


def abort(process_id: int, *, reason: str | None = None) -> None:
    """Ends a process that has not finished: nothing more of it is handed out, and no answer is taken."""
    with saving() as connection:
        abort_in(connection, process_id, reason=reason)
        audit.record(connection, "process.abort", str(process_id), reason=reason)


def abort_in(connection: Connection, process_id: int, *, reason: str | None = None) -> None:
    """The same in a transaction of the caller, who records it."""
    process = locked(connection, process_id)
    if process.state in ENDED:
        raise BadRequest(f"process {process_id} is {process.state}: only one that goes on can be aborted")
    of = {table: table.c.process_id == process_id for table in (TASK, DECISION, GRAPH)}
    connection.execute(
        sa.update(DECISION)
        .where(of[DECISION], DECISION.c.state != DecisionState.FINISH)
        .values(state=DecisionState.FINISH, pass_key=None, recovery_time=None, ended_at=NOW, error="aborted")
    )
    connection.execute(
        sa.update(TASK)
        .where(of[TASK], TASK.c.state != TaskState.FINISHED)
        .values(state=TaskState.ABORTED, ended_at=NOW)
    )
    connection.execute(sa.update(GRAPH).where(of[GRAPH]).values(recovery_time=None, changed_at=NOW))
    connection.execute(sa.delete(BROKEN_TASK).where(BROKEN_TASK.c.process_id == process_id))
    why = f"aborted: {reason}" if reason else "aborted"
    ends = {"state": ProcessState.ABORTED, "error": why, "ended_at": NOW, "recovery_time": None}
    connection.execute(sa.update(PROCESS).where(PROCESS.c.id == process_id).values(**ends))


def restart(
    process_id: int,
    task: int | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    result: Any = UNCHANGED,
    copy: bool = False,
    repeat: bool = False,
    reason: str | None = None,
) -> Restarted:
    """From a task, or from its start. What rests on what is done again is done again too; the rest keeps its results.
    A process that finished, or was aborted, goes on.

    `args`, `kwargs`: what the task is called with from now on, each as it was unless given. `result`: it is not called,
    and what waits for it goes on with this. `copy`: all this happens to a new process, and this one stays as it is.
    `repeat`: what says that it is not repeatable is called again all the same.
    """
    instead = overriding.instead(args, kwargs, result)
    with saving() as connection:
        intent = _intent(connection, process_id, task, instead=instead, copy=copy)
        told, ready = _done(connection, intent, copy=copy, repeat=repeat)
        actors = {name for number, name in ready.items() if number != told.given}
        if instead.result is not None:
            actors |= changing.give(connection, told.copy or process_id, intent.number, instead.result)
        detail = {"again": list(told.again), "forgotten": list(told.forgotten)} | changing.shown(instead, intent.called)
        detail |= {"from": intent.number} if instead != Instead() else {}
        detail |= {"copy": told.copy} if told.copy is not None else {}
        audit.record(connection, "process.restart", str(process_id), reason=reason, **detail)
    accepting.ring(sorted(actors))
    return told


def restart_in(
    connection: Connection,
    process_id: int,
    task: int | None = None,
    *,
    actor: str | None = None,
    repeat: bool = False,
) -> tuple[Restarted, dict[int, str]]:
    """In place, in a transaction of the caller, who records it. `actor`: from all tasks of that actor. Returns also
    what is ready, with the actors that are to be rung for after the commit."""
    return _done(connection, _intent(connection, process_id, task, actor=actor), copy=False, repeat=repeat)


def preview(
    process_id: int,
    task: int | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    result: Any = UNCHANGED,
    copy: bool = False,
) -> Restarted:
    """What a restart would do, at this moment; refused where the restart would be, but for what is not repeatable."""
    with saving() as connection:
        instead = overriding.instead(args, kwargs, result)
        return _intent(connection, process_id, task, instead=instead, copy=copy).told


def _intent(
    connection: Connection,
    process_id: int,
    task: int | None,
    *,
    actor: str | None = None,
    instead: Instead | None = None,
    copy: bool = False,
) -> _Intent:
    process, given, number = locked(connection, process_id), instead or Instead(), task or ROOT
    found = Whole.load(connection, process_id)
    if found.nodes if actor is not None else not found.lost(task):
        planned = found.plan(process_id, _numbers(found, task, process, actor))
        planned = restarting.for_a_copy(planned, found.nodes) if copy else planned
        called = changing.checked(connection, process, found, planned, number, given)
        told = _told(connection, process, found, planned, None if given.result is None else number)
        return _Intent(process, found, planned, told, number, called)
    told = _from_nothing(connection, process, task, actor)
    if given.result is not None:
        raise BadRequest(
            f"process {process_id} has no task that could be given a result: it can be restarted from its start"
        )
    return _Intent(process, found, None, told, number, changing.of_the_first(connection, process, given))


def _from_nothing(connection: Connection, process: Subject, task: int | None, actor: str | None) -> Restarted:
    """Of one that was aborted before it began, or that has lost everything."""
    if process.state is ProcessState.REGISTERED:
        raise BadRequest(f"process {process.id} has not begun: there is nothing to do again")
    if actor is not None and actor != process.name:
        raise NotFound(f"process {process.id} has no task of {actor!r:.100}: it can be restarted from its start")
    if task not in (None, ROOT):
        raise NotFound(f"process {process.id} has no task {task!r:.100}: it can be restarted from its start")
    called = _by_actor(repeating.called(connection, process.id).items())
    return Restarted(process.id, process.name, (ROOT,), (), (), (process.name,), not_repeatable=called)


def _numbers(found: Whole, task: int | None, process: Subject, actor: str | None = None) -> list[int]:
    """What is restarted by itself: of an aborted process, also what the abortion has ended."""
    numbers = [ROOT if task is None else task]
    if actor is not None:
        numbers = sorted(number for number, name in found.actors.items() if name == actor)
        if not numbers:
            raise NotFound(f"process {process.id} has no task of {actor!r:.100}")
    if process.state == ProcessState.ABORTED:
        numbers += [number for number, node in found.nodes.items() if node.state is TaskState.ABORTED]
    return numbers


def _told(connection: Connection, process: Subject, found: Whole, planned: Plan, given: int | None) -> Restarted:
    called_again = planned.again - {given}
    actors = tuple(sorted({found.actors[number] for number in called_again}))
    again, follows, forgotten = (tuple(sorted(each)) for each in (called_again, planned.follows, planned.forgotten))
    before = repeating.called(connection, process.id)
    twice = _by_actor((number, before[number]) for number in (*again, *forgotten) if number in before)
    return Restarted(process.id, process.name, again, follows, forgotten, actors, given, twice)


def _by_actor(tasks: Iterable[tuple[int, str]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for number, actor in sorted(tasks):
        found.setdefault(actor, []).append(number)
    return {actor: tuple(numbers) for actor, numbers in sorted(found.items())}


def _done(connection: Connection, intent: _Intent, *, copy: bool, repeat: bool) -> tuple[Restarted, dict[int, str]]:
    """Returns also what can be handed out now, with its actors."""
    process, told = intent.process, intent.told
    if told.not_repeatable and not repeat:
        raise NotRepeatable(_twice(told))
    if copy and intent.planned is not None:
        process = copying.copied(connection, process, intent.found, intent.planned)
    elif copy:
        process = copying.registered(connection, process)
    if intent.called is not None:
        changing.call(connection, process.id, intent.number, intent.called)
    if intent.planned is not None:
        ready = renewing.write(connection, process, intent.found, intent.planned)
    else:
        ready = {ROOT: process.name}
        if not copy:
            inconsistent.renew(connection, process.id)
    return replace(told, copy=process.id if copy else None), ready


def _twice(told: Restarted) -> str:
    each = "; ".join(f"{name} (task {listed(numbers)})" for name, numbers in told.not_repeatable.items())
    return (
        f"process {told.process_id}: called a second time would be {each:.500}, declared with repeatable=False: "
        "say --repeat, or repeat=True, if that is meant"
    )
