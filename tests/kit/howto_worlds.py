"""What the how-tos take for granted, page by page: the reader's own tables, tasks and services; and what must be so
when the code of a page has run. Each page has a process of its own, so that names may be those of other pages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import sqlalchemy as sa
from celery import shared_task
from sqlalchemy.orm import Mapped, Session, mapped_column

import processes as tidemill_processes
from tests.kit.howto_work import outcomes, take_up, work
from tests.kit.waiting import wait_until
from tidemill import Base, ctl, enqueue, start, transaction

Page = ModuleType
MAY = datetime(2026, 5, 1, tzinfo=UTC)
SINCE = datetime(2026, 7, 1, tzinfo=UTC)


def nothing(page: Page) -> None:
    """Takes nothing for granted; it is enough that it runs."""


@dataclass(frozen=True)
class World:
    """`module`: as which the page's code is imported by itself. `beside`: with somebody who does jobs meanwhile.
    `left_out`: blocks, counted from 1, that never end by themselves; tests of their subject run them."""

    module: str
    before: Callable[[Page], object] = nothing
    after: Callable[[Page], object] = nothing
    beside: bool = False
    left_out: tuple[int, ...] = ()


def module(name: str, **names: Any) -> ModuleType:
    found = sys.modules.setdefault(name, ModuleType(name))
    vars(found).update(names)
    return found


def create(*tables: Any) -> None:
    with transaction() as session:
        Base.metadata.create_all(session.connection(), [each.__table__ for each in tables])


def scalar(text: str) -> Any:
    with transaction() as session:
        return session.execute(sa.text(text)).scalar_one()


def noted(page: Page, name: str, *methods: str) -> list[tuple[Any, ...]]:
    """A service of the reader's, which notes how it is called."""
    calls: list[tuple[Any, ...]] = []

    def note(*args: Any, **words: Any) -> str:
        calls.append((*args, *words.values()))
        return "done"

    vars(page)[name] = SimpleNamespace(**dict.fromkeys(methods, note)) if methods else note
    return calls


def shop(page: Page) -> None:
    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)
        item: Mapped[str] = mapped_column(default="tea")
        confirmed: Mapped[bool] = mapped_column(default=False, server_default="false")

    create(Order)

    @shared_task(name="shop.send_mail")
    def send_mail(order_id: int) -> None:
        pass

    @shared_task(name="shop.nightly_report")
    def nightly_report() -> None:
        pass

    @shared_task(name="shop.refresh_prices")
    def refresh_prices(item: str) -> None:
        pass

    module("shop", Order=Order, send_mail=send_mail, nightly_report=nightly_report, refresh_prices=refresh_prices)
    vars(page)["order"] = Order()
    take_up()


def _tested(page: Page, test: Callable[[Session], None]) -> None:
    """With the fixture of the page, as pytest would."""
    given = contextmanager(page.session.__wrapped__)
    with given() as session:
        test(session)


def control_table(page: Page) -> None:
    names = {"ctl": ctl, "datetime": datetime, "UTC": UTC, "transaction": transaction, "orders": []}
    vars(page).update(names, loaded_to=SINCE, checked_to=SINCE, moment=SINCE)
    with transaction() as session:
        for statement in (
            "create schema dds",
            "create schema staging",
            "create table dds.orders (id int)",
            "create table staging.orders (id int)",
        ):
            session.execute(sa.text(statement))
    ctl.advance("staging.orders", loaded_to=MAY)


def proved_control_table(page: Page) -> None:
    assert ctl.get("dds.orders", "loaded_to") == datetime(2026, 6, 30, tzinfo=UTC)
    assert ctl.get("dds.items", "loaded_to") == SINCE


def waiting_jobs(page: Page) -> None:
    shop(page)
    for number in range(20):
        enqueue(sys.modules["shop"].send_mail.s(number), eta=3600)


def proved_waiting_jobs(page: Page) -> None:
    assert scalar("select count(*) from tidemill.job where id = 17") == 0
    assert scalar("select due_at > now() + interval '90 min' from tidemill.job where id = 18")
    assert scalar("select rank from tidemill.job where id = 19") == -50


def proved_tasks(page: Page) -> None:
    """Each task of the page does a job, and what it hands on is the key of that job."""
    charged, stored = noted(page, "payments", "charge"), noted(page, "store")
    _tested(page, page.test_an_order_is_confirmed)
    assert scalar("select count(*) from orders") == scalar("select count(*) from tidemill.job") == 0
    page.test_the_bank_hears_of_it()
    assert charged.pop()[:2] == (1, 5)
    with transaction() as session:
        order = sys.modules["shop"].Order()
        session.add(order)
        session.flush()
        ids = [
            enqueue(task, session=session)
            for task in (page.send_mail.s(1), page.charge.s(1, 5), page.confirm.s(order.id), page.index.s("word"))
        ]
    work()
    assert outcomes(ids) == ["done"] * 4
    [(order_id, amount, key)] = charged
    assert (order_id, amount) == (1, 5)
    assert key
    assert [word for ((word, _),) in [call[0] for call in stored]] == ["word"]
    assert scalar("select confirmed from orders")


def marts(page: Page) -> None:
    class Line(Base):
        __tablename__ = "mart_line"
        id: Mapped[int] = mapped_column(primary_key=True)

    create(Line)

    def add_to_mart(session: Session, since: datetime | None, until: datetime) -> None:
        session.execute(sa.insert(Line), [{} for _ in range(12)])

    def build_report(run: Any) -> None:
        run.advance("report.orders", built_to=run.window("dds.orders", "loaded_to")[1])

    def count_lines(session: Session) -> int:
        return session.execute(sa.select(sa.func.count()).select_from(Line)).scalar_one()

    given = {"Order": Line, "add_to_mart": add_to_mart, "build_report": build_report, "count_lines": count_lines}
    module("warehouse", **given)
    more = "select cast(:since as timestamptz), cast(:until as timestamptz)"
    vars(page).update(add_new_orders=sa.text(more), **given)
    sys.modules["warehouse"] = page  # what the page has declared is imported by its tests


def proved_marts(page: Page) -> None:
    refreshed = noted(page, "dashboards", "refresh")
    page.test_the_report_goes_up_to_what_was_loaded()
    _tested(page, page.test_the_first_run_takes_everything)
    assert scalar("select count(*) from mart_line") == 0
    take_up()
    ctl.advance("dds.orders", loaded_to=SINCE)
    work()
    assert ctl.get("mart.orders", "built_to") == SINCE
    assert refreshed == [()]
    assert scalar("select count(*) from tidemill.run where state = 'done'") == 3


def processes_world(page: Page) -> None:
    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[str] = mapped_column(primary_key=True)
        amount: Mapped[int]

    class Charge(Base):
        __tablename__ = "charge"
        key: Mapped[str] = mapped_column(primary_key=True)
        order_id: Mapped[str]
        amount: Mapped[int]

    create(Order, Charge)
    module("shop", Order=Order, Charge=Charge)
    for name, method in (("bank", "charge"), ("courier", "send"), ("mails", "send")):
        noted(page, name, method)


def proved_process(page: Page) -> None:
    page.test_a_refused_payment_ships_nothing()
    page.test_every_warehouse_ships()
    take_up()
    work()
    shown = tidemill_processes.show(page.process_id)
    assert str(shown.state) == "ACTIVE", "the mail of next week is still to come"
    assert {each.actor: str(each.state) for each in shown.tasks}["put_together"] == "FINISHED"
    exec("@decider\ndef approve_it(flow, *args):\n    return flow.call(approve, *args)", page.__dict__)  # noqa: S102
    take_up()
    asked = start(page.approve_it, "o-2", 100)
    work()
    page.sit_at_the_desk()
    work()
    assert tidemill_processes.show(asked).value is True


def purchases(page: Page) -> None:
    Path("approve.token").write_text("token")


def proved_purchases(page: Page) -> None:
    assert {"approve", "order", "purchase", "decide"} <= set(_actors())
    assert page.main
    assert page.approve("o-1", 700)["by"] == "me"


def failures(page: Page) -> None:
    for name in ("cancel", "mail", "call_back", "refund"):
        exec(f"from tidemill import actor\n@actor\ndef {name}(*args: object) -> str: return 'done'", page.__dict__)  # noqa: S102
    vars(page)["CourierGone"] = type("CourierGone", (Exception,), {})


def proved_failures(page: Page) -> None:
    take_up()
    asked = start(page.urgent, "o-1")
    work()
    assert str(tidemill_processes.show(asked).state) == "FINISHED"
    assert {"approve", "after_approval", "after_shipping"} <= set(_actors())


def _actors() -> list[str]:
    take_up()
    with transaction() as session:
        return list(session.scalars(sa.text("select name from tidemill.actor_preferences")))


def proved_rows(count: int, table: str) -> Callable[[Page], None]:
    def proved(page: Page) -> None:
        take_up()
        assert scalar(f"select count(*) from tidemill.{table}") == count  # noqa: S608 - the kit's own words

    return proved


def rpc(page: Page) -> None:
    Path("ca.pem").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    Path("loader.token").write_text("token\n")


def proved_rpc(page: Page) -> None:
    from app.proto.tidemill.v1 import ctl_pb2

    asked: list[Any] = []

    def advance(request: Any, **words: Any) -> Any:
        asked.append((request, words))
        return ctl_pb2.AdvanceResponse()

    page.advance(SimpleNamespace(Advance=advance), ctl_pb2.AdvanceRequest, SINCE)
    [(request, words)] = asked
    assert request.parameters["loaded_to"].ToDatetime(UTC) == SINCE
    assert words["metadata"] == [("authorization", "Bearer token")]


def broken_ones(page: Page) -> None:
    exec("from tidemill import actor\n@actor\ndef charge(order_id: str) -> str: ...", page.__dict__)  # noqa: S102
    take_up()


def waits_for_nothing(page: Page) -> None:
    wait_until(lambda: scalar("select count(*) from tidemill.job where due_at <= now()") == 0, 60, "all is done")


WORLDS = {
    "advance-the-control-table": World("loads", control_table, proved_control_table),
    "enqueue-from-python": World("producer", shop, waits_for_nothing, beside=True),
    "enqueue-from-sql": World("producer", shop, proved_rows(1, "job")),
    "find-broken-processes": World("search", broken_ones),
    "handle-failures": World("fulfilment", failures, proved_failures),
    "limits-and-pausing": World("limits", waiting_jobs, proved_waiting_jobs),
    "outside-actors": World("purchases", purchases, proved_purchases),
    "periodic-jobs": World("timetable", shop, proved_rows(2, "periodic_job")),
    "results-and-log": World("results", after=waits_for_nothing, beside=True),
    "subscribe-to-events": World("subscriber", after=proved_rows(1, "event_subscription"), left_out=(3, 4)),
    "use-rpc": World("loader", rpc, proved_rpc),
    "write-a-process": World("fulfilment", processes_world, proved_process),
    "write-reactive-tasks": World("marts", marts, proved_marts),
    "write-tasks": World("tasks", shop, proved_tasks),
}
