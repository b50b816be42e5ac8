"""Processes: work that runs because the step before it decided so.

    @actor
    def charge(order_id: str, amount: int) -> str: ...

    @decider
    def fulfil(flow: Flow, order_id: str):
        paid = flow.call(charge, order_id, 100)
        return flow.call(ship, order_id, after=[paid])

    start(fulfil, "o-1", idempotency_key="o-1")

Promises:

- A process that was registered is begun, and every task of it is handed out until it is done or broken; nothing that
  dies in between is needed for it.
- A step is accepted in one transaction, never a part of it; a task is accepted once.
- A task is not handed out before everything that it waits for has finished.
- A broken task stops what waits for it, and nothing else.
"""

from __future__ import annotations

from processes import outside
from processes.current import ThisTask, this_task
from processes.definition import Retry
from processes.finding import search
from processes.flow import Flow
from processes.promise import Failure, Promise
from processes.registration import actor, decider
from processes.showing import Ended, show, wait
from processes.shown import Shown, TaskShown
from processes.starting import start
from processes.states import DecisionState, ProcessState, TaskState

__all__ = [
    "DecisionState",
    "Ended",
    "Failure",
    "Flow",
    "ProcessState",
    "Promise",
    "Retry",
    "Shown",
    "TaskShown",
    "TaskState",
    "ThisTask",
    "actor",
    "decider",
    "outside",
    "search",
    "show",
    "start",
    "this_task",
    "wait",
]
