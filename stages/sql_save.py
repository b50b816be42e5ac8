"""The statement that saves a batch: locks what it can get, compares the versions, writes, and says what was written.

The entities of a batch may differ in what changed: if so, each row is written under a mask of its own.
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
from sqlalchemy.dialects.postgresql import ARRAY, BIT
from sqlalchemy.engine import Connection

from app.prepared import Prepared
from stages.sql_arrays import array
from stages.sql_shape import DIALECT, Attribute, Shape, driver_value
from stages.store import Change


@dataclass
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
    _prepared: Prepared | None = None

    def __post_init__(self) -> None:
        update = self._update()
        self.text, self.constants = _compiled(update)
        # What a model makes at each update may be an expression whose parameters need their values to have a type.
        made = any(column.onupdate is not None for column in self.shape.table.c)
        if self.lasting and not self.wait and not made:
            name = md5(self.text.encode(), usedforsecurity=False).hexdigest()
            self._prepared = Prepared(f"save_{name}", update)

    def execute(self, connection: Connection, parameters: dict[str, Any]) -> list[int]:
        """The places of the changes that were written."""
        if self._prepared is not None:
            return list(self._prepared.execute(connection, parameters).scalars())
        return list(connection.exec_driver_sql(self.text, self.constants | parameters).scalars())

    def _update(self) -> sa.Update:
        shape = self.shape
        given = [(f"value_{i}", each.element) for i, each in enumerate(self.columns)]
        if self.masked:
            given.append(("mask", BIT(varying=True)))
        mine = _locked(shape, given, self.columns, wait=self.wait)
        values = {each.column: self._new(mine, i, each) for i, each in enumerate(self.columns)}
        for column in shape.table.c:
            if column.onupdate is not None and column not in values:
                values[column] = self._made(column)
        values[shape.version.column] = shape.version.column + 1
        return (
            sa.update(shape.table)
            .where(*(key.column == mine.c[f"key_{i}"] for i, key in enumerate(shape.keys)))
            .values(values)
            .returning(mine.c.place)
        )

    def _new(self, mine: sa.CTE, i: int, each: Attribute) -> Any:
        value: sa.ColumnElement[Any] = mine.c[f"value_{i}"]
        if isinstance(each.kind, sa.ARRAY):
            value = sa.cast(value, each.unbounded)
        if not self.masked:
            return value
        kept = each.column if each.column.onupdate is None else self._made(each.column)
        return sa.case((sa.func.get_bit(mine.c.mask, i) == 1, value), else_=kept)

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
    """The rows that are still what their change rests on, in the order of the key, with what was given for them."""
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
        .cte("mine")
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
