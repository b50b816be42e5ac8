"""Reactive tasks in several states, with data sets that they need and produce, for the pages of them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.kit import reactive as kit
from tests.kit.reactive import ORDERS, day
from triggers import All, ChunkDelta, Delta, RefDelay, ctl, operate

MART = ("mart.orders", "built_to")


def fill(evil: str) -> dict[str, Any]:
    with kit.world() as world:
        mart = world.task("orders_mart", ChunkDelta(*ORDERS, "day", tz="Europe/Moscow"), produces=[MART], pool="marts")
        both = All(Delta(*MART, "1d"), RefDelay(*MART, *ORDERS, "2h"))
        report = world.task("report", both, pool="reports", priority=5)
        broken = world.task("broken", Delta(*ORDERS, "1d"), kit.fail, max_failures=1)
        paused = world.task("paused", Delta(evil[:100], "p", "1d"))
        operate.pause(paused, reason=evil)
        for number in range(1, 6):
            kit.advance(day(number))
            world.step()
        ctl.restate_many({MART: day(2)}, reason=evil)
    names = {"mart": mart, "report": report, "broken_task": broken, "paused_task": paused}
    return {name: quote(task) for name, task in names.items()}
