"""B12: Memory of a worker's child.

What the median child of the pool holds after some thousand jobs, against a bare Celery child after as many messages,
by the kernel's account: PSS (pages held in common shared out) and USS (what ending the process would give back).

What remains: a page is shared until somebody counts a reference in it. Of the PSS, some 3 MiB are there because the
main process of a worker runs statements after the fork, for its reports. We run among what our tests need, the peer
among nothing else: what Celery and redis load by themselves where they find cffi and OpenTelemetry is about 2 MiB.
"""

from __future__ import annotations

from functools import partial

from bench import celery_bare, memory, product
from bench.context import Context
from bench.memory import Memory
from bench.rows import AtMost, Row


def _ours(context: Context, count: int) -> Memory:
    with product.worker(context) as service:
        product.work_off(context, service, "noop", count)
        return memory.of_pool(service, 2)


def _celery(context: Context, count: int) -> Memory:
    with celery_bare.worker(context) as service:
        celery_bare.work_off(context, service, count)
        return memory.of_pool(service, 2)


def measure(context: Context) -> list[Row]:
    count = context.size(5_000, 1_000)
    taken = context.rounds({"celery": partial(_celery, context, count), "us": partial(_ours, context, count)})
    fair = {side: tuple(held.fair for held in rounds) for side, rounds in taken.items()}
    unique = {side: tuple(held.unique for held in rounds) for side, rounds in taken.items()}
    rows = []
    for name, held in (("PSS", fair), ("USS", unique)):
        rows += [
            Row("B12", "us", f"worker child after {count:,} jobs, {name}", "MiB", held["us"], held["celery"],
                "bare Celery", AtMost(1.5)),
            Row("B12", "peer", f"bare Celery child after {count:,} messages, {name}", "MiB", held["celery"]),
        ]  # fmt: skip
    return rows
