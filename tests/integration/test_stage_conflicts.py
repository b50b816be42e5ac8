"""Visits that somebody comes between: made again with what is there then, a few times at once, and then later (S9)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import Int64Value
from sqlalchemy.orm import Session

from app.db import engine
from stages import Patch, Untouched, Updated, queue, visits
from stages.batch import HELD
from stages.outcomes import KEEP
from tests.kit.stages_rows import Offer, Stages, entity, execute, limit, number, visit, waiting, world

NOW = datetime.now(UTC)
SOON = NOW + timedelta(hours=1)


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def between(stages: Stages, come: Callable[[], object], times: int = 1) -> Callable[[], None]:
    """Comes between as often as that."""

    def act() -> None:
        if len(stages.made) <= times:
            come()

    return act


def change(column: str = "note", value: str = "'1'", entity_id: str = "a") -> None:
    execute(" ".join(["UPDATE offer SET", column, "=", value, "WHERE id = :id"]), id=entity_id)


def set_state(value: int | None) -> None:
    """As a program from outside does it (S19)."""
    execute("DELETE FROM tidemill.stage_state")
    if value is not None:
        data = Int64Value(value=value).SerializeToString()
        execute(
            "INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value, version) "
            "VALUES ('offer', 'a', 'publish', 'type.googleapis.com/google.protobuf.Int64Value', :data, :version)",
            data=data,
            version=100 + value,
        )


# The entity


def test_what_somebody_has_changed_is_processed_again(stages: Stages) -> None:
    # S9
    come = between(stages, lambda: change("price", "10"))

    def process(offer: Offer, _state: object) -> Updated:
        come()
        offer.status = f"price was {offer.price}"
        return Updated(offer)

    stages.stage("publish", does=process)
    stages.asked("a", price=1)
    stages.serve("publish")
    found = entity("a")
    assert (found.price, found.status, found.version) == (10, "price was 10", 3)
    assert stages.made_by("publish") == ["a", "a"]


def test_the_others_of_its_batch_are_saved_at_once(stages: Stages) -> None:
    # S9
    def process(offer: Offer, _state: object) -> Patch:
        if offer.id == "b" and stages.made_by("publish").count("b") == 1:
            change("price", "1", "b")
        return Patch({"status": "live"}, reads=["price"])

    stages.stage("publish", does=process)
    stages.asked("a", "b", "c")
    stages.serve("publish")
    assert [entity(each).version for each in "abc"] == [2, 3, 2]
    assert sorted(stages.made_by("publish")) == ["a", "b", "b", "c"]


@pytest.mark.parametrize(("reads", "again"), [((), 0), (("note",), 0), (("status",), 1)])
def test_a_patch_is_set_also_where_it_is_what_was_loaded(stages: Stages, reads: tuple[str, ...], again: int) -> None:
    # S9
    come = between(stages, lambda: change("status", "'open'"))

    def process(_offer: Offer, _state: object) -> Patch:
        come()
        return Patch({"status": "closed"}, reads=reads)

    stages.stage("publish", does=process)
    stages.asked("a", status="closed")
    stages.serve("publish")
    assert (entity("a").status, entity("a").version, len(stages.made)) == ("closed", 3, 1 + again)


def test_a_patch_that_sets_nothing_rests_on_nothing(stages: Stages) -> None:
    come = between(stages, change)

    def process(_offer: Offer, _state: object) -> Patch:
        come()
        return Patch({}, reads=["note"])

    stages.stage("publish", does=process)
    stages.asked("a")
    stages.serve("publish")
    assert (len(stages.made), entity("a").version) == (1, 2)


def test_after_a_few_tries_it_comes_later_at_no_charge(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    # S9
    # However slow the machine is: it does not come again in the same ticket.
    monkeypatch.setattr(visits, "LATER_SECONDS", (300.0, 300.0))

    def process(_offer: Offer, _state: object) -> Patch:
        change("price", str(len(stages.made)))
        return Patch({"status": "live"}, reads=["price"])

    stages.stage("publish", does=process, max_attempts=1)
    stages.asked("a")
    stages.serve("publish")
    assert len(stages.made) == 1 + visits.TRIES
    row = visit("a", "publish")
    assert (row.state, row.attempts, row.error) == ("waiting", 0, visits.CONFLICT)
    assert row.not_before > row.due_at + timedelta(milliseconds=100)
    assert entity("a").status == "new"
    stages.forget()


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (lambda _: Untouched(), 0),
        (lambda _: Untouched(timer=SOON), 1),
        (lambda _: Untouched(state=Int64Value(value=1)), 1),
        (lambda _: Patch({"status": "live"}), 0),
        (lambda _: Patch({"status": "live"}, reads=["price"]), 0),
        (lambda _: Patch({"status": "live"}, reads=["price", "note"]), 1),
        (lambda _: Patch({"note": 5}), 0),
        (lambda _: Patch({"note": 5}, reads=["note"]), 1),
        (lambda _: Patch({"status": "live"}, timer=SOON, state=Int64Value(value=1)), 0),
        (lambda offer: Updated(renamed(offer)), 1),
    ],
)
def test_what_rests_on_nothing_that_has_changed_is_not_made_again(
    stages: Stages, outcome: Callable[[Offer], Any], again: int
) -> None:
    # S9
    come = between(stages, change)

    def process(offer: Offer, _state: object) -> Any:
        come()
        return outcome(offer)

    stages.stage("publish", does=process, state=Int64Value)
    stages.asked("a")
    stages.serve("publish")
    assert len(stages.made) == 1 + again
    found, example = entity("a"), outcome(Offer(id="a"))
    changes = not isinstance(example, Untouched)
    assert found.version == 2 + changes
    assert (found.status, found.note) != ("new", 1) or not changes
    assert number() == (None if example.state is KEEP else 1)
    assert [stage for _, stage in waiting()] == (["publish", "system"] if example.timer else ["system"])


def renamed(offer: Offer) -> Offer:
    offer.status = "live"
    return offer


def test_a_patch_of_what_is_so_already_is_not_saved_again(stages: Stages) -> None:
    # S9
    come = between(stages, lambda: change("status", "'live'"))

    def process(_offer: Offer, _state: object) -> Patch:
        come()
        return Patch({"status": "live"})

    stages.stage("publish", does=process)
    stages.asked("a")
    stages.serve("publish")
    assert (entity("a").version, len(stages.made), waiting()) == (2, 1, [("a", "system")])


def test_with_a_rate_a_conflict_is_not_tried_at_once(stages: Stages) -> None:
    # S9 S15
    come = between(stages, change, times=2)

    def process(offer: Offer, _state: object) -> Updated:
        come()
        return Updated(renamed(offer))

    stages.stage("publish", does=process)
    stages.asked("a")
    limit("publish", rate="100/s")
    stages.serve("publish")
    assert len(stages.made) == 1
    assert visit("a", "publish").not_before is not None


def test_a_patch_that_holds_needs_no_turn_of_its_own(stages: Stages) -> None:
    # S9 S15
    come = between(stages, change)

    def process(_offer: Offer, _state: object) -> Patch:
        come()
        return Patch({"status": "live"}, reads=["status"])

    stages.stage("publish", does=process)
    stages.asked("a")
    limit("publish", rate="100/s")
    stages.serve("publish")
    assert (entity("a").status, len(stages.made)) == ("live", 1)


# The state


@pytest.mark.parametrize("before", [None, 1])
@pytest.mark.parametrize("after", [None, 7])
@pytest.mark.parametrize(
    "outcome",
    [
        Untouched(),
        Untouched(timer=SOON),
        Untouched(state=Int64Value(value=5)),
        Untouched(state=None),
        Patch({"status": "live"}),
        Patch({"status": "live"}, state=Int64Value(value=5)),
    ],
)
def test_a_visit_whose_state_was_changed_from_outside_is_made_again(
    stages: Stages, before: int | None, after: int | None, outcome: Any
) -> None:
    # S6 S9
    seen: list[int | None] = []
    come = between(stages, lambda: set_state(after))

    def process(_offer: Offer, state: Int64Value | None) -> Any:
        seen.append(None if state is None else state.value)
        come()
        return outcome

    stages.stage("publish", does=process, state=Int64Value)
    stages.stage("other", wants=False)
    stages.put("a")
    set_state(before)
    stages.serve()
    stages.serve("publish")
    assert seen == ([before] if before is after is None else [before, after])
    assert number() == (after if outcome.state is KEEP else None if outcome.state is None else 5)
    assert entity("a").version == (2 if isinstance(outcome, Patch) else 1)


def test_a_state_that_is_being_made_elsewhere_is_waited_for(stages: Stages) -> None:
    # S6 S9
    made = threading.Event()
    seen: list[bool] = []

    def outside() -> None:
        with Session(engine()) as stranger:
            stranger.execute(
                sa.text(
                    "INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value) "
                    "VALUES ('offer', 'a', 'publish', 'type.googleapis.com/google.protobuf.Int64Value', '')"
                )
            )
            made.set()
            stranger.execute(sa.text("SELECT pg_sleep(0.2)"))
            stranger.commit()

    with ThreadPoolExecutor(1) as threads:

        def process(_offer: Offer, state: object) -> Untouched:
            seen.append(state is None)
            if len(seen) == 1:
                threads.submit(outside)
                assert made.wait(60)
            return Untouched(state=Int64Value(value=5))

        stages.stage("publish", does=process, state=Int64Value)
        stages.asked("a")
        stages.serve("publish")
    assert seen == [True, False]
    assert (number(), waiting()) == (5, [])


# Strangers who hold on to something


def test_an_open_transaction_on_one_entity_delays_that_one_only(stages: Stages) -> None:
    # S9
    stages.stage("publish", does=Patch({"status": "live"}))
    stages.asked("a", "b", "c")
    with Session(engine()) as stranger:
        stranger.execute(sa.text("UPDATE offer SET price = 1 WHERE id = 'b'"))
        stages.serve("publish")
        assert [entity(each).status for each in "abc"] == ["live", "new", "live"]
        assert [row for row in waiting() if row[1] == "publish"] == [("b", "publish")]
        row = visit("b", "publish")
        assert (row.state, row.attempts, row.error) == ("waiting", 0, HELD)
        stranger.commit()
    stages.all_due()
    stages.serve("publish")
    assert (entity("b").status, entity("b").price, entity("b").version) == ("live", 1, 3)


def test_an_open_transaction_delays_the_system_stage_for_that_entity_only(stages: Stages) -> None:
    # S7
    stages.stage("publish")
    stages.put("a", "b", "c")
    with Session(engine()) as stranger:
        stranger.execute(sa.text("UPDATE offer SET price = 1 WHERE id = 'b'"))
        stages.serve()
        assert [(each, stage) for each, stage in waiting() if stage == "publish"] == [
            ("a", "publish"),
            ("c", "publish"),
        ]
        stranger.commit()
    stages.serve()
    assert ("b", "publish") in waiting()


def test_an_open_offer_delays_the_end_of_that_visit_only(stages: Stages) -> None:
    # S10
    stages.stage("publish", does=Patch({"status": "live"}))
    stages.asked("a", "b", "c")
    with Session(engine()) as stranger:

        def offer(entity: Offer, _state: object) -> Patch:
            if len(stages.made) == 4:
                queue.offer("b", "offer.late", SOON, session=stranger)
            return Patch({"price": 1})

        stages.stage("late", does=offer)
        queue.offer_many(["a", "b", "c"], "offer.late")
        stages.serve("publish")
        stages.serve("late")
        assert [entity(each).price for each in "abc"] == [1, None, 1]
        stranger.commit()
    stages.sweep()
    stages.all_due()
    stages.serve("late")
    assert entity("b").price == 1
