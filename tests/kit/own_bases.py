"""Tasks with bases of their own, as users of Celery have them."""

from __future__ import annotations

import os
from typing import Any

from celery import Task, shared_task

_context: list[str] = []


def note(*words: Any) -> None:
    with open(os.environ["NOTES"], "a") as notes:
        print(*words, file=notes)


class InContext(Task):  # type: ignore[type-arg]
    """As in Flask's manual."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _context.append("in context")
        try:
            return self.run(*args, **kwargs)
        finally:
            _context.pop()

    def retry(self, *args: Any, **kwargs: Any) -> Any:
        note("retry of its own")
        return super().retry(*args, **kwargs)


class Hooked(Task):  # type: ignore[type-arg]
    abstract = True

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note("begins", args[0])

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note("succeeded", args)

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note("failed", args)


@shared_task(base=InContext, bind=True)
def within(self: Any, how: str) -> None:
    note(how, *_context)
    if how == "again" and not self.request.retries:
        raise self.retry(countdown=0, max_retries=1)


@shared_task(base=Hooked)
def pay(order: int) -> None:
    if order < 0:
        raise ValueError("declined")
