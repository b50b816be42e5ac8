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

from bench import stamps
from bench.reactive import BEGIN
from tidemill import ctl, transaction


def lone(samples: int, warm: int, pause: tuple[float, float]) -> dict[str, Any]:
    """From just before COMMIT of the change to the task's first line, in milliseconds."""
    waited = []
    for number in range(1, warm + samples + 1):
        time.sleep(random.uniform(*pause))
        with transaction() as session:
            ctl.advance("bench.table", loaded_to=BEGIN + timedelta(seconds=number), session=session)
            committing = time.time_ns()
        arrived = stamps.began(number, "change")
        if number > warm:
            waited.append((arrived - committing) / 1e6)
    return {"waited": waited}


if __name__ == "__main__":
    print(json.dumps(lone(**json.loads(sys.argv[2]))))
