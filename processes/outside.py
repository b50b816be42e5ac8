"""Actors that live elsewhere (P10): they poll for tasks, say that they are still at work, and release results.

What is handed out is theirs until `until`; they prove it by the `pass_key`, and say with `epoch` of which life of the
task it was. Everything else is as for any other actor: one claim, and one acceptance.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app import claims, faults
from app.claims import Claim, Cursor, Lane
from app.db import autocommit
from app.errors import BadRequest, ClaimLost, NotFound, TooLarge
from processes import accepting, arguments, loading
from processes.answers import (
    MESSAGE_LIMIT,
    TASK_TIMEOUT,
    TRACEBACK_LIMIT,
    Again,
    Answer,
    Break,
    Failed,
    Handed,
    Refuse,
    Take,
    Value,
    failure,
)
from processes.current import ThisTask
from processes.definition import NAME_LIMIT, unknown
from processes.model import PREFERENCES, TASK, Decision, queue_of
from processes.polls import Sampler
from processes.preferences import current
from processes.working import heartbeat as move_on
from processes.working import saving

log = logging.getLogger(__name__)

#: That one poll hands out.
MOST = 100
#: Of this process, for all its threads.
_polls = Sampler()


@dataclass(frozen=True)
class HandedOut:
    """One task, as its actor gets it. An accepted failure among the arguments is `{"$failure": {"type": …, …}}`."""

    process_id: int
    task: int
    actor: str
    epoch: int
    pass_key: uuid.UUID
    attempt: int
    args: list[Any]
    kwargs: dict[str, Any]
    until: datetime
    custom_id: str | None
    idempotency_key: str


@dataclass(frozen=True)
class Released:
    """What became of an answer: `accepted`, `again` (a failed attempt; another one follows), `broken`, or `refused`;
    and why."""

    outcome: str
    why: str | None = None


def poll(actor: str, limit: int = 1, *, worker: str) -> list[HandedOut]:
    """Hands out what is ready for an actor that was declared with `outside=True`, best first, up to `limit`."""
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise BadRequest(f"limit={limit!r:.100} must be a whole number from 1 to {MOST}")
    _check_worker(worker)
    with autocommit() as connection:
        settings = _outside(connection, actor)
    return [each for claim in _claims(actor, limit, worker, settings.work_timeout) for each in _handed(claim)]


def _claims(actor: str, limit: int, worker: str, lease: timedelta) -> Iterator[Claim]:
    """The first one finds out whether the queue has limits: under these each task counts, and is claimed by itself."""
    cursor, size = Cursor(Decision, queue_of(actor), Lane.MAIN), 1
    while limit > 0:
        claim = claims.take(cursor, size, worker=worker, lease=lease)
        _polls.note(cursor.queue, claim.rows)
        if not claim.rows:
            return
        yield claim
        limit -= len(claim.rows)
        size = 1 if cursor.limited else max(1, limit)


def _handed(claim: Claim) -> list[HandedOut]:
    late = [row for row in claim.rows if row.deadline_at is not None and row.deadline_at <= row.claimed_at]
    rows = [row for row in claim.rows if row not in late]
    with autocommit() as connection:
        inputs = loading.load(connection, [(row.process_id, row.number) for row in rows]) if rows else {}
    keyed = [(row, inputs.get((row.process_id, row.number))) for row in rows]
    told = "it was not handed out within its task_timeout"
    ends = [_ending(row, claim, Failed((TASK_TIMEOUT, "Exception"), told, final=True), by_time=True) for row in late]
    ends += [
        _ending(row, claim, failure(TooLarge(given.too_large))) for row, given in keyed if given and given.too_large
    ]
    if ends:
        _end(ends)
    return [_handed_out(row, claim.pass_key, given) for row, given in keyed if given and not given.too_large]


def _check_worker(worker: Any) -> None:
    if type(worker) is not str or not worker.strip() or len(worker) > NAME_LIMIT or not worker.isprintable():
        raise BadRequest(f"worker={worker!r:.200} must be printable text of 1 to {NAME_LIMIT} characters")


def _outside(connection: Any, actor: str) -> Any:
    """Its settings; refused where workers do its work."""
    found = current(connection, actor)
    if found is None:
        query = sa.select(PREFERENCES.c.name).where(PREFERENCES.c.outside)
        raise NotFound(unknown("actor", actor, connection.execute(query).scalars().all()))
    if not found.outside:
        raise BadRequest(f"{actor!r:.100} is done by workers: only actors declared with outside=True are answered for")
    return found


def _ending(row: Any, claim: Claim, failed: Failed, *, by_time: bool = False) -> Answer:
    """Of one that is not handed out to anybody."""
    return Answer(Handed(row.process_id, row.number, row.epoch, claim.pass_key, row.claimed_by), failed, by_time)


def _end(answers: list[Answer]) -> None:
    with saving() as connection:
        accepted = accepting.accept(connection, answers)
    accepting.ring(accepted.ready)


def _handed_out(row: Any, pass_key: uuid.UUID, given: loading.Input) -> HandedOut:
    handed = Handed(row.process_id, row.number, row.epoch, pass_key)
    task = ThisTask(handed, given.actor, row.queue, row.attempts, given.created_at)
    called = given.filled_in()
    return HandedOut(
        process_id=row.process_id,
        task=row.number,
        actor=given.actor,
        epoch=row.epoch,
        pass_key=pass_key,
        attempt=row.attempts,
        args=called["args"],
        kwargs=called["kwargs"],
        until=row.recovery_time,
        custom_id=given.custom_id,
        idempotency_key=task.idempotency_key,
    )


def actor_of(process_id: int, task: int) -> str:
    """Whose task it is, for whoever has to ask whether a token may answer."""
    with autocommit() as connection:
        query = sa.select(TASK.c.actor).where(TASK.c.process_id == process_id, TASK.c.number == task)
        found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise NotFound(f"process {process_id} has no task {task}")
    return str(found)


def heartbeat(process_id: int, task: int, *, pass_key: uuid.UUID) -> datetime:
    """It is still at work: until when it is to be answered now. `ClaimLost` if it was taken back."""
    actor = actor_of(process_id, task)
    with autocommit() as connection:
        settings = _outside(connection, actor)
        until = move_on(connection, Handed(process_id, task, 0, pass_key), settings.work_timeout)
    if until is None:
        raise ClaimLost(
            f"task {task} of process {process_id} was taken back: whatever is done for it may be done twice"
        )
    return until


def release(
    process_id: int,
    task: int,
    *,
    pass_key: uuid.UUID,
    epoch: int,
    value: Any = None,
    error: Mapping[str, Any] | None = None,
    worker: str,
) -> Released:
    """The result, or the error: `{"type": …, "message": …, "traceback": …, "final": …}`."""
    _check_worker(worker)
    actor = actor_of(process_id, task)
    with autocommit() as connection:
        _outside(connection, actor)
    if not isinstance(pass_key, uuid.UUID):
        raise BadRequest(f"pass_key={pass_key!r:.100} must be what the task was handed out with")
    outcome = Value(arguments.written(actor, value)) if error is None else _failed(actor, error)
    answer = Answer(Handed(process_id, task, epoch, pass_key, worker), outcome, from_outside=True)
    with saving() as connection:
        accepted = accepting.accept(connection, [answer])
        faults.reach("finish.before_commit")
    faults.reach("finish.committed")
    accepting.ring(accepted.ready)
    match accepted.judgements[0]:
        case Take():
            return Released("accepted")
        case Again(wait):
            return Released("again", f"it is tried again in {wait.total_seconds():g} s")
        case Break():
            return Released("broken", "the task is broken: an operator has to look at it")
        case Refuse(why):
            return Released("refused", why)


def _failed(actor: str, error: Any) -> Failed:
    if not isinstance(error, Mapping) or error.keys() - {"type", "message", "traceback", "final"}:
        raise BadRequest(f'{actor}: an error is {{"type": …, "message": …}}, and if wished "traceback" and "final"')
    kind, message = error.get("type", "Error"), error.get("message", "")
    trace, final = error.get("traceback"), error.get("final", False)
    if type(kind) is not str or not kind.strip() or len(kind) > NAME_LIMIT or not kind.isprintable():
        raise BadRequest(f"{actor}: the type of an error is text of 1 to {NAME_LIMIT} characters, not {kind!r:.100}")
    if type(message) is not str or not isinstance(trace, str | None) or type(final) is not bool:
        raise BadRequest(f"{actor}: message and traceback of an error are text, and final is true or false")
    types = tuple(dict.fromkeys((kind, "Exception")))
    return Failed(types, message[:MESSAGE_LIMIT], trace and trace[-TRACEBACK_LIMIT:], final)
