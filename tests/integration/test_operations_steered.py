"""Operations that are paused, resumed and cancelled, by somebody or by themselves; and their pace (R9, R11)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from app.errors import BadRequest, NotFound
from recovery import operations
from recovery.operations import pacing, running
from tests.kit import operation_rows as o
from tests.kit import process_rows as r
from tests.kit.faults import pause_at
from tests.kit.waiting import wait_until


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def test_paused_and_resumed(session: Session) -> None:
    o.broken(session, 30)
    found = o.over_broken()
    running.run_once(10)
    assert operations.pause(found)
    assert not operations.pause(found)
    assert running.run_once(10) == running.Report()
    assert o.counts(found) == ("PAUSED", 30, 10, 0, 0)
    assert operations.resume(found, rate="10/s")
    assert not operations.resume(found)
    assert operations.show(found).rate == 10
    operations.resume(found, rate=None)
    o.work_off(10)
    assert o.counts(found) == ("DONE", 30, 30, 0, 0)
    for change in (operations.pause, operations.resume, operations.cancel):
        with pytest.raises(BadRequest, match="is DONE and cannot be"):
            change(found)
        with pytest.raises(NotFound):
            change(999)
    audits = [row.action for row in session.execute(sa.select(Audit.action).order_by(Audit.id))]
    assert audits == [f"operation.{word}" for word in ("start", "pause", "resume", "resume")]


def test_cancelled_while_a_batch_is_under_way(session: Session) -> None:
    """It does not wait for the batch, whose outcomes are counted all the same."""
    o.broken(session, 30)
    found = o.over_broken()
    with pause_at("operation.turn_taken") as paused, ThreadPoolExecutor(1) as threads:
        batch = threads.submit(running.run_once, 10)
        paused.wait(60)
        operations.cancel(found, reason="enough")
        paused.go_on()
        batch.result(60)
    told = operations.show(found)
    assert (str(told.state), told.done) == ("CANCELLED", 10)
    assert o.work_off() == [running.Report()]
    assert len(r.rows(session, "SELECT 1 FROM tidemill.broken_task")) == 20


def test_thousands_show_progress_and_are_cancelled_while_they_run(session: Session) -> None:
    """Cancelled, it does no more than the batch that it is at."""
    o.broken(session, 5000)
    found = o.over_broken()
    stop = threading.Event()

    def service() -> None:
        while not stop.is_set():
            running.run_once(50)

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(service) for _ in range(2)]
        try:
            wait_until(lambda: operations.show(found).done > 100, 60)
            seen = operations.show(found)
            assert seen.left is not None
            assert 0 < seen.percent < 100
            operations.cancel(found)
            then = operations.show(found).done
        finally:
            stop.set()
        for each in both:
            each.result(60)
    told = operations.show(found)
    assert told.done <= then + 2 * 50
    assert told.done == len(r.rows(session, "SELECT 1 FROM tidemill.decision WHERE number = 2 AND epoch = 1"))


def test_the_important_one_comes_first_and_equals_take_turns(session: Session) -> None:
    o.broken(session, 20)
    low, high, same = (o.over_broken(priority=each) for each in (0, 1, 1))
    turns = [running.run_once(10).operation_id for _ in range(6)]
    assert turns == [high, same, high, same, low, low]


def test_a_rate_holds_however_often_somebody_comes_by(session: Session) -> None:
    o.broken(session, 5)
    found = o.over_broken(rate="1/h")
    assert [report.done for report in o.work_off()] == [1, 0]
    ahead = "SELECT extract(epoch FROM next_at - now()) AS ahead FROM tidemill.operation"
    assert 3000 < r.rows(session, ahead)[0].ahead < 3601
    # Nobody came by for a while: no more of it is made up for than a burst.
    r.execute("UPDATE tidemill.operation SET next_at = now() - interval '1 day', rate = 0.5")
    assert [report.done for report in o.work_off()] == [1, 1, 0]
    assert operations.show(found).done == 3


def test_what_is_restarted_is_handed_out_at_the_pace(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # R11
    # However slow the machine is, the pass does not lag behind by that much.
    monkeypatch.setattr(pacing, "SPREAD_SECONDS", 600.0)
    o.broken(session, 20)
    o.over_broken(rate="40/s")
    assert running.run_once().done == 10
    due = r.rows(session, "SELECT not_before - now() AS ahead FROM tidemill.decision WHERE state = 'QUEUED' ORDER BY 1")
    apart = [(b.ahead - a.ahead).total_seconds() for a, b in pairwise(due)]
    assert len(due) == 10
    assert 0.1 < sum(apart) < 0.3
    assert len({round(each, 4) for each in apart}) > 3, "not all at the same distance"


def test_it_pauses_itself_when_half_fails(session: Session) -> None:
    there = o.broken(session, 60)
    o.stuck(session, there[10::2])
    found = o.over_broken()
    o.work_off(10)
    told = operations.show(found)
    assert str(told.state) == "PAUSED"
    assert told.why == "10 of the last 20 items failed"
    assert told.ended < 40
    o.free(session)
    operations.resume(found)
    o.work_off()
    assert operations.show(found).why is None
    assert str(operations.show(found).state) == "DONE"


def test_it_pauses_itself_when_what_it_restarts_breaks_again(session: Session) -> None:
    o.broken(session, 60)
    found = o.over_broken()
    running.run_once(25)
    for _ in range(25):
        r.badly(r.handed_out("toil"), final=True)
    running.run_once(5)
    told = operations.show(found)
    assert str(told.state) == "PAUSED"
    assert "20 failed or broke again" in (told.why or "")
    assert told.done == 30
