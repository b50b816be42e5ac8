"""Entities on their way out as JSON and back (S18), and held for an event of their state (S14): every store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, column_property, mapped_column, relationship

from app.db import new_engine
from app.errors import BadRequest
from stages import Change
from stages.sql_store import SqlStore
from tests.kit import entities
from tests.kit.database import Databases
from tests.kit.entities import CASES, Case, exported
from tests.kit.plans import captured


@pytest.fixture(scope="module")
def stored(_databases: Databases) -> Iterator[Engine]:
    url = _databases.clone()
    engine = new_engine(url, pool_size=3)
    entities.create_all(engine)
    yield engine
    engine.dispose()
    _databases.drop(url)


@pytest.fixture
def session(stored: Engine) -> Iterator[Session]:
    with Session(stored) as found:
        yield found
    entities.clear(stored)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_an_entity_goes_out_as_json_and_comes_back_the_same(case: Case, session: Session) -> None:
    ids = case.put(session, 6)
    with captured(session.get_bind()) as statements:  # type: ignore[arg-type]
        found = exported(case.store, session, ids[1:5])
    assert len(statements) == 1
    assert list(found) == ids[1:5]
    for i in range(1, 5):
        assert json.loads(found[ids[i]]) | {"heading": f"title {i}", "amount": i, "version": 1} == json.loads(
            found[ids[i]]
        )
        entity = case.store.entity(session, found[ids[i]])
        loaded = case.store.loaded(entity)
        assert (loaded.id, loaded.version, entity.title, entity.amount) == (ids[i], 1, f"title {i}", i)
        assert type(entity) is type(case.make(i))
        # A deferred column is in the JSON, and not in what was loaded.
        assert case.store.changes(case.store.load(session, [ids[i]])[ids[i]], entity).keys() <= {"body"}
    assert exported(case.store, session, []) == {}


def test_what_there_is_not_has_no_json(case: Case, session: Session) -> None:
    ids = case.put(session, 2)
    gone = case.store.loaded(case.make(9)).id
    assert exported(case.store, session, [ids[0], gone, ids[1]]).keys() == set(ids)


def test_it_is_as_this_transaction_has_made_it(case: Case, session: Session) -> None:
    (id_,) = case.put(session, 1)
    loaded = case.store.load(session, [id_])[id_]
    loaded.entity.title = "new"
    change = Change(id_, 1, case.store.changes(loaded, loaded.entity))
    assert case.store.save(session, [change]) == {id_}
    assert json.loads(exported(case.store, session, [id_])[id_])["heading"] == "new"


@pytest.mark.parametrize("document", ["", "[]", "7", "{", "{}", '{"amount": "many"}'])
def test_what_is_no_entity_is_refused(case: Case, session: Session, document: str) -> None:
    with pytest.raises(BadRequest):
        case.store.entity(session, document)


def test_who_is_held_can_be_read_and_not_written(case: Case, session: Session, stored: Engine) -> None:
    ids = case.put(session, 3)
    with Session(stored) as other:
        assert case.store.hold(other, ids[1:]) == dict.fromkeys(ids[1:], 1)
        assert case.store.hold(session, ids) == {ids[0]: 1}
        session.rollback()
        assert case.store.versions(session, ids) == dict.fromkeys(ids, 1)
        session.execute(sa.select(sa.func.set_config("lock_timeout", "50ms", True)))
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
            case.store.hold(session, ids, wait=True)
    session.rollback()
    assert case.store.hold(session, ids, wait=True) == dict.fromkeys(ids, 1)
    assert case.store.hold(session, []) == {}


class Models(DeclarativeBase):
    pass


class Seat(Models):
    """A column that is named as a row is."""

    __tablename__ = "seat"

    id: Mapped[str] = mapped_column(sa.Text, primary_key=True)
    version: Mapped[int] = mapped_column(sa.BigInteger)
    row: Mapped[str]


class Point(Models):
    """A table that is named as a type is; with rows that are always loaded together with it."""

    __tablename__ = "point"

    id: Mapped[str] = mapped_column(sa.Text, primary_key=True)
    version: Mapped[int] = mapped_column(sa.BigInteger)
    row: Mapped[str] = mapped_column(deferred=True)
    day: Mapped[date | None]
    marks: Mapped[list[Mark]] = relationship(lazy="joined")


class Mark(Models):
    __tablename__ = "mark"

    id: Mapped[int] = mapped_column(primary_key=True)
    point_id: Mapped[str] = mapped_column(sa.ForeignKey("point.id"))


class Seller(Models):
    __tablename__ = "seller"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Ware(Models):
    """What is computed of rows of other tables, which have columns of the same names."""

    __tablename__ = "ware"

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(sa.BigInteger)
    name: Mapped[str]
    sold_by: Mapped[int] = mapped_column("seller_id", key="seller")
    seller_name = column_property(sa.select(Seller.name).where(Seller.id == sold_by).scalar_subquery())


Ware.__mapper__.add_property("next_id", column_property(Ware.id + 1))
Ware.__mapper__.add_property(
    "sellers",
    column_property(
        sa.select(sa.func.count(Seller.id)).where(Seller.id <= Ware.sold_by).correlate_except(Seller).scalar_subquery(),
        deferred=True,
    ),
)


def test_what_is_computed_of_other_tables_is_read_there(engine: Engine) -> None:
    # S14
    Models.metadata.create_all(engine)
    store = SqlStore(Ware)
    with Session(engine) as session:
        session.add_all([Seller(id=2, name="bob"), Seller(id=7, name="alice"), Seller(id=8, name="carol")])
        session.add_all([Ware(id=3, version=1, name="chair", sold_by=7), Ware(id=4, version=1, name="desk", sold_by=2)])
        session.commit()
        documents = exported(store, session, ["3", "4"])
        assert json.loads(documents["3"]) == {"id": 3, "version": 1, "name": "chair", "seller_id": 7}
        # The entity's own columns are those of the JSON, whatever the row is now.
        changed = [documents[each].replace("chair", "stool") for each in "34"]
        session.execute(sa.update(Ware).values(sold_by=8))
        for found in ([store.entity(session, each) for each in changed], store.entities(session, changed)):
            assert [(each.name, each.seller_name, each.sellers, each.next_id) for each in found] == [
                ("stool", "alice", 2, 4),
                ("desk", "bob", 1, 5),
            ]


@pytest.mark.parametrize("entity_class", [Seat, Point])
def test_models_of_unlucky_names_and_shapes(engine: Engine, entity_class: Any) -> None:
    Models.metadata.create_all(engine)
    store = SqlStore(entity_class)
    with Session(engine) as session:
        session.add(entity_class(id="1", version=3, row="A"))
        session.commit()
        document = exported(store, session, ["1"])["1"]
        assert json.loads(document)["row"] == "A"
        for entity in (store.entity(session, document), *store.entities(session, [document])):
            assert (entity.id, entity.version, entity.row) == ("1", 3, "A")


def test_what_python_cannot_hold_is_refused(engine: Engine) -> None:
    Models.metadata.create_all(engine)
    document = json.dumps({"id": "1", "version": 1, "row": "A", "day": "20000-01-01"})
    with Session(engine) as session, pytest.raises(BadRequest, match="cannot be made of JSON: year 20000"):
        SqlStore(Point).entities(session, [document])
