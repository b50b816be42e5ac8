"""When the queues of actors were asked for work is noted, seldom; by workers, and by polls from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from processes import outside, polls
from processes.polls import Sampler
from tests.kit import corruption as c
from tests.kit import process_rows as r
from tests.kit.plans import captured


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def noted(session: Session) -> dict[str, Any]:
    return {row.queue: row for row in r.rows(session, "SELECT * FROM tidemill.queue_poll")}


def test_a_worker_notes_that_it_has_asked_and_how_far_it_came(session: Session) -> None:
    # R4
    server = r.server(c.Alone())
    assert server.serve("actor.stride", 1) == (0, False)
    in_vain = noted(session)["actor.stride"]
    assert (in_vain.polled_at is not None, in_vain.reached) == (True, None)
    found = c.journey()
    assert server.serve("actor.midway", 1)[0] == 1
    ready = r.rows(session, f"SELECT due_at FROM tidemill.decision WHERE process_id = {found.id} AND number = 3")  # noqa: S608
    assert noted(session)["actor.midway"].reached == ready[0].due_at


def test_it_is_written_seldom_and_never_goes_back(session: Session, engine: Engine) -> None:
    sampler = Sampler()
    row = r.rows(session, "SELECT now() AS ready")[0]
    earlier = r.rows(session, "SELECT now() - interval '1 h' AS ready")[0]
    with captured(engine) as asked:
        for _ in range(10):
            sampler.note("actor.stride", [earlier])
            sampler.note("actor.stride", [row])
    assert len(asked) == 1
    sampler.written["actor.stride"] -= polls.EVERY_SECONDS
    sampler.note("actor.stride", [])
    assert noted(session)["actor.stride"].reached == row.ready, "what came between two notes is not forgotten"
    Sampler().note("actor.stride", [earlier])
    assert noted(session)["actor.stride"].reached == row.ready


def test_polls_from_outside_are_noted(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # P10, R4
    monkeypatch.setattr(outside, "_polls", Sampler())
    r.done_elsewhere("stride")
    outside.poll("stride", worker="w")
    assert noted(session)["actor.stride"].polled_at is not None


def test_what_cannot_be_noted_hinders_nobody(session: Session) -> None:
    r.execute("DROP TABLE tidemill.queue_poll")
    c.journey()
    assert r.server(c.Alone()).serve("actor.midway", 1)[0] == 1
