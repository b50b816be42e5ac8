"""What a save leaves behind, in its own transaction (S14): an event for the relay, and the job of the stage's `saved`.

The id of an event is its sequence. It is drawn while the row of the entity is locked, by the save itself or by
`Store.hold`, and that lock lasts until the commit: so the events of one entity have their order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.engine import Connection

from app.claims.model import built_once
from app.db import transaction
from app.jobs.model import JOB
from app.outbox.model import EVENT
from app.prepared import Prepared
from app.registry import Hook
from stages.definition import Definition
from stages.kind import Kind
from stages.model import STATE
from stages.remote.saving import remote_saved
from stages.sql_arrays import array
from stages.state import Stored, unpack
from stages.store import Store

log = logging.getLogger(__name__)

PREFIX = "saved"
REMOTE_ATTEMPTS = 4000


@dataclass(frozen=True)
class Form:
    """What makes one statement another than the next."""

    store: Store
    #: The stage may keep a state.
    states: bool
    #: It has a hook.
    hooked: bool


def hook_queue(kind: str, stage: str) -> str:
    return f"{PREFIX}.{kind}.{stage}"


def hook_attempts(definition: Definition) -> int:
    """A service that is away is no fault of what was saved: it is told later, for about as long as events are kept."""
    return definition.max_attempts if definition.remote is None else REMOTE_ATTEMPTS


def hook_task(definition: Definition) -> str:
    return f"{definition.task}.{PREFIX}"


@built_once
def _recording(form: Form) -> Prepared:
    texts = {"id": "p_ids", "fields": "p_fields"}
    given = (
        sa.func.unnest(*(sa.cast(sa.bindparam(name, type_=sa.Text), ARRAY(sa.Text)) for name in texts.values()))
        .table_valued(*(sa.column(name, sa.Text) for name in texts), with_ordinality="place")
        .render_derived(name="given")
    )
    rows = form.store.exporting().subquery("rows")
    kind, stage = (sa.cast(sa.bindparam(name, type_=sa.Text), sa.Text) for name in ("p_kind", "p_stage"))
    source: Any = sa.join(rows, given, rows.c.place == given.c.place)
    kept: list[Any] = [sa.null(), sa.null(), sa.literal_column("0")]
    if form.states:
        same = (STATE.c.kind == kind, STATE.c.entity_id == given.c.id, STATE.c.stage == stage)
        source = source.outerjoin(STATE, sa.and_(*same))
        kept = [STATE.c.type_url, STATE.c.value, sa.func.coalesce(STATE.c.version, 0)]
    names = ["kind", "entity_id", "stage", "version", "fields", "entity", "state_type", "state_value", "state_version"]
    fields = sa.cast(given.c.fields, ARRAY(sa.Text))
    saves = sa.select(kind, given.c.id, stage, rows.c.version, fields, rows.c.entity, *kept).select_from(source)
    insert = sa.insert(EVENT).from_select(names, saves).returning(EVENT.c.id, EVENT.c.entity_id)
    recorded = insert.cte("recorded")
    result = sa.select(sa.func.count().label("events")).select_from(recorded)
    if form.hooked:
        arguments = sa.func.json_build_array(kind, recorded.c.entity_id, recorded.c.id, type_=JSON)
        columns = {
            "queue": sa.cast(sa.bindparam("p_queue", type_=sa.Text), sa.Text),
            "task": sa.cast(sa.bindparam("p_task", type_=sa.Text), sa.Text),
            "args": arguments,
            "max_attempts": sa.cast(sa.bindparam("p_max_attempts", type_=sa.SmallInteger), sa.SmallInteger),
        }
        result = result.add_cte(sa.insert(JOB).from_select(list(columns), sa.select(*columns.values())).cte("hooked"))
    name = f"record_{abs(hash(id(form.store)))}" + "_states" * form.states + "_hooked" * form.hooked
    return Prepared(name, result)


def record(connection: Connection, definition: Definition, saves: Mapping[str, Mapping[str, Any]]) -> None:
    """By id, the fields that were changed; none: the state alone. All of them are locked by this transaction."""
    kind, hooked = definition.kind, definition.saved is not None
    parameters = _parameters(kind, definition.name, {each: tuple(fields) for each, fields in saves.items()})
    if hooked:
        parameters |= {
            "p_queue": hook_queue(kind.name, definition.name),
            "p_task": hook_task(definition),
            "p_max_attempts": hook_attempts(definition),
        }
    _recording(Form(kind.store, definition.state is not None, hooked)).execute(connection, parameters)


def record_outside(connection: Connection, kind: Kind, stage: str, entity_id: str) -> None:
    """The state of a stage was changed by somebody else (S19)."""
    _recording(Form(kind.store, states=True, hooked=False)).execute(
        connection, _parameters(kind, stage, {entity_id: ()})
    )


def _parameters(kind: Kind, stage: str, saves: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    # Of a batch, most change the same.
    texts = {fields: array(sorted(fields)) for fields in set(saves.values())}
    return {
        "p_kind": kind.name,
        "p_stage": stage,
        "p_ids": array(saves),
        "p_fields": array([texts[fields] for fields in saves.values()]),
        **kind.store.named(list(saves)),
    }


# The hook


def hook_of(definition: Definition) -> Hook:
    """`saved` becomes a Celery task, whose jobs are put in by `record`."""

    def saved(_kind: str, _entity_id: str, sequence: int) -> None:
        _call(definition, sequence)

    saved.__doc__ = f"After a save of {definition.kind.name} by the stage {definition.name}."
    queue = hook_queue(definition.kind.name, definition.name)
    limit = definition.time_limit.total_seconds()
    return Hook(hook_task(definition), saved, queue, limit, hook_attempts(definition))


def _call(definition: Definition, sequence: int) -> None:
    columns = (EVENT.c.entity_id, EVENT.c.version, EVENT.c.state_type, EVENT.c.state_value, EVENT.c.state_version)
    with transaction() as session:
        document = sa.cast(EVENT.c.entity, sa.Text).label("document")
        event = session.execute(sa.select(*columns, document).where(EVENT.c.id == sequence)).one_or_none()
        if event is None:
            log.error("%s: saved is not called: its event %d is not kept any more", definition.task, sequence)
            return
        remote = definition.remote is not None
        entity = None if remote else definition.kind.store.entity(session, event.document)
    stored = Stored(event.state_type or "", event.state_value or b"", event.state_version)
    if remote:
        remote_saved(definition, event.entity_id, sequence, event.version, event.document, stored)
    elif definition.saved is not None:
        definition.saved(entity, unpack(definition, stored))
