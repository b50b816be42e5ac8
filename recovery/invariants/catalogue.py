"""All that must hold, in the order in which it is looked at and repaired: numbers before what is made with them, times
and places before what rests on them."""

from __future__ import annotations

from recovery.invariants.entry import Invariant
from recovery.invariants.jobs import OF_JOBS
from recovery.invariants.numbers import OF_NUMBERS
from recovery.invariants.operations import OF_OPERATIONS
from recovery.invariants.processes import OF_PROCESSES
from recovery.invariants.queues import OF_QUEUES
from recovery.invariants.runs import OF_RUNS
from recovery.invariants.states import OF_STATES
from recovery.invariants.tasks import OF_TASKS
from recovery.invariants.visits import OF_VISITS
from recovery.invariants.walks import OF_WALKS

ALL: tuple[Invariant, ...] = (
    *OF_NUMBERS,
    *OF_QUEUES,
    *OF_JOBS,
    *OF_RUNS,
    *OF_VISITS,
    *OF_STATES,
    *OF_WALKS,
    *OF_PROCESSES,
    *OF_TASKS,
    *OF_OPERATIONS,
)
NAMED: dict[str, Invariant] = {each.name: each for each in ALL}
