"""Lone messages in an idle system: from just before `apply_async` to the task's first line, in milliseconds."""

import json
import random
import sys
import time

from celery_app import app, stamp, stamps

arguments = json.loads(sys.argv[1])
waited = []
with app.producer_or_acquire() as producer:
    for number in range(-arguments["warm"], arguments["samples"]):
        time.sleep(random.uniform(*arguments["pause"]))
        sent = time.time_ns()
        stamp.apply_async((number,), producer=producer)
        answer = stamps().blpop(["bench.stamps"], timeout=30)
        if answer is None:
            sys.exit(f"message {number} did not arrive within 30 s")
        which, arrived = answer[1].decode().split(":")
        assert int(which) == number
        if number >= 0:
            waited.append((int(arrived) - sent) / 1e6)
print(json.dumps({"waited": waited}))
