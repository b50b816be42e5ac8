"""The control table moves forward, all of a call or none, whoever else moves it; restating is the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.errors import BadRequest, MovesBack, TooFarAhead
from tests.kit.waiting import wait_until
from triggers import ctl
from triggers.model import CtlChange, ReactiveLeaf, ReactiveTask

DAY = timedelta(days=1)
T = datetime(2026, 7, 1, 12, tzinfo=UTC)
NAME = ("dds.orders", "loaded_to")


@pytest.fixture
def other(engine: Engine) -> Iterator[Session]:
    """A second connection."""
    with Session(engine) as found:
        yield found


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as found:
        yield found


def changes(session: Session) -> list[tuple[str, datetime, datetime | None, bool]]:
    session.rollback()
    c = CtlChange
    query = sa.select(c.entity + "." + c.parameter, c.value, c.previous, c.restated).order_by(c.id)
    return [tuple(row) for row in session.execute(query)]  # type: ignore[misc]


def is_blocked(session: Session) -> bool:
    """Whether somebody waits for a lock in this database."""
    session.rollback()
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return bool(session.execute(query).scalar_one())


# Forward only


def test_a_value_that_moves_forward_is_recorded(session: Session) -> None:
    # T15
    assert ctl.get(*NAME) is None
    assert ctl.advance("dds.orders", loaded_to=T) == {"loaded_to"}
    assert ctl.advance("dds.orders", loaded_to=T + DAY, checked_to=T) == {"loaded_to", "checked_to"}
    assert ctl.get(*NAME) == T + DAY
    assert sorted(changes(session), key=lambda row: row[:2]) == [
        ("dds.orders.checked_to", T, None, False),
        ("dds.orders.loaded_to", T, None, False),
        ("dds.orders.loaded_to", T + DAY, T, False),
    ]


def test_the_same_value_is_no_change(session: Session) -> None:
    ctl.advance("dds.orders", loaded_to=T)
    [before] = ctl.of("dds.orders")
    assert ctl.advance("dds.orders", loaded_to=T) == set()
    assert ctl.advance("dds.orders", loaded_to=T.astimezone(ZoneInfo("Asia/Tokyo"))) == set()
    assert ctl.of("dds.orders") == [before]
    assert len(changes(session)) == 1


def test_a_value_that_moves_back_is_refused_with_both_values(session: Session) -> None:
    # T15
    ctl.advance("dds.orders", loaded_to=T)
    with pytest.raises(
        MovesBack, match=r"dds\.orders\.loaded_to is at 2026-07-01 12.* back to 2026-07-01 11:59:59.999999"
    ):
        ctl.advance("dds.orders", loaded_to=T - timedelta(microseconds=1))
    assert ctl.get(*NAME) == T


def test_all_of_a_call_or_none(session: Session) -> None:
    ctl.advance("b", p=T)
    with pytest.raises(MovesBack, match=r"b\.p"):
        ctl.advance_many({("a", "p"): T, ("b", "p"): T - DAY, ("c", "p"): T})
    assert [(v.entity, v.value) for v in ctl.values()] == [("b", T)]
    assert len(changes(session)) == 1


def test_ten_thousand_in_one_round_trip(engine: Engine, session: Session) -> None:
    sent: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *words: sent.append(words[2]))
    values = {(f"e{number % 100}", f"p{number}"): T for number in range(10_000)}
    assert ctl.advance_many(values) == values.keys()
    assert ctl.advance_many(dict.fromkeys(values, T + DAY)) == values.keys()
    assert ctl.advance_many(dict.fromkeys(values, T + DAY)) == set()
    assert len(sent) == 3
    assert len(changes(session)) == 20_000


# What is no value, and no name

REFUSED_VALUES: list[tuple[Any, type[Exception], str]] = [
    (T.replace(tzinfo=None), BadRequest, "has no time zone: write"),
    (date(2026, 7, 1), BadRequest, "must be a datetime with a time zone"),
    (True, BadRequest, "=True must be a datetime"),
    ("2026-07-01T00:00:00Z", BadRequest, "must be a datetime"),
    (None, BadRequest, "must be a datetime"),
    (float("inf"), BadRequest, "=inf must be a datetime"),
    (T.replace(year=9999), TooFarAhead, "lies after 9998-12-31"),
    (datetime.max.replace(tzinfo=UTC), TooFarAhead, "lies after"),
    (datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))), TooFarAhead, "lies after"),
    (datetime(9998, 12, 31, 0, 0, 1, tzinfo=UTC), TooFarAhead, "lies after"),
    (datetime(9998, 12, 30, 23, tzinfo=timezone(-timedelta(hours=5))), TooFarAhead, "lies after"),
    (datetime.min.replace(tzinfo=UTC), BadRequest, "lies before the year 2"),
    (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), BadRequest, "lies before the year 2"),
]


@pytest.mark.parametrize("change", [ctl.advance, ctl.restate], ids=["advance", "restate"])
@pytest.mark.parametrize(("value", "error", "said"), REFUSED_VALUES)
def test_what_is_no_moment_is_refused(
    session: Session, change: Callable[..., object], value: Any, error: type[Exception], said: str
) -> None:
    words = {} if change is ctl.advance else {"reason": "because"}
    with pytest.raises(error, match=f"dds.orders.loaded_to.*{said}"):
        change("dds.orders", loaded_to=value, **words)
    assert changes(session) == []


def test_what_lies_far_ahead_is_only_restated(session: Session) -> None:
    far = datetime.now(UTC) + timedelta(days=3700)
    with pytest.raises(TooFarAhead, match=r"more than 10 years ahead.*restate"):
        ctl.advance("dds.orders", loaded_to=far)
    ctl.restate("dds.orders", loaded_to=far, reason="a plan for the far future")
    assert ctl.get(*NAME) == far


def test_an_offset_that_the_database_cannot_read_is_no_obstacle(session: Session) -> None:
    odd = timezone(timedelta(hours=2, minutes=30, seconds=17, microseconds=5))
    ctl.advance("dds.orders", loaded_to=T.astimezone(odd), local=datetime(1870, 1, 1, tzinfo=ZoneInfo("Europe/Moscow")))
    assert ctl.get(*NAME) == T
    assert ctl.get("dds.orders", "local") == datetime(1870, 1, 1, tzinfo=ZoneInfo("Europe/Moscow"))


@pytest.mark.parametrize(
    "name", ["", "  ", "x" * 201, "x" * 10**6, "a\0b", "a\nb", "a\x1bb", "a\x7fb", "a\x85b", "\ud800", None, 1]
)
def test_what_is_no_name_is_refused(session: Session, name: Any) -> None:
    for given in ((name, "p"), ("e", name)):
        with pytest.raises(BadRequest, match="must be text of 1 to 200 characters") as refused:
            ctl.advance_many({given: T})
        assert len(str(refused.value)) < 300
        with pytest.raises(BadRequest, match="must be text of"):
            ctl.get(*given)
    assert changes(session) == []


@pytest.mark.parametrize("name", ["x" * 200, "Заказы", "a\u00a0b", "100%", "it's", "a*b", "a=b"])
def test_what_is_a_name(session: Session, name: str) -> None:
    assert ctl.advance_many({(name, name): T}) == {(name, name)}
    assert ctl.get(name, name) == T


def test_nothing_is_refused(session: Session) -> None:
    with pytest.raises(BadRequest, match="nothing to advance"):
        ctl.advance("dds.orders")
    with pytest.raises(BadRequest, match="nothing to restate"):
        ctl.restate("dds.orders", reason="because")


# The caller's transaction


def test_it_belongs_to_the_transaction_of_the_caller(session: Session) -> None:
    ctl.advance("dds.orders", session=session, loaded_to=T)
    assert ctl.get(*NAME, session=session) == T
    session.rollback()
    assert changes(session) == []


def test_the_transaction_of_the_caller_goes_on_after_a_refusal(session: Session) -> None:
    ctl.advance("dds.orders", loaded_to=T)
    ctl.advance("mart.orders", session=session, built_to=T)
    with pytest.raises(MovesBack):
        ctl.advance("dds.orders", session=session, loaded_to=T - DAY, more=T)
    ctl.advance("mart.items", session=session, built_to=T)
    session.commit()
    assert [v.entity for v in ctl.values()] == ["dds.orders", "mart.items", "mart.orders"]


def test_the_recorded_transaction_is_that_of_the_caller(session: Session) -> None:
    xid = session.execute(sa.text("SELECT pg_current_xact_id()::text::bigint")).scalar_one()
    ctl.advance("dds.orders", session=session, loaded_to=T)
    session.commit()
    assert [each.xid for each in ctl.history(*NAME)] == [xid]


# Two at once, in both orders


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_the_greater_value_second(
    session: Session, other: Session, thread: ThreadPoolExecutor, *, exists: bool, ends: str
) -> None:
    # T15
    if exists:
        ctl.advance("dds.orders", loaded_to=T - DAY)
    ctl.advance("dds.orders", session=session, loaded_to=T)
    second = thread.submit(ctl.advance, "dds.orders", loaded_to=T + DAY)
    wait_until(lambda: is_blocked(other))
    getattr(session, ends)()
    assert second.result(60) == {"loaded_to"}
    assert ctl.get(*NAME) == T + DAY


@pytest.mark.parametrize("exists", [True, False])
def test_the_greater_value_first(session: Session, other: Session, thread: ThreadPoolExecutor, *, exists: bool) -> None:
    # T15
    if exists:
        ctl.advance("dds.orders", loaded_to=T - DAY)
    ctl.advance("dds.orders", session=session, loaded_to=T + DAY)
    second = thread.submit(ctl.advance, "dds.orders", loaded_to=T)
    wait_until(lambda: is_blocked(other))
    session.commit()
    with pytest.raises(MovesBack, match="is at 2026-07-02"):
        second.result(60)
    assert ctl.get(*NAME) == T + DAY


@pytest.mark.parametrize("exists", [True, False])
def test_opposite_orders_of_keys_do_not_deadlock(engine: Engine, session: Session, *, exists: bool) -> None:
    """Names that a locale would sort otherwise than Python."""
    names = [(f"{letter}{number}", "p") for number in range(100) for letter in ("a_", "B", "ä", "a-", "A", "b")]
    if exists:
        ctl.advance_many(dict.fromkeys(names, T))

    def climb(order: int) -> None:
        for step in range(10):
            value = T + timedelta(seconds=2 * step + order)
            try:
                ctl.advance_many(dict.fromkeys(names[:: 1 - 2 * order], value))
            except MovesBack:
                ctl.restate_many(dict.fromkeys(names[:: 50 * (2 * order - 1)], value), reason="in a race")

    with ThreadPoolExecutor(2) as threads:
        ends: list[Future[None]] = [threads.submit(climb, order) for order in (0, 1)]
        assert [each.result(60) for each in ends] == [None, None]


# Restating


def register(
    session: Session, name: str, *leaves: tuple[str, str, str | None, str | None, bool], **columns: Any
) -> None:
    task: dict[str, Any] = {"module": "m", "pool": "p", "priority": 0, "trigger": {}, "shape": "s", "produces": []}
    task |= {"first_run": "fire", "on_lapse": "drop", "max_failures": 5, "backoff": timedelta(seconds=10), "code": "c"}
    made = sa.insert(ReactiveTask).values(name=name, **task | columns).returning(ReactiveTask.id)
    task_id = session.execute(made).scalar_one()
    for position, (entity, parameter, ref_entity, ref_parameter, latched) in enumerate(leaves):
        row = {"entity": entity, "parameter": parameter, "ref_entity": ref_entity, "ref_parameter": ref_parameter}
        session.execute(sa.insert(ReactiveLeaf).values(task_id=task_id, position=position, latched=latched, **row))
    session.commit()


def test_restating_moves_back_and_lists_what_rests_on_it(session: Session) -> None:
    # T15
    register(session, "m.delta", (*NAME, None, None, True), ("other", "p", None, None, False))
    register(session, "m.delay", (*NAME, None, None, False))
    register(session, "m.reference", ("mart", "p", *NAME, False), ("other", "p", None, None, True))
    register(session, "m.gone", (*NAME, None, None, True), removed_at=T)
    register(session, "m.stranger", ("other", "p", None, None, True))
    ctl.advance("dds.orders", loaded_to=T)
    restated = ctl.restate("dds.orders", loaded_to=T - DAY, reason="it was empty")
    assert restated.tasks == ("m.delay", "m.delta", "m.reference")
    assert [each.latched for each in restated.dependents] == [False, True, False]
    assert changes(session)[-1] == ("dds.orders.loaded_to", T - DAY, T, True)
    [value] = ctl.of(*NAME)
    assert (value.value, value.version, value.epoch) == (T - DAY, 2, 1)
    assert ctl.advance("dds.orders", loaded_to=T) == {"loaded_to"}


def test_restating_needs_no_value_before(session: Session) -> None:
    ctl.restate("dds.orders", loaded_to=T, reason="from another system")
    assert changes(session) == [("dds.orders.loaded_to", T, None, False)]


def test_restating_to_the_same_value_is_recorded(session: Session) -> None:
    """The data are others, though they reach as far."""
    ctl.advance("dds.orders", loaded_to=T)
    ctl.restate("dds.orders", loaded_to=T, reason="loaded anew")
    assert changes(session)[-1] == ("dds.orders.loaded_to", T, T, True)


def test_restating_while_another_gives_the_first_value(
    session: Session, other: Session, thread: ThreadPoolExecutor
) -> None:
    ctl.advance("dds.orders", session=session, loaded_to=T)
    second = thread.submit(ctl.restate, "dds.orders", loaded_to=T - DAY, reason="because")
    wait_until(lambda: is_blocked(other))
    session.commit()
    assert second.result(60).tasks == ()
    assert changes(session)[-1] == ("dds.orders.loaded_to", T - DAY, T, True)


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1001, "a\0b", "\ud800", None, 1])
def test_restating_wants_a_reason(session: Session, reason: Any) -> None:
    with pytest.raises(BadRequest, match=r"reason=.* must say in 1 to 1000 characters"):
        ctl.restate("dds.orders", loaded_to=T, reason=reason)
    assert changes(session) == []


# Reading


def test_a_pattern_names_entities(session: Session) -> None:
    ctl.advance_many({(name, "p"): T for name in ("mart.a", "mart.b", "martxa", "mart_a", "50%", "b\\c")})

    def found(pattern: str) -> list[str]:
        return [each.entity for each in ctl.values(pattern)]

    assert found("mart.*") == ["mart.a", "mart.b"]
    assert sorted(found("*a")) == ["mart.a", "mart_a", "martxa"]
    assert (found("mart_a"), found("50%"), found("5*"), found("b\\*")) == (["mart_a"], ["50%"], ["50%"], ["b\\c"])
    assert found("mart") == found("%") == []
    assert len(ctl.values(limit=2)) == 2


def test_history_is_newest_first(session: Session) -> None:
    for days in range(5):
        ctl.advance("dds.orders", loaded_to=T + days * DAY)
    assert [each.value for each in ctl.history(*NAME, limit=2)] == [T + 4 * DAY, T + 3 * DAY]


def test_a_row_cannot_be_deleted(session: Session) -> None:
    """T19: whoever follows the changes would not hear of it."""
    ctl.advance("dds.orders", loaded_to=datetime(2026, 7, 1, tzinfo=UTC))
    with pytest.raises(sa.exc.DBAPIError, match=r"dds.orders.loaded_to cannot be deleted"):
        session.execute(sa.text("DELETE FROM tidemill.ctl"))
    session.rollback()
    with pytest.raises(sa.exc.DBAPIError, match="the control table cannot be emptied"):
        session.execute(sa.text("TRUNCATE tidemill.ctl"))


@pytest.mark.parametrize("key", ["a", ("a",), ("a", "b", "c"), 7])
def test_what_is_no_pair_is_no_parameter(key: Any) -> None:
    with pytest.raises(BadRequest, match="is not a parameter: write a pair"):
        ctl.advance_many({key: datetime(2026, 7, 1, tzinfo=UTC)})
