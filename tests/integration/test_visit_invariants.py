"""What is not held against visits. `test_invariants.py` has what is."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from recovery import invariants
from stages.model import GUARD, VISIT

#: An exclusive and an optimistic kind; of the first, an entity that a stage works on, and what waits and is parked.
SOUND = """
INSERT INTO tidemill.entity_kind (kind, mode) VALUES ('lot', 'exclusive'), ('bid', 'optimistic');
INSERT INTO tidemill.stage (kind, name, task, module, max_attempts)
SELECT kind, name, 'm.' || name, 'm', 3 FROM (VALUES ('lot'), ('bid')) k (kind), (VALUES ('check'), ('sell')) n (name);
INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at)
SELECT kind, id, stage, tidemill.shard(id), 'stage.' || kind || '.' || stage, now()
FROM (VALUES ('lot'), ('bid')) k (kind), (VALUES ('1'), ('2')) i (id),
    (VALUES ('check'), ('sell'), ('system')) s (stage);
UPDATE tidemill.stage_visit SET state = 'running', pass_key = gen_random_uuid(), claimed_by = 'w/1', claimed_at = now(),
    recovery_time = now() + interval '1 min', again_at = now()
WHERE (kind, entity_id) = ('bid', '1') OR (kind, entity_id, stage) IN (('lot', '1', 'check'), ('lot', '1', 'system'));
UPDATE tidemill.stage_visit SET state = 'parked', error = 'ValueError: no' WHERE entity_id = '2' AND stage = 'sell';
INSERT INTO tidemill.entity_guard (kind, entity_id, stage, pass_key, until)
SELECT kind, entity_id, stage, pass_key, recovery_time FROM tidemill.stage_visit
WHERE (kind, entity_id, stage) = ('lot', '1', 'check');
INSERT INTO tidemill.entity_guard (kind, entity_id, stage, pass_key, until)
VALUES ('lot', '2', 'sell', gen_random_uuid(), now() - interval '1 s');
INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value) VALUES ('lot', '1', 'check', 't', '');
"""
LOOSEN = """
ALTER TABLE tidemill.stage_visit DROP CONSTRAINT stage_visit_claimed_exactly_while_running;
ALTER TABLE tidemill.stage_visit DROP CONSTRAINT stage_visit_waits_for_a_time;
ALTER TABLE tidemill.stage_visit DROP CONSTRAINT stage_visit_asked_again_while_not_waiting;
"""
RUNNING = {
    "state": "running",
    "pass_key": uuid.uuid4(),
    "recovery_time": sa.func.now() + sa.text("interval '1 min'"),
    "claimed_by": "w/2",
    "claimed_at": sa.func.now(),
}


def _of(table: sa.Table, kind: str, entity_id: str, stage: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.kind == kind, table.c.entity_id == entity_id, table.c.stage == stage)


def _visit(kind: str, entity_id: str, stage: str, **values: Any) -> sa.Update:
    return sa.update(VISIT).where(_of(VISIT, kind, entity_id, stage)).values(**values)


WORKS = ("lot", "1", "check")


@pytest.fixture
def sound(session: Session) -> Session:
    session.connection().exec_driver_sql(SOUND + LOOSEN)
    return session


def test_what_is_sound_breaks_none(sound: Session) -> None:
    assert invariants.check(sound) == []


def test_a_lease_that_is_over_is_not_held_against_anybody(sound: Session) -> None:
    """Until the sweep comes, it is there beside the one that took the entity over."""
    sound.execute(_visit(*WORKS, recovery_time=sa.func.now() - sa.text("interval '1 s'")))
    sound.execute(_visit("lot", "1", "sell", **RUNNING))
    taken = {"stage": "sell", "pass_key": RUNNING["pass_key"]}
    sound.execute(sa.update(GUARD).where(_of(GUARD, *WORKS)).values(**taken))
    assert invariants.check(sound) == []
