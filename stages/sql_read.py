"""What a store asks the table of a model: rows by their keys, and all of them in the order of the key, which is the
database's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import aliased, lazyload, with_polymorphic
from sqlalchemy.sql.base import Executable

from stages.sql_arrays import array
from stages.sql_shape import Shape

#: Up to so many rows are counted.
EXACT = 10_000
#: Of so many keys at least, the cuts are made.
SAMPLED = 20_000
_EAGER = ("joined", "selectin", "subquery", "immediate")


class _Explain(Executable, sa.ClauseElement):
    inherit_cache = False

    def __init__(self, statement: sa.Select[Any]) -> None:
        self.statement = statement


@compiles(_Explain)
def _explain(element: _Explain, compiler: Any, **more: Any) -> str:
    return f"EXPLAIN (FORMAT JSON) {compiler.process(element.statement, **more)}"


class Reading:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        classes = list(shape.mapper.self_and_descendants)
        #: With the columns of all classes in the table.
        self.entity: Any = with_polymorphic(shape.mapper, "*") if len(classes) > 1 else shape.entity_class
        self._keys = [getattr(self.entity, each.name) for each in shape.keys]
        self._entities = sa.select(self.entity)
        if any(relation.lazy in _EAGER for each in classes for relation in each.relationships):
            # Related rows have no part in the version, and would be more queries.
            self._entities = self._entities.options(lazyload("*"))
        self.by_key = self._entities.where(self._among())
        self.versions = sa.select(getattr(self.entity, shape.version.name), *self._keys).where(self._among())

    def _among(self) -> sa.ColumnElement[bool]:
        arrays = [
            sa.cast(sa.bindparam(f"p_key_{i}", type_=sa.Text), ARRAY(key.element))
            for i, key in enumerate(self._shape.keys)
        ]
        if len(arrays) == 1:
            return sa.and_(self._keys[0] == sa.any_(arrays[0]))
        wanted = sa.func.unnest(*arrays).table_valued(*(f"key_{i}" for i in range(len(arrays)))).render_derived()
        return sa.tuple_(*self._keys).in_(sa.select(*wanted.c))

    def arrays(self, keys: Iterable[Any]) -> dict[str, str]:
        """The parameters that name these rows."""
        parts = (keys,) if len(self._keys) == 1 else zip(*keys, strict=True)
        return {f"p_key_{i}": array(map(str, part)) for i, part in enumerate(parts)}

    def holding(self, *, wait: bool) -> sa.Select[Any]:
        """Their versions, locked as a save locks them, in the order of the key."""
        return self.versions.order_by(*self._keys).with_for_update(skip_locked=not wait, key_share=True)

    def page(self, after: Any, until: Any, limit: int) -> sa.Select[Any]:
        return self._within(self._entities, after, until, limit)

    def keys(self, after: Any, until: Any, limit: int) -> sa.Select[Any]:
        return self._within(sa.select(*self._keys), after, until, limit)

    def _within(self, statement: sa.Select[Any], after: Any, until: Any, limit: int) -> sa.Select[Any]:
        statement = statement.order_by(*self._keys).limit(limit)
        own = self._keys[0] if len(self._keys) == 1 else sa.tuple_(*self._keys)
        if after is not None:
            statement = statement.where(own > self._bound(after))
        if until is not None:
            statement = statement.where(own <= self._bound(until))
        return statement

    def _bound(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        bound = [sa.literal(part, own.type) for part, own in zip(parts, self._keys, strict=True)]
        return bound[0] if len(bound) == 1 else sa.tuple_(*bound)

    def count(self, connection: Connection) -> int:
        """What the planner expects, which follows the size of the table; exact when that is little."""
        every = sa.select(*self._keys)
        expected = int(connection.execute(_Explain(every)).scalar_one()[0]["Plan"]["Plan Rows"])
        if expected > EXACT:
            return expected
        return int(connection.execute(sa.select(sa.func.count()).select_from(every.subquery())).scalar_one())

    def cuts(self, connection: Connection, parts: int) -> list[Any]:
        """The last key of each part but the last."""
        sample = self._sample(self.count(connection), parts)
        names = [f"key_{i}" for i in range(len(sample))]
        keys = sa.select(*(key.label(name) for key, name in zip(sample, names, strict=True))).subquery("keys")
        place = sa.func.row_number().over(order_by=[keys.c[name] for name in names]).label("place")
        ranked = sa.select(*keys.c, place, sa.func.count().over().label("total")).subquery("ranked")
        # Whole numbers: the part that a place is in.
        here, following = (ranked.c.place - 1) * parts // ranked.c.total, ranked.c.place * parts // ranked.c.total
        rows = connection.execute(
            sa.select(*(ranked.c[name] for name in names))
            .where(here != following, ranked.c.place < ranked.c.total)
            .order_by(ranked.c.place)
        )
        return [row[0] if len(names) == 1 else tuple(row) for row in rows]

    def _sample(self, count: int, parts: int) -> list[Any]:
        """The keys of all rows, or of some pages of them."""
        wanted = max(SAMPLED, 100 * parts)
        if count <= wanted:
            return self._keys
        pages = sa.tablesample(self._shape.table, sa.func.system(100 * wanted / count))
        some: Any = aliased(self._shape.entity_class, pages)
        return [getattr(some, each.name) for each in self._shape.keys]
