"""A store of entities that are plain objects, in a dictionary; and stages declared for one test.

It does what `stages.store` asks for, as naively as can be: every entity is compared attribute by attribute with the
copy that was made when it was loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields
from inspect import isfunction
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadOutcome, BadRequest
from app.registry import Registry
from stages import Change, Codec, Kind, Loaded, Untouched, registration, stage, watched
from stages.definition import Definition

MODULE = __name__


class MemoryStore:
    """Of dataclasses with `version`. `columns`: fields that are named otherwise than their attributes."""

    def __init__(
        self, entity_class: type[Any], key: tuple[str, ...] = ("id",), columns: Mapping[str, str] | None = None
    ) -> None:
        self.entity_class: type[Any] = entity_class
        self.key, self.columns = key, dict(columns or {})
        own = entity_class.__annotations__
        self.codec = Codec(tuple({"str": str, "int": int}[own[name]] for name in key))
        self.names = {each.name for each in fields(entity_class)} - {*key, "version"}
        #: By id, in the order of the ids.
        self.rows: dict[str, Any] = {}

    def put(self, entity: Any) -> str:
        loaded = self.loaded(entity)
        self.rows[loaded.id] = deepcopy(entity)
        return loaded.id

    def fields(self, names: Iterable[str]) -> frozenset[str]:
        wanted = set(names)
        if unknown := wanted - self.names:
            raise BadRequest(f"{self.entity_class.__name__} has no attribute {', '.join(sorted(unknown))} to watch")
        return frozenset(self.columns.get(name, name) for name in wanted)

    def load(self, session: Session | None, ids: Sequence[str]) -> dict[str, Loaded]:
        return {each: self.loaded(deepcopy(self.rows[each])) for each in ids if each in self.rows}

    def loaded(self, entity: Any) -> Loaded:
        if not isinstance(entity, self.entity_class):
            raise BadOutcome(f"{entity!r:.100} is no {self.entity_class.__name__}")
        return Loaded(self._id(entity), entity, entity.version, deepcopy(vars(entity)))

    def changes(self, loaded: Loaded, entity: Any) -> dict[str, Any]:
        if not isinstance(entity, self.entity_class):
            raise BadOutcome(f"{entity!r:.100} is no {self.entity_class.__name__}")
        if self._id(entity) != loaded.id or entity.version != loaded.version:
            raise BadOutcome(f"it is {self._id(entity)} of version {entity.version}, not {loaded.id}")
        now = vars(entity)
        return {self.columns.get(name, name): now[name] for name in self.names if now[name] != loaded.memo[name]}

    def patched(self, loaded: Loaded, values: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := set(values) - self.names:
            raise BadOutcome(f"{self.entity_class.__name__} has no attribute {', '.join(sorted(unknown))} to set")
        for name, value in values.items():
            setattr(loaded.entity, name, value)
        return {self.columns.get(name, name): each for name, each in values.items() if each != loaded.memo[name]}

    def renewed(self, loaded: Loaded, entity: Any) -> Any:
        loaded.entity.__dict__.update(vars(entity) | {"version": loaded.version + 1})
        return loaded.entity

    def read(self, loaded: Loaded, names: Iterable[str]) -> dict[str, Any]:
        wanted = set(names)
        if unknown := wanted - self.names:
            raise BadOutcome(f"{self.entity_class.__name__} has no attribute {', '.join(sorted(unknown))} to read")
        return {name: loaded.memo[name] for name in wanted}

    def save(self, session: Session | None, changes: Sequence[Change], *, wait: bool = False) -> set[str]:
        saved = set()
        names = {field: name for name, field in self.columns.items()}
        for change in changes:
            row = self.rows.get(change.id)
            if row is not None and row.version == change.version:
                for field, value in change.values.items():
                    setattr(row, names.get(field, field), deepcopy(value))
                row.version += 1
                saved.add(change.id)
        return saved

    def versions(self, session: Session | None, ids: Sequence[str]) -> dict[str, int]:
        return {each: self.rows[each].version for each in ids if each in self.rows}

    def hold(self, session: Session | None, ids: Sequence[str], *, wait: bool = False) -> dict[str, int]:
        return self.versions(session, ids)

    def exporting(self) -> sa.SelectBase:
        raise AssertionError("it is in no database")

    def named(self, ids: Sequence[str]) -> dict[str, Any]:
        raise AssertionError("it is in no database")

    def entity(self, session: Session | None, document: str) -> Any:
        return self.entity_class(**json.loads(document))

    def entities(self, session: Session | None, documents: Sequence[str]) -> list[Any]:
        return [self.entity(session, each) for each in documents]

    def attributes(self) -> dict[str, str]:
        return {self.columns.get(name, name): name for name in sorted(self.names)}

    def split(self, session: Session | None, parts: int) -> list[str]:
        ids = self._ordered()
        return sorted({ids[len(ids) * part // parts] for part in range(1, parts)}) if ids else []

    def page(self, session: Session | None, after: str | None, until: str | None, limit: int) -> list[Loaded]:
        return list(self.load(session, self.ids(session, after, until, limit)).values())

    def ids(self, session: Session | None, after: str | None, until: str | None, limit: int) -> list[str]:
        first, last = (None if each is None else self.codec.id_of(each) for each in (after, until))
        between = [
            each
            for each in self._ordered()
            if (first is None or self.codec.id_of(each) > first) and (last is None or self.codec.id_of(each) <= last)
        ]
        return between[:limit]

    def count(self, session: Session | None) -> int:
        return len(self.rows)

    def _id(self, entity: Any) -> str:
        parts = tuple(getattr(entity, name) for name in self.key)
        return self.codec.text_of(parts[0] if len(parts) == 1 else parts)

    def _ordered(self) -> list[str]:
        return sorted(self.rows, key=self.codec.id_of)


@dataclass
class Parcel:
    """What most tests process."""

    id: str
    status: str = "new"
    weight: int = 0
    version: int = 1


def parcels(mode: str = "exclusive", max_hops: int = 30) -> Kind:
    return Kind("parcel", MemoryStore(Parcel, columns={"weight": "grams"}), "parcel", mode, max_hops)


@contextmanager
def nothing_declared() -> Iterator[Registry]:
    """What was declared before comes back at the end, and Celery hears of nothing."""
    own = Registry()
    with (
        patch.object(registration, "registry", own),
        patch.dict(registration.declared, clear=True),
        patch.dict(watched.kinds, clear=True),
        patch.dict(watched._classes, clear=True),
    ):
        yield own


Asked = Callable[[Any, Any], Any]


def declare(
    kind: Kind,
    name: str = "weigh",
    *,
    wants: Asked | Any = False,
    does: Asked | Any = Untouched(),  # noqa: B008 - it is frozen
    tells: Asked | None = None,
    **options: Any,
) -> Definition:
    """A stage whose methods answer so, or call these."""

    def should_process(self: object, entity: Any, state: Any) -> Any:
        return wants(entity, state) if isfunction(wants) else wants

    def process(self: object, entity: Any, state: Any) -> Any:
        return does(entity, state) if isfunction(does) else does

    def saved(self: object, entity: Any, state: Any) -> None:
        assert tells is not None
        tells(entity, state)

    body: dict[str, Any] = {"should_process": should_process, "process": process, "__module__": MODULE}
    if tells is not None:
        body["saved"] = saved
    stage(kind, name=name, **options)(type(name.title(), (), body))
    return registration.declared[kind.name, name]
