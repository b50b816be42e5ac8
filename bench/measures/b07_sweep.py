"""B7: the sweep over decisions that were not answered in time: by how many there are, and against a bare statement that
puts as many rows back."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import product, sweep_floor
from bench.context import Context, median
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
    where = {"count": count, "turns": turns, "spread": spread}
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
        return Row("B7", side, f"floor: {what}", median(found[size]), "ms", samples=found[size])
    # What is flat grows by no more than the machine is unsteady.
    return Row(
        "B7", side, what, median(found[size]), "ms", median(found[first]), f"{first:,}", AtMost(1.5), found[size]
    )


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
        rows.append(Row("B7", side, what, median(full), "ms", samples=full))
    rate, floor = (tuple(each["rate"] for each in swept[side]) for side in SIDES)
    what = f"{sizes[-1] // 10:,} overdue of {sizes[-1]:,}, swept"
    rows.append(Row("B7", "us", what, median(rate), "/s", median(floor), "the floor", AtLeast(0.3), rate))
    rows.append(Row("B7", "floor", f"floor: {what}", median(floor), "/s", samples=floor))
    return rows
