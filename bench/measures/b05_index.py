"""B5: what one change that starts ten tasks costs the service, with 1,000 to 100,000 tasks registered; its cold start
and its memory; and a stream of changes."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import product
from bench.context import Context, median
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
    small = found[f"{sizes[0]:,}"]
    rows = [
        Row("B5", "us", f"a change that starts 10 of {name} tasks", median(each["pass"]), "ms", median(small["pass"]),
            f"{sizes[0]:,} tasks", AtMost(1.5), each["pass"])
        for name, each in found.items()
    ]  # fmt: skip
    rows += [
        Row("B5", "us", f"the index alone, {name} tasks", median(each["index"]), "µs", median(small["index"]),
            f"{sizes[0]:,} tasks", AtMost(1.5), each["index"])
        for name, each in found.items()
    ]  # fmt: skip
    name, most = f"{sizes[-1]:,}", found[f"{sizes[-1]:,}"]
    rows.append(Row("B5", "us", f"cold start with {name} tasks", median(most["cold"]), "s", median(most["rows"]),
                    "reading their rows", None, most["cold"]))  # fmt: skip
    rows.append(Row("B5", "us", f"memory of one of {name} tasks", median(most["bytes"]), "bytes",
                    samples=most["bytes"]))  # fmt: skip
    stream = {"tasks": context.size(20_000, 2_000), "rate": 1_000, "seconds": context.size(10, 3)}
    follows = context.rounds({"stream": partial(product.warehouse, context, "follow", **stream)})["stream"]
    core, rate = tuple(each["core"] for each in follows), tuple(each["rate"] for each in follows)
    what = f"changes a second to {stream['tasks']:,} tasks, followed"
    rows.append(Row("B5", "us", what, median(rate), "/s", samples=rate))
    rows.append(
        Row("B5", "us", "the part of a core that this takes", median(core), "", 1.0, "one core", AtMost(1), core)
    )
    product.warehouse(context, "empty")
    return rows
