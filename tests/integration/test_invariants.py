"""Each corruption that can be planted is found under its name, and repaired or declared broken; a second run changes
nothing; what cannot be repaired stops none of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import counters
from recovery import invariants
from recovery.findings import Verdict
from recovery.invariants import NAMED, Repairs
from recovery.invariants.claims import overdue_for
from tests.kit import damage as d
from tests.kit import damage_operations as of_operations
from tests.kit import damage_processes as of_processes
from tests.kit import damage_stages as of_stages
from tests.kit import process_rows as r
from tests.kit import reactive
from tests.kit.waiting import wait_until
from triggers import Delta

DAMAGES = (*d.JOBS, *d.RUNS, *d.QUEUES, *of_stages.VISITS, *of_stages.WALKS, *of_operations.OPERATIONS)
#: Nobody can undo what was done.
DONE = {"a job ended well at most once", "a run that was done was checked before"}
CONTENT = (
    *("job", "job_log", "run", "reactive_task", "reactive_leaf", "stage_visit", "stage_state", "entity_guard"),
    *("resweep", "resweep_part", "queue", "process", "graph", "task", "edge", "decision", "broken_task", "answer"),
    *("repair", "repair_pace", "counter", "event", "operation", "operation_item"),
)


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TIDEMILL_SWEEP_INTERVAL", "1s")
    monkeypatch.setattr("recovery.invariants.claims.SLACK", timedelta(0))
    with r.world(monkeypatch):
        yield


def content(session: Session) -> dict[str, list[str]]:
    """All that a repair could change."""
    session.rollback()
    query = "SELECT t::text FROM tidemill.{} t ORDER BY 1"
    found = {table: list(session.execute(sa.text(query.format(table))).scalars()) for table in CONTENT}
    session.rollback()
    return found


def found() -> dict[str, set[str]]:
    looked = [invariants.look(each) for each in invariants.ALL]
    assert [each for each in looked if each.failed] == []
    return {each.invariant.name: {each.invariant.subject(key) for key in each.keys} for each in looked if each.keys}


def repaired() -> dict[str, Repairs]:
    done = [invariants.repair(each) for each in invariants.ALL]
    return {each.invariant.name: each for each in done if each.repaired or each.left}


def sound(session: Session) -> None:
    """Tasks `t11` to `t30`, and a row of each kind as it should be."""
    with reactive.world() as world:
        for number in range(11, 31):
            world.task(f"t{number}", Delta("e", "p", "1d"))
    session.execute(sa.text("UPDATE tidemill.reactive_task SET name = regexp_replace(name, '^.*[.]', ''), pool = 'p'"))
    for each in (d.LOOSEN + d.SOUND + of_operations.SOUND).split(";"):
        if each.strip():
            session.execute(sa.text(each))
    session.commit()


def plant(session: Session) -> list[tuple[of_processes.Damaged, int]]:
    made = [(each, each.make()) for each in of_processes.in_turn()]
    for damaged, process_id in made:
        damaged.into(process_id)
    for each in DAMAGES:
        each.into(session)
    session.commit()
    return made


def up_for_long(session: Session) -> bool:
    up = sa.func.pg_postmaster_start_time() < sa.func.now() - overdue_for()
    found = session.execute(sa.select(up)).scalar_one()
    session.rollback()
    return bool(found)


def test_each_entry_of_the_catalogue_is_violated_here() -> None:
    planted = {each.invariant for each in DAMAGES} | {each.invariant for each in of_processes.DAMAGED}
    assert planted == NAMED.keys()
    assert len(NAMED) == len(invariants.ALL)
    assert {each.name for each in invariants.ALL if each.verdict is Verdict.REPAIRABLE and each.repair is None} == set()
    assert {each.name for each in invariants.ALL if each.wrong and each.repair is None} == DONE


def test_what_is_sound_violates_nothing(session: Session) -> None:
    sound(session)
    healthy = [make() for make in (of_processes.finished, of_processes.journey, of_processes.aborted)]
    assert healthy
    assert found() == {}
    before = content(session)
    assert repaired() == {}
    assert content(session) == before


def test_each_corruption_is_found_by_name_and_repaired(session: Session) -> None:
    sound(session)
    journeys = plant(session)
    wait_until(lambda: up_for_long(session))
    seen = found()
    expected = Counter[str]()
    for each in DAMAGES:
        assert seen[each.invariant] == set(each.subjects), each.invariant
        expected[each.invariant] += len(each.subjects)
    for damaged, process_id in journeys:
        assert damaged.subject(process_id) in seen[damaged.invariant], damaged
    assert {each.invariant for each in invariants.check(session)} == {name for name in seen if NAMED[name].wrong}, (
        "the oracle finds what is wrong, and no diagnosis"
    )
    session.rollback()
    done = repaired()
    for each in DAMAGES:
        if NAMED[each.invariant].repair is not None:
            assert done[each.invariant].repaired == expected[each.invariant], each.invariant
            assert each.came_of_it(session) == list(each.rows), each.invariant
    session.rollback()
    assert {name: left.left for name, left in done.items() if left.left} == {}
    assert {each.invariant for each in invariants.check(session)} == DONE
    told(session, done, [process_id for _, process_id in journeys])
    nothing_more(session)


def told(session: Session, done: dict[str, Repairs], process_ids: list[int]) -> None:
    """R7: each repair is recorded, and counted."""
    rows = session.execute(sa.text("SELECT domain, subject, finding FROM tidemill.repair")).all()
    for each in DAMAGES:
        entry = NAMED[each.invariant]
        if entry.repair is not None:
            assert {(entry.domain, subject, entry.finding) for subject in each.subjects} <= {tuple(row) for row in rows}
    assert counters.read(session) == Counter(f"repaired.{row.finding}" for row in rows)
    healed = {int(row.subject.split("/")[0]) for row in rows if row.domain == "process" and row.subject[0].isdigit()}
    assert healed <= set(process_ids)
    assert done


def nothing_more(session: Session) -> None:
    before = content(session)
    assert repaired() == {}
    assert content(session) == before


def test_what_cannot_be_repaired_stops_none_of_the_rest(session: Session) -> None:
    # R3
    sound(session)
    bad, good, held = (of_processes.journey() for _ in range(3))
    for each in (bad, good, held):
        of_processes.NOT_QUEUED.into(each)
    for damage in DAMAGES:
        damage.into(session)
    session.execute(sa.text(REFUSE.format(bad)))
    session.commit()
    session.execute(sa.text("SELECT FROM tidemill.job WHERE id = 12 FOR UPDATE"))
    session.execute(sa.text(f"SELECT FROM tidemill.graph WHERE process_id = {held} FOR UPDATE"))
    done = repaired()
    left = {NAMED[name].subject(key): each.failed for name, each in done.items() for key in each.left}
    assert left.keys() == {"11", "12", "bid a1 check", f"{bad}/3", f"{held}/3"}
    assert {subject for subject, failed in left.items() if failed} >= {"bid a1 check"}
    assert {each.failed for each in done.values() if each.failed and "refused" not in each.failed} == set()
    session.rollback()
    for table in ("job", "run", "stage_visit", "decision"):
        session.execute(sa.text(f"DROP TRIGGER refuse ON tidemill.{table}"))
    session.commit()
    again = {subject for name, each in repaired().items() for subject in [NAMED[name].finding] * each.repaired}
    assert again == {"job_without_pass", "run_without_pass", "visit_without_pass", "not_queued"}
    assert {each.invariant for each in invariants.check(session)} == DONE


#: The job and the run 11, the visit of a1, and decisions of a process cannot be written.
REFUSE = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF to_jsonb(NEW) @> cast(tg_argv[0] as jsonb) THEN RAISE 'refused'; END IF; RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.job FOR EACH ROW EXECUTE FUNCTION public.refuse('{{"id"\\: 11}}');
CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.run FOR EACH ROW EXECUTE FUNCTION public.refuse('{{"id"\\: 11}}');
CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.stage_visit FOR EACH ROW
EXECUTE FUNCTION public.refuse('{{"entity_id"\\: "a1"}}');
CREATE TRIGGER refuse BEFORE INSERT ON tidemill.decision FOR EACH ROW
EXECUTE FUNCTION public.refuse('{{"process_id"\\: {}}}');
"""
