"""Every public name, called with everything that it takes, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any as Anything
from typing import assert_type

import sqlalchemy as sa
from celery import shared_task
from sqlalchemy.orm import Mapped, Session, mapped_column

import app.dispatch
import app.outbox
import recovery.decisions
import recovery.graphs
import recovery.jobs
import recovery.processes
import recovery.runs
import recovery.visits
import triggers.polling
import triggers.service
from app.embedded import servers
from app.jobs import JobId, ThisJob
from processes.model import ProcessId
from stages.queue import Entry
from tidemill import (
    All,
    Any,
    Base,
    Call,
    ChunkDelay,
    ChunkDelta,
    ChunkRefDelay,
    ClaimLost,
    CtlTrigger,
    Delay,
    Delta,
    Ended,
    Failure,
    Flow,
    Patch,
    Promise,
    RefDelay,
    Retry,
    Run,
    TidemillError,
    Untouched,
    Updated,
    Verdict,
    Watched,
    actor,
    batched,
    cancel,
    caught_up,
    ctl,
    decider,
    enqueue,
    enqueue_many,
    events,
    fresh,
    grown,
    new_chunk,
    new_day,
    new_hour,
    new_month,
    new_quarter,
    new_week,
    new_year,
    periodic,
    pool,
    prioritize,
    processes,
    reached,
    reactive,
    rerun,
    retry,
    same_chunk,
    snooze,
    stage,
    stages,
    start,
    this_job,
    this_task,
    transaction,
    wait,
)
from tidemill.outside import Fail, Lost, Refused, Task, Unreachable, Worker
from tidemill.testing import call, call_job

NOW = datetime(2026, 7, 1, tzinfo=UTC)
Pair = tuple[str, str]

# Jobs


class Order(Base):
    __tablename__ = "order"

    id: Mapped[int] = mapped_column(primary_key=True)


@shared_task
def send_mail(order_id: int) -> None:
    job = this_job()
    assert_type(job, ThisJob)
    assert_type((job.id, job.attempt, job.max_attempts), tuple[JobId, int, int])
    assert_type((job.queue, job.key, job.idempotency_key), tuple[str, str | None, str])
    job.heartbeat()
    with job.transaction() as session:
        assert_type(session, Session)


assert_type(call_job(send_mail.s(1), attempt=2), Anything)


@batched(size=50)
def send_all(calls: list[Call]) -> None:
    for each in calls:
        assert_type((each.id, each.args, each.kwargs), tuple[int, list[Anything], dict[str, Anything]])
        assert_type((each.attempt, each.idempotency_key), tuple[int, str])


def jobs() -> None:
    with transaction() as session:
        assert_type(session, Session)
        job_id = enqueue(
            send_mail.s(17), session=session, queue="mail", key="mail:17", eta=None, priority=0, expires=None
        )
        assert_type(job_id, JobId)
        enqueue(send_mail.s(17), eta=timedelta(hours=1), expires=NOW, max_attempts=3)
        assert_type(enqueue_many([send_mail.s(1), send_mail.s(2)], session=session, priority=3), list[JobId])
        cancel(job_id, session=session)
        snooze(job_id, timedelta(minutes=5), session=session)
        prioritize(job_id, 5, session=session)
        retry(job_id, session=session)
        assert_type(rerun([1, 2], session=session), list[JobId])
    ended = wait(job_id, timeout=10)
    assert_type(ended, Ended)
    assert_type((ended.job_id, ended.error, ended.attempt, ended.ended_at), tuple[JobId, str | None, int, datetime])
    assert_type(periodic(send_mail.s(1), cron="0 3 * * *", tz="Europe/Moscow", catch_up="all"), str)
    assert_type(periodic(send_mail.s(1), every="10min", name="mail", queue="mail", priority=1), str)


def errors() -> None:
    try:
        jobs()
    except ClaimLost as lost:
        assert_type(lost, ClaimLost)
        raised: TidemillError = lost
        raise raised from None


# Data and triggers


def control() -> None:
    assert_type(ctl.advance("dds.orders", loaded_to=NOW), set[str])
    assert_type(ctl.advance_many({("dds.orders", "loaded_to"): NOW}), set[Pair])
    assert_type(ctl.get("dds.orders", "loaded_to"), datetime | None)
    assert_type(ctl.restate("dds.orders", loaded_to=NOW, reason="loaded twice").tasks, tuple[str, ...])
    assert_type(ctl.restate_many({("dds.orders", "loaded_to"): NOW}, reason="loaded twice").tasks, tuple[str, ...])
    assert_type([each.value for each in ctl.values("dds.*", limit=10, after=None)], list[datetime])
    assert_type([each.id for each in ctl.history("dds.orders", "loaded_to", limit=10, before_id=None)], list[int])
    with transaction() as session:
        ctl.advance("dds.orders", session=session, loaded_to=NOW)
        assert_type([each.task for each in ctl.dependents(session, [("dds.orders", "loaded_to")])], list[str])


P = ("dds.orders", "loaded_to")
assert_type(Delta(*P, "2d").min_delta, timedelta)
LEAVES: list[CtlTrigger] = [
    Delta("dds.orders", "loaded_to", timedelta(days=2)),
    Delay("dds.orders", "loaded_to", "2h"),
    RefDelay("a", "p", "b", "q", "2h"),
    ChunkDelta("dds.orders", "loaded_to", "day", 2, tz="Europe/Moscow"),
    ChunkDelay("dds.orders", "loaded_to", "hour"),
    ChunkRefDelay("a", "p", "b", "q", "day", 1),
]
assert_type(grown(*P, by="2d"), Delta)
assert_type(fresh(*P, within="2h"), Delay)
assert_type(caught_up("a", "p", with_=("b", "q"), within="2h"), RefDelay)
assert_type(new_chunk(*P, "30min", tz="UTC"), ChunkDelta)
assert_type([new_day(*P, tz="UTC"), new_week(*P), new_month(*P), new_quarter(*P), new_year(*P)], list[ChunkDelta])
assert_type(new_hour(*P), ChunkDelta)
assert_type(reached(*P, "day", tz="UTC"), ChunkDelay)
assert_type(same_chunk("a", "p", "day", with_=("b", "q")), ChunkRefDelay)


def check(trigger: CtlTrigger | All | Any) -> str:
    verdict = trigger.check(NOW, {P: NOW}, {})
    assert_type(verdict, Verdict)
    assert_type((verdict.fired, verdict.tree), tuple[bool, dict[str, Anything]])
    assert_type(trigger.parameters, tuple[Pair, ...])
    assert_type(trigger.to_json(), dict[str, Anything])
    return verdict.explain()


pool("marts", max_parallel=4, rate_limit="10/min", max_hold="30min", ageing="1min")


@reactive(
    All(ChunkDelta(*P, "day"), *LEAVES),
    pool="marts",
    priority=10,
    produces=[("mart.orders", "built_to")],
    min_interval=None,
    first_run="fire",
    on_lapse="drop",
    max_failures=5,
    backoff="5s",
    time_limit="1h",
)
def build_orders_mart(run: Run) -> None:
    since, until = run.window("dds.orders", "loaded_to")
    assert_type((since, until), tuple[datetime | None, datetime])
    assert_type((run.value(*P), run.idempotency_key), tuple[datetime | None, str])
    with run.transaction() as session:
        assert_type(session, Session)
    run.heartbeat()
    run.advance("mart.orders", built_to=until)


ITSELF: Callable[[Run], None] = build_orders_mart


@reactive(Any(fresh(*P, within="1h"), new_day(*P)))
@shared_task
def look_at_orders(run: Run) -> None:
    run.cancel("nothing to look at")


def mart(session: Session) -> None:
    assert_type(call(build_orders_mart, {P: (None, NOW)}, session=session, attempt=2, manual=True), Run)


# Stages


class Offer(Watched, Base, mode="exclusive"):
    __tablename__ = "offer"

    id: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]


@stage(
    Offer,
    watches={"status"},
    rate_limit="100/s",
    max_parallel=None,
    batch=100,
    time_limit="30s",
    max_attempts=10,
    state=None,
)
class Expire:
    def should_process(self, offer: Offer, _state: None) -> bool | datetime | timedelta:
        assert_type(offer.version, int)
        return offer.status == "new" or stages.now() + timedelta(days=1)

    def process(self, offer: Offer, _state: None) -> Untouched | Updated | Patch:
        if offer.status == "old":
            return Untouched(timer=timedelta(days=1), state=None)
        if offer.status == "new":
            offer.status = "old"
            return Updated(offer, timer=stages.now())
        return Patch({"status": "old"}, reads={"status"}, timer=None)

    def saved(self, offer: Offer, _state: None) -> None: ...


assert_type(Expire().process(Offer(), None), Untouched | Updated | Patch)


def visits(session: Session) -> None:
    stages.install(session, Offer)
    assert_type(stages.queue.offer(Offer(), Expire, NOW, low=True, session=session), bool)
    assert_type(stages.queue.offer_many(["a", "b"], "offer.expire"), int)
    assert_type(stages.queue.peek(Expire, limit=10), list[Entry])
    assert_type(stages.queue.delete("a", Expire), bool)
    assert_type(stages.queue.check((Offer, "a")), list[tuple[str, datetime]])
    seen = stages.testing.visit(Expire, Offer(), state=None, now=NOW)
    assert_type(seen.outcome, Untouched | Updated | Patch)


def follow_events() -> None:
    events.subscribe("mail", "offer.*")
    for event in events.Subscriber("mail", "offer.*", timeout=1.0):
        assert_type(event, events.Event)
        with transaction() as session:
            assert_type(events.first_time(session, "mail", event), bool)
        event.ack()
    assert_type(events.unsubscribe("mail"), bool)


# Processes


@actor(
    work_timeout="1min",
    accept_first=True,
    restart_after_work_timeout=True,
    task_timeout=None,
    force_finish_after_task_timeout=False,
    retry=Retry(max_attempts=5),
    fail_types=(ValueError,),
)
def charge(order_id: str, amount: int) -> str:
    task = this_task()
    assert_type((task.process_id, task.id, task.idempotency_key), tuple[int, int, str])
    task.heartbeat()
    return f"{order_id}: {amount}"


@actor
def ship(order_id: str) -> int:
    return len(order_id)


@actor
def notify(order_id: str, paid: str | Failure, shipped: int) -> bool:
    return isinstance(paid, Failure) and bool(paid.type and paid.message)


@decider
def pack(flow: Flow, order_id: str) -> Promise[int]:
    return flow.call(ship, order_id, delay="1min", retry=Retry(), fail_types=["Broken"])


@decider(
    process_timeout="1d", idle_process_timeout="10min", when_inconsistent="restart", max_restarts=10, retention="30d"
)
def fulfil(flow: Flow, order_id: str) -> Promise[bool]:
    paid = flow.call(charge, order_id, 100)
    assert_type(paid, Promise[str])
    shipped = flow.call(pack, order_id, after=[paid])
    assert_type(shipped, Promise[int])
    assert_type(flow.no_wait(shipped), int)
    assert_type((flow.process_id, flow.custom_id), tuple[int, str | None])
    return flow.call(notify, order_id, paid, shipped, kwargs={}, at=NOW)


assert_type(charge("o-1", 100), str)


def run_processes(session: Session) -> None:
    process_id = start(
        fulfil, "o-1", custom_id="o-1", idempotency_key="o-1", attributes={"shop": "7"}, priority=1, session=session
    )
    assert_type(process_id, ProcessId)
    shown = processes.show(process_id)
    assert_type(shown, processes.Shown)
    assert_type((shown.state, shown.error), tuple[processes.ProcessState, str | None])
    assert_type(shown.tasks, tuple[processes.TaskShown, ...])
    assert_type(processes.wait(process_id, timeout=5), processes.Ended)
    processes.search(template="late", parameters={"shop": "7"}, limit=10)


def approve(order_id: str) -> dict[str, str]:
    if not order_id:
        raise Fail("Declined", "of nothing", final=True)
    return {"by": "hand"}


def outside(task: Task) -> None:
    try:
        Worker("https://tidemill.example.org", "token", "approve").run(approve)
    except (Lost, Refused, Unreachable) as error:
        assert_type((task.process_id, task.args), tuple[int, list[Anything]])
        raise TidemillError(str(error)) from error


# Passes, and servers


def one_pass_of_each() -> None:
    app.dispatch.run_once(limit=10)
    app.outbox.run_once(limit=10)
    triggers.polling.run_once(limit=10)
    triggers.service.run_once(limit=10)
    assert_type(recovery.decisions.run_once(limit=10).more, bool)
    assert_type(recovery.graphs.run_once(limit=10).more, bool)
    assert_type(recovery.processes.run_once(limit=10).more, bool)
    assert_type(recovery.visits.run_once(limit=10).more, bool)
    assert_type(recovery.runs.run_once(limit=10).more, bool)
    assert_type(recovery.jobs.run_once(limit=10).more, bool)


def embedded() -> None:
    with servers(home=None) as own:
        assert_type((own.database_url, own.broker_url), tuple[str, str])
        sa.create_engine(own.database_url).dispose()
