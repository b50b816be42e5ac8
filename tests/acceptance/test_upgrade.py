"""An upgrade, with the data and the code of earlier releases (`tests.kit.upgrade`): what they left behind is worked
off, and their workers and producers go on while the schema changes under them."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db
from recovery import invariants
from tests.conftest import child_environment
from tests.kit.cli import Tidemill, script
from tests.kit.pages import signed_in
from tests.kit.process import ROOT, Process, Processes
from tests.kit.upgrade import parcels, releases, rivers
from tests.kit.waiting import wait_until, wait_while_it_moves

#: Every lease is over, and what was to be tried again an hour later is due.
AGO = timedelta(hours=1, minutes=5)
QUICK = {"TIDEMILL_LEASE": "2s", "TIDEMILL_SWEEP_INTERVAL": "200ms"}
#: What the first worker did, and what is to be done of what was left, each once, beside the `KINDS` of arguments.
DONE = {"done": 3}
LEFT = ("postponed", "claimed", "first", "narrow", "once", "urgent", "by sql")
QUEUES = ("jobs", "narrow", "halted", "reactive.default", "reactive.locks")
DELIVER = f"{releases.PARCELS}.deliver"
PAGES = ("/", "/jobs", "/log", "/periodic", "/queues", "/reactive", "/audit")


def _delivered(session: Session) -> list[tuple[str, Any, Any]]:
    session.rollback()
    rows = session.execute(sa.text("SELECT what, args, kwargs FROM public.delivered"))
    return [(row.what, row.args, row.kwargs) for row in rows]


def _count(session: Session) -> Counter[str]:
    return Counter(what for what, _, _ in _delivered(session))


def _jobs(session: Session, column: str = "args::text") -> list[Any]:
    session.rollback()
    return list(session.execute(sa.text(f"SELECT {column} FROM tidemill.job ORDER BY id")).scalars())  # noqa: S608


def _flows(session: Session, task: str) -> list[tuple[int | None, int]]:
    session.rollback()
    rows = session.execute(sa.text("SELECT since, until FROM public.flowed WHERE task = :t ORDER BY 2"), {"t": task})
    return [(since and (since - rivers.BEGIN).days, (until - rivers.BEGIN).days) for since, until in rows]


def _mend(session: Session) -> None:
    session.execute(sa.text("INSERT INTO public.mended VALUES (now())"))
    session.commit()


@pytest.mark.parametrize("name", ["first", "before"])
def test_what_an_earlier_release_left_is_worked_off(
    name: str, empty_database_url: str, broker_url: str, processes: Processes, tidemill: Tidemill
) -> None:
    # J3, J5, J9, T11, T22
    modules = releases.PARCELS if name == "first" else f"{releases.PARCELS},{releases.RIVERS}"
    releases.load(name + ".dump", empty_database_url, AGO)
    assert tidemill("status").code == 1
    env = child_environment(empty_database_url, broker_url, TIDEMILL_MODULES=modules, **QUICK)
    assert script("migrate", env).code == 0
    _is_read(tidemill)
    with Session(db.engine()) as session:
        # Nothing that it does is taken back from it, however slow the machine is.
        processes.celery_worker(env | {"TIDEMILL_LEASE": "10min"}, queues=QUEUES)
        processes.scheduler(env)
        _is_worked_off(session)
        if name == "before":
            _flows_on(session, tidemill)
        _mend(session)
        parked = next(each["id"] for each in tidemill("job list --state parked --json").data["jobs"])
        assert tidemill(f"job retry {parked}").code == tidemill("queue resume halted").code == 0
        wait_until(lambda: {"parked", "halted"} <= _count(session).keys(), 300)
        wait_until(lambda: [json.loads(each) for each in _jobs(session)] == [["late"], ["snoozed"]], 300)
        assert invariants.check(session) == []


def _is_read(tidemill: Tidemill) -> None:
    """By the command line and the console, before anything has been done with it."""
    assert "fell off the cart" in tidemill("job list --state parked").out
    log = Counter(each["outcome"] for each in tidemill("job log --json").data["log"])
    assert log == {"done": 3, "failed": 1, "retried": 1, "cancelled": 1}
    assert [each["name"] for each in tidemill("job periodic --json").data["periodic"]] == ["daily", "often", "skipped"]
    assert "halted" in tidemill("queue list").out
    with signed_in() as person:
        for path in PAGES:
            assert person.get(path).status == 200, path
        assert "fell off the cart" in person.get("/jobs?state=parked").text


def _is_worked_off(session: Session) -> None:
    wanted = {*parcels.KINDS, *LEFT, "keyed", "bundle", "often"}
    wait_while_it_moves(lambda: _count(session), lambda seen: wanted <= seen.keys() and seen["bundle"] >= 25)
    found = _count(session)
    # Of each ten minutes of the hour that nobody looked.
    assert found.pop("often") in (6, 7)
    assert found.pop("daily", 1) == 1
    once = dict.fromkeys([*parcels.KINDS, *LEFT, "keyed"], 1)
    assert found == {**DONE, **once, "bundle": 25}
    given = {what: (args, kwargs) for what, args, kwargs in _delivered(session)}
    for what, (args, kwargs) in parcels.KINDS.items():
        assert given[what] == (args, kwargs), what
    assert math.copysign(1, given["numbers"][1]["zero"]) == -1
    assert (given["keyed"], given["by sql"]) == (([1], {}), ([], {"plain": True}))


def _flows_on(session: Session, tidemill: Tidemill) -> None:
    """Each task goes on where it had got to."""
    wait_until(lambda: len(_flows(session, "flow_out")) == 3 and len(_flows(session, "hold_up")) == 2, 300)
    for task in ("run_down", "flow_out"):
        assert _flows(session, task) == [(None, 1), (1, 2), (2, 3)]
    assert _flows(session, "hold_up") == [(None, 1), (1, 2)]
    assert _flows(session, "seep") == []
    assert "river.mouth" in tidemill("ctl list").out
    assert "the marsh took it" in tidemill("reactive why seep").out


ORDERED = "CREATE TABLE public.ordered (what text NOT NULL, number int NOT NULL)"
MIGRATE = "from app import db, migrate; migrate.migrate(db.engine())"
BOTH = f"{releases.PARCELS},{releases.RIVERS}"


def _workers(session: Session) -> set[str]:
    """Who has done something."""
    session.rollback()
    return set(session.execute(sa.text("SELECT DISTINCT split_part(worker, '@', 1) FROM tidemill.job_log")).scalars())


def _orders_by_sql(session: Session, number: int) -> None:
    """As from another language."""
    session.execute(sa.text("INSERT INTO public.ordered VALUES ('sql', :number)"), {"number": number})
    args = json.dumps(["sql", number])
    session.execute(sa.text("SELECT tidemill.enqueue(:task, CAST(:args AS json))"), {"task": DELIVER, "args": args})
    session.commit()


def test_a_rolling_upgrade_under_load(
    empty_database_url: str, broker_url: str, processes: Processes, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Workers, scheduler and producers of the release before, on its schema and then on that of today; then ours beside
    them; then ours alone. Nothing is lost, and nothing is done twice."""
    # J1, J3, J8, J10, T11, T16
    over = tmp_path / "over"
    ours = child_environment(empty_database_url, broker_url, TIDEMILL_MODULES=BOTH, STREAM_UNTIL=str(over))
    theirs = releases.environment(releases.unpack("before.tar.xz", tmp_path / "before"), ours, BOTH)
    assert processes.python(MIGRATE, theirs).wait() == 0
    releases.run("tables", theirs, tmp_path / "tables.log")

    def stream(name: str, river: str, env: dict[str, str]) -> Process:
        words = {"STREAM_NAME": name, "STREAM_RIVER": river}
        found = releases.start("stream", env | words, tmp_path / f"stream-{name}.log")
        request.addfinalizer(found.end)
        return found

    with Session(db.engine()) as session:
        session.execute(sa.text(ORDERED))
        _mend(session)
        old_worker = processes.celery_worker(theirs, queues=QUEUES, name="old")
        old_scheduler = processes.scheduler(theirs)
        streams = [stream("old", "source", theirs)]
        early = processes.celery_worker(ours, queues=QUEUES, name="early")
        early.wait_for("at revision 0003, and this release needs .*: run 'tidemill migrate'")
        _some_more(session)
        assert _workers(session) == {"old"}, "ours takes nothing yet"
        session.rollback()
        migrated = script("migrate", ours)
        assert (migrated.code, "from revision 0003" in migrated.out) == (0, True), migrated.err
        wait_until(lambda: _workers(session) == {"old", "early"}, 300)
        early.terminate()
        assert early.wait() == 0, early.log
        _orders_by_sql(session, 1)
        _some_more(session)
        new_worker = processes.celery_worker(ours, queues=QUEUES, name="new")
        streams.append(stream("new", "marsh", releases.environment(ROOT, ours, BOTH)))
        processes.scheduler(ours)
        wait_until(lambda: "new" in _workers(session), 300)
        for each in (old_scheduler, old_worker):
            each.terminate()
            assert each.wait() == 0, each.log
        _orders_by_sql(session, 2)
        _some_more(session)
        over.touch()
        assert [each.wait() for each in streams] == [0, 0], [each.log for each in streams]
        wait_while_it_moves(lambda: (_jobs(session), _seen(session)), lambda seen: not seen[0] and seen[1])
        _each_was_done_once(session)
        assert invariants.check(session) == []
    for worker in (old_worker, early, new_worker):
        assert "Traceback" not in worker.log, worker.log


def _some_more(session: Session) -> None:
    before = sum(_count(session).values())
    wait_until(lambda: sum(_count(session).values()) > before + 20, 120, "20 more deliveries")


def _seen(session: Session) -> bool:
    """Every task has seen all that there is."""
    session.rollback()
    seen = "SELECT max(value) FROM tidemill.ctl_seen WHERE entity = ctl.entity"
    query = f"SELECT value, ({seen}) FROM tidemill.ctl"  # noqa: S608
    return all(value == last for value, last in session.execute(sa.text(query)))


def _each_was_done_once(session: Session) -> None:
    ordered = session.execute(sa.text("SELECT what, number FROM public.ordered")).all()
    assert {what for what, _ in ordered} == {"old", "new", "sql"}
    found = Counter((what, args[0]) for what, args, _ in _delivered(session))
    assert found == Counter(tuple(each) for each in ordered)
    outcomes = session.execute(sa.text("SELECT outcome::text, count(*) FROM tidemill.job_log GROUP BY 1")).all()
    assert dict(map(tuple, outcomes)) == {"done": len(ordered)}
    for task in ("run_down", "flow_out", "seep"):
        flows = _flows(session, task)
        assert [since for since, _ in flows] == [None, *(until for _, until in flows[:-1])], task
