"""What a visit sees beside the entity: the states of its stages, and which stages the database knows, in one query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection

from app.claims.model import built_once
from app.prepared import Prepared
from stages.model import STATE, Stage
from stages.sql_arrays import array
from stages.state import Stored


@dataclass(frozen=True)
class Seen:
    #: By entity and stage.
    states: dict[str, dict[str, Stored]] = field(default_factory=dict)
    #: Registered by any worker, and asked after changes: the fields that they watch; None: all.
    stages: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def of(self, entity_id: str) -> dict[str, Stored]:
        return self.states.get(entity_id, _NONE)

    def strangers(self, known: Collection[str]) -> dict[str, frozenset[str] | None]:
        """Stages that are registered by another release, and cannot be asked here."""
        return {each: watches for each, watches in sorted(self.stages.items()) if each not in known}


_NONE: dict[str, Stored] = {}


@built_once
def _seeing() -> Prepared:
    kind, ids = sa.bindparam("p_kind", type_=sa.Text), sa.cast(sa.bindparam("p_ids", type_=sa.Text), ARRAY(sa.Text))
    states = sa.select(
        *(STATE.c.stage, STATE.c.entity_id, STATE.c.type_url, STATE.c.value, STATE.c.version),
        sa.cast(None, ARRAY(sa.Text)).label("watches"),
    ).where(STATE.c.kind == kind, STATE.c.entity_id == sa.any_(ids))
    stages = sa.select(
        *(Stage.name, sa.cast(None, sa.Text), sa.cast(None, sa.Text), sa.cast(None, sa.LargeBinary)),
        *(sa.cast(None, sa.BigInteger), Stage.watches),
    ).where(Stage.kind == kind, Stage.removed_at.is_(None), Stage.asked)
    return Prepared("seen_by_visits", sa.union_all(states, stages))


def see(connection: Connection, kind: str, ids: Sequence[str]) -> Seen:
    found = Seen()
    rows: Iterable[Any] = _seeing().execute(connection, {"p_kind": kind, "p_ids": array(ids)})
    for stage, entity_id, type_url, value, version, watches in rows:
        if entity_id is None:
            found.stages[stage] = None if watches is None else frozenset(watches)
        else:
            found.states.setdefault(entity_id, {})[stage] = Stored(type_url, bytes(value), version)
    return found


def warm_up() -> None:
    _seeing()
