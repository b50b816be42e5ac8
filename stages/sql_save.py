"""The statement that saves a batch: locks what it can get, compares the versions, writes, and says what was written.

The entities of a batch may differ in what changed: if so, each row is written under a mask of its own. Both of its
steps, the lock and the write, can be parts of a statement that ends the visits as well (`stages.whole`).
`tidemill.saving` is set within the same statement, in the filter of the rows that are locked, so before the first is
written: the triggers of the table see it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BIT, JSON
from sqlalchemy.engine import Connection

from app.prepared import Prepared
from stages.sql_arrays import array
from stages.sql_json import WHOLE
from stages.sql_shape import DIALECT, Attribute, Shape, driver_value
from stages.store import Change


@dataclass(eq=False)
class Saving:
    """The statement for one set of columns."""

    shape: Shape
    columns: Sequence[Attribute]
    masked: bool
    wait: bool
    #: It is one of few: the server keeps its plan.
    lasting: bool = False
    text: str = ""
    constants: dict[str, Any] = field(default_factory=dict)
    #: What the model wants to be set by every update, by parameter.
    made: dict[str, Callable[[], Any]] = field(default_factory=dict)
    name: str = ""
    _prepared: Prepared | None = None

    def __post_init__(self) -> None:
        held = self.held()
        update = self._update(self.shape.table, held).returning(held.c.place)
        self.text, self.constants = _compiled(update)
        self.name = md5(self.text.encode(), usedforsecurity=False).hexdigest()
        if self.is_prepared:
            self._prepared = Prepared(f"save_{self.name}", update)

    @property
    def is_prepared(self) -> bool:
        # What a model makes at each update may be an expression whose parameters need their values to have a type.
        made = any(column.onupdate is not None for column in self.shape.table.c)
        return self.lasting and not self.wait and not made

    def execute(self, connection: Connection, parameters: dict[str, Any]) -> list[int]:
        """The places of the changes that were written."""
        if self._prepared is not None:
            return list(self._prepared.execute(connection, parameters).scalars())
        return list(connection.exec_driver_sql(self.text, self.constants | parameters).scalars())

    def held(self, *carried: tuple[str, Any]) -> sa.CTE:
        given = [(f"value_{i}", each.element) for i, each in enumerate(self.columns)]
        if self.masked:
            given.append(("mask", BIT(varying=True)))
        return _locked(self.shape, [*given, *carried], self.columns, wait=self.wait)

    def written(self, rows: sa.CTE) -> sa.CTE:
        row = self.shape.table.alias(WHOLE)
        entity = sa.func.to_json(sa.literal_column(WHOLE), type_=JSON)
        version = row.c[self.shape.version.column.key]
        update = self._update(row, rows)
        return update.returning(*rows.c, version.label("version"), entity.label("entity")).cte("tidemill_saved")

    def _update(self, row: Any, rows: sa.CTE) -> sa.Update:
        shape = self.shape
        values = {row.c[each.column.key]: self._new(row, rows, i, each) for i, each in enumerate(self.columns)}
        for column in row.c:
            if column.onupdate is not None and column not in values:
                values[column] = self._made(column)
        version = row.c[shape.version.column.key]
        values[version] = version + 1
        same = (row.c[key.column.key] == rows.c[f"key_{i}"] for i, key in enumerate(shape.keys))
        return sa.update(row).where(*same).values(values)

    def _new(self, row: Any, rows: sa.CTE, i: int, each: Attribute) -> Any:
        value: sa.ColumnElement[Any] = rows.c[f"value_{i}"]
        if isinstance(each.kind, sa.ARRAY):
            value = sa.cast(value, each.unbounded)
        if not self.masked:
            return value
        kept = row.c[each.column.key] if each.column.onupdate is None else self._made(each.column)
        return sa.case((sa.func.get_bit(rows.c.mask, i) == 1, value), else_=kept)

    def _made(self, column: sa.Column[Any]) -> Any:
        default: Any = column.onupdate
        if default.is_sequence:
            return default.next_value()
        if default.is_clause_element:
            return default.arg
        name = f"p_made_{len(self.made)}"
        self.made[name] = lambda: driver_value(column.type, default.arg(None) if default.is_callable else default.arg)
        return sa.bindparam(name, type_=column.type)

    def parameters(self, changes: Sequence[Change]) -> dict[str, Any]:
        """All but which rows; `NoText` if only the driver can send one of the values."""
        found = {name: make() for name, make in self.made.items()}
        for i, each in enumerate(self.columns):
            name, text = each.field, each.text
            if self.masked:
                texts = [text(change.values[name]) if name in change.values else None for change in changes]
            else:
                texts = [text(change.values[name]) for change in changes]
            found[f"p_value_{i}"] = array(texts)
        if self.masked:
            names = [each.field for each in self.columns]
            masks = ["".join(["1" if name in change.values else "0" for name in names]) for change in changes]
            found["p_mask"] = array(masks)
        return found


def lock(
    connection: Connection, shape: Shape, columns: Sequence[Attribute], parameters: dict[str, Any], *, wait: bool
) -> list[int]:
    """The places of the changes whose rows can be written now: one by one, with `write_one`."""
    text, constants = _compiled(sa.select(_locked(shape, [], columns, wait=wait).c.place))
    return list(connection.exec_driver_sql(text, constants | parameters).scalars())


def _compiled(statement: Any) -> tuple[str, dict[str, Any]]:
    """For the driver, with the values that are the same each time."""
    compiled = statement.compile(dialect=DIALECT)
    given = {name: value for name, value in compiled.params.items() if value is not None}
    return str(compiled), {name: driver_value(compiled.binds[name].type, value) for name, value in given.items()}


def _locked(shape: Shape, given: Sequence[tuple[str, Any]], columns: Sequence[Attribute], *, wait: bool) -> sa.CTE:
    """The rows that are still what their change rests on, in the order of the key, with what was given for them by
    name: a parameter `p_…` each."""
    # As the update itself would lock them: who inserts a row that refers to one of these is not in the way, unless
    # what it may refer to changes.
    lasting = not any(each.column in shape.unique for each in columns)
    keys = [(f"key_{i}", key.element) for i, key in enumerate(shape.keys)]
    given = [*keys, ("version", sa.BigInteger()), *given]
    wanted = (
        sa.func.unnest(*(sa.cast(sa.bindparam(f"p_{name}", type_=sa.Text), ARRAY(kind)) for name, kind in given))
        .table_valued(*(sa.column(name, kind) for name, kind in given), with_ordinality="place")
        .render_derived(name="wanted")
    )
    row = shape.table.alias("locked")
    own = [row.c[key.column.key] for key in shape.keys]
    found = sa.and_(*(column == wanted.c[name] for column, (name, _) in zip(own, keys, strict=True)))
    return (
        sa.select(*(column for column in wanted.c if column.name != "version"))
        .select_from(row.join(wanted, found))
        .where(row.c[shape.version.column.key] == wanted.c.version, _saying([each.field for each in columns]))
        .order_by(*own)
        .with_for_update(skip_locked=not wait, key_share=lasting, of=row)
        .cte("tidemill_held")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )


def _saying(fields: Iterable[str]) -> sa.ColumnElement[bool]:
    """For the trigger of the table, and for one statement: a stage saves these fields."""
    saving = sa.select(sa.func.set_config("tidemill.saving", json.dumps(sorted(fields)), sa.true()))
    return saving.scalar_subquery().is_not(None)


def write_one(connection: Connection, shape: Shape, key: Any, values: dict[str, Any]) -> None:
    """As the driver sends it, to a row that is locked."""
    table, parts = shape.table, key if isinstance(key, tuple) else (key,)
    connection.execute(
        sa.update(table)
        .where(*(each.column == part for each, part in zip(shape.keys, parts, strict=True)), _saying(values))
        .values({column: values[column.name] for column in table.c if column.name in values})
        .values({shape.version.column: shape.version.column + 1})
    )
