"""What a save leaves behind, in its own transaction (S14): an event for the relay, and the job of the stage's `saved`.

The id of an event is its sequence. It is drawn while the row of the entity is locked, by the save itself or by
`Store.hold`, and that lock lasts until the commit: so the events of one entity have their order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
#: In the place of its three columns.
NO_STATE: list[Any] = [sa.null(), sa.null(), sa.literal_column("0")]
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
    kept = NO_STATE
    if form.states:
        same = (STATE.c.kind == kind, STATE.c.entity_id == given.c.id, STATE.c.stage == stage)
        source = source.outerjoin(STATE, sa.and_(*same))
        kept = [STATE.c.type_url, STATE.c.value, sa.func.coalesce(STATE.c.version, 0)]
    fields = sa.cast(given.c.fields, ARRAY(sa.Text))
    saves = sa.select(kind, given.c.id, stage, rows.c.version, fields, rows.c.entity, *kept).select_from(source)
    recorded, *hooked = recording(saves, hooked=form.hooked)
    result = sa.select(sa.func.count().label("events")).select_from(recorded).add_cte(*hooked)
    name = f"record_{abs(hash(id(form.store)))}" + "_states" * form.states + "_hooked" * form.hooked
    return Prepared(name, result)


def recording(saves: sa.Select[Any], *, hooked: bool) -> list[sa.CTE]:
    """The events of these, of all columns in their order, and the jobs of the hook."""
    names = ["kind", "entity_id", "stage", "version", "fields", "entity", "state_type", "state_value", "state_version"]
    recorded = (
        sa.insert(EVENT).from_select(names, saves).returning(EVENT.c.id, EVENT.c.entity_id).cte("tidemill_recorded")
    )
    if not hooked:
        return [recorded]
    kind = sa.cast(sa.bindparam("p_kind", type_=sa.Text), sa.Text)
    columns = {
        "queue": sa.cast(sa.bindparam("p_queue", type_=sa.Text), sa.Text),
        "task": sa.cast(sa.bindparam("p_task", type_=sa.Text), sa.Text),
        "args": sa.func.json_build_array(kind, recorded.c.entity_id, recorded.c.id, type_=JSON),
        "max_attempts": sa.cast(sa.bindparam("p_max_attempts", type_=sa.SmallInteger), sa.SmallInteger),
    }
    jobs = sa.insert(JOB).from_select(list(columns), sa.select(*columns.values()))
    return [recorded, jobs.cte("tidemill_hooked")]


def record(connection: Connection, definition: Definition, saves: Mapping[str, Mapping[str, Any]]) -> None:
    """By id, the fields that were changed; none: the state alone. All of them are locked by this transaction."""
    kind, form = definition.kind, form_of(definition)
    parameters = _parameters(kind, definition.name, {each: tuple(fields) for each, fields in saves.items()})
    _recording(form).execute(connection, parameters | of_hook(definition))


def form_of(definition: Definition) -> Form:
    return Form(definition.kind.store, definition.state is not None, definition.saved is not None)


def of_hook(definition: Definition) -> dict[str, Any]:
    """The parameters of its jobs."""
    if definition.saved is None:
        return {}
    return {
        "p_queue": hook_queue(definition.kind.name, definition.name),
        "p_task": hook_task(definition),
        "p_max_attempts": hook_attempts(definition),
    }


def record_outside(connection: Connection, kind: Kind, stage: str, entity_id: str) -> None:
    """The state of a stage was changed by somebody else (S19)."""
    _recording(Form(kind.store, states=True, hooked=False)).execute(
        connection, _parameters(kind, stage, {entity_id: ()})
    )


def _parameters(kind: Kind, stage: str, saves: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        "p_kind": kind.name,
        "p_stage": stage,
        "p_ids": array(saves),
        "p_fields": lists(list(saves.values())),
        **kind.store.named(list(saves)),
    }


def lists(saves: Sequence[tuple[str, ...]]) -> str:
    """The fields of each save."""
    # Of a batch, most change the same.
    texts = {fields: array(sorted(fields)) for fields in set(saves)}
    return array([texts[fields] for fields in saves])


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
