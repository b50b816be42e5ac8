"""What an order means at this moment: one query whose rows become the items of an operation.

Its columns are those of an item, `says` for people, and `position`: their order. Processes come by priority, then by
age.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from app.arrays import Array
from app.errors import NotFound
from app.jobs import search as jobs
from app.jobs.model import JOB_LOG
from processes import finding
from processes import lookup as process_lookup
from processes.filters import Filters
from processes.model import BROKEN_TASK, PROCESS, TASK
from recovery.operations.order import Ids, Kind, Named, Order
from stages import lookup as stage_lookup
from stages import parked
from stages.depths import PARKED
from stages.model import VISIT
from triggers import lookup as reactive_lookup
from triggers.model import TASK as REACTIVE

SAID = 200
_NOBODY: Any = sa.cast(None, sa.BigInteger).label("process_id")
_NO_NUMBER: Any = sa.cast(None, sa.Integer).label("number")
_NO_SUBJECT: Any = sa.cast(None, ARRAY(sa.Text)).label("subject")


def items(session: Session, order: Order) -> sa.Select[Any]:
    match order.of:
        case Filters():
            found = _processes(session, order, [PROCESS.c.id.in_(finding.matching(session, order.of))])
        case Ids(ids) if order.kind is Kind.RERUN_JOBS:
            found = _log(sa.select(JOB_LOG.c.id).where(JOB_LOG.c.id == _any(session, JOB_LOG, ids)))
        case Ids(ids):
            found = _processes(session, order, [PROCESS.c.id == _any(session, PROCESS, ids)])
        case parked.Selection():
            found = _parked(session, order.of)
        case Named(patterns):
            found = _reactive(session, patterns)
        case jobs.Filters():
            matching = jobs.log_query(order.of).subquery()
            # The last matching execution of each job, as `tidemill job rerun` has it.
            found = _log(sa.select(sa.func.max(matching.c.id)).group_by(matching.c.job_id))
        case _:
            assert_never(order.of)
    return found if order.limit is None else found.order_by("position").limit(order.limit)


def _any(session: Session, table: sa.Table, ids: Sequence[int]) -> Any:
    """Any of these, all of which there are."""
    these = sa.any_(sa.cast(list(ids), Array(sa.BigInteger)))
    there = set(session.execute(sa.select(table.c.id).where(table.c.id == these)).scalars())
    if missing := sorted(set(ids) - there):
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        what = "process" if table is PROCESS else "entry of the job log"
        raise NotFound(f"there is no {what} {', '.join(map(str, missing[:10]))}{more}")
    return these


def _position(*order: Any) -> Any:
    return sa.func.row_number().over(order_by=order).label("position")


def _processes(session: Session, order: Order, conditions: Sequence[Any]) -> sa.Select[Any]:
    turn = (PROCESS.c.priority.desc(), PROCESS.c.id)
    says = sa.func.concat(PROCESS.c.name, " ", PROCESS.c.state, _after(PROCESS.c.custom_id), _after(PROCESS.c.error))
    process_id = PROCESS.c.id.label("process_id")
    if order.from_broken:
        # Apart from what the conditions ask of broken tasks.
        own = BROKEN_TASK.alias("own")
        broken = sa.func.concat(own.c.actor, ": ", own.c.type, ": ", own.c.message)
        joined = sa.join(PROCESS, own, own.c.process_id == PROCESS.c.id)
        columns = (process_id, own.c.number.label("number"), _NO_SUBJECT, _said(broken), _position(*turn, own.c.number))
        return sa.select(*columns).select_from(joined).where(*conditions, *_of_broken(session, own.c, order.of))
    number = _NO_NUMBER
    if order.task is not None:
        number = sa.literal(order.task, sa.Integer).label("number")
        conditions = [*conditions, sa.exists().where(TASK.c.process_id == PROCESS.c.id, TASK.c.number == order.task)]
    if order.actor is not None:
        name = process_lookup.actor(session, order.actor)
        conditions = [*conditions, sa.exists().where(TASK.c.process_id == PROCESS.c.id, TASK.c.actor == name)]
    return sa.select(process_id, number, _NO_SUBJECT, _said(says), _position(*turn)).where(*conditions)


def _of_broken(session: Session, task: Any, of: Any) -> list[Any]:
    """What is asked of processes with a broken task is asked of the task."""
    if not isinstance(of, Filters):
        return []
    return [sa.tuple_(task.process_id, task.number).in_(finding.broken_tasks(session, of))]


def _parked(session: Session, selection: parked.Selection) -> sa.Select[Any]:
    known = [each for each in stage_lookup.known_stages(session) if not each.removed]
    declared = {each.queue for each in known}
    # Nobody would visit for a stage that is not declared any more.
    queues = sa.cast([name for name in parked.queues(session, selection) if name in declared], Array(sa.Text))
    subject = _array(VISIT.c.kind, VISIT.c.stage, VISIT.c.entity_id)
    turn = (VISIT.c.queue, VISIT.c.failed_at, VISIT.c.entity_id)
    return sa.select(_NOBODY, _NO_NUMBER, subject, _said(VISIT.c.error), _position(*turn)).where(
        VISIT.c.queue == sa.any_(queues), PARKED, selection.matches()
    )


def _reactive(session: Session, patterns: Sequence[str]) -> sa.Select[Any]:
    wild = [each for each in patterns if "*" in each or "?" in each]
    names = [reactive_lookup.task(session, each) for each in patterns if each not in wild]
    meant = [
        REACTIVE.c.name == sa.any_(sa.cast(names, Array(sa.Text))),
        *(REACTIVE.c.name.like(_like(each), escape="\\") for each in wild),
    ]
    says = sa.func.concat("pool ", REACTIVE.c.pool)
    turn = (REACTIVE.c.priority.desc(), REACTIVE.c.name)
    return sa.select(_NOBODY, _NO_NUMBER, _array(REACTIVE.c.name), _said(says), _position(*turn)).where(
        REACTIVE.c.removed_at.is_(None), sa.or_(*meant)
    )


def _like(pattern: str) -> str:
    for sign in "\\%_":
        pattern = pattern.replace(sign, f"\\{sign}")
    return pattern.replace("*", "%").replace("?", "_")


def _log(chosen: sa.Select[Any]) -> sa.Select[Any]:
    says = sa.func.concat(JOB_LOG.c.task, " ", JOB_LOG.c.outcome, _after(JOB_LOG.c.error))
    columns = (_NOBODY, _NO_NUMBER, _array(JOB_LOG.c.id), _said(says), _position(JOB_LOG.c.id))
    return sa.select(*columns).where(JOB_LOG.c.id.in_(chosen))


def _array(*texts: Any) -> Any:
    written: list[Any] = [sa.cast(each, sa.Text) for each in texts]
    return postgresql.array(written, type_=sa.Text).label("subject")


def _after(text: Any) -> Any:
    return sa.func.coalesce(", " + text, "")


def _said(text: Any) -> Any:
    return sa.func.left(text, SAID).label("says")
