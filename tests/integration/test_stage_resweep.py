"""A walk over all entities of a kind: who is asked, what comes of it, and how it is steered (S16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from app.audit import Audit
from app.db import transaction
from app.errors import BadRequest, NotFound
from stages import resweep, walking
from stages.model import PartState, Resweep, ResweepState, Stage
from stages.queue import offer
from stages.registration import declared
from tests.kit.stages_shop import (
    Coupon,
    Item,
    Shop,
    declare,
    execute,
    names,
    only,
    parts,
    ringing,
    shop,
    visits,
    walk_row,
)
from tests.kit.waiting import pause

IDS = names(25)


@pytest.fixture
def own(database_url: str) -> Iterator[Shop]:
    with shop() as found:
        yield found


@pytest.fixture
def own_of_25(own: Shop) -> Shop:
    own.put(*IDS)
    return own


def _third(entity: Any, _: Any) -> bool:
    return int(entity.id[1:]) % 3 == 0


def test_a_walk_asks_about_every_entity_once_and_enqueues_the_positives(own_of_25: Shop) -> None:
    # S16
    own = own_of_25
    own.stage(wants=_third)
    walk = resweep.start("item.price")
    assert own.walk() == 25
    assert sorted(own.asked_of()) == IDS
    wanted = [each for each in IDS if int(each[1:]) % 3 == 0]
    assert list(visits()) == wanted
    assert all(row.due_at is None and row.low_at is not None for row in visits().values())
    found = resweep.progress(walk)
    assert (found.state, found.asked, found.wanted, found.total, found.percent) == ("done", 25, len(wanted), 25, 100.0)
    assert found.parts == found.parts_done == 16
    assert own.serve(low=True)[0] == len(wanted)
    assert own.made_of() == wanted


def test_of_one_stage_only_that_is_asked_and_of_a_kind_all(own: Shop) -> None:
    own.put("a")
    own.stage("price")
    own.stage("tag", wants=False, watches={"price"})
    resweep.start("item.tag")
    own.walk()
    assert own.asked == [("tag", "a")]
    resweep.start(Item)
    own.walk()
    # What a stage watches is no matter: nobody says what has changed.
    assert own.asked[1:] == [("price", "a"), ("tag", "a")]
    assert [each.stage for each in resweep.overview()] == [None, "tag"]


def test_the_main_lane_is_left_as_it_is(own: Shop) -> None:
    # S16: also with a timer armed there
    own.put("a", "b", "c")
    own.stage()
    timer = datetime(2080, 1, 1, tzinfo=UTC)
    offer("a", "item.price", timer)
    offer("b", "item.price")
    before = visits()
    resweep.start("item")
    own.walk()
    after = visits()
    assert after["a"].due_at == timer
    assert after["b"].due_at == before["b"].due_at
    assert after["c"].due_at is None
    assert all(row.low_at is not None for row in after.values())


def test_an_answer_that_is_a_time_is_a_time_of_the_low_lane(own: Shop) -> None:
    own.put("a")
    own.stage(wants=timedelta(days=2))
    resweep.start("item.price")
    own.walk()
    row = visits()["a"]
    assert row.due_at is None
    assert timedelta(days=1) < row.low_at - datetime.now(UTC) < timedelta(days=3)
    assert own.serve(low=True) == (0, False)


def test_what_cannot_be_answered_is_a_yes_and_counted(own: Shop) -> None:
    # S4
    def fails(*_: Any) -> bool:
        raise RuntimeError("no idea")

    own.put("a", "b")
    own.stage(wants=fails)
    own.stage("tag", wants=lambda *_: pause(30))
    declare()
    with patch("stages.asker.ASKING", timedelta(milliseconds=50)), ringing():
        resweep.start("item")
        own.walk()
    assert list(visits()) == list(visits("tag")) == ["a", "b"]
    with transaction() as session:
        counted = dict(session.execute(sa.select(Stage.name, Stage.ask_failures)).all())
    assert counted == {"price": 2, "tag": 2}


def test_a_stage_of_another_release_is_taken_to_want_everything(own: Shop) -> None:
    own.put("a")
    own.stage("price", wants=False)
    own.stage("tag")
    declare()
    with patch.dict(declared):
        del declared["item", "tag"]
        resweep.start("item")
        own.walk()
    assert list(visits("tag")) == ["a"]
    assert visits("price") == {}


def test_a_worker_that_does_not_know_the_stage_leaves_the_walk_to_others(own: Shop) -> None:
    own.put("a")
    own.stage("price")
    tag = own.stage("tag")
    walk = resweep.start(tag)
    with patch.dict(declared):
        del declared["item", "tag"]
        assert own.walk() == 0
    assert resweep.progress(walk).error == "no worker that came by knows the stage tag"
    own.all_due()
    assert own.walk() == 1
    assert resweep.progress(walk).error is None


def test_numbers_walk_in_their_own_order_and_optimistic_visits_are_spread(own: Shop) -> None:
    own.put(*range(1, 26), of=Coupon)
    own.stage(of=Coupon)
    own.stage("tag", of=Coupon)
    resweep.start(Coupon, parts=3)
    own.walk("coupon")
    assert own.asked_of() == list(range(1, 26))
    # S8: two stages do not meet at once.
    assert all(visits()[each].low_at != visits("tag")[each].low_at for each in visits())


def test_an_entity_that_cannot_be_read_is_passed_over_and_told(own_of_25: Shop) -> None:
    own = own_of_25
    execute("update item set colour = 'nonsense' where id in ('i0007', 'i0024')")
    own.stage()
    walk = resweep.start("item", parts=2)
    assert own.walk() == 23
    found = resweep.progress(walk)
    assert (found.state, found.asked, found.failed) == ("done", 23, 2)
    assert found.error is not None
    assert "i0007" in found.error
    assert "cannot be read" in found.error
    assert sorted(visits()) == sorted(set(IDS) - {"i0007", "i0024"})


def test_ids_that_no_queue_can_hold_are_passed_over(own: Shop) -> None:
    execute("alter table item disable trigger user")
    own.put("", "a", "x" * 600)
    own.stage()
    walk = resweep.start("item", parts=3)
    own.walk()
    assert own.asked_of() == ["a"]
    assert resweep.progress(walk).state == ResweepState.DONE


def test_where_the_database_refuses_to_read_the_walk_waits(own_of_25: Shop) -> None:
    own = own_of_25
    own.stage()
    walk = resweep.start("item", parts=1)
    execute("alter table item rename column price to cost")
    assert own.walk() == 0
    found = resweep.progress(walk)
    assert (found.state, found.failed) == (ResweepState.RUNNING, 0)
    assert "price does not exist" in (found.error or "")
    assert own.walk() == 0
    execute("alter table item rename column cost to price")
    resweep.resume(walk)
    assert own.walk() == 25
    assert resweep.progress(walk).error is None


def test_an_empty_table_is_walked_at_once(own: Shop) -> None:
    own.stage()
    resweep.start("item")
    assert own.walk() == 0
    assert (only().state, only().parts, only().percent) == (ResweepState.DONE, 1, 100.0)


def test_what_is_new_or_gone_meanwhile_disturbs_nothing(own_of_25: Shop) -> None:
    own = own_of_25
    own.stage()
    resweep.start("item", parts=4)
    own.page()
    execute("delete from item where id in ('i0003', 'i0024')")
    execute("insert into item (id) values ('i0003b'), ('z')")
    own.walk()
    assert only().state == ResweepState.DONE
    assert {"i0003b", "z"} <= set(own.asked_of())
    assert not {"i0003", "i0024"} & set(own.asked_of())


def test_it_pauses_and_goes_on_where_it_was(own_of_25: Shop) -> None:
    # S16
    own = own_of_25
    own.stage()
    walk = resweep.start("item", parts=2)
    own.page()
    own.page()
    resweep.pause(walk)
    resweep.pause(walk)
    before = len(own.asked)
    assert own.walk() == 0
    found = resweep.progress(walk)
    assert (found.state, found.asked, found.left, found.rate_so_far) == (ResweepState.PAUSED, before, None, None)
    resweep.resume(walk)
    assert own.walk() == 25 - before
    assert sorted(own.asked_of()) == IDS


@pytest.mark.parametrize("steer", [resweep.pause, resweep.cancel])
def test_steering_takes_effect_with_the_next_page(own_of_25: Shop, steer: Callable[[int], None]) -> None:
    own = own_of_25

    def steers(entity: Any, _: Any) -> bool:
        if entity.id == "i0003":
            steer(walk)
        return True

    own.stage(wants=steers)
    walk = resweep.start("item", parts=1)
    with patch.object(walking, "PAGE", 5):
        own.walk()
    # The page that was being asked about is not lost.
    assert list(visits()) == own.asked_of()
    assert 4 <= len(own.asked) < 10
    assert resweep.progress(walk).asked == len(own.asked)
    (part,) = parts()
    assert part.pass_key is None
    assert part.state == (PartState.WAITING if steer is resweep.pause else PartState.DONE)


def test_a_cancelled_walk_is_over_and_another_can_begin(own_of_25: Shop) -> None:
    own = own_of_25
    own.stage()
    walk = resweep.start("item", parts=2)
    with pytest.raises(BadRequest, match="a walk over item is under way"):
        resweep.start("item")
    resweep.start("item.price")
    own.page()
    resweep.cancel(walk)
    with pytest.raises(BadRequest, match=rf"walk {walk} is cancelled and cannot be resumed"):
        resweep.resume(walk)
    again = resweep.start(Item)
    own.walk()
    assert resweep.progress(walk).state == ResweepState.CANCELLED
    assert resweep.progress(again).asked == 25


def test_who_did_what_is_recorded(own: Shop) -> None:
    own.stage()
    walk = resweep.start("item.price", rate="10/s", parts=1)
    resweep.pause(walk)
    resweep.change_rate(walk, None)
    resweep.resume(walk)
    resweep.cancel(walk)
    with transaction() as session:
        rows = session.execute(sa.select(Audit.action, Audit.subject, Audit.detail).order_by(Audit.id)).all()
    assert [tuple(row) for row in rows] == [
        ("resweep.start", "item.price", {"id": walk, "rate": "10/s", "parts": 1}),
        ("resweep.pause", "item.price", {"id": walk}),
        ("resweep.rate", "item.price", {"id": walk, "rate": None}),
        ("resweep.resume", "item.price", {"id": walk}),
        ("resweep.cancel", "item.price", {"id": walk}),
    ]
    assert "@" in walk_row(walk).requested_by


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (lambda: resweep.start("nothing"), "no kind 'nothing' is known here; there are: coupon, item"),
        (lambda: resweep.start("item.nothing"), "no stage 'item.nothing' is declared"),
        (lambda: resweep.start(Coupon), "no stage of coupon is declared here"),
        (lambda: resweep.start(17), "17 is no stage"),
        (lambda: resweep.start(Item, rate="fast"), "rate: 'fast' is not a rate"),
        (lambda: resweep.start(Item, rate="0.5/d"), "rate='0.5/d' is slower than 1/d"),
        (lambda: resweep.start(Item, parts=0), "parts=0 must be a whole number from 1 to 4096"),
        (lambda: resweep.progress(99), "there is no walk 99"),
        (lambda: resweep.pause(99), "there is no walk 99"),
        (lambda: resweep.cancel(True), "True is not the id of a walk"),
        (lambda: resweep.overview(0), "limit=0 must be a whole number"),
    ],
)
def test_what_cannot_be_asked_for(own: Shop, refused: Callable[[], object], why: str) -> None:
    own.stage()
    with pytest.raises(BadRequest, match=why):
        refused()
    assert resweep.overview() == []


def test_nothing_is_there_before_its_transaction_commits(own: Shop) -> None:
    own.stage()
    with transaction() as session:
        walk = resweep.start(Item, session=session)
        with pytest.raises(NotFound):
            resweep.progress(walk)
    assert [each.id for each in resweep.overview(live=True)] == [walk]


@pytest.mark.parametrize(
    "wrong", [{"state": "sleeping"}, {"state": "done"}, {"state": "paused", "ended_at": sa.func.now()}]
)
def test_the_database_refuses_senseless_walks(own: Shop, wrong: dict[str, Any]) -> None:
    own.stage()
    resweep.start("item.price")
    with pytest.raises(sa.exc.IntegrityError, match="resweep_ended_as_its_state_says"):
        execute(sa.update(Resweep).values(**wrong))
