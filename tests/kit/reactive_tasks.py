"""A user's module with reactive tasks; each notes its executions like those of `tests.kit.tasks`."""

from __future__ import annotations

from tests.kit.tasks import noted
from tidemill import Delta, Run, reactive

ORDERS = ("dds.orders", "loaded_to")


@reactive(Delta(*ORDERS, "1h"))
def follow(run: Run) -> None:
    with noted("follow", run.window(*ORDERS)[1]):
        pass
