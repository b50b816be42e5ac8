"""What `tidemill doctor` and `tidemill status` say of repairs and of operations that stand still."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from sqlalchemy.orm import Session

from app.cli.status import status
from app.db import transaction
from app.health import recovery as health
from app.health import work
from app.health.finding import Level
from recovery import operations, record
from recovery.operations import running
from recovery.record import Repaired
from tests.kit import operation_rows as o
from tests.kit import process_rows as r


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def _repaired(finding: str, operation_id: int | None = None) -> None:
    with transaction() as tx:
        record.record(tx, [Repaired(record.PROCESS, "1/2", finding, "queued")], operation_id)


def _status() -> str:
    return CliRunner().invoke(status).output


def test_repairs_of_damage_are_told_and_lost_claims_are_usual(session: Session) -> None:
    # R7
    assert health.repairs(session).detail == "none in the last 1h"
    _repaired(record.WORK_TIMEOUT)
    _repaired("not_queued", operation_id=3)
    found = health.repairs(session)
    assert found.level is Level.OK
    assert "work_timeout 1" in found.detail
    assert "not_queued" not in found.detail, "an operator has asked for it"
    _repaired("not_queued")
    found = health.repairs(session)
    assert (found.level, found.detail) == (
        Level.WARN,
        "rows that disagreed were put right in the last 1h: not_queued 1",
    )
    r.execute("UPDATE tidemill.repair SET at = now() - interval '2 h'")
    session.rollback()
    assert health.repairs(session).level is Level.OK


def test_an_operation_that_paused_itself_is_told(session: Session) -> None:
    # R9
    assert [each.detail for each in health.ongoing(session)] == ["none in work"]
    assert "operation" not in _status()
    o.broken(session, 3)
    found = o.over_broken()
    session.rollback()
    assert [each.detail for each in health.ongoing(session)] == ["1 operation in work, 0 paused"]
    assert operations.pause(found)
    session.rollback()
    assert [each.detail for each in health.ongoing(session)] == ["0 operations in work, 1 paused"]
    r.execute("UPDATE tidemill.operation SET why = '10 of the last 20 items failed'")
    session.rollback()
    told = health.ongoing(session)
    assert [(each.level, each.detail) for each in told] == [
        (Level.WARN, f"operation {found} (restart-task) paused itself at 0 of 3: 10 of the last 20 items failed")
    ]
    assert f"! operation {found} (restart-task) is PAUSED: 0 of 3, 0 failed; it paused itself: 10 of" in _status()
    listed = json.loads(CliRunner().invoke(status, ["--json"]).output)["operations"]
    assert [(each["id"], each["state"], each["total"]) for each in listed] == [(found, "PAUSED", 3)]


def test_an_operation_that_nobody_works_on_is_told(session: Session) -> None:
    # R9
    o.broken(session, 3)
    o.over_broken()
    r.execute("UPDATE tidemill.operation SET next_at = now() - interval '2 min'")
    session.rollback()
    assert [(each.level, each.advice) for each in health.ongoing(session)] == [(Level.WARN, work.SERVICES)]
    running.run_once()
    session.rollback()
    assert [each.level for each in health.ongoing(session)] == [Level.OK]
