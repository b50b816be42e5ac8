"""B7: The sweep of what is overdue.

One call of the sweep over decisions that were not answered in time (`recovery.decisions.run_once`), from its first
statement to the return of its last commit, in a process that has swept before: by how many decisions there are, and
against a bare statement that puts as many rows back. All decisions wait in one queue, every second one in work. The
overdue ones were claimed by tens, next to each other in the queue; further rows, which are not judged, show what it is
when they lie all over a million, where every one is on a page of its own of each table.

The floor is one `UPDATE … FROM (SELECT … FOR UPDATE SKIP LOCKED LIMIT 1000) RETURNING` on a copy of the decisions with
all of its indexes: it changes one row, where the sweep looks at the process and the task, locks and moves the graph,
and records a repair. In the last rows a tenth of all is overdue, and is swept up in one go. All rounds of a size are
made on one filling. Storm control only says when what was put back is ready, and slows no sweep.

What remains: most of a sweep is one statement of the server, and that is busy with writing: for each decision its graph
and the record of the repair too, where the floor writes the decision.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import product, sweep_floor
from bench.context import Context
from bench.rows import AtLeast, AtMost, Row, Side
from bench.sweep_floor import BATCH

SIZES, QUICK_SIZES = (10_000, 100_000, 1_000_000), (10_000, 50_000)
TURNS, QUICK_TURNS = 10, 2
SIDES: tuple[Side, ...] = ("us", "floor")
#: R6: sweeps leave live work the time of a lease to report first, after the server has started.
_LEASE = {"TIDEMILL_LEASE": "1s"}

Taken = dict[str, list[dict[str, float]]]


def _program(context: Context, what: str, **arguments: object) -> dict[str, Any]:
    return product.run(context, "overdue", what, 900, arguments, _LEASE)


def _fill(context: Context, count: int) -> None:
    _program(context, "fill", count=count)
    sweep_floor.fill(context.servers.plain_database_url)


def _sweeps(context: Context, count: int, *, spread: bool = False) -> Taken:
    url, turns = context.servers.plain_database_url, list(range(QUICK_TURNS if context.quick else TURNS))
    where: dict[str, Any] = {"count": count, "turns": turns, "spread": spread}
    return context.rounds(
        {
            "us": partial(_program, context, "sweep", rows=BATCH, **where),
            "floor": partial(sweep_floor.sweep, url, **where),
        }
    )


def _swept(context: Context, count: int) -> Taken:
    """A tenth of all is overdue."""
    url, words = context.servers.plain_database_url, {"count": count, "rows": count // 10}
    turns = iter(range(10))

    def ours() -> dict[str, float]:
        return _program(context, "sweep_all", turn=next(turns), **words)

    def floor() -> dict[str, float]:
        return {"rate": sweep_floor.sweep_all(url, turn=next(turns), **words)}

    return context.rounds({"us": ours, "floor": floor})


def _row(by_size: dict[int, Taken], size: int, side: Side, which: str) -> Row:
    found = {each: tuple(one[which] for one in taken[side]) for each, taken in by_size.items()}
    first = min(found)
    what = f"a sweep of {BATCH:,} overdue among {size:,}" if which == "full" else f"a sweep of none among {size:,}"
    if side == "floor":
        return Row("B7", side, f"floor: {what}", "ms", found[size])
    if size == first:
        return Row("B7", side, what, "ms", found[size])
    # What is flat grows by no more than the machine is unsteady.
    return Row("B7", side, what, "ms", found[size], found[first], f"{first:,}", AtMost(1.5))


def measure(context: Context) -> list[Row]:
    sizes = QUICK_SIZES if context.quick else SIZES
    product.migrate(context)
    by_size: dict[int, Taken] = {}
    for size in sizes:
        # To fill in a million takes half a minute: all rounds of a size are made of one filling.
        _fill(context, size)
        by_size[size] = _sweeps(context, size)
    all_over, swept = _sweeps(context, sizes[-1], spread=True), _swept(context, sizes[-1])
    _program(context, "drop")
    sweep_floor.drop(context.servers.plain_database_url)
    rows = [_row(by_size, size, side, which) for side in SIDES for which in ("full", "empty") for size in sizes]
    for side in SIDES:
        full = tuple(each["full"] for each in all_over[side])
        what = f"{'floor: ' * (side == 'floor')}a sweep of {BATCH:,} that lie all over {sizes[-1]:,}"
        rows.append(Row("B7", side, what, "ms", full))
    rate, floor = (tuple(each["rate"] for each in swept[side]) for side in SIDES)
    what = f"{sizes[-1] // 10:,} overdue of {sizes[-1]:,}, swept"
    rows.append(Row("B7", "us", what, "/s", rate, floor, "the floor", AtLeast(0.3)))
    rows.append(Row("B7", "floor", f"floor: {what}", "/s", floor))
    return rows
