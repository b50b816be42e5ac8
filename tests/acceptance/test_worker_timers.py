"""A worker that goes on for months holds no more than one that has just begun."""

from __future__ import annotations

import re
from itertools import pairwise

from tests.kit import tasks
from tests.kit.process import Processes
from tests.kit.waiting import wait_until
from tidemill import enqueue, wait

MODULES = "tests.kit.tasks,tests.kit.counted_timers"
TICKETS = 20


def test_the_timers_of_tickets_are_forgotten(env: dict[str, str], processes: Processes) -> None:
    worker = processes.celery_worker(env, concurrency=1, modules=MODULES)

    def are_fewer() -> bool:
        for number in range(TICKETS):
            wait(enqueue(tasks.record.s(number)), 300)
        counts = [int(each) for each in re.findall(r"^timers: (\d+)$", worker.log, re.MULTILINE)]
        return any(after < before - TICKETS // 2 for before, after in pairwise(counts))

    wait_until(are_fewer, 300, "forgetting timers")
