"""The passes that services make, and how beat asks for them (the MVP mode)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app import dispatch, workers
from app.claims import Lane
from app.db import autocommit
from app.jobs import retention, schedules
from app.registry import Pass, Waiting, registry
from app.schema import CLAIMABLE
from app.settings import settings
from recovery import jobs as lost_jobs
from recovery import runs as lost_runs
from triggers import polling, pools
from triggers import retention as reactive_retention
from triggers.definition import PREFIX
from triggers.sync import synchronize
from triggers.work import RunServer

CONTROL = "control"
SECOND = timedelta(seconds=1)
#: The shortest time by which what waits is told apart in practice.
AGEING_EVERY = timedelta(seconds=5)


def forget_workers() -> int:
    """Workers that have been gone for a day."""
    with autocommit() as connection:
        return workers.forget_gone(connection)


for model in CLAIMABLE:
    registry.add_waiting(Waiting(model, (Lane.MAIN,)))
registry.add_pass("dispatch", dispatch.run_once, SECOND)
registry.add_pass("periodic", schedules.run_once, SECOND)
registry.add_pass("recover_jobs", lost_jobs.run_once, settings().sweep_interval)
registry.add_pass("recover_runs", lost_runs.run_once, settings().sweep_interval)
registry.add_pass("reactive", polling.run_once, settings().poll_interval)
registry.add_pass("ageing", pools.age, AGEING_EVERY)
registry.add_server(PREFIX, RunServer)
registry.declarations.append(lambda: synchronize().told())
registry.add_pass("retention", retention.run_once, timedelta(minutes=1))
registry.add_pass("reactive_retention", reactive_retention.run_once, timedelta(minutes=1))
registry.add_pass("workers", forget_workers, timedelta(hours=1))


def task_name(each: Pass) -> str:
    return f"tidemill.control.{each.name}"


def beat_entries() -> dict[str, dict[str, Any]]:
    """A message that was not taken within one interval is worth nothing: the next one asks for the same."""
    return {
        each.name: {
            "task": task_name(each),
            "schedule": each.every,
            "options": {"queue": CONTROL, "expires": max(1.0, each.every.total_seconds())},
        }
        for each in registry.passes.values()
    }
