"""The store of SQLAlchemy models: values of every type, what counts as a change, and what a model may be like (S20)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DataError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.orm.exc import DetachedInstanceError

from app.db import new_engine
from app.errors import BadOutcome, BadRequest
from stages import Change, Loaded, Watched
from stages.sql_arrays import array
from stages.sql_store import SqlStore
from tests.kit import entities, strategies
from tests.kit.database import Databases
from tests.kit.entities import CASES, Animal, Cat, Dog, Offer, Status
from tests.kit.plans import captured

STORE = CASES["text"].store
ANIMALS = CASES["inheritance"].store
ODD = 'it\'s "quoted", {NULL} \\ %s é\n'
EAST = timezone(timedelta(hours=5, minutes=30))

VALUES: dict[str, list[Any]] = {
    "title": [ODD, "", "NULL", "null", "\\N", "{}", "é" * 1000],
    "amount": [2**30 - 1, -(2**30)],
    "short": [None, "", ODD[:5]],
    "small": [None, -(2**15)],
    "price": [None, Decimal("9999999999.99"), Decimal("1E+3"), Decimal("-0.01"), 7],
    "weight": [None, Decimal("1.5")],
    "ratio": [None, 1e300, float("inf"), -0.5, 3],
    "active": [None, True, False],
    "published_at": [None, datetime(2024, 2, 29, 23, 59, 59, 999999, EAST), datetime(1, 1, 1, tzinfo=UTC)],
    "day": [None, date(2024, 2, 29), date(1, 1, 1)],
    "hour": [None, time(23, 59, 59, 999999)],
    "span": [None, timedelta(days=-3, hours=5, microseconds=7), timedelta(days=400)],
    "token": [None, uuid.UUID(int=7)],
    "picture": [None, b"", bytes(range(256)), bytearray(b"\\x")],
    "status": [None, Status.SOLD],
    "plain": [None, Status.SOLD],
    "note": [None, {}, [], "text", 1, {"a": [1, None, {"b": ODD}], "c": 1.5, "d": True}],
    "meta": [None, {}, [[]], "text", 1, {"a": [1, None, {"b": ODD}], "c": 1.5, "d": True}],
    "tags": [None, [], ["a", None, "", "NULL", ODD, "{a,b}"]],
    "codes": [None, ["a", "12345"]],
    "grid": [None, [[1, None], [-3, 4]], []],
    "statuses": [None, [Status.NEW, Status.SOLD]],
    "pickled": [None, {"a": (1, {2})}],
    "address": [None, "10.0.0.1", "::1/64"],
    "text": [None, ODD],
}


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


def offers(session: Session, *entities: dict[str, Any]) -> list[str]:
    made = [Offer(**{"id": f"o{i}", "title": "title", "amount": i, **each}) for i, each in enumerate(entities)]
    session.add_all(made)
    session.commit()
    session.expunge_all()
    return [f"o{i}" for i in range(len(made))]


def offer(session: Session, **values: Any) -> Loaded:
    (id_,) = offers(session, values)
    return STORE.load(session, [id_])[id_]


def saved(session: Session, *loaded: Loaded) -> None:
    changes = [Change(each.id, each.version, STORE.changes(each, each.entity)) for each in loaded]
    assert STORE.save(session, changes) == {each.id for each in loaded}
    session.commit()


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_saved_as_the_orm_saves_them(session: Session, name: str) -> None:
    values = VALUES[name]
    ids = offers(session, *({} for _ in values), {})
    found = STORE.load(session, ids)
    for id_, value in zip(ids, values, strict=False):
        setattr(found[id_].entity, name, value)
    # With another column of another entity, so that the statement is one for entities with different changes.
    setattr(found[ids[-1]].entity, *("amount", 9) if name == "title" else ("title", "other"))
    saved(session, *found.values())
    column = getattr(Offer, name)
    rows = session.execute(sa.select(column).where(Offer.id.in_(ids[:-1])).order_by(Offer.id)).scalars().all()
    session.add_all(Offer(**{"id": f"p{i}", "title": "", "amount": i, name: each}) for i, each in enumerate(values))
    session.commit()
    by_orm = session.execute(sa.select(column).where(Offer.id.startswith("p")).order_by(Offer.id)).scalars().all()
    assert rows == by_orm


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.none() | strategies.text.filter(lambda text: "\0" not in text), max_size=5))
def test_the_server_reads_an_array_as_it_was_written(session: Session, texts: list[str | None]) -> None:
    written = sa.cast(sa.bindparam("p_texts", type_=sa.Text), postgresql.ARRAY(sa.Text))
    assert session.execute(sa.select(written), {"p_texts": array(texts)}).scalar_one() == texts


def test_too_long_text_is_refused_not_cut(session: Session) -> None:
    for name, value in (("short", "123456"), ("codes", ["123456"])):
        loaded = offer(session)
        setattr(loaded.entity, name, value)
        with pytest.raises(DataError, match="too long"):
            saved(session, loaded)
        session.rollback()
        session.execute(sa.delete(Offer))


def test_what_changes_in_place_is_seen(session: Session) -> None:
    loaded = offer(session, note={"a": [1]}, meta={"a": {"b": 1}}, tags=["x"], grid=[[1]], pickled={"k": [1]})
    entity = loaded.entity
    assert STORE.changes(loaded, entity) == {}
    entity.note["a"].append(2)
    entity.meta["a"]["b"] = 2
    entity.tags += ["y"]
    entity.grid[0][0] = 2
    entity.pickled["k"] = []
    expected = {"note": {"a": [1, 2]}, "meta": {"a": {"b": 2}}, "tags": ["x", "y"], "grid": [[2]], "pickled": {"k": []}}
    assert STORE.changes(loaded, entity) == expected
    assert STORE.read(loaded, ["meta", "tags"]) == {"meta": {"a": {"b": 1}}, "tags": ["x"]}
    saved(session, loaded)
    (row,) = session.execute(sa.select(*(getattr(Offer, name) for name in expected)))
    assert row._asdict() == expected


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"a": [1, 2]}, {"a": (1, 2)}, False),
        ({"1": "a"}, {1: "a"}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, True),
        ([True], [1], True),
        ({"a": None}, {}, True),
        ({"a": None}, {"b": None}, True),
        ([1, 2], [1], True),
        (None, {}, True),
        ({}, None, True),
    ],
)
def test_json_has_changed_if_the_database_would_see_it(session: Session, old: Any, new: Any, changed: bool) -> None:  # noqa: FBT001
    loaded = offer(session, note=old)
    loaded.entity.note = new
    assert STORE.changes(loaded, loaded.entity) == ({"note": new} if changed else {})


def test_what_cannot_be_stored_is_refused(session: Session) -> None:
    for name, value, words in (
        ("note", {"a": object()}, "not JSON serializable"),
        ("note", object(), "not JSON serializable"),
        ("status", 5, "not among the defined enum values"),
        ("title", "nul\0", "NUL"),
        ("title", "half \ud800", "surrogates not allowed"),
        ("tags", ["nul\0"], "NUL"),
        ("amount", Offer.amount + 1, "SQL expression"),
        ("amount", Offer.amount, "SQL expression"),
        ("double", 5, "computed by the database"),
    ):
        loaded = offer(session)
        with pytest.raises(BadOutcome, match=rf"Offer o0: {name} .*{words}"):
            STORE.patched(loaded, {name: value})
        session.execute(sa.delete(Offer))


def test_a_deleted_attribute_is_null(session: Session) -> None:
    loaded = offer(session, price=Decimal(1))
    del loaded.entity.price
    assert STORE.changes(loaded, loaded.entity) == {"price": None}


def test_another_object_of_the_same_entity_is_compared_too(session: Session) -> None:
    loaded = offer(session, price=Decimal(1))
    made = Offer(id="o0", version=1, title="new")
    assert STORE.changes(loaded, made) == {"heading": "new"}
    with pytest.raises(BadOutcome, match=r"Offer o0: version was 1 and is None now"):
        STORE.changes(loaded, Offer(id="o0", title="new"))


def test_a_deferred_column_is_not_loaded_and_can_be_set(session: Session) -> None:
    loaded = offer(session, text="long")
    with pytest.raises(DetachedInstanceError):
        _ = loaded.entity.text
    with pytest.raises(BadOutcome, match="'text' is deferred"):
        STORE.read(loaded, ["text"])
    loaded.entity.text = None
    assert STORE.changes(loaded, loaded.entity) == {"body": None}
    assert STORE.patched(loaded, {"text": "longer"}) == {"body": "longer"}
    saved(session, loaded)
    assert session.execute(sa.select(Offer.text)).scalar_one() == "longer"


def test_rows_of_all_classes_in_a_table_are_loaded_whole(session: Session) -> None:
    session.add_all(
        [
            Animal(id=1, title="a", amount=1),
            Cat(id=2, title="b", amount=1, lives=9),
            Dog(id=3, title="c", amount=1, tricks=["sit"]),
        ]
    )
    session.commit()
    found = ANIMALS.load(session, ["1", "2", "3"])
    assert [type(found[each].entity) for each in "123"] == [Animal, Cat, Dog]
    found["2"].entity.lives -= 1
    found["3"].entity.tricks.append("roll")
    found["1"].entity.title = "d"
    changes = [Change(each.id, 1, ANIMALS.changes(each, each.entity)) for each in found.values()]
    assert [change.values for change in changes] == [{"heading": "d"}, {"lives": 8}, {"tricks": ["sit", "roll"]}]
    assert ANIMALS.save(session, changes) == {"1", "2", "3"}
    now = ANIMALS.load(session, ["2", "3"])
    assert (now["2"].entity.lives, now["3"].entity.tricks) == (8, ["sit", "roll"])
    assert ANIMALS.fields(["lives", "tricks"]) == {"lives", "tricks"}
    with pytest.raises(BadOutcome, match="Animal 2: 'tricks' cannot be used here"):
        ANIMALS.patched(found["2"], {"tricks": []})


def test_what_the_session_holds_is_left_alone_and_seen(session: Session) -> None:
    offers(session, {}, {})
    own = session.get_one(Offer, "o0")
    own.title = "pending"
    loaded = STORE.load(session, ["o0"])["o0"]
    assert loaded.entity is not own
    assert loaded.entity.title == "pending"
    assert own in session
    session.commit()
    assert own.title == "pending"


def test_loading_leaves_the_transaction_as_it_is(session: Session) -> None:
    ids = offers(session, {})
    session.execute(sa.update(Offer).values(title="within"))
    with session.begin_nested():
        session.connection()
        with captured(session.get_bind()) as statements:  # type: ignore[arg-type]
            assert STORE.load(session, ids)["o0"].entity.title == "within"
        assert len(statements) == 1
    session.rollback()
    assert STORE.load(session, ids)["o0"].entity.title == "title"


class Models(DeclarativeBase):
    metadata = sa.MetaData(schema="public")


class House(Watched, Models):
    """With related rows that are loaded at once, and columns that every update sets."""

    __tablename__ = "house"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    number: Mapped[int | None] = mapped_column(unique=True)
    counted: Mapped[int] = mapped_column(server_default="0", onupdate=sa.text("counted + 1"))
    marked: Mapped[str | None] = mapped_column(onupdate="by hand")
    touched: Mapped[datetime | None] = mapped_column(
        sa.DateTime(timezone=True), onupdate=lambda: datetime(2024, 1, 1, tzinfo=UTC)
    )
    rooms: Mapped[list[Room]] = relationship(lazy="joined")
    doors: Mapped[list[Room]] = relationship(lazy="selectin", viewonly=True)


class Room(Models):
    __tablename__ = "room"

    id: Mapped[int] = mapped_column(primary_key=True)
    house_id: Mapped[int] = mapped_column(sa.ForeignKey(House.id))


@pytest.fixture
def houses(session: Session) -> Iterator[SqlStore]:
    Models.metadata.create_all(session.connection())
    session.add_all(House(id=i, rooms=[Room(id=i * 2), Room(id=i * 2 + 1)]) for i in range(1, 4))
    session.commit()
    session.expunge_all()
    yield SqlStore(House)
    session.rollback()
    Models.metadata.drop_all(session.connection())
    session.commit()


def test_related_rows_are_not_loaded(session: Session, houses: SqlStore) -> None:
    with captured(session.get_bind()) as statements:  # type: ignore[arg-type]
        found = houses.load(session, ["1", "2", "3"])
    assert len(statements) == 1
    assert len(found) == 3
    with pytest.raises(DetachedInstanceError):
        _ = found["1"].entity.rooms
    assert [each.id for each in houses.page(session, None, None, 2)] == ["1", "2"]


def test_a_row_that_somebody_refers_to_is_saved(session: Session, houses: SqlStore, stored: Engine) -> None:
    with Session(stored) as other:
        other.add(Room(id=9, house_id=1))
        other.flush()
        assert houses.save(session, [Change("1", 1, {"name": "a"})]) == {"1"}
        session.rollback()
        # What it may refer to by its value: the update would wait.
        assert houses.save(session, [Change("1", 1, {"number": 5})]) == set()


@pytest.mark.parametrize("one_by_one", [True, False])
def test_columns_that_every_update_sets_are_set(session: Session, houses: SqlStore, one_by_one: bool) -> None:  # noqa: FBT001
    never = datetime(1999, 1, 1, tzinfo=UTC)
    changes = [
        Change("1", 1, {"name": "a"}),
        Change("2", 1, {"name": "b", "touched": never, "marked": "other", "counted": 7}),
        Change("3", 1, {}),
    ]
    for batch in [[each] for each in changes] if one_by_one else [changes]:
        assert houses.save(session, batch) == {each.id for each in batch}
    columns = (House.name, House.counted, House.marked, House.touched, House.version)
    made = datetime(2024, 1, 1, tzinfo=UTC)
    assert session.execute(sa.select(*columns).order_by(House.id)).all() == [
        ("a", 1, "by hand", made, 2),
        ("b", 7, "other", never, 2),
        (None, 1, "by hand", made, 2),
    ]


def test_what_only_the_driver_can_send_is_saved_row_by_row(session: Session) -> None:
    ids = offers(session, {}, {}, {})
    changes = [Change(each, 1, {"address": f"10.0.0.{i}", "heading": each}) for i, each in enumerate(ids)]
    with captured(session.get_bind()) as statements:  # type: ignore[arg-type]
        assert STORE.save(session, [*changes[:2], Change(ids[2], 9, {"address": None})]) == set(ids[:2])
    assert len(statements) == 3
    rows = session.execute(sa.select(Offer.address, Offer.title, Offer.version).order_by(Offer.id)).all()
    assert rows == [("10.0.0.0", "o0", 2), ("10.0.0.1", "o1", 2), (None, "title", 1)]
    saving = sa.select(sa.func.current_setting("tidemill.saving"))
    assert session.execute(saving).scalar_one() == '["address", "heading"]'


def test_models_that_cannot_be_stored_are_refused() -> None:
    class Own(DeclarativeBase):
        pass

    class Unversioned(Own):
        __tablename__ = "unversioned"
        id: Mapped[int] = mapped_column(primary_key=True)

    class Padded(Watched, Own):
        __tablename__ = "padded"
        id: Mapped[str] = mapped_column(sa.CHAR(5), primary_key=True)

    class Dated(Watched, Own):
        __tablename__ = "dated"
        id: Mapped[date] = mapped_column(primary_key=True)

    class Base(Watched, Own):
        __tablename__ = "base"
        id: Mapped[int] = mapped_column(primary_key=True)

    class Joined(Base):
        __tablename__ = "joined"
        base_id: Mapped[int] = mapped_column(sa.ForeignKey(Base.id), primary_key=True)

    for refused, words in (
        (Unversioned, "no column 'version'"),
        (Padded, r"Padded.id: CHAR\(length=5\) cannot be part of a primary key"),
        (Dated, r"Dated.id: .* cannot be part of a primary key"),
        (Base, "Joined spreads over several tables"),
        (Joined, "Joined spreads over several tables"),
        (int, "not a mapped class"),
    ):
        with pytest.raises(BadRequest, match=words):
            SqlStore(refused)


def test_a_field_that_there_is_not_cannot_be_saved(session: Session) -> None:
    with pytest.raises(BadRequest, match="Offer has no column 'title'"):
        STORE.save(session, [Change("o0", 1, {"title": "attribute, not field"})])
