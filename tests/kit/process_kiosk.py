"""A small shop of processes for what is read and typed: its actors do, or fail at, what their arguments say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from app.db import transaction
from app.jobs.endings import Failure as CallFailed
from app.limits import Queue
from processes import Flow, Retry, actor, decider, preferences
from processes.definition import Definition, declared
from processes.model import DECISION, PROCESS, queue_of
from processes.serving import DecisionServer
from processes.states import DecisionState, ProcessState
from tests.kit.waiting import wait_until

KIOSK = "tests.kit.process_kiosk"
HOSTILE = "first\nsecond \x1b[31mred\x1b[0m \x00 'quoted'"


class Declined(Exception):
    pass


@actor(retry=Retry(max_attempts=1), fail_types=[Declined])
def kiosk_pay(order: str, amount: Any) -> str:
    """Says no to what is negative, and does not understand what is no number."""
    if amount < 0:
        raise Declined(f"no money for {order}")
    return f"paid-{order}"


@actor(retry=Retry(max_attempts=3, delay="1h"))
def kiosk_pack(order: str) -> str:
    """Fails again and again at what is named so."""
    if order == "late":
        raise TimeoutError("no answer from the store")
    return f"packed-{order}"


@actor(retry=Retry(max_attempts=1))
def kiosk_break(message: str) -> None:
    raise KeyError(message)


@actor
def kiosk_mail(paid: Any, packed: Any = None) -> str:
    return f"mailed {paid} {packed}"


@actor(outside=True, work_timeout="5min")
def kiosk_print(order: str) -> str:
    raise NotImplementedError


@decider
def kiosk_order(flow: Flow, order: str, amount: Any = 100) -> Any:
    paid = flow.call(kiosk_pay, order, amount)
    packed = flow.call(kiosk_pack, order, after=[paid])
    return flow.call(kiosk_mail, paid, packed)


@decider
def kiosk_many(flow: Flow, count: int, broken: int = 0, message: str = "price") -> None:
    for number in range(count):
        flow.call(kiosk_pack, f"o-{number}")
    for number in range(broken):
        flow.call(kiosk_break, f"{message}-{number}")


@decider
def kiosk_value(flow: Flow, value: Any, printed: bool = False) -> Any:  # noqa: FBT001
    if printed:
        flow.call(kiosk_print, "o-1")
    return value


class Calls:
    """Calls functions as they are."""

    def call_for_value(
        self,
        work: Any,
        name: str,
        args: Any,
        kwargs: dict[str, Any],
        limit: float | None,
    ) -> tuple[CallFailed | None, Any]:
        function = {each.task: each.function for each in declared.values()}[name]
        try:
            return None, function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it raises is what the task failed with
            return CallFailed(str(error), raised=error), None

    def consumes(self, queue: str) -> bool:
        return True


def declare() -> None:
    """What a service does when it starts; only the kiosk's, whatever else this process has imported."""
    with transaction() as session:
        preferences.write(session, {name: each for name, each in declared.items() if each.module == KIOSK})


def server(worker: str = "here@test/1") -> DecisionServer:
    return DecisionServer(Calls(), worker, timedelta(minutes=1), lambda: False)


def work(*functions: Callable[..., Any], worker: str = "here@test/1") -> None:
    """Everything that is ready now, for these or for all, as one worker does it."""
    serving = server(worker)
    # Deciders first: what they ask for is done in the same round.
    ours = sorted((each for each in declared.values() if _here(each)), key=lambda each: not each.decider)
    names = [each.__name__ for each in functions] or [each.name for each in ours]

    def done() -> bool:
        for name in names:
            serving.serve(queue_of(name), 100)
        return not _left(names)

    wait_until(done, 60, "everything that is ready is done")


def _left(names: list[str]) -> int:
    """What could be done at once: of no blocked actor, and not after a failure."""
    queues = [queue_of(name) for name in names]
    paused = sa.select(Queue.name).where(Queue.paused)
    waits = (DECISION.c.state == DecisionState.QUEUED, DECISION.c.not_before.is_(None), DECISION.c.queue.in_(queues))
    ready = sa.select(sa.func.count()).where(*waits, DECISION.c.queue.not_in(paused)).scalar_subquery()
    of_names = (PROCESS.c.state == ProcessState.REGISTERED, PROCESS.c.name.in_(names))
    new = sa.select(sa.func.count()).where(*of_names).scalar_subquery()
    with transaction() as session:
        return int(session.execute(sa.select(ready + new)).scalar_one())


def _here(each: Definition) -> bool:
    return each.module == KIOSK and not each.outside
