"""B5: One change among very many tasks.

One pass of the service that starts ten reactive tasks, from a change that is committed to the pass's own commit, with
more and more tasks registered. The index alone is the move that finds these ten. Beside them: a cold start, the memory
of a task, which is what the process grows by at a cold start, and a stream of changes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import product
from bench.context import Context
from bench.rows import AtMost, Row

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000), (500, 5_000)


def _grow(context: Context, tasks: int, samples: int, warm: int) -> dict[str, Any]:
    product.warehouse(context, "fill", tasks=tasks, hot=(samples + warm) * 10)
    return product.warehouse(context, "grow", tasks=tasks, samples=samples, warm=warm)


def measure(context: Context) -> list[Row]:
    product.migrate(context)
    sizes = QUICK_SIZES if context.quick else SIZES
    size = {"samples": context.size(60, 10), "warm": 10}
    taken = context.rounds({f"{tasks:,}": partial(_grow, context, tasks=tasks, **size) for tasks in sizes})
    found = {name: {word: tuple(each[word] for each in rounds) for word in rounds[0]} for name, rounds in taken.items()}
    small, most = f"{sizes[0]:,}", f"{sizes[-1]:,}"
    rows = []
    for what, word, unit in (
        ("a change that starts 10 of {} tasks", "pass", "ms"),
        ("the index alone, {} tasks", "index", "µs"),
    ):
        rows.append(Row("B5", "us", what.format(small), unit, found[small][word]))
        rows += [
            Row("B5", "us", what.format(name), unit, each[word], found[small][word], f"{small} tasks", AtMost(1.5))
            for name, each in found.items()
            if name != small
        ]
    each = found[most]
    rows.append(Row("B5", "us", f"cold start with {most} tasks", "s", each["cold"], each["rows"], "reading their rows"))
    rows.append(Row("B5", "floor", f"floor: reading the rows of {most} tasks", "s", each["rows"]))
    rows.append(Row("B5", "us", f"memory of one of {most} tasks", "bytes", each["bytes"]))
    stream = {"tasks": context.size(20_000, 2_000), "rate": 1_000, "seconds": context.size(10, 3)}
    follows = context.rounds({"stream": partial(product.warehouse, context, "follow", **stream)})["stream"]
    core, rate = tuple(each["core"] for each in follows), tuple(each["rate"] for each in follows)
    what = f"changes a second to {stream['tasks']:,} tasks, followed"
    rows.append(Row("B5", "us", what, "/s", rate))
    rows.append(Row("B5", "us", "the part of a core that this takes", "", core, (1.0,), "one core", AtMost(1)))
    product.warehouse(context, "empty")
    return rows
