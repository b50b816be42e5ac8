"""A program that moves a data set, and waits for the task that this starts; run as a process of its own.

Arguments as JSON in, one line of JSON out.
"""

from __future__ import annotations

import json
import random
import sys
import time
from datetime import timedelta
from typing import Any

from bench.reactive import BEGIN
from bench.tasks import stamps
from tidemill import ctl, transaction


def lone(samples: int, warm: int, pause: tuple[float, float]) -> dict[str, Any]:
    """From just before COMMIT of the change to the task's first line, in milliseconds."""
    waited = []
    for number in range(1, warm + samples + 1):
        time.sleep(random.uniform(*pause))
        with transaction() as session:
            ctl.advance("bench.table", loaded_to=BEGIN + timedelta(seconds=number), session=session)
            committing = time.time_ns()
        answer = stamps().blpop(["bench.stamps"], timeout=30)
        if answer is None:
            sys.exit(f"change {number} started nothing within 30 s")
        which, arrived = answer[1].decode().split(":")
        assert int(which) == number
        if number > warm:
            waited.append((int(arrived) - committing) / 1e6)
    return {"waited": waited}


if __name__ == "__main__":
    print(json.dumps(lone(**json.loads(sys.argv[2]))))
