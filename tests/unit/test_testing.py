"""The test kit for users: a reactive task called by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadRequest, TidemillError
from app.registry import Registry
from tidemill import All, Run, new_day, reactive
from tidemill.testing import call
from triggers import registration

SOURCE, OTHER, MART = ("dds.orders", "loaded_to"), ("dds.rates", "loaded_to"), ("mart.orders", "built_to")
SINCE, UNTIL = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 7, 2, tzinfo=UTC)


def build(run: Run) -> None:
    since, until = run.window(*SOURCE)
    if run.value(*OTHER) is None:
        run.cancel("no rates")
    with run.transaction() as session:
        session.execute(sa.text("CREATE TABLE built AS SELECT :since AS since"), {"since": str(since)})
    run.advance("mart.orders", built_to=until)
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
