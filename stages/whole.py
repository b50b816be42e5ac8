"""Visits that have changed their entities, ended by one statement.

It locks entities and entries in their order and passes over what somebody else holds; of what it has got all of, it
writes the entity, ends the visit, writes the state, makes the offers, and tells. An entity is never written without the
end of its visit. What cannot be written so (other stores, values that only the driver can send) is saved step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection

from app.claims import PassKey
from app.claims.model import built_once
from app.prepared import Prepared
from stages import ending, events, statements
from stages.batch import Unsaved
from stages.definition import Definition
from stages.ending import Done, Offer, Place
from stages.model import STATE
from stages.store import Change, Together, Writing


@dataclass(frozen=True)
class Whole:
    """A batch that can be saved so."""

    statement: Prepared
    parameters: dict[str, Any]

    def save(self, connection: Connection) -> set[str]:
        """The ids of those that have ended."""
        rows = self.statement.execute(connection, self.parameters).all()
        if rows and rows[0].saved < len(rows):
            # A trigger of the table has refused some, without an error.
            raise Unsaved(set())
        return {row[0] for row in rows}


def whole(
    definition: Definition,
    place: Place,
    pass_key: PassKey,
    changes: Sequence[Change],
    done: Sequence[Done],
    offers: Sequence[Offer],
) -> Whole | None:
    """`changes` and `done` of the same entities, in the same order."""
    store = definition.kind.store
    if not isinstance(store, Together) or (writing := store.writing(changes)) is None:
        return None
    form, parameters = ending.given(place, pass_key, done, offers, wait=False)
    parameters |= writing[1] | events.of_hook(definition)
    parameters["p_fields"] = events.lists([tuple(each.values) for each in changes])
    return Whole(_statement(writing[0], form, events.form_of(definition)), parameters)


@built_once
def _statement(writing: Writing, form: statements.Form, telling: events.Form) -> Prepared:
    held = writing.held(*statements.carried(form).items(), ("fields", sa.Text))
    ok = statements.ended(held, form)
    saved = writing.written(ok)
    told = events.recording(_saves(saved, form, telling), hooked=telling.hooked)
    name = f"{writing.name} {form.name} {telling.states} {telling.hooked}"
    short = md5(name.encode(), usedforsecurity=False).hexdigest()
    count = sa.select(sa.func.count()).select_from(saved).scalar_subquery().label("saved")
    # Else the guards would be read from end to end, with all that are gone and not cleaned up yet.
    return Prepared(f"whole_{short}", statements.result(ok, form, *told).add_columns(count), by_index=True)


def _saves(saved: sa.CTE, form: statements.Form, telling: events.Form) -> sa.Select[Any]:
    c, state = saved.c, events.NO_STATE
    if form.states and telling.states:
        state = [_kept(saved, "type_url"), _kept(saved, "value"), _version(saved)]
    fields = sa.cast(c.fields, ARRAY(sa.Text))
    return sa.select(c.kind, c.entity_id, c.stage, c.version, fields, c.entity, *state)


def _kept(saved: sa.CTE, name: str) -> sa.ColumnElement[Any]:
    """Of the state as it is after this: what is written in this very statement cannot be read by it."""
    same = (STATE.c[word] == saved.c[word] for word in ("kind", "entity_id", "stage"))
    known = sa.select(STATE.c[name]).where(*same).correlate(saved).scalar_subquery()
    return sa.case((statements.is_kept(saved), known), else_=saved.c[name])


def _version(saved: sa.CTE) -> sa.ColumnElement[Any]:
    """0: there is none."""
    c = saved.c
    return sa.case(
        (statements.is_kept(saved), c.state_version),
        (statements.is_new(saved), sa.func.coalesce(c.first_version, c.state_version + 1)),
        else_=sa.literal_column("0"),
    )
