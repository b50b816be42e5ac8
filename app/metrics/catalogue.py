"""The metrics that there are: name, type, labels, and what each says. Names and units are as Prometheus wants them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """`name`: of a counter with `_total`, which some formats add by themselves."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names by which its samples are asked for."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{word}" for word in ("bucket", "count", "sum"))
        return (self.name,)


METRICS: dict[str, Metric] = {}


def _metric(kind: Kind, name: str, text: str, *labels: str) -> Metric:
    found = METRICS[name] = Metric(name, kind, text, labels)
    return found


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return _metric(Kind.GAUGE, f"tidemill_{name}", text, *labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return _metric(Kind.COUNTER, f"tidemill_{name}_total", text, *labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return _metric(Kind.HISTOGRAM, f"tidemill_{name}_seconds", text, *labels)


# Queues

DEPTH = _gauge(
    "queue_depth",
    "Entries of a queue: ready, later (due in the future), running, parked; each counted up to 10000. What runs or is "
    "parked is in the lane main.",
    *("kind", "queue", "lane", "state"),
)
OLDEST = _gauge(
    "queue_oldest_age_seconds", "How long the first ready entry of a queue has been ready.", "kind", "queue", "lane"
)
PAUSED = _gauge("queue_paused", "1 where an operator has paused the queue.", "queue")
RESTING = _gauge("queue_resting", "1 where the queue rests, as what its work needs does not answer.", "queue")
SLOTS = _gauge("queue_slots", "Slots of live workers that serve the queue.", "queue")
WAIT = _histogram("queue_wait", "From when work was due until a worker claimed it.", "kind", "queue")
WORK = _histogram(
    "work_duration",
    "What a call of the user's function took. Outcome: done, retried, failed, lost, interrupted, cancelled.",
    *("kind", "task", "outcome"),
)

# What serves

WORKERS = _gauge("workers", "Workers that gave a sign of life within 15 s.")
WORKER_SLOTS = _gauge("worker_slots", "Slots of these workers.")
LEADERS = _gauge("duty_leaders", "1 where a scheduler leads the duty.", "duty")
LEADER_AGE = _gauge("duty_leader_age_seconds", "How long the leader of the duty has been connected.", "duty")

# Reactive tasks

TASKS = _gauge("reactive_tasks", "Declared reactive tasks: active, paused, quarantined.", "state")
QUARANTINED = _gauge("reactive_task_quarantined", "1 for each task that is quarantined.", "task")
MISSED = _counter("missed_windows", "Windows in which a trigger held, and that closed unused.", "task")
CAPTURE_LAG = _gauge(
    "capture_lag_seconds", "How long the first change of the control table has waited that no scheduler has followed."
)
CAPTURE_WAITING = _gauge("capture_waiting_changes", "Changes that no scheduler has followed, counted up to 10000.")

# Stages and events

ASK_FAILURES = _counter("should_process_failures", "Calls of should_process that raised.", "kind", "stage")
EVENTS_WAITING = _gauge("events_waiting", "Events that are not published, counted up to 10000.")
RELAY_LAG = _gauge("relay_lag_seconds", "How long the first event has waited that is not published.")
PUBLISHED = _counter("events_published", "Events that were published.")
RELAY_FAILING = _gauge("relay_failing_seconds", "For how long the relay has failed; 0 where it does not.")

# Processes and recovery

PROCESSES = _gauge("processes", "Processes that have not ended, by state, counted up to 10000.", "state")
REGISTERED_AGE = _gauge(
    "process_registered_age_seconds", "How long the first process has been registered that has not begun."
)
BROKEN_TASKS = _gauge("broken_tasks", "Tasks of processes that are broken, counted up to 10000.")
WORK_TIMEOUTS = _counter("work_timeouts", "Answers of actors that did not come in time, of all actors.")
ACTOR_WORK_TIMEOUTS = _counter("actor_work_timeouts", "The same of each actor.", "actor")
REPAIRS = _counter("repairs", "What recovery has put right, by what was found.", "finding")
OPERATIONS = _gauge("operations", "Operations that have not ended: running, paused, and halted by themselves.", "state")

# The database, and the scrape

TRANSACTION = _gauge(
    "database_oldest_transaction_seconds", "Age of the oldest open transaction of this database; 0 where there is none."
)
CONNECTIONS = _gauge("database_connections", "Connections to this database.")
INFO = _gauge("build_info", "1, with the version of the console that answers.", "version")
SCRAPE_ERRORS = _gauge("scrape_errors", "1 where a part of the metrics could not be read.", "part")
SCRAPE_SECONDS = _gauge("scrape_duration_seconds", "What reading a part of the metrics took.", "part")
