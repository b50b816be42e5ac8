"""A hundredth of the measures B1 and B13 of the benchmark, of which only the ratios are judged: visits in batches
against one by one, and a backlog whose tickets are lost against one that nobody disturbs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kombu import Connection

from app import dispatch
from app.db import autocommit, engine
from stages import Updated, serving
from stages.definition import queue_of
from tests.kit import servers as kit_servers
from tests.kit.beating import alive
from tests.kit.plans import captured
from tests.kit.stages_rows import Offer, Stages, execute, world

QUEUE = queue_of("offer", "publish")
BATCH = 100
_OFFER = "INSERT INTO offer (id) SELECT to_char(i, 'FM00000000') FROM generate_series(1, :rows) i"


@pytest.fixture
def stages(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stages]:
    # However slow the machine is, what waits is worked off with one ticket.
    monkeypatch.setattr(serving, "TICKET_SECONDS", 600.0)
    with world() as found:
        found.stage("publish", wants=lambda offer, _: offer.price is None, does=_visited, batch=BATCH)
        found.sync()
        yield found


def _visited(offer: Offer, _state: object) -> Updated:
    offer.price = 1
    return Updated(offer)


def _offered(stages: Stages, rows: int) -> None:
    """So many entities, all waiting to be visited, and the system stage with nothing to do."""
    execute("TRUNCATE offer, tidemill.stage_visit, tidemill.stage_state, tidemill.entity_guard, tidemill.event")
    execute(_OFFER, rows=rows)
    _settled(stages)
    assert _waiting() == rows


def _waiting() -> int:
    found: int = execute("SELECT count(*) FROM tidemill.stage_visit WHERE stage = 'publish'")[0][0]
    return found


def _settled(stages: Stages) -> None:
    while stages.serve():
        pass


def _worked_off(stages: Stages, rows: int, take: int) -> tuple[float, float]:
    """Seconds of a visit, and statements of a batch besides its claim."""
    _offered(stages, rows)
    with captured(engine()) as sent:
        begun = time.perf_counter()
        assert stages.serve("publish", take=take) == rows
        took = time.perf_counter() - begun
    assert _waiting() == 0
    # What was slow is prepared anew.
    done = [each.text for each in sent if not each.text.startswith(("PREPARE", "DEALLOCATE"))]
    claims = sum(text.startswith("EXECUTE tidemill_claim") for text in done)
    # The last one found nothing.
    return took / rows, (len(done) - claims) / (claims - 1)


def test_a_batch_takes_as_many_statements_as_one(stages: Stages) -> None:
    # B1
    _worked_off(stages, BATCH, BATCH)
    alone, few, many = (_worked_off(stages, rows, min(rows, BATCH))[1] for rows in (1, BATCH, 6 * BATCH))
    assert few <= 1.5 * alone, (alone, few)
    assert many <= 1.5 * few, (few, many)


def test_visits_in_batches_against_one_by_one(stages: Stages) -> None:
    # B1: in turns and the best of each, so that a loaded machine is slow for both.
    rounds = [(_worked_off(stages, 6 * BATCH, BATCH)[0], _worked_off(stages, BATCH // 2, 1)[0]) for _ in range(5)]
    batched, alone = (min(each) for each in zip(*rounds, strict=True))
    assert alone >= 2.5 * batched, rounds


def _passes(stages: Stages, broker_url: str, rows: int, *, wipe: bool) -> int:
    """How often it must be rung until all are visited, each ticket being good for one batch. `wipe`: the first tickets
    are lost."""
    _offered(stages, rows)
    kit_servers.flush(broker_url)
    passes = 0
    with Connection(broker_url) as connection:
        while _waiting():
            passes += 1
            assert passes <= rows, "nobody rings"
            dispatch.run_once(queues=[QUEUE])
            if wipe and passes == 1:
                kit_servers.flush(broker_url)
                continue
            with connection.SimpleQueue(QUEUE) as tickets:
                for _ in range(tickets.qsize()):
                    tickets.get(block=False).ack()
                    stages.serve("publish")
    return passes


def test_a_backlog_whose_tickets_are_lost(stages: Stages, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # B13
    monkeypatch.setattr(serving, "TICKET_SECONDS", 0.0)
    with autocommit() as connection:
        alive(connection, "w1", [QUEUE], 1, 1)
    undisturbed = _passes(stages, broker_url, 12 * BATCH, wipe=False)
    wiped = _passes(stages, broker_url, 12 * BATCH, wipe=True)
    assert undisturbed >= 4, "the tickets of one pass are not enough"
    assert undisturbed <= wiped <= 1.3 * undisturbed, (undisturbed, wiped)
