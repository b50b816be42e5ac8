"""Working off the queue of an actor: what a worker child does with a ticket for `actor.<name>`.

Begin what was registered, if it is a decider's; claim, call, accept, and claim again until nothing is ready or the
ticket's time is over. What became ready meanwhile for actors that this worker serves too is done in the same ticket,
if it is quick: a ticket costs more than a step.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from app import claims
from app.claims import Cursor, Lane
from app.jobs.run import Pace
from processes import accepting, loading, starting, statements
from processes.definition import Definition, declared
from processes.model import PREFIX, Decision, queue_of
from processes.polls import Sampler
from processes.preferences import Remembered
from processes.working import Batch, Calls

log = logging.getLogger(__name__)

TICKET_SECONDS = 5.0
BATCH_SECONDS = 0.3
BATCH_MOST = 100
#: Where the work has less time than this, one task at a time: those that wait for their turn lose theirs.
BATCHED_FROM = timedelta(seconds=5)
#: Steps that take no longer than this are made in the ticket that made them ready.
QUICK_SECONDS = 0.02
BEGIN_MOST = 100
#: Whoever can write to the broker can invent names; what is remembered of them is bounded.
QUEUES_MOST = 1000


@dataclass
class Served:
    """What this process remembers of a queue."""

    cursor: Cursor
    pace: Pace = field(default_factory=Pace)


@dataclass
class DecisionServer:
    calls: Calls
    worker: str
    lease: timedelta
    stopping: Callable[[], bool]
    served: dict[str, Served] = field(default_factory=dict)
    settings: Remembered = field(default_factory=Remembered)
    polls: Sampler = field(default_factory=Sampler)

    def serve(self, queue: str, take: int, shards: tuple[int, int] | None = None) -> tuple[int, bool]:  # noqa: ARG002
        name = queue.removeprefix(f"{PREFIX}.")
        definition = declared.get(name)
        if definition is None or definition.outside:
            what = "is done outside" if definition else "is not declared here"
            log.error("actor %r %s: its tasks wait for a worker that knows it", name, what)
            return 0, False
        end = time.monotonic() + TICKET_SECONDS
        ready: Counter[str] = Counter()
        made, more = self._work_off(definition, take, end, ready)
        self._go_on(ready, take, end)
        return made, more

    def _work_off(self, definition: Definition, take: int, end: float, ready: Counter[str]) -> tuple[int, bool]:
        made = 0
        while not self.stopping():
            begun = starting.run_once(BEGIN_MOST, name=definition.name).begun if definition.decider else 0
            ran = self._claim(definition, take, ready)
            made += ran
            if not ran and not begun:
                return made, False
            if time.monotonic() > end:
                return made, True
        return made, False

    def _claim(self, definition: Definition, take: int, ready: Counter[str]) -> int:
        queue = queue_of(definition.name)
        if len(self.served) > QUEUES_MOST:
            self.served.clear()
        served = self.served.setdefault(queue, Served(Cursor(Decision, queue, Lane.MAIN)))
        row = self.settings.of(definition.name)
        timeout = definition.work_timeout if row is None else row.work_timeout
        # What is not to be handed out again when its worker dies is not to die of another one's call.
        again = (definition if row is None else row).restart_after_work_timeout
        most = served.pace.batch(BATCH_MOST, BATCH_SECONDS) if timeout >= BATCHED_FROM and again else 1
        claim = claims.take(served.cursor, min(take, most), worker=self.worker, lease=timeout)
        self.polls.note(queue, claim.rows)
        if not claim.rows:
            return 0
        begun = time.monotonic()
        batch = Batch(self.calls, self.stopping, definition, claim, timeout)
        batch.work()
        served.pace.measured(time.monotonic() - begun, len(claim.rows))
        ready.update(batch.ready)
        return len(claim.rows)

    def _go_on(self, ready: Counter[str], take: int, end: float) -> None:
        while ready:
            name, tasks = ready.popitem()
            definition = declared.get(name)
            own = definition is not None and not definition.outside and self.calls.consumes(queue_of(name))
            served = self.served.get(queue_of(name))
            quick = served is None or served.pace.seconds is None or served.pace.seconds <= QUICK_SECONDS
            if definition and own and quick and tasks <= BATCH_MOST and time.monotonic() < end and not self.stopping():
                _, more = self._work_off(definition, take, end, ready)
                if not more:
                    continue
            accepting.ring([name])


def warm_up() -> None:
    """Builds the statements that every decision goes through."""
    for size in claims.SIZES:
        claims.prepared(Decision, claims.Form(size=size))
    statements.warm_up()
    loading.warm_up()
