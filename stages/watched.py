"""`Watched`: makes the rows of a model entities, which stages may change; and the kinds that there are (S1, S12).

The database trigger that `stages.install` puts on the table counts the versions, whoever writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.orm import Mapped, Mapper, declared_attr, mapped_column

from app.checks import checked_count, checked_word
from app.errors import BadRequest
from stages.kind import HOPS, MODES, Kind, checked_name
from stages.sql_store import SqlStore
from stages.store import Store

__all__ = ["Kind", "Watched", "kind_of", "kinds"]


@dataclass(frozen=True)
class Options:
    mode: str = MODES[0]
    max_hops: int = 30
    kind: str | None = None


class Watched:
    """`class Offer(Watched, Base, mode="optimistic")`. `kind`: unless given, the name of the table. What stands
    on an abstract class holds for those below it, its `kind` excepted."""

    watched_options: ClassVar[Options] = Options()

    def __init_subclass__(
        cls, mode: str | None = None, kind: str | None = None, max_hops: int | None = None, **more: Any
    ) -> None:
        options = replace(cls.watched_options, kind=kind)
        if kind is not None:
            checked_name(cls.__name__, "kind", kind)
        if mode is not None:
            options = replace(options, mode=checked_word(cls.__name__, "mode", mode, MODES))
        if max_hops is not None:
            options = replace(options, max_hops=checked_count(cls.__name__, "max_hops", max_hops, HOPS))
        cls.watched_options = options
        super().__init_subclass__(**more)

    if TYPE_CHECKING:
        version: Mapped[int]
    else:
        # With an annotation at run time, it would have to be a field of models that are dataclasses.
        @declared_attr
        @classmethod
        def version(cls):
            # The trigger of the table raises it, whatever a program writes into it.
            return mapped_column(
                sa.BigInteger, nullable=False, server_default="1", server_onupdate=sa.FetchedValue(), sort_order=1000
            )


#: Writes names as the database reads them; with other parameters, it would double each '%'.
_NAMES = PGDialect_psycopg2(paramstyle="named").identifier_preparer  # type: ignore[no-untyped-call]
#: By name, those that were asked for.
kinds: dict[str, Kind] = {}
_classes: dict[str, type] = {}


def kind_of(watched: type | Kind) -> Kind:
    """Of a watched class; a kind with a store of its own is entered as it is."""
    if isinstance(watched, Kind):
        return _enter(watched)
    table, options = _table(watched), cast("type[Watched]", watched).watched_options
    name = name_of(watched)
    known = _classes.get(name)
    if known is watched and name in kinds:
        return kinds[name]
    if known is not None and _path(known) != _path(watched):
        raise BadRequest(
            f"{_path(watched)} and {_path(known)} are both of the kind {name}: "
            f"give one of them another, as in class {watched.__name__}(Watched, Base, kind='…')"
        )
    checked_name(_path(watched), "kind", name)
    made = Kind(name, _store_of(watched), _NAMES.format_table(table), options.mode, options.max_hops)
    if known is None:
        _enter(made)
    # The same class, of a module that was imported anew, takes the place of the old one.
    kinds[name], _classes[name] = made, watched
    return made


def name_of(watched: Any) -> str:
    """Of the kind of a watched class, also of one that shares its table."""
    return watched.watched_options.kind or str(watched.__table__.name)


def _enter(kind: Kind) -> Kind:
    known = kinds.setdefault(kind.name, kind)
    if known != kind:
        if kind.name in _classes or known.table != kind.table or type(known.store) is not type(kind.store):
            raise BadRequest(
                f"the tables {known.table} and {kind.table} are both of the kind {kind.name}: give one another name"
            )
        kinds[kind.name] = kind
    return kind


def _table(watched: Any) -> sa.Table:
    if not isinstance(watched, type) or not issubclass(watched, Watched):
        raise BadRequest(
            f"{watched!r:.100} is not watched: write class Offer(Watched, Base) and @stage(Offer), or give a Kind"
        )
    mapper: Mapper[Any] | None = sa.inspect(watched, raiseerr=False)
    if mapper is None or not isinstance(mapper.local_table, sa.Table):
        raise BadRequest(f"{_path(watched)} has no table of its own: name a class that is mapped to one")
    table = mapper.local_table
    if mapper.inherits is not None and mapper.inherits.local_table is table:
        base = mapper.base_mapper.class_.__name__
        raise BadRequest(f"{_path(watched)} shares the table of {base}: name {base}, and ask each entity what it is")
    if mapper.inherits is not None or any(each.local_table is not table for each in mapper.self_and_descendants):
        raise BadRequest(
            f"{_path(watched)} is spread over several tables by inheritance, so it has no single version: watch "
            "classes with a table each, or keep all of them in one table"
        )
    return table


def _store_of(watched: type) -> Store:
    return SqlStore(watched)


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
