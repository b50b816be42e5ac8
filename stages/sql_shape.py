"""What a store has to know of a mapped class: its table, key, version and columns, and by which names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import CITEXT, INTERVAL
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.exc import NoInspectionAvailable
from sqlalchemy.orm import ColumnProperty, Mapper

from app.errors import BadRequest
from stages.comparing import same
from stages.sql_arrays import NoText, nested, text_of

DIALECT = PGDialect_psycopg2()  # type: ignore[no-untyped-call]
VERSION = "version"
#: Whose values never change in place.
_FIXED = (sa.String, sa.Integer, sa.Numeric, sa.Float, sa.Boolean, sa.DateTime, sa.Date, sa.Time, sa.Uuid, sa.Enum)
#: Whose values are sent as text in arrays; those of any other type go to the driver one by one.
_AS_TEXT = (*_FIXED, INTERVAL, sa.LargeBinary, sa.JSON)


@dataclass(frozen=True)
class Attribute:
    """A column under its name in Python."""

    name: str
    column: sa.Column[Any]
    field: str

    @cached_property
    def kind(self) -> Any:
        """The type that does the work, within decorators and variants."""
        return _plain(self.column.type)

    @cached_property
    def fixed(self) -> bool:
        return not isinstance(self.column.type, sa.types.TypeDecorator) and isinstance(self.kind, _FIXED)

    @cached_property
    def element(self) -> Any:
        """As what its values stand in an array. Without a length: casting to one cuts off what is too long, while the
        column refuses it."""
        # The elements of an array are arrays as text: `unnest` would take them apart.
        return sa.Text() if isinstance(self.kind, sa.ARRAY) else _unbounded(self.kind)

    @cached_property
    def unbounded(self) -> Any:
        return _unbounded(self.kind)

    def differs(self, old: Any, new: Any) -> bool:
        """Whether the database would see a difference."""
        if self.fixed:
            return bool(old != new)
        if same(old, new):
            return False
        try:
            if isinstance(self.column.type, sa.JSON):
                return not same(old, self._stored(new))  # what was loaded has that form
            return not same(self._stored(old), self._stored(new))
        except NoText:
            return True

    def _stored(self, value: Any) -> Any:
        """In a form that is the same for whatever is stored as the same: keys of JSON that are numbers become text."""
        text = self.text(value)
        return text if text is None or not isinstance(self.kind, sa.JSON) else json.loads(text)

    def check(self, value: Any) -> None:
        """Raises what sending it would raise: it must not be the whole batch that fails."""
        try:
            text = self.text(value) or ""
        except NoText:
            return
        if "\0" in text:
            raise ValueError("Postgres has no text with NUL")
        text.encode()

    @cached_property
    def text(self) -> Callable[[Any], str | None]:
        """The text of a value, or `NoText`."""
        kind, bind = self.kind, _bind(self.column.type)
        converted = self.column.type.bind_expression(sa.bindparam(None, type_=self.column.type)) is not None
        if converted or not isinstance(kind.item_type if isinstance(kind, sa.ARRAY) else kind, _AS_TEXT):
            return _no_text
        write = nested if isinstance(kind, sa.ARRAY) else text_of
        return write if bind is None else lambda value: write(bind(value))


def driver_value(kind: Any, value: Any) -> Any:
    bind = _bind(kind)
    return value if bind is None else bind(value)


def _bind(kind: Any) -> Callable[[Any], Any] | None:
    return cast(Callable[[Any], Any] | None, kind.dialect_impl(DIALECT).bind_processor(DIALECT))


def _no_text(value: Any) -> str | None:
    raise NoText(type(value).__name__)


def _plain(kind: Any) -> Any:
    found = kind.dialect_impl(DIALECT)
    while isinstance(found, sa.types.TypeDecorator):
        found = found.impl_instance
    return found


def _unbounded(kind: Any) -> Any:
    if isinstance(kind, sa.ARRAY):
        return sa.ARRAY(_unbounded(_plain(kind.item_type)))
    if isinstance(kind, sa.String) and not isinstance(kind, CITEXT) and not _native_enum(kind):
        return sa.Text()
    if isinstance(kind, sa.Integer):
        return sa.BigInteger()
    return sa.Numeric() if isinstance(kind, sa.Numeric) else kind


def _native_enum(kind: Any) -> bool:
    return isinstance(kind, sa.Enum) and kind.native_enum


class Shape:
    """Of one class. Those that inherit from it, in the same table, have shapes of their own."""

    def __init__(self, entity_class: type) -> None:
        self.entity_class = entity_class
        self.mapper = mapper_of(entity_class)
        self.table = cast(sa.Table, self.mapper.local_table)
        self.attributes = {each.name: each for each in map(self._attribute, self.mapper.column_attrs) if each}
        by_field = {each.field: each for each in self.attributes.values()}
        self.keys = tuple(by_field[column.name] for column in self.table.primary_key)
        if VERSION not in by_field or not isinstance(by_field[VERSION].kind, sa.Integer):
            raise BadRequest(f"{self}: there is no column '{VERSION}' of integers: inherit from Watched")
        self.version = by_field[VERSION]
        #: What each visit must leave as it is.
        self.kept = (*(each.name for each in self.keys), self.version.name)
        self.writable = {name: each for name, each in self.attributes.items() if name not in self.kept}
        #: Of what changes in place, a copy must be kept.
        self.changing = tuple(each.name for each in self.writable.values() if not each.fixed)

    def __str__(self) -> str:
        return self.entity_class.__name__

    def _attribute(self, prop: ColumnProperty[Any]) -> Attribute | None:
        """None for an expression."""
        column = prop.columns[0]
        if isinstance(column, sa.Column) and column.table is self.table:
            return Attribute(prop.key, column, column.name)
        return None

    @cached_property
    def unique(self) -> frozenset[sa.Column[Any]]:
        """What rows of other tables may refer to."""
        unique: list[Any] = [each for each in self.table.constraints if isinstance(each, sa.UniqueConstraint)]
        unique += [each for each in self.table.indexes if each.unique]
        return frozenset(column for each in unique for column in each.columns)

    def key(self, values: Mapping[str, Any]) -> Any:
        """One value, or a tuple."""
        if len(self.keys) == 1:
            return values.get(self.keys[0].name)
        return tuple([values.get(each.name) for each in self.keys])

    @cached_property
    def parts(self) -> tuple[type, ...]:
        return tuple(self._part(each) for each in self.keys)

    def _part(self, key: Attribute) -> type:
        kind = key.column.type
        match kind:
            case sa.types.TypeDecorator() | sa.Enum() | sa.CHAR():
                pass
            case sa.String():
                return str
            case sa.Integer():
                return int
            case sa.Uuid() if kind.as_uuid:
                return uuid.UUID
        raise BadRequest(
            f"{self}.{key.name}: {kind!r} cannot be part of a primary key here: use text without padding, integers, "
            "or Uuid with as_uuid=True"
        )


def mapper_of(entity_class: Any) -> Mapper[Any]:
    try:
        found = sa.inspect(entity_class)
    except NoInspectionAvailable:
        found = None
    if not isinstance(found, Mapper):
        raise BadRequest(f"{entity_class!r:.200} is not a mapped class: give a model that has a table of its own")
    for each in found.self_and_descendants:
        if not isinstance(each.local_table, sa.Table) or each.local_table is not found.local_table or each.tables[1:]:
            raise BadRequest(
                f"{each.class_.__name__} spreads over several tables, and a row of one of them has no version for all: "
                "use single-table inheritance"
            )
    return found
