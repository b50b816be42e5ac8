"""Entities that are rows of a SQLAlchemy model (S20).

Promises:
- A batch is loaded by one query and saved by one statement; both find the rows by the index of the primary key.
- What is loaded belongs to no session: nothing is read or written behind the back of a stage. A deferred column is
  not loaded; it can be set.
- A save writes the columns that changed, of the rows whose version is still the loaded one and that nobody else holds.
  If the database refuses a value of one entity, the whole save fails: save them one by one then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from app.errors import BadOutcome, BadRequest, DatabaseError, Unavailable
from stages import sql_save
from stages.comparing import kept
from stages.identity import Codec
from stages.sql_arrays import NoText, array
from stages.sql_json import Json
from stages.sql_read import Reading
from stages.sql_save import Saving
from stages.sql_shape import Attribute, Shape
from stages.store import Change, Loaded, Writing

_MISSING: Any = object()
#: There is one for each set of columns that changed together.
_STATEMENTS = 200
#: Each connection keeps the plans of so many of them.
_PREPARED = 20


class SqlStore:
    def __init__(self, entity_class: type) -> None:
        self._shape = Shape(entity_class)
        self._shapes = {entity_class: self._shape}
        self.codec = Codec(self._shape.parts)
        self._reading = Reading(self._shape)
        self._json = Json(self._shape)
        self._saving: Callable[..., Saving] = lru_cache(_STATEMENTS)(self._build)
        self._built = 0

    def fields(self, names: Iterable[str]) -> frozenset[str]:
        known, wanted = self._writable(), frozenset(names)
        if unknown := sorted(wanted - known.keys()):
            raise BadRequest(f"{self._shape} has no attribute {unknown[0]!r} to watch: use {', '.join(sorted(known))}")
        return frozenset(known[name].field for name in wanted)

    def _writable(self) -> dict[str, Attribute]:
        """Of all classes in the table."""
        classes = [each.class_ for each in self._shape.mapper.self_and_descendants]
        return {name: each for found in classes for name, each in self._shape_of(found).writable.items()}

    def _shape_of(self, entity_class: type) -> Shape:
        found = self._shapes.get(entity_class)
        if found is None:
            found = self._shapes[entity_class] = Shape(entity_class)
        return found

    # What is loaded

    def load(self, session: Session, ids: Sequence[str]) -> dict[str, Loaded]:
        texts = self._texts(ids)
        if not texts:
            return {}
        found = self._entities(session, self._reading.by_key, self._reading.arrays(texts))
        return {each.id: each for each in (self._loaded(entity, texts) for entity in found)}

    def _texts(self, ids: Iterable[str]) -> dict[Any, str]:
        """By key. What can be no id of this table is of no row."""
        found = {}
        for text in ids:
            try:
                found[self.codec.id_of(text)] = text
            except BadRequest:
                continue
        return found

    def _connection(self, session: Session) -> Connection:
        session.flush()
        return session.connection(bind_arguments={"mapper": self._shape.mapper})

    def _entities(self, session: Session, statement: Any, parameters: Mapping[str, Any] | None = None) -> Iterable[Any]:
        """Fresh objects, whatever the session holds, read in its transaction; detached."""
        connection = self._connection(session)
        # It does not end the transaction that it is given, nor make a savepoint in it.
        with Session(connection, autoflush=False, join_transaction_mode="rollback_only") as own:
            return own.scalars(statement, parameters).all()

    def loaded(self, entity: Any) -> Loaded:
        self._check_class(entity)
        return self._loaded(entity, {})

    def _loaded(self, entity: Any, texts: Mapping[Any, str]) -> Loaded:
        memo = entity.__dict__.copy()
        shape = self._shape_of(type(entity))
        for name in shape.changing:
            if name in memo:
                memo[name] = kept(memo[name])
        key = shape.key(memo)
        return Loaded(texts.get(key) or self.codec.text_of(key), entity, memo.get(shape.version.name) or 1, memo)

    # What changed

    def changes(self, loaded: Loaded, entity: Any) -> dict[str, Any]:
        self._check_class(entity)
        shape, now, memo = self._shape_of(type(entity)), entity.__dict__, loaded.memo
        for name in shape.kept:
            if now.get(name) != memo.get(name):
                raise BadOutcome(
                    f"{shape} {loaded.id}: {name} was {memo.get(name)!r:.100} and is {now.get(name)!r:.100} now: the "
                    "key and the version of an entity stay as they were loaded"
                )
        found = {}
        for name, attribute in shape.writable.items():
            # Nearly always the very same object, and then this is all that it costs.
            if now.get(name, _MISSING) is not memo.get(name, _MISSING) and self._differs(loaded, entity, attribute):
                found[attribute.field] = now.get(name)
        return found

    def _check_class(self, entity: Any) -> None:
        if not isinstance(entity, self._shape.entity_class):
            raise BadOutcome(f"{entity!r:.200} is not of the class {self._shape}: return the entity that was given")

    def _differs(self, loaded: Loaded, entity: Any, attribute: Attribute) -> bool:
        """Of an attribute that is not the very object that was loaded."""
        old, new = loaded.memo.get(attribute.name, _MISSING), entity.__dict__.get(attribute.name, _MISSING)
        if new is _MISSING:
            # Deleted, which writes NULL; or never set, in an object that the stage has made itself.
            return bool(sa.inspect(entity).attrs[attribute.name].history.deleted)
        if isinstance(new, sa.ClauseElement) or hasattr(new, "__clause_element__"):
            problem = f"is a SQL expression ({new!s:.100}): set a plain value"
        else:
            try:
                if old is not _MISSING and not attribute.differs(old, new):
                    return False
                attribute.check(new)
            except (TypeError, ValueError, LookupError) as error:
                problem = f"cannot be {new!r:.100}: {error}"
            else:
                if attribute.column.computed is None:
                    return True
                problem = "is computed by the database, and cannot be set"
        raise BadOutcome(f"{self._shape} {loaded.id}: {attribute.name} {problem}")

    def patched(self, loaded: Loaded, values: Mapping[str, Any]) -> dict[str, Any]:
        shape, entity = self._shape_of(type(loaded.entity)), loaded.entity
        self._known(loaded, values, shape.writable)
        for name, value in values.items():
            setattr(entity, name, value)
        changed = [shape.writable[name] for name in values if self._differs(loaded, entity, shape.writable[name])]
        return {each.field: entity.__dict__[each.name] for each in changed}

    def renewed(self, loaded: Loaded, entity: Any) -> Any:
        own, given = loaded.entity.__dict__, entity.__dict__
        if entity is not loaded.entity:
            own.update({name: given[name] for name in self._shape_of(type(entity)).writable if name in given})
        own[self._shape.version.name] = loaded.version + 1
        return loaded.entity

    def read(self, loaded: Loaded, names: Iterable[str]) -> dict[str, Any]:
        wanted = tuple(names)
        self._known(loaded, wanted, self._shape_of(type(loaded.entity)).attributes)
        if missing := [name for name in wanted if name not in loaded.memo]:
            raise BadOutcome(
                f"{self._shape} {loaded.id}: {missing[0]!r} is deferred and was not loaded: do not read it"
            )
        return {name: loaded.memo[name] for name in wanted}

    def _known(self, loaded: Loaded, names: Iterable[str], known: Mapping[str, Attribute]) -> None:
        if unknown := [name for name in names if name not in known]:
            raise BadOutcome(
                f"{self._shape} {loaded.id}: {unknown[0]!r} cannot be used here: use {', '.join(sorted(known))}"
            )

    # What is saved

    def save(self, session: Session, changes: Sequence[Change], *, wait: bool = False) -> set[str]:
        if not changes:
            return set()
        ids = [change.id for change in changes]
        if len(set(ids)) < len(ids):
            raise BadRequest(f"{self._shape}: the batch has two changes of one entity: put them together")
        saving, parameters = self._given(changes, wait=wait)
        connection = self._connection(session)
        try:
            values = saving.parameters(changes)
        except NoText:
            saved = sql_save.lock(connection, self._shape, saving.columns, parameters, wait=wait)
            for place in saved:
                change = changes[place - 1]
                sql_save.write_one(connection, self._shape, self.codec.id_of(change.id), change.values)
        else:
            saved = saving.execute(connection, parameters | values)
        return {changes[place - 1].id for place in saved}

    def _given(self, changes: Sequence[Change], *, wait: bool) -> tuple[Saving, dict[str, Any]]:
        fields = frozenset([field for change in changes for field in change.values])
        masked = any(len(change.values) < len(fields) for change in changes)
        parameters = self.named([change.id for change in changes])
        parameters["p_version"] = array([str(change.version) for change in changes])
        return self._saving(fields, masked, wait), parameters

    def writing(self, changes: Sequence[Change]) -> tuple[Writing, dict[str, Any]] | None:
        saving, parameters = self._given(changes, wait=False)
        if not saving.is_prepared:
            return None
        try:
            return saving, parameters | saving.parameters(changes)
        except NoText:
            return None

    def _build(self, fields: frozenset[str], masked: bool, wait: bool) -> Saving:  # noqa: FBT001
        known = {each.field: each for each in self._writable().values()}
        if unknown := sorted(fields - known.keys()):
            raise BadRequest(f"{self._shape} has no column {unknown[0]!r} that can be saved")
        saving = Saving(self._shape, [known[field] for field in sorted(fields)], masked, wait, self._built < _PREPARED)
        self._built += not wait
        return saving

    # All of them

    def versions(self, session: Session, ids: Sequence[str]) -> dict[str, int]:
        texts = self._texts(ids)
        if not texts:
            return {}
        rows = self._connection(session).execute(self._reading.versions, self._reading.arrays(texts))
        found = ((key[0] if len(key) == 1 else tuple(key), version) for version, *key in rows)
        return {texts.get(key) or self.codec.text_of(key): version for key, version in found}

    def hold(self, session: Session, ids: Sequence[str], *, wait: bool = False) -> dict[str, int]:
        texts = self._texts(ids)
        if not texts:
            return {}
        rows = self._connection(session).execute(self._reading.holding(wait=wait), self._reading.arrays(texts))
        found = ((key[0] if len(key) == 1 else tuple(key), version) for version, *key in rows)
        return {texts.get(key) or self.codec.text_of(key): version for key, version in found}

    # As JSON

    def exporting(self) -> sa.SelectBase:
        return self._json.exporting()

    def named(self, ids: Sequence[str]) -> dict[str, Any]:
        # A key that is text is its own id.
        return self._reading.arrays(ids if self.codec.parts == (str,) else [self.codec.id_of(each) for each in ids])

    def entity(self, session: Session, document: str) -> Any:
        return self._made(session, self._json.reading(), {"p_document": document})[0]

    def entities(self, session: Session, documents: Sequence[str]) -> list[Any]:
        if not documents:
            return []
        return self._made(session, self._json.reading_many, {"p_documents": f"[{','.join(documents)}]"})

    def _made(self, session: Session, statement: Any, given: dict[str, str]) -> list[Any]:
        try:
            found = list(self._entities(session, statement, given))
        except (Unavailable, DatabaseError):
            raise
        except Exception as error:  # noqa: BLE001
            # The database cannot read a value, Python cannot hold what was read, or a type of the model refuses it.
            why = getattr(error, "orig", None) or error
            raise BadRequest(f"{self._shape} cannot be made of JSON: {why!s:.500}") from None
        if None in found:
            raise BadRequest(f"{self._shape} cannot be made of JSON: a part of the key is missing")
        return found

    def attributes(self) -> Mapping[str, str]:
        return {each.field: name for name, each in self._writable().items()}

    def split(self, session: Session, parts: int) -> list[str]:
        return self._texts_of(self._reading.cuts(self._connection(session), parts))

    def page(self, session: Session, after: str | None, until: str | None, limit: int) -> list[Loaded]:
        begin, end = (None if each is None else self.codec.id_of(each) for each in (after, until))
        return [self._loaded(entity, {}) for entity in self._entities(session, self._reading.page(begin, end, limit))]

    def ids(self, session: Session, after: str | None, until: str | None, limit: int) -> list[str]:
        begin, end = (None if each is None else self.codec.id_of(each) for each in (after, until))
        while True:
            rows = self._connection(session).execute(self._reading.keys(begin, end, limit)).all()
            keys = [row[0] if len(row) == 1 else tuple(row) for row in rows]
            if (texts := self._texts_of(keys)) or len(keys) < limit:
                return texts
            begin = keys[-1]

    def _texts_of(self, keys: Iterable[Any]) -> list[str]:
        found = []
        for key in keys:
            with suppress(BadRequest):
                found.append(self.codec.text_of(key))
        return found

    def count(self, session: Session) -> int:
        return self._reading.count(self._connection(session))
