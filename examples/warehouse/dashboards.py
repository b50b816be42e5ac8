"""A Celery task that was there before: it is still called with `.delay()`, and a trigger starts it too.

It takes no argument, so it is called with none. It knows nothing of runs, and its effects are not part of their end: it
may run once more than it should, which does no harm to a dashboard.
"""

from __future__ import annotations

from celery import shared_task

from tidemill import new_day, reactive, transaction
from warehouse.models import Note
from warehouse.pools import MARTS


@reactive(new_day("mart.daily_sales", "built_to"), pool=MARTS, priority=-20)
@shared_task
def refresh() -> None:
    with transaction() as session:
        session.add(Note(task="warehouse.dashboards.refresh", text="refreshed"))
