"""Uses that must be errors: each `ignore` is one, of that kind. One that is no error any more is reported as unused."""

from __future__ import annotations

from datetime import date, datetime

from celery import shared_task

from tests.typed.well import Expire, Offer, charge, fulfil, ship
from tidemill import (
    All,
    Any,
    ChunkDelta,
    Delay,
    Delta,
    Flow,
    Patch,
    Promise,
    Run,
    Untouched,
    Updated,
    actor,
    batched,
    cancel,
    ctl,
    decider,
    enqueue,
    enqueue_many,
    periodic,
    pool,
    processes,
    reactive,
    snooze,
    stage,
    stages,
    start,
    transaction,
    wait,
)
from tidemill.testing import call

P = ("dds.orders", "loaded_to")


@shared_task
def send_mail(order_id: int) -> None: ...


def jobs() -> None:
    enqueue(send_mail)  # type: ignore[arg-type]
    enqueue(send_mail.s(17), countdown=5)  # type: ignore[call-arg]
    enqueue(send_mail.s(17), priority="high")  # type: ignore[arg-type]
    enqueue(send_mail.s(17), "mail")  # type: ignore[call-arg, arg-type]
    enqueue_many(send_mail.s(17))  # type: ignore[arg-type]
    enqueue_many([send_mail.s(17)], key="one")  # type: ignore[call-arg]
    cancel("17")  # type: ignore[arg-type]
    snooze(17)  # type: ignore[call-arg]
    wait(17).value  # type: ignore[attr-defined]  # noqa: B018
    periodic(send_mail.s(1), cron=3)  # type: ignore[arg-type]
    with transaction() as session:
        session.enqueue(send_mail.s(17))  # type: ignore[attr-defined]


@batched(50)  # type: ignore[arg-type]
def send_all(order_id: int) -> None: ...


def control() -> None:
    ctl.advance("dds.orders", loaded_to="2026-07-01")  # type: ignore[arg-type]
    ctl.advance("dds.orders", loaded_to=date(2026, 7, 1))  # type: ignore[arg-type]
    ctl.restate("dds.orders", loaded_to=datetime.now().astimezone())  # type: ignore[call-arg]
    ctl.get("dds.orders")  # type: ignore[call-arg]


Delta("dds.orders", "loaded_to")  # type: ignore[call-arg]
Delay("dds.orders", "loaded_to", 3600)  # type: ignore[arg-type]
ChunkDelta("dds.orders", "loaded_to", "day", "2")  # type: ignore[arg-type]
ChunkDelta("dds.orders", "loaded_to", "day", 2, "UTC")  # type: ignore[call-arg]
All(Any(Delta(*P, "1d")))  # type: ignore[arg-type]
Any([Delta(*P, "1d")])  # type: ignore[arg-type]
pool("marts", limit=4)  # type: ignore[call-arg]


@reactive(ChunkDelta(*P, "day"), priority="10")  # type: ignore[arg-type]
def build(run: Run) -> None:
    run.window("dds.orders")  # type: ignore[call-arg]
    run.advance("mart.orders", built_to="now")  # type: ignore[arg-type]


@reactive("dds.orders")  # type: ignore[arg-type]
def build_again(run: Run) -> None:
    call(build, {"dds.orders": (None, None)})  # type: ignore[dict-item]


@stage("offer")  # type: ignore[arg-type]
class Predict: ...


@stage(Offer, batch="100", on="status")  # type: ignore[call-arg, arg-type]
class Score: ...


def visits() -> None:
    Untouched(datetime.now().astimezone(), None, "more")  # type: ignore[call-arg]
    Untouched(timer=60)  # type: ignore[arg-type]
    Updated()  # type: ignore[call-arg]
    Patch(["status"])  # type: ignore[arg-type]
    stages.queue.offer(Offer(), Expire, "now")  # type: ignore[arg-type]
    stages.testing.visit(Expire())  # type: ignore[arg-type, call-arg]
    stages.install()  # type: ignore[call-arg]
    Offer().versions  # type: ignore[attr-defined]  # noqa: B018


@actor(work_timeout=[1])  # type: ignore[call-overload, untyped-decorator]
def measure(order_id: str) -> int:
    return len(order_id)


@actor(timeout="1min")  # type: ignore[call-overload, untyped-decorator]
def weigh(order_id: str) -> int:
    return len(order_id)


@decider
def decide(flow: Flow, order_id: str) -> Promise[str]:
    flow.call("charge", order_id)  # type: ignore[call-overload]
    flow.call(charge, order_id, 100, after=[ship])  # type: ignore[arg-type, list-item]
    flow.call(charge, order_id, 100, at="tomorrow")  # type: ignore[call-overload]
    flow.call(charge, order_id, 100, timeout="1s")  # type: ignore[call-overload]
    length: Promise[str] = flow.call(ship, order_id)  # type: ignore[arg-type]
    flow.call(ship, order_id) + 1  # type: ignore[operator]
    flow.no_wait(3)  # type: ignore[arg-type]
    return flow.call(ship, order_id) if length else length  # type: ignore[arg-type]


def run_processes() -> None:
    start(fulfil, "o-1", attributes=["shop"])  # type: ignore[arg-type]
    start(fulfil, order_id="o-1")  # type: ignore[call-arg]
    processes.show("17")  # type: ignore[arg-type]
    processes.search(state="BROKEN", colour="red")  # type: ignore[call-arg]
    charge("o-1")  # type: ignore[call-arg]
