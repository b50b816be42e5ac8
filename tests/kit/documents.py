"""Another storage of entities: documents in one table, by SQLAlchemy Core; all that `stages.store` asks for."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB
from sqlalchemy.orm import Session

from app.errors import BadOutcome, BadRequest
from stages import Change, Codec, Loaded
from stages.sql_arrays import array

document = sa.Table(
    "document",
    sa.MetaData(schema="public"),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("body", JSONB, nullable=False),
)


@dataclass
class Document:
    id: str
    title: str
    amount: int
    version: int = 1


#: Their names in the body.
FIELDS = {"title": "heading", "amount": "amount"}


class DocumentStore:
    codec = Codec((str,))

    def fields(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(FIELDS[name] for name in _known(names, BadRequest))

    def load(self, session: Session, ids: Sequence[str]) -> dict[str, Loaded]:
        known = [each for each in ids if "\0" not in each]
        rows = session.execute(sa.select(document).where(document.c.id == sa.any_(sa.cast(known, ARRAY(sa.Text)))))
        return {row.id: _loaded(row) for row in rows}

    def loaded(self, entity: Any) -> Loaded:
        return Loaded(entity.id, entity, entity.version, copy.copy(entity))

    def changes(self, loaded: Loaded, entity: Any) -> dict[str, Any]:
        if not isinstance(entity, Document):
            raise BadOutcome(f"{entity!r:.100} is no document")
        if (entity.id, entity.version) != (loaded.id, loaded.version):
            raise BadOutcome(
                f"document {loaded.id} of version {loaded.version} has become another one: {entity!r:.100}"
            )
        return {
            field: getattr(entity, name)
            for name, field in FIELDS.items()
            if getattr(entity, name) != getattr(loaded.memo, name)
        }

    def patched(self, loaded: Loaded, values: Mapping[str, Any]) -> dict[str, Any]:
        for name in _known(values, BadOutcome):
            setattr(loaded.entity, name, values[name])
        changes = self.changes(loaded, loaded.entity)
        return {FIELDS[name]: value for name, value in values.items() if FIELDS[name] in changes}

    def renewed(self, loaded: Loaded, entity: Any) -> Any:
        loaded.entity.__dict__.update(vars(entity) | {"version": loaded.version + 1})
        return loaded.entity

    def read(self, loaded: Loaded, names: Iterable[str]) -> dict[str, Any]:
        return {name: getattr(loaded.memo, name) for name in _known(names, BadOutcome)}

    def save(self, session: Session, changes: Sequence[Change], *, wait: bool = False) -> set[str]:
        if len({change.id for change in changes}) < len(changes):
            raise BadRequest("two changes of one document: put them together")
        columns = {"p_id": sa.Text, "p_version": sa.BigInteger, "p_values": JSONB}
        wanted = (
            sa.func.unnest(
                *(sa.cast(sa.bindparam(name, type_=ARRAY(kind)), ARRAY(kind)) for name, kind in columns.items())
            )
            .table_valued(*(sa.column(name, kind) for name, kind in columns.items()))
            .render_derived(name="wanted")
        )
        saving = sa.select(sa.func.set_config("tidemill.saving", "on", sa.true())).scalar_subquery()
        mine = (
            sa.select(document.c.id, wanted.c.p_values)
            .join_from(document, wanted, document.c.id == wanted.c.p_id)
            .where(document.c.version == wanted.c.p_version, saving.is_not(None))
            .order_by(document.c.id)
            .with_for_update(skip_locked=not wait, of=document)
            .cte("mine")
            .prefix_with("MATERIALIZED", dialect="postgresql")
        )
        update = (
            sa.update(document)
            .where(document.c.id == mine.c.id)
            .values(version=document.c.version + 1, body=document.c.body + mine.c.p_values)
            .returning(document.c.id)
        )
        given = [(change.id, change.version, change.values) for change in changes]
        return (
            set(session.scalars(update, dict(zip(columns, zip(*given, strict=True), strict=True)))) if given else set()
        )

    def versions(self, session: Session, ids: Sequence[str]) -> dict[str, int]:
        return {each.id: each.version for each in self.load(session, ids).values()}

    def hold(self, session: Session, ids: Sequence[str], *, wait: bool = False) -> dict[str, int]:
        known = sa.cast([each for each in ids if "\0" not in each], ARRAY(sa.Text))
        rows = (
            sa.select(document.c.id, document.c.version).where(document.c.id == sa.any_(known)).order_by(document.c.id)
        )
        return {
            row.id: row.version for row in session.execute(rows.with_for_update(skip_locked=not wait, key_share=True))
        }

    def exporting(self) -> sa.SelectBase:
        ids = sa.func.unnest(sa.cast(sa.bindparam("p_key", type_=sa.Text), ARRAY(sa.Text)))
        wanted = ids.table_valued(sa.column("id", sa.Text), with_ordinality="place").render_derived(name="wanted")
        head = sa.func.jsonb_build_object("id", document.c.id, "version", document.c.version, type_=JSONB)
        whole = sa.cast(document.c.body + head, JSON).label("entity")
        return sa.select(wanted.c.place, document.c.version, whole).where(document.c.id == wanted.c.id)

    def named(self, ids: Sequence[str]) -> dict[str, Any]:
        return {"p_key": array(ids)}

    def entity(self, session: Session, document: str) -> Any:
        try:
            body = json.loads(document)
            return Document(body["id"], body["heading"], body["amount"], body["version"])
        except (ValueError, TypeError, KeyError) as error:
            raise BadRequest(f"no document can be made of {document:.100}: {error!r}") from None

    def entities(self, session: Session, documents: Sequence[str]) -> list[Any]:
        return [self.entity(session, each) for each in documents]

    def attributes(self) -> dict[str, str]:
        return {field: name for name, field in FIELDS.items()}

    def split(self, session: Session, parts: int) -> list[str]:
        ids = list(session.scalars(sa.select(document.c.id).order_by(document.c.id)))
        return sorted({ids[len(ids) * part // parts - 1] for part in range(1, parts)} - {ids[-1]}) if ids else []

    def page(self, session: Session, after: str | None, until: str | None, limit: int) -> list[Loaded]:
        query = sa.select(document).order_by(document.c.id).limit(limit)
        if after is not None:
            query = query.where(document.c.id > after)
        if until is not None:
            query = query.where(document.c.id <= until)
        return [_loaded(row) for row in session.execute(query)]

    def ids(self, session: Session, after: str | None, until: str | None, limit: int) -> list[str]:
        return [each.id for each in self.page(session, after, until, limit)]

    def count(self, session: Session) -> int:
        return session.execute(sa.select(sa.func.count()).select_from(document)).scalar_one()


def _loaded(row: sa.Row[Any]) -> Loaded:
    entity = Document(row.id, row.body["heading"], row.body["amount"], row.version)
    return Loaded(row.id, entity, row.version, copy.copy(entity))


def _known(names: Iterable[str], error: type[BadRequest]) -> list[str]:
    wanted = list(names)
    if unknown := set(wanted) - FIELDS.keys():
        raise error(f"a document has no {', '.join(sorted(unknown))}: use {', '.join(FIELDS)}")
    return wanted


def insert(session: Session, documents: Iterable[Document]) -> None:
    for each in documents:
        body = {field: getattr(each, name) for name, field in FIELDS.items()}
        session.execute(sa.insert(document).values(id=each.id, version=each.version, body=body))
