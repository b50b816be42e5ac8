"""B14: visits by a service over gRPC, a call for each batch against a call for each entity, by the same service."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import remote
from bench.context import Context, median
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
    together, alone = taken["together"], taken["singly"]
    return [
        Row("B14", "us", f"{batched:,} visits by a service, up to 100 a call", median(together), "/s", median(alone),
            "one entity a call", AtLeast(3), tuple(together)),
        Row("B14", "us", f"{singly:,} visits by the same service, one entity a call", median(alone), "/s",
            samples=tuple(alone)),
    ]  # fmt: skip
