"""How a process comes to be (P2): its row, in the transaction of whoever wants it; then, apart from that, its graph,
its first task and the decision by which that is handed out. Whatever of the second is lost is done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session

from app import faults, tracing
from app.arrays import Array
from app.checks import limited
from app.db import joined, transaction
from app.doorbell import GENERIC
from app.errors import BadRequest, NotDeclared, TooLarge
from app.jobs import payload
from app.jobs.enqueue import ring_after_commit
from processes.accepting import ring
from processes.arguments import Encoder
from processes.definition import decider_named, definition_of
from processes.flow import check_arguments
from processes.model import GRAPH, PREFERENCES, PROCESS, ROOT, TASK, ProcessId, queue_of
from processes.promise import Promise
from processes.statements import IDLE, queueing
from processes.states import ProcessState, TaskState

LIMIT = 500
TRIES = 3
ATTRIBUTES_LIMIT = 64 * 1024
ID_LIMIT = 500
PRIORITIES = range(-32767, 32768)


@dataclass(frozen=True)
class Report:
    begun: int = 0
    more: bool = False


def start(
    decider: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    custom_id: str | None = None,
    idempotency_key: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    priority: int = 0,
    session: Session | scoped_session[Session] | None = None,
) -> ProcessId:
    """Registers a process that begins with this decider, with the commit of `session` or, without one, in a
    transaction of its own. Returns its id.

    With an `idempotency_key`, a process of this type that was registered with the same one is returned, and nothing
    else is done. A larger `priority` comes first. A decider that this program does not import is named by its name.
    """
    name, task, arguments = _called(decider, args, dict(kwargs or {}))
    row = {
        "name": name,
        "arguments": json.loads(arguments),
        "custom_id": None if custom_id is None else _text("custom_id", custom_id),
        "idempotency_key": None if idempotency_key is None else _text("idempotency_key", idempotency_key),
        "attributes": _attributes(attributes),
        "priority": -payload.rank_of(priority),
    }
    own = session() if isinstance(session, scoped_session) else session
    if own is not None and not isinstance(own, Session):
        raise BadRequest(f"session must be an sqlalchemy.orm.Session, not {type(own).__name__}")
    with joined(own) as tx, tracing.put_in(name, queue_of(name)) as span:
        return _register(tx, row | {"trace": span.traceparent}, task)


def _called(decider: Any, args: Any, kwargs: dict[str, Any]) -> tuple[str, str, str]:
    """Its name, its Celery task, and the arguments as text."""
    named = decider_named(decider) if isinstance(decider, str) else definition_of(decider)
    if named is not None:
        if not named.decider:
            raise BadRequest(f"{named.name} is an actor: a process begins with a decider, which calls it")
        check_arguments(named, args, kwargs)
    name = decider if named is None else named.name

    def refuse(promise: Promise[Any]) -> int:
        raise BadRequest(f"{name}: {promise!r} belongs to another process: a process begins with values")

    encoder = Encoder(refuse)
    return name, GENERIC if named is None else named.task, encoder.call(name, args, kwargs)


def _text(what: str, value: Any) -> str:
    if type(value) is not str or not value.strip() or not value.isprintable():
        raise BadRequest(f"{what}={value!r:.200} must be printable text that is not empty")
    if len(value) > ID_LIMIT:
        raise TooLarge(f"{what} is {len(value)} characters long, more than {ID_LIMIT}")
    return value


def _attributes(attributes: Any) -> dict[str, Any]:
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping) or any(not isinstance(name, str) for name in attributes):
        raise BadRequest(f"attributes={attributes!r:.200} must be a dict with text as keys")
    found = dict(attributes)
    text = payload.as_json("attributes", found)
    # Without the backslashes of the text itself, an escape is one.
    if "\\u0000" in text.replace("\\\\", ""):
        raise BadRequest("attributes hold a NUL character, which Postgres cannot search")
    if len(text.encode()) > ATTRIBUTES_LIMIT:
        raise TooLarge(f"attributes take {len(text.encode())} bytes of JSON, more than {ATTRIBUTES_LIMIT}")
    return found


def _register(session: Session, row: dict[str, Any], task: str) -> ProcessId:
    known = decider_named(row["name"])
    if known is None:
        _refuse_unknown(session, row["name"])
    parameters = {f"p_{name}": value for name, value in row.items()} | {
        "p_idle": known.idle_process_timeout if known else None,
        "p_timeout": known.process_timeout if known else None,
    }
    keyed = row["idempotency_key"] is not None
    for _ in range(TRIES):
        made = session.execute(_inserting(keyed=keyed), parameters).scalar_one_or_none()
        if made is not None:
            ring_after_commit(session, queue_of(row["name"]), task)
            return ProcessId(made)
        same = (PROCESS.c.name == row["name"], PROCESS.c.idempotency_key == row["idempotency_key"])
        found = session.execute(sa.select(PROCESS.c.id).where(*same)).scalar_one_or_none()
        if found is not None:
            return ProcessId(found)
        # It was forgotten between the two, and its key is free.
    raise BadRequest(
        f"idempotency_key={row['idempotency_key']!r}: a process with it was registered by a transaction that this one "
        "cannot see: use the isolation level READ COMMITTED, or a transaction of its own"
    )


@cache
def _inserting(*, keyed: bool) -> Any:
    """The times are those that the database knows, or else those of the code."""
    of = PREFERENCES.c.name == sa.bindparam("p_name", type_=sa.Text)
    idle = sa.select(PREFERENCES.c.idle_process_timeout).where(of).scalar_subquery()
    timeout = sa.case(
        (sa.exists().where(of), sa.select(PREFERENCES.c.process_timeout).where(of).scalar_subquery()),
        else_=sa.bindparam("p_timeout", type_=sa.Interval),
    )
    now = sa.func.clock_timestamp()
    words = ("name", "custom_id", "idempotency_key", "attributes", "arguments", "priority", "trace")
    values = {name: sa.bindparam(f"p_{name}", type_=PROCESS.c[name].type) for name in words} | {
        "recovery_time": now + sa.func.coalesce(idle, sa.bindparam("p_idle", type_=sa.Interval), IDLE),
        "deadline_at": now + timeout,
    }
    insert = postgresql.insert(PROCESS).values(values)
    if keyed:
        insert = insert.on_conflict_do_nothing(
            index_elements=["name", "idempotency_key"], index_where=sa.text("idempotency_key IS NOT NULL")
        )
    return insert.returning(PROCESS.c.id)


def _refuse_unknown(session: Session, name: str) -> None:
    of = sa.select(PREFERENCES.c.decider).where(PREFERENCES.c.name == name)
    # What Postgres cannot even be asked for is nobody's name.
    found = session.execute(of).scalar_one_or_none() if name.isprintable() else None
    if not found:
        what = "an actor: a process begins with a decider" if found is False else "known to no worker of this database"
        raise NotDeclared(f"{name!r:.200} is {what}; 'tidemill actor list' shows what there is")


@limited
def run_once(limit: int = LIMIT, *, name: str | None = None) -> Report:
    """Begins at most `limit` processes that were registered, of one type or of all. Any number may run at once."""
    with transaction() as session:
        rows = session.execute(
            _beginning(limit, of_one=name is not None), {} if name is None else {"p_name": name}
        ).all()
        faults.reach("process.before_begin")
    faults.reach("process.begun")
    if name is None:
        ring(sorted({row.name for row in rows}))
    return Report(len(rows), more=len(rows) >= limit)


def begin(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """These, if they are registered; returns which were begun, with their types."""
    return {row.id: row.name for row in connection.execute(_beginning_these(), {"p_ids": sorted(ids)})}


_COLUMNS = (PROCESS.c.id, PROCESS.c.name, PROCESS.c.priority, PROCESS.c.arguments)
_WAITS = PROCESS.c.state == sa.literal_column(f"'{ProcessState.REGISTERED}'")


@cache
def _beginning_these() -> Any:
    these = PROCESS.c.id == sa.any_(sa.bindparam("p_ids", type_=Array(sa.BigInteger)))
    return _begun(sa.select(*_COLUMNS).where(_WAITS, these).order_by(PROCESS.c.id).with_for_update(skip_locked=True))


@cache
def _beginning(limit: int, *, of_one: bool) -> Any:
    of_type = sa.bindparam("p_name", type_=sa.Text) if of_one else PREFERENCES.c.name
    first = sa.select(*_COLUMNS).where(_WAITS, PROCESS.c.name == of_type)
    found = first.order_by(PROCESS.c.priority.desc(), PROCESS.c.id).limit(limit).with_for_update(skip_locked=True)
    if not of_one:
        # So many of each type: none waits for the end of another one's flood.
        each = found.correlate(PREFERENCES).lateral("each")
        found = sa.select(*each.c).select_from(PREFERENCES.join(each, sa.true())).where(PREFERENCES.c.decider)
    return _begun(found)


def _begun(found: Any) -> Any:
    """One statement: all of it, or nothing. A graph that is there already was made by a beginning that was cut off by a
    restored backup, and stays."""
    ours = found.cte("ours").prefix_with("MATERIALIZED", dialect="postgresql")
    now = sa.func.clock_timestamp()
    idle = sa.select(PREFERENCES.c.idle_process_timeout).where(PREFERENCES.c.name == ours.c.name).scalar_subquery()
    graph = {"process_id": ours.c.id, "recovery_time": now + sa.func.coalesce(idle, IDLE)}
    task = {
        "process_id": ours.c.id,
        "number": sa.literal_column(str(ROOT)),
        "actor": ours.c.name,
        "state": sa.literal_column(f"'{TaskState.READY}'"),
        "arguments": ours.c.arguments,
        "ready_at": now,
    }
    root = (
        sa.select(
            ours.c.id.label("process_id"),
            sa.literal_column(str(ROOT)).label("number"),
            ours.c.name.label("actor"),
            (-ours.c.priority).label("rank"),
            sa.cast(None, sa.DateTime(timezone=True)).label("not_before"),
            sa.cast(None, sa.Double).label("delay"),
        )
    ).subquery("root")
    made = [
        postgresql.insert(table).from_select(list(words), sa.select(*words.values())).on_conflict_do_nothing()
        for table, words in ((GRAPH, graph), (TASK, task))
    ]
    begun = (
        sa.update(PROCESS)
        .where(PROCESS.c.id == ours.c.id)
        .values(state=ProcessState.ACTIVE, begun_at=now, recovery_time=PROCESS.c.deadline_at)
        .returning(PROCESS.c.id, PROCESS.c.name)
        .cte("begun")
    )
    parts = [*made, queueing(root)]
    written = [part.cte(f"write_{number}") for number, part in enumerate(parts)]
    return sa.select(begun.c.id, begun.c.name).add_cte(*written)
