"""From who put work in to its end: one trace, whoever does what (W3C traceparent in the row)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from sqlalchemy.orm import Session

from app.alarm import alarm
from app.calling import CeleryCalls
from app.celery import app as celery_app
from app.jobs.model import Job
from app.jobs.run import Runner
from processes import start
from tests.kit import process_rows, process_world, reactive, stages_rows, tasks
from tests.kit.process import ROOT
from tests.kit.reactive import ORDERS, day
from tests.kit.traces import Spans, kept, number, traces
from tidemill import Delta, enqueue, enqueue_many

LEASE = timedelta(seconds=60)


@pytest.fixture
def spans(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with kept(monkeypatch) as found:
        yield found


def serve() -> None:
    alarm.install()
    Runner(CeleryCalls(celery_app, "tests"), "tests/1", LEASE, lambda: False).serve("jobs", 100)


def test_a_job(spans: Spans) -> None:
    with trace.get_tracer("shop").start_as_current_span("checkout"):
        job_id = enqueue(tasks.noop.s())
    serve()
    checkout, put_in = spans.one("checkout"), spans.one(f"put in {tasks.noop.name}")
    waited, work, ended = spans.one("wait jobs"), spans.one(tasks.noop.name), spans.one(f"end {tasks.noop.name}")
    assert len(traces(spans.all())) == 1
    assert [spans.parent(each) for each in (put_in, waited, work, ended)] == [checkout, put_in, put_in, work]
    assert (put_in.kind, work.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert work.attributes is not None
    assert {name: work.attributes[f"tidemill.{name}"] for name in ("kind", "job_id", "attempt", "outcome")} == {
        "kind": "job",
        "job_id": job_id,
        "attempt": 1,
        "outcome": "done",
    }
    assert waited.start_time is not None
    assert waited.end_time is not None
    assert waited.start_time <= waited.end_time


def test_jobs_that_were_put_in_together(spans: Spans) -> None:
    enqueue_many([tasks.noop.s(), tasks.noop.s()])
    serve()
    put_in = spans.one("put in 2 jobs")
    assert [spans.parent(each) for each in spans.named(tasks.noop.name)] == [put_in, put_in]


def test_a_try_links_to_the_one_before(spans: Spans, session: Session) -> None:
    enqueue(tasks.asks_again.s("x"))
    for _ in range(3):
        session.execute(sa.update(Job).values(not_before=None))
        session.commit()
        serve()
    first, second, third = spans.named(tasks.asks_again.name)
    assert len(traces(spans.all())) == 1
    assert {spans.parent(each) for each in (first, second, third)} == {spans.one(f"put in {tasks.asks_again.name}")}
    assert (spans.linked(first), spans.linked(second), spans.linked(third)) == ([], [first], [second])
    assert {each.status.status_code for each in (first, second, third)} == {StatusCode.ERROR}


def test_an_error_has_no_secret(spans: Spans) -> None:
    enqueue(tasks.fail.s("redis://me:s3cr3t@broker"))
    serve()
    (failed,) = spans.named(tasks.fail.name)
    assert failed.status.description is not None
    assert "failed on" in failed.status.description
    assert "s3cr3t" not in failed.to_json()


def test_a_process(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    with process_rows.world(monkeypatch):
        process_id = process_rows.begin(start(process_world.crowd, ["x", "y"]))
        own = process_rows.server(process_rows.Calls())
        own.serve("actor.crowd", 1)
        for _ in range(2):
            own.serve("actor.toil", 1)
    put_in = spans.one("put in crowd")
    steps = [*spans.named(f"{process_world.__name__}.crowd"), *spans.named(f"{process_world.__name__}.toil")]
    assert len(steps) == 3
    assert {spans.parent(each) for each in steps} == {put_in}
    assert {each.attributes["tidemill.process_id"] for each in steps if each.attributes} == {process_id}
    assert len(traces(spans.all())) == 1
    ends = [span for span in spans.all() if span.name.startswith("end ")]
    assert {number(each) for each in map(spans.parent, ends) if each is not None} <= {number(each) for each in steps}
    assert ends


def test_runs_and_visits_begin_traces_of_their_own(spans: Spans) -> None:
    with reactive.world() as world:
        task = world.task("marts", Delta(*ORDERS, "1d"), reactive.fail)
        reactive.advance(day(1))
        world.step()
    with stages_rows.world() as stages:
        made = stages.stage("publish")
        stages.asked("a")
        stages.serve("publish")
    run, visit = spans.one(task), spans.one(made.task)
    assert (run.status.status_code, visit.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert (spans.parent(run), spans.parent(visit)) == (None, None)
    assert visit.attributes is not None
    assert visit.attributes["tidemill.entity_id"] == "a"
    assert spans.one("wait stage.offer.publish").parent is None


def test_without_it_nothing_is_written_or_imported(database_url: str, session: Session) -> None:
    job_id = enqueue(tasks.noop.s())
    assert session.get_one(Job, job_id).trace is None
    code = (
        "import sys, tidemill, app.celery, app.tracing as t\n"
        "assert t.put_in('a', 'b') is t.OFF and t.work('job', 'a', None) is t.OFF and t.end('a') is t.OFF\n"
        "assert not [each for each in sys.modules if each.startswith('opentelemetry')]\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
