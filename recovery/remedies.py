"""What is done about each finding, for many processes at once. Under their locks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection

from processes import inconsistent, starting
from processes.model import Key
from processes.states import ProcessState
from recovery import tangle, writing
from recovery.diagnose import INCONSISTENT, ProcessFacts
from recovery.findings import Case, Finding

log = logging.getLogger(__name__)

_LOST = (Case.TASK_LOST, Case.VALUE_LOST, Case.WAITS_FOR_NOTHING)
#: After these the graph is counted anew.
_COUNTED = tangle.CASES | {Case.GRAPH_LOST, Case.NO_START_TASK, Case.WRONG_COUNTS, Case.WRONG_CLOCK}
#: What the graph counts says in which state the process is.
_SETTLED = frozenset({Case.ALL_DONE, Case.ENDED_TOO_EARLY, Case.NOT_BROKEN, Case.BROKEN_FOR_NOTHING})


@dataclass
class Remedies:
    connection: Connection
    processes: Mapping[int, ProcessFacts]
    findings: Mapping[int, Sequence[Finding]]
    #: Begun anew.
    renewed: set[int] = field(default_factory=set)
    #: What was queued, by its actor; and which actors have something to do, by process.
    queued: dict[Key, str] = field(default_factory=dict)
    ready: dict[int, set[str]] = field(default_factory=dict)

    def apply(self) -> None:
        self._give_up()
        self._begin()
        self._mend()
        self._place()
        writing.abort_tasks(self.connection, self._with(Case.NOT_ABORTED))
        self._count()
        self._tell()
        if times := self._with(Case.WRONG_END, Case.WRONG_CLOCK):
            writing.set_times(self.connection, times)
        if late := self._with(Case.OVER_TIME):
            writing.break_late(self.connection, late)

    def _with(self, *cases: Case) -> list[int]:
        return [
            process_id
            for process_id, found in self.findings.items()
            if process_id not in self.renewed and any(each.case in cases for each in found)
        ]

    def _keys(self, *cases: Case) -> list[Key]:
        return [
            (process_id, number)
            for process_id in self._with(*cases)
            for each in self.findings[process_id]
            if each.case in cases
            for number in each.tasks
        ]

    def _give_up(self) -> None:
        """R3: what nobody can put right."""
        for process_id in self._with(*_LOST):
            if self.processes[process_id].restarts_when_inconsistent:
                log.warning("process %s is restarted: %s", process_id, _words(self.findings[process_id]))
                inconsistent.renew(self.connection, process_id)
                self.renewed.add(process_id)
        lost = self._with(*_LOST)
        if lost:
            told = {process_id: f"{INCONSISTENT}: {_words(self.findings[process_id])}" for process_id in lost}
            for process_id, words in told.items():
                log.error("process %s is broken: %s", process_id, words)
            writing.break_off(self.connection, told.items())
        gone = self._with(Case.PROCESS_LOST)
        if gone:
            writing.unwatch(self.connection, gone)
        self._end_open([*lost, *gone, *self._ended()])

    def _ended(self) -> list[int]:
        over = (ProcessState.FINISHED, ProcessState.ABORTED)
        return [each for each in self._with(Case.OPEN_DECISION) if self.processes[each].state in over]

    def _end_open(self, ids: Sequence[int]) -> None:
        """Decisions of what is not there any more."""
        rows = []
        for process_id in ids:
            of = self.processes[process_id]
            over = of.state is None or of.state in (ProcessState.FINISHED, ProcessState.ABORTED)
            numbers = set(of.open)
            if over:
                numbers |= {task.number for task in of.tasks if task.open}
            why = f"the process is {of.state}" if over and of.state else f"{INCONSISTENT}: nobody waits for it"
            rows += [(process_id, number, why, False) for number in numbers]
        writing.end(self.connection, rows)

    def _begin(self) -> None:
        if never := self._with(Case.NEVER_BEGUN):
            for process_id, name in starting.begin(self.connection, never).items():
                self.ready.setdefault(process_id, set()).add(name)
        if starts := self._with(Case.NO_START_TASK):
            writing.make_start(self.connection, starts)

    def _mend(self) -> None:
        ids = self._with(*tangle.CASES, Case.NO_START_TASK)
        on = {each: self.processes[each] for each in ids if self._goes_on(each)}
        if not on:
            return
        held = dict[int, set[int]]()
        for process_id, number in self._keys(Case.WAITS_FOR_NOTHING):
            held.setdefault(process_id, set()).add(number)
        mended = tangle.mend(self.connection, on, held)
        self._put_back(mended.queued)
        self._done = mended.done

    _done: set[int] = field(default_factory=set)

    def _goes_on(self, process_id: int) -> bool:
        of = self.processes[process_id]
        finished = of.state is ProcessState.FINISHED and not of.counted.unfinished
        return of.state not in (None, ProcessState.ABORTED, ProcessState.REGISTERED) and not finished

    def _place(self) -> None:
        keys = self._keys(Case.NOT_CLAIMABLE, Case.UNWATCHED_WORK)
        if not keys:
            return
        writing.put_right(self.connection, keys)
        actors = {(each.id, task.number): task.actor for each in self.processes.values() for task in each.tasks}
        self._put_back({key: actors[key] for key in keys})

    def _put_back(self, queued: Mapping[Key, str]) -> None:
        self.queued |= queued
        for (process_id, _), actor in queued.items():
            self.ready.setdefault(process_id, set()).add(actor)

    def _count(self) -> None:
        counted = [each for each in self._with(*_COUNTED) if self.processes[each].state is not None]
        if counted:
            writing.count(self.connection, counted)
        settled = {*self._with(*_SETTLED), *self._done} - set(self._with(*_LOST))
        if sound := sorted(each for each in settled if self._sound(each)):
            writing.settle(self.connection, sound)
            # When recovery looks at them goes by their state.
            writing.count(self.connection, sound)

    def _sound(self, process_id: int) -> bool:
        of = self.processes[process_id]
        return not (of.declared or of.lost or of.valueless)

    def _tell(self) -> None:
        if told := self._keys(Case.NOT_TOLD):
            writing.tell(self.connection, told)
        if vain := self._keys(Case.TOLD_IN_VAIN):
            writing.untell(self.connection, vain)


def _words(findings: Sequence[Finding]) -> str:
    first = next(each for each in findings if each.case in _LOST)
    of = ", ".join(str(number) for number in first.tasks[:10])
    return f"{first.says}, task {of}" if len(first.tasks) == 1 else f"{first.says}, tasks {of}"
