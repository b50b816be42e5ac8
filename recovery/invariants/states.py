"""What holds of the states that stages keep beside entities, which are rows of their users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.claims import Executor
from recovery import record
from recovery.findings import Verdict
from recovery.invariants.claims import newest
from recovery.invariants.entry import BOUND, Done, Invariant, Key, selecting
from recovery.invariants.visits import known_stage
from stages.model import STATE

#: What is known of the watched tables: whether they are there, and the columns of their keys with their types.
_TABLES = sa.text(
    """
    select known.kind, known.relation, array_agg(att.attname::text order by place.n) as parts,
           array_agg(format_type(att.atttypid, null) order by place.n) as types
    from tidemill.entity_kind known
    join pg_catalog.pg_index ind on ind.indrelid = to_regclass(known.relation) and ind.indisprimary
    cross join unnest(ind.indkey) with ordinality place (number, n)
    join pg_catalog.pg_attribute att on att.attrelid = ind.indrelid and att.attnum = place.number
    where place.n <= ind.indnkeyatts and pg_catalog.has_table_privilege(ind.indrelid, 'select')
    group by known.kind, known.relation order by known.kind
    """
)
#: The text of an id as a value of the key, so that its index is used; null where it is none.
_AS = {
    "bigint": r"case when ID ~ '^-?[0-9]{1,18}$' then cast(ID as bigint) end",
    "integer": r"case when ID ~ '^-?[0-9]{1,9}$' then cast(ID as int) end",
    "smallint": r"case when ID ~ '^-?[0-9]{1,4}$' then cast(ID as int) end",
    "uuid": r"case when ID ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then cast(ID as uuid) end",
    "text": "ID",
    "character varying": "ID",
}


def _without_entity(executor: Executor, limit: int, only: Sequence[Key] | None = None) -> list[Key]:
    found = list[Key]()
    for table in executor.execute(_TABLES).all():
        if len(found) < limit and (only is None or any(key[0] == table.kind for key in only)):
            found += _of_kind(executor, table, limit - len(found), only)
    return found


def _of_kind(executor: Executor, table: Any, limit: int, only: Sequence[Key] | None) -> list[Key]:
    ids = None if only is None else [key[1] for key in only if key[0] == table.kind]
    if len(table.parts) == 1:
        part = executor.execute(sa.select(sa.func.quote_ident(table.parts[0]))).scalar_one()
        same = f"entity.{part} = {_AS[table.types[0]].replace('ID', 'kept.entity_id')}"
    else:
        # Of a key of several columns there is no way back from the text.
        key = executor.execute(sa.select(sa.func.tidemill.entity_key(table.parts))).scalar_one()
        same = f"({key}) = kept.entity_id"
    query = f"""
        select kept.kind, kept.entity_id, kept.stage
        from (select * from tidemill.stage_state where kind = :kind
              and (cast(:ids as text[]) is null or entity_id = any (cast(:ids as text[])))
              order by kind, entity_id, stage limit {BOUND}) kept
        where not exists (select from {table.relation} entity where {same}) limit {limit}
    """  # noqa: S608 - names that the database has quoted itself
    return [tuple(row) for row in executor.execute(sa.text(query), {"kind": table.kind, "ids": ids}).all()]


def _forget(session: Session, keys: Sequence[Key]) -> Done:
    """As the deletion of the entity would have done. One that is made anew meanwhile has no state yet."""
    done = dict[Key, str]()
    still = _without_entity(session, len(keys), keys)
    for kind in sorted({key[0] for key in still}):
        ids = sorted({key[1] for key in still if key[0] == kind})
        session.execute(sa.select(sa.func.tidemill.forget_entities(kind, sa.cast(ids, Array(sa.Text)))))
        done |= {key: "forgotten" for key in keys if key[0] == kind and key[1] in ids}
    return Done(done)


_rows = newest(STATE)

OF_STATES: tuple[Invariant, ...] = (
    Invariant(
        "a state is that of an entity",
        record.VISIT,
        Verdict.REPAIRABLE,
        "state_without_entity",
        _without_entity,
        "forgotten, as when the entity was deleted",
        _forget,
        bound=BOUND,
    ),
    Invariant(
        "a state belongs to a known stage",
        record.VISIT,
        Verdict.HARMLESS,
        "state_of_unknown_stage",
        selecting(sa.select(_rows.c.kind, _rows.c.entity_id, _rows.c.stage).where(~known_stage(_rows))),
        "nobody: it is kept for the day on which a worker registers the stage",
        bound=BOUND,
    ),
)
