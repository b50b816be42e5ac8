"""The two tables that claims are tested on, behind one face: jobs, and things like stage visits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import claims
from app.claims import Claim, Claimable, Cursor, Key, Lane
from app.db import transaction
from app.jobs.model import Job
from tests.kit import visit

QUEUE = "check"
LEASE = timedelta(minutes=1)


@dataclass(frozen=True)
class Table:
    model: type[Claimable]

    @property
    def name(self) -> str:
        return str(self.model.__table__.name)  # type: ignore[attr-defined]

    def key(self, number: int, queue: str = QUEUE) -> Key:
        return (number,) if self.model is Job else visit.entity(number, queue)

    def put(self, session: Session, number: int, age: float = 0.0, queue: str = QUEUE, **columns: Any) -> Key:
        """A waiting row, due since `age` seconds."""
        columns.setdefault("due_at", sa.func.now() - timedelta(seconds=age))
        if self.model is Job:
            own: dict[str, Any] = {"id": number, "task": "tests.kit.tasks.noop"}
        else:
            own = visit.entity(number, queue)._asdict()
        session.execute(sa.insert(self.model).values(queue=queue, **own, **columns))
        session.commit()
        return self.key(number, queue)

    def take(self, want: int = 1, cursor: Cursor | None = None, lease: timedelta = LEASE, **where: Any) -> Claim:
        """From the head of the queue, unless a cursor is given."""
        return claims.take(cursor or self.cursor(**where), want, worker="w/1", lease=lease)

    def cursor(self, queue: str = QUEUE, lane: Lane = Lane.MAIN) -> Cursor:
        return Cursor(self.model, queue, lane)

    def taken(self, claim: Claim) -> list[Key]:
        """The keys of a claim, in the order in which they are worked off."""
        return [claims.key_of(self.model, row) for row in claim.rows]

    def row(self, session: Session, key: Key) -> Any:
        """As it is now; None if it is gone."""
        session.rollback()
        columns = self.model.__table__.c  # type: ignore[attr-defined]
        found = session.execute(sa.select(columns).where(claims.among(self.model, [key])))
        return found.one_or_none()

    def state(self, session: Session, key: Key) -> str | None:
        row = self.row(session, key)
        return None if row is None else str(row.state)

    def sweep(self, limit: int = 100) -> dict[Key, str]:
        """One pass of a sweep, as if the server had always run."""
        with transaction() as session:
            rows = claims.overdue(session, self.model, limit, timedelta(0))
            return claims.time_out(session, self.model, rows)
