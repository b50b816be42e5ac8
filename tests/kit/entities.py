"""Models of all shapes, to test their storage on: every kind of primary key, and columns of many types."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from stages import Store, Watched
from stages.sql_store import SqlStore
from tests.kit import documents
from tests.kit.documents import Document, DocumentStore, document


class Models(DeclarativeBase):
    metadata = sa.MetaData(schema="public")
    type_annotation_map = {datetime: sa.DateTime(timezone=True), str: sa.Text}  # noqa: RUF012


class Status(enum.Enum):
    NEW = "new"
    SOLD = "sold"


class Grams(sa.types.TypeDecorator[Decimal]):
    """Kilograms in Python, grams in the database."""

    impl = sa.Integer
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: sa.Dialect) -> int | None:
        return None if value is None else int(value * 1000)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> Decimal | None:
        return None if value is None else Decimal(value) / 1000


class Titled(Watched):
    title: Mapped[str] = mapped_column("heading")
    amount: Mapped[int]


class Offer(Titled, Models):
    """Text; and every type of column."""

    __tablename__ = "offer"

    id: Mapped[str] = mapped_column(primary_key=True)
    short: Mapped[str | None] = mapped_column(sa.String(5))
    small: Mapped[int | None] = mapped_column(sa.SmallInteger)
    price: Mapped[Decimal | None] = mapped_column(sa.Numeric(12, 2))
    weight: Mapped[Decimal | None] = mapped_column(Grams)
    ratio: Mapped[float | None] = mapped_column(sa.Double)
    active: Mapped[bool | None]
    published_at: Mapped[datetime | None]
    day: Mapped[date | None]
    hour: Mapped[time | None]
    span: Mapped[timedelta | None] = mapped_column(sa.Interval)
    token: Mapped[uuid.UUID | None]
    picture: Mapped[bytes | None]
    status: Mapped[Status | None]
    plain: Mapped[Status | None] = mapped_column(sa.Enum(Status, native_enum=False, name="plain"))
    note: Mapped[Any] = mapped_column(sa.JSON, nullable=True)
    meta: Mapped[Any] = mapped_column(postgresql.JSONB(none_as_null=True), nullable=True)
    tags: Mapped[list[Any] | None] = mapped_column(postgresql.ARRAY(sa.Text))
    codes: Mapped[list[Any] | None] = mapped_column(postgresql.ARRAY(sa.String(5)))
    grid: Mapped[list[Any] | None] = mapped_column(postgresql.ARRAY(sa.Integer, dimensions=2))
    statuses: Mapped[list[Any] | None] = mapped_column(postgresql.ARRAY(sa.Enum(Status)))
    pickled: Mapped[Any] = mapped_column(sa.PickleType, nullable=True)
    address: Mapped[str | None] = mapped_column(postgresql.INET)
    text: Mapped[str | None] = mapped_column("body", deferred=True)
    double: Mapped[int | None] = mapped_column(sa.Computed("amount * 2", persisted=True))


class Counter(Titled, Models):
    __tablename__ = "counter"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Ticket(Titled, Models):
    __tablename__ = "ticket"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)


class Line(Titled, Models):
    """The key's order is not that of the columns."""

    __tablename__ = "line"
    __table_args__ = (sa.PrimaryKeyConstraint("order", "line_no"),)

    number: Mapped[int] = mapped_column("line_no", sa.SmallInteger)
    order: Mapped[str] = mapped_column()


class Animal(Titled, Models):
    """With those that inherit from it, in one table."""

    __tablename__ = "animal"
    __mapper_args__ = {"polymorphic_on": "species", "polymorphic_identity": "animal"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    species: Mapped[str]


class Cat(Animal):
    __mapper_args__ = {"polymorphic_identity": "cat"}  # noqa: RUF012

    lives: Mapped[int | None] = mapped_column()


class Dog(Animal):
    __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012

    tricks: Mapped[list[Any] | None] = mapped_column(postgresql.JSONB)


@dataclass(frozen=True)
class Case:
    """A store, and how to make the entities that it keeps: a higher number comes later in the store's order."""

    name: str
    store: Store
    table: str
    make: Callable[[int], Any]
    insert: Callable[[Session, Iterable[Any]], None]

    def put(self, session: Session, count: int) -> list[str]:
        entities = [self.make(number) for number in range(count)]
        ids = [self.store.loaded(entity).id for entity in entities]
        self.insert(session, entities)
        session.commit()
        return ids


def _added(session: Session, entities: Iterable[Any]) -> None:
    session.add_all(entities)


def _rest(number: int) -> dict[str, Any]:
    return {"title": f"title {number}", "amount": number}


def _animal(number: int) -> Animal:
    kinds: Sequence[type[Animal]] = (Animal, Cat, Dog)
    return kinds[number % 3](id=number, **_rest(number))


#: What needs quoting in an array, in a parameter, in the text of a composite id.
ODD = """it's "/\\ {NULL},%s é"""

CASES = {
    case.name: case
    for case in (
        Case("text", SqlStore(Offer), "offer", lambda i: Offer(id=f"{ODD}{i:04}", **_rest(i)), _added),
        Case("int", SqlStore(Counter), "counter", lambda i: Counter(number=i - 3, **_rest(i)), _added),
        Case("uuid", SqlStore(Ticket), "ticket", lambda i: Ticket(id=uuid.UUID(int=i << 100), **_rest(i)), _added),
        Case(
            "composite",
            SqlStore(Line),
            "line",
            lambda i: Line(order=f"{ODD}{i // 3:04}", number=i % 3 - 1, **_rest(i)),
            _added,
        ),
        Case("inheritance", SqlStore(Animal), "animal", _animal, _added),
        Case("document", DocumentStore(), "document", lambda i: Document(f"{ODD}{i:04}", **_rest(i)), documents.insert),
    )
}


def create_all(engine: Engine) -> None:
    Models.metadata.create_all(engine)
    document.create(engine)


def clear(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in (*Models.metadata.sorted_tables, document):
            connection.execute(sa.delete(table))


def exported(store: Store, session: Session, ids: Sequence[str]) -> dict[str, str]:
    """Entities as JSON, by id; those that exist."""
    rows = store.exporting().subquery()
    found = session.execute(sa.select(rows.c.place, sa.cast(rows.c.entity, sa.Text)), store.named(ids)) if ids else ()
    return {ids[place - 1]: text for place, text in found}
