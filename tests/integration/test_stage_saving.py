"""What cannot be saved fails the visit of that entity with its error, and no other (S17, S20)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from app.db import engine
from app.errors import ClaimLost, Unavailable
from stages import Patch, Watched
from stages.installing import install
from stages.sql_store import SqlStore
from stages.store import Change
from tests.kit.stages_rows import Offer, Stages, entity, execute, visit, visits, world


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


class Models(DeclarativeBase):
    metadata = sa.MetaData(schema="public")


class Parcel(Watched, Models):
    __tablename__ = "parcel"

    id: Mapped[str] = mapped_column(primary_key=True)
    price: Mapped[int | None]
    #: Of a type that its model does not say, as a reflected column may be.
    place = sa.Column(sa.types.NullType)


def priced(offer: Offer, _state: object) -> Patch:
    return Patch({"price": 660 if offer.id == "b" else 10})


def check(changes: Sequence[Change]) -> None:
    if any(change.values["price"] == 660 for change in changes):
        raise ValueError("660 cannot be encoded")


@pytest.mark.parametrize("together", [True, False])
def test_what_a_store_raises_fails_that_visit_only(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    # S17 S20
    writing, save = SqlStore.writing, SqlStore.save

    def checked_writing(self: SqlStore, changes: Sequence[Change]) -> Any:
        check(changes)
        return writing(self, changes)

    def checked_save(self: SqlStore, session: Session, changes: Sequence[Change], *, wait: bool = False) -> set[str]:
        check(changes)
        return save(self, session, changes, wait=wait)

    monkeypatch.setattr(SqlStore, "writing", checked_writing if together else lambda *_: None)
    monkeypatch.setattr(SqlStore, "save", checked_save)
    stages.stage("publish", does=priced, max_attempts=2)
    stages.asked("a", "b", "c")
    stages.serve("publish")
    assert [entity(each).price for each in "abc"] == [10, None, 10]
    row = visit("b", "publish")
    assert (row.state, row.attempts, row.error) == ("waiting", 1, "ValueError: 660 cannot be encoded")
    assert row.not_before > row.due_at
    assert "in checked_save\n" in row.traceback
    stages.all_due()
    stages.serve("publish")
    assert [(row.entity_id, row.state, row.error) for row in visits()] == [
        ("b", "parked", "ValueError: 660 cannot be encoded")
    ]
    assert execute("SELECT * FROM tidemill.entity_guard") == []


def test_a_column_of_an_unknown_type_fails_who_sets_it(stages: Stages) -> None:
    # S17
    with engine().begin() as connection:
        connection.execute(sa.text("CREATE TABLE parcel (id text PRIMARY KEY, price int, place point, version bigint)"))
        connection.execute(sa.text("ALTER TABLE parcel ALTER version SET NOT NULL, ALTER version SET DEFAULT 1"))
        install(connection, Parcel)
    stages.stage("publish", of=Parcel, does=lambda each, _: Patch({"place" if each.id == "b" else "price": 7}))
    stages.put("a", "b", "c", of=Parcel)
    stages.serve(kind="parcel")
    stages.serve("publish", "parcel")
    assert [entity(each, Parcel).price for each in "abc"] == [7, None, 7]
    row = visit("b", "publish")
    assert (row.state, row.attempts, row.error.partition(":")[0]) == ("waiting", 1, "sqlalchemy.exc.CompileError")
    execute("DROP TABLE parcel")


@pytest.mark.parametrize("error", [Unavailable("away"), ClaimLost("another worker has it now")])
def test_what_no_entity_is_to_blame_for_charges_none(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    # S17
    raised: list[Exception] = [error]
    save = SqlStore.save

    def failing_save(self: SqlStore, *given: Any, **more: Any) -> set[str]:
        if raised:
            raise raised.pop()
        return save(self, *given, **more)

    monkeypatch.setattr(SqlStore, "writing", lambda *_: None)
    monkeypatch.setattr(SqlStore, "save", failing_save)
    stages.stage("publish", does=priced)
    stages.asked("a")
    stages.serve("publish")
    assert [row.attempts for row in visits() if row.error] == []
    assert (entity("a").price == 10) is isinstance(error, Unavailable)
