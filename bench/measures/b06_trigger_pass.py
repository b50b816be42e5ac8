"""B6: A pass over very many tasks.

One evaluation of 100,000 reactive tasks that finds nothing to start, against reading as many rows of the control
table; and its memory. Of ten tasks two have two conditions, two a zone.
"""

from __future__ import annotations

from functools import partial

from bench import product
from bench.context import Context
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
    tenth = (small["grown"] / 2**20,)
    return [
        Row("B6", "us", f"evaluation pass over {tasks:,} tasks", "ms", ours, floor, "reading CTL", AtMost(10)),
        Row("B6", "us", "memory that a pass takes", "MiB", memory, tenth, "a tenth of the tasks"),
        Row("B6", "floor", f"floor: reading {tasks:,} rows of ctl", "ms", floor),
    ]
