"""Which pages are tried in a browser: a new page needs a line here, and nothing else.

In braces are names of what `tests.kit.pages_world` has made.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tried:
    path: str
    role: str = "operator"

    def __str__(self) -> str:
        return f"{self.role} {self.path}"


PAGES: tuple[Tried, ...] = (
    Tried("/sign-in", "nobody"),
    Tried("/none"),
    Tried("/"),
    Tried("/", "viewer"),
    Tried("/demo"),
    Tried("/audit"),
    Tried("/audit?subject=none", "viewer"),
    Tried("/processes"),
    Tried("/processes?state=BROKEN", "viewer"),
    Tried("/processes/errors"),
    Tried("/processes/{finished}"),
    Tried("/processes/{broken}"),
    Tried("/processes/{hostile}"),
    Tried("/processes/{large}?after=5000"),
    Tried("/processes/{broken}/restart?from=3"),
    Tried("/operations?kind=check"),
    Tried("/operations/{operation}"),
    Tried("/operations/{paused_operation}", "viewer"),
    Tried("/operations/start?kind=restart-task"),
    Tried("/actors"),
    Tried("/actor?name=tell"),
    Tried("/actor/set?name=fulfil"),
    Tried("/stages"),
    Tried("/stage?name=voucher.predict"),
    Tried("/stage?name=voucher.publish", "viewer"),
    Tried("/stage/limit?name=voucher.predict"),
    Tried("/entity?kind=voucher&id={entity}"),
    Tried("/entity?kind=voucher&id=e6"),
    Tried("/parked"),
    Tried("/parked/redrive"),
    Tried("/jobs"),
    Tried("/jobs/{waiting_job}"),
    Tried("/jobs/{hostile_job}"),
    Tried("/jobs/{ended_job}", "viewer"),
    Tried("/jobs/{waiting_job}/snooze"),
    Tried("/log"),
    Tried("/log?outcome=failed"),
    Tried("/periodic"),
    Tried("/queues"),
    Tried("/reactive"),
    Tried("/reactive?state=paused", "viewer"),
    Tried("/reactive/pools"),
    Tried("/reactive/pools/limit?pool=marts"),
    Tried("/reactive/task?task={mart}"),
    Tried("/reactive/task?task={report}&at=now"),
    Tried("/reactive/task?task={broken_task}", "viewer"),
    Tried("/reactive/run?task={mart}"),
    Tried("/reactive/rewind?task={mart}&to=now"),
    Tried("/map"),
    Tried("/map?entity=mart.orders&depth=1"),
    Tried("/dataset?entity=dds.orders"),
    Tried("/dataset/restate?entity=dds.orders&parameter=loaded_to&value=now"),
    Tried("/queue/limit?name=jobs"),
)
