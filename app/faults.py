"""Named points at which a test may let the process die; off in production, where reaching one costs a comparison.

Each path names its points with `reach("claim.committed")`. A test installs an injector, which may kill the process,
raise, or wait for another connection.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS = (
    "enqueue.before_commit",
    "enqueue.committed",
    "ring.before_publish",
    "ring.published",
    "ticket.received",
    "claim.before_commit",
    "claim.committed",
    "service.before_commit",
    "service.committed",
    "start.before_commit",
    "start.committed",
    "run.checked",
    "run.before_body",
    "run.after_body",
    "process.before_begin",
    "process.begun",
    "task.before_body",
    "task.after_body",
    "visits.loaded",
    "visits.processed",
    "finish.before_commit",
    "finish.committed",
    "give_back.before_commit",
    "give_back.committed",
    "heal.repaired",
    "sweep.before_commit",
    "sweep.committed",
    "periodic.before_commit",
    "periodic.committed",
    "operation.turn_taken",
    "operation.acted",
    "operation.before_commit",
    "operation.committed",
    "outbox.read",
    "outbox.published",
    "outbox.before_move",
    "outbox.moved",
    "outbox.wiped",
    "outbox.declared",
)

_injector: Callable[[str], None] | None = None


def install(injector: Callable[[str], None] | None) -> None:
    global _injector
    _injector = injector


def reach(point: str) -> None:
    if _injector is not None:
        _injector(point)
