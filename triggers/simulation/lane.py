"""A pool in a simulation: what waits in it, best first, and whether one more may start."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from app.limits import HORIZON, Limits, grant
from app.ranks import Rank, most_rank
from triggers.holding import Reservation
from triggers.instants import SECOND, Instant
from triggers.pools import BEST_RANK
from triggers.simulation.facts import Pool
from triggers.simulation.outcome import PoolFigures, Window


class SimRun:
    """One run, from the moment its trigger fired."""

    __slots__ = (
        "attempts",
        "away",
        "created",
        "fails",
        "id",
        "inherited",
        "ordinal",
        "priority",
        "queued",
        "started",
        "task",
        "window",
    )

    def __init__(self, run_id: int, task: str, priority: int, created: Instant, ordinal: int) -> None:
        self.id, self.task, self.priority, self.created, self.ordinal = run_id, task, priority, created, ordinal
        self.attempts = 0
        #: `away`: it failed, and is not tried again yet. `fails`: this attempt will.
        self.queued = self.away = self.fails = False
        self.inherited: int | None = None
        self.started: Instant | None = None
        self.window: Window = ()


class Lane:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.running = self.waiting = 0
        self.figures = PoolFigures()
        #: By priority, the oldest first: of one priority that is the best one, however ranks age.
        self._classes: dict[int, list[tuple[Instant, int, SimRun]]] = {}
        self._raised: dict[int, SimRun] = {}
        self._tokens, self._refilled = 1.0, 0
        #: From when on there was always a slot that is kept.
        self._kept_since: Instant | None = None

    def push(self, run: SimRun) -> None:
        run.queued, run.away = True, False
        self.waiting += 1
        self.figures.peak_waiting = max(self.figures.peak_waiting, self.waiting)
        heapq.heappush(self._classes.setdefault(run.priority, []), (run.created, run.id, run))

    def inherit(self, run: SimRun, priority: int) -> None:
        if run.queued and (run.inherited is None or run.inherited < priority):
            run.inherited = priority
            self._raised[run.id] = run

    def take(self, run: SimRun) -> None:
        """It begins to run."""
        self._raised.pop(run.id, None)
        run.queued = False
        self.waiting -= 1
        self.running += 1

    @property
    def free(self) -> bool:
        return self.pool.max_parallel is None or self.running < self.pool.max_parallel

    def rank(self, run: SimRun, now: Instant, kept: Sequence[Reservation] = ()) -> Rank:
        rank = self._aged(run, now)
        above = [each for each in kept if each.rank < -run.priority]
        if above and now - run.created <= self.pool.max_hold:
            # Not past a slot that is kept, unless it was before.
            behind = max(each.rank for each in above) + 1
            rank = max(rank, min(behind, self._aged(run, self._kept_since or now)))
        return rank if run.inherited is None else min(rank, -run.inherited)

    def _aged(self, run: SimRun, now: Instant) -> Rank:
        return max(BEST_RANK, -run.priority - max(0, now - run.created) // self.pool.ageing)

    def next_age(self, run: SimRun, now: Instant) -> Instant:
        """When its rank gets better by waiting."""
        waited = now - run.created
        step = now + self.pool.ageing - waited % self.pool.ageing
        return step if waited > self.pool.max_hold else min(step, run.created + self.pool.max_hold + 1)

    def best(self, now: Instant, kept: Sequence[Reservation] = ()) -> tuple[Rank, Instant, int, SimRun] | None:
        self._kept_since = (self._kept_since or now) if kept else None
        best = None
        for priority in list(self._classes):
            found = self._classes[priority]
            while found and not found[0][2].queued:
                heapq.heappop(found)
            if not found:
                del self._classes[priority]
                continue
            run = found[0][2]
            place = (self.rank(run, now, kept), run.created, run.id, run)
            best = place if best is None or place < best else best
        for run in self._raised.values():
            place = (self.rank(run, now, kept), run.created, run.id, run)
            best = place if best is None or place < best else best
        return best

    def lowest(self) -> SimRun | None:
        """Of those that wait, one of the lowest priority."""
        waiting = (each[2] for priority in sorted(self._classes) for each in self._classes[priority])
        return next((run for run in waiting if run.queued), None)

    def most_rank(self, kept: Sequence[Reservation]) -> Rank | None:
        return most_rank(self.pool.max_parallel, self.running, [each.rank for each in kept])

    def pace(self, now: Instant) -> tuple[bool, Instant]:
        """Whether its rate lets one more start, and after which time; or else after which time to ask again."""
        rate = self.pool.rate
        if rate is None:
            return True, 0
        limits = Limits(rate=rate, burst=self.pool.burst, tokens=self._tokens, idle=(now - self._refilled) / SECOND)
        granted = grant(limits, 0, 1)
        if not granted.count:
            return False, max(1, int(((1 - granted.tokens) / rate - HORIZON) * SECOND))
        self._tokens, self._refilled = granted.spent(1), now
        return True, int(granted.pace[0] * SECOND)
