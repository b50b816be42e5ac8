"""Bare Celery, the peer of B2, B3 and B12: the same command line as our worker, nothing of ours in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from bench.children import Service
from bench.context import PEERS, Context
from bench.peers_venv import peers_python
from bench.waiting import wait_until

QUEUE = "bench"
_STAGED = "bench.staged"
WORKER = ("worker", "--concurrency", "2", "--without-gossip", "--without-mingle", "--loglevel", "WARNING")


def _publish(context: Context, count: int, queue: str) -> None:
    context.peer("celery_produce", count=count, queue=queue)


@contextmanager
def worker(context: Context) -> Iterator[Service]:
    """A worker that is up and has done a few messages."""
    argv = [peers_python(), "-m", "celery", "--app", "celery_app", *WORKER, "--queues", QUEUE]
    with context.children.running("celery-worker", argv, context.peers_env, PEERS) as service:
        work_off(context, service, 200)
        yield service


def work_off(context: Context, service: Service, count: int) -> float:
    """Messages a second, from the moment the whole backlog is there until the queue is empty."""
    with redis.Redis.from_url(context.servers.peers_broker_url) as broker:
        # Published where nobody reads, then renamed: the backlog appears at once, as one commit does with ours.
        _publish(context, count, _STAGED)
        begun = time.perf_counter()
        broker.rename(_STAGED, QUEUE)
        # Early acknowledgement: the last few messages may still be in the pool. Less than one in a thousand.
        wait_until(
            lambda: not broker.exists(QUEUE) and not broker.exists("unacked"), service, "an empty queue", timeout=300
        )
        return count / (time.perf_counter() - begun)


def lone(context: Context, *, samples: int, warm: int, pause: tuple[float, float]) -> list[float]:
    """Milliseconds from just before `apply_async` to the task's first line."""
    with worker(context):
        waited: list[float] = context.peer("celery_lone", samples=samples, warm=warm, pause=pause)["waited"]
        return waited
