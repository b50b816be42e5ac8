"""The sweep over graphs that stand (R4): healthy ones are explained, and nothing is done about them; what is wrong is
put right, whoever else is there."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.errors import BadRequest
from app.settings import settings
from processes import operate, start
from processes.states import ProcessState
from recovery import facts, graphs
from recovery import processes as late_processes
from tests.kit import backlog, plans
from tests.kit import corruption as c
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.faults import Crashed, crash_at, pause_at
from tests.kit.waiting import wait_until

MANY = 2_500


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def idle(process_id: int | None = None) -> None:
    """Nothing has changed them for long."""
    where = "true" if process_id is None else f"process_id = {process_id}"
    r.let_pass(table="graph", where=where)


def sweep() -> graphs.Report:
    return graphs.run_once()


def count(session: Session, table: str, where: str = "true") -> int:
    return int(r.rows(session, f"SELECT count(*) AS found FROM tidemill.{table} WHERE {where}")[0].found)  # noqa: S608


BACKLOGS: dict[str, tuple[Callable[[Engine], None], str]] = {
    "absent": (lambda _: None, "nobody_polls"),
    "slow": (backlog.slow_actor, "behind"),
    "paused": (backlog.paused_actor, "queue_paused"),
}


@pytest.mark.parametrize("kind", BACKLOGS)
def test_a_healthy_backlog_is_explained_and_left_alone(kind: str, session: Session, engine: Engine) -> None:
    # R6, and the diagnoses of R4
    make, found = BACKLOGS[kind]
    backlog.fill(engine, MANY)
    make(engine)
    r.execute("UPDATE tidemill.decision SET due_at = pg_postmaster_start_time() + interval '1 us' WHERE number = 2")
    before = r.rows(session, "SELECT process_id, number, xmin::text FROM tidemill.decision ORDER BY 1, 2")
    reports = [sweep(), sweep(), sweep(), sweep()]
    assert [each.examined for each in reports] == [1000, 1000, 500, 0]
    assert [each.more for each in reports] == [True, True, False, False]
    assert sum(each.repaired + each.broken + each.busy + each.failed for each in reports) == 0
    assert reports[0].why == {"waits": 1000, found: 1000}
    assert count(session, "repair") == 0
    assert count(session, "graph", "recovery_time <= now() + interval '1 min'") == 0, "the next look is planned"
    assert r.rows(session, "SELECT process_id, number, xmin::text FROM tidemill.decision ORDER BY 1, 2") == before


def test_what_is_wrong_is_put_right_and_the_next_look_is_planned(session: Session) -> None:
    # R4
    sound, lost, wrong = c.journey(), c.journey(), c.journey()
    c.LOST["value"].into(lost.id)
    c.REPAIRABLE["no decision"].into(wrong.id)
    idle()
    assert sweep() == graphs.Report(3, repaired=1, broken=1, why={"nobody_polls": 1, "in_work": 1, "waits": 1}), (
        "each diagnosis once for each process"
    )
    assert count(session, "graph", "recovery_time < now()") == 0
    assert sweep() == graphs.Report()
    idle()
    report = sweep()
    assert (report.examined, report.repaired, report.broken) == (3, 0, 0)
    assert count(session, "repair") == 2
    for each in (sound, wrong):
        c.finish(each)
        assert r.process(session, each.id).value == c.VALUE


def test_after_the_database_came_it_waits(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # R4, R6
    found = c.journey()
    c.REPAIRABLE["no decision"].into(found.id)
    idle()
    monkeypatch.setenv("TIDEMILL_LEASE", "1d")
    settings.cache_clear()
    assert sweep() == graphs.Report()
    monkeypatch.setenv("TIDEMILL_LEASE", "1s")
    settings.cache_clear()
    assert sweep().repaired == 1


def test_one_that_cannot_be_looked_at_keeps_no_other_from_its_turn(session: Session) -> None:
    # R3
    bad, good = c.journey(), c.journey()
    for each in (bad, good):
        c.REPAIRABLE["counts"].into(each.id)
    r.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NEW.process_id = {bad.id} AND NEW.unfinished <> OLD.unfinished THEN RAISE 'no'; END IF; RETURN NEW; END $$"
    )
    r.execute("CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.graph FOR EACH ROW EXECUTE FUNCTION public.refuse()")
    idle()
    report = graphs.run_once(1)
    reports = [report, graphs.run_once(1), graphs.run_once(1)]
    assert [sum(getattr(each, word) for each in reports) for word in ("examined", "repaired", "failed")] == [2, 1, 1]
    assert r.process(session, good.id).state == ProcessState.ACTIVE


@pytest.mark.parametrize("point", ["heal.repaired", "sweep.before_commit", "sweep.committed"])
@pytest.mark.parametrize("name", ["decided, not applied", "too early", "graph"])
def test_a_sweep_that_dies_in_the_middle_is_made_again(session: Session, name: str, point: str) -> None:
    # R7
    found = c.journey()
    c.REPAIRABLE[name].into(found.id)
    r.execute("UPDATE tidemill.process SET recovery_time = now()")
    idle()
    again = late_processes.run_once if name == "graph" else sweep
    with crash_at(point), pytest.raises(Crashed):
        again()
    again()
    assert r.check(session) == {}
    assert count(session, "repair", f"finding = '{c.REPAIRABLE[name].case}'") == 1
    c.finish(found)
    assert r.process(session, found.id).value == c.VALUE


def test_two_sweeps_at_once_repair_once(session: Session) -> None:
    # R1, R7
    found, other = c.journey(), c.journey()
    c.REPAIRABLE["no decision"].into(found.id)
    idle(found.id)
    with pause_at("heal.repaired") as paused:
        first = threading.Thread(target=sweep)
        first.start()
        paused.wait()
        c.REPAIRABLE["no decision"].into(other.id)
        idle(other.id)
        second = graphs.look([found.id, other.id])
        assert (second.busy, second.repaired) == (1, 1)
        paused.go_on()
        first.join(60)
    assert count(session, "repair") == 2
    assert r.check(session) == {}


#: A hand-out that nothing says the end of: its worker answers late, a sweep puts it back, an operator does it again.
EVENTS: dict[str, Callable[[c.Journey], Any]] = {
    "worker": lambda found: r.well(found.handed, c.NUMBER + 11),
    "graphs": lambda found: graphs.look([found.id]),
    "decisions": lambda _: r.sweep(),
    "operator": lambda found: operate.restart(found.id, 4),
    "abort": lambda found: operate.abort(found.id),
}


def _do(event: str, found: c.Journey) -> Any:
    try:
        return EVENTS[event](found)
    except BadRequest as refused:
        return refused


@pytest.mark.parametrize("plant", ["in work without end", "overdue"])
@pytest.mark.parametrize("order", list(itertools.permutations(["worker", "graphs", "decisions", "operator"])), ids=str)
def test_in_every_order_there_is_one_outcome(session: Session, order: tuple[str, ...], plant: str) -> None:
    # P5, R7
    found = c.journey()
    if plant == "overdue":
        r.let_pass(where="number = 4")
    else:
        c.REPAIRABLE[plant].into(found.id)
    for event in order:
        _do(event, found)
    assert r.check(session) == {}
    c.finish(found, answered=False)
    assert r.process(session, found.id).value == c.VALUE
    assert r.check(session) == {}


@pytest.mark.parametrize("first", ["worker", "operator", "abort"])
@pytest.mark.parametrize("second", ["graphs", "decisions"])
def test_a_sweep_waits_for_nobody(session: Session, engine: Engine, first: str, second: str) -> None:
    # R7: whoever holds the graph changes it, and the next sweep looks again.
    found = c.journey()
    c.REPAIRABLE["in work without end"].into(found.id)
    r.let_pass(where="number = 4")
    with engine.begin() as connection:
        connection.execute(sa.text("SELECT 1 FROM tidemill.graph FOR UPDATE"))
        thread = threading.Thread(target=_do, args=(first, found))
        thread.start()
        wait_until(lambda: r.waits_for_a_lock(session))
        assert getattr(_do(second, found), "repaired", 0) == 0
    thread.join(60)
    _do(second, found)
    assert r.check(session) == {}
    if first != "abort":
        c.finish(found, answered=False)
        assert r.process(session, found.id).value == c.VALUE


def test_all_of_the_sweep_over_processes(session: Session) -> None:
    # R5
    done, late, sound = c.journey(), c.journey(), c.journey()
    c.finish(done)
    r.execute(f"UPDATE tidemill.process SET state = 'ACTIVE', ended_at = NULL, value = NULL WHERE id = {done.id}")  # noqa: S608
    for each in (done, late):
        r.execute(f"UPDATE tidemill.process SET deadline_at = now(), recovery_time = now() WHERE id = {each.id}")  # noqa: S608
    never = start(w.journey, c.NUMBER)
    r.execute(f"UPDATE tidemill.process SET recovery_time = now() WHERE id = {never}")  # noqa: S608
    assert late_processes.run_once() == late_processes.Report(begun=1, finished=1, broken=1)
    assert late_processes.run_once() == late_processes.Report()
    states = [r.state(session, each) for each in (done.id, late.id, never, sound.id)]
    assert states == [ProcessState.FINISHED, ProcessState.BROKEN, ProcessState.ACTIVE, ProcessState.ACTIVE]
    assert r.process(session, done.id).value == c.VALUE
    found = r.rows(session, "SELECT finding, action FROM tidemill.repair ORDER BY id")
    assert sorted(map(tuple, found)) == [("all_done", "finished"), ("never_begun", "begun"), ("over_time", "broken")]


def test_its_cost_follows_what_is_overdue(engine: Engine) -> None:
    # R1
    pages = []
    for rows in (10_000, 30_000):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"TRUNCATE {backlog.TABLES}")
        backlog.fill(engine, rows, analyze=True)
        r.execute("UPDATE tidemill.graph SET recovery_time = now() + interval '1 h' WHERE process_id > 100")
        with plans.captured(engine) as asked:
            assert sweep().examined == 100
        selects = [each for each in asked if each.text.lstrip().startswith(("SELECT", "WITH"))]
        found = [plans.explain(engine, each, analyze=True) for each in selects if "graph" in each.text]
        assert "graph_recovery" in found[0].indexes()
        with engine.begin() as connection, plans.captured(engine) as loaded:
            facts.load(connection, range(500, 700))
        looked = [plans.explain(engine, each, analyze=True) for each in loaded if "tidemill." in each.text]
        assert {name for each in looked for name in each.read_whole()} <= {"broken_task"}, "which is empty"
        pages.append(sum(each.pages for each in looked))
    assert pages[1] < 2 * pages[0]
