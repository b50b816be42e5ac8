"""What a task is to be called with: its arguments, with the values that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.prepared import Prepared
from processes.arguments import filled, plainly, read
from processes.flow import Flow
from processes.model import PROCESS, TASK, Key
from processes.promise import Promise
from processes.statements import KEY, told
from processes.states import TaskState

Values = Mapping[int, Any]


#: What is filled into the arguments of one task, in bytes; so many values are within it for certain.
INPUT_MOST = 64 * 1024 * 1024
USES_UNASKED = 64


@dataclass(frozen=True)
class Input:
    """Of one task."""

    actor: str
    arguments: str
    created_at: datetime
    custom_id: str | None
    attributes: str
    #: As they are stored, by the number of the task.
    values: Values = field(default_factory=dict)
    #: Why it cannot be called: its values would not fit into the memory of a worker.
    too_large: str | None = None
    #: Of whoever registered the process.
    trace: str | None = None

    def call(self) -> tuple[list[Any], dict[str, Any]]:
        """For an actor, which is given no promises."""
        return self._read(lambda number: number)

    def decide(self, process_id: int) -> tuple[Flow, list[Any], dict[str, Any]]:
        """For a decider."""
        flow = Flow(process_id, self.custom_id, json.loads(self.attributes))
        args, kwargs = self._read(lambda number: Promise(flow, number))
        return flow, args, kwargs

    def _read(self, promise_of: Any) -> tuple[list[Any], dict[str, Any]]:
        found = json.loads(self.arguments)
        if "$" in self.arguments:
            values = {number: plainly(value) for number, value in self.values.items()}
            found = {part: read(found[part], values.__getitem__, promise_of) for part in ("args", "kwargs")}
        return found["args"], found["kwargs"]

    def filled_in(self) -> dict[str, Any]:
        """As JSON, for who is no Python program: an accepted failure stays `{"$failure": {…}}`."""
        found = json.loads(self.arguments)
        return {part: filled(found[part], self.values) for part in ("args", "kwargs")}


def load(connection: Connection, keys: Sequence[Key]) -> dict[Key, Input]:
    """In one query, or two where values are to be filled in. Without those whose values are not there."""
    rows = _tasks().execute(connection, _parameters(keys)).all()
    wanted = {(row.process_id, row.number): len(row.uses) for row in rows if row.uses}
    too_large = _too_large(connection, [key for key, uses in wanted.items() if uses > USES_UNASKED])
    values: dict[Key, dict[int, Any]] = {}
    if left := sorted(wanted.keys() - too_large.keys()):
        for row in _values().execute(connection, _parameters(left)):
            values.setdefault((row.process_id, row.number), {})[row.source] = json.loads(row.result or "null")
    found = {}
    for row in rows:
        key = (row.process_id, row.number)
        if key not in too_large and len(values.get(key, ())) < wanted.get(key, 0):
            # It was restarted since it was handed out: it waits again, and this hand-out is void.
            continue
        told = (row.actor, row.arguments, row.created_at, row.custom_id, row.attributes)
        found[key] = Input(*told, values.get(key, {}), too_large.get(key), row.trace)
    return found


def _parameters(keys: Sequence[Key]) -> dict[str, Any]:
    columns = zip(*keys, strict=True)
    return {f"p_keys_{name}": list(column) for name, column in zip(KEY, columns, strict=True)}


def _too_large(connection: Connection, keys: Sequence[Key]) -> dict[Key, str]:
    if not keys:
        return {}
    told = f"its values take more than {INPUT_MOST} bytes in all: let the tasks store them, and pass their names"
    rows = connection.execute(_sizes(), _parameters(keys))
    return {(row.process_id, row.number): told for row in rows if row.size > INPUT_MOST}


@cache
def _tasks() -> Prepared:
    keys = told("keys", KEY)
    query = sa.select(
        TASK.c.process_id,
        TASK.c.number,
        TASK.c.actor,
        sa.cast(TASK.c.arguments, sa.Text).label("arguments"),
        TASK.c.uses,
        TASK.c.created_at,
        PROCESS.c.custom_id,
        PROCESS.c.trace,
        sa.cast(PROCESS.c.attributes, sa.Text).label("attributes"),
    ).where(TASK.c.process_id == keys.c.process_id, TASK.c.number == keys.c.number, PROCESS.c.id == keys.c.process_id)
    return Prepared("tasks_loaded", query)


@cache
def _sizes() -> Any:
    found = _used().subquery("used")
    size = sa.func.sum(sa.func.octet_length(found.c.result)).label("size")
    return sa.select(found.c.process_id, found.c.number, size).group_by(found.c.process_id, found.c.number)


@cache
def _values() -> Prepared:
    return Prepared("values_loaded", _used())


def _used() -> sa.Select[Any]:
    """Of the task itself, or of the one that holds its value."""
    keys, source, holder = told("keys", KEY), TASK.alias("source"), TASK.alias("holder")
    use = (
        sa.func.unnest(TASK.c.uses)
        .table_valued(sa.column("number", sa.Integer))
        .render_derived(name="use")
        .lateral("use")
    )
    # A value that is not there is not a null.
    ended = source.c.state == sa.literal_column(f"'{TaskState.FINISHED}'")
    return (
        sa.select(
            TASK.c.process_id,
            TASK.c.number,
            source.c.number.label("source"),
            sa.cast(holder.c.result, sa.Text).label("result"),
        )
        .select_from(keys.join(TASK, sa.and_(TASK.c.process_id == keys.c.process_id, TASK.c.number == keys.c.number)))
        .join(use, sa.true())
        .join(source, sa.and_(source.c.process_id == TASK.c.process_id, source.c.number == use.c.number, ended))
        .join(
            holder,
            sa.and_(
                holder.c.process_id == TASK.c.process_id,
                holder.c.number == sa.func.coalesce(source.c.value_of, source.c.number),
            ),
        )
    )


def warm_up() -> None:
    _tasks()
    _values()
