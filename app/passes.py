"""The passes that services make, and how beat asks for them (the MVP mode)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app import dispatch, outbox, timings, workers
from app.claims import Lane
from app.db import autocommit
from app.jobs import retention, schedules
from app.outbox import retention as event_retention
from app.registry import Pass, Waiting, registry
from app.schema import CLAIMABLE
from app.settings import settings
from processes import preferences, starting
from processes import retention as process_retention
from processes.model import PREFIX as ACTOR
from processes.model import PROCESS
from processes.serving import DecisionServer
from recovery import decisions as late_decisions
from recovery import graphs as idle_graphs
from recovery import jobs as lost_jobs
from recovery import processes as late_processes
from recovery import record as repairs
from recovery import runs as lost_runs
from recovery import visits as lost_visits
from recovery.operations import retention as operation_retention
from recovery.operations import running as operations
from stages import retention as stage_retention
from stages.definition import PREFIX as STAGE
from stages.model import StageVisit
from stages.serving import VisitServer
from stages.sync import synchronize as synchronize_stages
from triggers import polling, pools, service
from triggers import retention as reactive_retention
from triggers.definition import PREFIX as REACTIVE
from triggers.sync import synchronize
from triggers.work import RunServer

CONTROL = "control"
SECOND = timedelta(seconds=1)
#: The shortest time by which what waits is told apart in practice.
AGEING_EVERY = timedelta(seconds=5)
#: What a hint makes quicker.
SERVICE_EVERY = timedelta(milliseconds=50)


def sweep_interval() -> timedelta:
    return settings().sweep_interval


def poll_interval() -> timedelta:
    return settings().poll_interval


def forget_workers() -> int:
    """Workers that have been gone for a day."""
    with autocommit() as connection:
        return workers.forget_gone(connection)


def forget_timings() -> int:
    with autocommit() as connection:
        return timings.forget(connection, settings().log_retention)


for model in CLAIMABLE:
    registry.add_waiting(Waiting(model, (Lane.MAIN, Lane.LOW) if model is StageVisit else (Lane.MAIN,)))
registry.add_pass("dispatch", dispatch.run_once, SECOND)
registry.add_pass("periodic", schedules.run_once, SECOND)
registry.add_pass("recover_jobs", lost_jobs.run_once, sweep_interval)
registry.add_pass("recover_runs", lost_runs.run_once, sweep_interval)
registry.add_pass("recover_visits", lost_visits.run_once, sweep_interval)
registry.add_pass("begin", starting.run_once, SECOND)
registry.add_pass("recover_decisions", late_decisions.run_once, sweep_interval)
registry.add_pass("recover_processes", late_processes.run_once, sweep_interval)
registry.add_pass("operations", operations.run_once, SECOND, apart=True)
registry.add_pass("recover_graphs", idle_graphs.run_once, sweep_interval)
registry.add_pass("reactive", polling.run_once, poll_interval, scheduler=False)
registry.add_pass("reactive_service", service.run_once, SERVICE_EVERY, beat=False, hinted=True)
registry.add_pass("ageing", pools.age, AGEING_EVERY)
registry.add_server(REACTIVE, RunServer)
registry.add_server(STAGE, VisitServer)
registry.add_server(ACTOR, DecisionServer)
registry.declarations.append(lambda: synchronize().told())
registry.declarations.append(lambda: preferences.synchronize().told())
registry.declarations.append(lambda: synchronize_stages().told())
process_retention.wanted.append(operation_retention.holding(PROCESS.c.id))
registry.add_pass("retention", retention.run_once, timedelta(minutes=1))
registry.add_pass("reactive_retention", reactive_retention.run_once, timedelta(minutes=1))
registry.add_pass("stage_retention", stage_retention.run_once, timedelta(hours=1))
registry.add_pass("repair_retention", repairs.run_once, timedelta(minutes=1))
registry.add_pass("process_retention", process_retention.run_once, timedelta(minutes=1))
registry.add_pass("operation_retention", operation_retention.run_once, timedelta(minutes=1))
registry.add_pass("relay", outbox.run_once, SECOND, apart=True)
registry.add_pass("event_retention", event_retention.run_once, timedelta(minutes=1))
registry.add_pass("workers", forget_workers, timedelta(hours=1))
registry.add_pass("timings", forget_timings, timedelta(hours=1))


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
        if each.beat
    }
