"""A process with a step that is done outside, and what works on the others in this process."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from processes import Failure, Flow, actor, decider, preferences, start, starting
from processes.definition import declared
from processes.serving import DecisionServer
from tests.kit.waiting import wait_until

MODULE = "tests.kit.outside_world"


@actor(outside=True, work_timeout="1min", fail_types=["Declined"])
def answer_outside(*args: Any, **kwargs: Any) -> Any: ...


@actor(outside=True, name="an/other one?", work_timeout="1min")
def another_outside(*args: Any) -> Any: ...


@actor
def answer_inside(value: Any) -> Any:
    return value


@decider
def ask_outside(flow: Flow, *args: Any, **kwargs: Any) -> Any:
    return flow.call(told_outside, flow.call(answer_outside, *args, kwargs=kwargs))


@decider
def told_outside(flow: Flow, found: Any) -> Any:
    told = {"failed": found.type, "why": found.message} if isinstance(found, Failure) else {"value": found}
    return flow.call(answer_inside, told)


@decider
def ask_another(flow: Flow, *args: Any) -> Any:
    return flow.call(another_outside, *args)


class _Calls:
    def call_for_value(self, work: Any, name: str, args: Any, kwargs: Any, limit: float | None) -> Any:
        function = {each.task: each.function for each in declared.values()}[name]
        return None, function(*args, **kwargs)

    def consumes(self, queue: str) -> bool:
        return True


def make_known(**settings: Any) -> None:
    """As a service does when it starts; with other settings of `answer_outside`."""
    preferences.synchronize()
    if settings:
        preferences.configure("answer_outside", settings)


def work() -> None:
    """All that is done inside, until nothing is ready."""
    starting.run_once()
    server: Any = DecisionServer(_Calls(), "inside@test", timedelta(seconds=60), lambda: False)
    for name in ("ask_outside", "ask_another", "told_outside", "answer_inside"):
        server.serve(f"actor.{name}", 100)


def asking(*args: Any, decider: Any = ask_outside, **kwargs: Any) -> int:
    """A process that waits for its answer from outside."""
    found = start(decider, *args, kwargs=kwargs)
    work()
    return int(found)


def finished(session: Any, process_id: int) -> Any:
    """Its value."""
    from processes.model import Process

    def look() -> Any:
        work()
        session.rollback()
        row = session.get_one(Process, process_id)
        return [row.value] if row.state.value == "FINISHED" else None

    return wait_until(look, 60, f"process {process_id} has finished")[0]
