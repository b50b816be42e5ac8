"""Settings of actors and types of processes: what the code says, what an operator sets, and what comes of both."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import limits
from app.audit import Audit
from app.db import transaction
from app.errors import BadRequest, NotFound
from app.limits import Queue
from processes import Retry, show, start
from processes.definition import OF_PROCESSES, Definition, declared
from processes.model import DECISION, PREFERENCES, PROCESS
from processes.preferences import Synced, configure, write
from tests.kit.process_kiosk import KIOSK, declare, kiosk_many, kiosk_order, kiosk_value, work

PAY = "kiosk_pay"


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


def kiosk(**changes: Definition | None) -> dict[str, Definition]:
    """What a release declares: the kiosk, with these instead; None: not any more."""
    found: dict[str, Definition | None] = {name: each for name, each in declared.items() if each.module == KIOSK}
    return {name: each for name, each in (found | changes).items() if each is not None}


def release(**changes: Definition | None) -> Synced:
    with transaction() as session:
        return write(session, kiosk(**changes))


def row(session: Session, name: str = PAY) -> Any:
    session.rollback()
    return session.execute(sa.select(*PREFERENCES.c).where(PREFERENCES.c.name == name)).one()


# What the code says


def test_a_service_brings_what_the_code_says(session: Session) -> None:
    # P6, P7: with the defaults of the rules.
    found = row(session)
    assert (found.decider, found.outside, found.task) == (False, False, f"{KIOSK}.{PAY}")
    assert (found.accept_first, found.work_timeout, found.restart_after_work_timeout) == (
        *(True, timedelta(minutes=1), True),
    )
    assert (found.task_timeout, found.force_finish_after_task_timeout, found.max_restarts) == (None, False, 10)
    assert (found.retry["max_attempts"], found.fail_types) == (1, ["Declined"])
    order = row(session, "kiosk_order")
    assert (order.decider, order.process_timeout, order.idle_process_timeout) == (True, None, timedelta(minutes=10))
    assert release() == Synced(actors=5, deciders=3)


def test_what_an_operator_set_lasts_until_the_code_says_something_else(session: Session) -> None:
    configure(PAY, {"work_timeout": "5min", "accept_first": "no", "max_parallel": "3"})
    assert release().changed == ()
    # A release that changes one setting: the others stay as they were set.
    changed = release(kiosk_pay=replace(declared[PAY], work_timeout=timedelta(minutes=2), max_restarts=4))
    assert changed.changed == (PAY,)
    found = row(session)
    assert (found.work_timeout, found.accept_first, found.max_restarts) == (timedelta(minutes=2), False, 4)
    assert _queue(session).max_parallel == 3
    release(kiosk_pay=replace(declared[PAY], max_parallel=7, rate_limit="10/s"))
    assert (_queue(session).max_parallel, _queue(session).rate) == (7, 10.0)


def test_a_release_that_changes_one_limit_leaves_the_other_as_it_was_set(session: Session) -> None:
    configure(PAY, {"rate_limit": "10/s"})
    release(kiosk_pay=replace(declared[PAY], max_parallel=3))
    assert (_queue(session).max_parallel, _queue(session).rate) == (3, 10.0)
    configure(PAY, {"max_parallel": 5})
    release(kiosk_pay=replace(declared[PAY], max_parallel=3, rate_limit="2/s"))
    assert (_queue(session).max_parallel, _queue(session).rate) == (5, 2.0)
    # What the code takes away is taken away.
    release(kiosk_pay=replace(declared[PAY], rate_limit="2/s"))
    assert (_queue(session).max_parallel, _queue(session).rate) == (None, 2.0)


def test_a_new_actor_without_limits_leaves_those_that_its_queue_has(session: Session) -> None:
    with transaction() as tx:
        limits.configure(tx, "actor.kiosk_new", rate="1/s")
        new = replace(declared[PAY], name="kiosk_new", max_parallel=2)
        assert write(tx, kiosk(kiosk_new=new)).new == ("kiosk_new",)
    found = session.execute(sa.select(Queue).where(Queue.name == "actor.kiosk_new")).scalar_one()
    assert (found.max_parallel, found.rate) == (2, 1.0)


def _queue(session: Session) -> Any:
    session.rollback()
    return session.execute(sa.select(Queue).where(Queue.name == f"actor.{PAY}")).scalar_one()


def test_what_is_not_declared_any_more_is_marked_and_comes_back(session: Session) -> None:
    assert release(kiosk_pay=None).removed == (PAY,)
    assert row(session).removed_at is not None
    assert release(kiosk_pay=None).removed == ()
    assert release().changed == (PAY,)
    assert row(session).removed_at is None


def test_modules_that_this_service_does_not_import_are_left_alone(session: Session) -> None:
    session.execute(sa.update(PREFERENCES).where(PREFERENCES.c.name == PAY).values(module="elsewhere.entirely"))
    session.commit()
    assert release(kiosk_pay=None).removed == ()
    assert row(session).removed_at is None


# What an operator sets


@pytest.mark.parametrize(
    ("word", "given", "was", "now"),
    [
        ("accept_first", "off", True, False),
        ("accept_first", False, True, False),
        ("work_timeout", "90s", timedelta(minutes=1), timedelta(seconds=90)),
        ("restart_after_work_timeout", "false", True, False),
        ("max_restarts", "0", 10, 0),
        ("task_timeout", "1h", None, timedelta(hours=1)),
        ("task_timeout", "none", None, None),
        ("task_timeout", "0", None, None),
        ("force_finish_after_task_timeout", "1", False, True),
        ("retry", "7", Retry(1).words(), Retry(7).words()),
        ("retry", Retry(2, "5s"), Retry(1).words(), Retry(2, "5s").words()),
        ("fail_types", "KeyError, ValueError", ["Declined"], ["KeyError", "ValueError"]),
        ("fail_types", "", ["Declined"], []),
        ("process_timeout", "2d", None, timedelta(days=2)),
        ("idle_process_timeout", "1min", timedelta(minutes=10), timedelta(minutes=1)),
        ("retention", "0s", timedelta(days=30), timedelta(0)),
        ("when_inconsistent", "restart", "break", "restart"),
        ("blocked", "yes", False, True),
        ("max_parallel", "3", None, 3),
        ("rate_limit", "6/min", None, "6/min"),
        ("rate_limit", "none", None, None),
    ],
    ids=str,
)
def test_configure_says_what_was_and_what_is(session: Session, word: str, given: Any, was: Any, now: Any) -> None:
    name = "kiosk_order" if word in OF_PROCESSES else PAY
    assert configure(name, {word: given}) == {word: (was, now)}
    assert configure(name, {word: given}) == {word: (now, now)}
    if word in PREFERENCES.c:
        assert getattr(row(session, name), word) == now


def test_every_change_is_audited(session: Session) -> None:
    configure(PAY, {"work_timeout": "5min", "blocked": "yes"}, reason="it is slow")
    found = session.execute(sa.select(Audit)).scalar_one()
    assert (found.action, found.subject, found.reason) == ("actor.set", PAY, "it is slow")
    assert found.detail == {"changes": {"work_timeout": [60.0, 300.0], "blocked": [False, True]}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "name at least one setting"),
        ({"work_timeuot": "5min"}, "did you mean work_timeout"),
        ({"work_timeout": "1min", "retry": "0"}, "from 1 to 1000"),
        ({"work_timeout": "-1min"}, "is not a duration"),
        ({"work_timeout": "10000000w"}, "less than a hundred years"),
        ({"work_timeout": None}, "is not a duration"),
        ({"work_timeout": "none"}, "is not a duration"),
        ({"max_restarts": "1001"}, "from 0 to 1000"),
        ({"max_restarts": "9" * 5000}, "from 0 to 1000"),
        ({"max_restarts": True}, "from 0 to 1000"),
        ({"retry": "often"}, "a number of attempts"),
        ({"fail_types": "a\x00b"}, "list classes of exceptions"),
        ({"fail_types": 7}, "list classes of exceptions"),
        ({"when_inconsistent": "panic"}, "break, restart"),
        ({"accept_first": "perhaps"}, "must be true or false"),
        ({"blocked": ""}, "must be true or false"),
        ({"max_parallel": "0"}, "max_parallel=0"),
        ({"rate_limit": "1e999/s"}, "is not a rate"),
        ({"idle_process_timeout": "10ms"}, "must be 1s or more"),
        ({"\x00": "1"}, "there is no setting"),
        ({"bogus": "1"}, "accept_first, .*, … and 2 more"),
    ],
    ids=str,
)
def test_nonsense_changes_nothing(session: Session, changes: dict[str, Any], told: str) -> None:
    name = "kiosk_order" if changes.keys() & set(OF_PROCESSES) else PAY
    before = row(session, name)
    with pytest.raises(BadRequest, match=told) as caught:
        configure(name, changes)
    assert len(str(caught.value)) < 500
    assert row(session, name) == before
    assert session.execute(sa.select(sa.func.count()).select_from(Audit)).scalar_one() == 0


@pytest.mark.parametrize("word", OF_PROCESSES)
def test_an_actor_has_no_settings_of_processes(session: Session, word: str) -> None:
    # P7
    before = row(session)
    with pytest.raises(BadRequest, match=f"{PAY} is an actor: {word} is a setting of the decider"):
        configure(PAY, {"max_restarts": 1, word: getattr(before, word)})
    assert row(session) == before


def test_an_actor_that_there_is_not() -> None:
    with pytest.raises(NotFound, match="did you mean kiosk_pay"):
        configure("kiosk_pai", {"retry": 3})


# What comes of it


def test_a_blocked_actor_is_handed_nothing() -> None:
    configure(PAY, {"blocked": True})
    process_id = start(kiosk_order, "o-1")
    work()
    assert (show(process_id).state, show(process_id).tasks[1].attempts) == ("ACTIVE", 0)
    configure(PAY, {"blocked": False})
    work()
    assert show(process_id).state == "FINISHED"


def test_fail_types_and_retry_hold_for_what_is_answered_from_then_on() -> None:
    # P9
    configure("kiosk_break", {"fail_types": "LookupError"})
    accepted = start(kiosk_many, 0, 1)
    work()
    assert (show(accepted).state, show(accepted).tasks[1].failed) == ("FINISHED", True)
    configure("kiosk_break", {"fail_types": "", "retry": 2})
    tried = start(kiosk_many, 0, 1)
    work()
    assert (show(tried).tasks[1].state, show(tried).tasks[1].failures) == ("READY", 1)


def test_timeouts_hold_for_what_is_handed_out_from_then_on(session: Session) -> None:
    # P3, P6, P7
    configure("kiosk_print", {"task_timeout": "1h"})
    configure("kiosk_value", {"process_timeout": "2h"})
    process_id = start(kiosk_value, 1, True)
    work()
    deadline = show(process_id).tasks[1].deadline_at
    assert deadline is not None
    assert timedelta(minutes=59) < deadline - show(process_id).at <= timedelta(hours=1)
    assert session.execute(sa.select(DECISION.c.recovery_time).where(DECISION.c.number == 2)).scalar_one() == deadline
    times = session.execute(sa.select(PROCESS.c.deadline_at - PROCESS.c.registered_at)).scalar_one()
    assert timedelta(hours=2) <= times < timedelta(hours=2, minutes=1)
