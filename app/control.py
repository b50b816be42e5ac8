"""The control tasks: each makes one pass when beat asks for it. One that finds the same pass running skips it."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from app import logs
from app.doorbell import GENERIC
from app.duties import duties
from app.errors import Unavailable
from app.passes import task_name
from app.registry import Pass, registry
from app.stopping import stopping

log = logging.getLogger(__name__)


@shared_task(name=GENERIC)
def work() -> None:
    """What a ticket says that was rung by dispatch: work off the queue. Sent without a ticket it does nothing."""


def _task(each: Pass) -> Any:
    @shared_task(name=task_name(each))
    def control() -> str:
        if stopping.is_held():
            return "not migrated"
        try:
            with logs.about(duty=each.name), duties.only_one(each.name) as mine:
                return str(each.run(each.every.total_seconds() / 2)) if mine else "another runs"
        except Unavailable as error:
            log.warning("pass %s skipped: %s", each.name, error)
            return "database away"

    return control


TASKS = [_task(each) for each in registry.passes.values() if each.beat]
