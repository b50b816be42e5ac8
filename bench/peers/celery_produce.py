"""Publish no-op messages, one by one on one connection, into a queue (which may be one that nobody reads yet)."""

import json
import sys
import time

from celery_app import app, noop

arguments = json.loads(sys.argv[1])
begun = time.perf_counter()
with app.producer_or_acquire() as producer:
    for _ in range(arguments["count"]):
        noop.apply_async(producer=producer, queue=arguments["queue"])
print(json.dumps({"rate": arguments["count"] / (time.perf_counter() - begun)}))
