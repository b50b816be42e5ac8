"""What the queues of stages are asked in words that mean nothing; and in SQL (S3)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotFound
from stages import queue, sync
from tests.kit.stages_rows import Lot, Offer, Stages, execute, visit, waiting, world
from tests.kit.stages_shop import Coupon, shop

NOW = datetime.now(UTC)


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        found.stage("publish")
        yield found


# Wrong arguments


class Stranger:
    pass


def test_a_stage_that_is_none_is_refused(stages: Stages) -> None:
    for wrong in ("offer.sell", "offer", "", "stage.offer.sell", Stranger, 7):
        with pytest.raises(NotFound, match=r"no stage|is no stage"):
            queue.offer("a", wrong)
    with pytest.raises(NotFound, match=r"there are: offer\.publish"):
        queue.peek("offer.sell")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: queue.offer(7, "offer.publish"), "must be text"),
        (lambda: queue.offer(None, "offer.publish"), "must be text"),
        (lambda: queue.offer("", "offer.publish"), "1 to 500 characters"),
        (lambda: queue.offer("x" * 501, "offer.publish"), "1 to 500 characters"),
        (lambda: queue.offer("a\0", "offer.publish"), "without NUL"),
        (lambda: queue.offer(Lot(id="a"), "offer.publish"), "Lot is no offer"),
        (lambda: queue.offer("a", "offer.publish", NOW.replace(tzinfo=None)), "has no time zone"),
        (lambda: queue.offer("a", "offer.publish", "soon"), "must be a datetime with a time zone"),  # type: ignore[arg-type]
        (lambda: queue.offer("a", "offer.publish", datetime.max.replace(tzinfo=UTC)), "more than 100 years"),
        (lambda: queue.peek("offer.publish", 0), "whole number from 1 to 10000"),
        (lambda: queue.peek("offer.publish", 10_001), "whole number from 1 to 10000"),
        (lambda: queue.peek("offer.publish", True), "whole number from 1 to 10000"),
        (lambda: queue.check("a"), "give an object, or its class and its id"),
        (lambda: queue.check((Stranger, "a")), "is not watched"),
        (lambda: queue.check((Offer, 7)), "must be text"),
    ],
)
def test_wrong_arguments_are_refused(stages: Stages, call: Any, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        call()
    assert waiting() == []


# In SQL


def offered(session: Session, words: str) -> bool:
    found: bool = session.execute(sa.text(f"SELECT tidemill.offer({words})")).scalar_one()
    session.commit()
    return found


def test_offered_from_sql(stages: Stages, session: Session) -> None:
    # S3
    stages.sync()
    assert offered(session, "'offer', 'publish', 'a', '2031-01-01Z'") is True
    assert offered(session, "'offer', 'publish', 'a', '2032-01-01Z'") is False
    assert offered(session, "'offer', 'publish', 'a'") is True
    assert offered(session, "kind => 'offer', stage => 'publish', entity_id => 'b', low => true") is True
    assert visit("b", "publish").due_at is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("'offer', 'sell', 'a'", "no stage 'sell' of 'offer' is known"),
        ("'offer', null, 'a'", "no stage null of 'offer' is known"),
        ("null, 'publish', 'a'", "no stage 'publish' of null is known"),
        ("'offer', 'system', 'a'", "no stage 'system' of 'offer' is known"),
        ("'offer', 'publish', ''", "1 to 500 characters"),
        ("'offer', 'publish', null", "1 to 500 characters"),
        ("'offer', 'publish', repeat('x', 501)", "1 to 500 characters"),
        ("'offer', 'publish', 'a', 'infinity'", "must lie between the years 2 and 9998"),
        ("'offer', 'publish', 'a', '0001-01-01Z'", "must lie between the years 2 and 9998"),
    ],
)
def test_wrong_words_are_refused_in_sql(stages: Stages, session: Session, words: str, said: str) -> None:
    stages.sync()
    with pytest.raises(sa.exc.DBAPIError, match=said):
        offered(session, words)
    session.rollback()
    assert waiting() == []


def test_what_can_be_no_id_of_the_kind_is_told_as_text_and_goes(database_url: str, broker_url: str) -> None:
    # S3
    with shop() as found:
        found.stage("publish", of=Coupon)
        sync.synchronize()
        found.put(7, of=Coupon)
        execute("SELECT tidemill.offer('coupon', 'publish', id) FROM unnest(ARRAY['0017', '7', 'x']) AS id")
        assert {entry.id for entry in queue.peek("coupon.publish")} == {"0017", 7, "x"}
        assert found.one.serve("stage.coupon.publish", 100)[0] == 3
        assert (found.made_of("publish"), queue.peek("coupon.publish")) == ([7], [])
