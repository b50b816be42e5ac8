"""Why a process does not move, since when, and what happens next, in words. Pure.

One reason for each finding: what keeps it comes first, what is on its way last. That tasks wait for others is said only
if nothing else is.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from processes.shown import Shown, TaskShown
from processes.states import DecisionState, TaskState
from processes.wording import clean, listed
from recovery.findings import Case, Finding, Verdict
from recovery.rules import Broken, Rule, command, known

Span = Callable[[timedelta], str]

#: Of others in a queue, no more are counted.
COUNTED = 10_000


@dataclass(frozen=True)
class Reason:
    finding: Case
    says: str
    #: What happens next, or has to be done.
    next: str
    since: datetime | None = None
    queue: str | None = None
    tasks: tuple[int, ...] = ()


@dataclass(frozen=True)
class QueueLook:
    """Of the queue of an actor, and how the actor is dealt with."""

    #: Of live workers; when somebody last asked for its work.
    slots: int = 0
    polled_at: datetime | None = None
    #: Ready before the first task that is asked about; in work, of all processes.
    ahead: int = 0
    in_work: int = 0
    max_parallel: int | None = None
    #: Calls per second.
    rate: float | None = None
    rests_why: str | None = None
    rests_until: datetime | None = None
    outside: bool = False
    removed: bool = False
    restart_after_work_timeout: bool = True
    max_restarts: int = 10


@dataclass(frozen=True)
class Look:
    """What is around the process."""

    now: datetime
    queues: Mapping[str, QueueLook] = field(default_factory=dict)
    #: When its graph changed last; when recovery looks at it.
    changed_at: datetime | None = None
    looked_at: datetime | None = None
    rules: Sequence[Rule] = ()

    def queue(self, name: str | None) -> QueueLook:
        return self.queues.get(name or "", QueueLook())


def explain(shown: Shown, findings: Sequence[Finding], look: Look, span: Span) -> tuple[Reason, ...]:
    tasks = {task.number: task for task in shown.tasks}
    ordered = sorted(findings, key=lambda each: (_turn(each), each.case, each.queue or ""))
    telling = [each for each in ordered if each.case is not Case.WAITS] or ordered
    return tuple(_Words(shown, tasks, each, look, span).reason() for each in telling)


#: What somebody has to do something about; what goes by itself, the slowest first.
_TURNS = (
    Case.TASK_BROKEN,
    Case.NOBODY_POLLS,
    Case.QUEUE_PAUSED,
    Case.QUEUE_RESTS,
    Case.OVERDUE,
    Case.SERVER_WAS_OFF,
    Case.OVERTAKEN,
    Case.BEHIND,
    Case.NOT_YET_BEGUN,
    Case.NOT_DUE,
    Case.IN_WORK,
    Case.WAITS,
)


def _turn(finding: Finding) -> int:
    return -1 if finding.case not in _TURNS else _TURNS.index(finding.case)


@dataclass(frozen=True)
class _Words:
    shown: Shown
    tasks: Mapping[int, TaskShown]
    finding: Finding
    look: Look
    span: Span

    def reason(self) -> Reason:
        says, then, since = self._told()
        return Reason(self.finding.case, says, then, since, self.finding.queue, self.finding.tasks)

    def _told(self) -> tuple[str, str, datetime | None]:
        match self.finding.case:
            case Case.TASK_BROKEN:
                return self._broken()
            case Case.IN_WORK:
                return self._in_work()
            case Case.OVERDUE:
                return self._overdue()
            case Case.NOT_DUE:
                return self._not_due()
            case Case.NOT_YET_BEGUN | Case.NEVER_BEGUN:
                return self._unbegun()
            case Case.OVER_TIME:
                return self.finding.says, "the next sweep breaks it; what is in work goes on", self.shown.deadline_at
            case Case.WAITS:
                return self.finding.says, self.finding.cure, self.look.changed_at
            case _ if self.finding.verdict is Verdict.DIAGNOSIS:
                return *self._queued(), self._first(lambda task: task.due_at or task.ready_at)
            case _:
                return self._wrong()

    def _own(self) -> Iterator[TaskShown]:
        return (self.tasks[number] for number in self.finding.tasks if number in self.tasks)

    def _first(self, moment: Callable[[TaskShown], datetime | None]) -> datetime | None:
        return min((found for task in self._own() if (found := moment(task)) is not None), default=None)

    @property
    def actor(self) -> str:
        return clean((self.finding.queue or "").partition(".")[2], 100)

    def _ahead(self, moment: datetime | None) -> str:
        left = timedelta(0) if moment is None else moment - self.look.now
        return f"in {self.span(left)}" if left > timedelta(0) else "now"

    def _broken(self) -> tuple[str, str, datetime | None]:
        own = [task for task in self._own() if task.broken is not None]
        since = self._first(lambda task: task.broken.at if task.broken else None)
        restart = f"tidemill process restart {self.shown.id} --from {self.finding.tasks[0]}"
        if not own:
            return "broken", f"nothing, until somebody mends the cause: {restart}", since
        broken = own[0].broken
        assert broken is not None  # noqa: S101 - chosen so
        error = clean(f"{broken.type}: {broken.message}" if broken.message else broken.type, 120)
        held = _held_up(self.shown.tasks, self.finding.tasks)
        says = f"broken: {error}{f', and {len(own) - 1} more' if len(own) > 1 else ''}"
        says += f"; {held} {'task waits' if held == 1 else 'tasks wait'} for that" if held else ""
        for task in own:
            if (proposed := self._known(task)) is not None:
                return says, proposed, since
        return says, f"nothing, until somebody mends the cause: {restart}", since

    def _known(self, task: TaskShown) -> str | None:
        broken = task.broken
        assert broken is not None  # noqa: S101 - chosen so
        this = Broken(self.shown.id, task.number, task.actor, broken.type, broken.message, broken.fingerprint)
        rule = known(self.look.rules, this)
        if rule is None:
            return None
        proposed = command(rule, this)
        told = f"known as {clean(rule.name)}: {clean(rule.says)}"
        return told if proposed is None else f"{told}; proposed: {proposed}"

    def _in_work(self) -> tuple[str, str, datetime | None]:
        own = sorted(self._own(), key=lambda task: task.until or self.look.now)
        if not own:
            return self.finding.says, self.finding.cure, None
        task, more = own[0], len(own) - 1
        worker = f" by {clean(task.worker, 100)}" if task.worker else ""
        says = f"in work{worker}{f', and {more} more' if more else ''}"
        says += f", handed out {task.attempts} times" if task.attempts > 1 else ""
        then = f"the answer is due {self._ahead(task.until)}; after that {self._without_answer(task)}"
        return says, then, self._first(lambda task: task.claimed_at)

    def _without_answer(self, task: TaskShown) -> str:
        queue = self.look.queue(self.finding.queue)
        if not queue.restart_after_work_timeout:
            return "that is an error like any other"
        left = queue.max_restarts - task.restarts
        if left <= 0:
            return "it is broken"
        return f"it is handed out again, {left} more {'time' if left == 1 else 'times'} at most"

    def _overdue(self) -> tuple[str, str, datetime | None]:
        in_work = any(task.decision is DecisionState.WORK for task in self._own())
        since = self._first(lambda task: task.until if in_work else task.deadline_at)
        if in_work:
            return "its answer did not come in time", "the next sweep takes it back, within seconds", since
        return "its task_timeout is over", "the next sweep finishes it with that error", since

    def _not_due(self) -> tuple[str, str, datetime | None]:
        own = sorted(self._own(), key=lambda task: task.due_at or self.look.now)
        if not own:
            return self.finding.says, self.finding.cure, None
        task, more = own[0], len(own) - 1
        others = f"; {more} more later" if more else ""
        at = f"{task.due_at:%Y-%m-%d %H:%M:%S %Z}" if task.due_at else ""
        if task.error and (task.failures or task.restarts):
            count = task.failures + task.restarts
            says = f"failed {'once' if count == 1 else f'{count} times'}, and waits before it is tried again: "
            return says + clean(task.error, 120), f"tried again {self._ahead(task.due_at)}{others}", task.claimed_at
        says = f"waits for its time, {at}" if at else "waits for its time"
        return says, f"handed out {self._ahead(task.due_at)}{others}", task.ready_at

    def _unbegun(self) -> tuple[str, str, datetime | None]:
        name = clean(self.shown.name, 100)
        if self.finding.case is Case.NEVER_BEGUN:
            return "registered, and nobody has begun it", "the next sweep begins it", self.shown.registered_at
        then = f"a worker for {name} begins it, or recovery {self._ahead(self.look.looked_at)}"
        return "registered, and not begun yet", then, self.shown.registered_at

    def _queued(self) -> tuple[str, str]:
        queue = self.look.queue(self.finding.queue)
        match self.finding.case:
            case Case.NOBODY_POLLS:
                return self._nobody(queue)
            case Case.QUEUE_PAUSED:
                return (
                    f"{self.actor} is blocked",
                    f"nothing, until somebody lets it go on: tidemill actor unblock {shlex.quote(self.actor)}",
                )
            case Case.QUEUE_RESTS:
                why = clean(queue.rests_why or "what it needs does not answer", 120)
                return f"{self.actor} rests: {why}", f"it is tried again {self._ahead(queue.rests_until)}"
            case Case.SERVER_WAS_OFF:
                return "the database was off, and nobody has asked for work since", "workers ask again within seconds"
            case _:
                return self._behind(queue)

    def _nobody(self, queue: QueueLook) -> tuple[str, str]:
        if queue.removed:
            return f"{self.actor} is not declared any more", "nothing, until a release declares it: tidemill migrate"
        if queue.outside:
            last = f" since {self.span(self.look.now - queue.polled_at)}" if queue.polled_at else ""
            return f"nobody polls for {self.actor}{last}", "nothing, until its program asks for work: tidemill console"
        started = (
            f"nothing, until a worker is started that takes {clean(self.finding.queue or '', 120)}: tidemill doctor"
        )
        return f"no live worker takes the queue of {self.actor}", started

    def _behind(self, queue: QueueLook) -> tuple[str, str]:
        count = f"more than {COUNTED}" if queue.ahead > COUNTED else str(queue.ahead)
        others = f"behind {count} {'other' if queue.ahead == 1 else 'others'}" if queue.ahead else "the next one"
        says = f"{others} in the queue of {self.actor}"
        if self.finding.case is Case.OVERTAKEN:
            says += ", of which later ones were taken first, as a higher priority is"
        if queue.max_parallel is not None and queue.in_work >= queue.max_parallel:
            return f"{says}, of which {queue.max_parallel} may be in work at once, and are", "one of them ends"
        if queue.rate is not None:
            wait = self.span(timedelta(seconds=queue.ahead / queue.rate))
            return f"{says}, of which {queue.rate:g} are begun in a second", f"its turn comes in {wait} or so"
        by = f"{queue.slots} {'slot' if queue.slots == 1 else 'slots'}" if queue.slots else "who polls for it"
        return says, f"its turn comes: {by}, {queue.in_work} in work"

    def _wrong(self) -> tuple[str, str, datetime | None]:
        """Rows that disagree, or that are gone."""
        if self.finding.verdict is Verdict.BROKEN:
            then = f"nothing that would help: tidemill process restart {self.shown.id}"
            return self.finding.says, then, self.look.changed_at
        by_hand = f"tidemill recover operation start recover --process {self.shown.id}"
        then = f"recovery looks at it {self._ahead(self.look.looked_at)}: {self.finding.cure}; or at once: {by_hand}"
        return self.finding.says, then, self.look.changed_at


def _held_up(tasks: Sequence[TaskShown], numbers: Sequence[int]) -> int:
    """How many wait for these, or for what waits for them."""
    waiting = defaultdict[int, list[int]](list)
    for task in tasks:
        if task.state in (TaskState.PENDING, TaskState.FOLLOWS):
            for source in (*task.sources, *(() if task.value_of is None else (task.value_of,))):
                waiting[source].append(task.number)
    seen, left = set(numbers), list(numbers)
    while left:
        for number in waiting[left.pop()]:
            if number not in seen:
                seen.add(number)
                left.append(number)
    return len(seen) - len(set(numbers))


def told(reason: Reason) -> str:
    """`task 3–5: no live worker …`"""
    return f"task {listed(reason.tasks)}: {reason.says}" if reason.tasks else reason.says
