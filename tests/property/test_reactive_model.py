"""Reactive tasks against a naive model: values move, runs start, end, fail, die, people interfere (T11–T22)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from app.errors import BadRequest
from tests.kit import reactive as kit
from tests.kit.faults import crash_at
from tests.kit.reactive import day
from triggers import All, ChunkDelta, Delta, RefDelay, Run, operate
from triggers import Any as AnyOf
from triggers.definition import queue_of
from triggers.model import RUN, TASK, Ctl, CtlSeen
from triggers.trigger import Trigger

X, Y = ("e", "x"), ("e", "y")
Known = dict[tuple[str, str], int]
#: In quarters of a day.
MOMENTS = st.integers(0, 40)
PARAMETERS = st.sampled_from([X, Y])
MAX_FAILURES, LOST_MOST = 2, 10


def grown(current: Known, seen: Known, name: tuple[str, str], by: int) -> bool:
    return name in current and (name not in seen or current[name] - seen[name] >= by)


def later_day(current: Known, seen: Known, name: tuple[str, str]) -> bool:
    return name in current and (name not in seen or current[name] // 4 > seen[name] // 4)


@dataclass(frozen=True)
class Kind:
    """A trigger, and when it fires in the plainest words."""

    trigger: Trigger
    names: tuple[tuple[str, str], ...]
    fires: Callable[[Known, Known], bool]


KINDS = [
    Kind(Delta(*X, "12h"), (X,), lambda c, s: grown(c, s, X, 2)),
    Kind(ChunkDelta(*X, "day"), (X,), lambda c, s: later_day(c, s, X)),
    Kind(AnyOf(Delta(*X, "1d"), ChunkDelta(*Y, "day")), (X, Y), lambda c, s: grown(c, s, X, 4) or later_day(c, s, Y)),
    Kind(
        All(Delta(*X, "6h"), RefDelay(*X, *Y, "6h")),
        (X, Y),
        lambda c, s: grown(c, s, X, 1) and Y in c and c[Y] - c[X] <= 1,
    ),
]


@dataclass
class Live:
    manual: bool = False
    record: bool = True
    running: bool = False
    attempts: int = 0
    checked: dict[tuple[str, str], int | None] | None = None


@dataclass
class Task:
    kind: Kind
    seen: Known = field(default_factory=dict)
    epoch: int = 0
    run: Live | None = None
    failures: int = 0
    quarantine: Mapping[tuple[str, str], int | None] | None = None
    paused: bool = False


TASKS = ("a", "b")
NAMES = st.sampled_from(TASKS)
DURING = ["nothing", "advance", "rewind", "forget", "pause", "cancel", "declare", "poll"]


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        for table in ("run", "ctl", "ctl_change", "ctl_seen", "evaluation", "reactive_task"):
            kit.empty(table)
        self.block = kit.world()
        self.world = self.block.__enter__()
        self.current: Known = {}
        self.tasks = {name: Task(KINDS[number]) for number, name in enumerate(TASKS)}
        for name in TASKS:
            self._declare(name)
        self.world.sync()

    def _declare(self, name: str) -> None:
        self.world.declare(name, self.tasks[name].kind.trigger, pool=name, max_failures=MAX_FAILURES)

    # What the model knows.

    def snapshot(self, task: Task) -> dict[tuple[str, str], int | None]:
        return {name: self.current.get(name) for name in task.kind.names}

    def fires(self, task: Task) -> bool:
        return task.kind.fires(self.current, task.seen)

    def evaluated(self, task: Task) -> None:
        if task.paused or task.run is not None:
            return
        if task.quarantine is not None:
            if task.quarantine == self.snapshot(task):
                return
            task.quarantine, task.failures = None, 0
        if self.fires(task):
            task.run = Live()

    def failed(self, task: Task, run: Live) -> None:
        if run.manual:
            task.run = None
            return
        task.failures += 1
        if task.failures >= MAX_FAILURES:
            task.quarantine, task.run = run.checked or self.snapshot(task), None
        else:
            run.running = False

    def stopped(self, task: Task, run: Live) -> None:
        """By a person, or by itself. While a run waits, what it was checked with earlier is out of date."""
        if not run.manual:
            task.quarantine = (run.checked if run.running else None) or self.snapshot(task)
        task.run = None

    # What happens.

    @rule(name=PARAMETERS, at=MOMENTS)
    def advance(self, name: tuple[str, str], at: int) -> None:
        if at >= self.current.get(name, 0):
            kit.advance(day(at / 4), name)
            self.current[name] = at

    @rule(name=PARAMETERS, at=MOMENTS)
    def restate(self, name: tuple[str, str], at: int) -> None:
        kit.restate(day(at / 4), name)
        self.current[name] = at

    @rule()
    def poll(self) -> None:
        self.world.poll()
        for task in self.tasks.values():
            self.evaluated(task)

    @rule(
        name=NAMES,
        end=st.sampled_from(["succeed", "succeed", "fail", "cancel"]),
        during=st.sampled_from(DURING),
        at=MOMENTS,
    )
    def work(self, name: str, end: str, during: str, at: int) -> None:
        task, before = self.tasks[name], len(self.world.calls.runs)
        self.world.pass_backoff()

        def body(run: Run) -> None:
            self.interfere(name, during, at)
            if end == "fail":
                raise kit.Failed
            if end == "cancel":
                run.cancel("it says so")

        self.world.calls.bodies[f"{kit.MODULE}.{name}"] = body
        run, called = task.run, self.claimed(task)
        epoch = task.epoch
        server, rest = self.world.server(), iter([False])
        server.stopping = lambda: next(rest, True)
        server.serve(queue_of(name), 1)
        assert len(self.world.calls.runs) - before == called
        if run is not None and not run.running and not called:
            task.run = None
            self.evaluated(task)
        elif called and run is not None:
            self.ended(task, run, end, epoch)

    def claimed(self, task: Task) -> bool:
        """Whether the function is called."""
        run = task.run
        if run is None or run.running:
            return False
        run.attempts += 1
        if not run.manual and (task.paused or not self.fires(task)):
            return False
        run.running, run.checked = True, self.snapshot(task)
        return True

    def ended(self, task: Task, run: Live, end: str, epoch: int) -> None:
        if task.run is run:
            if end == "fail":
                self.failed(task, run)
            elif end == "cancel":
                self.stopped(task, run)
            else:
                task.run = None
                task.failures = task.failures if run.manual else 0
                if run.record and epoch == task.epoch and run.checked is not None:
                    task.seen |= {name: at for name, at in run.checked.items() if at is not None}
        self.evaluated(task)

    def interfere(self, name: str, during: str, at: int) -> None:
        match during:
            case "advance":
                self.advance(X, at)
            case "rewind":
                self.rewind(name, at)
            case "declare":
                self.declare(name, at % len(KINDS))
            case "nothing":
                pass
            case _:
                getattr(self, during)(*([] if during == "poll" else [name]))

    @rule(
        name=NAMES, point=st.sampled_from(["claim.committed", "run.checked", "run.before_body", "finish.before_commit"])
    )
    def die(self, name: str, point: str) -> None:
        """Its worker, as by a power failure."""
        task = self.tasks[name]
        run = task.run
        if run is None or run.running or not (run.manual or (not task.paused and self.fires(task))):
            return
        self.world.pass_backoff()
        self.world.calls.bodies[f"{kit.MODULE}.{name}"] = kit.nothing
        with crash_at(point):
            self.world.crash(lambda: self.world.serve(name))
        run.attempts, run.running = run.attempts + 1, True
        if point != "claim.committed":
            run.checked = self.snapshot(task)

    @rule()
    def sweep(self) -> None:
        self.world.sweep()
        for task in self.tasks.values():
            run = task.run
            if run is None or not run.running:
                continue
            if run.manual and run.attempts < LOST_MOST:
                run.running = False
                continue
            self.failed(task, run)
            self.evaluated(task)

    @rule(name=NAMES, record=st.booleans())
    def by_hand(self, name: str, record: bool) -> None:  # noqa: FBT001
        task = self.tasks[name]
        if task.run is not None:
            with pytest.raises(BadRequest):
                operate.start(f"{kit.MODULE}.{name}")
            return
        operate.start(f"{kit.MODULE}.{name}", record=record)
        task.run = Live(manual=True, record=record)

    @rule(name=NAMES, at=MOMENTS)
    def rewind(self, name: str, at: int) -> None:
        task = self.tasks[name]
        operate.rewind(f"{kit.MODULE}.{name}", day(at / 4))
        task.seen = {each: min(value, at) for each, value in task.seen.items()}
        task.epoch += 1
        self.evaluated(task)

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        task = self.tasks[name]
        operate.forget(f"{kit.MODULE}.{name}")
        task.seen, task.epoch = {}, task.epoch + 1
        self.evaluated(task)

    @rule(name=NAMES)
    def pause(self, name: str) -> None:
        task = self.tasks[name]
        operate.pause(f"{kit.MODULE}.{name}")
        task.paused = True
        if task.run is not None and not task.run.running and not task.run.manual:
            task.run = None

    @rule(name=NAMES)
    def resume(self, name: str) -> None:
        operate.resume(f"{kit.MODULE}.{name}")
        self.tasks[name].paused = False
        self.evaluated(self.tasks[name])

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        task = self.tasks[name]
        operate.release(f"{kit.MODULE}.{name}")
        task.quarantine, task.failures = None, 0
        self.evaluated(task)

    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        task = self.tasks[name]
        if task.run is None:
            with pytest.raises(BadRequest):
                operate.cancel(f"{kit.MODULE}.{name}")
            return
        operate.cancel(f"{kit.MODULE}.{name}")
        self.stopped(task, task.run)
        self.evaluated(task)

    @rule(name=NAMES, number=st.integers(0, len(KINDS) - 1))
    def declare(self, name: str, number: int) -> None:
        """Another release."""
        task = self.tasks[name]
        if task.kind is not KINDS[number]:
            task.kind, task.quarantine, task.failures = KINDS[number], None, 0
        self._declare(name)
        self.world.sync()

    # What must hold.

    @invariant()
    def the_tables_are_the_model(self) -> None:
        found = {
            row.name.rpartition(".")[2]: (row.failures, row.quarantined_at is not None, row.paused)
            for row in kit.execute(sa.select(TASK))
        }
        assert found == {
            name: (each.failures, each.quarantine is not None, each.paused) for name, each in self.tasks.items()
        }
        live = {
            row.task.rpartition(".")[2]: (row.state == "running", row.kind == "manual")
            for row in kit.execute(sa.select(RUN).where(RUN.c.ended_at.is_(None)))
        }
        assert live == {name: (each.run.running, each.run.manual) for name, each in self.tasks.items() if each.run}
        seen: dict[str, Known] = {name: {} for name in TASKS}
        for row in kit.execute(sa.select(CtlSeen.__table__)):
            seen[row.task.rpartition(".")[2]][(row.entity, row.parameter)] = quarters(row.value)
        assert seen == {name: each.seen for name, each in self.tasks.items()}
        values = {(row.entity, row.parameter): quarters(row.value) for row in kit.execute(sa.select(Ctl.__table__))}
        assert values == self.current

    def teardown(self) -> None:
        """T16, T17: when all is at rest, no trigger is left that should have fired."""
        try:
            for name in TASKS:
                self.resume(name)
                self.release(name)
            self.sweep()
            for _ in range(4):
                for name in TASKS:
                    self.work(name, "succeed", "nothing", 0)
                self.poll()
            assert [task.run for task in self.tasks.values()] == [None, None]
            assert not any(self.fires(task) for task in self.tasks.values())
            self.the_tables_are_the_model()
            assert kit.violations() == []
        finally:
            self.block.__exit__(None, None, None)


def quarters(value: Any) -> int:
    return int((value - kit.BEGIN).total_seconds() / 21_600)


@pytest.mark.usefixtures("database_url")
def test_reactive_tasks_do_what_the_model_does() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=35,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.usefixtures("database_url")
def test_what_a_waiting_run_was_checked_with_is_forgotten_when_it_is_cancelled() -> None:
    """The order of events that the model was wrong about, and that is rare among those that are drawn."""
    machine = Machine()
    machine.advance(X, 0)
    machine.poll()
    machine.work("a", "fail", "nothing", 0)
    machine.advance(X, 8)
    machine.cancel("a")
    machine.the_tables_are_the_model()
    machine.poll()
    machine.the_tables_are_the_model()
    machine.teardown()
