"""A line of the user's own code says what it was written for: in a job, a run, a visit, a step of a process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from app import logs
from app.alarm import alarm
from app.calling import CeleryCalls
from app.celery import app as celery_app
from app.jobs.run import Runner
from processes import start
from tests.kit import console, process_rows, process_world, reactive, stages_rows, tasks
from tests.kit.reactive import ORDERS, day
from tests.kit.waiting import wait_until
from tidemill import Delta, Run, Untouched, enqueue

LEASE = timedelta(seconds=60)
log = logging.getLogger("shop.own")


@pytest.fixture
def lines(database_url: str, broker_url: str, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """What each line of the user's was about, by its message."""
    before = logging.getLogRecordFactory()
    logs.note_ids()
    for name in (log.name, tasks.__name__):
        caplog.set_level(logging.INFO, name)

    def found() -> dict[str, Any]:
        own = [record for record in caplog.records if record.name in (log.name, tasks.__name__)]
        return {record.getMessage(): getattr(record, logs.ATTRIBUTE) for record in own}

    yield found
    logging.setLogRecordFactory(before)
    assert logs.known() == {}


def test_in_a_job(lines: Any) -> None:
    alarm.install()
    job_ids = [enqueue(tasks.say.s(word), queue="talk") for word in ("one", "two")]
    Runner(CeleryCalls(celery_app, "tests"), "tests/1", LEASE, lambda: False).serve("talk", 100)
    job = {"task": tasks.say.name, "queue": "talk", "attempt": 1}
    assert lines() == {
        "said 'one'": {"job_id": job_ids[0], **job},
        "said 'two'": {"job_id": job_ids[1], **job},
    }


def test_in_a_run(lines: Any) -> None:
    def body(run: Run) -> None:
        log.info("building %s", run.task)

    with reactive.world() as world:
        task = world.task("marts", Delta(*ORDERS, "1d"), body)
        reactive.advance(day(1))
        world.step()
        (run,) = reactive.runs(task)
    assert lines() == {
        f"building {task}": {"run_id": run.id, "task": task, "queue": "reactive.default", "attempt": 1},
    }


def test_in_a_stage(lines: Any) -> None:
    def wants(offer: Any, _state: object) -> bool:
        log.info("asked about %s", offer.id)
        return True

    def does(offer: Any, _state: object) -> Untouched:
        log.info("visiting %s", offer.id)
        return Untouched()

    with stages_rows.world() as stages:
        made = stages.stage("publish", wants=wants, does=does)
        stages.asked("a", "b")
        stages.serve("publish")
    found = lines()
    system = {"kind": "offer", "stage": "system", "queue": "stage.offer.system"}
    own = {"kind": "offer", "stage": "publish", "queue": "stage.offer.publish", "task": made.task, "attempt": 1}
    assert found == {
        **{f"asked about {each}": {"entity_id": each, **system} for each in "ab"},
        **{f"visiting {each}": {"entity_id": each, **own} for each in "ab"},
    }


class Calls(process_rows.Calls):
    """Each function says so when it is called."""

    def call_for_value(self, work: Any, name: str, args: Any, kwargs: Any, limit: float | None) -> Any:
        log.info("calling %s of %s", work.id, work.process_id)
        return super().call_for_value(work, name, args, kwargs, limit)


def test_in_a_step_of_a_process(lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with process_rows.world(monkeypatch):
        found = process_rows.begin(start(process_world.crowd, ["x"]))
        own = process_rows.server(Calls())
        own.serve("actor.crowd", 1)
        own.serve("actor.toil", 1)
    known = lines()
    assert known[f"calling 1 of {found}"] == {
        "process_id": found,
        "task_number": 1,
        "actor": "crowd",
        "task": f"{process_world.__name__}.crowd",
        "queue": "actor.crowd",
        "attempt": 1,
    }
    toils = [each for each in known.values() if each["actor"] == "toil"]
    assert [each["process_id"] for each in toils] == [found]


def test_in_a_request_over_http(database_url: str, broker_url: str, caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogRecordFactory()
    logs.note_ids()
    caplog.set_level(logging.INFO, "app.console.front")
    try:
        with console.serving() as url:
            caller = console.Caller(url, console.token("shown", "viewer"))
            assert caller.get("/api/v1/processes/7").status == 404
            assert caller.raw("GET", "/api/v1/processes/8", headers={}).status == 401
            wait_until(lambda: len(caplog.records) >= 2, 60)
    finally:
        logging.setLogRecordFactory(before)
    known, unknown = (getattr(record, logs.ATTRIBUTE) for record in caplog.records[:2])
    assert known == {"call": "show", "token": "shown", "process_id": 7}
    assert unknown == {}
