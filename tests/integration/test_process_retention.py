"""Forgetting processes that ended long ago: by their type, in batches, with all that belongs to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

import processes
from processes import operate, preferences, retention
from tests.kit import process_rows as r
from tests.kit import process_world as w

TABLES = ("process", "graph", "task", "edge", "decision", "answer", "broken_task")


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def _ended(days: int, count: int = 1) -> list[int]:
    found: list[int] = [processes.start(w.journey, number) for number in range(count)]
    r.serve("journey")
    r.execute(
        "UPDATE tidemill.process SET ended_at = now() - make_interval(days => :days) WHERE id = ANY(:ids)",
        days=days,
        ids=found,
    )
    return found


def _ids(session: Session, table: str = "process") -> set[int]:
    column = "id" if table == "process" else "process_id"
    return {row[0] for row in r.rows(session, f"SELECT DISTINCT {column} FROM tidemill.{table}")}  # noqa: S608


def test_what_ended_long_ago_is_forgotten(session: Session) -> None:
    old, young = _ended(31), _ended(29)
    assert retention.run_once() == retention.Report(1, more=False)
    for table in ("process", "graph", "task", "edge", "decision"):
        assert _ids(session, table) == set(young), table
    assert old != young
    assert r.check(session) == {}
    assert retention.run_once().forgotten == 0


def test_in_batches(session: Session) -> None:
    _ended(31, 5)
    reports = [retention.run_once(2) for _ in range(4)]
    assert [(report.forgotten, report.more) for report in reports] == [(2, True), (2, True), (1, False), (0, False)]
    for table in TABLES:
        assert _ids(session, table) == set(), table


def test_each_type_has_its_own_time(session: Session) -> None:
    journeys = _ended(3)
    crowds = [processes.start(w.crowd, [])]
    r.serve("crowd")
    r.execute("UPDATE tidemill.process SET ended_at = now() - interval '3 days'")
    preferences.configure("journey", {"retention": "2d"})
    assert retention.run_once().forgotten == 1
    assert _ids(session) == set(crowds)
    preferences.configure("crowd", {"retention": "0s"})
    assert retention.run_once().forgotten == 1
    assert journeys
    assert _ids(session) == set()


def test_what_goes_on_is_kept(session: Session) -> None:
    """However old: registered, active, broken."""
    preferences.configure("crowd", {"retention": "0s"})
    registered, active, broken, aborted = (processes.start(w.crowd, ["x"]) for _ in range(4))
    r.execute("UPDATE tidemill.process SET state = 'REGISTERED', registered_at = now() - interval '1 year'")
    r.begin(active)
    for handed in r.handed_out_together("crowd", 100):
        if handed.process_id == broken:
            r.badly(handed, final=True)
    operate.abort(aborted)
    assert retention.run_once().forgotten == 1
    assert _ids(session) == {registered, active, broken}


def test_a_failed_attempt_goes_with_its_process(session: Session) -> None:
    preferences.configure("crowd", {"retention": "0s"})
    found = r.begin(processes.start(w.crowd, ["x"]))
    handed = r.handed_out("crowd")
    r.badly(handed, final=True)
    r.well(handed)
    assert str(r.state(session, found)) == "FINISHED"
    assert _ids(session, "answer") == {found}
    assert retention.run_once().forgotten == 1
    for table in TABLES:
        assert _ids(session, table) == set(), table
    assert r.word(r.well(handed)) == "there is no such task"
    assert _ids(session, "answer") == set(), "nobody would ever forget it"


def test_one_that_an_operator_restarts_just_now_is_left_alone(session: Session, engine: Engine) -> None:
    (found,) = _ended(31)
    with engine.begin() as connection:
        connection.execute(sa.text("SELECT 1 FROM tidemill.process FOR UPDATE"))
        assert retention.run_once().forgotten == 0
    operate.restart(found)
    assert retention.run_once().forgotten == 0
    assert _ids(session) == {found}


def test_a_key_is_free_again_when_its_process_is_forgotten(session: Session) -> None:
    first = processes.start(w.journey, 1, idempotency_key="k")
    r.serve("journey")
    r.execute("UPDATE tidemill.process SET ended_at = now() - interval '31 days'")
    retention.run_once()
    assert processes.start(w.journey, 1, idempotency_key="k") != first
    assert _ids(session, "graph") == set()
