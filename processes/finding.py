"""Processes searched for, the newest first, however many there are.

First among the newest ones, where most of what is asked for often is found at once; then by the indexes of what is
asked for, without the order of the ids, which could go through all of them for a few. The code of deciders and actors
need not be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims.model import is_running, is_waiting
from app.db import transaction
from app.errors import BadRequest
from processes import lookup, templates
from processes.filters import Filters
from processes.fingerprint import BROKEN_WORDS, PROCESS_WORDS, words
from processes.model import BROKEN_TASK, DECISION, GRAPH, PROCESS, Decision, queue_of
from processes.states import ProcessState

#: That are looked at before the indexes are.
NEWEST = 2_000
MOST = 10_000
_READ = ("id", "name", "state", "custom_id", "attributes", "error", "registered_at", "begun_at", "ended_at")
_KEYS = ("id", "name", "state", "custom_id", "idempotency_key", "attributes", "registered_at", "begun_at", "ended_at")


@dataclass(frozen=True)
class Found:
    id: int
    name: str
    state: ProcessState
    custom_id: str | None
    attributes: Mapping[str, Any]
    error: str | None
    registered_at: datetime
    begun_at: datetime | None
    ended_at: datetime | None
    #: How many tasks have not finished, and how many of these are broken. None before it has begun.
    unfinished: int | None
    broken: int | None


class Criteria(TypedDict, total=False):
    """As `processes.filters.Filters` explains them."""

    states: Iterable[ProcessState | str]
    name: str
    actor: str
    custom_id: str
    custom_id_prefix: str
    idempotency_key: str
    attributes: Mapping[str, Any]
    error_class: str
    fingerprint: str
    text: str
    since: datetime
    until: datetime
    begun_since: datetime
    begun_until: datetime
    ended_since: datetime
    ended_until: datetime
    broken_since: datetime
    broken_until: datetime
    before_id: int


def search(
    *,
    template: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    limit: int = 50,
    **criteria: Unpack[Criteria],
) -> list[Found]:
    """Processes for which all of this holds, the newest first; also what a saved template says, with values for its
    parameters. The next page is what has its `before_id` from the last one of this page."""
    if template is None and parameters:
        raise BadRequest(f"parameters={parameters!r:.100} belong to a template, and there is none")
    with transaction() as session:
        of_template = Filters() if template is None else templates.filters(session, template, parameters or {})
        # None is what is not asked for, as if it were not there.
        given: dict[str, Any] = {word: value for word, value in criteria.items() if value is not None}
        return found(session, replace(of_template, **given), limit)


def found(session: Session, filters: Filters, limit: int = 50) -> list[Found]:
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise BadRequest(f"limit={limit!r:.100} must be a whole number from 1 to {MOST}")
    older = [PROCESS.c.id < filters.before_id] if filters.before_id is not None else []
    newest = sa.select(*(PROCESS.c[name] for name in _KEYS)).where(*older).order_by(PROCESS.c.id.desc())
    near = newest.limit(max(NEWEST, limit)).subquery("near")
    conditions = list(_conditions(session, filters, near.c))
    ids = session.scalars(sa.select(near.c.id).where(*conditions).order_by(near.c.id.desc()).limit(limit)).all()
    if len(ids) < limit and conditions:
        # A sum, so that it is not read in the order of the ids.
        far = matching(session, filters).where(*older).order_by((PROCESS.c.id + 0).desc())
        ids = session.scalars(far.limit(limit)).all()
    rows = (
        sa.select(*(PROCESS.c[name] for name in _READ), GRAPH.c.unfinished, GRAPH.c.broken)
        .select_from(PROCESS.outerjoin(GRAPH, GRAPH.c.process_id == PROCESS.c.id))
        .where(PROCESS.c.id.in_(ids))
        .order_by(PROCESS.c.id.desc())
    )
    return [Found(**row._mapping) for row in session.execute(rows)] if ids else []


def matching(session: Session, filters: Filters) -> sa.Select[Any]:
    """The ids of all that there are, without an order, and whatever the page is."""
    return sa.select(PROCESS.c.id).where(*_conditions(session, filters, PROCESS.c))


def broken_tasks(session: Session, filters: Filters) -> sa.Select[tuple[int, int]]:
    """Process and number of the broken tasks of which all holds that is asked of errors and the actor."""
    actor = None if filters.actor is None else lookup.actor(session, filters.actor)
    return _broken(filters, actor).add_columns(BROKEN_TASK.c.number)


def _conditions(session: Session, filters: Filters, of: Any) -> Iterator[Any]:
    """Of a process, by its columns or those of a query."""
    if filters.states or filters.name is not None:
        # Of any state, the index by state is read as many times, and not as a whole.
        yield of.state.in_(filters.states or list(ProcessState))
    if filters.name is not None:
        yield of.name == lookup.process_type(session, filters.name)
    if filters.custom_id is not None:
        yield of.custom_id == filters.custom_id
    if filters.custom_id_prefix is not None:
        yield of.custom_id.like(_beginning(filters.custom_id_prefix))
    if filters.idempotency_key is not None:
        yield of.idempotency_key == filters.idempotency_key
    if filters.attributes:
        # The index has those only that have any.
        yield of.attributes != sa.literal_column("'{}'::jsonb")
    for name, value in filters.attributes.items():
        yield _has(of.attributes, name, value)
    yield from _between(of.registered_at, filters.since, filters.until)
    yield from _between(of.begun_at, filters.begun_since, filters.begun_until)
    yield from _between(of.ended_at, filters.ended_since, filters.ended_until)
    if (filters.ended_since or filters.ended_until) and filters.name is None:
        # The index begins with the type.
        yield of.name.in_(_types_that_ended(session))
    actor = None if filters.actor is None else lookup.actor(session, filters.actor)
    if filters.of_errors:
        yield of.id.in_(_broken(filters, actor))
    elif filters.text is not None:
        yield of.id.in_(_told(filters, actor))
    elif actor is not None:
        yield of.id.in_(_with_task_of(actor))


def _between(column: Any, since: datetime | None, until: datetime | None) -> Iterator[Any]:
    if since is not None:
        yield column >= since
    if until is not None:
        yield column < until


def _beginning(text: str) -> str:
    for each in "\\%_":
        text = text.replace(each, f"\\{each}")
    return f"{text}%"


def _types_that_ended(session: Session) -> list[str]:
    """One probe of the index for each, also for such as nobody declares any more."""
    ended = PROCESS.c.ended_at.is_not(None)
    first = sa.select(sa.func.min(PROCESS.c.name).label("name")).where(ended)
    names = first.cte("names", recursive=True)
    after = sa.select(sa.func.min(PROCESS.c.name)).where(ended, PROCESS.c.name > names.c.name).correlate(names)
    names = names.union_all(sa.select(after.scalar_subquery()).where(names.c.name.is_not(None)))
    return list(session.scalars(sa.select(names.c.name).where(names.c.name.is_not(None))))


def _broken(filters: Filters, actor: str | None) -> sa.Select[tuple[int]]:
    """One and the same broken task is all this."""
    of = BROKEN_TASK.c
    query = sa.select(of.process_id).where(*_between(of.at, filters.broken_since, filters.broken_until))
    for column, value in ((of.actor, actor), (of.type, filters.error_class), (of.fingerprint, filters.fingerprint)):
        if value is not None:
            query = query.where(column == value)
    return query if filters.text is None else query.where(_has_words(BROKEN_WORDS, filters.text))


def _told(filters: Filters, actor: str | None) -> Any:
    """Has the words in a broken task, or in its own error."""
    tasks = _broken(filters, actor)
    if actor is not None:
        return tasks
    own = PROCESS.alias("own")
    # The words are those of the column `error`, which only this table has.
    told = sa.select(own.c.id).where(own.c.error.is_not(None), _has_words(PROCESS_WORDS, filters.text or ""))
    return sa.union_all(tasks, told)


def _has_words(indexed: str, text: str) -> Any:
    """What is written without a space stands together there, too."""
    simple: Any = sa.literal_column("'simple'::regconfig")
    query: Any
    query, *rest = [sa.func.phraseto_tsquery(simple, each) for each in words(text)]
    for each in rest:
        query = query.op("&&")(each)
    return sa.literal_column(indexed).op("@@", is_comparison=True)(query)


def _with_task_of(name: str) -> Any:
    """By the indexes of what is broken, waits and runs."""
    of_queue = DECISION.c.queue == queue_of(name)
    return sa.union_all(
        sa.select(BROKEN_TASK.c.process_id).where(BROKEN_TASK.c.actor == name),
        sa.select(DECISION.c.process_id).where(of_queue, is_waiting(Decision)),
        sa.select(DECISION.c.process_id).where(of_queue, is_running(Decision)),
    )


def _has(attributes: Any, name: str, value: Any) -> Any:
    """Written as text at a terminal, a number may have been stored as a number or as text."""
    readings = [value]
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            readings.append(json.loads(value, parse_constant=_refuse))
    return sa.or_(sa.false(), *(attributes.contains({name: each}) for each in readings if _storable(each)))


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _storable(value: Any) -> bool:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return "\\u0000" not in text and bool(text.encode())
    except (TypeError, ValueError, RecursionError):
        return False
