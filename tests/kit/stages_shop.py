"""A shop of watched rows for walks and lanes, in this process: stages declared by a test, tickets served by no Celery.

`with shop() as found:` makes the tables `item` (exclusive, ids are text) and `coupon` (optimistic, ids are numbers).
`found.stage("price", wants=…, does=…)` declares; `found.asked` and `found.made` say what was called for which entity.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa
from sqlalchemy.engine import Row
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app import limits
from app.alarm import alarm
from app.db import engine, transaction
from recovery import visits as lost_visits
from stages import Untouched, Watched, resweep, sync, walking
from stages.definition import RESWEEP, SYSTEM, Definition, queue_of
from stages.installing import install
from stages.model import GUARD, PART, VISIT, PartState, Resweep
from stages.resweep import Progress
from stages.serving import LOW, VisitServer
from stages.watched import kind_of
from tests.kit import stages_memory

LEASE = timedelta(minutes=1)
PAST = timedelta(seconds=1)


class Models(DeclarativeBase):
    metadata = sa.MetaData(schema="public")


class Colour(enum.Enum):
    RED = "red"


class Item(Watched, Models):
    __tablename__ = "item"

    id: Mapped[str] = mapped_column(sa.Text, primary_key=True)
    price: Mapped[int] = mapped_column(server_default="1")
    #: Anything can be written into it; what is no colour cannot be read.
    colour: Mapped[Colour | None] = mapped_column(
        sa.Enum(Colour, native_enum=False, length=10, values_callable=lambda words: [each.value for each in words])
    )


class Coupon(Watched, Models, mode="optimistic"):
    __tablename__ = "coupon"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@dataclass
class Calls:
    """In the place of Celery's side: which queues the worker takes tickets of."""

    queues: Callable[[str], bool] = lambda _: False

    def consumes(self, queue: str) -> bool:
        return self.queues(queue)


@dataclass
class Shop:
    calls: Calls = field(default_factory=Calls)
    #: Stage and entity of each `should_process`, and of each `process`, in order.
    asked: list[tuple[str, Any]] = field(default_factory=list)
    made: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.one = self.server()

    def stage(
        self, name: str = "price", *, wants: Any = True, does: Any = None, of: type = Item, **options: Any
    ) -> Definition:
        def should_process(entity: Any, state: Any) -> Any:
            self.asked.append((name, entity.id))
            return wants(entity, state) if callable(wants) else wants

        def process(entity: Any, state: Any) -> Any:
            self.made.append((name, entity.id))
            return does(entity, state) if callable(does) else does or Untouched()

        return stages_memory.declare(kind_of(of), name, wants=should_process, does=process, **options)

    def put(self, *ids: Any, of: type = Item) -> None:
        """About which every stage was asked already, and which are in no queue."""
        with transaction() as session:
            session.execute(sa.insert(of), [{"id": each} for each in ids])
            session.execute(sa.delete(VISIT).where(VISIT.c.stage == SYSTEM))

    def server(self, worker: str = "w/1", stopping: Callable[[], bool] = lambda: False) -> VisitServer:
        return VisitServer(self.calls, worker, LEASE, stopping)

    def serve(self, stage: str = "price", take: int = 100, *, low: bool = False) -> tuple[int, bool]:
        """A ticket, by a process that has served others before."""
        return self.one.serve(queue_of("item", stage) + (LOW if low else ""), take)

    def walk(self, kind: str = "item", server: VisitServer | None = None) -> int:
        """Tickets until a walk has nothing that is ready; how many entities were asked about."""
        asked = 0
        while (made := (server or self.server()).serve(queue_of(kind, RESWEEP), 1))[1]:
            asked += made[0]
        return asked + made[0]

    def page(self) -> int:
        """One page of one part."""
        with patch.object(walking, "TICKET_SECONDS", -1.0):
            return self.server().serve(queue_of("item", RESWEEP), 1)[0]

    def asked_of(self, stage: str = "price") -> list[Any]:
        return [entity for name, entity in self.asked if name == stage]

    def made_of(self, stage: str = "price") -> list[Any]:
        return [entity for name, entity in self.made if name == stage]

    def sweep(self) -> lost_visits.Report:
        """After the lease of whatever runs is over, on a server that has been up for long."""
        over = sa.func.now() - PAST
        with transaction() as session:
            for table in (VISIT, PART):
                session.execute(sa.update(table).where(table.c.state == "running").values(recovery_time=over))
            session.execute(sa.update(GUARD).values(until=over))
        with patch.object(lost_visits, "settings", lambda: type("S", (), {"lease": timedelta(0)})):
            return lost_visits.run_once()

    def no_pause(self) -> None:
        """As if the time after a failure were over."""
        with transaction() as session:
            for table in (VISIT, PART):
                session.execute(sa.update(table).where(table.c.state == "waiting").values(not_before=None))

    def all_due(self) -> None:
        """As if every turn had come that the rate of a walk has given."""
        self.no_pause()
        with transaction() as session:
            waiting = (PART.c.state == PartState.WAITING, PART.c.due_at > sa.func.now())
            session.execute(sa.update(PART).where(*waiting).values(due_at=sa.func.now() - PAST))


@contextmanager
def shop() -> Iterator[Shop]:
    with stages_memory.nothing_declared(), patch.object(alarm, "_installed", new=False):
        with engine().begin() as connection:
            Models.metadata.create_all(connection)
            install(connection, Item, Coupon)
        found = Shop()
        yield found
        with engine().begin() as connection:
            Models.metadata.drop_all(connection)


@contextmanager
def ringing() -> Iterator[None]:
    """Time limits hold; afterwards, the signal and its timer are pytest's again."""
    handler, timer = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 0)
    alarm.install()
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def names(count: int) -> list[str]:
    return [f"i{number:04}" for number in range(count)]


def execute(statement: Any, **values: Any) -> Sequence[Row[Any]]:
    """In a transaction of its own; text, or what SQLAlchemy makes."""
    with transaction() as session:
        result: Any = session.execute(sa.text(statement) if isinstance(statement, str) else statement, values)
        return result.all() if getattr(result, "returns_rows", True) else []


def visits(stage: str = "price") -> dict[str, Row[Any]]:
    """By entity."""
    rows = execute(sa.select(VISIT).where(VISIT.c.stage == stage).order_by(VISIT.c.entity_id))
    return {row.entity_id: row for row in rows}


def parts() -> list[Row[Any]]:
    return list(execute(sa.select(PART).order_by(PART.c.resweep_id, PART.c.part)))


def only() -> Progress:
    """Of the only walk there is."""
    (found,) = resweep.overview()
    return found


def walk_row(walk: int) -> Row[Any]:
    (row,) = execute(sa.select(*Resweep.__table__.c).where(Resweep.id == walk))
    return row


def declare() -> None:
    """As a worker does when it starts."""
    sync.synchronize()


def limit(stage: str = "price", **values: Any) -> None:
    with transaction() as session:
        limits.configure(session, queue_of("item", stage), **values)
