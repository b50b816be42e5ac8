"""Plain Celery tasks. Nothing here but `@batched` and `this_job` is Tidemill's."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter

import sqlalchemy as sa
from celery import shared_task
from sqlalchemy.dialects import postgresql

from shop.models import Mail, Order, View
from tidemill import Call, batched, periodic, this_job, transaction

log = logging.getLogger(__name__)


class PaymentDeclined(Exception):
    pass


@shared_task(queue="mail")
def send_mail(order_id: int) -> None:
    """The mail and the end of the job are one transaction: whatever crashes, it is sent once."""
    with this_job().transaction() as session:
        session.add(Mail(order_id=order_id))


@shared_task(queue="payments", autoretry_for=(PaymentDeclined,), retry_backoff=1, max_retries=3)
def charge(order_id: int) -> None:
    """The bank declines one payment in five; from one customer it takes nothing, and that job is parked in the end."""
    with transaction() as session:
        order = session.get(Order, order_id)
        if order is None or order.paid_at is not None:
            return
        if order.customer == "mallory" or random.random() < 0.2:  # noqa: S311 - a bank, not a cipher
            raise PaymentDeclined(f"order {order_id}: the bank declines {order.amount} from {order.customer}")
        session.execute(sa.update(Order).where(Order.id == order_id).values(paid_at=sa.func.now()))


@shared_task(queue="photos")
def resize_photo(order_id: int) -> None:
    """Slow: what a worker is busy with when it is killed."""
    log.info("resizing the photo of order %s", order_id)
    time.sleep(random.uniform(0.2, 0.6))  # noqa: S311 - a photo, not a cipher


@shared_task(queue="tracking")
@batched(100)
def track(calls: list[Call]) -> None:
    """Called often, so up to a hundred calls become one statement."""
    views = Counter(int(call.args[0]) for call in calls)
    insert = postgresql.insert(View).values([{"order_id": each, "count": n} for each, n in sorted(views.items())])
    with transaction() as session:
        session.execute(
            insert.on_conflict_do_update(
                index_elements=["order_id"], set_={"count": View.count + insert.excluded.count}
            )
        )


@shared_task
def report() -> str | None:
    """Every five seconds, once in the whole cluster."""
    with transaction() as session:
        if not sa.inspect(session.connection()).has_table(Order.__tablename__):
            return None
        orders, paid = session.execute(sa.select(sa.func.count(), sa.func.count(Order.paid_at))).one()
    line = f"{orders} orders, {paid} of them paid"
    log.warning("report: %s", line)
    return line


periodic(report.s(), every="5s", name="shop.report")
