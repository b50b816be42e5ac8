"""What a claim of a hundred visits and its end read grows with the hundred, and not with what else is in the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app import claims
from app.claims import Cursor, PassKey
from stages import ending
from stages.ending import Done, NewState, Place
from stages.model import StageVisit
from tests.kit.plans import Plan, Statement, captured, explain_prepared

BATCH, FEW, MANY = 100, 1_000, 100_000
GROWTH = 1.5
BY_INDEX = {"Index Scan", "ModifyTable"}
QUEUE = "stage.thing.count"
PLACE = Place("thing", "count", guarded=True)
FILL = sa.text(
    """
    INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at)
    SELECT 'thing', to_char(i, 'FM00000000'), 'count', i % 16, :queue, now() - interval '1 day' + i * interval '1 ms'
    FROM generate_series(1, :rows) AS i
    """
)
STATES = sa.text(
    """
    INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value)
    SELECT kind, entity_id, stage, 't', 'v' FROM tidemill.stage_visit
    """
)


def _fill(engine: Engine, rows: int) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("TRUNCATE tidemill.stage_visit, tidemill.stage_state, tidemill.entity_guard")
        connection.execute(FILL, {"rows": rows, "queue": QUEUE})
        connection.execute(STATES)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")


def _claim(cursor: Cursor | None = None, want: int = BATCH) -> claims.Claim:
    cursor = cursor or Cursor(StageVisit, QUEUE, guarded=True)
    return claims.take(cursor, want, worker="w", lease=timedelta(minutes=1))


def _pages(engine: Engine, what: Callable[[], Any]) -> int:
    return _plan(engine, what).pages


def _plan(engine: Engine, what: Callable[[], Any]) -> Plan:
    """Of the one statement that this runs by its name."""
    engine.dispose()  # nothing is prepared yet
    with captured(engine) as asked:
        what()
    prepare, run = (next(each for each in asked if each.text.startswith(word)) for word in ("PREPARE", "EXECUTE"))
    plain = Statement(prepare.text.replace("%%", "%"), None)
    # As the connections of the product have it.
    settings = f"SET LOCAL random_page_cost = 1.1; {run.settings}"
    return explain_prepared(engine, plain, replace(run, settings=settings), analyze=True)


def _read(engine: Engine, rows: int) -> tuple[int, int]:
    """By a claim, and by the end of what was claimed."""
    _fill(engine, rows)
    claim = _claim()
    assert len(claim.rows) == BATCH
    # The next hundred, and no more: what is explained is rolled back.
    claiming = _pages(engine, _claim)
    ids = [row.entity_id for row in claim.rows]
    done = [Done(each, state=NewState(1, "t", b"w")) for each in ids]

    def complete() -> None:
        with engine.connect() as connection:
            assert ending.complete(connection, PLACE, claim.pass_key, done) == set(ids)
            connection.rollback()

    return claiming, _pages(engine, complete)


def test_a_batch_reads_as_much_of_a_long_queue_as_of_a_short_one(engine: Engine) -> None:
    few, many = _read(engine, FEW), _read(engine, MANY)
    for what, small, large in zip(("claim", "end"), few, many, strict=True):
        assert 0 < small <= 100 * BATCH, (what, small)
        assert large <= GROWTH * small, (what, small, large)


def test_a_late_end_reads_no_more_than_its_batch(engine: Engine) -> None:
    _fill(engine, MANY)
    stranger = PassKey(uuid4())
    done = [Done(f"{number:08}") for number in range(1, BATCH + 1)]

    def complete() -> None:
        with engine.connect() as connection:
            assert ending.complete(connection, PLACE, stranger, done) == set()

    assert _pages(engine, complete) <= 10 * BATCH


def test_claims_read_no_more_while_a_transaction_is_held_open(engine: Engine) -> None:
    """What its snapshot still sees, nobody may clear away: what has ended lies at the head of the queue."""
    _fill(engine, 50 * FEW)
    # A clock that stands: by the running one, a claim goes back to the head every second.
    cursor = Cursor(StageVisit, QUEUE, guarded=True, monotonic=lambda: 0.0)
    before = _pages(engine, lambda: _claim(cursor))
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as stranger:
        stranger.exec_driver_sql("SELECT count(*) FROM tidemill.stage_visit")
        for _ in range(80):
            claim = _claim(cursor, 5 * BATCH)
            done = [Done(row.entity_id) for row in claim.rows]
            with engine.begin() as connection:
                assert len(ending.complete(connection, PLACE, claim.pass_key, done)) == len(done) == 5 * BATCH
        held = _pages(engine, lambda: _claim(cursor))
        fresh = _pages(engine, _claim)
        assert held <= GROWTH * before < fresh, (before, held, fresh)
        stranger.rollback()


def test_a_claim_reads_no_more_where_the_statistics_say_that_nothing_waits(engine: Engine) -> None:
    _fill(engine, 20 * FEW)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # One row is left, on the last page: the queue was empty when somebody counted.
        last = "(SELECT max(entity_id) FROM tidemill.stage_visit)"
        connection.exec_driver_sql(f"DELETE FROM tidemill.stage_visit WHERE entity_id <> {last}")  # noqa: S608
        connection.exec_driver_sql("UPDATE tidemill.stage_visit SET kind = 'other', queue = 'other'")
        connection.exec_driver_sql("VACUUM ANALYZE tidemill.stage_visit")
        connection.execute(FILL, {"rows": 20 * FEW, "queue": QUEUE})
    plan = _plan(engine, _claim)
    # And not all that waits, to be sorted.
    assert {node["Node Type"] for node in plan.nodes() if "stage_visit" in node.get("Relation Name", "")} <= BY_INDEX
    assert plan.pages_of("stage_visit_waiting_main") <= 10 * BATCH
    assert plan.pages <= 100 * BATCH
