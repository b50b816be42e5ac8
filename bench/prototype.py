"""The hand-written prototype, the peer of B1: bare Celery with the same command line as our worker."""

from __future__ import annotations

from bench.celery_bare import QUEUE, WORKER
from bench.context import PEERS, Context
from bench.peers_venv import peers_python


def work_off(context: Context, count: int) -> float:
    """Visits a second, by a worker that has made as many before."""
    argv = [peers_python(), "-m", "celery", "--app", "prototype_app", *WORKER, "--queues", QUEUE]
    with context.children.running("prototype-worker", argv, context.peers_env, PEERS):
        rate: float = context.peer("prototype_visits", count=count)["rate"]
        return rate
