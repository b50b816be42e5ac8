"""Every statement of the queues of stages is made by index, and reads no more than it needs, on a million entries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.engine import Engine

from app import claims, db, dispatch
from app.claims import Cursor, Lane
from app.db import autocommit, transaction
from app.embedded import OwnServers
from app.registry import Waiting
from recovery import visits as lost_visits
from stages import ending, queue
from stages.definition import SYSTEM, queue_of
from stages.ending import Done, Failed, NewState, Offer, Place
from stages.lanes import has_work
from stages.model import VISIT, StageVisit
from stages.seen import see
from stages.statements import KEPT
from stages.store import Change
from stages.whole import whole
from tests.conftest import using
from tests.kit import stages_memory, stages_rows
from tests.kit.database import Databases
from tests.kit.plans import Plan, Statement, captured, explain, explain_prepared
from tests.kit.tables import LEASE

ROWS = 1_000_000
PASS = uuid.UUID(int=7)
NOW = datetime.now(UTC)
#: Half a million entities in two queues: due since long, or timers of the next days; a few parked, running, in the low
#: lane. Those of the first batch are the test's own.
FILL = """
INSERT INTO tidemill.stage_visit
    (kind, entity_id, stage, shard, queue, state, due_at, low_at, pass_key, recovery_time, claimed_by, failed_at)
SELECT 'offer', 'e' || i, stage, ('x' || substr(md5('e' || i), 1, 8))::bit(32)::bigint % 16, 'stage.offer.' || stage,
    (CASE WHEN i <= 100 OR i % 1000 = 0 THEN 'running' WHEN i % 1000 = 1 THEN 'parked' ELSE 'waiting' END)
        ::tidemill.visit_state,
    CASE WHEN i % 10 > 0 OR i <= 100 THEN now() + (i - 200000) * interval '1 s' END,
    CASE WHEN i % 10 = 0 THEN now() - i * interval '1 s' END,
    CASE WHEN i <= 100 THEN '00000000-0000-0000-0000-000000000007'::uuid
         WHEN i % 1000 = 0 THEN md5(i::text)::uuid END,
    CASE WHEN i <= 100 OR i % 1000 = 0 THEN now() + (i - 400000) * interval '1 s' END, 'w',
    CASE WHEN i % 1000 = 1 THEN now() END
FROM generate_series(1, 500000) i, unnest('{publish,system}'::text[]) stage;
INSERT INTO tidemill.entity_guard
SELECT kind, entity_id, stage, pass_key, recovery_time FROM tidemill.stage_visit
WHERE state = 'running' AND stage = 'publish';
INSERT INTO tidemill.stage_state
SELECT 'offer', 'e' || i, 'publish', 'url', 'value' FROM generate_series(1, 200000) i;
INSERT INTO offer (id) SELECT 'e' || i FROM generate_series(1, 20000) i;
"""


@pytest.fixture(scope="module")
def big_url(_databases: Databases) -> Iterator[str]:
    url = _databases.clone()
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        stages_rows.Models.metadata.create_all(connection)
        connection.exec_driver_sql(FILL.replace("%", "%%"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        tables = "tidemill.stage_visit, tidemill.entity_guard, tidemill.stage_state, offer"
        connection.exec_driver_sql(f"VACUUM ANALYZE {tables}")
    yield url
    _databases.drop(url)


@pytest.fixture
def big(servers: OwnServers, big_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with using(monkeypatch, big_url), stages_memory.nothing_declared():
        stages_rows.Stages().stage("publish")
        yield db.engine()


def test_there_are_a_million(big: Engine) -> None:
    with big.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(VISIT)).scalar_one() == ROWS


def planned(act: Callable[[Any], object], *, alone: bool = False) -> Plan:
    """Of the statement that this sends; what it does is undone. `alone`: it is a transaction by itself."""
    db.dispose()  # so that prepared statements are prepared in view
    engine = db.engine()
    with captured(engine) as statements:
        if alone:
            with autocommit() as connection:
                act(connection)
        else:
            with engine.connect() as connection:
                act(connection)
                connection.rollback()
    prepare = [each for each in statements if each.text.startswith("PREPARE")]
    if prepare:
        run = next(each for each in statements if each.text.startswith("EXECUTE"))
        return explain_prepared(engine, prepare[0], run, analyze=True)
    return explain(engine, longest(statements), analyze=True)


def longest(statements: list[Statement]) -> Statement:
    return max(statements, key=lambda each: len(each.text))


def by_index(plan: Plan, pages: int) -> None:
    # Of guards there are never more than visits at work, and few queues: to read them all may be the cheapest.
    assert plan.read_whole() <= {"entity_guard", "queue"}, plan.root
    assert plan.pages <= pages, (plan.pages, plan.root)


PUBLISH, SYSTEM_PLACE = Place("offer", "publish", guarded=True), Place("offer", SYSTEM, guarded=False)
MINE = [f"e{number}" for number in range(1, 101)]
OTHERS = [f"e{number}" for number in range(1001, 1101)]


@pytest.mark.parametrize(
    ("stage", "lane", "shards"),
    [
        ("publish", Lane.MAIN, None),
        ("publish", Lane.MAIN, (3, 8)),
        ("publish", Lane.LOW, None),
        ("publish", Lane.LOW, (3, 8)),
        ("system", Lane.MAIN, None),
        ("system", Lane.MAIN, (3, 8)),
    ],
)
@pytest.mark.parametrize("want", [1, 100])
def test_a_claim(
    big: Engine,
    stage: str,
    lane: Lane,
    shards: tuple[int, int] | None,
    want: int,
) -> None:
    cursor = Cursor(StageVisit, queue_of("offer", stage), lane, guarded=stage != SYSTEM, shards=shards)

    def take(connection: Any) -> None:
        found = claims.taking._claim(connection, cursor, want, "w", LEASE, under_limits=False)
        assert len(found.claim.rows) == want

    plan = planned(take)
    by_index(plan, want * 40 + 60)
    assert f"stage_visit_waiting_{lane}" in plan.indexes()


@pytest.mark.parametrize("want", [1, 100])
def test_a_claim_that_finds_nothing_in_its_shards(big: Engine, want: int) -> None:
    cursor = Cursor(StageVisit, queue_of("offer", "absent"), guarded=True, shards=(3, 8))
    by_index(planned(lambda c: claims.taking._claim(c, cursor, want, "w", LEASE, under_limits=False)), 20)


def test_a_claim_under_limits(big: Engine) -> None:
    def take(connection: Any) -> None:
        cursor = Cursor(StageVisit, queue_of("offer", "publish"), guarded=True)
        claims.taking._claim(connection, cursor, 100, "w", LEASE, under_limits=True)

    by_index(planned(take), 4000)


KINDS_OF_ENDS: list[tuple[Place, NewState | None]] = [(SYSTEM_PLACE, None), (PUBLISH, None)]
KINDS_OF_ENDS += [(PUBLISH, NewState(1, url, b"new")) for url in ("url", None, KEPT)]


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("offers", [False, True])
@pytest.mark.parametrize(("place", "state"), KINDS_OF_ENDS)
def test_the_end_of_visits(big: Engine, place: Place, state: NewState | None, *, offers: bool, wait: bool) -> None:
    done = [Done(each, NOW if number % 2 else None, state=state) for number, each in enumerate(MINE)]
    asked = [Offer(each, "third", NOW) for each in MINE] if offers else []

    def end(connection: Any) -> None:
        found = ending.complete(connection, place, claims.PassKey(PASS), done, asked, wait=wait)
        assert found == set(MINE)

    by_index(planned(end), 5000)


@pytest.mark.parametrize("offers", [False, True])
@pytest.mark.parametrize("url", ["url", None, KEPT])
def test_the_end_of_visits_together_with_the_save(big: Engine, url: str | None, *, offers: bool) -> None:
    definition = stages_rows.Stages().stage("publish", state=Int64Value, tells=lambda *_: None)
    changes = [Change(each, 1, {"price": 7}) for each in MINE]
    done = [Done(each, NOW if number % 2 else None, state=NewState(1, url, b"new")) for number, each in enumerate(MINE)]
    asked = [Offer(each, "third", NOW) for each in MINE] if offers else []
    made = whole(definition, PUBLISH, claims.PassKey(PASS), changes, done, asked)
    assert made is not None

    def end(connection: Any) -> None:
        assert made.save(connection) == set(MINE)

    by_index(planned(end), 8000)


def test_a_late_end_of_visits(big: Engine) -> None:
    done = [Done(each, NOW) for each in MINE]
    late = claims.PassKey(uuid.UUID(int=8))
    by_index(planned(lambda c: ending.complete(c, PUBLISH, late, done)), 800)


@pytest.mark.parametrize("place", [PUBLISH, SYSTEM_PLACE])
def test_failures(big: Engine, place: Place) -> None:
    failures = [Failed(each, "error", "trace", 1, 1, timedelta(seconds=1)) for each in MINE]

    def end(connection: Any) -> None:
        assert ending.failed(connection, place, claims.PassKey(PASS), failures) == set(MINE)

    by_index(planned(end), 5000)


def test_keeping_a_claim(big: Engine) -> None:
    keys = [("offer", each, "publish") for each in MINE]
    plan = planned(lambda c: ending.extend(c, claims.PassKey(PASS), keys, LEASE, guarded=True))
    by_index(plan, 800)


def test_what_a_visit_sees(big: Engine) -> None:
    by_index(planned(lambda c: see(c, "offer", OTHERS)), 500)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("shards", [None, (3, 8)])
def test_peek(big: Engine, shards: tuple[int, int] | None, *, low: bool) -> None:
    def peek(connection: Any) -> None:
        with sa.orm.Session(connection) as session:
            assert len(queue.peek("offer.publish", 100, low=low, shards=shards, session=session)) == 100

    by_index(planned(peek), 150)


def test_check_and_delete(big: Engine) -> None:
    def within(act: Callable[[Any], object]) -> Callable[[Any], None]:
        def run(connection: Any) -> None:
            with sa.orm.Session(connection) as session:
                act(session)

        return run

    by_index(planned(within(lambda s: queue.check((stages_rows.Offer, "e5000"), session=s))), 15)
    by_index(planned(within(lambda s: queue.delete("e5002", "offer.publish", session=s))), 15)


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("shards", [None, (3, 8)])
def test_is_there_anything_to_do_in_a_lane(big: Engine, lane: Lane, shards: tuple[int, int] | None) -> None:
    queues = ["stage.offer.publish", "stage.offer.system"]
    plan = planned(lambda _: has_work(queues, lane, shards), alone=True)
    by_index(plan, 60)


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("shards", [None, (3, 8)])
def test_dispatch_looks_for_what_is_ready(big: Engine, lane: Lane, shards: tuple[int, int] | None) -> None:
    db.dispose()
    with captured(db.engine()) as statements, transaction() as session:
        found = dispatch.find_ready(session, Waiting(StageVisit, (lane,)), shards=shards)
    assert {each.queue for each in found} == {"stage.offer.publish", "stage.offer.system"}
    by_index(explain(db.engine(), longest(statements), analyze=True), 12_000)


def test_the_sweep_reads_what_is_overdue(big: Engine) -> None:
    def look(connection: Any) -> None:
        rows = claims.overdue(connection, StageVisit, 100, timedelta(0))
        assert len(rows) == 100
        assert lost_visits._without_living(connection, rows) == rows

    by_index(planned(look), 1000)


def test_what_is_parked_is_listed_by_index(big: Engine) -> None:
    parked = (
        sa.select(VISIT)
        .where(VISIT.c.queue == "stage.offer.publish", VISIT.c.state == sa.text("'parked'"))
        .order_by(VISIT.c.failed_at.desc())
        .limit(50)
    )
    plan = planned(lambda c: c.execute(parked).all())
    by_index(plan, 100)
    assert plan.indexes() == {"stage_visit_parked"}


def test_a_write_of_an_entity(big: Engine) -> None:
    """What the trigger does: the merge rule, and forgetting."""
    with big.connect() as connection:
        before = _scans(connection)
        offer = sa.func.tidemill.offer_visits(
            "offer",
            sa.cast(OTHERS, sa.ARRAY(sa.Text)),
            sa.cast(["publish"] * 100, sa.ARRAY(sa.Text)),
            sa.func.array_fill(sa.func.now(), sa.cast([100], sa.ARRAY(sa.Integer))),
        )
        assert connection.execute(sa.select(offer)).scalar_one() <= 100
        connection.execute(sa.select(sa.func.tidemill.forget_entities("offer", sa.cast(OTHERS, sa.ARRAY(sa.Text)))))
        assert _scans(connection) == before
        connection.rollback()


def _scans(connection: Any) -> list[int]:
    """Sequential scans that this transaction has made of the tables."""
    query = "SELECT pg_stat_get_xact_numscans(%(name)s::regclass)"
    return [
        connection.exec_driver_sql(query, {"name": f"tidemill.{name}"}).scalar_one()
        for name in ("stage_visit", "stage_state")
    ]
