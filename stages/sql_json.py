"""Rows of a model as JSON and back, by the database: the one codec of entities outside of this program.

An entity is what `to_json` makes of its row, by the names of the columns, and `json_populate_record` makes a row of it
again.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.orm import lazyload, undefer, with_polymorphic

from stages.sql_shape import Shape

#: A row under a name that no column has: as `row`, it would be the column of that name.
WHOLE = "tidemill_entity"


class Json:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def exporting(self) -> sa.Select[Any]:
        """`place, version, entity` of the rows that `Reading.arrays` names."""
        shape = self._shape
        keys = [(f"key_{i}", key.element) for i, key in enumerate(shape.keys)]
        given = (
            sa.func.unnest(*(sa.cast(sa.bindparam(f"p_{name}", type_=sa.Text), ARRAY(kind)) for name, kind in keys))
            .table_valued(*(sa.column(name, kind) for name, kind in keys), with_ordinality="place")
            .render_derived(name="wanted")
        )
        row = shape.table.alias(WHOLE)
        same = [row.c[key.column.key] == given.c[name] for key, (name, _) in zip(shape.keys, keys, strict=True)]
        version = row.c[shape.version.column.key]
        whole: sa.ColumnElement[Any] = sa.literal_column(WHOLE)
        return sa.select(
            given.c.place, version.label("version"), sa.func.to_json(whole, type_=JSON).label("entity")
        ).where(*same)

    def reading(self) -> sa.Select[Any]:
        """The entity that `p_document` is."""
        return self._read("json_populate_record", "p_document")

    @cached_property
    def reading_many(self) -> sa.Select[Any]:
        """The entities of the JSON array `p_documents`, in its order."""
        return self._read("json_populate_recordset", "p_documents")

    def _read(self, function: str, parameter: str) -> sa.Select[Any]:
        # As a cast, the name of a table may be taken for that of a type that is built in.
        row: sa.ColumnElement[Any] = sa.literal_column(WHOLE)
        empty = sa.select(row).select_from(self._shape.table.alias(WHOLE)).where(sa.false()).scalar_subquery()
        given = sa.cast(sa.bindparam(parameter, type_=sa.Text), JSON)
        # With the very columns of the table, which are found in it again; columns of other tables stay what they are.
        rows = getattr(sa.func, function)(empty, given).table_valued(*self._shape.table.c).alias("document")
        whole = with_polymorphic(self._shape.mapper, "*", selectable=rows)
        # Related rows are not in the JSON; all columns are.
        return sa.select(whole).options(lazyload("*"), undefer("*"))
