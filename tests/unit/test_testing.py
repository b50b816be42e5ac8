"""The test kit for users: a job or a reactive task called by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from celery import shared_task
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotJson, TidemillError
from app.registry import Registry
from tidemill import All, Run, batched, new_day, reactive, this_job
from tidemill.testing import call, call_job
from triggers import registration

SOURCE, OTHER, MART = ("dds.orders", "loaded_to"), ("dds.rates", "loaded_to"), ("mart.orders", "built_to")
SINCE, UNTIL = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 7, 2, tzinfo=UTC)


def build(run: Run) -> None:
    since, until = run.window(*SOURCE)
    if run.value(*OTHER) is None:
        run.cancel("no rates")
    run.advance("mart.orders", built_to=until)
    with run.transaction() as session:
        session.execute(sa.text("CREATE TABLE built AS SELECT :since AS since"), {"since": str(since)})
    run.heartbeat()


def refresh() -> None:
    raise LookupError


def strays(run: Run) -> None:
    run.advance("mart.other", built_to=UNTIL)


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this test alone, and unknown to Celery."""
    monkeypatch.setattr(registration, "registry", Registry())
    before = dict(registration.declared)
    for task in (build, refresh, strays):
        reactive(All(new_day(*SOURCE), new_day(*OTHER)), produces=[MART])(task)
    yield
    registration.declared.clear()
    registration.declared.update(before)


@pytest.fixture
def memory() -> Iterator[Session]:
    engine = sa.create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_a_task_gets_its_windows_and_what_it_advances_is_kept(memory: Session) -> None:
    run = call(build, {SOURCE: (SINCE, UNTIL), OTHER: (None, UNTIL)}, session=memory)
    assert run.outputs == {MART: UNTIL}
    assert run.ended
    assert memory.scalar(sa.text("SELECT since FROM built")) == str(SINCE)


def test_a_parameter_without_a_value_is_missing_and_a_task_may_give_up(memory: Session) -> None:
    run = call(build, {SOURCE: (SINCE, UNTIL)}, session=memory)
    assert run.cancelled == "no rates"
    assert not run.ended
    with pytest.raises(BadRequest, match=r"dds\.orders\.loaded_to had no value"):
        call(build, {}, session=memory)


def test_what_a_task_raises_is_raised() -> None:
    with pytest.raises(LookupError):
        call(refresh, {})


def test_what_is_not_produced_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"mart\.other\.built_to"):
        call(strays, {})


def test_mistakes_of_the_test_are_told() -> None:
    with pytest.raises(BadRequest, match=r"does not rest on dds\.order\.loaded_to; .*dds\.orders\.loaded_to"):
        call(build, {("dds.order", "loaded_to"): (None, UNTIL)})
    with pytest.raises(BadRequest, match="is no reactive task"):
        call(test_what_a_task_raises_is_raised, {})


def test_a_run_made_by_hand_has_no_transaction() -> None:
    run = Run({SOURCE: (None, UNTIL)})
    assert run.window(*SOURCE) == (None, UNTIL)
    with pytest.raises(TidemillError), run.transaction():
        pass


@shared_task(bind=True, name="test_testing.ship", max_retries=4, autoretry_for=(LookupError,))
def ship(self: Any, parts: list[int], *, fails: bool = False) -> list[Any]:
    job = this_job()
    job.heartbeat()
    if fails:
        raise LookupError(self.request.retries)
    return [parts, job.id, job.key, job.queue, job.attempt, job.max_attempts, bool(job.idempotency_key)]


@shared_task(name="test_testing.note")
def note(twice: bool) -> str:  # noqa: FBT001 - as arguments of jobs come
    for _ in range(1 + twice):
        with this_job().transaction() as session:
            session.execute(sa.text("CREATE TABLE noted AS SELECT 1 AS one"))
    return "noted"


@shared_task(name="test_testing.many")
@batched(10)
def many(calls: list[Any]) -> None:
    raise AssertionError


def test_a_job_knows_itself_and_gets_its_arguments_as_they_come_out_of_the_row() -> None:
    assert call_job(ship.s((1, 2))) == [[1, 2], 1, None, "jobs", 1, 5, True]
    assert call_job(ship.s([]).set(queue="other"), attempt=3)[3:5] == ["other", 3]
    with pytest.raises(NotJson):
        call_job(ship.s({1}))


def test_what_a_job_raises_is_raised_and_not_tried_again() -> None:
    with pytest.raises(LookupError, match=r"^2$"):
        call_job(ship.s([], fails=True), attempt=3)
    with pytest.raises(TidemillError, match="no job runs here"):
        this_job()


def test_a_job_ends_once_in_the_session_of_the_test(memory: Session) -> None:
    assert call_job(note.s(twice=False), session=memory) == "noted"
    assert memory.scalars(sa.text("SELECT one FROM noted")).all() == [1]
    memory.execute(sa.text("DROP TABLE noted"))
    with pytest.raises(TidemillError, match="has ended with its first"):
        call_job(note.s(twice=True), session=memory)


def test_only_single_jobs_can_be_called() -> None:
    with pytest.raises(BadRequest, match="takes many jobs at a time: call it with a list of Call"):
        call_job(many.s(1))
    with pytest.raises(BadRequest, match="is not a Celery signature"):
        call_job(note)  # type: ignore[arg-type]
