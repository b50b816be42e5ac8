"""Lists on pages are read by index, and no more than is shown: 300 000 visits, 100 000 jobs, 100 000 executions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app import db, figures
from app.console.pages import entity, job, jobs, log, parked, stage, stages, throughput
from app.console.web import memory
from app.console.web.fields import Fields
from app.console.web.page import Page, Visit
from app.db import transaction
from app.embedded import OwnServers
from app.tokens import Holder
from tests.conftest import using
from tests.kit import plans
from tests.kit.database import Databases
from tests.kit.plans import captured, explain

BIG = {"stage_visit", "job", "job_log"}
#: Of a statement: a list of fifty, each of which may be on a page of its own.
PAGES_MOST = 400
#: Most wait for their timers, which nobody counts one by one; few are ready, in the low lane, run or are parked.
FILL = """
INSERT INTO tidemill.entity_kind (kind) VALUES ('voucher');
INSERT INTO tidemill.stage (kind, name, task, module, max_attempts) VALUES ('voucher', 'predict', 't', 'm', 10);
INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, queue, state, due_at, error, failed_at)
SELECT 'voucher', 'e' || i, 'predict', 1, 'stage.voucher.predict',
    (CASE WHEN i % 1000 = 0 THEN 'parked' ELSE 'waiting' END)::tidemill.visit_state,
    now() + i * interval '1 s', CASE WHEN i % 1000 = 0 THEN 'no price of ' || i END,
    CASE WHEN i % 1000 = 0 THEN now() - i * interval '1 s' END
FROM generate_series(1, 300000) i;
UPDATE tidemill.job SET state = 'parked' WHERE id % 1000 = 0;
"""


@pytest.fixture(scope="module")
def big(_servers: OwnServers, _databases: Databases) -> Iterator[Engine]:
    url = _databases.lend()
    with pytest.MonkeyPatch.context() as patch, using(patch, url):
        plans.fill(db.engine(), waiting=100_000, log=100_000)
        with db.engine().begin() as connection:
            connection.execute(sa.text(FILL))
        with db.engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE tidemill.stage_visit, tidemill.job")
        memory.forget_all()
        yield db.engine()
    memory.forget_all()
    _databases.drop(url)


def visit(numbers: dict[str, int] | None = None, **words: str) -> Visit:
    return Visit(Holder("olga", "operator"), "/", numbers or {}, Fields(tuple(words.items())))


@pytest.mark.parametrize(
    ("page", "looked_at"),
    [
        (stage.PAGES[0], visit(name="voucher.predict")),
        (entity.PAGES[0], visit(kind="voucher", id="e7")),
        (parked.PAGES[0], visit()),
        (parked.PAGES[0], visit(stage="voucher.predict", error="price")),
        (job.PAGES[0], visit({"job_id": 77})),
        (log.PAGES[0], visit()),
        (log.PAGES[0], visit(task="task7")),
        (log.PAGES[0], visit(outcome="failed", since="1d")),
        (log.PAGES[0], visit(job="77")),
    ],
    ids=lambda each: each.path if isinstance(each, Page) else "-".join(value for _, value in each.query.pairs),
)
def test_a_page_is_read_by_index(big: Engine, page: Page, looked_at: Visit) -> None:
    stages._SEEN.get()
    with captured(big) as statements:
        page.read(looked_at)
    check(big, statements)


@pytest.mark.parametrize(("words", "most"), [({}, 100), ({"state": "parked"}, PAGES_MOST), ({"after": "50000"}, 100)])
def test_jobs_are_listed_by_index(big: Engine, words: dict[str, str], most: int) -> None:
    with captured(big) as statements:
        assert len(jobs._search(Fields(tuple(words.items())))) > 50
    check(big, statements, most)


def test_queues_are_counted_by_index_and_in_bounds(big: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "COUNTED", 1_000)
    with captured(big) as statements, transaction() as session:
        found = {each.name: each for each in figures.queues(session)}
    assert [(found[f"queue{i}"].ready, found[f"queue{i}"].later) for i in range(3)] == [(1_000, 0)] * 3
    assert sum(found[f"queue{i}"].parked for i in range(3)) == 100
    check(big, [each for each in statements if "tidemill.job" in each.text])


def test_what_has_ended_is_counted_by_index(big: Engine) -> None:
    with captured(big) as statements, transaction() as session:
        found = throughput.read(session)
    # One a second; the hour may have begun within a minute.
    assert 3_500 < found.sparks["Jobs"].total <= 3_600
    # For each minute, three looks into an index, and what they find there.
    check(big, statements, most=throughput.MINUTES * 3 * 4)


def check(engine: Engine, statements: list[Any], most: int = PAGES_MOST) -> None:
    read = [each for each in statements if each.text.lstrip().lower().startswith(("select", "with"))]
    assert read
    for each in read:
        plan = explain(engine, each, analyze=True)
        assert not plan.read_whole() & BIG, each.text
        # What is grouped by its error is looked at one by one, of what is parked alone.
        if "regexp_replace" not in each.text:
            assert plan.pages <= most, (plan.pages, each.text)
