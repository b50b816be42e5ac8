"""B14: Visits by a service over gRPC.

Visits by a service in a process of its own, from the commit that offers them until the queue is empty: by a stage with
`batch=100`, and by one of the same service with `batch=1`. Both may make two calls at once.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import remote
from bench.context import Context
from bench.rows import AtLeast, Row


def measure(context: Context) -> list[Row]:
    batched, singly = context.size(10_000, 2_000), context.size(1_000, 300)
    with TemporaryDirectory() as scratch, remote.worker(context, batched, Path(scratch)) as service:
        taken = context.rounds(
            {
                "together": partial(remote.work_off, context, service, remote.TOGETHER, batched),
                "singly": partial(remote.work_off, context, service, remote.SINGLY, singly),
            }
        )
    together, alone = tuple(taken["together"]), tuple(taken["singly"])
    return [
        Row("B14", "us", f"{batched:,} visits by a service, up to 100 a call", "/s", together, alone,
            "one entity a call", AtLeast(3)),
        Row("B14", "us", f"{singly:,} visits by the same service, one entity a call", "/s", alone),
    ]  # fmt: skip
