"""Bare Celery on Redis, as its users run it for speed: no results, no events, early acknowledgement."""

import os
import time
from functools import cache

import redis
from celery import Celery

BROKER = os.environ["BENCH_BROKER_URL"]
QUEUE = "bench"

app = Celery("bench_bare", broker=BROKER)
app.conf.task_default_queue = QUEUE
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True


@cache
def stamps() -> redis.Redis:
    return redis.Redis.from_url(BROKER)


@app.task
def noop() -> None:
    """Nothing: what is measured is everything around it."""


@app.task
def stamp(number: int) -> None:
    now = time.time_ns()
    stamps().rpush("bench.stamps", f"{number}:{now}")
