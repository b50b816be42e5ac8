"""`Watched`: what a model becomes by it, and of what kind its rows are."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

from app.errors import BadRequest
from stages import Kind, Watched, watched
from stages.watched import kind_of, kinds
from tests.kit.stages_memory import MemoryStore, Parcel, nothing_declared, parcels


class Own(DeclarativeBase):
    pass


class Offer(Watched, Own):
    __tablename__ = "offer"
    id: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]


class Order(Own, Watched, mode="optimistic", kind="purchase", max_hops=5):
    __tablename__ = "order"
    __table_args__ = ({"schema": "shop"},)
    id: Mapped[int] = mapped_column(primary_key=True)


class Abstract(Watched, Own, mode="optimistic", max_hops=7, kind="anything"):
    __abstract__ = True
    id: Mapped[int] = mapped_column(primary_key=True)


class Concrete(Abstract):
    __tablename__ = "concrete"


class Animal(Watched, Own):
    __tablename__ = "animal"
    __mapper_args__ = {"polymorphic_on": "species", "polymorphic_identity": "animal"}  # noqa: RUF012
    id: Mapped[int] = mapped_column(primary_key=True)
    species: Mapped[str]


class Dog(Animal):
    __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012


class Vehicle(Watched, Own):
    __tablename__ = "vehicle"
    id: Mapped[int] = mapped_column(primary_key=True)


class Lorry(Vehicle):
    __tablename__ = "lorry"
    id: Mapped[int] = mapped_column(sa.ForeignKey("vehicle.id"), primary_key=True)


class Capital(Watched, Own):
    __tablename__ = "Capital"
    id: Mapped[int] = mapped_column(primary_key=True)


class Plain(Own):
    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True)


class OfData(MappedAsDataclass, DeclarativeBase):
    pass


class Record(Watched, OfData):
    __tablename__ = "record"
    id: Mapped[int] = mapped_column(primary_key=True)


class OtherBase(DeclarativeBase):
    pass


class SecondOffer(Watched, OtherBase):
    __tablename__ = "offer"
    id: Mapped[str] = mapped_column(primary_key=True)


class ThirdBase(DeclarativeBase):
    pass


class OfferAgain(Watched, ThirdBase):
    __qualname__ = Offer.__qualname__
    __tablename__ = "offer"
    id: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture(autouse=True)
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a store makes of a model is not what these tests are about."""
    monkeypatch.setattr(watched, "_store_of", lambda _: MemoryStore(Parcel))
    with nothing_declared():
        yield


def test_a_kind_is_named_after_its_table() -> None:
    found = kind_of(Offer)
    assert (found.name, found.table, found.mode, found.max_hops) == ("offer", "offer", "exclusive", 30)
    assert kind_of(Offer) is found
    assert kinds == {"offer": found}


def test_what_the_class_says() -> None:
    # S12
    found = kind_of(Order)
    assert (found.name, found.table, found.mode, found.max_hops) == ("purchase", 'shop."order"', "optimistic", 5)


def test_an_abstract_class_passes_on_what_it_says_but_its_kind() -> None:
    found = kind_of(Concrete)
    assert (found.name, found.mode, found.max_hops) == ("concrete", "optimistic", 7)


@pytest.mark.parametrize("model", [Offer, Order, Concrete, Record])
def test_the_database_counts_the_versions(model: type[Any]) -> None:
    # S7
    column = model.__table__.c.version
    assert isinstance(column.type, sa.BigInteger)
    assert (column.nullable, column.server_default.arg) == (False, "1")
    assert column.server_onupdate is not None, "the ORM reads it anew after an update"
    assert list(model.__table__.c)[-1] is column


def test_a_model_that_is_a_dataclass_takes_no_version() -> None:
    assert Record(id=3).id == 3


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Abstract, "Abstract has no table of its own: name a class that is mapped to one"),
        (Watched, "Watched has no table of its own"),
        (Dog, "Dog shares the table of Animal: name Animal, and ask each entity what it is"),
        (Lorry, "Lorry is spread over several tables by inheritance, so it has no single version"),
        (Vehicle, "Vehicle is spread over several tables by inheritance"),
        (Capital, "kind='Capital' must be at most 60 small letters, digits and '_'"),
        (Plain, "Plain'> is not watched: write class Offer(Watched, Base) and @stage(Offer), or give a Kind"),
        ("offer", "'offer' is not watched"),
    ],
)
def test_what_cannot_be_a_kind_is_refused(model: Any, said: str) -> None:
    with pytest.raises(BadRequest) as error:
        kind_of(model)
    assert said in str(error.value)
    assert kinds == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "parallel"}, "Bad: mode='parallel' must be one of exclusive, optimistic"),
        ({"kind": "Bad kind"}, "Bad: kind='Bad kind' must be at most 60 small letters"),
        ({"max_hops": 0}, "Bad: max_hops=0 must be a whole number from 1 to 1000"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest) as error:
        types.new_class("Bad", (Watched,), options)
    assert said in str(error.value)


@pytest.mark.parametrize("wrong", [{"name": "Par cel"}, {"mode": "parallel"}, {"max_hops": 0}])
def test_a_kind_of_one_s_own_is_checked_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"table parcel: (kind='Par cel'|mode='parallel'|max_hops=0) must be"):
        replace(parcels(), **wrong)


def test_the_base_of_one_table_is_the_kind_of_all_in_it() -> None:
    assert kind_of(Animal).table == "animal"


def test_two_classes_cannot_be_one_kind() -> None:
    kind_of(Offer)
    with pytest.raises(BadRequest) as error:
        kind_of(SecondOffer)
    assert f"{__name__}.SecondOffer and {__name__}.Offer are both of the kind offer: give one" in str(error.value)


def test_a_class_that_is_imported_anew_takes_its_own_place() -> None:
    before = kind_of(Offer)
    now = kind_of(OfferAgain)
    assert now is not before
    assert kinds == {"offer": now}


def test_a_kind_with_a_store_of_its_own() -> None:
    # S20
    own = parcels()
    assert kind_of(own) is own
    assert kinds == {"parcel": own}
    again = parcels(mode="optimistic")
    assert kind_of(again) is again, "of a module that was imported anew"
    assert kinds == {"parcel": again}


def test_it_takes_no_name_of_another() -> None:
    kind_of(Offer)
    with pytest.raises(BadRequest, match="the tables offer and shelf are both of the kind offer"):
        kind_of(Kind("offer", MemoryStore(Parcel), "shelf"))
    kind_of(parcels())
    with pytest.raises(BadRequest, match="the tables parcel and shelf are both of the kind parcel"):
        kind_of(Kind("parcel", MemoryStore(Parcel), "shelf"))
