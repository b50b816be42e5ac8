"""The service against the naive evaluator, on a real database: whatever happens, in whatever order, what it has in mind
is what an evaluation of everything says, and at rest nothing that should have started has not (T16, T18, T19, T22)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any as Something
from typing import cast

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy.engine import Row

from app import claims
from app.claims import Claim, Cursor
from app.db import transaction
from app.errors import MovesBack
from tests.kit import reactive as kit
from tests.kit import service as services
from tests.kit.reactive import LEASE, World
from tests.kit.service import Follower
from tests.kit.waiting import pause, wait_until
from triggers import All, Any, ChunkDelta, ChunkRefDelay, Delay, Delta, RefDelay, ctl, endings, operate, polling, work
from triggers.definition import queue_of
from triggers.model import RUN, TASK, CtlSeen, ReactiveTask, TaskRun
from triggers.starting import same_input, startable
from triggers.trigger import Trigger, from_json
from triggers.values import read

PARAMETERS = [("e0", "p"), ("e0", "q"), ("e1", "p")]
NAMES = ["t0", "t1", "t2", "t3"]
#: Time goes on by itself: what is `fresh` is so for a moment of a few steps.
FRESH = "1h"
BEGIN = datetime.now(UTC) - timedelta(hours=1)
parameters = st.sampled_from(PARAMETERS)


@st.composite
def leaves(draw: st.DrawFn) -> Something:
    one, other = draw(st.permutations(PARAMETERS))[:2]
    return draw(
        st.sampled_from(
            [
                Delta(*one, draw(st.sampled_from(["10s", "1min", "1h"]))),
                ChunkDelta(*one, "1min", draw(st.sampled_from([None, 2]))),
                Delay(*one, FRESH),
                RefDelay(*one, *other, draw(st.sampled_from(["0s", "1min"]))),
                ChunkRefDelay(*one, *other, "1min"),
            ]
        )
    )


@st.composite
def triggers(draw: st.DrawFn) -> Trigger:
    found = draw(st.lists(leaves(), min_size=1, max_size=3))
    if len(found) == 1:
        return cast(Trigger, found[0])
    return All(*found) if draw(st.booleans()) else Any(*found)


#: From the beginning, which is an hour ago: what lies below zero is not fresh, a little above it will not be soon.
moments = st.integers(-120, 300).map(lambda each: timedelta(seconds=each)) | st.integers(1, 200).map(
    lambda each: datetime.now(UTC) - BEGIN - timedelta(hours=1) + timedelta(milliseconds=each)
)
options = st.fixed_dictionaries(
    {
        "min_interval": st.sampled_from(["0s", "50ms", "1h"]),
        "first_run": st.sampled_from(["fire", "baseline"]),
        "max_failures": st.sampled_from([1, 2]),
        "priority": st.integers(0, 2),
    }
)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        for each in (TaskRun, CtlSeen, ReactiveTask):
            kit.execute(sa.delete(each))
        kit.empty("ctl")
        self.context = kit.world()
        self.world: World = self.context.__enter__()
        self.follower = Follower()
        self.held: list[tuple[Claim, str]] = []
        #: After every step, or only now and then.
        self.always_rests = False

    def teardown(self) -> None:
        self.context.__exit__(None, None, None)

    @initialize(data=st.data(), always_rests=st.booleans())
    def some_tasks(self, data: st.DataObject, always_rests: bool) -> None:  # noqa: FBT001
        self.always_rests = always_rests
        for name in NAMES[:2]:
            self.declare(name, data.draw(triggers()), data.draw(options))
        self.follower.once()

    @rule(name=st.sampled_from(NAMES), trigger=triggers(), more=options)
    def declare(self, name: str, trigger: Trigger, more: dict[str, Something]) -> None:
        """A new task, or one whose trigger is edited."""
        task = f"{kit.MODULE}.{name}"
        if task in self.world.calls.bodies:
            self.world.undeclare(task)
        self.world.declare(name, trigger, **more)
        self.world.sync()

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        task = f"{kit.MODULE}.{name}"
        if self.world.calls.bodies.pop(task, None) is not None:
            self.world.undeclare(task)
            self.world.sync()

    @rule(parameter=parameters, moment=moments)
    def advance(self, parameter: tuple[str, str], moment: timedelta) -> None:
        try:
            kit.advance(BEGIN + moment, parameter)
        except MovesBack:
            kit.restate(BEGIN + moment, parameter)

    @rule(parameter=parameters, moment=moments)
    def restate(self, parameter: tuple[str, str], moment: timedelta) -> None:
        kit.restate(BEGIN + moment, parameter)

    @rule(parameter=parameters)
    def nudge(self, parameter: tuple[str, str]) -> None:
        """So little that few conditions turn."""
        if (value := ctl.get(*parameter)) is not None:
            kit.restate(value + timedelta(seconds=1), parameter)

    @rule()
    def time_passes(self) -> None:
        pause(0.06)

    @rule(limit=st.sampled_from([1, 2, 100]))
    def follow(self, limit: int) -> None:
        self.follower.once(limit)

    @rule()
    def poll(self) -> None:
        """The MVP pass, beside it."""
        self.world.poll()

    @rule(body=st.sampled_from([kit.nothing, kit.fail]))
    def serve(self, body: Callable[[Something], None]) -> None:
        """A worker that works everything off."""
        self.world.calls.bodies.update(dict.fromkeys(self.world.calls.bodies, body))
        self.world.pass_backoff()
        self.world.serve()

    @rule()
    def claim(self) -> None:
        claim = claims.take(Cursor(TaskRun, queue_of("default")), 1, worker="w", lease=LEASE)
        self.held += [(claim, row.task) for row in claim.rows]
        for row in claim.rows:
            self.check(row)

    def check(self, run: Row[Something]) -> None:
        """As a worker does, before it calls the function."""
        with transaction() as session:
            task = session.execute(sa.select(*TASK.c).where(TASK.c.name == run.task)).one()
            trigger = from_json(task.trigger)
            checked = read(session, [(run.task, trigger)]).snapshot(run.task, trigger)
            begun = {"checked": checked, "seen_epoch": task.seen_epoch, "started_at": sa.func.clock_timestamp()}
            session.execute(sa.update(RUN).where(RUN.c.id == run.id).values(**begun))

    @precondition(lambda self: self.held)
    @rule(how=st.sampled_from(["done", "fail", "lose"]))
    def end(self, how: str) -> None:
        claim, task = self.held.pop(0)
        with transaction() as session:
            if how == "done":
                endings.done(session, claim.rows[0], claim.pass_key, {}, lambda: None)
            elif how == "fail":
                endings.failed(session, claim.rows[0].id, task, claim.pass_key, "on purpose")
        if how == "lose":
            self.world.sweep()
            self.held.clear()

    @rule(act=st.sampled_from([operate.pause, operate.resume, operate.release, operate.forget]), data=st.data())
    def operate(self, act: Callable[[str], object], data: st.DataObject) -> None:
        if known := sorted(services.names()):
            act(data.draw(st.sampled_from(known)))

    @rule()
    def restart(self) -> None:
        self.follower.replace()

    @invariant()
    def memory_is_what_an_evaluation_of_everything_says(self) -> None:
        for _ in range(services.MOST_PASSES):
            if not self.follower.once().more:
                break
        else:
            raise AssertionError(f"always more: {self.follower.reports[-1]}")
        if self.follower.service.memory is not None:
            assert services.differing(self.follower.memory) == {}
            assert not any(each.differences for each in self.follower.reports)

    @rule()
    def at_rest_nothing_waits_that_should_have_started(self) -> None:
        """Time goes on between two looks: a rest may end. So it must be true in the end, not at once."""
        wait_until(lambda: self.rested() == [], what="everything has started")

    def rested(self) -> list[str]:
        self.follower.rest()
        return should_start()

    @invariant()
    def nothing_waits_after_any_step(self) -> None:
        if self.always_rests:
            self.at_rest_nothing_waits_that_should_have_started()

    @invariant()
    def every_rule_of_runs_holds(self) -> None:
        assert kit.violations() == []


def should_start() -> list[str]:
    """By the evaluator, from what is stored, task by task."""
    found = []
    with services.one_snapshot() as session:
        for row in session.execute(sa.select(*TASK.c).where(startable(sa.func.clock_timestamp()))).all():
            trigger = from_json(row.trigger)
            values = read(session, [(row.name, trigger)])
            held = row.quarantined_at is not None and same_input(row.quarantine_values, values, row.name, trigger)
            unseen = any(
                leaf.needs_seen and (leaf.entity, leaf.parameter) not in values.seen.get(row.name, {})
                for leaf in trigger.leaves
            )
            if not held and values.check(row.name, trigger).fired and not (unseen and row.first_run == "baseline"):
                found.append(row.name)
    return found


@pytest.mark.usefixtures("database_url")
def test_the_service_knows_what_the_naive_evaluator_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # What fires again at once has always more to do.
    monkeypatch.setattr(work, "TICKET_SECONDS", 0.2)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            # Time goes on by itself: a failure that is made again, to make it smaller, is another one.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_oracle_finds_what_should_start(database_url: str) -> None:
    """It would say so: with nobody to start it, and as the MVP pass does."""
    with kit.world() as world:
        task = world.task("t", Delta(*PARAMETERS[0], "1min"))
        assert should_start() == []
        kit.advance(BEGIN, PARAMETERS[0])
        assert should_start() == [task]
        assert polling.run_once().started == 1
        assert should_start() == []
