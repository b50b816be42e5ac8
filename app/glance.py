"""How everything stands, in one look: what `tidemill status` shows, and the same over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from app import figures
from app.figures import Executions, ProcessFigures, QueueFigures, ReactiveFigures, StageFigures, WorkerFigures
from app.outbox import listing as outbox
from app.outbox.listing import Lag
from processes import listing
from recovery import operations, record
from recovery.operations import Progress

REPAIRS_OF = timedelta(hours=1)
OPERATIONS_MOST = 20
_OF_OPERATION = ("id", "kind", "state", "total", "done", "failed", "skipped", "why")


@dataclass(frozen=True)
class Glance:
    queues: Sequence[QueueFigures]
    workers: Sequence[WorkerFigures]
    executions: Executions
    reactive: ReactiveFigures
    stages: StageFigures
    processes: ProcessFigures
    events: Lag
    #: How often each finding was put right, of `REPAIRS_OF`.
    repairs: Mapping[str, int]
    #: Those that have not ended.
    operations: Sequence[Progress]

    def data(self) -> dict[str, Any]:
        """For programs."""
        recent = self.executions
        rates = {"done_per_minute": recent.done_per_minute, "failed_per_minute": recent.failed_per_minute}
        return {
            "queues": [asdict(each) | {"stands_still": each.stands_still} for each in self.queues],
            "workers": [asdict(each) for each in self.workers],
            "executions": asdict(recent) | rates,
            "reactive": asdict(self.reactive),
            "stages": asdict(self.stages),
            "processes": asdict(self.processes),
            "events": asdict(self.events),
            "repairs": dict(self.repairs),
            "operations": [{name: getattr(each, name) for name in _OF_OPERATION} for each in self.operations],
        }


def look(session: Session) -> Glance:
    return Glance(
        queues=figures.queues(session),
        workers=figures.live_and_gone(session),
        executions=figures.executions(session),
        reactive=figures.reactive(session),
        stages=figures.stages(session),
        processes=figures.processes(session, listing.actors(session)),
        events=outbox.lag(session),
        repairs=record.recent(session, REPAIRS_OF),
        operations=operations.overview(OPERATIONS_MOST, live=True, session=session),
    )
