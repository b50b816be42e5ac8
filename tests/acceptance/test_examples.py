"""The warehouse: each of its tasks runs, by real workers and beat, and each increment is processed once."""

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


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {
        **env,
        "TIDEMILL_MODULES": "warehouse.tasks",
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
    proof = processes.start([sys.executable, "-m", "warehouse.proof"], env, "proof")
    assert proof.wait() == 0, proof.log
    return proof.log


def test_every_task_of_the_warehouse_runs(env: dict[str, str], processes: Processes, session: Session) -> None:
    """With beat alone; a worker dies on the way, and the marts show each fact once."""
    env = environment(env)
    victim = processes.celery_worker(env, 2, name="victim")
    beat = processes.beat(env)
    loader = load(processes, env, 120, 0.15)
    wait_until(lambda: len(done(session)) > 8, 30)
    victim.kill()
    worker = processes.celery_worker(env, 2, name="heir")
    wait_until(lambda: TASKS - done(session).keys() == set(), 60, "every task has run")
    assert done(session).keys() == TASKS
    assert loader.wait(60) == 0, loader.log
    wait_until(lambda: idle(session), 30)
    assert session.scalar(_TRIED_AGAIN), "the rates came at once every time"
    assert re.search(r"^[1-9]\d+ increments, each of them once", proved(processes, env))
    _ended_as_they_should(session)
    # First whoever sends: Celery may wait for ever for a message that comes while it closes its pool.
    beat.terminate()
    assert beat.wait(30) == 0, beat.log
    worker.terminate()
    assert worker.wait(30) == 0, worker.log
    assert "Traceback" not in worker.log


def _ended_as_they_should(session: Session) -> None:
    """Runs lapse where their trigger does not hold any more, and one mart gives up where there is nothing to sum up."""
    ended = {(task, state) for task, state, _ in session.execute(_ENDED) if state != "done"}
    assert {task for task, state in ended if state != "lapsed"} <= {"warehouse.marts.loyalty"}


def test_the_demo_runs_both_examples_and_stops_cleanly(processes: Processes, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    env |= {"TIDEMILL_HOME": str(tmp_path / "home")}
    demo = processes.start([str(SCRIPT), "up", "--demo", "--flower-port", str(free_port())], env, "demo")
    demo.wait_for(r"orders: [1-9]\d* committed", 60)
    demo.wait_for(r"the mart of daily sales to 20\d\d.*; [1-9]\d* increments, each of them once", 60)
    demo.wait_for(r"reactive tasks: 22; [1-9]\d* runs done", 20)
    demo.terminate()
    assert demo.wait(60) == 0, demo.log
    assert "all have ended" in demo.log
    # The bank declines some payments of the shop for good: that is shown.
    wrong = [line for line in demo.log.splitlines() if "ERROR" in line and "PaymentDeclined" not in line]
    assert wrong == []
    assert "it is killed" not in demo.log
