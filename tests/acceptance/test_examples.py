"""By real workers and beat: each task of the warehouse runs, and each increment is processed once; the stages of the
classifieds site come to rest with every offer, and each is as it should be."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.embedded.server import free_port
from tests.kit.cli import SCRIPT
from tests.kit.process import ROOT, Process, Processes
from tests.kit.waiting import wait_until

EXAMPLES = ROOT / "examples"
TASKS = {
    *(f"warehouse.staging.{name}" for name in ("orders", "payments", "clicks", "returns", "rates", "catalogue")),
    *(f"warehouse.detail.{name}" for name in ("sales", "refunds", "prices", "visits", "customers")),
    *(f"warehouse.marts.{period}_sales" for period in ("daily", "weekly", "monthly", "quarterly")),
    *(f"warehouse.marts.{name}" for name in ("yearly_refunds", "conversion", "loyalty")),
    *(f"warehouse.watch.{name}" for name in ("stock", "today", "nearly_caught_up")),
    "warehouse.dashboards.refresh",
}
_ENDED = sa.text("SELECT task, state::text, count(*) FROM tidemill.run WHERE ended_at IS NOT NULL GROUP BY 1, 2")
_TRIED_AGAIN = sa.text(
    "SELECT count(*) FROM tidemill.run WHERE task = 'warehouse.staging.rates' AND state = 'done' AND attempts > 1"
)
_LIVE = sa.text("SELECT count(*) FROM tidemill.run WHERE state IN ('waiting', 'running')")


_PARKED = sa.text("SELECT count(*) FROM tidemill.stage_visit WHERE state = 'parked'")
_TAKEN_DOWN = sa.text("SELECT count(*) FROM classifieds_offer WHERE status = 'taken down'")


def environment(env: Mapping[str, str], modules: str = "warehouse.tasks") -> dict[str, str]:
    return {
        **env,
        "TIDEMILL_MODULES": modules,
        "TIDEMILL_POLL_INTERVAL": "200ms",
        "TIDEMILL_LEASE": "2s",
        "TIDEMILL_SWEEP_INTERVAL": "500ms",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, EXAMPLES))),
    }


def load(processes: Processes, env: Mapping[str, str], days: int, day_seconds: float) -> Process:
    words = ["--days", str(days), "--day-seconds", str(day_seconds)]
    return processes.start([sys.executable, "-m", "warehouse.load", *words], env, "load")


def done(session: Session) -> dict[str, int]:
    session.rollback()
    return {task: count for task, state, count in session.execute(_ENDED) if state == "done"}


def idle(session: Session) -> bool:
    session.rollback()
    return not session.scalar(_LIVE)


def proved(processes: Processes, env: Mapping[str, str]) -> str:
    return python(processes, env, "warehouse.proof")


def test_every_task_of_the_warehouse_runs(env: dict[str, str], processes: Processes, session: Session) -> None:
    """With beat alone; a worker dies on the way, and the marts show each fact once."""
    env = environment(env)
    victim = processes.celery_worker(env, 2, name="victim")
    beat = processes.beat(env)
    loader = load(processes, env, 120, 0.15)
    wait_until(lambda: len(done(session)) > 8, 300)
    victim.kill()
    worker = processes.celery_worker(env, 2, name="heir")
    wait_until(lambda: TASKS - done(session).keys() == set(), 60, "every task has run")
    assert done(session).keys() == TASKS
    assert loader.wait() == 0, loader.log
    wait_until(lambda: idle(session), 300)
    assert session.scalar(_TRIED_AGAIN), "the rates came at once every time"
    assert re.search(r"^[1-9]\d+ increments, each of them once", proved(processes, env))
    _ended_as_they_should(session)
    # First whoever sends: Celery may wait for ever for a message that comes while it closes its pool.
    beat.terminate()
    assert beat.wait() == 0, beat.log
    worker.terminate()
    assert worker.wait() == 0, worker.log
    assert "Traceback" not in worker.log


def _ended_as_they_should(session: Session) -> None:
    """Runs lapse where their trigger does not hold any more, and one mart gives up where there is nothing to sum up."""
    ended = {(task, state) for task, state, _ in session.execute(_ENDED) if state != "done"}
    assert {task for task, state in ended if state != "lapsed"} <= {"warehouse.marts.loyalty"}


def test_the_stages_come_to_rest_with_every_offer(env: dict[str, str], processes: Processes, session: Session) -> None:
    """With beat alone. A worker dies on the way, the photo service fails, and users edit what is being visited."""
    env = environment(env, "classifieds.stages") | {"CLASSIFIEDS_OUTSIDE": f"127.0.0.1:{free_port()}"}
    python(processes, env, "classifieds.models")
    teller = processes.start([sys.executable, "-m", "notify.subscriber"], env, "teller")
    victim = processes.celery_worker(env, 2, name="victim")
    beat = processes.beat(env)
    users = processes.start(
        [sys.executable, "-m", "classifieds.users", "--steps", "60", "--pause", "0.1", "--stay"], env, "users"
    )
    users.wait_for(r"[1-9]\d* photos fetched", 300)
    victim.kill()
    worker = processes.celery_worker(env, 3, name="heir")
    # S14: the subscriber dies too, and another one goes on where it was.
    teller.wait_for(r"[1-9]\d* notifications", 300)
    teller.kill()
    teller = processes.start([sys.executable, "-m", "notify.subscriber"], env, "teller's heir")
    users.wait_for(r"classifieds: [6-9]\d offers|classifieds: \d{3} offers", 300)
    proof = python(processes, env, "classifieds.proof", "--within", "60")
    assert re.fullmatch(r"(\d+) offers, \1 of them at rest, each as it should be\n", proof), proof
    wait_until(lambda: _count(session, _TAKEN_DOWN) > 0, 60, "an offer of 180 days ago")
    assert _count(session, _PARKED) == 0
    # S15: for the cluster, and a batch that is worked through one by one is one call at a time.
    assert set(re.findall(r"at most (\d+) at once", users.log)) <= {"0", "1", "2"}
    assert "none twice, and none is missing" in python(processes, env, "notify.proof", "--within", "60")
    teller.terminate()
    assert teller.wait() == 0, teller.log
    users.terminate()
    beat.terminate()
    assert beat.wait() == 0, beat.log
    worker.terminate()
    assert worker.wait() == 0, worker.log
    assert "Traceback" not in worker.log


def _count(session: Session, query: sa.TextClause) -> int:
    session.rollback()
    return session.scalar(query) or 0


def python(processes: Processes, env: Mapping[str, str], module: str, *words: str) -> str:
    """Runs a module to its end; what it said."""
    run = processes.start([sys.executable, "-m", module, *words], env, module)
    assert run.wait(90) == 0, run.log
    return run.log


def test_the_demo_runs_all_examples_and_stops_cleanly(processes: Processes, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    env |= {"TIDEMILL_HOME": str(tmp_path / "home")}
    demo = processes.start([str(SCRIPT), "up", "--demo", "--flower-port", str(free_port())], env, "demo")
    demo.wait_for(r"orders: [1-9]\d* committed", 300)
    demo.wait_for(r"the mart of daily sales to 20\d\d.*; [1-9]\d* increments, each of them once", 300)
    demo.wait_for(r"reactive tasks: 22; [1-9]\d* runs done", 300)
    demo.wait_for(r"classifieds: .* [1-9]\d* are at rest, each as it should be", 300)
    demo.wait_for(r"stages: 6; visits: \d+ due", 300)
    demo.wait_for(r"fulfilment: .* [1-9]\d* shipped; .* and each order as it should be; .* process show \d+", 300)
    demo.wait_for(r"processes: [1-9]\d* finished in the last 5 min, \d+ under way, 0 broken", 300)
    demo.terminate()
    assert demo.wait() == 0, demo.log
    assert "all have ended" in demo.log
    # The bank declines some payments of the shop for good, and couriers fail: that is shown.
    of_the_world = ("PaymentDeclined", "PaymentRefused", "CourierBusy", "CourierGone")
    wrong = [line for line in demo.log.splitlines() if "ERROR" in line and not any(map(line.count, of_the_world))]
    assert wrong == []
    assert "it is killed" not in demo.log
