"""A user's module for the soak; its jobs and entities are those of the benchmark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench.flows import step
from tidemill import Delta, decider, reactive

if TYPE_CHECKING:
    from tidemill import Flow, Promise, Run

TABLES = 4


@decider(retention=os.environ.get("SOAK_KEEP", "30d"))
def walk(flow: Flow, number: int) -> Promise[int]:
    """Three decisions, one of them this."""
    return flow.call(step, flow.call(step, number))


def _follow(number: int) -> None:
    def follow(run: Run) -> None:
        with run.transaction():
            pass

    follow.__name__ = follow.__qualname__ = f"follow_{number}"
    reactive(Delta(f"soak.table_{number}", "loaded_to", "1s"), pool="soak")(follow)


for _number in range(TABLES):
    _follow(_number)
