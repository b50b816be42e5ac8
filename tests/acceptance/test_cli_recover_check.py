"""`tidemill recover check` on a real database."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from recovery import invariants
from tests.kit.cli import Tidemill


@pytest.fixture(autouse=True)
def _database(session: Session, broker_url: str) -> None:
    """Of this process."""


def damage(session: Session) -> None:
    """Two jobs that nobody claims, one that the log says has ended, and one that is parked."""
    for statement in (
        "INSERT INTO tidemill.job (task, queue, due_at) VALUES ('t', 'q', NULL), ('t', 'q', NULL)",
        "INSERT INTO tidemill.job (task, queue) VALUES ('t', 'q')",
        "INSERT INTO tidemill.job (task, queue, state, error) VALUES ('t', 'q', 'parked', 'E')",
        "INSERT INTO tidemill.job_log (job_id, attempt, outcome, queue, task, args, kwargs, rank, max_attempts, "
        "enqueued_at) SELECT 3, 1, 'done', 'q', 't', '[]', '{}', 0, 4, now()",
    ):
        session.execute(sa.text(statement))
    session.commit()


def test_check_of_what_is_sound(tidemill: Tidemill) -> None:
    said = tidemill("recover check")
    assert (said.code, said.out) == (0, f"{len(invariants.ALL)} checked: all hold\n")
    assert tidemill("recover check --repair --json").data == {"sound": True, "violations": [], "new": []}
    jobs = [each for each in invariants.ALL if each.domain == "job"]
    assert tidemill("recover check --domain job --repair").out == f"{len(jobs)} checked: all hold\n"


def test_check_finds_by_name_and_repairs(tidemill: Tidemill, session: Session) -> None:
    # R7
    damage(session)
    said = tidemill("recover check")
    assert said.code == 1
    for line in (
        "repairable job       2 × not: a job that waits can be claimed",
        "broken     job       1 × not: a job that ended is not in the queue",
        "diagnosis  job       1 × not: no job is parked",
        "1, 2",
    ):
        assert line in said.out
    assert "looked at 100000 rows at most" in said.out
    asked = tidemill("recover check --repair")
    assert asked.code == 2
    assert "Repair 3 violations? Nobody can be asked here: say --yes" in asked.err
    assert "made ready now" in asked.out
    done = tidemill("recover check --repair --yes --domain job")
    assert done.code == 0, done
    assert "3 repaired: tidemill recover repairs lists them" in done.out
    assert "left:" not in done.out
    recorded = [each["finding"] for each in tidemill("recover repairs --json").data["repairs"]]
    assert sorted(recorded) == ["job_ended_in_queue", "job_unclaimable", "job_unclaimable"]
    after = tidemill("recover check --json")
    assert (after.code, after.data["sound"]) == (0, True)
    [parked] = after.data["violations"]
    assert (parked["invariant"], parked["verdict"], parked["examples"]) == ("no job is parked", "diagnosis", ["3", "4"])


def test_check_says_what_is_left(tidemill: Tidemill, session: Session) -> None:
    damage(session)
    session.execute(sa.text("SELECT FROM tidemill.job WHERE id = 2 FOR UPDATE"))
    said = tidemill("recover check --repair --yes --json")
    assert said.code == 1
    [claimable] = [each for each in said.data["violations"] if each["finding"] == "job_unclaimable"]
    assert (claimable["count"], claimable["repaired"], claimable["left"]) == (2, 1, 1)
    told = tidemill("recover check --repair --yes")
    assert told.code == 1
    assert "left:\nrepairable job       1 × not: a job that waits can be claimed" in told.out
    session.rollback()
    assert tidemill("recover check --repair --yes").code == 0


def test_check_does_not_hang(tidemill: Tidemill, session: Session) -> None:
    session.execute(sa.text("LOCK TABLE tidemill.job"))
    said = tidemill("recover check --domain job --within 50ms")
    assert said.code == 1
    assert "unknown    job       no job is parked: not finished within 50ms\n" in said.out
    assert "repairable" not in said.out
    assert "broken" not in said.out
    assert " unknown: --within allows more time\n" in said.err
    found = json.loads(tidemill("recover check --domain job --within 50ms --json").out)
    assert found["sound"] is None
    assert {each["verdict"] for each in found["violations"]} == {"unknown"}


@pytest.mark.parametrize("within", ["0s", "0.5ms", "25h", "500d"])
def test_check_takes_times_that_make_sense(tidemill: Tidemill, within: str) -> None:
    said = tidemill(f"recover check --within {within}")
    assert said.code == 2
    assert f"'{within}' is not a span from 1ms to 1d" in said.err
