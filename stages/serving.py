"""Working off the queues of stages: what a worker child does with a ticket for `stage.<kind>.<stage>`.

Claim a batch, visit its entities, save, and claim again until nothing is ready or the ticket's time is over. Of ten
claims that got something one is the low lane's, so that it never starves; apart from these it is served when the main
lane is empty, so that it never delays it (S16). The size of a batch follows the measured time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from app import claims, doorbell
from app.claims import Claim, Cursor, Lane
from app.jobs.run import Pace
from app.shares import Shards
from app.stopwatch import stopwatch
from stages import ending, lanes, seen, walking
from stages.batch import Batch
from stages.definition import PREFIX, RESWEEP, SYSTEM, Definition
from stages.ending import Place
from stages.kind import Kind
from stages.model import StageVisit
from stages.registration import declared
from stages.remote.asks import AskBatch
from stages.remote.visits import RemoteVisitBatch
from stages.system import SystemBatch
from stages.visits import VisitBatch
from stages.watched import kinds

log = logging.getLogger(__name__)

TICKET_SECONDS = 5.0
BATCH_SECONDS = 0.5
#: A batch of the low lane is what a visit of the main lane may have to wait for.
LOW_SECONDS = 0.1
SYSTEM_BATCH = 300
#: One claim in so many that got something is the low lane's, where the main lane always has work.
RESERVE = 10
#: Visits that take no longer than this are made in the ticket that asked for them.
QUICK_SECONDS = 0.02
#: Whoever can write to the broker can invent names; what is remembered of them is bounded.
QUEUES_MOST = 1000
#: The suffix of the queue of a lane's tickets.
LOW = f".{Lane.LOW}"


class Calls(Protocol):
    """What the Celery side knows (`app.calling`)."""

    def consumes(self, queue: str) -> bool:
        """Whether tickets for this queue come to this worker."""
        ...


@dataclass
class Served:
    """What this process remembers of a queue."""

    kind: Kind
    #: None: the system stage.
    definition: Definition | None
    main: Cursor
    low: Cursor
    pace: Pace = field(default_factory=Pace)
    #: Claims of the main lane since the low lane had its turn.
    since_low: int = 0


@dataclass
class VisitServer:
    calls: Calls
    worker: str
    lease: timedelta
    stopping: Callable[[], bool]
    served: dict[tuple[str, Shards | None], Served] = field(default_factory=dict)
    #: Of walks, by kind.
    paces: dict[str, Pace] = field(default_factory=dict)

    def serve(self, queue: str, take: int, shards: Shards | None = None) -> tuple[int, bool]:
        low = queue.endswith(LOW)
        # What asks a remote stage has a dot in its own name.
        kind, _, stage = queue.removesuffix(LOW).removeprefix(f"{PREFIX}.").partition(".")
        if stage == RESWEEP:
            return walking.serve(self, kind)
        place = self._place(kind, stage, queue.removesuffix(LOW), shards)
        if place is None:
            log.error("no stage %r of %r is declared here: its visits wait for a worker that knows it", stage, kind)
            return 0, False
        end = time.monotonic() + TICKET_SECONDS
        return self._low(place, take, end) if low else self._main(place, take, end)

    def _place(self, kind: str, stage: str, queue: str, shards: Shards | None) -> Served | None:
        found = self.served.get((queue, shards))
        definition = declared.get((kind, stage))
        if found is not None and found.definition is definition:
            return found
        of = kinds.get(kind)
        if of is None or (definition is None and stage != SYSTEM):
            return None
        if len(self.served) > QUEUES_MOST:
            self.served.clear()
        guarded = definition is not None and definition.guarded
        main, low = (Cursor(StageVisit, queue, lane, guarded, shards) for lane in (Lane.MAIN, Lane.LOW))
        made = self.served[(queue, shards)] = Served(of, definition, main, low)
        return made

    def _main(self, place: Served, take: int, end: float) -> tuple[int, bool]:
        offered: Counter[str] = Counter()
        made, more = self._work_off(place, take, end, offered)
        self._ring(place, offered, end)
        return made, more

    def _work_off(self, place: Served, take: int, end: float, offered: Counter[str]) -> tuple[int, bool]:
        made, ran = 0, 0
        while not self.stopping():
            ran = self._turn(place, take, offered)
            made += ran
            if not ran or time.monotonic() > end:
                break
        return made, ran > 0

    def _turn(self, place: Served, take: int, offered: Counter[str]) -> int:
        """Claims of which the limits of the queue allow none are not counted: or the turn of the low lane could always
        be one of these."""
        if place.since_low >= RESERVE - 1:
            ran = self._claim(place, place.low, take, LOW_SECONDS, offered)
            if ran or not lanes.has_work([place.low.queue], Lane.LOW, place.low.shards):
                place.since_low = 0
            if ran:
                return ran
        ran = self._claim(place, place.main, take, BATCH_SECONDS, offered)
        place.since_low += ran > 0
        return ran

    def _low(self, place: Served, take: int, end: float) -> tuple[int, bool]:
        """As long as the main lane has nothing that it would be in the way of."""
        made, ran = 0, 0
        offered: Counter[str] = Counter()
        while not self.stopping() and not self._yields(place):
            ran = self._claim(place, place.low, take, LOW_SECONDS, offered)
            made += ran
            if not ran or time.monotonic() > end:
                self._ring(place, offered, end)
                return made, ran > 0
        self._ring(place, offered, end)
        return made, False

    def _yields(self, place: Served) -> bool:
        """A worker of the low lane alone takes nothing from the main one, unless they share a limit."""
        shared = place.low.limited or self.calls.consumes(place.main.queue)
        return shared and lanes.has_work([place.main.queue], Lane.MAIN, unlocked=True)

    def _claim(self, place: Served, cursor: Cursor, take: int, seconds: float, offered: Counter[str]) -> int:
        most = SYSTEM_BATCH if place.definition is None else place.definition.batch
        claim = claims.take(cursor, min(take, place.pace.batch(most, seconds)), worker=self.worker, lease=self.lease)
        if not claim.rows:
            return 0
        begun, low = time.monotonic(), cursor.lane is Lane.LOW
        stage = SYSTEM if place.definition is None else place.definition.name
        batch = self._batch(place, Place(place.kind.name, stage, cursor.guarded, low), claim)
        batch.work()
        took = time.monotonic() - begun
        place.pace.measured(took, len(claim.rows))
        if place.definition is None:
            stopwatch.worked(StageVisit.NOUN, place.main.queue, "done", took / len(claim.rows), len(claim.rows))
        if not low:
            offered.update(batch.offered)
        return len(claim.rows)

    def _batch(self, place: Served, at: Place, claim: Claim) -> Batch:
        definition = place.definition
        if definition is None:
            return SystemBatch(self, place.kind, at, claim)
        if definition.remote is None:
            return VisitBatch(self, place.kind, at, claim, definition)
        remote = AskBatch if definition.asks_for else RemoteVisitBatch
        return remote(self, place.kind, at, claim, definition, definition.remote)

    def _ring(self, place: Served, offered: Counter[str], end: float) -> None:
        """For the stages that were asked for. The visits of one of them are made here, if they are few and quick: a
        ticket costs more than they do. These may ask for others in turn."""
        while offered:
            stage, visits = offered.popitem()
            definition = declared.get((place.kind.name, stage))
            if definition is None:
                continue
            own = self._place(place.kind.name, stage, definition.queue, place.main.shards)
            quick = own is not None and (own.pace.seconds is None or own.pace.seconds <= QUICK_SECONDS)
            few = visits <= definition.batch and time.monotonic() < end
            # A service that hangs must not hold the ticket of anybody else.
            near = definition.remote is None or (place.definition and place.definition.remote is definition.remote)
            if (
                own is not None
                and near
                and quick
                and few
                and self.calls.consumes(definition.queue)
                and not self.stopping()
            ):
                _, more = self._work_off(own, definition.batch, end, offered)
                if not more:
                    continue
            doorbell.ring(definition.queue, definition.task)


def warm_up() -> None:
    """Builds the statements that every visit goes through."""
    for guarded in (True, False):
        for size in claims.SIZES:
            claims.prepared(StageVisit, claims.Form(size=size, guarded=guarded))
    ending.warm_up()
    seen.warm_up()
    lanes.warm_up()
