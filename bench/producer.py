"""A user's program that enqueues; run as a process of its own, since the product reads its settings once a process.

Arguments as JSON in, one line of JSON out, like the peers' scripts.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import stamps, tasks
from tidemill import enqueue, enqueue_many, transaction


def backlog(task: str, count: int) -> dict[str, Any]:
    """All of it in one transaction, so that it appears at once; says when, on this machine's clock."""
    signatures = [getattr(tasks, task).s() for _ in range(count)]
    with transaction() as session:
        for start in range(0, count, 1000):
            enqueue_many(signatures[start : start + 1000], session=session)
        handed_over = time.time()
    time.sleep(0.2)  # the doorbell rings from a thread of this process, after the commit
    return {"committed": handed_over}


def lone(samples: int, warm: int, pause: tuple[float, float]) -> dict[str, Any]:
    """From just before COMMIT to the task's first line, in milliseconds."""
    waited, after = [], []
    for number in range(-warm, samples):
        time.sleep(random.uniform(*pause))
        with transaction() as session:
            enqueue(tasks.stamp.s(number), session=session)
            committing = time.time_ns()
        committed = time.time_ns()
        arrived = stamps.began(number, "job")
        if number >= 0:
            waited.append((arrived - committing) / 1e6)
            after.append((arrived - committed) / 1e6)
    return {"waited": waited, "after": after}


def single(count: int, warm: int) -> dict[str, Any]:
    """One job a transaction."""
    begun = time.perf_counter()
    for number in range(-warm, count):
        if number == 0:
            begun = time.perf_counter()
        with transaction() as session:
            enqueue(tasks.noop.s(), session=session)
    return {"rate": count / (time.perf_counter() - begun)}


def many(batches: int, size: int, warm: int) -> dict[str, Any]:
    """A batch a transaction; the clock of `call` does not see Celery build the signatures, that of `rate` does."""
    building = calling = 0.0
    for number in range(-warm, batches):
        begun = time.perf_counter()
        signatures = [tasks.noop.s() for _ in range(size)]
        built = time.perf_counter()
        with transaction() as session:
            enqueue_many(signatures, session=session)
        if number >= 0:
            building += built - begun
            calling += time.perf_counter() - built
    return {"call": batches * size / calling, "rate": batches * size / (building + calling)}


if __name__ == "__main__":
    each: tuple[Callable[..., dict[str, Any]], ...] = (backlog, lone, single, many)
    what = {function.__name__: function for function in each}[sys.argv[1]]
    print(json.dumps(what(**json.loads(sys.argv[2]))))
