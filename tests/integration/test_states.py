"""The tables of the states are true: real work makes each of these moves, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from app.alarm import alarm
from app.calling import CeleryCalls
from app.celery import app as celery_app
from app.jobs import cancel, retry
from app.jobs.run import Runner
from processes import operate as process_operate
from processes import preferences, start
from processes import retention as process_retention
from stages import Untouched, queue
from stages.parked import Selection
from stages.redriving import redrive
from tests.kit import moves, process_kiosk, stages_rows, tasks
from tests.kit import reactive as kit
from tests.kit.moves import Moves
from tests.kit.reactive import ORDERS, advance, day
from tests.kit.stages_rows import execute
from tidemill import enqueue
from triggers import new_day, operate, reached
from triggers import retention as run_retention
from website.machines import DECISION, JOB, PROCESS, RUN, TASK, VISIT

MINUTE = timedelta(minutes=1)
pytestmark = pytest.mark.usefixtures("broker_url")


@pytest.fixture
def noted(engine: Engine) -> Iterator[Moves]:
    with moves.noted(engine) as found:
        yield found


def test_jobs(noted: Moves) -> None:
    alarm.install()
    runner = Runner(CeleryCalls(celery_app, "tests"), "tests/1", MINUTE, lambda: False)
    enqueue(tasks.noop.s())
    enqueue(tasks.asks_again.s("x"))
    bad, other = enqueue(tasks.fail.s("x")), enqueue(tasks.fail.s("y"))
    runner.serve("jobs", 100)
    retry(bad)
    cancel(other)
    cancel(enqueue(tasks.noop.s(), eta=MINUTE))
    assert noted.of(JOB) == JOB.pairs()


def test_runs(noted: Moves) -> None:
    with kit.world() as world:
        trigger = new_day(*ORDERS)
        world.task("good", trigger)
        world.task("bad", trigger, kit.fail, max_failures=2)
        world.task("gives_up", trigger, lambda run: run.cancel("no"))
        lapses = world.task("lapses", reached(*ORDERS, "day"), min_interval="0s")
        now = datetime.now(UTC)
        advance(now)
        world.poll()
        kit.restate(day(1))
        world.serve()
        world.pass_backoff()
        world.serve()
        assert kit.states(lapses) == ["lapsed"]
        waits = world.task("waits", trigger)
        world.poll()
        operate.pause(waits)
        # The latest run of each task is kept: so there is to be a later one.
        operate.resume(waits)
        advance(now)
        world.poll()
        kit.execute(text("update tidemill.run set ended_at = ended_at - interval '1 year', created_at = '2020-01-01Z'"))
        run_retention.run_once()
    assert noted.of(RUN) == RUN.pairs()


def test_visits(noted: Moves) -> None:
    def fails(entity: object, state: object) -> None:
        raise ZeroDivisionError("by zero")

    with stages_rows.world() as stages:
        stages.stage("fine", does=Untouched())
        stages.stage("later", does=Untouched(timer=timedelta(hours=1)))
        stages.stage("bad", does=fails, max_attempts=1)
        stages.sync()
        stages.put("a", "b", "c")
        stages.serve()
        for name in ("fine", "later", "bad"):
            stages.serve(name)
        redrive(Selection(ids=("a",)), execute("select now() as now")[0].now)
        queue.delete("b", "offer.later")
        execute("delete from offer where id = 'c'")
    assert noted.of(VISIT) == VISIT.pairs()


def test_processes(noted: Moves) -> None:
    process_kiosk.declare()
    good, bad, aborted, new = (
        start(process_kiosk.kiosk_order, *args) for args in (("x",), ("x", "many"), ("late",), ("z",))
    )
    process_operate.abort(new)
    process_kiosk.work()
    process_operate.abort(aborted)
    process_operate.restart(good, copy=True)
    for each in (good, bad, aborted):
        process_operate.restart(each)
    process_kiosk.work()
    preferences.configure("kiosk_order", {"retention": "0s"})
    process_retention.run_once()
    for machine, least in ((PROCESS, 10), (TASK, 16), (DECISION, 8)):
        found = noted.of(machine)
        assert found <= machine.pairs(), machine.name
        assert len(found) >= least, (machine.name, machine.pairs() - found)
