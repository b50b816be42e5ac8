"""Options of a Celery signature that a durable job would lose: refused, with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.errors import Unsupported

_NEXT = "enqueue the next task inside this one, in this_job().transaction()"
_DECLARED = "declare it on the task, as in @shared_task({option}=…)"
_ROW = "a job is a row of your transaction, and no message: leave it out"
_TEXT = "arguments are kept as JSON: leave it out"
_ARGUMENTS = "pass what the task needs among its arguments"
_ATTEMPTS = "pass max_attempts= to enqueue, or declare max_retries on the task"
_QUEUE = "pass queue= to enqueue"

REFUSED = {
    "countdown": "pass eta= to enqueue, as seconds or a datetime",
    "eta": "pass eta= to enqueue",
    "expires": "pass expires= to enqueue",
    "link": _NEXT,
    "link_error": "handle the failure in the task, or look for it in the job log",
    "chord": "use a process of deciders and actors",
    "group_id": "enqueue each task of the group with enqueue_many",
    "chain": _NEXT,
    "reply_to": "read results from the job log",
    "task_id": "use key= and the job id",
    "time_limit": _DECLARED,
    "soft_time_limit": _DECLARED,
    "ignore_result": _DECLARED,
    "retries": _ATTEMPTS,
    "max_retries": _ATTEMPTS,
    "headers": _ARGUMENTS,
    "stamped_headers": _ARGUMENTS,
    "serializer": _TEXT,
    "compression": _TEXT,
    "exchange": _QUEUE,
    "routing_key": _QUEUE,
    "retry": _ROW,
    "retry_policy": _ROW,
    "delivery_mode": _ROW,
    "connection": _ROW,
    "producer": _ROW,
    "shadow": "a job is shown under the name of its task: leave it out",
}


def refuse_options(task: str, options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        # Celery itself writes None, and empty lists and headers.
        if option in REFUSED and value is not None and value not in ([], (), {}):
            instead = REFUSED[option].format(option=option)
            raise Unsupported(f"{task}: a durable job cannot have {option}: {instead}")
