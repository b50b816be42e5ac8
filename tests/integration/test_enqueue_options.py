"""What a job would lose of a signature is refused with what to write instead (J1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from celery import chain
from sqlalchemy.orm import Session

from app.errors import Unsupported
from app.jobs import enqueue, enqueue_many, periodic
from app.jobs.model import PeriodicJob
from app.jobs.options import REFUSED
from tests.kit.rows import count, job
from tests.kit.tasks import noop


def test_options_that_a_job_cannot_have_are_refused_with_what_to_do(session: Session) -> None:
    ways: list[Callable[[Any], Any]] = [enqueue, lambda each: enqueue_many([each]), partial(periodic, every="1h")]
    for option, value, put_in in product(REFUSED, (0, False, 5, "x"), ways):
        signature = noop.s()
        signature.options[option] = value
        with pytest.raises(Unsupported, match=rf"^{noop.name}: a durable job cannot have {option}: \w[^{{}}]+$"):
            put_in(signature)
    assert (count(session), count(session, PeriodicJob)) == (0, 0)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("time_limit", 1, r"declare it on the task, as in @shared_task\(time_limit=…\)"),
        ("ignore_result", False, r"declare it on the task, as in @shared_task\(ignore_result=…\)"),
        ("countdown", 0, "pass eta= to enqueue"),
        ("expires", 0, "pass expires= to enqueue"),
        ("link", noop.s(), "enqueue the next task inside this one"),
    ],
)
def test_what_is_set_on_a_signature_is_not_lost_without_a_word(
    session: Session, option: str, value: Any, said: str
) -> None:
    with pytest.raises(Unsupported, match=rf"cannot have {option}: {said}"):
        enqueue(noop.s().set(**{option: value}))


def test_what_celery_writes_by_itself_is_no_wish(session: Session) -> None:
    linked = noop.s()
    linked.link(noop.s())
    linked.options["link"].clear()
    empty = noop.s()
    empty.options.update({"countdown": None, "expires": None, "headers": {}, "link_error": []})
    chained = chain(noop.s(), noop.si()).tasks
    for signature in (
        noop.s(),
        noop.si(),
        noop.s().set(queue="q", priority=1),
        noop.s().clone(),
        linked,
        empty,
        *chained,
    ):
        assert job(session, enqueue(signature))
