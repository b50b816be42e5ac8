"""States updated from outside, beside others and beside visits: with two connections, in both orders."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.db import remaining_time, transaction
from app.errors import NotFound, VersionConflict
from stages import Untouched, Updated, outside
from tests.kit.rpc import state
from tests.kit.stages_rows import Offer, Stages, entity, execute, visit, world
from tests.kit.stages_rows import number as kept
from tests.kit.waiting import wait_until

KEY = ("offer", "publish", "a")
CHANGES = [(0, 1), (1, 2), (1, None)]


@pytest.fixture
def stages(engine: Engine) -> Iterator[Stages]:
    with world() as found:
        found.stage("publish", wants=False, state=Int64Value)
        found.sync()
        found.put("a")
        found.forget()
        yield found


def waits(session: Session) -> bool:
    session.rollback()
    query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return session.execute(sa.text(query)).first() is not None


def packed(value: int | None) -> Any:
    return None if value is None else state(value)


def again(stages: Stages, seen: list[int | None]) -> bool:
    stages.all_due()
    stages.serve("publish")
    return len(seen) > 1


@pytest.mark.parametrize(("version", "new"), CHANGES)
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_waits_for_the_first(  # S19
    stages: Stages, engine: Engine, session: Session, version: int, new: int | None, *, commits: bool
) -> None:
    if version:
        outside.update(*KEY, 0, state(7))
    with Session(engine) as first, ThreadPoolExecutor(1) as pool:
        made = outside.update(*KEY, version, packed(new), session=first)
        second = pool.submit(outside.update, *KEY, version, state(9))
        wait_until(lambda: waits(session), 60, "the second waits")
        if commits:
            first.commit()
            error = second.exception(60)
            assert isinstance(error, VersionConflict)
            assert error.version == made
            assert kept() == new
        else:
            first.rollback()
            assert second.result(60) > version
            assert kept() == 9


def test_read_is_what_was_committed(stages: Stages, engine: Engine) -> None:
    assert outside.read(*KEY).version == 0
    with Session(engine) as first:
        outside.update(*KEY, 0, state(7), session=first)
        assert outside.read(*KEY, session=first).version == 1
        assert outside.read(*KEY).version == 0
        first.commit()
    assert outside.read(*KEY).version == 1


def test_an_update_while_a_visit_works_is_a_conflict(stages: Stages) -> None:  # S6 S19
    seen: list[int | None] = []

    def does(offer: Offer, mine: Int64Value | None) -> Any:
        seen.append(None if mine is None else mine.value)
        if len(seen) > 1:
            return Untouched()
        assert outside.update(*KEY, 0, state(5)) == 1
        offer.price = 99
        return Updated(offer, state=Int64Value(value=1))

    stages.stage("publish", does=does, state=Int64Value)
    assert outside.update(*KEY, 0, None, visit=True) == 0
    stages.serve("publish")
    wait_until(lambda: again(stages, seen), 60, "it is made again")
    assert seen == [None, 5]
    assert (kept(), outside.read(*KEY).version) == (5, 1)
    assert entity("a").price is None
    assert execute("SELECT 1 FROM tidemill.stage_visit WHERE stage = 'publish'") == []


@pytest.mark.parametrize("new", [8, None])
def test_nor_is_a_state_that_the_visit_leaves_as_it_is_written_over(stages: Stages, new: int | None) -> None:  # S6 S19
    outside.update(*KEY, 0, state(1))
    seen: list[int | None] = []

    def does(offer: Offer, mine: Int64Value | None) -> Any:
        seen.append(None if mine is None else mine.value)
        if len(seen) > 1:
            return Untouched()
        outside.update(*KEY, 1, packed(new), visit=True)
        offer.price = 99
        return Updated(offer)

    stages.stage("publish", does=does, state=Int64Value)
    with transaction() as tx:
        tx.execute(sa.text("SELECT tidemill.offer('offer', 'publish', 'a')"))
    stages.serve("publish")
    wait_until(lambda: again(stages, seen), 60, "it is made again")
    assert seen[:2] == [1, new]
    assert entity("a").price is None
    assert kept() == new


def test_a_state_that_was_removed_and_made_anew_is_another_one(stages: Stages) -> None:  # S6 S19
    """To a visit that began before, and to whoever read the one before."""
    read = outside.update(*KEY, 0, state(1))
    seen: list[int | None] = []

    def does(_offer: Offer, mine: Int64Value | None) -> Any:
        seen.append(None if mine is None else mine.value)
        if len(seen) > 1:
            return Untouched()
        outside.update(*KEY, read, None)
        outside.update(*KEY, 0, state(8))
        return Untouched(state=Int64Value(value=99))

    stages.stage("publish", does=does, state=Int64Value)
    with transaction() as tx:
        tx.execute(sa.text("SELECT tidemill.offer('offer', 'publish', 'a')"))
    stages.serve("publish")
    wait_until(lambda: again(stages, seen), 60, "it is made again")
    assert seen == [1, 8]
    assert outside.read(*KEY).version > read
    with pytest.raises(VersionConflict):
        outside.update(*KEY, read, state(9))
    assert kept() == 8


def test_a_state_of_an_entity_of_the_same_id_is_another_one(stages: Stages) -> None:  # S19
    read = outside.update(*KEY, 0, state(1))
    execute("DELETE FROM offer WHERE id = 'a'")
    execute("INSERT INTO offer (id, status) VALUES ('a', 'new')")
    outside.update(*KEY, 0, state(2))
    with pytest.raises(VersionConflict):
        outside.update(*KEY, read, state(9))
    assert kept() == 2


def test_a_visit_that_was_saved_before_wins(stages: Stages) -> None:  # S19
    stages.stage("publish", does=lambda _offer, _state: Untouched(state=Int64Value(value=3)), state=Int64Value)
    outside.update(*KEY, 0, None, visit=True)
    stages.serve("publish")
    with pytest.raises(VersionConflict, match="version 1 now, not 0"):
        outside.update(*KEY, 0, state(9))
    assert kept() == 3


def test_every_change_is_published_and_nothing_else(stages: Stages) -> None:  # S14 S19
    outside.update(*KEY, 0, None)
    outside.update(*KEY, 0, state(1))
    outside.update(*KEY, 1, state(2))
    with pytest.raises(VersionConflict):
        outside.update(*KEY, 1, state(3))
    outside.update(*KEY, 2, None)
    events = execute("SELECT entity_id, stage, fields, state_version, state_value FROM tidemill.event ORDER BY id")
    values = [each.state_value and Int64Value.FromString(bytes(each.state_value)).value for each in events]
    found: list[Any] = [(*each[:3], each.state_version) for each in events]
    assert found == [
        ("a", "publish", [], 1),
        ("a", "publish", [], 2),
        ("a", "publish", [], 0),
    ]
    assert values == [1, 2, None]


def test_an_entity_that_is_being_written_is_waited_for(stages: Stages, engine: Engine, session: Session) -> None:  # S14
    """So that the numbers of its events are in the order of their commits."""
    with Session(engine) as other, ThreadPoolExecutor(1) as pool:
        other.execute(sa.text("UPDATE public.offer SET price = 1 WHERE id = 'a'"))
        made = pool.submit(outside.update, *KEY, 0, state(1))
        wait_until(lambda: waits(session), 60, "the update waits")
        other.commit()
        assert made.result(60) == 1


def test_a_visit_is_offered_by_the_rules_of_the_queue(stages: Stages) -> None:  # S2
    outside.update(*KEY, 0, state(1), visit=True)
    first = visit("a", "publish").due_at
    outside.update(*KEY, 1, state(2), visit=True)
    assert visit("a", "publish").due_at == first


def test_an_entity_that_goes_takes_its_state_along(stages: Stages) -> None:
    outside.update(*KEY, 0, state(1))
    execute("DELETE FROM public.offer")
    for call in (lambda: outside.read(*KEY), lambda: outside.update(*KEY, 1, state(2))):
        with pytest.raises(NotFound, match="no offer 'a'"):
            call()
    assert kept() is None


def test_waits_do_not_add_up_beyond_the_time_that_remains(stages: Stages, engine: Engine) -> None:
    """Each statement that may wait gets what is left, not what there was at the beginning."""
    left = iter([5.0, 4.0, 3.0, 2.0])
    limits: list[str] = []

    def note(_c: Any, _u: Any, text: str, parameters: Any, _x: Any, _m: object) -> None:
        if "statement_timeout" in str(parameters):
            limits.append(next(each for each in parameters.values() if str(each).isdecimal()))

    sa.event.listen(engine, "before_cursor_execute", note)
    token = remaining_time.set(lambda: next(left))
    try:
        outside.update(*KEY, 0, state(1), visit=True)
    finally:
        remaining_time.reset(token)
        sa.event.remove(engine, "before_cursor_execute", note)
    assert limits == ["5000", "4000", "3000"]
