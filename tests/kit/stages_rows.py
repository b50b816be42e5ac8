"""Stages of entities that are rows, in this process: declared by a test, visited without Celery.

`with world() as stages:` makes the tables `offer` (exclusive) and `lot` (optimistic), watches them, and declares
nothing. `stages.stage("publish", wants=True, does=…)` declares; `stages.serve("publish")` is a worker with a ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Row
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app import limits
from app.alarm import alarm
from app.db import engine, transaction
from app.shares import Shards
from recovery import visits as lost_visits
from stages import Untouched, Watched, ending, registration, sync
from stages.definition import SYSTEM, Definition, queue_of
from stages.installing import install
from stages.kind import Kind
from stages.model import GUARD, STATE, VISIT
from stages.serving import LOW, QUICK_SECONDS, Served, VisitServer
from stages.watched import kind_of
from tests.kit import stages_memory

LEASE = timedelta(minutes=1)


class Models(DeclarativeBase):
    metadata = sa.MetaData(schema="public")


class Priced(Watched):
    """What most tests process."""

    id: Mapped[str] = mapped_column(sa.Text, primary_key=True)
    price: Mapped[int | None]
    status: Mapped[str] = mapped_column(sa.Text, server_default="new", default="new")
    note: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)


class Offer(Priced, Models):
    __tablename__ = "offer"
    __table_args__ = (sa.CheckConstraint("price >= 0", name="price_positive"),)


class Lot(Priced, Models, mode="optimistic"):
    __tablename__ = "lot"


@dataclass
class Calls:
    """In the place of Celery's side."""

    #: Whether tickets for other stages come to this worker, so that it makes their visits at once.
    all: bool = False

    def consumes(self, _queue: str) -> bool:
        return self.all


class Measured(VisitServer):
    """Its first batch is a full one: as if it had measured how quick visits are."""

    def _place(self, kind: str, stage: str, queue: str, shards: Shards | None) -> Served | None:
        found = super()._place(kind, stage, queue, shards)
        if found is not None and found.pace.seconds is None:
            found.pace.seconds = QUICK_SECONDS / 100
        return found


@dataclass
class Stages:
    calls: Calls = field(default_factory=Calls)
    #: Of `process`, in order: stage and entity.
    made: list[tuple[str, str]] = field(default_factory=list)

    def stage(
        self, name: str, *, wants: Any = True, does: Any = None, of: type | Kind = Offer, **options: Any
    ) -> Definition:
        """Declared; its `process` notes what it was called for."""

        def process(entity: Any, state: Any) -> Any:
            self.made.append((name, entity.id))
            if does is None:
                return Untouched()
            return does(entity, state) if callable(does) else does

        return stages_memory.declare(kind_of(of), name, wants=wants, does=process, **options)

    def undeclare(self, name: str, kind: str = "offer") -> None:
        del registration.declared[kind, name]

    def sync(self) -> sync.Synced:
        return sync.synchronize()

    def put(self, *ids: str, of: type = Offer, **values: Any) -> None:
        with transaction() as session:
            session.add_all([of(id=each, **values) for each in ids])

    def server(
        self, worker: str = "w/1", lease: timedelta = LEASE, stopping: Callable[[], bool] = lambda: False
    ) -> VisitServer:
        return Measured(self.calls, worker, lease, stopping)

    def serve(self, stage: str = SYSTEM, kind: str = "offer", take: int = 100, *, low: bool = False) -> int:
        """As a worker with a ticket; how many visits."""
        queue = queue_of(kind, stage) + (LOW if low else "")
        return self.server().serve(queue, take)[0]

    def asked(self, *ids: str, of: type = Offer, **values: Any) -> None:
        """Entities that are new, and about which every stage was asked."""
        self.put(*ids, of=of, **values)
        self.serve(kind=kind_of(of).name)

    def forget(self) -> None:
        """Nothing waits any more."""
        with transaction() as session:
            session.execute(sa.delete(VISIT))

    def made_by(self, stage: str) -> list[str]:
        return [entity for name, entity in self.made if name == stage]

    def all_due(self) -> None:
        """As if the time had come of all timers, and that after failures."""
        with transaction() as session:
            session.execute(sa.update(VISIT).where(VISIT.c.state == "waiting").values(not_before=None))
            later = VISIT.c.due_at > sa.func.now()
            session.execute(sa.update(VISIT).where(later).values(due_at=sa.func.now() - timedelta(seconds=1)))

    def sweep(self) -> lost_visits.Report:
        """After the lease of whatever runs is over, on a server that has been up for long."""
        over = sa.func.now() - timedelta(seconds=1)
        with transaction() as session:
            session.execute(sa.update(VISIT).where(VISIT.c.state == "running").values(recovery_time=over))
            session.execute(sa.update(GUARD).values(until=over))
        with patch.object(lost_visits, "settings", lambda: type("S", (), {"lease": timedelta(0)})):
            return lost_visits.run_once()


@contextmanager
def world() -> Iterator[Stages]:
    # The limit of each test takes the signal for itself when the test begins.
    alarm._installed = False
    alarm.install()
    with stages_memory.nothing_declared(), patch.object(ending, "BACKOFF", ending.BACKOFF_MOST):
        # What failed is due when the test says so, however slow the machine.
        with engine().begin() as connection:
            Models.metadata.create_all(connection)
            install(connection, Offer, Lot)
        stages = Stages()
        yield stages
        with engine().begin() as connection:
            Models.metadata.drop_all(connection)
        alarm._installed = False


def execute(statement: Any, **values: Any) -> Sequence[Row[Any]]:
    """In a transaction of its own; text, or what SQLAlchemy makes."""
    with transaction() as session:
        result: Any = session.execute(sa.text(statement) if isinstance(statement, str) else statement, values)
        return result.all() if getattr(result, "returns_rows", True) else []


def visits(stage: str | None = None) -> list[Row[Any]]:
    query = sa.select(VISIT).order_by(VISIT.c.kind, VISIT.c.entity_id, VISIT.c.stage)
    return list(execute(query if stage is None else query.where(VISIT.c.stage == stage)))


def visit(entity_id: str = "a", stage: str = SYSTEM) -> Row[Any]:
    (found,) = [row for row in visits(stage) if row.entity_id == entity_id]
    return found


def waiting() -> list[tuple[str, str]]:
    """Entity and stage of all that is in a queue."""
    return [(row.entity_id, row.stage) for row in visits()]


def entity(entity_id: str = "a", of: type = Offer) -> Any:
    with transaction() as session:
        found = session.get(of, entity_id)
        session.expunge_all()
        return found


def number(entity_id: str = "a", stage: str = "publish") -> int | None:
    """The state, which in these tests is a number."""
    rows = execute(sa.select(STATE.c.value).where(STATE.c.entity_id == entity_id, STATE.c.stage == stage))
    return Int64Value.FromString(bytes(rows[0].value)).value if rows else None


def limit(stage: str, **values: Any) -> None:
    with transaction() as session:
        limits.configure(session, queue_of("offer", stage), **values)
