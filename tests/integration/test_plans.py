"""What is asked often is read by index, on big tables, on every Postgres that is here."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app import claims, db, dispatch
from app.claims import Cursor
from app.claims.statements import claiming, live
from app.db import transaction
from app.jobs import retention
from app.jobs.model import Job, Outcome
from app.jobs.search import Filters, search_log
from app.registry import Waiting
from tests.kit import plans
from tests.kit.plans import captured, explain, explain_prepared
from tests.kit.tables import LEASE

ROWS = 50_000


@pytest.fixture
def big(any_database_url: str) -> Engine:
    plans.fill(db.engine(), waiting=ROWS, running=2000, log=ROWS, ranks=2)
    return db.engine()


def test_what_is_asked_often_is_read_by_index(big: Engine, subtests: pytest.Subtests) -> None:
    asked: dict[str, Callable[[], object]] = {
        "claim": lambda: claims.take(Cursor(Job, "queue1"), 100, worker="w", lease=LEASE),
        "dispatch": lambda: _ready(),
        "overdue": lambda: _overdue(),
        "retention": lambda: retention.run_once(1000),
        "log, by task": lambda: _log(Filters(task="task7")),
        "log, what failed": lambda: _log(Filters(outcome=Outcome.FAILED)),
        "log, the latest": lambda: _log(Filters()),
    }
    for what, ask in asked.items():
        with subtests.test(what):
            db.dispose()  # so that prepared statements are prepared in view
            with captured(db.engine()) as statements:
                ask()
            plan = _plan(db.engine(), statements)
            assert plan.read_whole().isdisjoint({"job", "job_log"}), plan.root
            assert any(name.startswith("job") for name in plan.indexes()), plan.root


def _ready() -> None:
    with transaction() as session:
        assert len(dispatch.find_ready(session, Waiting(Job))) == 3


def _overdue() -> None:
    with transaction() as session:
        claims.overdue(session, Job, 100, timedelta(0))


def _log(filters: Filters) -> None:
    with transaction() as session:
        search_log(session, filters, 50)


def _plan(engine: Engine, statements: list[plans.Statement]) -> plans.Plan:
    prepare = [each for each in statements if each.text.startswith("PREPARE")]
    if prepare:
        run = next(each for each in statements if each.text.startswith("EXECUTE"))
        return explain_prepared(engine, prepare[0], run)
    return explain(engine, statements[-1])


def test_counting_live_claims_reads_what_runs(big: Engine) -> None:
    with captured(big) as statements, big.connect() as connection:
        connection.execute(live(Job), {"p_queue": "queue1"})
    plan = explain(big, statements[-1])
    assert plan.indexes() == {"job_running"}


def test_a_claim_costs_the_same_however_much_waits(big: Engine) -> None:
    def pages() -> int:
        db.dispose()
        with captured(db.engine()) as statements:
            claims.take(Cursor(Job, "queue1"), 100, worker="w", lease=LEASE)
        run = next(each for each in statements if each.text.startswith("EXECUTE"))
        return explain_prepared(db.engine(), statements[0], run, analyze=True).pages

    with_many = pages()
    with big.begin() as connection:
        connection.execute(sa.delete(Job).where(Job.queue == "queue1", Job.id > ROWS / 10))
    assert with_many < 3 * pages()


def test_a_cursor_does_not_walk_over_what_is_dead(engine: Engine) -> None:
    # A transaction held open elsewhere keeps vacuum, and everyone, from removing the entries of ended jobs.
    plans.fill(engine, waiting=20_000, queues=1)
    with engine.connect() as pin:
        pin.execution_options(isolation_level="REPEATABLE READ")
        pin.execute(sa.select(sa.func.count()).select_from(Job))
        cursor = Cursor(Job, "queue0", monotonic=lambda: 0.0)
        for _ in range(30):
            claim = claims.take(cursor, 500, worker="w", lease=LEASE)
            with transaction() as tx:
                assert len(claims.finish(tx, Job, claim.pass_key, [(row.id,) for row in claim.rows])) == 500
        with_cursor, without = (_pages_of_a_claim(engine, at) for at in (cursor, Cursor(Job, "queue0")))
    assert with_cursor * 3 < without, f"{with_cursor} pages with the cursor, {without} without"


def _pages_of_a_claim(engine: Engine, cursor: Cursor) -> int:
    above, below = cursor.gaps()
    parameters = {
        "p_queue": cursor.queue,
        "p_ranks": list(cursor.positions),
        "p_after": list(cursor.positions.values()),
        "p_above": above,
        "p_below": below,
        "p_pass_key": uuid.uuid4(),
        "p_lease": LEASE,
        "p_worker": "w",
    }
    with captured(engine) as statements, engine.connect() as connection, connection.begin() as tx:
        tx_rows = connection.execute(claiming(Job, claims.Form(cursor.lane, 20)), parameters)
        tx_rows.close()
        tx.rollback()
    return explain(engine, statements[-1], analyze=True).pages_of("job_waiting_main")
