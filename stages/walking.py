"""Walking over all entities of a kind: what a worker child does with a ticket for `stage.<kind>.resweep` (S16).

Claim a part of a walk, ask about page after page of its entities, and claim the next part, for the time of a ticket.

- What is wanted enters the low lanes in the transaction that moves the cursor: a crash repeats a page at most.
- One page is in memory, and takes a tenth of a second or so. A worker that is needed in a main lane of the kind walks
  one page a ticket.
- Nobody knows which entity of a page has killed a worker, so the next one asks about them one by one. One that has
  killed several goes to its stages unasked (S4): if it is to blame, its visit is parked (S17).
- If the database refuses to read entities, the part waits, and says why.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.engine import Row
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import claims, doorbell
from app.alarm import ClaimIsLost, HandBack, alarm
from app.arrays import Array
from app.claims import Claim, Cursor, Lane
from app.claims import keeper as keeping
from app.claims.keeper import Holding
from app.claims.saving import save
from app.db import autocommit, transaction
from app.errors import ClaimLost, DatabaseError
from app.jobs.endings import storable
from app.jobs.run import Pace
from stages import lanes
from stages.asker import Asker
from stages.definition import RESWEEP, SYSTEM, Definition, queue_of
from stages.ending import ERROR_MOST
from stages.kind import Kind
from stages.model import PART, PartState, Resweep, ResweepPart, ResweepState
from stages.pages import Page, Range, Reader, told
from stages.registration import asked_of, declared, of_kind
from stages.resweep import PAGE, page_of
from stages.watched import kinds

log = logging.getLogger(__name__)

TICKET_SECONDS = 5.0
#: A page is what a visit of the main lane may have to wait for.
PAGE_SECONDS = 0.1
#: So many workers may die at one entity.
DEATHS = 3
#: A part waits so long if its entities cannot be read; if another worker is to walk it; if somebody was in its way.
BROKEN, STRANGE, BLOCKED = timedelta(seconds=30), timedelta(seconds=2), timedelta(seconds=1)
AT_ONCE = timedelta(0)
TEXTS, MOMENTS = Array(sa.Text), Array(TIMESTAMP(timezone=True))


class Calls(Protocol):
    def consumes(self, queue: str) -> bool: ...


class Server(Protocol):
    @property
    def calls(self) -> Calls: ...
    @property
    def worker(self) -> str: ...
    @property
    def lease(self) -> timedelta: ...
    @property
    def stopping(self) -> Callable[[], bool]: ...
    @property
    def paces(self) -> dict[str, Pace]: ...


def serve(server: Server, kind: str) -> tuple[int, bool]:
    """For the time of one ticket; how many entities it asked about, and whether there may be more."""
    of = kinds.get(kind)
    if of is None:
        log.error("no kind %r is declared here: its walks wait for a worker that knows it", kind)
        return 0, False
    cursor = Cursor(ResweepPart, queue_of(kind, RESWEEP))
    end = time.monotonic() + TICKET_SECONDS
    asked, more = 0, False
    offered: Counter[str] = Counter()
    while not server.stopping():
        claim = claims.take(cursor, 1, worker=server.worker, lease=server.lease)
        more = bool(claim.rows)
        if not more:
            break
        walk = Walk(server, of, claim, server.paces.setdefault(kind, Pace()))
        walk.work(end)
        asked += walk.asked
        offered += walk.offered
        if walk.needed or time.monotonic() > end:
            # Whoever is needed elsewhere comes back when dispatch rings.
            more = not walk.needed
            break
    for stage in offered:
        if (definition := declared.get((kind, stage))) is not None:
            doorbell.ring(f"{definition.queue}.{Lane.LOW}", definition.task, Lane.LOW)
    return asked, more


class Walk:
    """One claim of a part."""

    def __init__(self, server: Server, kind: Kind, claim: Claim, pace: Pace) -> None:
        self._server, self._kind, self._pace = server, kind, pace
        self._pass_key = claim.pass_key
        self._row: Row[Any] = claim.rows[0]
        self._begun = time.monotonic()
        self._holding = Holding(ResweepPart, claim, server.lease, self._give_back)
        self._asker = Asker(kind)
        self._after: str | None = self._row.after
        self._singly = PAGE if self._row.attempts > 1 else int(self._row.singly)
        self._moved = False
        self._held = True
        self.asked = 0
        #: Somebody waits for this worker in a main lane.
        self.needed = False
        #: How many visits of which stages may be made now.
        self.offered: Counter[str] = Counter()

    def work(self, end: float) -> None:
        """Pages until the part or the time ends. What a crash leaves behind is found by the sweep."""
        with keeping.keeper.keeping(self._holding), alarm.patrol():
            if self._holding.next() is None:
                return
            try:
                goes_on = True
                while goes_on:
                    goes_on = self._step()
                    self.needed = self._is_needed()
                    goes_on = goes_on and not (self.needed or self._server.stopping() or time.monotonic() > end)
                self._release()
            except HandBack:
                self._release()
            except ClaimIsLost as lost:
                log.warning("%s: %s", self, lost)
            except DatabaseError:
                with suppress(SQLAlchemyError, DatabaseError):
                    self._release()
                raise
            except Exception as error:  # noqa: BLE001 - whatever a store raises; it must not cost the other parts
                log.warning("%s waits for %s: %s", self, BROKEN, told(error))
                self._release(BROKEN, told(error))
            finally:
                self._asker.count_failures()

    def __str__(self) -> str:
        return f"part {self._row.part} of the walk {self._row.resweep_id} over {self._kind.name}, after {self._after!r}"

    def _is_needed(self) -> bool:
        queues = [queue_of(self._kind.name, SYSTEM), *(each.queue for each in of_kind(self._kind.name))]
        own = [each for each in queues if self._server.calls.consumes(each)]
        return bool(own) and lanes.has_work(own, Lane.MAIN)

    def _now(self) -> datetime:
        """By the clock of the database."""
        claimed: datetime = self._row.claimed_at
        return claimed + timedelta(seconds=time.monotonic() - self._begun)

    def _step(self) -> bool:
        """Asks about the next entities; whether the part is still ours to walk."""
        with autocommit() as connection:
            query = sa.select(Resweep.state, Resweep.stage, Resweep.rate).where(Resweep.id == self._row.resweep_id)
            walk = connection.execute(query).one()
        if walk.state != ResweepState.RUNNING:
            return False
        definitions = self._definitions(walk.stage)
        if definitions is None:
            log.error("%s waits for a worker that knows the stage %s", self, walk.stage)
            self._release(STRANGE, f"no worker that came by knows the stage {walk.stage}")
            return False
        page = self._read(definitions, walk)
        if page.last is None and not page.ends:
            return False
        if not self._save(page):
            self._release(BLOCKED)
            return False
        return self._held and not page.stopped

    def _definitions(self, stage: str) -> Sequence[Definition] | None:
        if stage == SYSTEM:
            return asked_of(self._kind.name)
        found = declared.get((self._kind.name, stage))
        if found is not None:
            found = declared.get((self._kind.name, found.asker))
        return None if found is None else [found]

    def _read(self, definitions: Sequence[Definition], walk: Any) -> Page:
        reader = Reader(
            self._kind,
            self._asker,
            definitions,
            everybody=walk.stage == SYSTEM,
            now=self._now,
            stopping=self._server.stopping,
        )
        within = Range(self._after, self._row.until)
        if self._singly:
            killer = self._row.attempts > DEATHS and not self._moved
            return reader.read(within, 1, f"{self._row.attempts - 1} workers have died at it" if killer else None)
        begun = time.monotonic()
        page = reader.read(within, min(page_of(walk.rate), self._pace.batch(PAGE, PAGE_SECONDS)))
        if page.asked:
            self._pace.measured(time.monotonic() - begun, page.asked)
        return page

    def _save(self, page: Page) -> bool:
        """What is wanted and how far we have come, in one transaction."""
        singly = max(0, self._singly - 1)

        def write(tx: Session) -> bool:
            self._offer(tx, page)
            walk = self._locked(tx)
            goes_on = walk.state == ResweepState.RUNNING and walk.rate is None and not page.ends
            values: dict[str, Any] = {
                "after": page.last or self._after,
                "asked": PART.c.asked + page.asked,
                "wanted": PART.c.wanted + len(page.offers),
                "failed": PART.c.failed + page.failed,
                "singly": singly,
                "error": page.error and storable(page.error)[:ERROR_MOST],
                "attempts": 1,
            }
            if page.error is None:
                # That of an entity stays; that of a part is over.
                values["error"] = sa.case((PART.c.failed > 0, PART.c.error))
            if not goes_on:
                due = self._turn(tx, walk, page.asked)
                values |= self._left(walk, due, ends=page.ends) | {"attempts": 0}
            # Where a commit came through and its answer did not, nothing is counted twice.
            if not self._write(tx, values, PART.c.after.is_not_distinct_from(self._after)):
                raise ClaimLost(f"{self} is somebody else's now")
            if page.ends:
                self._end(tx)
            self._held = goes_on
            return True

        if not save(self._holding, str(self), write):
            self._held = True
            return False
        self._after, self._singly, self._moved = page.last or self._after, singly, True
        self.asked += page.asked
        now = self._now()
        self.offered.update(stage for _, stage, at in page.offers if at <= now)
        if not self._held:
            self._holding.ended([self._row])
        return True

    def _offer(self, tx: Session, page: Page) -> None:
        """Before the walk is locked, which the other parts may wait for."""
        if not page.offers:
            return
        ids, stages, times = (list(column) for column in zip(*page.offers, strict=True))
        offered = sa.func.tidemill.offer_visits(
            self._kind.name, sa.cast(ids, TEXTS), sa.cast(stages, TEXTS), sa.cast(times, MOMENTS), sa.true()
        )
        tx.execute(sa.select(offered))

    def _locked(self, tx: Session) -> Any:
        query = sa.select(Resweep.state, Resweep.rate).where(Resweep.id == self._row.resweep_id)
        return tx.execute(query.with_for_update(key_share=True)).one()

    def _turn(self, tx: Session, walk: Any, asked: int) -> Any:
        """When the part may be walked on: after all turns that were given before, and the time that this page is
        worth."""
        if walk.rate is None or not asked:
            return sa.func.clock_timestamp()
        worth = timedelta(seconds=asked / walk.rate)
        paced_to = sa.func.greatest(Resweep.paced_to, sa.func.clock_timestamp()) + worth
        moved = sa.update(Resweep).where(Resweep.id == self._row.resweep_id).values(paced_to=paced_to)
        return tx.execute(moved.returning(Resweep.paced_to)).scalar_one()

    @staticmethod
    def _left(walk: Any, due: Any, *, ends: bool = False) -> dict[str, Any]:
        """What becomes of a part that is not walked on now."""
        over = ends or walk.state not in (ResweepState.RUNNING, ResweepState.PAUSED)
        return {
            "state": PartState.DONE if over else PartState.WAITING,
            "due_at": None if walk.state == ResweepState.PAUSED else due,
            **dict.fromkeys(("pass_key", "recovery_time", "not_before")),
        }

    def _write(self, tx: Session, values: dict[str, Any], *more: sa.ColumnElement[bool]) -> bool:
        mine = (PART.c.resweep_id == self._row.resweep_id, PART.c.part == self._row.part)
        update = sa.update(PART).where(*mine, PART.c.pass_key == self._pass_key, *more).values(**values)
        return tx.execute(update.returning(PART.c.part)).one_or_none() is not None

    def _end(self, tx: Session) -> None:
        """Of the walk, if this was the last of its parts: whoever ends one holds the lock of the walk."""
        other = sa.exists().where(PART.c.resweep_id == self._row.resweep_id, PART.c.state != PartState.DONE)
        live = (Resweep.id == self._row.resweep_id, Resweep.ended_at.is_(None), ~other)
        done = {"state": ResweepState.DONE, "ended_at": sa.func.clock_timestamp()}
        tx.execute(sa.update(Resweep).where(*live).values(**done))

    def _release(self, delay: timedelta = AT_ONCE, error: str | None = None) -> None:
        """To be walked on by whoever comes next, unless it has been let go already."""
        if not self._held:
            return
        with transaction() as tx:
            walk = self._locked(tx)
            values = self._left(walk, sa.func.clock_timestamp() + delay)
            # Without a page in between, the deaths of other workers count on.
            values["attempts"] = 0 if self._moved else self._row.attempts - 1
            if error is not None:
                values["error"] = storable(error)[:ERROR_MOST]
            self._write(tx, values)
        self._held = False
        self._holding.ended([self._row])

    def _give_back(self, tx: Any, rows: Sequence[Row[Any]]) -> None:
        keys = [(row.resweep_id, row.part) for row in rows]
        claims.give_back(tx, ResweepPart, self._pass_key, keys, charged=False)
