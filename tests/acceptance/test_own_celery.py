"""What users of Celery have of their own: bases of tasks, settings, queues that they leave out, commands to workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.workers import Worker
from tests.kit import own_bases
from tests.kit.process import Processes
from tests.kit.waiting import wait_until
from tidemill import enqueue, wait

MODULES = "tests.kit.own_bases"


@pytest.fixture
def notes(env: dict[str, str], tmp_path: Path) -> Path:
    found = tmp_path / "notes"
    found.touch()
    env["NOTES"] = str(found)
    return found


def test_what_the_base_of_a_task_does_is_done_for_its_jobs(
    env: dict[str, str], processes: Processes, notes: Path
) -> None:
    """J1: any Celery task; also by plain Celery."""
    processes.celery_worker(env, modules=MODULES)
    for how in ("enqueued", "again"):
        wait(enqueue(own_bases.within.s(how)), 300)
    send = "from app.celery import app; from tests.kit.own_bases import within; within.apply_async(('sent',))"
    processes.python(send, env | {"TIDEMILL_MODULES": MODULES}).wait()
    wait_until(lambda: "sent" in notes.read_text())
    expected = ["enqueued in context", "again in context", "retry of its own", "again in context", "sent in context"]
    assert notes.read_text().splitlines() == expected


def test_hooks_of_a_task_are_called_for_its_jobs_and_for_no_ticket(
    env: dict[str, str], processes: Processes, notes: Path
) -> None:
    worker = processes.celery_worker(env, concurrency=1, modules=MODULES)
    for order in (17, -1, 18):
        wait(enqueue(own_bases.pay.s(order)), 300)
    told = ["begins 17", "succeeded [17]", "begins -1", "failed [-1]", "begins 18", "succeeded [18]"]
    assert notes.read_text().splitlines() == told
    assert "tests.kit.own_bases.pay" in worker.log, "Celery shows its tickets under its name"
    assert "IndexError" not in worker.log


def test_the_settings_of_another_application_are_left_alone(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "celeryconfig.py").write_text("broker_url = 'redis://elsewhere/7'\nbeat_schedule = {}\n")
    look = "from app.celery import app; print(app.conf.broker_url, len(app.conf.beat_schedule) > 0, app.conf.timezone)"
    said = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert said.stdout.split() == [env["TIDEMILL_BROKER_URL"], "True", "UTC"], said.stderr


def test_queues_that_are_left_out_are_not_taken(env: dict[str, str], processes: Processes, session: Session) -> None:
    processes.celery_worker(env, modules=MODULES, options=["-X", "control,mail"])
    queues = reported(session)[0]
    assert "jobs" in queues
    assert not {"control", "mail"} & set(queues)


def test_what_a_worker_is_told_while_it_runs_is_reported(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    worker = processes.celery_worker(env, concurrency=1, queues=["jobs"], modules=MODULES)
    assert reported(session) == (["jobs"], 1)
    for command in (["add_consumer", "slow"], ["cancel_consumer", "jobs"], ["pool_grow", "2"]):
        told = processes.celery(env, "control", *command, name="control")
        assert told.wait() == 0, told.log
    wait_until(lambda: reported(session) == (["slow"], 3), 60)
    assert worker.status is None


def reported(session: Session) -> tuple[list[str], int]:
    wait_until(lambda: session.execute(sa.select(sa.func.count()).select_from(Worker)).scalar_one())
    session.rollback()
    row = session.execute(sa.select(Worker.queues, Worker.slots)).one()
    return sorted(row.queues), row.slots
