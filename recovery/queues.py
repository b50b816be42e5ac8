"""Why a task that is queued, or in work, has not been done yet: R4 (1) to (3), and whatever else keeps it. Pure.

None of this is ever repaired: a backlog, however long, is no damage (R6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from processes.states import DecisionState
from recovery.findings import Case

#: Whoever asks for work does so more often than this.
UNPOLLED = timedelta(minutes=1)


@dataclass(frozen=True)
class QueueFacts:
    """Of the queue of an actor: who takes from it, and how far it has come."""

    #: Slots of live workers that serve it.
    slots: int = 0
    polled_at: datetime | None = None
    reached: datetime | None = None
    paused: bool = False
    rests: bool = False


@dataclass(frozen=True)
class Surroundings:
    now: datetime
    #: Since when the server has been there.
    up_since: datetime
    queues: Mapping[str, QueueFacts] = field(default_factory=dict)

    def queue(self, name: str) -> QueueFacts:
        return self.queues.get(name, QueueFacts())


@dataclass(frozen=True)
class DecisionFacts:
    state: DecisionState
    queue: str
    #: Whether that is the queue of its actor.
    placed: bool
    #: From when it may be handed out. None: it says no time, or one that never comes.
    ready: datetime | None
    #: Whether somebody's pass is on it.
    held: bool = False
    #: Its `recovery_time`, and the end of its `task_timeout`.
    until: datetime | None = None
    deadline_at: datetime | None = None

    @property
    def untimed(self) -> bool:
        """Of one that waits: the end of its `task_timeout` is not when recovery looks at it."""
        if self.until is None or self.deadline_at is None:
            return self.until is not self.deadline_at
        return abs(self.until - self.deadline_at) > timedelta(seconds=1)

    @property
    def open(self) -> bool:
        return self.state is not DecisionState.FINISH


def why(decision: DecisionFacts, around: Surroundings) -> Case:
    """Of one that is claimable, or in work as it should be."""
    now, queue = around.now, around.queue(decision.queue)
    if decision.until is not None and decision.until <= now:
        return Case.OVERDUE
    if decision.state is DecisionState.WORK:
        return Case.IN_WORK
    ready = decision.ready or now
    if ready > now:
        return Case.NOT_DUE
    if queue.paused:
        return Case.QUEUE_PAUSED
    if queue.rests:
        return Case.QUEUE_RESTS
    unpolled = queue.polled_at is None or queue.polled_at < around.up_since
    if around.up_since > ready and unpolled and (queue.slots or around.up_since > now - UNPOLLED):
        return Case.SERVER_WAS_OFF
    if not queue.slots and (queue.polled_at is None or queue.polled_at < now - UNPOLLED):
        return Case.NOBODY_POLLS
    if queue.reached is not None and queue.reached > ready:
        return Case.OVERTAKEN
    return Case.BEHIND
