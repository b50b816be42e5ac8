"""Ten thousand reactive tasks, each of which needs what the one before produces; with what they have seen, and done."""

from __future__ import annotations

import json

from sqlalchemy.engine import Engine

from tests.kit.copying import copy
from triggers import Delta
from triggers.shape import shape

TASKS, POOLS = 10_000, 10
MOMENT = "2026-01-01T00:00:00Z"
#: One in so many is paused, quarantined, rests, runs, waits, or is of a release that is gone.
FEW = 500
BIG = {"run", "evaluation", "ctl_change", "ctl_seen", "ctl", "reactive_leaf", "missed_window", "reactive_task"}


def name(number: int) -> str:
    """Behind those of tests, by the alphabet."""
    return f"warehouse.t{number:05}"


def fill(engine: Engine, runs: int = 10, steps: int = 5) -> None:
    """`runs` of each task have ended; `steps` of each parameter, and evaluations of each task, are kept."""
    numbers, words = range(TASKS), _tasks(engine)
    copy(engine, "ctl", "entity, parameter, value", [(f"e{n}", "p", MOMENT) for n in numbers])
    copy(engine, "ctl_seen", "task, entity, parameter, value", [(name(n), f"e{n}", "p", MOMENT) for n in numbers])
    changes = [(f"e{n}", "p", MOMENT) for _ in range(steps) for n in numbers]
    copy(engine, "ctl_change", "entity, parameter, value", changes)
    ended = [(name(n), f"reactive.p{n % POOLS}", 0, 0, "done", MOMENT) for _ in range(runs) for n in numbers]
    copy(engine, "run", "task, queue, priority, generation, state, ended_at", ended)
    live = [(name(n), f"reactive.p{n % POOLS}", 0, 0, "waiting") for n in numbers if n % FEW == 4]
    copy(engine, "run", "task, queue, priority, generation, state", live)
    kept = [(name(n), MOMENT, "t", "polling", words[n], "[]") for _ in range(steps) for n in numbers]
    copy(engine, "evaluation", "task, at, fired, cause, trigger, values", kept)
    missed = [(name(n), MOMENT, MOMENT, "r") for n in numbers]
    copy(engine, "missed_window", "task, opened_at, closed_at, reason", missed)


def _tasks(engine: Engine) -> list[str]:
    """The text of the trigger of each."""
    numbers, form = range(TASKS), shape(Delta("e", "p", "1d"))
    words = [json.dumps(Delta(f"e{n}", "p", "1d").to_json()) for n in numbers]
    copy(engine, "reactive_pool", "name", [(f"p{n}",) for n in range(POOLS)])
    copy(
        engine,
        "reactive_task",
        "name, module, pool, priority, trigger, shape, produces, first_run, on_lapse, max_failures, backoff, code,"
        " paused, quarantined_at, start_after, removed_at",
        (
            (
                *(name(n), "warehouse", f"p{n % POOLS}", 0, words[n], form, json.dumps([[f"e{(n + 1) % TASKS}", "p"]])),
                *("fire", "drop", 5, "5s", "c", "t" if n % FEW == 1 else "f"),
                *(MOMENT if n % FEW == 2 else None, "2100-01-01Z" if n % FEW == 3 else None),
                MOMENT if n % FEW == 5 else None,
            )
            for n in numbers
        ),
    )
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tidemill.reactive_leaf (task_id, position, entity, parameter, latched) "
            "SELECT id, 0, trigger->>'entity', 'p', true FROM tidemill.reactive_task WHERE module = 'warehouse'"
        )
    return words
