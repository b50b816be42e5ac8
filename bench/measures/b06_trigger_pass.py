"""B6: the MVP pass over 100,000 reactive tasks, against reading as many rows of the control table; and its memory."""

from __future__ import annotations

from functools import partial

from bench import product
from bench.context import Context, median
from bench.rows import AtMost, Row


def measure(context: Context) -> list[Row]:
    tasks = context.size(100_000, 5_000)
    product.migrate(context)
    product.warehouse(context, "fill", tasks=tasks // 10)
    small = product.warehouse(context, "evaluate", repeat=1, tasks=tasks // 10)
    product.warehouse(context, "fill", tasks=tasks)
    taken = context.rounds(
        {
            "floor": partial(product.warehouse, context, "read_ctl", repeat=5),
            "us": partial(product.warehouse, context, "evaluate", repeat=5, tasks=tasks),
        }
    )
    product.warehouse(context, "empty")
    floor = tuple(each["seconds"] * 1000 for each in taken["floor"])
    ours = tuple(each["seconds"] * 1000 for each in taken["us"])
    memory = tuple(each["grown"] / 2**20 for each in taken["us"])
    tenth = small["grown"] / 2**20
    return [
        Row("B6", "us", f"evaluation pass over {tasks:,} tasks", median(ours), "ms", median(floor), "reading CTL",
            AtMost(10), ours),
        Row("B6", "us", "memory that a pass takes", median(memory), "MiB", tenth, "a tenth of the tasks", None, memory),
        Row("B6", "floor", f"floor: reading {tasks:,} rows of ctl", median(floor), "ms", samples=floor),
    ]  # fmt: skip
